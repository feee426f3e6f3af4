"""Choice of an LDS layout: conflict-free for all accesses of a tile if possible, smallest, cheapest to address."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from tileir.records import dataclass

from .banks import Access, BankRule, Proof, prove
from .linear import LayoutError, ceil_log2
from .masks import Constraints
from .shared import BLOCK_UNIT, SharedLayout
from .spans import Load

_TRIALS = 512
"""Bound on the layouts that are tried where no XOR layout is free, so that compile time stays bounded too."""

_SOLUTIONS = 24
"""Free XOR layouts among which the one with the cheapest addresses is taken."""

_SLOW_SOLUTIONS = 6
"""The same where addresses are not linear, so that each has to be enumerated."""

_MOST_PIECES = 16
"""Rows of more pieces are not turned: there are too many ways."""


@dataclass(frozen=True)
class _Candidate:
    """A layout to be considered, and how it is judged: ``loads`` are the accesses in ``seen``, a layout with the same banks."""

    layout: SharedLayout
    seen: SharedLayout
    loads: Sequence[Load]
    free: bool = False  # known to be free of conflicts


def _swizzles(plain: SharedLayout, base: int, top: int) -> list[SharedLayout]:
    address_bits = ceil_log2(plain.image_bytes)
    found = [
        SharedLayout(plain.rows, plain.cols, plain.elem_bits, "swizzle", (bits, low, shift))
        for low in range(base, top)
        for bits in range(1, top - low + 1)
        for shift in range(1, max(2, address_bits - low))
    ]
    return sorted(found, key=lambda s: (s.size_bytes, s.args))


def _any_xors(plain: SharedLayout, loads: Sequence[Load], base: int, top: int) -> Iterator[SharedLayout]:
    """XOR layouts spread over all, where the accesses are linear."""
    if any(load.spans is None for load in loads):
        return
    leads = {v.bit_length() - 1 for load in loads for span in load.spans or () for v in span.vectors}
    bits = sorted(bit for bit in leads if bit > base)
    options = [range(0, 1 << min(top, bit), 1 << base) for bit in bits]
    for masks in _scattered(options, _TRIALS):
        yield _with_args(plain, "xor", _pairs(bits, masks))


def _constraints(loads: Sequence[Load], base: int) -> Constraints | None:
    """What must stay apart for all loads; None where an access cannot be judged so."""
    apart = [load.apart for load in loads if load.apart is not None]
    return Constraints(apart, base) if len(apart) == len(loads) else None


def _free_args(
    constraints: Constraints | None, loads: Sequence[Load], base: int, top: int
) -> Iterator[tuple[int, ...]]:
    """Parameters of XOR layouts that are free for all loads, some of them if there are many."""
    if constraints is None:
        return
    kept = 0
    for load in loads:
        kept |= load.register_bits
    options = [
        sorted(range(0, 1 << min(top, bit), 1 << base), key=lambda m: ((m & kept).bit_count(), m.bit_count(), m))
        for bit in constraints.bits
    ]
    linear = all(load.patterns is not None for load in loads)
    for masks in constraints.free_masks(options, _SOLUTIONS if linear else _SLOW_SOLUTIONS):
        yield _pairs(constraints.bits, masks)


def _pairs(bits: Sequence[int], masks: Sequence[int]) -> tuple[int, ...]:
    return tuple(x for bit, mask in zip(bits, masks, strict=True) if mask for x in (bit, mask))


def _with_args(plain: SharedLayout, kind: str, args: tuple[int, ...]) -> SharedLayout:
    return SharedLayout(plain.rows, plain.cols, plain.elem_bits, kind, args) if args else plain


def _scattered(options: Sequence[Sequence[int]], count: int) -> Iterator[tuple[int, ...]]:
    """``count`` distinct combinations spread over all (their number is a power of two, so an odd stride visits each)."""
    total = 1
    for o in options:
        total *= len(o)
    for i in range(min(count, total)):
        index = i * 0x9E3779B97F4A7C15 % total
        choice: list[int] = []
        for o in options:
            index, digit = divmod(index, len(o))
            choice.append(o[digit])
        yield tuple(choice)


def _blocks(plain: SharedLayout, accesses: Sequence[Access], width: int, base: int, top: int) -> Iterator[_Candidate]:
    """Free layouts in blocks of columns of ``width`` bytes. The accesses are judged with the blocks as further rows: what is not linear
    in rows of the tile's own bytes often is in those."""
    rows = 1 << ceil_log2(plain.rows)
    cols = width * 8 // plain.elem_bits
    stacked = SharedLayout(plain.row_bytes // width * rows, cols, plain.elem_bits)
    loads = [
        Load(replace(a, rows=np.where(a.rows < 0, -1, a.cols // cols * rows + a.rows), cols=a.cols % cols), stacked)
        for a in accesses
    ]
    for args in _free_args(_constraints(loads, base), loads, base, min(top, ceil_log2(BLOCK_UNIT))):
        layout = SharedLayout(plain.rows, plain.cols, plain.elem_bits, "blocks", (width, *args))
        yield _Candidate(layout, _with_args(stacked, "xor", args), loads, free=True)


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


def _rotations(plain: SharedLayout, base: int) -> Iterator[SharedLayout]:
    """Rows of pieces that are no power of two, turned by one parity of the row's low bits."""
    pieces, rest = divmod(plain.row_bytes, 1 << base)
    if rest or pieces & pieces - 1 == 0 or pieces > _MOST_PIECES:
        return
    for turn in sorted(range(1, pieces), key=lambda t: (min(t, pieces - t), t)):
        for mask in range(1, min(32, 1 << ceil_log2(plain.rows))):
            args = (1 << base, mask, turn)
            yield SharedLayout(plain.rows, plain.cols, plain.elem_bits, "rotate", args)


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
    chooser = _Chooser(shape, elem_bits, accesses, direct, direct_bytes, max_bytes)
    chosen = chooser.best(chooser.free_families()) or chooser.best(chooser.other_families(pitch_limit))
    chosen = chosen or chooser.search.best
    if chosen is None:
        plain = chooser.plain
        raise LayoutError(
            f"no layout of a {plain.rows} x {plain.cols} tile of {elem_bits}-bit elements fits {max_bytes} bytes with "
            f"whole lane accesses; it needs at least {plain.size_bytes} bytes"
        )
    return chosen, prove(chosen, accesses, direct=direct)


def choose_free(
    shape: tuple[int, int],
    elem_bits: int,
    accesses: Sequence[Access],
    *,
    direct: BankRule | None = None,
    granule: int | None = None,
) -> tuple[SharedLayout, Proof] | None:
    """As `choose`, but only if a free layout is found without trying out many; that takes a small part of the time.

    Args:
        granule: take only layouts that keep no more bytes together than this.

    Raises:
        LayoutError: direct-to-LDS pieces that do not divide a row.
    """
    chooser = _Chooser(shape, elem_bits, accesses, direct, None, None, granule)
    chosen = chooser.best(chooser.free_families())
    return None if chosen is None else (chosen, prove(chosen, accesses, direct=direct))


class _Chooser:
    """The families of layouts of a tile, in the order in which they are considered."""

    def __init__(
        self,
        shape: tuple[int, int],
        elem_bits: int,
        accesses: Sequence[Access],
        direct: BankRule | None,
        direct_bytes: int | None,
        max_bytes: int | None,
        granule: int | None = None,
    ) -> None:
        self.plain = SharedLayout(shape[0], shape[1], elem_bits)
        self.accesses = accesses
        self.direct_bytes = direct.bytes_per_lane if direct is not None else direct_bytes
        if self.direct_bytes and self.plain.row_bytes % self.direct_bytes:
            raise LayoutError(
                f"direct-to-LDS pieces of {self.direct_bytes} bytes do not divide a row of {self.plain.row_bytes} bytes; pad "
                "the tile or stage it through registers"
            )
        widths = [a.rule.bytes_per_lane for a in accesses] + ([self.direct_bytes] if self.direct_bytes else [])
        self.base = ceil_log2(max([4, *widths]))  # to move parts of a dword never helps: lanes share dwords
        self.top = ceil_log2(max((a.rule.banks * a.rule.bank_bytes for a in accesses), default=128))
        self.loads = [Load(a, self.plain) for a in accesses]
        self.search = _Search(self.loads, self.plain.size_bytes, max_bytes, self.direct_bytes, granule)
        unit = self.plain.row_bytes & -self.plain.row_bytes
        self.is_block = unit == self.plain.row_bytes  # one block of columns, whose XOR layouts are those of the tile
        self.widths = [unit >> i for i in range(unit.bit_length()) if unit >> i >= 1 << self.base][self.is_block :]

    def best(self, families: Iterator[Iterator[_Candidate]]) -> SharedLayout | None:
        """The best candidate of the first family with a free one; None if there is none."""
        for family in families:
            for candidate in family:
                self.search.consider(candidate)
                if self.search.perfect:
                    break
            if self.search.done:
                return self.search.best
        return None

    def _judged(self, layouts: Iterable[SharedLayout], *, free: bool = False) -> Iterator[_Candidate]:
        return (_Candidate(layout, layout, self.loads, free) for layout in layouts)

    def _swizzles(self) -> list[SharedLayout]:
        return _swizzles(self.plain, self.base, self.top) if self.is_block else []

    def free_families(self) -> Iterator[Iterator[_Candidate]]:
        """Layouts that are soon found to be free."""
        constraints = _constraints(self.loads, self.base)
        if constraints is None:
            return
        yield self._judged((x for x in [self.plain] if constraints.met(x)), free=True)
        yield self._judged((x for x in self._swizzles() if constraints.met(x)), free=True)
        if self.is_block:
            args = _free_args(constraints, self.loads, self.base, self.top)
            yield self._judged((_with_args(self.plain, "xor", x) for x in args), free=True)
        for width in self.widths:
            yield _blocks(self.plain, self.accesses, width, self.base, self.top)

    def other_families(self, pitch_limit: int) -> Iterator[Iterator[_Candidate]]:
        """Layouts that must be tried out, for the case that none of the others is free."""
        yield self._judged([self.plain])
        yield self._judged(self._swizzles())
        yield self._judged(_rotations(self.plain, self.base))
        yield self._judged(_paddings(self.plain, self.base, self.direct_bytes, pitch_limit))
        if self.is_block:
            yield self._judged(_any_xors(self.plain, self.loads, self.base, self.top))


class _Search:
    """The best candidate so far."""

    def __init__(
        self,
        loads: Sequence[Load],
        bytes: int,
        max_bytes: int | None,
        direct_bytes: int | None,
        granule: int | None,
    ) -> None:
        self.loads = loads
        self.free = sum(load.free for load in loads)
        self.registers = sum(len(load.patterns or ()) for load in loads)
        self.bytes = bytes
        self.max_bytes = max_bytes
        self.direct_bytes = direct_bytes
        self.granule = granule
        self.best: SharedLayout | None = None
        self.key: tuple[int, int, int] = (1 << 60, 0, 0)

    @property
    def done(self) -> bool:
        """A conflict-free layout is known, and later families are not smaller."""
        return self.best is not None and self.key[0] == self.free

    @property
    def perfect(self) -> bool:
        """Free, no byte more than the tile, and one address register for every way in which lanes move: no candidate is
        cheaper."""
        return self.done and self.key[1:] == (self.bytes, self.registers)

    def consider(self, candidate: _Candidate) -> None:
        layout = candidate.layout
        if self.max_bytes is not None and layout.size_bytes > self.max_bytes:
            return
        if self.granule is not None and layout.granule > self.granule:
            return
        if self.done and layout.size_bytes > self.key[1]:
            return
        if self.direct_bytes and not layout.allows_direct(self.direct_bytes):
            return
        try:
            clocks = self.free if candidate.free else 0
            for load in () if candidate.free else candidate.loads:
                clocks += load.clocks(candidate.seen, self.key[0] - clocks if self.best is not None else None)
                if clocks > self.key[0]:
                    return
            if (clocks, layout.size_bytes) > self.key[:2]:
                return
            bases = sum(load.address_registers(candidate.seen) for load in candidate.loads)
        except LayoutError:  # the candidate tears a lane's bytes apart
            return
        key = (clocks, layout.size_bytes, bases)
        if key < self.key:
            self.key, self.best = key, layout
