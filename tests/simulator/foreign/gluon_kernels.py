"""Kernels in Gluon, Triton's language of explicit layouts. Written for these tests."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd import AMDMFMALayout, cdna3, cdna4


@gluon.jit
def tile_product(a, b, c, k, VERSION: gl.constexpr, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    """One tile of c = a b, through swizzled LDS and matrix instructions of 16 × 16; four waves."""
    mfma: gl.constexpr = AMDMFMALayout(
        version=VERSION, instr_shape=[16, 16, 16 if VERSION == 3 else 32], transposed=True, warps_per_cta=[2, 2]
    )
    left: gl.constexpr = gl.DotOperandLayout(0, mfma, 8)
    right: gl.constexpr = gl.DotOperandLayout(1, mfma, 8)
    rows: gl.constexpr = gl.BlockedLayout([1, 8], [16, 4], [4, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 4, order=[1, 0])
    store_a = gl.allocate_shared_memory(a.dtype.element_ty, [M, K], shared)
    store_b = gl.allocate_shared_memory(b.dtype.element_ty, [K, N], shared)
    m = gl.arange(0, M, gl.SliceLayout(1, rows))[:, None]
    n = gl.arange(0, N, gl.SliceLayout(0, rows))[None, :]
    ka = gl.arange(0, K, gl.SliceLayout(0, rows))[None, :]
    kb = gl.arange(0, K, gl.SliceLayout(1, rows))[:, None]
    total = gl.zeros([M, N], gl.float32, mfma)
    for start in range(0, k, K):
        x = cdna3.buffer_load(a, m * k + ka + start, mask=(ka + start < k) & (m < M), other=0.0)
        y = cdna3.buffer_load(b, (kb + start) * N + n, mask=(kb + start < k) & (n < N), other=0.0)
        store_a.store(x)
        store_b.store(y)
        gl.barrier()
        total = cdna3.mfma(store_a.load(left), store_b.load(right), total)
        gl.barrier()
    om = gl.arange(0, M, gl.SliceLayout(1, mfma))[:, None]
    on = gl.arange(0, N, gl.SliceLayout(0, mfma))[None, :]
    cdna3.buffer_store(total, c, om * N + on)


@gluon.jit
def counts(x, total, high, n, BLOCK: gl.constexpr):
    """Buffer atomics with masks."""
    layout: gl.constexpr = gl.BlockedLayout([1], [64], [4], [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    value = gl.load(x + i, mask=i < n, other=0)
    cdna3.buffer_atomic_add(total, i % 7, value.to(gl.float32), mask=i < n)
    cdna3.buffer_atomic_max(high, i % 5, value, mask=i < n)


@gluon.jit
def copy_through_lds(x, out, n, BLOCK: gl.constexpr):
    """Direct loads to LDS with a mask, two groups on their way at a time; out holds the rows of x in reverse."""
    layout: gl.constexpr = gl.BlockedLayout([4], [64], [4], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[0])
    buffers = gl.allocate_shared_memory(gl.float32, [2, BLOCK], shared)
    i = gl.arange(0, BLOCK, layout)
    cdna4.async_copy.buffer_load_to_shared(buffers.index(0), x, i)
    cdna4.async_copy.commit_group()
    for row in range(n):
        if row + 1 < n:
            cdna4.async_copy.buffer_load_to_shared(buffers.index((row + 1) % 2), x + (row + 1) * BLOCK, i)
        cdna4.async_copy.commit_group()
        cdna4.async_copy.wait_group(1)
        gl.barrier()
        value = buffers.index(row % 2).load(layout)
        gl.store(out + (n - 1 - row) * BLOCK + i, value * 2)
        gl.barrier()


@gluon.jit
def scaled_tile(a, sa, b, sb, c, FORMAT: gl.constexpr, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    """c = (a · 2^sa) (b · 2^sb), one scale for 32 elements of k; FORMAT e4m3 or e2m1 (two codes a byte)."""
    mfma: gl.constexpr = AMDMFMALayout(version=4, instr_shape=[16, 16, 128], transposed=True, warps_per_cta=[2, 2])
    left: gl.constexpr = gl.DotOperandLayout(0, mfma, 16)
    right: gl.constexpr = gl.DotOperandLayout(1, mfma, 16)
    packed: gl.constexpr = 2 if FORMAT == "e2m1" else 1
    scale_a: gl.constexpr = cdna4.get_mfma_scale_layout(left, [M, K // 32])
    scale_b: gl.constexpr = cdna4.get_mfma_scale_layout(right, [N, K // 32])
    m = gl.arange(0, M, gl.SliceLayout(1, left))[:, None]
    ka = gl.arange(0, K // packed, gl.SliceLayout(0, left))[None, :]
    kb = gl.arange(0, K // packed, gl.SliceLayout(1, right))[:, None]
    n = gl.arange(0, N, gl.SliceLayout(0, right))[None, :]
    x = gl.load(a + m * (K // packed) + ka)
    y = gl.load(b + n * (K // packed) + kb)
    ms = gl.arange(0, M, gl.SliceLayout(1, scale_a))[:, None]
    ks = gl.arange(0, K // 32, gl.SliceLayout(0, scale_a))[None, :]
    ns = gl.arange(0, N, gl.SliceLayout(1, scale_b))[:, None]
    kt = gl.arange(0, K // 32, gl.SliceLayout(0, scale_b))[None, :]
    p = gl.load(sa + ms * (K // 32) + ks)
    q = gl.load(sb + ns * (K // 32) + kt)
    total = cdna4.mfma_scaled(x, p, FORMAT, y, q, FORMAT, gl.zeros([M, N], gl.float32, mfma))
    om = gl.arange(0, M, gl.SliceLayout(1, mfma))[:, None]
    on = gl.arange(0, N, gl.SliceLayout(0, mfma))[None, :]
    gl.store(c + om * N + on, total)
