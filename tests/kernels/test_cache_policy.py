"""Cache policy of accesses: the bit in the machine code, and that nothing else changes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tileir.codeobject import CodeObject
from tileir.runtime import launch
from tileir.simulator.decoder import disassemble

from .harness import CHIPS, Compiled, compiled, device, integers
from .test_shapes import TYPES

COPY = """tileir 1
kernel @k(%A: global<f32[M, N]>, %I: global<i32[16]>, %B: global<f32[M, N]>) grid(1) {
  prefetch(%A[0 +: 16, 0 +: 32])
  %rows = load(%I[0 +: 16])
  %x = load(%A[0 +: 16, 0 +: 32]) + load<cache = streaming>(%A[%rows, 0 +: 32]) + load<cache = streaming>(%A[0, 0])
  store<cache = streaming>(%x, %B[0 +: 16, 0 +: 32])
  store<cache = streaming>(%x, %B[%rows, 0 +: 32])
  store<cache = streaming>(7.0, %B[0, 1])
}
"""
PRODUCT = """tileir 1
kernel @k(%A: global<bf16[64, K]>, %B: global<bf16[64, K]>, %C: global<f32[64, 64]>) grid(1) {
  %zero = fill(0.0) : tile<f32[64, 64]>
  %c = for %k = 0 to K step 64 carry(%x = %zero) {
    yield mma(load<cache = streaming>(%A[0 +: 64, %k +: 64]), transpose(load(%B[0 +: 64, %k +: 64])), %x)
  }
  store(%c, %C[0 +: 64, 0 +: 64])
}
"""


def accesses(kernel: Compiled) -> dict[str, Counter[bool]]:
    """Loads and stores of global memory of a code object, with the bit (True) and without."""
    (code,) = CodeObject.from_bytes(kernel.hsaco).kernels.values()
    found: dict[str, Counter[bool]] = {"load": Counter(), "store": Counter()}
    for _, i in disassemble(kernel.target, code.code):
        for kind, counts in found.items():
            if i.name.startswith(("global_", "buffer_")) and f"_{kind}_" in i.name:
                counts[" nt" in i.text] += 1
    return found


@pytest.mark.parametrize("chip", CHIPS)
def test_streaming_accesses_have_the_bit(chip: str) -> None:
    found, plain = (accesses(compiled(text, chip)) for text in (COPY, COPY.replace("<cache = streaming>", "")))
    assert found["load"][True] >= 2 and found["load"][False] >= 2  # of both versions of the accesses
    assert found["store"][True] >= 4 and not found["store"][False]
    assert not plain["load"][True] and not plain["store"][True]
    rng = np.random.default_rng(1)
    a, at = integers(rng, (16, 32), np.float32), rng.permutation(16).astype(np.int32)
    b = np.zeros_like(a)
    launch(compiled(COPY, chip), {"A": a, "I": at, "B": b}, device(f"simulator:{chip}"))
    want = np.zeros_like(a)
    want[at] = a + a[at] + a[0, 0]
    want[0, 1] = 7
    np.testing.assert_array_equal(b, want)


@pytest.mark.parametrize("chip", CHIPS)
def test_operands_of_products_keep_it_on_their_way_to_lds(chip: str) -> None:
    found = accesses(compiled(PRODUCT, chip))["load"]
    assert found[True] and found[False]
    rng = np.random.default_rng(2)
    a, b = (integers(rng, (64, 200), TYPES["bf16"]) for _ in range(2))
    c = np.zeros((64, 64), np.float32)
    launch(compiled(PRODUCT, chip), {"A": a, "B": b, "C": c}, device(f"simulator:{chip}"))
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)
