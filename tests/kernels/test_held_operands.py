"""Operands that live through loops and are taken apart by several products."""

from __future__ import annotations

import numpy as np

from tests.kernels.harness import compiled, device, integers
from tileir.runtime import launch

# The wave takes two values of k of Q at once and hands them to the products one by one: in the loop, and in the iteration that
# pipelining leaves behind it.
HELD = """tileir 1
kernel @k(%Q: global<f32[M, 24]>, %K: global<f32[N, 24]>, %V: global<f32[32, N]>, %O: global<f32[M, 32]>) grid(cdiv(M, 64)) {
  %i = program_id()
  %q = load(%Q[%i * 64 +: 64, 0 +: 24])
  %zero = fill(0.0) : tile<f32[64, 32]>
  %o = for %j = 0 to N step 16 carry(%c = %zero) {
    %k = load(%K[%j +: 16, 0 +: 24])
    %v = load(%V[0 +: 32, %j +: 16])
    %s = mma(%q, transpose(%k))
    yield mma(%s, transpose(%v), %c)
  }
  store(%o, %O[%i * 64 +: 64, 0 +: 32])
}
schedule @s of @k for gfx950 {
  waves %o 2 x 4
  stage %k, %v in shared depth 2 direct
}
"""


def test_pieces_of_an_operand_are_made_in_each_block() -> None:
    kernel = compiled(HELD, "gfx950")
    rng = np.random.default_rng(3)
    for n in (16, 32, 48, 53):
        q, k, v = (integers(rng, shape, np.float32) for shape in ((70, 24), (n, 24), (32, n)))
        o = np.zeros((70, 32), np.float32)
        launch(kernel, {"Q": q, "K": k, "V": v, "O": o}, device("simulator:gfx950"))
        assert np.array_equal(o, q @ k.T @ v.T), n
