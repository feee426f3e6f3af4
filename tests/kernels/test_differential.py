"""Random kernels: the code object on the simulator computes the same bits as the interpreter, and the text parses back
after every pass.

The kernels hold only ops of which every bit is defined (see `Limits.exact`), so that nothing has to be tolerated; NaN is
equal to NaN whatever its bits. Inputs are special values: zeros of both signs, infinities, NaN, denormals, the extremes of
integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from strategies import Limits, kernels

from tileir.frontend import parse
from tileir.fuzz.execute import Case, copied, make_inputs, same
from tileir.interpreter import run
from tileir.ir.binding import written_views
from tileir.ir.core import Kernel, Module
from tileir.ir.diagnostics import CompileError
from tileir.ir.printer import print_module
from tileir.lowering.amdgpu.compile import Options, compile_kernel
from tileir.passes.lds_sizes import buffers
from tileir.runtime import launch

from .harness import CHIPS, device

Array = np.ndarray[Any, Any]

# Sums of floats and of products depend on the order; guards are not compiled yet.
LIMITS = Limits(
    exact=True,
    elems=("f32", "bf16", "f16", "f64", "i32", "i64", "i16", "i8"),
    dims=(1, 2, 3, 5, 8, 16, 24),
    exclude=frozenset({"guard", "mma"}),
)
LARGE = Limits(
    exact=True, elems=LIMITS.elems, dims=(1, 3, 7, 16, 40, 96), ops=20, views=3, outputs=3, exclude=LIMITS.exclude
)
OVER_BUDGET = "E0861"
SETTINGS = {
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    "report_multiple_bugs": False,
}


def check(kernel: Kernel, chip: str, waves: int, sizes: dict[str, int], gap: int, seed: int) -> None:
    kernel.fp = "strict"  # no contraction: it would change bits
    kernel.attrs["waves"] = waves
    module = Module([kernel])
    text = print_module(module)

    def round_trip(label: str, after: Kernel) -> None:
        printed = print_module(Module([after]))
        assert parse(printed) == Module([after]), f"after {label}:\n{printed}"

    try:
        compiled = compile_kernel(module, "", chip, Options(print_after=round_trip, allow_spills=True))
    except CompileError as e:
        if [d.code for d in e.diagnostics] == [OVER_BUDGET]:
            event("more LDS than the chip has")
            return
        raise
    assert compiled.final is not None
    event(f"buffers: {min(3, len(buffers(compiled.final)))}")
    values = make_inputs(kernel, Case((chip,), sizes, gap, seed, "special"))
    want = copied(values)
    with np.errstate(all="ignore"):
        run(kernel, want, symbols={})
    launch(compiled, values, device(f"simulator:{chip}"))
    for name in written_views(kernel):
        wrong = np.argwhere(~same(values[name], want[name]))
        if len(wrong):
            at = tuple(int(i) for i in wrong[0])
            raise AssertionError(
                f"%{name}{list(at)} is {values[name][at]}, the interpreter says {want[name][at]} "
                f"({len(wrong)} of {want[name].size} differ; {chip}, {waves} waves, {sizes}, gap {gap}, seed {seed})\n{text}"
            )


_CASES = {
    "chip": st.sampled_from(CHIPS),
    "waves": st.sampled_from([1, 2, 4, 8]),
    "sizes": st.fixed_dictionaries({name: st.sampled_from([1, 2, 7, 16, 33]) for name in ("M", "N", "P")}),
    "gap": st.sampled_from([0, 1, 3]),
    "seed": st.integers(0, 99),
}


@settings(max_examples=40, phases=[Phase.explicit, Phase.generate], **SETTINGS)
@given(kernel=kernels(LIMITS), **_CASES)
def test_random_kernels(kernel: Kernel, chip: str, waves: int, sizes: dict[str, int], gap: int, seed: int) -> None:
    check(kernel, chip, waves, sizes, gap, seed)


@pytest.mark.nightly
@settings(max_examples=1500, **SETTINGS)
@given(kernel=kernels(LARGE), **_CASES)
def test_many_random_kernels(kernel: Kernel, chip: str, waves: int, sizes: dict[str, int], gap: int, seed: int) -> None:
    check(kernel, chip, waves, sizes, gap, seed)
