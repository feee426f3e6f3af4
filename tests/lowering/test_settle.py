"""Registers of f64 products are not given away while the product is under way: found by the fuzzer (products, seeds 9006, 12057)."""

from __future__ import annotations

import numpy as np
import pytest

from tileir.frontend import parse
from tileir.lowering.amdgpu.compile import Options, compile_kernel
from tileir.lowering.amdgpu.emit import kernel as emit_kernel
from tileir.runtime import get_device, launch
from tileir.runtime.simulator_device import SimulatorDevice

HALF_DEAD = """tileir 1
kernel @half_dead(%C: global<f64[1, 16]>) grid(1) with(waves = 8) {
  %3 = fill(2.0) : tile<f64[16, 1]>
  %0 = fill(3.0) : tile<f64[1, 16]>
  %15 = mma<waves = [1, 8]>(%0, %3) : tile<f64[1, 1]>
  %17 = mma<waves = [1, 8]>(%3, %15) : tile<f64[16, 1]>
  store(transpose(%17), %C[0 +: 1, 0 +: 16])
}
"""
LOOP = """tileir 1
kernel @loop(%C: global<f64[32, 1]>) grid(1) {
  %a = fill(1.0) : tile<f64[32, 128]>
  %b = fill(1.0) : tile<f64[128, 1]>
  %z = fill(0.0) : tile<f64[32, 1]>
  %acc = for %k = 0 to 3 step 1 carry(%c = %z) {
    yield mma(%a, %b, %c)
  }
  %two = fill(2.0) : tile<f64[1, 1]>
  %d = mma(%acc, %two)
  store(%d, %C[0 +: 32, 0 +: 1])
}
"""


def findings(text: str, chip: str) -> tuple[np.ndarray, list[str]]:
    compiled = compile_kernel(parse(text), "", chip, Options(allow_spills=True))
    device = get_device(f"simulator:{chip}", check="all")
    assert isinstance(device, SimulatorDevice)
    c = np.zeros((1, 16) if "half_dead" in text else (32, 1))
    launch(compiled, {"C": c}, device)
    assert device.statistics is not None
    return c, [str(f) for f in device.statistics.findings]


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
@pytest.mark.parametrize(("text", "value"), [(HALF_DEAD, 2 * 6 * 16.0), (LOOP, 2 * 3 * 128.0)])
def test_registers_of_a_product_are_kept(text: str, value: float, chip: str) -> None:
    c, found = findings(text, chip)
    assert found == [] and (c == value).all()


def test_the_check_sees_what_llvm_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wait states in the text, the hazard is there: LLVM counts for gfx950 as for gfx942."""
    monkeypatch.setattr(emit_kernel, "settler", lambda s: lambda op: None)
    _, found = findings(HALF_DEAD, "gfx950")
    assert any("overwrites the result of an MFMA: 11 wait states" in f for f in found)
