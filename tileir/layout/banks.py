"""LDS bank conflicts: degrees by enumeration, and a rank argument where the layout is linear.

Model: an LDS instruction is served in phases, one per *lane group*; within a phase every bank delivers one dword per
clock, and lanes that touch the same dword share it. The degree is the largest number of distinct dwords that one bank has
to deliver in one phase; 1 is conflict-free. Which lanes form a group, and how many banks there are, are measured facts of
each instruction on each chip and are passed in by the caller with their evidence. Two lanes writing parts of one dword
are taken to share it (assumed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Protocol

import numpy as np

from tileir.records import dataclass

from . import gf2
from .linear import WAVE, Index, IntArray, Layout, LayoutError
from .shared import SharedLayout

LaneGroups = Sequence[Sequence[int]]


def _check_groups(lane_groups: LaneGroups) -> None:
    lanes = sorted(lane for group in lane_groups for lane in group)
    if lanes != list(range(WAVE)):
        raise LayoutError("lane groups must contain each of the lanes 0 .. 63 exactly once")


def conflict_degrees(
    addresses: Index, bytes_per_lane: int, banks: int, lane_groups: LaneGroups, bank_bytes: int = 4
) -> IntArray:
    """Degree of every group of every instruction.

    Args:
        addresses: byte address per lane, [..., 64]; negative for inactive lanes.
        bytes_per_lane: contiguous bytes that a lane accesses.
        banks: number of banks, each ``bank_bytes`` wide.
        lane_groups: the lanes served together; a partition of 0 .. 63.

    Returns:
        int64 [..., groups]; 0 where no lane is active.

    Raises:
        LayoutError: groups that are no partition, addresses that are not 64 per instruction.
    """
    _check_groups(lane_groups)
    address = np.asarray(addresses, dtype=np.int64)
    if address.ndim == 0 or address.shape[-1] != WAVE:
        raise LayoutError("conflict_degrees needs 64 addresses per instruction")
    lead = address.shape[:-1]
    flat = address.reshape(-1, WAVE)
    words = -(-bytes_per_lane // bank_bytes)
    out = np.zeros((len(flat), len(lane_groups)), dtype=np.int64)
    for g, group in enumerate(lane_groups):
        part = flat[:, list(group), None]
        word = np.where(part < 0, -1, part // bank_bytes + np.arange(words)).reshape(len(flat), -1)
        word.sort(axis=1)
        counts = (word >= 0) & np.concatenate(
            [np.ones((len(flat), 1), dtype=np.bool_), word[:, 1:] != word[:, :-1]], axis=1
        )
        slot = np.arange(len(flat))[:, None] * banks + word % banks
        per_bank = np.bincount(slot.ravel(), weights=counts.ravel(), minlength=len(flat) * banks)
        out[:, g] = per_bank.reshape(len(flat), banks).max(axis=1, initial=0)
    return out.reshape(*lead, len(lane_groups))


def conflict_degree(
    addresses: Index, bytes_per_lane: int, banks: int, lane_groups: LaneGroups, bank_bytes: int = 4
) -> int:
    """Largest degree over all groups (and instructions) of ``addresses``; see :func:`conflict_degrees`."""
    return int(conflict_degrees(addresses, bytes_per_lane, banks, lane_groups, bank_bytes).max(initial=0))


class BankRule(Protocol):
    """How the LDS serves one instruction: the facts of `tileir.target` that the model needs (structural type)."""

    @property
    def op(self) -> str: ...
    @property
    def direction(self) -> str: ...
    @property
    def bytes_per_lane(self) -> int: ...
    @property
    def addresses_per_lane(self) -> int: ...
    @property
    def banks(self) -> int: ...
    @property
    def bank_bytes(self) -> int: ...
    @property
    def lane_groups(self) -> tuple[tuple[int, ...], ...]: ...
    @property
    def evidence(self) -> str: ...


@dataclass(frozen=True, eq=False)
class Access:
    """All LDS instructions of one kind that touch a shared tile.

    Attributes:
        name: what it is, for messages ("read of %a").
        rule: the machine instruction and its facts on the chip; one address per lane.
        rows, cols: element at which lane l of instruction i begins, int64 [instructions, 64]; row -1 = inactive.

    Raises:
        LayoutError: a two-address instruction, lane groups that are no partition, arrays of another shape.
    """

    name: str
    rule: BankRule
    rows: IntArray
    cols: IntArray

    def __post_init__(self) -> None:
        _check_groups(self.rule.lane_groups)
        if self.rule.addresses_per_lane != 1:
            raise LayoutError(f"{self.name}: {self.rule.op} has several addresses per lane; use the one-address form")
        if self.rows.shape != self.cols.shape or self.rows.ndim != 2 or self.rows.shape[1] != WAVE:
            raise LayoutError(f"{self.name}: rows and cols must be [instructions, {WAVE}]")

    def addresses(self, shared: SharedLayout) -> IntArray:
        """Byte addresses [instructions, 64] in a layout, -1 for inactive lanes.

        Raises:
            LayoutError: the layout tears a lane's bytes apart.
        """
        inactive = self.rows < 0
        image = np.where(inactive, 0, self.rows * shared.row_bytes + self.cols * shared.elem_bits // 8)
        address = shared.offset_of_image(image)
        last = shared.offset_of_image(image + self.rule.bytes_per_lane - 1)
        if np.any(~inactive & (last - address != self.rule.bytes_per_lane - 1)):
            raise LayoutError(f"{shared} tears the {self.rule.bytes_per_lane} bytes of a lane apart for {self.name}")
        return np.where(inactive, -1, address)

    def degrees(self, shared: SharedLayout) -> IntArray:
        """Degree of every instruction and group, int64 [instructions, groups]."""
        return self.degrees_at(self.addresses(shared))

    def degrees_at(self, addresses: IntArray) -> IntArray:
        """Degrees at given byte addresses [instructions, 64]."""
        r = self.rule
        return conflict_degrees(addresses, r.bytes_per_lane, r.banks, r.lane_groups, r.bank_bytes)

    @classmethod
    def of_layout(cls, name: str, rule: BankRule, layout: Layout, elem_bits: int) -> Access:
        """The accesses that move a tile between LDS and the registers of ``layout``. The last dimension is that of the columns,
        which are contiguous in LDS; the others, in row-major order, are the rows.

        Every run of ``rule.bytes_per_lane`` bytes of columns is one instruction. Lanes that hold only holes are inactive when
        they write; when they read, they take part at the place that :meth:`Layout.fold` gives.

        Raises:
            LayoutError: the layout does not have runs of that length.
        """
        vector = rule.bytes_per_lane * 8 // elem_bits
        last = layout.rank - 1
        if last < 0 or rule.bytes_per_lane * 8 % elem_bits or layout.contiguous(last) < vector:
            raise LayoutError(
                f"{name}: {rule.op} needs {vector} elements contiguous along columns in the lowest registers of {layout}"
            )
        places = layout.holders(vector)
        holes = np.zeros(places[0].shape, dtype=np.bool_)
        if layout.padded_shape != layout.shape:
            for x, n in zip(places, layout.shape, strict=True):
                holes |= x >= n
            if rule.direction == "read":
                folds = [layout.fold(axis) for axis in range(layout.rank)]
                places = tuple(
                    np.where(x < n, x, first + x % kept) for x, (n, first, kept) in zip(places, folds, strict=True)
                )
        rows, cols = matrix_places(places, layout.shape)
        if rule.direction != "read":
            rows, cols = np.where(holes, -1, rows), np.where(holes, 0, cols)
        rows, cols = (x.transpose(0, 2, 1).reshape(-1, WAVE) for x in (rows, cols))
        keys = {rows[i].tobytes() + cols[i].tobytes(): i for i in reversed(range(len(rows))) if rows[i].max() >= 0}
        distinct = sorted(keys.values())
        return cls(name, rule, rows[distinct], cols[distinct])


def matrix_places(coordinates: Sequence[IntArray], shape: Sequence[int]) -> tuple[IntArray, IntArray]:
    """(row, column) of elements of a tile, given by coordinate, whose dimensions but the last are the rows of a matrix, row-major."""
    rows = np.zeros(coordinates[-1].shape, dtype=np.int64)
    for x, size in zip(coordinates[:-1], shape, strict=False):
        rows = rows * size + x
    return rows, coordinates[-1]


# -- proofs --------------------------------------------------------------------------------------------------------


def coset(group: Sequence[int]) -> tuple[int, tuple[int, ...]] | None:
    """(representative, basis) if the lanes are a coset of a GF(2) subspace of the lane bits, else None."""
    first = min(group)
    span = gf2.Span()
    basis = tuple(lane ^ first for lane in sorted(group) if span.add(lane ^ first))
    return (first, basis) if 1 << len(basis) == len(set(group)) else None


def linear_parts(values: IntArray) -> IntArray | None:
    """Per row of [rows, 2ⁿ] the change by each bit of the column number, [rows, n], or None if a row is not affine in them."""
    delta = values ^ values[:, :1]
    size = values.shape[1]
    bits = [1 << i for i in range(size.bit_length() - 1)]
    model = np.zeros_like(delta)
    for i, bit in enumerate(bits):
        model ^= (np.arange(size) >> i & 1) * delta[:, bit, None]
    return delta[:, bits] if np.array_equal(model, delta) else None


def linear_part(addresses: Index) -> tuple[int, ...] | None:
    """Address change of each lane bit if 64 addresses are affine over GF(2) in the lane, else None."""
    a = np.asarray(addresses, dtype=np.int64)
    parts = None if np.any(a < 0) else linear_parts(a[None])
    return None if parts is None else tuple(parts[0].tolist())


@dataclass(frozen=True)
class RankArgument:
    """Why a linear access has its degree: within a group, the dwords touched are a coset of ``span(vectors)``.

    Distinct dwords: 2**full_rank. They fall on 2**bank_rank banks evenly, so the degree is 2**(full_rank - bank_rank).
    """

    group: tuple[int, ...]
    vectors: tuple[int, ...]
    full_rank: int
    bank_rank: int

    @property
    def degree(self) -> int:
        """The degree the argument gives."""
        return 1 << self.full_rank - self.bank_rank

    def __str__(self) -> str:
        spanned = ", ".join(f"{v:#x}" for v in self.vectors)
        return (
            f"lanes {_ranges(self.group)} touch dwords that differ by span({spanned}) in byte address: rank "
            f"{self.full_rank} in all, rank {self.bank_rank} on the bank bits, degree 2^{self.full_rank - self.bank_rank} "
            f"= {self.degree}"
        )


def rank_arguments(
    addresses: Index, bytes_per_lane: int, banks: int, lane_groups: LaneGroups, bank_bytes: int = 4
) -> tuple[RankArgument, ...] | None:
    """One argument per group, or None where the access is not linear (padding, 12-byte accesses, inactive lanes)."""
    vectors = linear_part(addresses)
    words = -(-bytes_per_lane // bank_bytes)
    start = int(np.asarray(addresses, dtype=np.int64)[0])
    low = max(bytes_per_lane, bank_bytes) - 1
    if vectors is None or words & words - 1 or banks & banks - 1:
        return None
    if bytes_per_lane >= bank_bytes and (start & low or any(v & low for v in vectors)):
        return None
    bank_mask = banks * bank_bytes - bank_bytes
    out: list[RankArgument] = []
    for group in lane_groups:
        found = coset(group)
        if found is None:
            return None
        moved = [gf2.apply(vectors, v) & -bank_bytes for v in found[1]]
        moved += [bank_bytes << i for i in range(words.bit_length() - 1)]
        basis = tuple(v for v in moved if v)
        out.append(RankArgument(tuple(group), basis, gf2.rank(basis), gf2.rank(v & bank_mask for v in basis)))
    return tuple(out)


class Consecutive(Access):
    """Lanes that write consecutive places, whatever the layout: ``rows`` are the numbers of the places, -1 for idle lanes."""

    def addresses(self, shared: SharedLayout) -> IntArray:
        return np.where(self.rows < 0, -1, self.rows * self.rule.bytes_per_lane)


@dataclass(frozen=True, eq=False)
class AccessProof:
    """What was established for one access: its degree by enumeration, and the rank argument of the worst instruction."""

    access: Access
    addresses: IntArray
    degrees: IntArray
    ranks: tuple[RankArgument, ...] | None

    @property
    def degree(self) -> int:
        """Largest degree of any instruction and group."""
        return int(self.degrees.max(initial=0))

    @property
    def clocks(self) -> int:
        """LDS clocks of all instructions: the sum of degrees over instructions and lane groups."""
        return int(self.degrees.sum())

    @property
    def free_clocks(self) -> int:
        """Clocks without any conflict: the number of groups with an active lane."""
        return int(np.count_nonzero(self.degrees))

    @property
    def worst(self) -> int:
        """Index of the first instruction that has the largest degree."""
        return int(self.degrees.max(axis=1, initial=0).argmax())

    def report(self) -> str:
        """The enumeration of the worst instruction, group by group, and the rank argument."""
        a = self.access.rule
        count = len(self.addresses)
        lines = [
            f"{self.access.name}: {a.op}, {a.bytes_per_lane} bytes per lane, {a.banks} banks, lane groups {a.evidence}",
            f"  degree {self.degree} over {count} instruction{'s' * (count != 1)} of {len(a.lane_groups)} groups; "
            f"instruction {self.worst} in full:",
        ]
        words = -(-a.bytes_per_lane // a.bank_bytes)
        for g, group in enumerate(a.lane_groups):
            lines.append(f"  lanes {_ranges(group)}: degree {self.degrees[self.worst, g]}")
            cells: list[str] = []
            for lane in group:
                address = int(self.addresses[self.worst, lane])
                if address >= 0:
                    first = address // a.bank_bytes % a.banks
                    last = (address // a.bank_bytes + words - 1) % a.banks
                    banks = f"{first}" if words == 1 else f"{first}-{last}"
                    cells.append(f"lane {lane} at {address} banks {banks}")
            lines += ["    " + "; ".join(cells[i : i + 4]) for i in range(0, len(cells), 4)]
            if self.ranks is not None:
                lines.append(f"    rank: {self.ranks[g]}")
        if self.ranks is None:
            lines.append("  rank: not linear over GF(2) in the lane number; the enumeration is the proof")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Proof:
    """Degrees of all accesses of one shared tile in one layout."""

    shared: SharedLayout
    accesses: tuple[AccessProof, ...] = field(default=())

    @property
    def degree(self) -> int:
        """Largest degree of all accesses (0 if there are none)."""
        return max((p.degree for p in self.accesses), default=0)

    @property
    def clocks(self) -> int:
        """LDS clocks of all accesses."""
        return sum(p.clocks for p in self.accesses)

    def conflicts(self) -> str:
        """The accesses that pay, and how much."""
        paying = [p for p in self.accesses if p.degree > 1]
        return ", ".join(
            f"{p.access.name} takes {p.clocks} clocks instead of {p.free_clocks} (degree {p.degree})" for p in paying
        )

    @property
    def conflict_free(self) -> bool:
        """True if no access conflicts."""
        return self.degree <= 1

    def summary(self) -> str:
        """One line per access."""
        head = f"{self.shared}: {self.shared.rows} x {self.shared.cols} elements of {self.shared.elem_bits} bits, "
        lines = [head + f"{self.shared.size_bytes} bytes"]
        for p in self.accesses:
            lines.append(
                f"  {p.access.name}: {p.access.rule.op} degree {p.degree} (lane groups {p.access.rule.evidence})"
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        return "\n".join([self.summary(), *(p.report() for p in self.accesses)])


def prove(shared: SharedLayout, accesses: Sequence[Access], *, direct: BankRule | None = None) -> Proof:
    """Enumerate every access in ``shared`` and, where the addresses are linear, derive the same degree from ranks.

    Args:
        direct: rule of the direct-to-LDS loads that fill the tile. They write lane * bytes from the start of a slab,
            whatever the layout, so one slab proves all.

    Raises:
        LayoutError: an access that the layout tears apart; a layout that direct loads cannot produce.
    """
    if direct is not None:
        if not shared.allows_direct(direct.bytes_per_lane):
            raise LayoutError(
                f"{direct.op} cannot fill {shared}: its {direct.bytes_per_lane}-byte pieces must stay whole"
            )
        lane = np.arange(WAVE, dtype=np.int64)[None]
        accesses = [*accesses, Consecutive("direct write", direct, lane, 0 * lane)]
    proofs: list[AccessProof] = []
    for access in accesses:
        addresses = access.addresses(shared)
        degrees = access.degrees_at(addresses)
        r = access.rule
        worst = int(degrees.max(axis=1, initial=0).argmax()) if len(degrees) else 0
        ranks = (
            rank_arguments(addresses[worst], r.bytes_per_lane, r.banks, r.lane_groups, r.bank_bytes)
            if len(degrees)
            else None
        )
        if ranks is not None and [r.degree for r in ranks] != degrees[worst].tolist():
            raise AssertionError(f"{access.name}: the rank argument contradicts the enumeration")
        proofs.append(AccessProof(access, addresses, degrees, ranks))
    return Proof(shared, tuple(proofs))


def _ranges(lanes: Sequence[int]) -> str:
    parts: list[str] = []
    start = previous = lanes[0]
    for lane in [*lanes[1:], -2]:
        if lane != previous + 1:
            parts.append(f"{start}-{previous}" if start != previous else f"{start}")
            start = lane
        previous = lane
    return "{" + ", ".join(parts) + "}"
