"""Choice of an LDS layout: conflict-free for all accesses of a tile if possible, smallest, cheapest to address."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from . import gf2
from .banks import Access, BankRule, Proof, coset, linear_part, prove
from .linear import IntArray, LayoutError, ceil_log2
from .shared import SharedLayout

IMMEDIATE_RANGE = 1 << 16
"""DS instructions have a 16-bit unsigned byte offset (CDNA3 ISA, DS encoding)."""

_XOR_TRIALS = 512
"""Bound on the search for a general XOR layout, so that compile time stays bounded too."""


def address_bases(addresses: IntArray) -> int:
    """How many address registers the instructions [instructions, 64] need when constants go into the immediate offset.

    Instructions whose addresses differ by one constant in all lanes share a register.
    """
    active = addresses >= 0
    first = np.where(active.any(axis=1), addresses[np.arange(len(addresses)), active.argmax(axis=1)], 0)
    pattern = np.where(active, addresses - first[:, None], -(1 << 40))
    groups: dict[bytes, list[int]] = {}
    for row, start in zip(pattern, first.tolist(), strict=True):
        groups.setdefault(row.tobytes(), []).append(start)
    return sum(-(-(max(v) - min(v) + 1) // IMMEDIATE_RANGE) for v in groups.values())


class _Load:
    """One access, prepared so that many candidate layouts can be judged quickly.

    If every instruction is affine over GF(2) in the lane (in image bytes), its degree in an XOR layout depends only on
    its linear part: cosets have the degree of their subspace. So equal linear parts are judged once, by ranks.
    """

    def __init__(self, access: Access, row_bytes: int, elem_bits: int) -> None:
        self.access = access
        self.image = np.where(access.rows < 0, -1, access.rows * row_bytes + access.cols * elem_bits // 8)
        self.free = int(sum((access.rows[:, list(g)] >= 0).any(axis=1).sum() for g in access.rule.lane_groups))
        """clocks without any conflict: one per group with an active lane"""
        self.parts: list[tuple[tuple[int, ...], int]] | None = None
        """(byte vectors that span what a group touches, how often)"""
        self.bank_mask = (access.rule.banks - 1) * access.rule.bank_bytes
        self.dword_mask = -access.rule.bank_bytes
        bank_bytes = access.rule.bank_bytes
        words = -(-access.rule.bytes_per_lane // bank_bytes)
        cosets = [coset(g) for g in access.rule.lane_groups]
        low = max(access.rule.bytes_per_lane, bank_bytes) - 1
        if words & words - 1 or any(c is None for c in cosets):
            return
        linear: dict[tuple[int, ...], int] = {}
        starts = self._distinct_linear()
        if starts is None:
            return
        for vectors, start, count in starts:
            if access.rule.bytes_per_lane >= bank_bytes and (start & low or any(v & low for v in vectors)):
                return
            linear[vectors] = linear.get(vectors, 0) + count
        dwords = tuple(bank_bytes << i for i in range(words.bit_length() - 1))
        spans: dict[tuple[int, ...], int] = {}
        for vectors, count in linear.items():
            for found in cosets:
                assert found is not None
                span = (*(gf2.apply(vectors, v) for v in found[1]), *dwords)
                spans[span] = spans.get(span, 0) + count
        self.parts = list(spans.items())

    def _distinct_linear(self) -> list[tuple[tuple[int, ...], int, int]] | None:
        """(linear part, a start address with the low bits of all, count) of the instructions, or None."""
        out: dict[bytes, tuple[tuple[int, ...], int, int]] = {}
        for row, delta in zip(self.image, self.image ^ self.image[:, :1], strict=True):
            key = delta.tobytes()
            if key not in out:
                vectors = linear_part(row)
                if vectors is None:
                    return None
                out[key] = vectors, int(row[0]), 0
            vectors, start, count = out[key]
            out[key] = vectors, start | int(row[0]), count + 1
        return list(out.values())

    def clocks_of_xor(self, shared: SharedLayout) -> int | None:
        """Sum of degrees over instructions and groups in an XOR layout, by ranks; None if that does not apply."""
        if self.parts is None or shared.kind in ("padded", "slabs") or shared.granule < self.access.rule.bytes_per_lane:
            return None
        total = 0
        for span, count in self.parts:
            moved = [shared.image_to_offset(v) & self.dword_mask for v in span]
            total += count << gf2.rank(moved) - gf2.rank(v & self.bank_mask for v in moved)
        return total

    def clocks(self, shared: SharedLayout, limit: int | None) -> int:
        """Sum of degrees by enumeration; a lower bound of it as soon as that exceeds ``limit``."""
        exact = self.clocks_of_xor(shared)
        if exact is not None:
            return exact
        addresses = self.access.addresses(shared)
        done = 0
        step = max(1, len(addresses) // 4)
        if limit is not None and step > 1:  # a few instructions discard most candidates
            sample = self.access.degrees_at(addresses[::step])
            active = np.count_nonzero(sample)
            done = int(sample.sum()) - active
            if done and self.free + done > limit:
                return self.free + done
        return int(self.access.degrees_at(addresses).sum())


def _swizzles(plain: SharedLayout, base: int, top: int) -> list[SharedLayout]:
    address_bits = ceil_log2(plain.image_bytes)
    found = [
        SharedLayout(plain.rows, plain.cols, plain.elem_bits, "swizzle", (bits, low, shift))
        for low in range(base, top)
        for bits in range(1, top - low + 1)
        for shift in range(1, max(2, address_bits - low))
    ]
    return sorted(found, key=lambda s: (s.size_bytes, s.args))


def _general_xors(plain: SharedLayout, loads: Sequence[_Load], base: int, top: int) -> Iterator[SharedLayout]:
    """XOR layouts beyond the swizzles, when all accesses are linear: masks for the image bits that lanes differ in."""
    used = 0
    for load in loads:
        if load.parts is None:
            return
        for span, _ in load.parts:
            for vector in span:
                used |= vector
    bits = [b for b in range(base + 1, used.bit_length()) if used >> b & 1]
    options = [range(0, 1 << min(top, bit), 1 << base) for bit in bits]
    choices: Iterator[tuple[int, ...]]
    if sum(ceil_log2(len(o)) for o in options) <= ceil_log2(_XOR_TRIALS):
        choices = itertools.product(*options)
    else:
        choices = _scattered(options, _XOR_TRIALS)
    for choice in choices:
        args = tuple(x for bit, mask in zip(bits, choice, strict=True) if mask for x in (bit, mask))
        if args:
            yield SharedLayout(plain.rows, plain.cols, plain.elem_bits, "xor", args)


def _scattered(options: Sequence[range], count: int) -> Iterator[tuple[int, ...]]:
    """``count`` distinct combinations spread over all (their number is a power of two, so an odd stride visits each)."""
    total = 1
    for o in options:
        total *= len(o)
    for i in range(count):
        index = i * 0x9E3779B97F4A7C15 % total
        choice: list[int] = []
        for o in options:
            index, digit = divmod(index, len(o))
            choice.append(o[digit])
        yield tuple(choice)


def _paddings(plain: SharedLayout, base: int, direct_bytes: int | None, limit: int) -> Iterator[SharedLayout]:
    rows, cols, elem_bits = plain.rows, plain.cols, plain.elem_bits
    if direct_bytes:
        slab = 64 * direct_bytes
        if plain.image_bytes > slab:
            for pad in range(16, limit + 1, 16):
                yield SharedLayout(rows, cols, elem_bits, "slabs", (slab, slab + pad))
        return
    step = 1 << base
    for pitch in range(plain.row_bytes // step * step + step, plain.row_bytes + limit + 1, step):
        yield SharedLayout(rows, cols, elem_bits, "padded", (pitch,))


def choose(
    shape: tuple[int, int],
    elem_bits: int,
    accesses: Sequence[Access],
    *,
    direct: BankRule | None = None,
    direct_bytes: int | None = None,
    max_bytes: int | None = None,
    pitch_limit: int = 256,
) -> tuple[SharedLayout, Proof]:
    """Pick the LDS layout of a tile from the set of *all* its accesses.

    The identity if it is free of conflicts; otherwise the free layout with the fewest bytes, then the fewest address
    registers, then the simplest kind; otherwise the one with the fewest conflict clocks (sum of degrees over all
    instructions and groups), in the same order. The result is always a proof over every instruction.

    Args:
        shape: (rows, cols) of the tile in LDS, columns contiguous.
        direct: rule of the direct-to-LDS loads that fill the tile, if any: their pieces stay whole, padding is possible
            only between slabs of 64 pieces, and the proof covers them.
        direct_bytes: the same where only their bytes per lane are known; the proof then leaves them out.
        max_bytes: do not use more bytes than this.
        pitch_limit: most padding bytes to try per row or slab.

    Raises:
        LayoutError: nothing fits: pieces do not divide a row, or the tile exceeds ``max_bytes``.
    """
    plain = SharedLayout(shape[0], shape[1], elem_bits)
    if direct is not None:
        direct_bytes = direct.bytes_per_lane
    if direct_bytes and plain.row_bytes % direct_bytes:
        raise LayoutError(
            f"direct-to-LDS pieces of {direct_bytes} bytes do not divide a row of {plain.row_bytes} bytes; pad the tile "
            "or stage it through registers"
        )
    widths = [a.rule.bytes_per_lane for a in accesses] + ([direct_bytes] if direct_bytes else [])
    base = ceil_log2(max(widths, default=4))
    top = ceil_log2(max((a.rule.banks * a.rule.bank_bytes for a in accesses), default=128))
    loads = [_Load(a, plain.row_bytes, elem_bits) for a in accesses]
    search = _Search(loads, max_bytes)
    families = (
        lambda: iter([plain]),
        lambda: iter(_swizzles(plain, base, top)),
        lambda: _general_xors(plain, loads, base, top),
        lambda: _paddings(plain, base, direct_bytes, pitch_limit),
    )
    for family in families:
        for candidate in family():
            search.consider(candidate)
        if search.done:
            break
    if search.best is None:
        raise LayoutError(
            f"no layout of a {plain.rows} x {plain.cols} tile of {elem_bits}-bit elements fits {max_bytes} bytes with "
            f"whole lane accesses; it needs at least {plain.size_bytes} bytes"
        )
    return search.best, prove(search.best, accesses, direct=direct)


class _Search:
    """The best candidate so far."""

    def __init__(self, loads: Sequence[_Load], max_bytes: int | None) -> None:
        self.loads = loads
        self.free = sum(load.free for load in loads)
        self.max_bytes = max_bytes
        self.best: SharedLayout | None = None
        self.key: tuple[int, int, int] = (1 << 60, 0, 0)

    @property
    def done(self) -> bool:
        """A conflict-free layout is known, and later families are not smaller."""
        return self.best is not None and self.key[0] == self.free

    def consider(self, candidate: SharedLayout) -> None:
        if self.max_bytes is not None and candidate.size_bytes > self.max_bytes:
            return
        if self.done and candidate.size_bytes > self.key[1]:
            return
        try:
            clocks = 0
            for load in self.loads:
                clocks += load.clocks(candidate, self.key[0] - clocks if self.best is not None else None)
                if clocks > self.key[0]:
                    return
            if (clocks, candidate.size_bytes) > self.key[:2]:
                return
            bases = sum(address_bases(load.access.addresses(candidate)) for load in self.loads)
        except LayoutError:  # the candidate tears a lane's bytes apart
            return
        key = (clocks, candidate.size_bytes, bases)
        if key < self.key:
            self.key, self.best = key, candidate
