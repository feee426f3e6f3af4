"""Random kernels of the form of attention: two chained products in a loop over keys, masks, a running maximum and sum, rescaling
in place or in a guard, under random schedules.

Every value is exact whatever the order of sums. Scores are sums of products of small integers. Exponents are integers from -2 to 0, so that
weights and factors of rescaling are 1, 1/2 or 1/4; with few blocks of keys the sums stay within the bits of f32.
"""

from __future__ import annotations

from tileir.frontend import parse
from tileir.fuzz.generate import Choices
from tileir.ir.core import Kernel, Schedule

BLOCKS_OF_KEYS = 4
"""At most, so that at most as many factors of 1/4 meet in a sum."""
_ELEMS = ("bf16", "bf16", "f16", "f16", "f32")
_ROWS = (16, 16, 32, 32, 64, 128)
_KEYS = (16, 16, 32, 32, 64)
_DEPTHS = (8, 16, 16, 32, 32, 64, 80)


def random_attention(choices: Choices) -> tuple[Kernel, tuple[Schedule, ...], dict[str, int]]:
    """A kernel, schedules for both chips (or none), and sizes."""
    c = choices
    elem, rows, keys, depth = c.pick(_ELEMS), c.pick(_ROWS), c.pick(_KEYS), c.pick(_DEPTHS)
    sizes = {"NQ": c.pick([1, 7, rows, rows + 1, 2 * rows - 3]), "NK": c.integer(0, BLOCKS_OF_KEYS * keys)}
    heads = c.boolean()
    view = lambda n: f"{elem}[{n}, H, {depth}]" if heads else f"{elem}[{n}, {depth}]"  # noqa: E731
    turned = c.integer(0, 3) == 0 and not heads  # keys lie with their depth first
    at = "%h, " if heads else ""
    grid = f"grid(cdiv(NQ, {rows}){', H' if heads else ''})"
    mask, end = _mask(c, rows, keys)
    lines = [
        f"  %t{', %h' if heads else ''} = program_id()",
        f"  %q = load(%Q[%t * {rows} +: {rows}, {at}0 +: {depth}])",
        f"  %row = %t * {rows} + iota<[{rows}, 1]>(axis = 0) + (NK - NQ)",
        f"  %m0 = fill({'-inf' if c.boolean() else '-3.0'}) : tile<f32[{rows}, 1]>",
        f"  %l0 = fill(0.0) : tile<f32[{rows}, 1]>",
        f"  %o0 = fill(0.0) : tile<f32[{rows}, {depth}]>",
        f"  %end = {end}",
        f"  %m, %l, %o = for %j = 0 to %end step {keys} carry(%mi = %m0, %li = %l0, %oi = %o0) {{",
        *(f"    {line}" for line in _body(c, elem, keys, depth, at, turned, mask)),
        "  }",
    ]
    if c.boolean():
        lines.append(
            f"  %lse = reshape<[{rows}]>(%m + %l)\n  store(%lse, %L[{'%h, ' if heads else ''}%t * {rows} +: {rows}])"
        )
    wide = c.boolean()
    out = "%o" if wide else f"convert<{elem}>(%o)"
    lines.append(f"  store({out}, %O[%t * {rows} +: {rows}, {at}0 +: {depth}])")
    views = {
        "Q": view("NQ"),
        "K": f"{elem}[{depth}, NK]" if turned else view("NK"),
        "V": view("NK"),
        "O": view("NQ").replace(elem, "f32" if wide else elem),
        "L": "f32[H, NQ]" if heads else "f32[NQ]",
    }
    if heads:
        sizes["H"] = c.integer(1, 2)
    text = f"tileir 1\n\nkernel @attention({', '.join(f'%{n}: global<{t}>' for n, t in views.items())}) {grid} {{\n"
    text += "\n".join(lines) + "\n}\n" + _schedules(c)
    module = parse(text, "attention.tile")
    return module.kernels[0], tuple(module.schedules), sizes


def _mask(c: Choices, rows: int, keys: int) -> tuple[str, str]:
    """The mask of a block of scores, and the end of the loop."""
    masks = ["(%col < NK)"]
    end = "NK"
    match c.integer(0, 4):
        case 0 | 1:
            masks.append("(%col <= %row)")
            if c.boolean():
                end = f"min(NK, (%t + 1) * {rows} + (NK - NQ))"
        case 2:
            masks += ["(%col <= %row)", f"(%col > %row - {c.pick([1, 5, keys, 2 * keys])})"]
        case 3:
            masks.append(f"(mod(%col, {c.pick([2, 3])}) == 0)")
        case _:
            pass
    return " & ".join(masks), end


def _body(c: Choices, elem: str, keys: int, depth: int, at: str, turned: bool, mask: str) -> list[str]:
    key = f"%k = load(%K[0 +: {depth}, %j +: {keys}])" if turned else f"%k = load(%K[%j +: {keys}, {at}0 +: {depth}])"
    value = f"%v = load(%V[%j +: {keys}, {at}0 +: {depth}])"
    early = c.boolean()
    lazy = c.integer(0, 2) == 0
    lines = [key, *([value] if early else [])]
    lines.append(f"%s = mma(%q, {'%k' if turned else 'transpose(%k)'})")
    lines.append(f"%col = %j + iota<[1, {keys}]>(axis = 1)")
    lines.append(f"%x = where({mask}, %s, -inf)")
    lines.append("%top = reduce_max(%x, axis = 1)")
    # -inf - -inf is NaN, of which `max` takes the number.
    factor = "%r = where(%mi == %mn, 1.0, where(%mi == -inf, 0.0, exp2(max(%mi - %mn, -2.0))))"
    if lazy:
        lines += [
            f"%mn, %lr, %or = guard %top > %mi + {c.pick(['0.0', '1.0', '8.0'])} carry(%mo = %mi, %lo = %li, %oo = %oi) {{",
            "  " + factor.replace("%mn", "%top").replace("%mi", "%mo"),
            "  yield %top, %lo * %r, %oo * %r",
            "}",
            "%d = clamp(%x - where(%mn == -inf, 0.0, %mn), -2.0, 0.0)",
        ]
    else:
        lines += ["%mn = max(%mi, %top)", factor, "%lr = %li * %r", "%or = %oi * %r"]
        lines.append("%d = max(%x - where(%mn == -inf, 0.0, %mn), -2.0)")
    lines.append("%p = where(%x == -inf, 0.0, exp2(%d))")
    lines.append("%ln = %lr + reduce_add(%p, axis = 1)")
    lines += [] if early else [value]
    narrow = "%p" if elem == "f32" else f"convert<{elem}>(%p)"
    if c.integer(0, 3):
        lines.append(f"%on = mma({narrow}, %v, %or)")
    else:
        lines += [f"%pv = mma({narrow}, %v)", "%on = %or + %pv"]
    return [*lines, "yield %mn, %ln, %on"]


def _schedules(c: Choices) -> str:
    """A schedule for either chip, often none."""
    found = ""
    for chip in ("gfx942", "gfx950"):
        if c.boolean():
            continue
        lines: list[str] = []
        if c.boolean():
            lines.append(f"waves %o {c.pick([1, 2, 4, 4, 8])} x 1")
        if c.boolean():
            path = c.pick(["", " direct", " via_registers"])
            lines.append(f"stage {c.pick(['%k', '%v', '%k, %v'])} in shared depth {c.pick([1, 2, 2, 3])}{path}")
        if c.integer(0, 2) == 0:
            lines.append(f"loop %j pattern {c.pick(['plain', 'interleave'])}")
        body = "".join(f"  {line}\n" for line in lines)
        found += f"\nschedule @on_{chip} of @attention for {chip} {{\n{body}}}\n"
    return found
