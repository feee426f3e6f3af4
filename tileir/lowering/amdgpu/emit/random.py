"""Philox-4x32-10 in integer arithmetic, as `tileir.ir.ops.random` states it."""

from __future__ import annotations

from tileir.ir.core import Op
from tileir.ir.ops.random import MULTIPLIERS, ROUNDS, WEYL
from tileir.ir.types import I32, I64
from tileir.lowering.amdgpu.emit.elementwise import Pieces
from tileir.lowering.amdgpu.emit.state import State


def philox(s: State, op: Op, n: int, a: list[str]) -> str:
    """First word of the block for key a[0] and counter a[1] (both i64)."""
    p = Pieces(s, op, n)

    def low(x: str) -> str:
        return p.cast("trunc", x, I64, I32)

    def high(x: str) -> str:
        return low(p.plain("lshr", x, p.const(32, I64), elem=I64))

    def product(x: str, m: int) -> tuple[str, str]:
        wide = p.plain("mul", p.cast("zext", x, I32, I64), p.const(m, I64), elem=I64)
        return high(wide), low(wide)

    def xor(*x: str) -> str:
        total = x[0]
        for y in x[1:]:
            total = p.plain("xor", total, y, elem=I32)
        return total

    c = [low(a[1]), high(a[1]), p.const(0, I32), p.const(0, I32)]
    k = [low(a[0]), high(a[0])]
    for _ in range(ROUNDS):
        h0, l0 = product(c[0], MULTIPLIERS[0])
        h1, l1 = product(c[2], MULTIPLIERS[1])
        c = [xor(h1, c[1], k[0]), l1, xor(h0, c[3], k[1]), l0]
        k = [p.plain("add", x, p.const(step, I32), elem=I32) for x, step in zip(k, WEYL, strict=True)]
    if op.name == "philox_bits":
        return c[0]
    upper = p.plain("lshr", c[0], p.const(8, I32), elem=I32)
    f32 = op.result.tile.elem
    return p.plain("fmul", p.cast("uitofp", upper, I32, f32), p.const(2.0**-24, f32), elem=f32)
