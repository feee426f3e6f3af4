"""Default mapping of an `mma` onto waves and matrix instructions, where the schedule leaves it open."""

from __future__ import annotations

from tileir.ir.core import Kernel, Op
from tileir.ir.diagnostics import error
from tileir.ir.ops.contract import accumulator
from tileir.target import Target

# Elements of a result tile below which another wave does not pay: one wave then has less than 4 fragments of 16 x 16.
ELEMENTS_PER_WAVE = 4 * 16 * 16
DEFAULT_WAVES = 4


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
    """Waves of the workgroup: what the text says, else as many as the largest `mma` can feed, at most 8."""
    given = kernel.attrs.get("waves")
    if isinstance(given, int):
        return given
    products = [op.result.tile for op in kernel.walk() if op.name == "mma"]
    if not products:
        return DEFAULT_WAVES
    largest = max(t.shape[0] * t.shape[1] for t in products)
    most = 8 if largest >= 256 * 256 else DEFAULT_WAVES
    waves = 1
    while waves < most and largest >= 2 * waves * ELEMENTS_PER_WAVE:
        waves *= 2
    return waves
