"""A matrix product in Triton, compiled for a chip that need not be there: somebody else's code to report on."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def product(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    left = a + rows[:, None] * k + depth[None, :]
    right = b + depth[:, None] + cols[None, :] * k
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, k, BK):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BK
        right += BK
    tl.store(c + rows[:, None] * 4096 + cols[None, :], total.to(tl.bfloat16))


def compile_gemm(chip: str) -> bytes:
    """The code object of a 128x128x64 tile in bf16 on 4 waves."""
    types = {"a": "*bf16", "b": "*bf16", "c": "*bf16", "k": "i32"}
    sizes = {"BM": 128, "BN": 128, "BK": 64}
    hints = {(i,): [["tt.divisibility", 16]] for i in range(4)}
    source = ASTSource(product, signature={**types, **dict.fromkeys(sizes, "constexpr")}, constexprs=sizes, attrs=hints)
    return triton.compile(source, target=GPUTarget("hip", chip, 64), options={"num_warps": 4}).asm["hsaco"]
