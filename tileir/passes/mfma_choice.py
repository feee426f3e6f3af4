"""Default mapping of an `mma` onto waves and matrix instructions, where the schedule leaves it open."""

from __future__ import annotations

from tileir.ir.core import Kernel, Op
from tileir.ir.diagnostics import error
from tileir.ir.ops.contract import accumulator
from tileir.target import Target

# Elements of a result tile below which another wave does not pay: one wave then has less than 4 fragments of 16 x 16.
ELEMENTS_PER_WAVE = 4 * 16 * 16
DEFAULT_WAVES = 4
# Accumulator elements beyond which eight waves are used: four hold more than 128 registers each, half of the vector file.
ELEMENTS_OF_FOUR_WAVES = 4 * 64 * 128


def choose_instruction(op: Op, target: Target) -> tuple[int, int, int]:
    """The full-rate dense MFMA with the smallest tile, then the largest k, for the operand types.

    Raises CompileError if the chip has none.
    """
    a, b = op.operands[0].tile.elem, op.operands[1].tile.elem
    acc = accumulator(a)
    assert acc is not None
    choices = [i for i in target.mfmas_for(a.name, b.name, acc.name) if i.blocks == 1 and i.m == i.n]
    full = [i for i in choices if target.is_full_rate(i, a.name, b.name)] or choices
    if not full:
        raise error(
            "E0703",
            f"{target.name} has no matrix instruction for {a} x {b} summed in {acc}",
            op.loc,
            legal=f"operands of {', '.join(target.legal_elems('mma'))}",
        )
    best = min(full, key=lambda i: (i.m, -i.k))
    return best.m, best.n, best.k


def choose_waves(m: int, n: int, instr: tuple[int, int, int], waves: int) -> tuple[int, int]:
    """Rows x columns of waves with the fewest operand elements read per wave, among grids that the tile fills."""
    grids = [(r, waves // r) for r in (1, 2, 4, 8, 16) if waves % r == 0]
    fitting = [g for g in grids if m >= g[0] * instr[0] and n >= g[1] * instr[1]] or grids
    return min(fitting, key=lambda g: (-(-m // g[0]) + -(-n // g[1]), g[0]))


def workgroup_waves(kernel: Kernel) -> int:
    """Waves of the workgroup: what the text says, else as many as its accumulators fill, at most 8.

    Products of equal shape count once: they are versions of one, or follow each other.
    """
    given = kernel.attrs.get("waves")
    if isinstance(given, int):
        return given
    shapes = {op.result.tile.shape for op in kernel.walk() if op.name == "mma"}
    if not shapes:
        return DEFAULT_WAVES
    elements = sum(m * n for m, n in shapes)
    most = 8 if elements > ELEMENTS_OF_FOUR_WAVES else DEFAULT_WAVES
    waves = 1
    while waves < most and elements >= 2 * waves * ELEMENTS_PER_WAVE:
        waves *= 2
    return waves
