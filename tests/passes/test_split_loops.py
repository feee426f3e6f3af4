"""split-loops: what loops compute stays the same for any affine masks, and masks go where they are known."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tileir.frontend import parse
from tileir.interpreter.machine import run
from tileir.ir.core import Kernel, Op
from tileir.ir.diagnostics import CompileError
from tileir.ir.verifier import verify
from tileir.passes.manager import Result, run_pipeline

ROWS, COLS = 4, 8
RANDOM = """tileir 1
kernel @k(%Y: global<i32[R, C]>, %lo: {index}, %hi: {index}, %n: i32, %r: i32, %w: i64, %flag: i1) grid(1) {{
  %zero = fill(1) : tile<i32[4, 8]>
  %row = %r + iota<[4, 1]>(axis = 0)
  %fixed = %row < %n
  %a = for<masks = {how}> %j = %lo to %hi step {step} carry(%c = %zero) {{
    %i0 = iota<[4, 1]>(axis = 0)
    %i1 = iota<[1, 8]>(axis = 1)
    %x = %c * 3 + where({masks[0]}, %c ^ 5, 7)
    %y = %x * 5 + convert<i32>({masks[1]} & (%i0 >= 0) & (%i1 >= 0))
    yield %y
  }}
  store(%a, %Y[0 +: 4, 0 +: 8])
}}
"""


def _sum(index: str) -> st.SearchStrategy[str]:
    """An affine expression in i32, sometimes with a factor that makes it wrap."""
    j = "%j" if index == "i32" else "convert<i32>(%j)"
    factor = st.sampled_from([1, 1, 1, 2, 3, 7, 1 << 20])
    atom = st.sampled_from(
        [j, j, j, "%i0", "%i1", "%i1", "%n", "%r", "%row", f"min({j} + %i1, %row)", f"max(%n, {j} + %i0)"]
    )
    term = st.builds(lambda f, a: a if f == 1 else f"{f} * ({a})", factor, atom)
    constant = st.integers(-40, 40).map(lambda n: f"({n})")
    return st.lists(st.tuples(st.sampled_from("+-"), st.one_of(term, term, constant)), min_size=1, max_size=3).map(
        lambda parts: "(0" + "".join(f" {sign} {t}" for sign, t in parts) + ")"
    )


def _mask(index: str) -> st.SearchStrategy[str]:
    relation = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    shape = "(%i0 - %i0 + %i1 - %i1)"
    comparison = st.builds(lambda a, r, b: f"({a} + {shape} {r} {b})", _sum(index), relation, _sum(index))
    wide = st.builds(
        lambda a, r: f"(convert<i64>({a} + {shape}) {r} convert<i64>(%i0) + %w)",
        _sum(index),
        st.sampled_from(["<", ">="]),
    )
    leaf = st.one_of(comparison, comparison, comparison, wide, st.just("%fixed"), st.just("%flag"))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds(lambda a, op, b: f"({a} {op} {b})", inner, st.sampled_from("&|"), inner),
            inner.map(lambda a: f"!{a}"),
        ),
        max_leaves=4,
    )


EDGES = st.sampled_from([-(1 << 31), (1 << 31) - 1, (1 << 31) - 40, -(1 << 31) + 40, 0])


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A kernel, and its arguments."""
    index = draw(st.sampled_from(["i32", "i32", "i64"]))
    step = draw(st.sampled_from([1, 2, 3, 8, 24]))
    trips = draw(st.integers(0, 9))
    least = draw(st.one_of(st.integers(-60, 60), st.just(0), st.sampled_from([-(1 << 31), (1 << 31) - 300])))
    most = least + trips * step - (draw(st.integers(0, step - 1)) if trips else draw(st.integers(0, 30)))
    most = max(most, -(1 << 31))
    numbers = st.one_of(st.integers(-100, 150), EDGES)
    args = {
        "lo": least,
        "hi": most,
        "n": draw(numbers),
        "r": draw(numbers),
        "w": draw(st.one_of(numbers, st.just(1 << 40))),
    }
    if draw(st.booleans()):  # a start that is known
        text = RANDOM.replace("%j = %lo to", f"%j = {least} to")
    else:
        text = RANDOM
    how = draw(st.sampled_from(["split", "split", "whole"]))
    masks = (draw(_mask(index)), draw(_mask(index)))
    return text.format(index=index, step=step, masks=masks, how=how), {**args, "flag": draw(st.booleans())}


def _values(kernel: Kernel, args: dict[str, Any]) -> np.ndarray[Any, Any]:
    y = np.zeros((ROWS, COLS), np.int32)
    run(kernel, {"Y": y, **args}, symbols={"R": ROWS, "C": COLS})
    return y


@settings(max_examples=120, deadline=None)
@given(cases())
def test_random_masks(case: tuple[str, dict[str, Any]]) -> None:
    text, args = case
    module = parse(text, "random.tile", {})
    want = _values(module.kernels[0], args)
    try:
        kernel = run_pipeline(module, "k", "gfx950", stop_after="split-loops").kernel
    except CompileError as e:
        assert [d.code for d in e.diagnostics] == ["E0608"]
        event("nothing to split")
        return
    verify(kernel)
    event(f"{len(loops(kernel))} loops")
    np.testing.assert_array_equal(_values(kernel, args), want)


def loops(kernel: Kernel) -> list[Op]:
    return [op for op in kernel.walk() if op.name == "for"]


def names(loop: Op) -> list[str]:
    return [op.name for op in loop.regions[0].walk()]


def split(text: str, chip: str = "gfx950", stop: str = "split-loops", **params: object) -> Result:
    return run_pipeline(parse(text, "loop.tile", params), "", chip, stop_after=stop, verify_each="run")  # type: ignore[arg-type]


def codes(result: Result) -> list[str]:
    return [d.code for d in result.context.log.diagnostics if d.severity == "remark"]


PRODUCT = """tileir 1
kernel @k(%A: global<f32[M, K]>, %B: global<f32[K, N]>, %Y: global<f32[M, N]>, %end: i32, %p: i32, %q: i32) grid(1) {
  ASSUME
  %a = load(%A[0 +: 16, 0 +: 16])
  %zero = fill(0.0) : tile<f32[16, 16]>
  %row = %p + iota<[16, 1]>(axis = 0)
  %sum = for %j = 0 to END step 16 carry(%c = %zero) {
    %b = load(%B[0 +: 16, %j +: 16])
    %s = mma(%a, %b)
    %col = %j + iota<[1, 16]>(axis = 1)
    %x = where(MASK, %s, 1.5)
    yield %c + %x
  }
  store(%sum, %Y[0 +: 16, 0 +: 16])
}
"""


def product(mask: str, end: str = "%end", assume: str = "", loop: str = "") -> str:
    text = PRODUCT.replace("MASK", mask).replace("END", end).replace("ASSUME", assume)
    return text + (f"schedule @s of @k for gfx950 {{\n  loop {loop}\n}}\n" if loop else "")


FIRST = ["%col < %q", "%col <= %row", "%q > %col", "!(%col >= %q)", "(%col < %q) & (%row >= %col)", "%col + %col <= %q"]


@pytest.mark.parametrize("mask", FIRST)
def test_first_iterations(mask: str) -> None:
    """Masks that are true at the start; the numbers may be anything."""
    result = split(product(mask))
    without, with_mask = loops(result.kernel)
    assert "where" not in names(without) and "where" in names(with_mask)
    assert [loop.attrs["part"] for loop in (without, with_mask)] == [1, 2]
    assert codes(result) == ["R0810"]


@pytest.mark.parametrize("mask", ["%col >= %q", "%col > %row", "%q - %col <= 3"])
def test_last_iterations(mask: str) -> None:
    with_mask, without = loops(split(product(mask)).kernel)
    assert "where" not in names(without) and "where" in names(with_mask)


def test_no_iteration_satisfies_both() -> None:
    """A window: by default the mask of one side goes; if asked for, both do in the middle."""
    mask = "(%col <= %row) & (%col + 40 > %row)"
    found = [sorted({"le", "gt"} & set(names(loop))) for loop in loops(split(product(mask)).kernel)]
    assert sorted(map(len, found)) == [1, 2], "one comparison goes in one of two parts"
    before, middle, after = loops(split(product(mask, loop="%j masks split")).kernel)
    assert "where" not in names(middle) and "where" in names(before) and "where" in names(after)


def test_a_mask_at_both_ends() -> None:
    """True in the first iterations and false in the last ones, with a loop that goes on behind what the mask lets through."""
    first, middle, last = loops(split(product("%col < %q", loop="%j masks split")).kernel)
    assert "where" not in names(first) and "where" not in names(last) and "where" in names(middle)


@pytest.mark.parametrize(
    ("mask", "end", "assume"),
    [
        ("%col < N", "N", "assume(mod(N, 16) == 0)"),
        ("%col < N", "min(N, %end)", "assume(mod(N, 32) == 0)\n  assume(mod(%end, 16) == 0)"),
        ("%col < 64", "64", ""),
        ("%col >= 0", "%end", ""),
        ("%row >= 0", "%end", "assume(%p >= 0)\n  assume(%p < 1000)"),
        ("!(N <= %col)", "N", "assume((mod(N, 16) == 0) & (N > 3))"),
    ],
)
def test_masks_that_are_true_everywhere(mask: str, end: str, assume: str) -> None:
    result = split(product(mask, end, assume))
    (loop,) = loops(result.kernel)
    assert "where" not in names(loop) and codes(result) == ["R0811"]


STAYS = {
    "asked for": product("%col < %q", loop="%j masks whole"),
    "the mask is loaded": product("%s > 0.0"),
    "no product": product("%col < %q").replace("mma(%a, %b)", "%b + %a"),
    "the mask is not affine": product("%col * %col < %q"),
    "a start and an end that are close say nothing": product("mod(%col, 7) < %q"),
}


@pytest.mark.parametrize("why", sorted(STAYS))
def test_stays(why: str) -> None:
    (loop,) = loops(split(STAYS[why]).kernel)
    assert "where" in names(loop)


def test_little_to_save() -> None:
    """Where most of the work remains, the code is not worth having twice."""
    busy = product("%col < %q").replace("yield %c + %x", "\n".join([
        *(f"%y{i} = exp(%{f'y{i - 1}' if i else 'x'} * 0.5 + %c)" for i in range(12)), "yield %y11"
    ]))  # fmt: skip
    assert len(loops(split(busy).kernel)) == 1
    asked = busy + "schedule @s of @k for gfx950 {\n  loop %j masks split\n}\n"
    assert len(loops(split(asked).kernel)) > 1


def test_loops_in_loops() -> None:
    """Only the inner one is split, and its index may bound the mask of nothing else."""
    text = product("%col < %i + %q").replace(
        "%sum = for", "%sum = for %i = 0 to 3 step 1 carry(%o = %zero) {\n %in = for"
    )
    text = text.replace("carry(%c = %zero)", "carry(%c = %o)").replace(
        "yield %c + %x\n  }", "yield %c + %x\n  }\n yield %in\n}"
    )
    outer, *inner = loops(split(text).kernel)
    assert len(inner) == 2 and all(loop in list(outer.walk()) for loop in inner)


def test_both_parts_are_mapped_alike() -> None:
    """They are versions of one product, of which one is priced."""
    for chip in ("gfx942", "gfx950"):
        kernel = split(attention("attention", CAUSAL=True)[0], chip, "assign-layouts").kernel
        mappings: dict[str, set[str]] = {}
        for op in kernel.walk():
            if op.name == "mma":
                mappings.setdefault(str(op.loc), set()).add(f"{op.attrs['instr']} {op.attrs['waves']} {op.result.type}")
        assert len(mappings) == 2 and all(len(m) == 1 for m in mappings.values())


def attention(name: str, **params: object) -> tuple[str, dict[str, object]]:
    from tileir import kernels

    text = kernels.source(name)
    for key, value in {"BM": 16, "BN": 16, "D": 16, "T": "f32", **params}.items():
        text, n = re.subn(rf"\b{key}: (\w+) = \w+", lambda m, k=key, v=value: f"{k}: {m[1]} = {str(v).lower()}", text)  # type: ignore[misc]
        assert n == 1
    return text, {}


@pytest.mark.parametrize("name", ["attention", "attention_lazy"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(name: str, causal: bool) -> None:
    """The same results, bit by bit, for zero to nine blocks of keys, ragged ones, and rows that see nothing; with a guard in the loop."""
    module = parse(attention(name, CAUSAL=causal)[0], f"{name}.tile", {})
    before = run_pipeline(module, "", "gfx950", stop_after="simplify").kernel
    after = run_pipeline(module, "", "gfx950", stop_after="split-loops").kernel
    without, with_mask = loops(after)
    assert sum(name in ("le", "lt") for name in names(without)) == 0
    assert sum(name in ("le", "lt") for name in names(with_mask)) == 1
    rng = np.random.default_rng(7)
    sizes = [(1, 0), (17, 1), (16, 16), (31, 15), (5, 48), (47, 97), (61, 31), (40, 144), (3, 131), (64, 64)]
    for nq, nk in sizes:
        q, (k, v) = rng.standard_normal((1, nq, 2, 16), np.float32), rng.standard_normal((2, 1, nk, 1, 16), np.float32)
        results: list[tuple[np.ndarray[Any, Any], ...]] = []
        for kernel in (before, after):
            o, lse = np.zeros_like(q), np.zeros((1, 2, nq), np.float32)
            views = {"Q": q, "K": k, "V": v, "O": o, "LSE": lse, "scale": 0.25}
            run(kernel, views, symbols={"B": 1, "NQ": nq, "H": 2, "NK": nk, "G": 1})
            results.append((o, lse))
        for got, want in zip(results[1], results[0], strict=True):
            np.testing.assert_array_equal(got, want)
