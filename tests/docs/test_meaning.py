"""Compiled ops mean what their declarations say: the probes run on the simulator and in the interpreter, on special values
(zeros, infinities, NaN, extremes, subnormals) in all pairs and on random ones.

Results must be equal bit by bit, but for functions that the reference says are computed in f32, which may be off by
`FUNCTION_ULPS`, and reductions, whose order is open: these get values whose sums and products are exact.
"""

import sys
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import support  # noqa: E402

from tileir.frontend import parse  # noqa: E402
from tileir.ir.registry import all_ops  # noqa: E402
from tileir.ir.types import ELEMS, Elem  # noqa: E402
from tileir.lowering.amdgpu.compile import compile_kernel  # noqa: E402
from tileir.runtime import Device, get_device, launch  # noqa: E402

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("docs")]

FUNCTIONS = frozenset("exp exp2 log log2 rsqrt rcp tanh sigmoid".split())
FUNCTION_ULPS = 4
LENGTH = 1000
SHAPE = (40, 32)
RUN = [
    n
    for n, d in all_ops().items()
    if d.category in ("elementwise", "reduce", "shape", "create", "memory", "control")
    and n not in ("convert", "constant")
]


@cache
def device(name: str) -> Device:
    return get_device(name)


def special(elem: Elem) -> Any:
    """Values at which ops go wrong."""
    if elem.is_int:
        info = np.iinfo(elem.np)
        return np.array([0, 1, -1, info.min, info.max, 2, -2, 3, 7, -7], elem.np)
    info = ml_dtypes.finfo(elem.np)
    extremes = [float(info.max), -float(info.max), float(info.smallest_normal), float(info.smallest_subnormal)]
    return np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, *extremes], np.float64).astype(
        elem.np
    )


def values(elem: Elem, index: int, *, exact: bool) -> Any:
    """Operand number `index`: with operand 0 all pairs of special values, then random ones; or small integers."""
    rng = np.random.default_rng(index)
    if exact:
        return rng.choice([-1, 1, 1, 1, 2] if not elem.is_float else [-1.0, 0.5, 1, 1, 2], LENGTH).astype(elem.np)
    if elem.is_int:
        info = np.iinfo(elem.np)
        out = rng.integers(info.min, info.max, LENGTH, dtype=elem.np, endpoint=True)
    else:
        out = (rng.standard_normal(LENGTH) * rng.choice([1e-3, 1, 10, 100], LENGTH)).astype(elem.np)
    edge = special(elem)
    pairs = np.repeat(edge, len(edge)) if index % 2 == 0 else np.tile(edge, len(edge))
    out[: len(pairs)] = rng.permutation(pairs) if index == 2 else pairs
    return out


def both(text: str, chip: str, params: dict[str, str], *, exact: bool) -> tuple[Any, Any, Elem]:
    """Results of the simulator and of the interpreter."""
    module = parse(text, "probe.tile", params)
    compiled = compile_kernel(module, "", chip)
    arguments: dict[str, Any] = {}
    *inputs, out = module.kernels[0].args
    for i, a in enumerate(inputs):
        view: Any = a.type
        x = values(view.elem, i, exact=exact)
        arguments[a.name] = x if view.rank == 1 else np.resize(x, SHAPE).copy()
    view = out.type
    results: list[Any] = []
    for name in (f"simulator:{chip}", "interpreter"):
        z = np.zeros(LENGTH if view.rank == 1 else SHAPE, view.elem.np)
        launch(compiled, {**arguments, out.name: z}, device(name))
        results.append(z)
    return results[0], results[1], view.elem


def different(got: Any, want: Any, elem: Elem, ulps: int) -> Any:
    """Where results differ by more than `ulps`; zeros must have the same sign, NaN is NaN."""
    if not elem.is_float:
        return got != want
    g, w = got.astype(np.float64), want.astype(np.float64)
    same = ((g == w) & (np.signbit(g) == np.signbit(w))) | (np.isnan(g) & np.isnan(w))
    with np.errstate(invalid="ignore"):
        info = ml_dtypes.finfo(elem.np)
        spacing = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(w), float(info.smallest_normal)))) - int(info.nmant))
        near = np.isfinite(g) & np.isfinite(w) & (np.abs(g - w) <= ulps * spacing)
    return ~(same | near) if ulps else ~same


@pytest.mark.parametrize("chip", support.CHIPS)
@pytest.mark.parametrize("name", RUN)
def test_simulator_and_interpreter_agree(name: str, chip: str) -> None:
    definition = all_ops()[name]
    for elem, text, params in support.probes(definition):
        if (
            not elem
            or not support.compiles(text, chip, params)
            or (elem != "i1" and ELEMS[elem].bits == 8 and ELEMS[elem].is_float)
        ):
            continue
        got, want, kind = both(text, chip, params, exact=definition.category == "reduce")
        wrong = different(got, want, kind, FUNCTION_ULPS if name in FUNCTIONS else 0)
        assert not wrong.any(), (
            f"{name} on {elem}: got {got[wrong][:4]}, want {want[wrong][:4]} at {np.argwhere(wrong)[:4]}"
        )


@pytest.mark.parametrize("chip", support.CHIPS)
@pytest.mark.parametrize(
    "source", [e for e in support.CONVERT_ELEMS if e == "i1" or ELEMS[e].bits > 8 or ELEMS[e].is_int]
)
def test_conversions_agree(source: str, chip: str) -> None:
    for target in support.CONVERT_ELEMS:
        text = support.conversion_probe(source, target)
        if support.compiles(text, chip):
            got, want, kind = both(text, chip, {}, exact=False)
            wrong = different(got, want, kind, 0)
            assert not wrong.any(), f"{source} to {target}: got {got[wrong][:4]}, want {want[wrong][:4]}"
