"""Arithmetic on pairs of f32 under matrix instructions: one instruction for two where that may issue beside them, and no copies of what
a loop carries."""

from __future__ import annotations

import re

import pytest

from tileir.frontend import parse
from tileir.lowering.amdgpu.compile import Options, compile_kernel

# Two products in a chain with arithmetic between them; all of it is exact.
CHAIN = """tileir 1
kernel @chain(%A: global<bf16[M, 64]>, %B: global<bf16[N, 64]>, %V: global<bf16[N, 64]>, %C: global<f32[M, 64]>, %c: f32)
    grid(cdiv(M, 256)) {
  %i = program_id()
  %a = load(%A[%i * 256 +: 256, 0 +: 64])
  %zero = fill(0.0) : tile<f32[256, 64]>
  %o = for %j = 0 to N step 64 carry(%oi = %zero) {
    %b = load(%B[%j +: 64, 0 +: 64])
    %m = mma(%a, transpose(%b))
    %p = %m * %c - 1.0
    %v = load(%V[%j +: 64, 0 +: 64])
    yield mma(convert<bf16, rounding = nearest_away, finite = true>(%p), %v, %oi)
  }
  store(%o, %C[%i * 256 +: 256, 0 +: 64])
}

schedule @s42 of @chain for gfx942 {
  waves %m 8 x 1
  mma %m 32x32x8
}

schedule @s50 of @chain for gfx950 {
  waves %m 8 x 1
  mma %m 32x32x16
}
"""
LOOP = re.compile(r"^(?=(\.LBB\w+):(.*?)^\s+s_cbranch_\w+ \1$)", re.S | re.M)  # a look-ahead, as loops may be nested


def hot_loop(text: str, chip: str) -> str:
    """The shortest loop of those with the most matrix instructions: that for aligned views."""
    compiled = compile_kernel(parse(text), "", chip, Options(emit=["asm"]))
    assert compiled.stats["vgpr_spills"] == 0 and not compiled.stats["deviations"]
    loops = [m[2] for m in LOOP.finditer(compiled.texts["asm"])]
    return min(loops, key=lambda body: (-body.count("v_mfma"), len(body)))


@pytest.mark.parametrize(("chip", "packed"), [("gfx942", True), ("gfx950", False)])
def test_pairs_under_products(chip: str, packed: bool) -> None:
    """gfx950 issues packed instructions beside no matrix instruction, and LLVM takes those apart."""
    body = hot_loop(CHAIN, chip)
    assert body.count("v_mfma") and body.count("v_pk_fma_f32")
    assert (not re.search(r"\bv_fma_f32", body)) == packed


def test_products_take_the_place_of_what_is_carried() -> None:
    """The loop goes through registers, one block of keys a trip: the product of the next block is written where the one of this was."""
    assert not re.search(r"\bv_mov_b(32|64)", hot_loop(CHAIN, "gfx942"))


def test_strict_arithmetic_is_not_fused() -> None:
    strict = CHAIN.replace("grid(cdiv(M, 256))", "grid(cdiv(M, 256)) fp strict")
    body = hot_loop(strict, "gfx942")
    assert "v_pk_mul_f32" in body and "v_pk_fma_f32" not in body
