"""Choice of an LDS layout: conflict-free for all accesses of a tile if possible, smallest, cheapest to address."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .banks import Access, BankRule, Proof, prove
from .linear import LayoutError, ceil_log2
from .shared import SharedLayout
from .spans import Load, Span

_TRIALS = 512
"""Bound on the layouts that are tried where no XOR layout is free, so that compile time stays bounded too."""

_SOLUTIONS = 48
"""Free XOR layouts among which the one with the cheapest addresses is taken."""

_MOST_PIECES = 16
"""Rows of more pieces are not turned: there are too many ways."""

_NODES = 4096
"""Bound on the steps of the search for them; it ends long before where there are any."""


def _swizzles(plain: SharedLayout, base: int, top: int) -> list[SharedLayout]:
    address_bits = ceil_log2(plain.image_bytes)
    found = [
        SharedLayout(plain.rows, plain.cols, plain.elem_bits, "swizzle", (bits, low, shift))
        for low in range(base, top)
        for bits in range(1, top - low + 1)
        for shift in range(1, max(2, address_bits - low))
    ]
    return sorted(found, key=lambda s: (s.size_bytes, s.args))


def _xors(plain: SharedLayout, loads: Sequence[Load], base: int, top: int) -> Iterator[SharedLayout]:
    """XOR layouts beyond the swizzles, where the accesses are linear: those that are free by the rank condition, else some that
    are spread over all."""
    spans = [span for load in loads for span in load.spans or ()]
    bits = sorted({lead for span in spans for lead in span.leads if lead > base})
    kept = 0
    for load in loads:
        kept |= load.register_bits
    options = [
        sorted(range(0, 1 << min(top, bit), 1 << base), key=lambda m: ((m & kept).bit_count(), m.bit_count(), m))
        for bit in bits
    ]
    found = False
    for masks in _free_masks(spans, bits, options):
        found = True
        if any(masks):
            yield _xor(plain, bits, masks)
    if not found:
        for masks in _scattered(options, _TRIALS):
            if any(masks):
                yield _xor(plain, bits, masks)


def _xor(plain: SharedLayout, bits: Sequence[int], masks: Sequence[int]) -> SharedLayout:
    args = tuple(x for bit, mask in zip(bits, masks, strict=True) if mask for x in (bit, mask))
    return SharedLayout(plain.rows, plain.cols, plain.elem_bits, "xor", args)


def _free_masks(
    spans: Sequence[Span], bits: Sequence[int], options: Sequence[Sequence[int]]
) -> Iterator[tuple[int, ...]]:
    """Masks for the bits with which every span keeps its rank on the banks, at most `_SOLUTIONS` of them.

    Bits are taken from the lowest up. A span has at most one vector led by a bit; its place on the banks, which the mask
    shifts, must be none that the vectors led by lower bits reach already. So each span forbids at most as many masks as it
    has banks, and what is left over after the last bit is free: nothing has to be tried out.
    """
    reached: list[list[int]] = [[0] for _ in spans]
    for n, span in enumerate(spans):  # vectors below the first bit that can have a mask are where they are
        for lead, vector in zip(span.leads, span.vectors, strict=True):
            if not bits or lead < bits[0]:
                place = vector & span.bank_mask
                if place in reached[n]:
                    return
                reached[n] += [x ^ place for x in reached[n]]
    steps = 0

    def search(masks: tuple[int, ...], reached: list[list[int]], wanted: int) -> Iterator[tuple[int, ...]]:
        """At most ``wanted`` solutions that begin with ``masks``, spread over the next bit's masks."""
        nonlocal steps
        depth = len(masks)
        if depth == len(bits):
            yield masks
            return
        forbidden: set[tuple[int, int]] = set()
        moved: list[tuple[int, int]] = []
        for n, span in enumerate(spans):
            vector = span.led_by.get(bits[depth])
            if vector is None:
                continue
            place = vector & span.bank_mask
            for bit, mask in zip(bits, masks, strict=False):
                if vector >> bit & 1:
                    place ^= mask & span.bank_mask
            moved.append((n, place))
            forbidden.update((span.bank_mask, x ^ place) for x in reached[n])
        banks = {spans[n].bank_mask for n, _ in moved}
        allowed = [m for m in options[depth] if not any((b, m & b) in forbidden for b in banks)]
        share = max(1, wanted // max(1, len(allowed)))
        for mask in allowed:
            if wanted <= 0 or steps >= _NODES:
                return
            steps += 1
            below = list(reached)
            for n, place in moved:
                shifted = place ^ mask & spans[n].bank_mask
                below[n] = reached[n] + [x ^ shifted for x in reached[n]]
            for solution in search((*masks, mask), below, min(share, wanted)):
                wanted -= 1
                yield solution

    yield from search((), reached, _SOLUTIONS)


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
    plain = SharedLayout(shape[0], shape[1], elem_bits)
    if direct is not None:
        direct_bytes = direct.bytes_per_lane
    if direct_bytes and plain.row_bytes % direct_bytes:
        raise LayoutError(
            f"direct-to-LDS pieces of {direct_bytes} bytes do not divide a row of {plain.row_bytes} bytes; pad the tile "
            "or stage it through registers"
        )
    widths = [a.rule.bytes_per_lane for a in accesses] + ([direct_bytes] if direct_bytes else [])
    base = ceil_log2(max([4, *widths]))  # to move parts of a dword never helps: lanes share dwords
    top = ceil_log2(max((a.rule.banks * a.rule.bank_bytes for a in accesses), default=128))
    loads = [Load(a, plain.row_bytes, elem_bits) for a in accesses]
    search = _Search(loads, plain.size_bytes, max_bytes)
    families = (
        lambda: iter([plain]),
        lambda: iter(_swizzles(plain, base, top)),
        lambda: _xors(plain, loads, base, top),
        lambda: _paddings(plain, base, direct_bytes, pitch_limit),
        lambda: _rotations(plain, base),
    )
    for family in families:
        for candidate in family():
            search.consider(candidate)
            if search.perfect:
                break
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

    def __init__(self, loads: Sequence[Load], bytes: int, max_bytes: int | None) -> None:
        self.loads = loads
        self.free = sum(load.free for load in loads)
        self.registers = sum(len(load.patterns or ()) for load in loads)
        self.bytes = bytes
        self.max_bytes = max_bytes
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
            bases = sum(load.address_registers(candidate) for load in self.loads)
        except LayoutError:  # the candidate tears a lane's bytes apart
            return
        key = (clocks, candidate.size_bytes, bases)
        if key < self.key:
            self.key, self.best = key, candidate
