"""Register and lane maps of the MFMA instructions, and the layouts of whole tiles built from them.

One closed form covers the dense instructions of CDNA3 and CDNA4 (sources: the "matrix fused-multiply-add" chapters of
the CDNA3 and CDNA4 ISA documents; AMD's published matrix instruction calculator gives the same maps for CDNA3). For
an instruction M x N x K with B blocks, lane l and element e of the lane:

* operand A (and B with N for M): ``row = l % M``, ``block = l // M % B`` and, with ``h = l // (M * B)``,
  ``k = stride * h + e % stride + (e // stride) * g`` where ``g = stride * 64 / (M * B)`` and ``stride`` is the number
  of elements in 16 bytes (at most all the lane has): a lane's 16-byte piece is contiguous in k;
* accumulator: ``col = l % N``, rows in runs of 4: ``row = 4 * (l // N) + e % 4 + (256 // N) * (e // 4)`` when M*N fills
  the wave; for f64 the runs have length 1.

All instructions have M = N.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from tileir.records import dataclass

from . import gf2
from .algebra import LinearMap
from .linear import LANE_BITS, WAVE, IntArray, Layout, LayoutError, Vector, ceil_log2

PIECE_BITS = 128
"""Widest contiguous run of k in one lane: 16 bytes (CDNA4 ISA, 8-bit operands of the K = 64 and K = 128 shapes)."""


def _log2(n: int, what: str) -> int:
    if n < 1 or n & n - 1:
        raise LayoutError(f"{what} must be a power of two, not {n}")
    return ceil_log2(n)


def elements_per_lane(rows: int, k: int, *, blocks: int = 1) -> int:
    """Elements of an operand (or, with k = columns, of an accumulator) that one lane holds.

    Raises:
        LayoutError: the fragment does not fill a wave of 64 lanes.
    """
    total = rows * k * blocks
    if total < WAVE or total % WAVE:
        raise LayoutError(f"a fragment of {blocks} x {rows} x {k} elements does not fill the 64 lanes of a wave evenly")
    return total // WAVE


def _operand_bits(rows: int, k: int, blocks: int, bits: int) -> tuple[list[Vector], list[Vector]]:
    """Register and lane vectors (block, row, k) of an operand fragment."""
    ept = elements_per_lane(rows, k, blocks=blocks)
    own = _log2(ept, "elements per lane")
    run = min(own, ceil_log2(-(-PIECE_BITS // bits)))
    row_bits, block_bits = _log2(rows, "rows"), _log2(blocks, "blocks")
    k_lane_bits = LANE_BITS - row_bits - block_bits
    if k_lane_bits < 0:
        raise LayoutError(f"{blocks} blocks of {rows} rows are more than the 64 lanes of a wave")
    lane: list[Vector] = [(0, 1 << i, 0) for i in range(row_bits)]
    lane += [(1 << i, 0, 0) for i in range(block_bits)]
    lane += [(0, 0, 1 << run + i) for i in range(k_lane_bits)]
    reg: list[Vector] = [(0, 0, 1 << i) for i in range(run)]
    reg += [(0, 0, 1 << k_lane_bits + i) for i in range(run, own)]
    return reg, lane


@functools.lru_cache(maxsize=256)
def mfma_operand(rows: int, k: int, *, bits: int, blocks: int = 1) -> Layout:
    """Layout of one A fragment [rows, k] of one wave; a B fragment [k, cols] is its transpose.

    Args:
        rows: M (or N) of the instruction.
        k: its reduction length.
        bits: bits per element: 4, 6, 8, 16, 32 or 64. fp6 is packed without gaps and follows fp4 (32 consecutive k).
        blocks: number of independent products; above 1 the layout is [blocks, rows, k].

    Raises:
        LayoutError: no such fragment.
    """
    reg, lane = _operand_bits(rows, k, blocks, bits)
    skip = 0 if blocks > 1 else 1
    shape = (blocks, rows, k)[skip:]
    return Layout.from_bases(shape, [v[skip:] for v in reg], [v[skip:] for v in lane], [])


@functools.lru_cache(maxsize=256)
def operand_k(rows: int, k: int, *, bits: int) -> IntArray:
    """The k that lanes hold of an operand fragment: int64 [lane groups, elements], a lane group being lanes of distinct rows.

    Operands of different widths of one instruction differ in it: 8-bit elements lie in runs of 16, narrower ones of 32.
    """
    table = mfma_operand(rows, k, bits=bits).owner_table()[0, :, :, 1]
    return np.ascontiguousarray(table.reshape(WAVE // rows, rows, -1)[:, 0])


def _accumulator_bits(m: int, n: int, blocks: int, bits: int) -> tuple[list[Vector], list[Vector]]:
    """Register and lane vectors (block, row, col) of an accumulator fragment."""
    if m != n:
        raise LayoutError(f"no MFMA has a {m} x {n} result: m and n are equal (4, 16 or 32)")
    own = _log2(elements_per_lane(m, n, blocks=blocks), "elements per lane")
    row_bits, block_bits = _log2(m, "rows"), _log2(blocks, "blocks")
    run = 0 if bits == 64 else min(2, row_bits)
    lane: list[Vector] = [(0, 0, 1 << i) for i in range(row_bits)]
    # Lanes left over by the columns: f64 4x4x4 counts blocks first, then rows; the 4x4 f32 shapes have blocks only,
    # the others rows only.
    lane_rows = min(LANE_BITS - row_bits, row_bits - run)
    lane_blocks = LANE_BITS - row_bits - lane_rows
    lane += [(1 << i, 0, 0) for i in range(lane_blocks)]
    lane += [(0, 1 << run + i, 0) for i in range(lane_rows)]
    reg: list[Vector] = [(0, 1 << i, 0) for i in range(run)]
    reg += [(0, 1 << i, 0) for i in range(run + lane_rows, row_bits)]
    reg += [(1 << i, 0, 0) for i in range(lane_blocks, block_bits)]
    assert len(reg) == own, "register bits must account for all elements of a lane"
    return reg, lane


@functools.lru_cache(maxsize=256)
def mfma_accumulator(m: int, n: int, *, bits: int = 32, blocks: int = 1) -> Layout:
    """Layout of one C or D fragment [m, n] of one wave ([blocks, m, n] with several blocks).

    Args:
        bits: 32 (f32, i32) or 64 (f64, whose rows lie in lanes first: ``row = l // 16 + 4 * e`` for 16x16).

    Raises:
        LayoutError: no such fragment.
    """
    reg, lane = _accumulator_bits(m, n, blocks, bits)
    skip = 0 if blocks > 1 else 1
    return Layout.from_bases((blocks, m, n)[skip:], [v[skip:] for v in reg], [v[skip:] for v in lane], [])


# -- whole tiles ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Split:
    """One tile dimension cut into wave bands and instruction fragments.

    ``waves`` waves with distinct bands; each owns ``inner * outer`` fragments of ``unit`` elements, ``inner`` of them
    (a power of two) contiguous.
    """

    unit: int
    waves: int
    inner: int
    outer: int

    @property
    def block(self) -> int:
        return self.unit * self.inner * self.waves


def _split(extent: int, waves: int, unit: int) -> _Split:
    fragments = -(-extent // unit)
    waves = min(waves, 1 << ceil_log2(fragments))
    per_wave = -(-fragments // waves)
    inner = per_wave & -per_wave
    return _Split(unit, waves, inner, per_wave // inner)


def mma_layouts(
    tile_m: int,
    tile_n: int,
    tile_k: int,
    *,
    wave_grid: tuple[int, int],
    instr: tuple[int, int, int],
    operand_bits: int | tuple[int, int],
    swapped: bool = False,
    k_order: Sequence[int] | None = None,
) -> tuple[Layout, Layout, Layout]:
    """Layouts of A [tile_m, tile_k], B [tile_k, tile_n] and C [tile_m, tile_n] for an MFMA of the given shape.

    Waves: wave w has row band ``w // wn`` and column band ``w % wn``. A band is the contiguous ``tile / waves``
    elements when its number of fragments is a power of two; otherwise the power-of-two part is, and repeats
    (192 rows over 2 waves of 32-row fragments: wave 0 has rows 0-31, 64-95, 128-159). Rows are padded with holes to
    a multiple of waves * m (80 rows: none for 1 wave of 16, 96 for 2). Wave bands that would lie wholly beyond the
    tile do not exist: the surplus waves are copies (16 rows over 4 waves: all hold the same 16). A is replicated over
    the column bands, B over the row bands.

    Registers: the instruction's own elements are the lowest bits, so fragment f is registers ``f * e .. f * e + e - 1``
    of the layout; then A counts k fragments before row fragments, B k fragments before column fragments, C column
    fragments before row fragments; repetitions last, row-major.

    k: ``tile_k`` is padded to a multiple of the instruction's k. The holes of *both* operands must be filled with zero
    (0 * NaN is NaN); holes along m and n may hold anything, they only reach holes of C.

    Args:
        wave_grid: (wm, wn), powers of two.
        instr: (m, n, k) of a one-block instruction.
        operand_bits: bits per element of A and B, one number if equal. f64 is recognised by 64.
        swapped: the MFMA computes the transposed product Bᵀ·Aᵀ, so each lane holds runs of columns of C.
        k_order: logical k of each physical k bit (the instruction's, then those of the power-of-two fragments), least
            significant first; any invertible choice computes the same product. See :func:`wide_k_order`,
            :func:`accumulator_k_order`.

    Raises:
        LayoutError: an argument outside the stated range.
    """
    m, n, k = instr
    bits_a, bits_b = operand_bits if isinstance(operand_bits, tuple) else (operand_bits, operand_bits)
    wm, wn = wave_grid
    wm_bits, wn_bits = _log2(wm, "wave rows"), _log2(wn, "wave columns")
    if min(tile_m, tile_n, tile_k) < 1:
        raise LayoutError(f"tile {tile_m} x {tile_n} x {tile_k}: every dimension must be at least 1")
    rows, cols, red = _split(tile_m, wm, m), _split(tile_n, wn, n), _split(tile_k, 1, k)
    order = _check_k_order(k_order, red.block)
    waves_of_rows = LinearMap.replicate("wave", wn_bits) * _bands(rows, wm_bits, "row")
    waves_of_cols = _bands(cols, wn_bits, "col") * LinearMap.replicate("wave", wm_bits)

    def operand(dim: str, split: _Split, unit: int, bits: int, waves: LinearMap) -> LinearMap:
        """Rows (columns, of B) and k of an operand: the fragment, then fragments along k, then along the rows."""
        fragment = _named(mfma_operand(unit, k, bits=bits), dim, "k")
        tile = fragment * _registers("k", red.block // k) * _registers(dim, split.inner) * waves
        return _reordered_k(tile, order)

    a = operand("row", rows, m, bits_a, waves_of_rows)
    b = operand("col", cols, n, bits_b, waves_of_cols).reorder(outputs=("k", "col"))
    fragment = mfma_accumulator(n, m, bits=max(32, bits_a))
    own = _named(fragment, "col", "row") if swapped else _named(fragment, "row", "col")
    waves = _together(waves_of_rows, waves_of_cols)
    c = own * _registers("col", cols.inner) * _registers("row", rows.inner) * waves
    return (
        Layout.of_map((tile_m, tile_k), a, (rows.outer, red.outer)),
        Layout.of_map((tile_k, tile_n), b, (red.outer, cols.outer)),
        Layout.of_map((tile_m, tile_n), c.reorder(outputs=("row", "col")), (rows.outer, cols.outer)),
    )


def _named(fragment: Layout, *dims: str) -> LinearMap:
    """The map of a fragment with its dimensions named."""
    sizes = (bits for _, bits in fragment.linear_map.outputs)
    return fragment.linear_map.regroup(outputs=tuple(zip(dims, sizes, strict=True)))


def _registers(dim: str, count: int) -> LinearMap:
    """``count`` (a power of two) fragments along a dimension, in further registers."""
    return LinearMap.identity("reg", dim, ceil_log2(count))


def _bands(split: _Split, bits: int, dim: str) -> LinearMap:
    """Waves along a dimension; those beyond the tile are copies."""
    distinct = ceil_log2(split.waves)
    return LinearMap.identity("wave", dim, distinct) * LinearMap.replicate("wave", bits - distinct)


def _together(x: LinearMap, y: LinearMap) -> LinearMap:
    """The same input bits mapped by both, to outputs side by side."""
    shift = sum(bits for _, bits in x.outputs)
    return LinearMap(
        x.inputs, (*x.outputs, *y.outputs), tuple(p | q << shift for p, q in zip(x.columns, y.columns, strict=True))
    )


def _reordered_k(tile: LinearMap, order: Sequence[int]) -> LinearMap:
    """An operand with another order of k: a map of k onto itself, composed onto it; the other dimension stays."""
    (dim, bits), (k, k_bits) = tile.outputs
    turn = LinearMap.identity(dim, dim, bits) * LinearMap(((k, k_bits),), ((k, k_bits),), tuple(order))
    return turn @ tile


def _check_k_order(k_order: Sequence[int] | None, block_k: int) -> tuple[int, ...]:
    size = ceil_log2(block_k)
    if k_order is None:
        return gf2.identity(size)
    order = tuple(k_order)
    if len(order) != size or any(not 0 <= x < block_k for x in order) or gf2.rank(order) != size:
        raise LayoutError(
            f"k_order {list(order)} must be {size} independent values below {block_k}, one for each bit of the k block"
        )
    return order


def k_block(tile_k: int, instr_k: int) -> int:
    """Power-of-two extent of k over which a ``k_order`` acts: the instruction's k times the power-of-two fragments."""
    return _split(tile_k, 1, instr_k).block


def wide_k_order(tile_k: int, instr: tuple[int, int, int], bits: int, access_bits: int = PIECE_BITS) -> tuple[int, ...]:
    """k order in which a lane's elements of consecutive k fragments are contiguous, up to ``access_bits`` per access.

    CDNA3's 16x16x16 bf16 has 8 bytes per lane: two fragments with k = 8 * (l // 16) + 0..7 between them are fed by one
    16-byte LDS read. The identity where the instruction's own piece already fills the access.
    """
    m, _, k = instr
    reg, lane = _operand_bits(m, k, 1, bits)
    size = ceil_log2(k_block(tile_k, k))
    own = [v[2].bit_length() - 1 for v in reg]
    lanes = [v[2].bit_length() - 1 for v in lane if v[2]]
    fragments = list(range(ceil_log2(k), size))
    extra = max(0, min(len(fragments), ceil_log2(access_bits // bits) - len(own)))
    physical = own + fragments[:extra] + lanes + fragments[extra:]
    if not extra:
        physical = list(range(size))
    order = [0] * size
    for logical, p in enumerate(physical):
        order[p] = 1 << logical
    return tuple(order)


def block_k_order(tile_k: int, instr_k: int, block: int, together: int) -> tuple[int, ...]:
    """k order in which a lane group has runs of consecutive blocks of k: number j of an instruction has the blocks ``s * j`` … of
    up to ``together`` instructions, s of them, one after the other.

    An instruction with scales takes those of its j-th block of k from the lanes of group j (CDNA4 ISA, scaled MFMAs). In this
    order a lane finds what it needs for several instructions side by side in memory, where the scales of a row lie in the order
    of k. The extent of k over which it acts is :func:`k_block`.

    Args:
        block: elements of k with one scale, a power of two; 1 where k counts blocks.
        together: instructions whose blocks lie side by side, at most; a power of two.
    """
    size = ceil_log2(k_block(tile_k, instr_k))
    inner, whole = ceil_log2(block), ceil_log2(instr_k)
    steps = list(range(whole, size))
    near = steps[: ceil_log2(together)]
    physical = [*range(inner), *near, *range(inner, whole), *steps[len(near) :]]
    order = [0] * size
    for logical, p in enumerate(physical):
        order[p] = 1 << logical
    return tuple(order)


def accumulator_k_order(
    producer: Layout, axis: int, instr: tuple[int, int, int], bits: int, *, tile_k: int | None = None
) -> tuple[int, ...]:
    """k order with which a tile that lies in ``producer`` (an MFMA result) is an operand of the next MFMA as it is, or nearly so.

    The dimension ``axis`` of the producer becomes k; lanes along its other dimension must be the operand's rows. Where the producer
    has more such lanes than the operand has rows (32x32 before 16x16), each lane bit too many changes places with a register bit.

    Args:
        instr: shape of the consuming instruction (m = n).
        bits: bits per operand element there.

    Raises:
        LayoutError: the lanes do not fit, so data has to move.
    """
    m, _, k = instr
    tile_k = producer.shape[axis] if tile_k is None else tile_k
    reg, lane = _operand_bits(m, k, 1, bits)
    size = ceil_log2(k_block(tile_k, k))
    source = [v[axis] for v in producer.reg if v[axis] and not any(x for d, x in enumerate(v) if d != axis)]
    order = [0] * size
    exchanged: list[int] = []  # places in the order that lane bits have which the producer uses for rows
    for i, (vector, held) in enumerate(zip(lane, producer.lane, strict=True)):
        if vector[2] and held[axis]:
            order[vector[2].bit_length() - 1] = held[axis]
        elif vector[2]:
            exchanged.append(vector[2].bit_length() - 1)
        elif held[axis]:
            raise LayoutError(
                f"lane bit {i} of the producer does not fit an operand of {m} rows: convert the layout, or let the "
                "producer use the same m and n (swapped if its lanes run along the wrong dimension)"
            )
    targets = [v[2].bit_length() - 1 for v in reg] + exchanged + list(range(ceil_log2(k), size))
    if len(source) < len(targets):
        raise LayoutError(
            f"the producer holds {1 << len(source)} elements per lane along dimension {axis}, the operand needs "
            f"{1 << len(targets)}: convert the layout"
        )
    for p, image in zip(targets, source, strict=False):
        order[p] = image
    return _check_k_order(order, 1 << size)
