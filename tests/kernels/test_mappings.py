"""Matrix products under any mapping – chosen or stated – with reductions, broadcasts, transpositions and a second product behind
them, are exact on the simulator: small integers, so that every sum is exact in f32 and every operand in its type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.harness import CHIPS, DTYPES, device, integers
from tileir.frontend import parse
from tileir.ir.diagnostics import CompileError
from tileir.lowering.amdgpu.compile import compile_kernel
from tileir.runtime import launch

SIZES = (16, 32, 48, 64)
INSTRUCTIONS = {"gfx942": ((16, 16, 16), (32, 32, 8)), "gfx950": ((16, 16, 32), (32, 32, 16))}
# What is done with S between the products, as text and in NumPy.
MIDDLES = {
    "nothing": ("%s", lambda s: s),
    "row maximum": ("%s - reduce_max(%s, axis = 1)", lambda s: s - s.max(axis=1, keepdims=True)),
    "column maximum": ("%s - reduce_max(%s, axis = 0)", lambda s: s - s.max(axis=0, keepdims=True)),
    "row and column": (
        "max(%s, reduce_min(%s, axis = 1) + reduce_max(%s, axis = 0))",
        lambda s: np.maximum(s, s.min(axis=1, keepdims=True) + s.max(axis=0, keepdims=True)),
    ),
}


@dataclass(frozen=True)
class Case:
    """S = A·B, of which `turned` come transposed from memory; then a middle; then perhaps O = S·V, or Sᵀ stored."""

    m: int
    n: int
    k: int
    turned: tuple[bool, bool]
    middle: str
    second: str  # "", "product", "transposed"
    elem: str
    waves: int  # 0: open
    grid: tuple[int, int] | None
    instr: int  # number in INSTRUCTIONS, -1: open
    swapped: bool

    def text(self, chip: str) -> str:
        attrs: list[str] = []
        if self.instr >= 0:
            choices = INSTRUCTIONS[chip]
            attrs.append(f"instr = {list(choices[self.instr % len(choices)])}")
        if self.grid is not None:
            attrs.append(f"waves = {list(self.grid)}")
        if self.swapped:
            attrs.append("swapped = true")
        m, n, k, t = self.m, self.n, self.k, self.elem
        a, b = (f"{k}, {m}" if self.turned[0] else f"{m}, {k}"), (f"{n}, {k}" if self.turned[1] else f"{k}, {n}")
        left = "transpose(%a)" if self.turned[0] else "%a"
        right = "transpose(%b)" if self.turned[1] else "%b"
        out = {"": f"{m}, {n}", "product": f"{m}, {m}", "transposed": f"{n}, {m}"}[self.second]
        end = {
            "": "  %o = %p\n",
            "transposed": "  %o = transpose(%p)\n",
            "product": f"  %v = load(%V[0 +: {n}, 0 +: {m}])\n  %o = mma(convert<{t}>(%p), %v)\n",
        }[self.second]

        def spans(shape: str) -> str:
            return ", ".join(f"0 +: {x.strip()}" for x in shape.split(","))

        return (
            f"tileir 1\nkernel @k(%A: global<{t}[{a}]>, %B: global<{t}[{b}]>, %V: global<{t}[{n}, {m}]>, "
            f"%O: global<f32[{out}]>) grid(1){f' with(waves = {self.waves})' if self.waves else ''} {{\n"
            f"  %a = load(%A[{spans(a)}])\n  %b = load(%B[{spans(b)}])\n"
            f"  %s = mma{'<' + ', '.join(attrs) + '>' if attrs else ''}({left}, {right})\n"
            f"  %p = {MIDDLES[self.middle][0]}\n{end}  store(%o, %O[{spans(out)}])\n}}\n"
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    waves = draw(st.sampled_from([0, 0, 1, 2, 4, 8]))
    rows = draw(st.sampled_from([r for r in (1, 2, 4, 8) if r <= waves])) if waves else 0
    return Case(
        draw(st.sampled_from(SIZES)),
        draw(st.sampled_from(SIZES)),
        draw(st.sampled_from(SIZES)),
        draw(st.tuples(st.booleans(), st.booleans())),
        draw(st.sampled_from(sorted(MIDDLES))),
        draw(st.sampled_from(["", "product", "transposed"])),
        draw(st.sampled_from(["bf16", "f16", "f32"])),
        waves,
        (rows, waves // rows) if waves and draw(st.booleans()) else None,
        draw(st.sampled_from([-1, -1, 0, 1])),
        draw(st.booleans()),
    )


def check(case: Case, chip: str) -> None:
    if case.elem == "f32" and case.instr >= 0:
        case = Case(**{**case.__dict__, "instr": -1})
    text = case.text(chip)
    try:
        kernel = compile_kernel(parse(text, "k.tile"), "k", chip)
    except CompileError as e:
        raise AssertionError(f"{text}\n{e}") from e
    rng = np.random.default_rng(case.m + 3 * case.n + 7 * case.k)
    t = DTYPES[case.elem]
    a = integers(rng, (case.k, case.m) if case.turned[0] else (case.m, case.k), t, most=1)
    b = integers(rng, (case.n, case.k) if case.turned[1] else (case.k, case.n), t, most=1)
    v = integers(rng, (case.n, case.m), t, most=1)
    left, right = (x.T if turned else x for x, turned in zip((a, b), case.turned, strict=True))
    s = MIDDLES[case.middle][1](left.astype(np.float64) @ right.astype(np.float64))
    want = {"": s, "transposed": s.T, "product": s @ v.astype(np.float64)}[case.second]
    got = np.zeros(want.shape, np.float32)
    launch(kernel, {"A": a, "B": b, "V": v, "O": got}, device(f"simulator:{chip}"))
    assert np.array_equal(got, want), text


@pytest.mark.parametrize("chip", CHIPS)
@settings(max_examples=6)
@given(case=cases())
def test_mappings_are_exact(chip: str, case: Case) -> None:
    check(case, chip)


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@settings(max_examples=120)
@given(case=cases())
def test_many_mappings_are_exact(chip: str, case: Case) -> None:
    check(case, chip)
