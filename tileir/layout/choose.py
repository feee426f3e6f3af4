"""Choice of an LDS layout: conflict-free for all accesses of a tile if possible, smallest, cheapest to address."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .banks import Access, Proof, prove
from .linear import IntArray, LayoutError, ceil_log2
from .shared import SharedLayout

IMMEDIATE_RANGE = 1 << 16
"""DS instructions have a 16-bit unsigned byte offset (CDNA3 ISA, DS encoding)."""


def address_bases(addresses: IntArray) -> int:
    """How many address registers the instructions [instructions, 64] need when constants go into the immediate offset."""
    patterns: dict[bytes, list[int]] = {}
    for row in addresses:
        active = row[row >= 0]
        first = int(active[0]) if len(active) else 0
        patterns.setdefault(np.where(row < 0, -1 << 40, row - first).tobytes(), []).append(first)
    return sum(-(-(max(v) - min(v) + 1) // IMMEDIATE_RANGE) for v in patterns.values())


def _candidates(
    rows: int, cols: int, elem_bits: int, accesses: Sequence[Access], direct_bytes: int | None, pitch_limit: int
) -> Iterator[SharedLayout]:
    """Layouts in order of bytes: identity, swizzles, then paddings."""
    plain = SharedLayout(rows, cols, elem_bits)
    yield plain
    widths = [a.bytes_per_lane for a in accesses] + ([direct_bytes] if direct_bytes else [])
    base = ceil_log2(max(widths, default=4))
    top = ceil_log2(max((a.banks for a in accesses), default=32) * 4)
    address_bits = ceil_log2(plain.image_bytes)
    swizzles: list[SharedLayout] = []
    for low in range(base, top):
        for bits in range(1, top - low + 1):
            for shift in range(1, max(2, address_bits - low)):
                swizzles.append(SharedLayout(rows, cols, elem_bits, "swizzle", (bits, low, shift)))
    yield from sorted(swizzles, key=lambda s: (s.size_bytes, s.args[0], s.args[1], s.args[2]))
    step = 1 << base
    if direct_bytes:
        slab = 64 * direct_bytes
        if plain.image_bytes > slab:
            for pad in range(16, pitch_limit + 1, 16):
                yield SharedLayout(rows, cols, elem_bits, "slabs", (slab, slab + pad))
        return
    first = -(-plain.row_bytes // step) * step
    for pitch in range(first, first + pitch_limit + 1, step):
        if pitch > plain.row_bytes:
            yield SharedLayout(rows, cols, elem_bits, "padded", (pitch,))


def choose(
    shape: tuple[int, int],
    elem_bits: int,
    accesses: Sequence[Access],
    *,
    direct_bytes: int | None = None,
    max_bytes: int | None = None,
    pitch_limit: int = 256,
) -> tuple[SharedLayout, Proof]:
    """Pick the LDS layout of a tile from the set of *all* its accesses.

    The identity if it is free of conflicts; otherwise the free layout with the fewest bytes, then the fewest address
    registers; otherwise the one with the fewest conflict clocks (sum of degrees over all instructions and groups), in the
    same order. The result is always a proof over every instruction.

    Args:
        shape: (rows, cols) of the tile in LDS, columns contiguous.
        direct_bytes: bytes per lane of the direct-to-LDS loads that fill the tile, if any: their pieces stay whole and
            padding is possible only between slabs of 64 pieces.
        max_bytes: do not use more bytes than this.
        pitch_limit: most padding bytes to try per row or slab.

    Raises:
        LayoutError: nothing fits: pieces do not divide a row, or the tile exceeds ``max_bytes``.
    """
    rows, cols = shape
    plain = SharedLayout(rows, cols, elem_bits)
    if direct_bytes and plain.row_bytes % direct_bytes:
        raise LayoutError(
            f"direct-to-LDS pieces of {direct_bytes} bytes do not divide a row of {plain.row_bytes} bytes; pad the tile "
            "or stage it through registers"
        )
    samples = [_sample(a) for a in accesses]
    best: tuple[tuple[int, ...], SharedLayout, Proof] | None = None
    for candidate in _candidates(rows, cols, elem_bits, accesses, direct_bytes, pitch_limit):
        if max_bytes is not None and candidate.size_bytes > max_bytes:
            continue
        if best is not None and best[2].conflict_free and candidate.size_bytes > best[1].size_bytes:
            break
        try:
            if (
                best is not None
                and best[2].conflict_free
                and any(a.degrees(candidate).max(initial=0) > 1 for a in samples)
            ):
                continue
            proof = prove(candidate, accesses)
        except LayoutError:
            continue
        clocks = sum(int(p.degrees.sum()) for p in proof.accesses)
        bases = sum(address_bases(p.addresses) for p in proof.accesses)
        key = (clocks, candidate.size_bytes, bases)
        if best is None or key < best[0]:
            best = key, candidate, proof
        if best[1].kind == "rows" and best[2].conflict_free:
            break
    if best is None:
        raise LayoutError(
            f"no layout of a {rows} x {cols} tile of {elem_bits}-bit elements fits {max_bytes} bytes with whole lane "
            f"accesses; it needs at least {plain.size_bytes} bytes"
        )
    return best[1], best[2]


def _sample(access: Access, count: int = 4) -> Access:
    """A few instructions, to discard most candidates cheaply."""
    step = max(1, len(access.rows) // count)
    return Access(
        access.name,
        access.instruction,
        access.rows[::step],
        access.cols[::step],
        access.bytes_per_lane,
        access.banks,
        access.lane_groups,
        access.evidence,
    )
