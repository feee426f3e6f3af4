"""Random kernels around matrix products: every operand form, odd tiles, chains, reductions and epilogues, under random schedules.

Inputs are small integers, so that all sums are exact and every execution must give the same bits, whatever the order.
"""

from __future__ import annotations

from typing import Literal

from tileir.api import KernelBuilder, ScheduleBuilder, Tile, View, cdiv, span, symbol
from tileir.api.builder import ForLoop
from tileir.fuzz.generate import Choices
from tileir.ir.core import Kernel, Schedule
from tileir.ir.types import ELEMS, F32, Elem

ELEMENTS = ("bf16", "f16", "f32", "f64", "i8")
SMALL = (("f8E4M3FNUZ", "f8E5M2FNUZ"), ("f8E4M3FN", "f8E5M2", "f6E2M3FN", "f6E3M2FN", "f4E2M1FN"))
"""Types that may be multiplied by each other, those of gfx942 and those of gfx950."""
MOST = 3
"""Inputs are integers from -MOST to MOST."""
SCALE, SCALED = ELEMS["f8E8M0FNU"], 32
"""The type of scales, and how many values of k share one."""
TILES = (1, 8, *[16] * 8, *[32] * 6, 48, 64, 64, 80, 96, 128)
DEPTHS = (8, *[16] * 3, *[32] * 4, 48, 64, 128)
"""Mostly small: a program is to cost little, and the lanes of a wave are the same in small tiles."""
MOST_TERMS = 160
"""Terms of a sum: 9 · 160 is exact in f16, and a second product of such sums in f32."""


def random_product(choices: Choices) -> tuple[Kernel, tuple[Schedule, ...]]:
    """A kernel C = epilogue(A · B) for views A, B, C and a bias, sometimes under a schedule; sizes M, N, K are symbols."""
    k = KernelBuilder("product", fp=choices.pick(["default", "strict"]))
    elem = other = ELEMS[choices.pick(ELEMENTS)]
    if choices.integer(0, 2) == 0:
        kinds = choices.pick(SMALL)
        elem, other = ELEMS[choices.pick(kinds)], ELEMS[choices.pick(kinds)]
    scaled = elem.name in SMALL[1] and choices.boolean()
    total = elem if elem.name == "f64" else ELEMS["i32"] if elem.is_int else F32
    m, n, depth = choices.pick(TILES), choices.pick(TILES), choices.pick(DEPTHS)
    if scaled:
        depth = choices.pick([32, 64, 128])
    turned_a, turned_b = choices.boolean(), choices.boolean()
    A = k.view("A", elem, ["K", "M"] if turned_a else ["M", "K"], strides=_strides(choices, "LA"))
    B = k.view("B", other, ["N", "K"] if turned_b else ["K", "N"], strides=_strides(choices, "LB"))
    out = choices.pick([total, elem if elem.is_float else total])
    turned_c = choices.boolean()
    C = k.view("C", out, ["N", "M"] if turned_c else ["M", "N"], strides=_strides(choices, "LC"))
    D = k.view("D", total, ["M", "N"])
    SA, SB = (k.view(name, SCALE, [rows, "KS"]) for name, rows in (("SA", "M"), ("SB", "N"))) if scaled else (D, D)
    k.grid(cdiv(symbol("M"), m), cdiv(symbol("N"), n))
    i, j = k.program_id()
    with k.for_(0, k.dim("K"), depth, acc=k.fill(0.0 if total.is_float else 0, total, [m, n])) as loop:
        a = _operand(k, A, turned_a, i * m, m, loop.index, depth)
        b = _operand(k, B, not turned_b, loop.index, depth, j * n, n)
        if scaled:
            block = span(loop.index / SCALED, depth // SCALED)
            sa, sb = k.load(SA[span(i * m, m), block]), k.load(SB[span(j * n, n), block])
            acc = k.mma_scaled(a, sa, b, sb.T, loop.acc)
        else:
            acc = k.mma(a, b, loop.acc)
        loop.yield_(acc=acc)
    x = loop.result
    for _ in range(choices.integer(0, 3)):
        x = _epilogue(k, choices, x, elem, D, i * m, j * n)
    x = x if x.elem == out else x.convert(out)
    if x.shape != (m, n):
        x = k.broadcast(x, [m, n])
    if turned_c:
        k.store(x.T, C[span(j * n, n), span(i * m, m)])
    else:
        k.store(x, C[span(i * m, m), span(j * n, n)])
    if choices.integer(0, 2) == 0:
        for chip in ("gfx942", "gfx950"):
            _directives(k.schedule(chip, f"on_{chip}"), choices, loop, acc, [_loaded(v) for v in (a, b)])
        module = k.module()
        return module.kernels[0], tuple(module.schedules)
    kernel = k.build()
    _schedule(kernel, choices)
    return kernel, ()


def _loaded(x: Tile) -> Tile:
    """The tile as it is loaded, before it is transposed."""
    owner = x.value.owner
    return Tile(x.builder, owner.operands[0]) if owner is not None and owner.name == "transpose" else x


def _directives(s: ScheduleBuilder, c: Choices, loop: ForLoop, acc: Tile, loaded: list[Tile]) -> None:
    """What a schedule may say of the loop."""
    waves = c.pick([1, 2, 4, 4, 8, 8])
    rows = c.pick([w for w in (1, 2, 4, 8) if waves % w == 0])
    if c.boolean():
        s.waves(acc, rows, waves // rows)
    if c.boolean():
        s.stage(*loaded, depth=c.pick([1, 2, 2, 3]), path=c.pick(["", "direct", "via_registers"]))
    if c.boolean():
        patterns: tuple[Literal["plain", "interleave", "ping_pong"], ...] = (
            "plain",
            "interleave",
            "interleave",
            "ping_pong",
        )
        pattern = c.pick(patterns)
        s.loop(loop.index, pattern=pattern, slices=(2, 2) if pattern == "ping_pong" and c.boolean() else ())
    if c.integer(0, 2) == 0:
        s.order_xcd(chunk=c.pick([None, 4, 64]), window=c.pick([None, 2, 8]))


def _strides(choices: Choices, name: str) -> list[int | str] | None:
    return [name, 1] if choices.integer(0, 2) == 0 else None


def _operand(k: KernelBuilder, view: View, turned: bool, r: Tile, rows: int, c: Tile, columns: int) -> Tile:
    """The tile [rows, columns] at (r, c) of a matrix that may lie transposed in memory."""
    if turned:
        return k.load(view[span(c, columns), span(r, rows)]).T
    return k.load(view[span(r, rows), span(c, columns)])


def _epilogue(k: KernelBuilder, choices: Choices, x: Tile, elem: Elem, D: View, r: Tile, c: Tile) -> Tile:
    """One more step whose result is exact: values stay integers of moderate size."""
    m, n = x.shape
    bounded = k.clamp(x, -MOST, MOST)
    match choices.integer(0, 6):
        case 0:
            return k.max(x, 0)
        case 1:
            return x + k.load(D[span(r, m), span(c, n)])
        case 2:
            return bounded - k.reduce_max(bounded, axis=choices.integer(0, 1))
        case 3:
            return bounded + k.reduce_add(bounded, axis=choices.integer(0, 1))
        case 4 if elem.is_float and max(m, n) <= MOST_TERMS:  # a second product of what the first one gave
            narrow = bounded if x.elem == elem else bounded.convert(elem)
            return k.mma(narrow, k.mma(narrow.T, narrow).convert(elem)) if n <= 64 and m <= 64 else x
        case 5:
            return k.where(k.iota([m, 1]) % 3 == 1, x, k.reduce_min(bounded, axis=1))
        case _:
            return k.where(k.iota([1, n], axis=1) < n // 2, -x, x)


def _schedule(kernel: Kernel, choices: Choices) -> None:
    """Random decisions that a schedule could have made."""
    waves = choices.pick([0, 0, 1, 2, 4, 8])
    if waves == 0:
        return
    kernel.attrs["waves"] = waves
    rows = choices.pick([w for w in (1, 2, 4, 8) if waves % w == 0])
    for op in kernel.walk():
        if op.name == "mma" and choices.boolean():
            op.attrs["waves"] = (rows, waves // rows)
