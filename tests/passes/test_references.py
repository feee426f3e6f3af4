"""What carries the old reference of a guard passes through it (case late-rescale): what is rejected, with which words, and what is not."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from tileir.frontend import parse
from tileir.ir.core import Kernel
from tileir.ir.diagnostics import CompileError, Diagnostic, Log
from tileir.passes import manager
from tileir.passes.references import check_references
from tileir.passes.rescaling import rescaling_of

KERNELS = Path(__file__).parents[2] / "tileir" / "kernels"

# What each forgets: the text, what it becomes, the op that adds up, and the two values.
FORGOTTEN = {
    "attention_lazy": [
        ("%lo * %r", "%lo", "add", "lr"),
        ("%oo * %r", "%oo", "mma", "or"),
        ("%x * %c - %fn", "%x * %c - %fi", "add", "lr"),
        ("%x * %c - %fn", "(%x - %mi) * %c", "add", "lr"),
        ("%ln = %lr +", "%ln = %li +", "add", "li"),
        ("mma(%p, %v, %or)", "mma(%p, %v, %oi)", "mma", "oi"),
    ],
    "attention_prescaled": [
        ("(%x))", "(%y))", "add", "lr"),
        ("yield %yo - %d,", "yield %yo,", "add", "lr"),
        ("%lo * %r", "%lo", "add", "lr"),
        ("%oo * %r", "%oo", "mma", "or"),
        ("%ln = %lr +", "%ln = %li +", "add", "li"),
        ("mma(%p, %v, %or)", "mma(%p, %v, %oi)", "mma", "oi"),
    ],
}
CASES = [(name, *case) for name, cases in FORGOTTEN.items() for case in cases]


def rejected(kernel: Kernel) -> tuple[Diagnostic, ...]:
    with pytest.raises(CompileError) as caught:
        check_references(kernel)
    assert all(d.code == "E1035" and d.loc.line and len(d.notes) == 3 for d in caught.value.diagnostics)
    return caught.value.diagnostics


def mutated(name: str, old: str, new: str) -> str:
    text = (KERNELS / f"{name}.tile").read_text()
    assert text.count(old) == 1
    return text.replace(old, new)


@pytest.mark.parametrize(("name", "old", "new", "op", "value"), CASES)
def test_late_rescale_is_rejected(name: str, old: str, new: str, op: str, value: str) -> None:
    """Both sides of the addition are named, with where they have their references from."""
    module = parse(mutated(name, old, new), "attention.tile")
    first = rejected(module.kernels[0])[0]
    assert first.message.startswith(f"'{op}' adds %") and f"%{value}" in first.message
    lines = module.sources["attention.tile"].splitlines()
    ops = [lines[n.loc.line - 1] for n in first.notes[:2] if n.loc is not None]
    assert all("exp2" in line or "* %r" in line for line in ops) and "'exp2'" in first.notes[0].message
    assert first.notes[2].loc is not None and "guard" in lines[first.notes[2].loc.line - 1]
    with pytest.raises(CompileError) as caught:
        manager.run_pipeline(module, "", "gfx950", stop_after="specialise")
    assert caught.value.diagnostics[0] == first and caught.value.sources


@pytest.mark.parametrize("case", [CASES[0], CASES[6]])
def test_it_is_rejected_in_the_text_that_is_lowered(case: tuple[str, ...]) -> None:
    """The loop is rotated, unrolled and woven by then: exponentials are fragments, and there are several guards in a row."""
    name, old, new, *_ = case
    module = parse(mutated(name, old, new), "attention.tile")
    with patch.object(manager, "check_references", lambda kernel: None):
        before = manager.run_pipeline(module, "", "gfx950", log=Log(), stop_after="order-atomics").kernel
    assert sum(op.name == "guard" for op in before.walk()) > 4 and any(op.name == "mfma" for op in before.walk())
    assert len(rejected(before)) > 4


LOOP = """tileir 1
kernel @k(%S: global<f32[64, N]>, %V: global<f32[N, 64]>, %O: global<f32[64, 64]>, %L: global<f32[64, 1]>, %scale: f32) grid(1) {{
  %m0 = fill(-inf) : tile<f32[64, 1]>
  %z0 = fill(0.0) : tile<f32[64, 1]>
  %o0 = fill(0.0) : tile<f32[64, 64]>
  %e0 = fill(0.0) : tile<f32[64, 32]>
  %m, %l, %o, %e = for %j = 0 to N step 32 carry(%mi = %m0, %li = %z0, %oi = %o0, %ei = %e0) {{
    %s = load(%S[0 +: 64, %j +: 32])
    %v = load(%V[%j +: 32, 0 +: 64])
    %top = reduce_max(%s, axis = 1)
    %mn, %lr, %or, %er = guard %top > %mi carry(%mo = %mi, %lo = %li, %oo = %oi, %eo = %ei) {{
      %r = exp2((%mo - %top) * %scale)
      yield %top, %lo * %r, %oo * %r, {pending}
    }}
    {body}
    yield %mn, {carried}
  }}
  store(%o, %O[0 +: 64, 0 +: 64])
  store(%l, %L[0 +: 64, 0 +: 1])
}}
"""
P = "%p = exp2((%s - %mn) * %scale)"
SUM = "%ln = %lr + reduce_add(%p, axis = 1)\n    %on = mma(%p, %v, %or)"
# %e is what the iteration before has computed ahead: exponentials against the reference of then.
AHEAD = "%en = exp2((%s - %mn) * %scale)\n    %ln = %lr + reduce_add({e}, axis = 1)\n    %on = mma({e}, %v, %or)"
RIGHT = {
    "as it should be": ("%eo", f"{P}\n    {SUM}", "%ln, %on, %ei"),
    "ahead, and rescaled": ("%eo * %r", AHEAD.format(e="%er"), "%ln, %on, %en"),
    "ahead, corrected by hand": (
        "%eo",
        "%fix = exp2((%mi - %mn) * %scale)\n    %c = %ei * %fix\n    " + AHEAD.format(e="%c"),
        "%ln, %on, %en",
    ),
    "old exponentials, corrected by hand": (
        "%eo",
        f"%q = exp2((%s - %mi) * %scale)\n    %p = %q * exp2((%mi - %mn) * %scale)\n    {SUM}",
        "%ln, %on, %ei",
    ),
    "how many scores exceed the reference": (
        "%eo",
        f"{P}\n    {SUM}\n    %en = %ei + where(%s > %mi, 1.0, 0.0) + where(%s > %mn, 1.0, 0.0)",
        "%ln, %on, %en",
    ),
    "the sum of all references": ("%eo", f"{P}\n    {SUM}\n    %en = %ei + %mn + %mi", "%ln, %on, %en"),
    "weights in absolute units": ("%eo", f"{P}\n    {SUM}\n    %en = %ei + exp2(%mn * %scale) * %s", "%ln, %on, %en"),
    "by how much the reference moves": (
        "%eo",
        f"{P}\n    {SUM}\n    %en = max(%ei, %s + exp2((%mi - %mn) * %scale))",
        "%ln, %on, %en",
    ),
}
WRONG = {
    "ahead, and forgotten": ("%eo", AHEAD.format(e="%ei"), "%ln, %on, %en"),
    "ahead, through the guard, but unchanged": ("%eo", AHEAD.format(e="%er"), "%ln, %on, %en"),
    "computed before the guard": ("%eo", f"%p = exp2((%s - %mi) * %scale)\n    {SUM}", "%ln, %on, %ei"),
    "half of each": (
        "%eo",
        f"%q = exp2((%s - %mi) * %scale)\n    {P.replace('%p', '%p1')}\n    %p = %p1 + %q\n    {SUM}",
        "%ln, %on, %ei",
    ),
    "added by fma": (
        "%eo",
        "%p = exp2((%s - %mi) * %scale)\n    %ln = fma(reduce_add(%p, axis = 1), %z0 + 1.0, %lr)\n    %on = %or",
        "%ln, %on, %ei",
    ),
    "under a condition": (
        "%eo",
        f"%p = if N > 64 {{\n      %a = exp2((%s - %mi) * %scale)\n      yield %a\n    }} else {{\n      yield %e0\n    }}\n    {SUM}",
        "%ln, %on, %ei",
    ),
}


def loop(pending: str, body: str, carried: str) -> Kernel:
    return parse(LOOP.format(pending=pending, body=body, carried=carried), "loop.tile").kernels[0]


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_or_beyond_the_rules_is_accepted(name: str) -> None:
    kernel = loop(*RIGHT[name])
    assert [sorted(r.weights.items()) for op in kernel.walk() if op.name == "guard" and (r := rescaling_of(op))] == [
        [(0, -1)]
    ]
    check_references(kernel)


@pytest.mark.parametrize("name", WRONG)
def test_what_meets_two_references_is_rejected(name: str) -> None:
    found = rejected(loop(*WRONG[name]))
    assert {d.message.split("'")[1] for d in found} <= {"add", "mma", "fma"}


def test_without_a_loop_too() -> None:
    text = """tileir 1
kernel @k(%M: global<f32[64, 1]>, %X: global<f32[64, 32]>, %L: global<f32[64, 1]>) grid(1) {{
  %m = load(%M[0 +: 64, 0 +: 1])
  %x = load(%X[0 +: 64, 0 +: 32])
  %l = load(%L[0 +: 64, 0 +: 1])
  %top = reduce_max(%x, axis = 1)
  %mn, %lr = guard %top > %m carry(%mo = %m, %lo = %l) {{
    yield %top, %lo * exp(%mo - %top)
  }}
  store(%lr + reduce_add(exp(%x - {m}), axis = 1), %L[0 +: 64, 0 +: 1])
}}
"""
    check_references(parse(text.format(m="%mn"), "k.tile").kernels[0])
    (found,) = rejected(parse(text.format(m="%m"), "k.tile").kernels[0])
    assert found.loc.line == 10


def test_guards_that_rescale_by_no_power_say_nothing_of_references() -> None:
    """A residual, a repaired quotient: values from before and behind are added on purpose."""
    text = """tileir 1
kernel @k(%X: global<f32[64, 32]>) grid(1) {
  %x = load(%X[0 +: 64, 0 +: 32])
  %big = reduce_max(%x, axis = 1)
  %y, %b = guard %big > 8.0 carry(%v = %x, %w = %big) {
    yield %v / %big, %w * exp2(-1.0)
  }
  store(%y + %x * %b + %big, %X[0 +: 64, 0 +: 32])
}
"""
    kernel = parse(text, "k.tile").kernels[0]
    assert [rescaling_of(op) for op in kernel.walk() if op.name == "guard"] == [None]
    check_references(kernel)
