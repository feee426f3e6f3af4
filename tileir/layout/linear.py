"""Distributed layouts: which (register, lane, wave) holds which element of a tile.

The heart of a layout is a GF(2)-linear map from the bits of (register, lane, wave) to coordinates inside a block whose
extents are powers of two. The block is repeated along the dimensions by further registers, so that 192 = 64 * 3 needs
no padding to 256.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tileir.records import dataclass, hash_once

from . import gf2
from .algebra import LayoutError, LinearMap
from .shapes import reshape_groups

LANE_BITS = 6
"""log2 of the wave size; CDNA waves have 64 lanes (CDNA3 ISA, "wavefront")."""
WAVE = 1 << LANE_BITS
"""Lanes in a wave."""

Vector = tuple[int, ...]
IntArray = npt.NDArray[np.int64]
Index = int | Sequence[int] | IntArray


class FreeMasks(NamedTuple):
    """Bits that only select another copy of the same element.

    The copy at (reg, lane, wave) is the *canonical* one iff ``reg & free.reg == lane & free.lane == wave & free.wave
    == 0``; the canonical copies hold every element exactly once. ``reg`` masks bits of the register index inside the
    block (repetitions never replicate).
    """

    reg: int
    lane: int
    wave: int


def ceil_log2(n: int) -> int:
    """Smallest b with 2**b >= n, for n >= 1."""
    return (n - 1).bit_length()


def _is_power_of_two(n: int) -> bool:
    return n >= 1 and n & (n - 1) == 0


def _list(vectors: Iterable[Iterable[int]]) -> str:
    return "[" + ", ".join("[" + ", ".join(str(x) for x in v) + "]" for v in vectors) + "]"


@hash_once
@dataclass(frozen=True)
class Layout:
    """Distributed layout of a tile.

    Element held by (register r, lane l, wave w): XOR of the basis vectors selected by the bits of ``r % 2**len(reg)``,
    ``l`` and ``w``, plus ``block * rep`` where ``rep`` is the index tuple of ``r // 2**len(reg)`` row-major over
    ``reps``. Coordinates >= shape are *holes*: registers that hold no element.

    The constructor validates, and normalises so that equal maps compare equal: an even repetition of the innermost
    repeated dimension becomes a register bit (reps (1, 6) → one more register bit and reps (1, 3)).

    Attributes:
        shape: tile shape, any sizes >= 1; rank 0 is a scalar.
        reg: basis vector (one coordinate per dimension) of each register bit, least significant first.
        lane: 6 vectors; a zero vector means that the lane bit replicates.
        wave: log2(number of waves) vectors.
        reps: repetitions of the block per dimension; always ``ceil(shape / block)``.

    Raises:
        LayoutError: malformed vectors, an element without owner, or wrong ``reps``.
    """

    shape: tuple[int, ...]
    reg: tuple[Vector, ...]
    lane: tuple[Vector, ...]
    wave: tuple[Vector, ...]
    reps: tuple[int, ...]

    def __post_init__(self) -> None:
        rank = len(self.shape)
        if any(n < 1 for n in self.shape):
            raise LayoutError(f"tile shape {list(self.shape)}: every dimension must be at least 1")
        if len(self.lane) != LANE_BITS:
            raise LayoutError(
                f"lane has {len(self.lane)} basis vectors; a wave of 64 lanes needs exactly {LANE_BITS} "
                f"(use {[0] * rank} for a lane bit that replicates)"
            )
        for name, vectors in (("reg", self.reg), ("lane", self.lane), ("wave", self.wave)):
            for vector in vectors:
                if len(vector) != rank:
                    raise LayoutError(f"{name} vector {list(vector)} must have {rank} coordinates, one per dimension")
                if any(x < 0 for x in vector):
                    raise LayoutError(f"{name} vector {list(vector)}: coordinates must not be negative")
        block = self.block
        span = gf2.Span(self.linear_map.columns)
        for d in range(rank):
            for bit in range(ceil_log2(block[d])):
                unit = tuple(1 << bit if e == d else 0 for e in range(rank))
                if self._pack(unit) not in span:
                    raise LayoutError(
                        f"no register, lane or wave holds element {list(unit)}: the basis vectors must span the whole "
                        f"block {list(block)}; add {list(unit)} to reg, lane or wave"
                    )
        expected = tuple(-(-n // b) for n, b in zip(self.shape, block, strict=True))
        if tuple(self.reps) != expected:
            raise LayoutError(
                f"the basis vectors cover a block of {list(block)}; a tile of {list(self.shape)} needs "
                f"reps = {list(expected)}, not {list(self.reps)}"
            )
        self._normalise()

    def _normalise(self) -> None:
        reg, reps, block = list(self.reg), list(self.reps), list(self.block)
        for d in reversed(range(len(reps))):
            while reps[d] % 2 == 0:
                reg.append(tuple(block[d] if e == d else 0 for e in range(len(reps))))
                block[d] *= 2
                reps[d] //= 2
            if reps[d] > 1:
                break
        object.__setattr__(self, "reg", tuple(reg))
        object.__setattr__(self, "reps", tuple(reps))
        self.__dict__.pop("block", None)
        self.__dict__.pop("linear_map", None)

    @classmethod
    def from_bases(
        cls,
        shape: Sequence[int],
        reg: Iterable[Sequence[int]],
        lane: Iterable[Sequence[int]],
        wave: Iterable[Sequence[int]],
        reps: Sequence[int] | None = None,
    ) -> Layout:
        """A layout from any sequences (what a parser has); ``reps = None`` means all 1.

        Raises:
            LayoutError: as the constructor.
        """

        def vectors(items: Iterable[Sequence[int]]) -> tuple[Vector, ...]:
            return tuple(tuple(int(x) for x in v) for v in items)

        shape = tuple(int(n) for n in shape)
        if reps is not None and len(reps) != len(shape):
            raise LayoutError(f"reps = {list(reps)} must have {len(shape)} entries, one per dimension")
        return cls(
            shape,
            vectors(reg),
            vectors(lane),
            vectors(wave),
            (1,) * len(shape) if reps is None else tuple(int(r) for r in reps),
        )

    # -- extents -------------------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def _vectors(self) -> tuple[Vector, ...]:
        return self.reg + self.lane + self.wave

    @functools.cached_property
    def block(self) -> tuple[int, ...]:
        """Power-of-two extent of the linear part per dimension."""
        bits = [max((v[d] for v in self._vectors), default=0).bit_length() for d in range(len(self.shape))]
        return tuple(1 << b for b in bits)

    @property
    def padded_shape(self) -> tuple[int, ...]:
        """Extent that registers cover per dimension, holes included: block * reps."""
        return tuple(b * r for b, r in zip(self.block, self.reps, strict=True))

    @property
    def registers_per_block(self) -> int:
        """2**len(reg)."""
        return 1 << len(self.reg)

    @property
    def num_registers(self) -> int:
        """Elements per lane, holes and copies included."""
        return self.registers_per_block * math.prod(self.reps)

    @property
    def num_waves(self) -> int:
        """Number of waves."""
        return 1 << len(self.wave)

    # -- the map and its inverse ---------------------------------------------------------------------------------

    def coords(self, reg: Index, lane: Index, wave: Index) -> tuple[IntArray, ...]:
        """Coordinates of the element held, one int64 array per dimension; the arguments broadcast.

        The coordinates of a hole are >= shape in some dimension.
        """
        r, l, w = (np.asarray(x, dtype=np.int64) for x in (reg, lane, wave))
        shape = np.broadcast_shapes(r.shape, l.shape, w.shape)
        rep, inner = np.divmod(r, self.registers_per_block)
        out: list[IntArray] = []
        for d in range(self.rank):
            # each argument's share at its own size first: a whole table then costs two XORs per element
            value = np.zeros((), dtype=np.int64)
            for source, vectors in ((inner, self.reg), (l, self.lane), (w, self.wave)):
                share = np.zeros(source.shape, dtype=np.int64)
                for i, vector in enumerate(vectors):
                    if vector[d]:
                        share ^= (source >> i & 1) * vector[d]
                value = value ^ share
            step = math.prod(self.reps[d + 1 :])
            out.append(np.broadcast_to(value + rep // step % self.reps[d] * self.block[d], shape))
        return tuple(out)

    def holders(self, step: int = 1) -> tuple[IntArray, ...]:
        """Coordinates of every ``step``-th register: per dimension an int64 array [waves, 64, registers / step]."""
        return self.coords(
            np.arange(0, self.num_registers, step)[None, None, :],
            np.arange(WAVE)[None, :, None],
            np.arange(self.num_waves)[:, None, None],
        )

    def owner_table(self) -> IntArray:
        """Coordinates of every register: int64 array [waves, 64, registers, rank]."""
        table = self.holders()
        full = (self.num_waves, WAVE, self.num_registers)
        return np.stack(table, axis=-1) if table else np.zeros((*full, 0), dtype=np.int64)

    def fold(self, axis: int) -> tuple[int, int, int]:
        """(extent, first, kept): along ``axis``, a coordinate x from the extent on is read at first + x % kept instead, where a lane
        must take part in a read but has no element there. That is in the last block, with as few high bits of the place in it left
        out as needed: what another lane usually reads at the same time, so that it costs nothing. Runs that divide the
        extent stay whole."""
        n, block = self.shape[axis], self.block[axis]
        first = (n - 1) // block * block
        return n, first, 1 << (n - first).bit_length() - 1

    def holes(self) -> npt.NDArray[np.bool_]:
        """Which registers hold no element: bool array [waves, 64, registers]."""
        if self.padded_shape == self.shape:
            return np.zeros((self.num_waves, WAVE, self.num_registers), dtype=np.bool_)
        return np.any(self.owner_table() >= np.array(self.shape, dtype=np.int64), axis=-1)

    def owner(self, *coords: Index) -> tuple[IntArray, IntArray, IntArray]:
        """(register, lane, wave) of the canonical copy of the elements at ``coords`` (see :class:`FreeMasks`).

        Raises:
            LayoutError: wrong number of coordinates, or one outside the padded shape.
        """
        if len(coords) != self.rank:
            raise LayoutError(f"owner() needs {self.rank} coordinates, one per dimension, not {len(coords)}")
        arrays = np.broadcast_arrays(*(np.asarray(c, dtype=np.int64) for c in coords)) if coords else []
        for d, c in enumerate(arrays):
            if np.any((c < 0) | (c >= self.padded_shape[d])):
                raise LayoutError(f"coordinate {d} must lie in 0 .. {self.padded_shape[d] - 1}")
        index = np.zeros(arrays[0].shape if coords else (), dtype=np.int64)
        rep = np.zeros_like(index)
        holders = iter(self.linear_map.right_inverse().columns)
        for d, c in enumerate(arrays):
            rep = rep * self.reps[d] + c // self.block[d]
            inner = c % self.block[d]
            for bit in range(ceil_log2(self.block[d])):
                index ^= (inner >> bit & 1) * next(holders)
        n = len(self.reg)
        reg = rep * self.registers_per_block + (index & self.registers_per_block - 1)
        lane = index >> n & WAVE - 1
        return reg, lane, index >> (n + LANE_BITS)

    @functools.cached_property
    def linear_map(self) -> LinearMap:
        """The block as a linear map from the bits of ``reg``, ``lane`` and ``wave`` to those of ``dim0``, ``dim1``, …"""
        outputs = tuple((f"dim{d}", ceil_log2(extent)) for d, extent in enumerate(self.block))
        groups = (("reg", self.reg), ("lane", self.lane), ("wave", self.wave))
        columns = tuple(self._pack(v) for _, vectors in groups for v in vectors)
        return LinearMap(tuple((name, len(vectors)) for name, vectors in groups), outputs, columns)

    @classmethod
    def of_map(cls, shape: Sequence[int], block: LinearMap, reps: Sequence[int] | None = None) -> Layout:
        """The layout whose block is a linear map from ``reg``, ``lane`` and ``wave``; its outputs are the dimensions in order.
        Missing lane bits replicate.

        Raises:
            LayoutError: other groups of bits; as the constructor.
        """
        known = dict(block.inputs)
        if set(known) - {"reg", "lane", "wave"} or len(block.outputs) != len(shape):
            raise LayoutError(f"{block} is no map from reg, lane and wave to {len(shape)} dimensions")
        reg, lane, wave = (block.bases(name) if name in known else () for name in ("reg", "lane", "wave"))
        lane = (*lane, *[(0,) * len(shape)] * (LANE_BITS - len(lane)))
        return cls.from_bases(shape, reg, lane, wave, reps)

    def repeat(self, times: Sequence[int]) -> Layout:
        """The layout of a tile made of ``times`` of this one along each dimension, in further registers of the same lanes: the
        product with a repetition of any length, powers of two or not.

        Raises:
            LayoutError: a count below 1 or of another rank; a tile with holes, which cannot be put side by side.
        """
        if len(times) != self.rank or any(n < 1 for n in times):
            raise LayoutError(f"times = {list(times)} must be {self.rank} numbers of at least 1, one per dimension")
        if self.padded_shape != self.shape:
            raise LayoutError(
                f"a tile of {list(self.shape)} in blocks of {list(self.block)} has holes: it cannot repeat"
            )
        shape = tuple(n * t for n, t in zip(self.shape, times, strict=True))
        reps = tuple(r * t for r, t in zip(self.reps, times, strict=True))
        return Layout(shape, self.reg, self.lane, self.wave, reps)

    def _pack(self, vector: Vector) -> int:
        """The coordinates of a vector inside the block as one bit vector, dimension 0 lowest."""
        out = shift = 0
        for x, extent in zip(vector, self.block, strict=True):
            out |= x << shift
            shift += ceil_log2(extent)
        return out

    # -- replication ---------------------------------------------------------------------------------------------

    @functools.cached_property
    def free(self) -> FreeMasks:
        """The register, lane and wave bits that replicate (zero vector, or dependent on earlier bits)."""
        span = gf2.Span()
        masks: list[int] = []
        for vectors in (self.reg, self.lane, self.wave):
            mask = 0
            for i, vector in enumerate(vectors):
                if not span.add(self._pack(vector)):
                    mask |= 1 << i
            masks.append(mask)
        return FreeMasks(*masks)

    @property
    def is_injective(self) -> bool:
        """True if no element has two owners."""
        return self.free == (0, 0, 0)

    # -- derived layouts -----------------------------------------------------------------------------------------

    def transpose(self, perm: Sequence[int]) -> Layout:
        """Layout of the transposed tile (result dimension i is this dimension ``perm[i]``) in the same lanes.

        Registers keep their index unless two dimensions have repetitions that change order; use
        :func:`tileir.layout.conversion.register_sources` for the renaming.

        Raises:
            LayoutError: ``perm`` is not a permutation of the dimensions.
        """
        if sorted(perm) != list(range(self.rank)):
            raise LayoutError(f"{list(perm)} must be a permutation of the dimensions 0 .. {self.rank - 1}")

        def turn(vectors: tuple[Vector, ...]) -> tuple[Vector, ...]:
            return tuple(tuple(v[p] for p in perm) for v in vectors)

        return Layout(
            tuple(self.shape[p] for p in perm),
            turn(self.reg),
            turn(self.lane),
            turn(self.wave),
            tuple(self.reps[p] for p in perm),
        )

    def reduce(self, axis: int) -> Layout:
        """Layout of the result of a reduction along ``axis`` (kept with size 1) when no data moves.

        Register bits along the axis disappear (the lane combines them); lane and wave bits along it become replication
        (lanes and waves exchange partial results). Holes must contribute the neutral element. A vector that moves along
        the axis and another dimension at once would scatter the partial results of one element over registers or lanes
        that also hold others: convert such a layout first.

        Raises:
            LayoutError: no such axis.
        """
        self._check_axis(axis)

        def drop(vectors: tuple[Vector, ...]) -> tuple[Vector, ...]:
            return tuple(tuple(0 if d == axis else x for d, x in enumerate(v)) for v in vectors)

        def one(values: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(1 if d == axis else x for d, x in enumerate(values))

        reg = tuple(new for old, new in zip(self.reg, drop(self.reg), strict=True) if any(new) or not any(old))
        return Layout(one(self.shape), reg, drop(self.lane), drop(self.wave), one(self.reps))

    def project(self, axis: int) -> Layout:
        """Layout of a tile of rank 1 with the coordinates along ``axis``, of which every lane holds those of its elements;
        a register for each combination of bits that moves along the axis.

        Raises:
            LayoutError: no such axis.
        """
        self._check_axis(axis)

        def only(vectors: tuple[Vector, ...]) -> list[tuple[int]]:
            return [(v[axis],) for v in vectors]

        reg = [v for v in only(self.reg) if any(v)]
        return Layout.from_bases((self.shape[axis],), reg, only(self.lane), only(self.wave), (self.reps[axis],))

    def reduce_sources(self, axis: int) -> tuple[tuple[int, ...], ...]:
        """For each register of ``reduce(axis)``, this layout's registers that a lane combines into it, ascending."""
        self._check_axis(axis)
        n = len(self.reg)
        kept = [i for i, v in enumerate(self.reg) if any(x for d, x in enumerate(v) if d != axis) or not any(v)]
        reps = [range(r) for r in self.reps]
        groups: dict[tuple[int, ...], list[int]] = {}
        for rep_index, rep in enumerate(itertools.product(*reps)):
            outer = tuple(0 if d == axis else x for d, x in enumerate(rep))
            for inner in range(1 << n):
                target = sum((inner >> i & 1) << j for j, i in enumerate(kept))
                groups.setdefault((*outer, target), []).append(rep_index << n | inner)
        return tuple(tuple(groups[key]) for key in sorted(groups))

    def _check_axis(self, axis: int) -> None:
        if not 0 <= axis < self.rank:
            raise LayoutError(f"axis {axis} must be one of the dimensions 0 .. {self.rank - 1}")

    def reshape(self, shape: Sequence[int]) -> Layout:
        """Layout of the row-major reshaped tile in the same registers, lanes and waves.

        Dimensions are matched from the left into groups of equal size. A group that really changes must have powers of
        two, without holes, in all its old and new dimensions except the outermost.

        Raises:
            LayoutError: different element count, or not representable.
        """
        new_shape = tuple(int(n) for n in shape)
        if any(n < 1 for n in new_shape) or math.prod(new_shape) != math.prod(self.shape):
            raise LayoutError(f"a tile of {list(self.shape)} cannot be reshaped to {list(new_shape)}")
        rank = len(new_shape)
        reps = [1] * rank
        # (old dimension, bit) → (new dimension, bit) for every coordinate bit of the block
        target: dict[tuple[int, int], tuple[int, int]] = {}
        for old_dims, new_dims in reshape_groups(self.shape, new_shape):
            old = [d for d in old_dims if self.padded_shape[d] > 1]
            new = [d for d in new_dims if new_shape[d] > 1] or list(new_dims[:1])
            if not old:
                continue
            bad = next((d for d in old[1:] if self.block[d] != self.shape[d]), None)
            if bad is not None or not new:
                raise LayoutError(
                    f"reshape {list(self.shape)} → {list(new_shape)}: dimension {old[-1] if bad is None else bad} is "
                    "not covered exactly by a power-of-two block; convert the layout first"
                )
            if any(not _is_power_of_two(new_shape[d]) for d in new[1:]):
                raise LayoutError(
                    f"reshape {list(self.shape)} → {list(new_shape)}: only the outermost dimension of a group that is "
                    "split or merged may be other than a power of two"
                )
            old_bits = [(d, b) for d in reversed(old) for b in range(ceil_log2(self.block[d]))]
            inner_bits = [(d, b) for d in reversed(new[1:]) for b in range(ceil_log2(new_shape[d]))]
            if len(inner_bits) > len(old_bits):
                raise LayoutError(
                    f"reshape {list(self.shape)} → {list(new_shape)}: the block {list(self.block)} is smaller than the "
                    "new inner dimensions; convert the layout first"
                )
            outer_bits = [(new[0], b) for b in range(len(old_bits) - len(inner_bits))]
            target.update(zip(old_bits, inner_bits + outer_bits, strict=True))
            reps[new[0]] = self.reps[old[0]]

        def move(vectors: tuple[Vector, ...]) -> tuple[Vector, ...]:
            out: list[Vector] = []
            for vector in vectors:
                image = [0] * rank
                for (d, bit), (e, new_bit) in target.items():
                    image[e] |= (vector[d] >> bit & 1) << new_bit
                out.append(tuple(image))
            return tuple(out)

        return Layout(new_shape, move(self.reg), move(self.lane), move(self.wave), tuple(reps))

    # -- vector accesses -----------------------------------------------------------------------------------------

    def contiguous(self, axis: int) -> int:
        """Elements that consecutive registers, starting at a multiple of the result, hold contiguously along ``axis``.

        The runs are aligned to their length inside the tile; a run may reach past the tile's end into holes.

        Raises:
            LayoutError: no such axis.
        """
        self._check_axis(axis)
        count = 0
        for i, vector in enumerate(self.reg):
            if vector != tuple(1 << i if d == axis else 0 for d in range(self.rank)):
                break
            if any(v[axis] >> i & 1 for j, v in enumerate(self._vectors) if j != i):
                break
            count = i + 1
        return 1 << count

    def __str__(self) -> str:
        text = f"linear(reg = {_list(self.reg)}, lane = {_list(self.lane)}, wave = {_list(self.wave)}"
        if any(r != 1 for r in self.reps):
            text += f", reps = [{', '.join(str(r) for r in self.reps)}]"
        return text + ")"


def broadcast_source(layout: Layout, src_shape: Sequence[int]) -> Layout:
    """Layout that an operand of ``src_shape`` must have to meet a tile in ``layout`` without moving data.

    ``src_shape`` has size 1 where it is broadcast and equals ``layout.shape`` elsewhere; the answer for ``[M, 1]``
    is ``layout.reduce(1)``, i.e. the layout in which a row reduction leaves its result.

    Raises:
        LayoutError: the shape does not broadcast to the layout's.
    """
    if len(src_shape) != layout.rank or any(
        s not in (1, n) for s, n in zip(src_shape, layout.shape, strict=len(src_shape) == layout.rank)
    ):
        raise LayoutError(
            f"a tile of {list(src_shape)} does not broadcast to {list(layout.shape)}: ranks must be equal and every "
            "size 1 or the same"
        )
    for d, (s, n) in enumerate(zip(src_shape, layout.shape, strict=True)):
        if s != n:
            layout = layout.reduce(d)
    return layout


def transfer(src: Layout, dst: Layout) -> LinearMap | None:
    """Where every register, lane and wave of ``dst`` finds what it holds in ``src``: the linear map ``src⁻¹ ∘ dst`` of the block
    (registers of a repetition find theirs in the same repetition). Of several copies it names the canonical one, see
    :class:`FreeMasks`. None where the two repeat blocks of different sizes, so that the whole is not linear.

    Raises:
        LayoutError: different tile shapes.
    """
    if src.shape != dst.shape:
        raise LayoutError(f"a conversion keeps the shape: {list(src.shape)} is not {list(dst.shape)}")
    if src.block != dst.block:
        return None
    return src.linear_map.right_inverse() @ dst.linear_map
