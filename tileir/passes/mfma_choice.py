"""Mappings of an `mma` onto waves and matrix instructions: what is possible where the text leaves it open."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

from tileir.ir.core import AttrValue, Kernel, Op
from tileir.ir.diagnostics import error
from tileir.ir.ops.contract import SCALE_BLOCK, accumulator
from tileir.ir.registry import get
from tileir.layout import Layout, accumulator_k_order, block_k_order, mma_layouts, wide_k_order
from tileir.passes.legality import is_scaled, worthwhile
from tileir.records import dataclass
from tileir.target import Mfma, Target

# Elements of a result tile below which another wave does not pay: one wave then has less than 4 fragments of 16 x 16.
ELEMENTS_PER_WAVE = 4 * 16 * 16
DEFAULT_WAVES = 4
# Accumulator elements beyond which eight waves are used: four hold more than 128 registers each, half of the vector file.
ELEMENTS_OF_FOUR_WAVES = 4 * 64 * 128
# Those of which the accumulation files of four waves hold all: 256 registers of a lane.
ELEMENTS_THAT_FIT = 4 * 64 * 256
MOST_OPEN_WAVES = 8
# Scales in one register, of which a matrix instruction picks one (CDNA4 ISA, op_sel of the scaled MFMAs).
SCALES_TOGETHER = 4

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Mapping:
    """How the fragments of one `mma` are spread and computed.

    Attributes:
        instr: m, n, k of the matrix instruction.
        grid: waves over rows and columns of the result.
        swapped: the instruction computes the transposed product.
        k_of: "wide" for the k order with the widest LDS reads; "blocks" for that of products with scales, in which the scales of a
            lane lie side by side; "a" or "b" for the order in which that operand, the result of an earlier `mma`, lies already.
    """

    instr: Shape
    grid: tuple[int, int]
    swapped: bool
    k_of: str = "wide"

    @property
    def waves(self) -> int:
        """Waves of the workgroup."""
        return self.grid[0] * self.grid[1]

    def __str__(self) -> str:
        text = f"{'x'.join(map(str, self.instr))}{' swapped' if self.swapped else ''}, waves {self.grid[0]} x {self.grid[1]}"
        return text if self.k_of not in ("a", "b") else f"{text}, k as {self.k_of} lies"


def instructions(op: Op, target: Target) -> tuple[Mfma, ...]:
    """The fastest dense MFMAs for the operand types, of each tile size that which k of the tile fills best, of equals that with the
    largest k; small tiles first.

    Raises CompileError if the chip has none.
    """
    a, b = op.operands[0].tile.elem, op.operands[1].tile.elem
    good = [i for i in worthwhile(op, target) if i.m == i.n]
    if not good:
        raise error(
            "E0703",
            f"{target.name} has no matrix instruction for {a} x {b} summed in {accumulator(a)}",
            op.loc,
            legal=f"operands of {', '.join(target.legal_elems('mma'))}",
        )
    k = op.operands[0].tile.shape[1]
    best = {i.m: i for i in sorted(good, key=lambda i: (-(-k % i.k), i.k))}
    return tuple(best[m] for m in sorted(best))


def instruction_of(op: Op, shape: Shape, target: Target) -> tuple[Mfma, int]:
    """The matrix instruction of a shape for the operands of `op`, and its issue interval in clocks.

    Raises CompileError if the chip has none.
    """
    a, b = op.operands[0].tile.elem, op.operands[1].tile.elem
    fitting = [i for i in target.mfmas_for(a.name, b.name, op.result.tile.elem.name) if i.blocks == 1]
    for i in fitting:
        if (i.m, i.n, i.k) == shape:
            return i, target.mfma_clocks(i, a.name, b.name)
    raise error(
        "E0701",
        f"{target.name} has no {'x'.join(map(str, shape))} matrix instruction for {a} x {b}",
        op.loc,
        legal=", ".join(f"{i.m}x{i.n}x{i.k}" for i in fitting) or "none for these types",
    )


def mappings(op: Op, waves: int, target: Target, producers: Sequence[str] = ()) -> tuple[Mapping, ...]:
    """All mappings onto `waves` waves that agree with what the text states; `producers` names the operands ("a", "b") that are
    results of another `mma`. In a fixed order: small instructions first, swapped first, k as a
    producer has it first.

    Raises CompileError where the text states what cannot be.
    """
    stated = op.attrs.get("instr")
    instrs = [stated] if stated else [(i.m, i.n, i.k) for i in instructions(op, target)]
    grid = op.attrs.get("waves") or ()
    assert isinstance(grid, tuple)
    if grid and math.prod(grid) != waves:
        raise error(
            "E0603",
            f"this 'mma' is split over {grid[0]} x {grid[1]} waves, but the workgroup has {waves}",
            op.loc,
            legal=f"a grid of {waves} waves for every 'mma' of the kernel",
        )
    grids = [grid] if grid else [(r, waves // r) for r in _powers(waves)]
    orders = [bool(op.attrs["swapped"])] if "swapped" in op.attrs else [True, False]
    k_orders = (*producers, "wide")
    if is_scaled(op):
        # Lanes with runs of columns: stores by single columns hold a mask of each in two scalar registers, and there are none left
        # for them beside the descriptors of the scales.
        orders = orders[:1]
        k_orders = ("blocks",)
    return tuple(
        Mapping(_shape(i), (g[0], g[1]), swapped, k_of)
        for i in instrs
        for g in grids
        for swapped in orders
        for k_of in k_orders
    )


def _shape(value: AttrValue) -> Shape:
    assert isinstance(value, tuple)
    return value[0], value[1], value[2]


def _powers(waves: int) -> Iterator[int]:
    rows = 1
    while rows <= waves:
        yield rows
        rows *= 2


@lru_cache(maxsize=512)
def layouts_of(
    shape: Shape, bits: int | tuple[int, int], mapping: Mapping, producer: Layout | None = None
) -> tuple[Layout, Layout, Layout]:
    """Layouts of A, B and C of an `mma` of tile shape (m, n, k) on operands of `bits` bits (of A and B, if they differ).

    Args:
        producer: with ``k_of`` "a" or "b", the layout in which that operand lies.

    Raises:
        LayoutError: there are none.
    """
    m, n, k = shape
    of_operand = bits if isinstance(bits, tuple) else (bits, bits)
    if mapping.k_of == "wide":
        order = wide_k_order(k, mapping.instr, max(of_operand))
    elif mapping.k_of == "blocks":
        order = block_k_order(k, mapping.instr[2], SCALE_BLOCK, SCALES_TOGETHER)
    else:
        assert producer is not None
        number = "ab".index(mapping.k_of)
        order = accumulator_k_order(producer, 1 - number, mapping.instr, of_operand[number], tile_k=k)
    return mma_layouts(
        m,
        n,
        k,
        wave_grid=mapping.grid,
        instr=mapping.instr,
        operand_bits=bits,
        swapped=mapping.swapped,
        k_order=order,
    )


def scale_layouts(shape: Shape, mapping: Mapping) -> tuple[Layout, Layout]:
    """Layouts of the scales of a product of tile shape (m, n, k): those of operands of which k counts blocks of 32."""
    m, n, k = shape
    rows, cols, depth = mapping.instr
    blocks, of_instruction = k // SCALE_BLOCK, depth // SCALE_BLOCK
    a, b, _ = mma_layouts(
        m,
        n,
        blocks,
        wave_grid=mapping.grid,
        instr=(rows, cols, of_instruction),
        operand_bits=8,
        swapped=mapping.swapped,
        k_order=block_k_order(blocks, of_instruction, 1, SCALES_TOGETHER),
    )
    return a, b


def waves_along(shape: Shape, mapping: Mapping, axis: int) -> int:
    """Waves with different rows (axis 0) or columns (axis 1) of the result; the others repeat them."""
    fragments = -(-shape[axis] // mapping.instr[axis])
    return min(mapping.grid[axis], 1 << (fragments - 1).bit_length())


def fragments_of(shape: Shape, mapping: Mapping) -> Shape:
    """Instruction fragments along rows, columns and k that one wave computes, padding included."""
    m, n, k = (-(-extent // unit) for extent, unit in zip(shape, mapping.instr, strict=True))
    return -(-m // waves_along(shape, mapping, 0)), -(-n // waves_along(shape, mapping, 1)), k


def usual_waves(kernel: Kernel) -> int:
    """Waves of the workgroup by the size of the accumulators alone, at most 8.

    Products of equal shape count once: they are versions of one, or follow each other. But one that multiplies what comes from
    another is a product of its own, and there is vector work between the two: eight waves, two on each SIMD, pay from half as
    many elements on, since one computes while the other multiplies. Products with scales have four as long as the accumulators
    fit: two waves on a SIMD have too few registers for the scales of two tiles and their addresses besides.
    """
    products = [op for op in kernel.walk() if op.name == "mma"]
    shapes = {(op.result.tile.shape, _follows(op)) for op in products}
    if not shapes:
        return DEFAULT_WAVES
    elements = sum(m * n for (m, n), _ in shapes)
    enough = ELEMENTS_OF_FOUR_WAVES // (2 if any(follows for _, follows in shapes) else 1)
    if has_scales(kernel):
        enough = ELEMENTS_THAT_FIT
    most = MOST_OPEN_WAVES if elements > enough else DEFAULT_WAVES
    waves = 1
    while waves < most and elements >= 2 * waves * ELEMENTS_PER_WAVE:
        waves *= 2
    return waves


def has_scales(kernel: Kernel) -> bool:
    """Whether a product of the kernel has scales of blocks."""
    return any(op.name == "mma" and is_scaled(op) for op in kernel.walk())


def _follows(product: Op) -> bool:
    """Whether an operand is computed from the result of another product, through elementwise ops and guards."""
    seen: set[Op] = set()
    pending = [v.owner for v in product.operands[:2]]
    while pending:
        op = pending.pop()
        if op is None or op in seen:
            continue
        seen.add(op)
        if op.name == "mma":
            return True
        if get(op.name).elementwise or op.name in ("guard", "broadcast", "transpose", "convert_layout"):
            pending += [v.owner for v in op.operands]
            pending += [v.owner for region in op.regions for v in region.terminator.operands]
    return False


def workgroup_waves(kernel: Kernel) -> int:
    """Waves of the workgroup: what the text says, else the usual number."""
    given = kernel.attrs.get("waves")
    return given if isinstance(given, int) else usual_waves(kernel)
