"""Kernels for the validation of the timing model, in Triton and Gluon: what publications describe, written here.

Run by Triton's own Python (`timing_compile.py`). All products are C[M, N] = A[M, K] · B[N, K]ᵀ with K contiguous in both operands,
f16 or bf16 in and out, f32 inside; sizes are multiples of the tiles. Names of layouts: GLOBAL_* for loads, LDS_* for buffers.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd.cdna4 import async_copy


@gluon.jit
def tile_offsets(
    rows, columns, ROWS: gl.constexpr, COLUMNS: gl.constexpr, stride, LAYOUT: gl.constexpr, AXIS: gl.constexpr
):
    """Offsets of a tile whose K runs along axis 1 - AXIS; `rows` is where the other axis begins."""
    across: gl.constexpr = gl.SliceLayout(1 - AXIS, LAYOUT)
    along: gl.constexpr = gl.SliceLayout(AXIS, LAYOUT)
    if AXIS == 0:
        r = rows + gl.arange(0, ROWS, layout=across)
        k = columns + gl.arange(0, COLUMNS, layout=along)
        return r[:, None] * stride + k[None, :]
    else:
        k = rows + gl.arange(0, ROWS, layout=along)
        r = columns + gl.arange(0, COLUMNS, layout=across)
        return k[:, None] + r[None, :] * stride


@gluon.jit
def tile_of_program(M, N, BM: gl.constexpr, BN: gl.constexpr, GROUP: gl.constexpr, XCDS: gl.constexpr):
    """Row and column of the tile. GROUP 0: row by row; otherwise each XCD has neighbouring tiles, in groups of so many rows."""
    number = gl.program_id(0)
    rows = M // BM
    columns = N // BN
    if GROUP == 0:
        return number // columns, number % columns
    else:
        number = number % XCDS * (rows * columns // XCDS) + number // XCDS
        area = GROUP * columns
        first = number // area * GROUP
        height = gl.minimum(rows - first, GROUP)
        return first + number % area % height, number % area // height


@gluon.jit
def store_tile(c, acc, row, column, stride, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    layout: gl.constexpr = acc.type.layout
    r = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    n = column + gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, layout))
    gl.amd.cdna3.buffer_store(acc.to(c.dtype.element_ty), c, r[:, None] * stride + n[None, :])


@gluon.jit
def gemm_registers(
    a, b, c, M, N, K,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    GLOBAL_A: gl.constexpr, GLOBAL_B: gl.constexpr, MFMA: gl.constexpr, BUFFER: gl.constexpr,
):  # fmt: skip
    """No pipeline: load to registers (BUFFER: with buffer instructions), change layouts through LDS, multiply."""
    i, j = tile_of_program(M, N, BM, BN, 0, 8)
    dot_a: gl.constexpr = gl.DotOperandLayout(0, MFMA, 8)
    dot_b: gl.constexpr = gl.DotOperandLayout(1, MFMA, 8)
    at = tile_offsets(i * BM, 0, BM, BK, K, GLOBAL_A, 0)
    bt = tile_offsets(0, j * BN, BK, BN, K, GLOBAL_B, 1)
    ka = gl.arange(0, BK, layout=gl.SliceLayout(0, GLOBAL_A))
    kb = gl.arange(0, BK, layout=gl.SliceLayout(1, GLOBAL_B))
    acc = gl.zeros((BM, BN), gl.float32, MFMA)
    for k in range(0, K, BK):
        inside_a = ka[None, :] < K - k
        inside_b = kb[:, None] < K - k
        if BUFFER:
            x = gl.amd.cdna3.buffer_load(a + k, at, mask=inside_a, other=0.0)
            y = gl.amd.cdna3.buffer_load(b + k, bt, mask=inside_b, other=0.0)
        else:
            x = gl.load(a + k + at, mask=inside_a, other=0.0)
            y = gl.load(b + k + bt, mask=inside_b, other=0.0)
        acc = gl.amd.cdna3.mfma(gl.convert_layout(x, dot_a), gl.convert_layout(y, dot_b), acc)
    store_tile(c, acc, i * BM, j * BN, N, BM, BN)


@gluon.jit
def gemm_direct(
    a, b, c, M, N, K,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    GLOBAL_A: gl.constexpr, GLOBAL_B: gl.constexpr, LDS_A: gl.constexpr, LDS_B: gl.constexpr, MFMA: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Direct copies to LDS. STAGES 1: copy, wait, read, multiply. 2: copy the next tile while this one is read and multiplied.
    3: read the next tile from LDS while this one is multiplied, too."""
    i, j = tile_of_program(M, N, BM, BN, 0, 8)
    dot_a: gl.constexpr = gl.DotOperandLayout(0, MFMA, 8)
    dot_b: gl.constexpr = gl.DotOperandLayout(1, MFMA, 8)
    at = tile_offsets(i * BM, 0, BM, BK, K, GLOBAL_A, 0)
    bt = tile_offsets(0, j * BN, BK, BN, K, GLOBAL_B, 1)
    buffers: gl.constexpr = 1 if STAGES == 1 else 2
    la = gl.allocate_shared_memory(a.dtype.element_ty, [buffers, BM, BK], LDS_A)
    lb = gl.allocate_shared_memory(b.dtype.element_ty, [buffers, BK, BN], LDS_B)
    acc = gl.zeros((BM, BN), gl.float32, MFMA)
    steps = K // BK
    if STAGES == 1:
        for _ in range(0, steps):
            async_copy.buffer_load_to_shared(la.index(0), a, at)
            async_copy.buffer_load_to_shared(lb.index(0), b, bt)
            async_copy.commit_group()
            async_copy.wait_group(0)
            x = la.index(0).load(dot_a)
            y = lb.index(0).load(dot_b)
            acc = gl.amd.cdna3.mfma(x, y, acc)
            a += BK
            b += BK
    if STAGES == 2:
        async_copy.buffer_load_to_shared(la.index(0), a, at)
        async_copy.buffer_load_to_shared(lb.index(0), b, bt)
        async_copy.commit_group()
        for k in range(0, steps - 1):
            a += BK
            b += BK
            async_copy.buffer_load_to_shared(la.index(1 - k % 2), a, at)
            async_copy.buffer_load_to_shared(lb.index(1 - k % 2), b, bt)
            async_copy.commit_group()
            async_copy.wait_group(1)
            x = la.index(k % 2).load(dot_a)
            y = lb.index(k % 2).load(dot_b)
            acc = gl.amd.cdna3.mfma(x, y, acc)
        async_copy.wait_group(0)
        x = la.index((steps - 1) % 2).load(dot_a)
        y = lb.index((steps - 1) % 2).load(dot_b)
        acc = gl.amd.cdna3.mfma(x, y, acc)
    if STAGES == 3:
        async_copy.buffer_load_to_shared(la.index(0), a, at)
        async_copy.buffer_load_to_shared(lb.index(0), b, bt)
        async_copy.commit_group()
        async_copy.buffer_load_to_shared(la.index(1), a + BK, at)
        async_copy.buffer_load_to_shared(lb.index(1), b + BK, bt)
        async_copy.commit_group()
        a += 2 * BK
        b += 2 * BK
        async_copy.wait_group(1)
        x = la.index(0).load(dot_a)
        y = lb.index(0).load(dot_b)
        for k in range(0, steps - 1):
            acc = gl.amd.cdna3.mfma(x, y, acc)
            async_copy.wait_group(0)
            inside = k < steps - 2
            async_copy.buffer_load_to_shared(la.index(k % 2), a, at, mask=inside)
            async_copy.buffer_load_to_shared(lb.index(k % 2), b, bt, mask=inside)
            async_copy.commit_group()
            x = la.index(1 - k % 2).load(dot_a)
            y = lb.index(1 - k % 2).load(dot_b)
            a += BK
            b += BK
        acc = gl.amd.cdna3.mfma(x, y, acc)
    store_tile(c, acc, i * BM, j * BN, N, BM, BN)


@gluon.jit
def gemm_halves(
    a, b, c, M, N, K,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    GLOBAL_A: gl.constexpr, GLOBAL_B: gl.constexpr, LDS_A: gl.constexpr, LDS_B: gl.constexpr, MFMA: gl.constexpr,
):  # fmt: skip
    """Three stages, columns in two halves: while one half is multiplied, the other is read. Two steps a turn of the loop."""
    i, j = tile_of_program(M, N, BM, BN, 0, 8)
    dot_a: gl.constexpr = gl.DotOperandLayout(0, MFMA, 8)
    dot_b: gl.constexpr = gl.DotOperandLayout(1, MFMA, 8)
    half: gl.constexpr = BN // 2
    at = tile_offsets(i * BM, 0, BM, BK, K, GLOBAL_A, 0)
    lt = tile_offsets(0, j * BN, BK, half, K, GLOBAL_B, 1)
    rt = tile_offsets(0, j * BN + half, BK, half, K, GLOBAL_B, 1)
    la = gl.allocate_shared_memory(a.dtype.element_ty, [2, BM, BK], LDS_A)
    ll = gl.allocate_shared_memory(b.dtype.element_ty, [2, BK, half], LDS_B)
    lr = gl.allocate_shared_memory(b.dtype.element_ty, [2, BK, half], LDS_B)
    left = gl.zeros((BM, half), gl.float32, MFMA)
    right = gl.zeros((BM, half), gl.float32, MFMA)
    for p in gl.static_range(2):
        async_copy.buffer_load_to_shared(la.index(p), a, at)
        async_copy.buffer_load_to_shared(ll.index(p), b, lt)
        async_copy.commit_group()
        async_copy.buffer_load_to_shared(lr.index(p), b, rt)
        async_copy.commit_group()
        a += BK
        b += BK
    async_copy.wait_group(3)
    x = la.index(0).load(dot_a)
    y = ll.index(0).load(dot_b)
    for _ in range(0, K // BK - 2, 2):
        for p in gl.static_range(2):
            left = gl.amd.cdna3.mfma(x, y, left)
            async_copy.wait_group(2)
            z = lr.index(p).load(dot_b)
            async_copy.buffer_load_to_shared(la.index(p), a, at)
            async_copy.buffer_load_to_shared(ll.index(p), b, lt)
            async_copy.commit_group()
            right = gl.amd.cdna3.mfma(x, z, right)
            async_copy.wait_group(2)
            x = la.index(1 - p).load(dot_a)
            y = ll.index(1 - p).load(dot_b)
            async_copy.buffer_load_to_shared(lr.index(p), b, rt)
            async_copy.commit_group()
            a += BK
            b += BK
    left = gl.amd.cdna3.mfma(x, y, left)
    async_copy.wait_group(2)
    z = lr.index(0).load(dot_b)
    right = gl.amd.cdna3.mfma(x, z, right)
    async_copy.wait_group(0)
    x = la.index(1).load(dot_a)
    y = ll.index(1).load(dot_b)
    z = lr.index(1).load(dot_b)
    left = gl.amd.cdna3.mfma(x, y, left)
    store_tile(c, left, i * BM, j * BN, N, BM, half)
    right = gl.amd.cdna3.mfma(x, z, right)
    store_tile(c, right, i * BM, j * BN + half, N, BM, half)


@gluon.jit
def gemm_quarters(
    a, b, c, M, N, K,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    GLOBAL_A: gl.constexpr, GLOBAL_B: gl.constexpr, LDS_A: gl.constexpr, LDS_B: gl.constexpr, MFMA: gl.constexpr,
    GROUP: gl.constexpr, PING_PONG: gl.constexpr,
):  # fmt: skip
    """Three stages, the tile in quarters: each is multiplied while the operand that the next one needs is read. Two steps a
    turn of the loop. PING_PONG: products and memory are stages of two groups of waves that take turns."""
    i, j = tile_of_program(M, N, BM, BN, GROUP, 8)
    dot_a: gl.constexpr = gl.DotOperandLayout(0, MFMA, 8)
    dot_b: gl.constexpr = gl.DotOperandLayout(1, MFMA, 8)
    rows: gl.constexpr = BM // 2
    columns: gl.constexpr = BN // 2
    tt = tile_offsets(i * BM, 0, rows, BK, K, GLOBAL_A, 0)
    ot = tile_offsets(i * BM + rows, 0, rows, BK, K, GLOBAL_A, 0)
    lt = tile_offsets(0, j * BN, BK, columns, K, GLOBAL_B, 1)
    rt = tile_offsets(0, j * BN + columns, BK, columns, K, GLOBAL_B, 1)
    top = gl.allocate_shared_memory(a.dtype.element_ty, [2, rows, BK], LDS_A)
    bottom = gl.allocate_shared_memory(a.dtype.element_ty, [2, rows, BK], LDS_A)
    left = gl.allocate_shared_memory(b.dtype.element_ty, [2, BK, columns], LDS_B)
    right = gl.allocate_shared_memory(b.dtype.element_ty, [2, BK, columns], LDS_B)
    c00 = gl.zeros((rows, columns), gl.float32, MFMA)
    c01 = gl.zeros((rows, columns), gl.float32, MFMA)
    c10 = gl.zeros((rows, columns), gl.float32, MFMA)
    c11 = gl.zeros((rows, columns), gl.float32, MFMA)
    for p in gl.static_range(2):
        async_copy.buffer_load_to_shared(left.index(p), b, lt)
        async_copy.commit_group()
        async_copy.buffer_load_to_shared(top.index(p), a, tt)
        async_copy.commit_group()
        async_copy.buffer_load_to_shared(bottom.index(p), a, ot)
        async_copy.commit_group()
        async_copy.buffer_load_to_shared(right.index(p), b, rt)
        async_copy.commit_group()
        a += BK
        b += BK
    async_copy.wait_group(6)
    y0 = left.index(0).load(dot_b)
    x0 = top.index(0).load(dot_a)
    for _ in range(0, K // BK - 2, 2):
        for p in gl.static_range(2):
            if PING_PONG:
                async_copy.wait_group(5)
                with gl.amd.warp_pipeline_stage("product", priority=0):
                    c00 = gl.amd.cdna3.mfma(x0, y0, c00)
                with gl.amd.warp_pipeline_stage("memory", priority=1):
                    x1 = bottom.index(p).load(dot_a)
                    async_copy.buffer_load_to_shared(left.index(p), b, lt)
                    async_copy.commit_group()
                async_copy.wait_group(5)
                with gl.amd.warp_pipeline_stage("product", priority=0):
                    c10 = gl.amd.cdna3.mfma(x1, y0, c10)
                with gl.amd.warp_pipeline_stage("memory", priority=1):
                    y1 = right.index(p).load(dot_b)
                    async_copy.buffer_load_to_shared(top.index(p), a, tt)
                    async_copy.commit_group()
                async_copy.wait_group(5)
                with gl.amd.warp_pipeline_stage("product", priority=0):
                    c01 = gl.amd.cdna3.mfma(x0, y1, c01)
                with gl.amd.warp_pipeline_stage("memory", priority=1):
                    y0 = left.index(1 - p).load(dot_b)
                    async_copy.buffer_load_to_shared(bottom.index(p), a, ot)
                    async_copy.commit_group()
                async_copy.wait_group(5)
                with gl.amd.warp_pipeline_stage("product", priority=0):
                    c11 = gl.amd.cdna3.mfma(x1, y1, c11)
                with gl.amd.warp_pipeline_stage("memory", priority=1):
                    x0 = top.index(1 - p).load(dot_a)
                    async_copy.buffer_load_to_shared(right.index(p), b, rt)
                    async_copy.commit_group()
                    a += BK
                    b += BK
            else:
                c00 = gl.amd.cdna3.mfma(x0, y0, c00)
                async_copy.wait_group(5)
                x1 = bottom.index(p).load(dot_a)
                async_copy.buffer_load_to_shared(left.index(p), b, lt)
                async_copy.commit_group()
                c10 = gl.amd.cdna3.mfma(x1, y0, c10)
                async_copy.wait_group(5)
                y1 = right.index(p).load(dot_b)
                async_copy.buffer_load_to_shared(top.index(p), a, tt)
                async_copy.commit_group()
                c01 = gl.amd.cdna3.mfma(x0, y1, c01)
                async_copy.wait_group(5)
                y0 = left.index(1 - p).load(dot_b)
                async_copy.buffer_load_to_shared(bottom.index(p), a, ot)
                async_copy.commit_group()
                c11 = gl.amd.cdna3.mfma(x1, y1, c11)
                async_copy.wait_group(5)
                x0 = top.index(1 - p).load(dot_a)
                async_copy.buffer_load_to_shared(right.index(p), b, rt)
                async_copy.commit_group()
                a += BK
                b += BK
    async_copy.wait_group(0)
    x1 = bottom.index(0).load(dot_a)
    y1 = right.index(0).load(dot_b)
    c00 = gl.amd.cdna3.mfma(x0, y0, c00)
    c10 = gl.amd.cdna3.mfma(x1, y0, c10)
    c01 = gl.amd.cdna3.mfma(x0, y1, c01)
    c11 = gl.amd.cdna3.mfma(x1, y1, c11)
    y0 = left.index(1).load(dot_b)
    x0 = top.index(1).load(dot_a)
    x1 = bottom.index(1).load(dot_a)
    y1 = right.index(1).load(dot_b)
    c00 = gl.amd.cdna3.mfma(x0, y0, c00)
    store_tile(c, c00, i * BM, j * BN, N, rows, columns)
    c10 = gl.amd.cdna3.mfma(x1, y0, c10)
    store_tile(c, c10, i * BM + rows, j * BN, N, rows, columns)
    c01 = gl.amd.cdna3.mfma(x0, y1, c01)
    store_tile(c, c01, i * BM, j * BN + columns, N, rows, columns)
    c11 = gl.amd.cdna3.mfma(x1, y1, c11)
    store_tile(c, c11, i * BM + rows, j * BN + columns, N, rows, columns)


@gluon.jit
def gemm_staged_ping_pong(
    a, b, c, M, N, K,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    GLOBAL_A: gl.constexpr, GLOBAL_B: gl.constexpr, LDS_A: gl.constexpr, LDS_B: gl.constexpr, MFMA: gl.constexpr,
    GROUP: gl.constexpr,
):  # fmt: skip
    """Without direct copies: one LDS buffer holds this step's tiles, registers those of the next. Eight stages a step, products
    and memory in turn, for two groups of waves."""
    i, j = tile_of_program(M, N, BM, BN, GROUP, 8)
    dot_a: gl.constexpr = gl.DotOperandLayout(0, MFMA, 8)
    dot_b: gl.constexpr = gl.DotOperandLayout(1, MFMA, 8)
    rows: gl.constexpr = BM // 2
    columns: gl.constexpr = BN // 2
    at = tile_offsets(i * BM, 0, BM, BK, K, GLOBAL_A, 0)
    bt = tile_offsets(0, j * BN, BK, BN, K, GLOBAL_B, 1)
    la = gl.allocate_shared_memory(a.dtype.element_ty, [BM, BK], LDS_A)
    lb = gl.allocate_shared_memory(b.dtype.element_ty, [BK, BN], LDS_B)
    c00 = gl.zeros((rows, columns), gl.float32, MFMA)
    c01 = gl.zeros((rows, columns), gl.float32, MFMA)
    c10 = gl.zeros((rows, columns), gl.float32, MFMA)
    c11 = gl.zeros((rows, columns), gl.float32, MFMA)
    la.store(gl.amd.cdna3.buffer_load(a, at))
    lb.store(gl.amd.cdna3.buffer_load(b, bt))
    y0 = lb.slice(0, columns, 1).load(dot_b)
    for _ in range(0, K // BK - 1):
        a += BK
        b += BK
        with gl.amd.warp_pipeline_stage("load b", priority=1):
            y = gl.amd.cdna3.buffer_load(b, bt)
            x0 = la.slice(0, rows, 0).load(dot_a)
        with gl.amd.warp_pipeline_stage("product 00", priority=0):
            c00 = gl.amd.cdna3.mfma(x0, y0, c00)
        with gl.amd.warp_pipeline_stage("load a", priority=1):
            x = gl.amd.cdna3.buffer_load(a, at)
            y1 = lb.slice(columns, columns, 1).load(dot_b)
        with gl.amd.warp_pipeline_stage("product 01", priority=0):
            c01 = gl.amd.cdna3.mfma(x0, y1, c01)
        with gl.amd.warp_pipeline_stage("store b", priority=1):
            x1 = la.slice(rows, rows, 0).load(dot_a)
            lb.store(y)
        with gl.amd.warp_pipeline_stage("product 10", priority=0):
            c10 = gl.amd.cdna3.mfma(x1, y0, c10)
        with gl.amd.warp_pipeline_stage("store a", priority=1):
            y0 = lb.slice(0, columns, 1).load(dot_b)
            la.store(x)
        with gl.amd.warp_pipeline_stage("product 11", priority=0):
            c11 = gl.amd.cdna3.mfma(x1, y1, c11)
    x0 = la.slice(0, rows, 0).load(dot_a)
    x1 = la.slice(rows, rows, 0).load(dot_a)
    y1 = lb.slice(columns, columns, 1).load(dot_b)
    c00 = gl.amd.cdna3.mfma(x0, y0, c00)
    store_tile(c, c00, i * BM, j * BN, N, rows, columns)
    c01 = gl.amd.cdna3.mfma(x0, y1, c01)
    store_tile(c, c01, i * BM, j * BN + columns, N, rows, columns)
    c10 = gl.amd.cdna3.mfma(x1, y0, c10)
    store_tile(c, c10, i * BM + rows, j * BN, N, rows, columns)
    c11 = gl.amd.cdna3.mfma(x1, y1, c11)
    store_tile(c, c11, i * BM + rows, j * BN + columns, N, rows, columns)


@gluon.jit
def gemm_staged_quarters(
    a, b, c, M, N, K,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    GLOBAL_A: gl.constexpr, GLOBAL_B: gl.constexpr, LDS_A: gl.constexpr, LDS_B: gl.constexpr, MFMA: gl.constexpr,
    GROUP: gl.constexpr,
):  # fmt: skip
    """Without direct copies, one wave per SIMD: each operand half has one LDS buffer, written again one quarter after its last
    read, while the loads of the step after the next are under way."""
    i, j = tile_of_program(M, N, BM, BN, GROUP, 8)
    dot_a: gl.constexpr = gl.DotOperandLayout(0, MFMA, 8)
    dot_b: gl.constexpr = gl.DotOperandLayout(1, MFMA, 8)
    rows: gl.constexpr = BM // 2
    columns: gl.constexpr = BN // 2
    tt = tile_offsets(i * BM, 0, rows, BK, K, GLOBAL_A, 0)
    ot = tile_offsets(i * BM + rows, 0, rows, BK, K, GLOBAL_A, 0)
    lt = tile_offsets(0, j * BN, BK, columns, K, GLOBAL_B, 1)
    rt = tile_offsets(0, j * BN + columns, BK, columns, K, GLOBAL_B, 1)
    top = gl.allocate_shared_memory(a.dtype.element_ty, [rows, BK], LDS_A)
    bottom = gl.allocate_shared_memory(a.dtype.element_ty, [rows, BK], LDS_A)
    left = gl.allocate_shared_memory(b.dtype.element_ty, [BK, columns], LDS_B)
    right = gl.allocate_shared_memory(b.dtype.element_ty, [BK, columns], LDS_B)
    c00 = gl.zeros((rows, columns), gl.float32, MFMA)
    c01 = gl.zeros((rows, columns), gl.float32, MFMA)
    c10 = gl.zeros((rows, columns), gl.float32, MFMA)
    c11 = gl.zeros((rows, columns), gl.float32, MFMA)
    left.store(gl.amd.cdna3.buffer_load(b, lt))
    top.store(gl.amd.cdna3.buffer_load(a, tt))
    bottom.store(gl.amd.cdna3.buffer_load(a, ot))
    right.store(gl.amd.cdna3.buffer_load(b, rt))
    a += BK
    b += BK
    gl_left = gl.amd.cdna3.buffer_load(b, lt)
    gl_top = gl.amd.cdna3.buffer_load(a, tt)
    gl_bottom = gl.amd.cdna3.buffer_load(a, ot)
    gl_right = gl.amd.cdna3.buffer_load(b, rt)
    y0 = left.load(dot_b)
    x0 = top.load(dot_a)
    for _ in range(0, K // BK - 2):
        a += BK
        b += BK
        c00 = gl.amd.cdna3.mfma(x0, y0, c00)
        x1 = bottom.load(dot_a)
        left.store(gl_left)
        gl_left = gl.amd.cdna3.buffer_load(b, lt)
        c10 = gl.amd.cdna3.mfma(x1, y0, c10)
        y1 = right.load(dot_b)
        top.store(gl_top)
        gl_top = gl.amd.cdna3.buffer_load(a, tt)
        c01 = gl.amd.cdna3.mfma(x0, y1, c01)
        y0 = left.load(dot_b)
        bottom.store(gl_bottom)
        gl_bottom = gl.amd.cdna3.buffer_load(a, ot)
        c11 = gl.amd.cdna3.mfma(x1, y1, c11)
        x0 = top.load(dot_a)
        right.store(gl_right)
        gl_right = gl.amd.cdna3.buffer_load(b, rt)
    x1 = bottom.load(dot_a)
    y1 = right.load(dot_b)
    c00 = gl.amd.cdna3.mfma(x0, y0, c00)
    c10 = gl.amd.cdna3.mfma(x1, y0, c10)
    c01 = gl.amd.cdna3.mfma(x0, y1, c01)
    c11 = gl.amd.cdna3.mfma(x1, y1, c11)
    left.store(gl_left)
    top.store(gl_top)
    bottom.store(gl_bottom)
    right.store(gl_right)
    y0 = left.load(dot_b)
    x0 = top.load(dot_a)
    x1 = bottom.load(dot_a)
    y1 = right.load(dot_b)
    c00 = gl.amd.cdna3.mfma(x0, y0, c00)
    store_tile(c, c00, i * BM, j * BN, N, rows, columns)
    c10 = gl.amd.cdna3.mfma(x1, y0, c10)
    store_tile(c, c10, i * BM + rows, j * BN, N, rows, columns)
    c01 = gl.amd.cdna3.mfma(x0, y1, c01)
    store_tile(c, c01, i * BM, j * BN + columns, N, rows, columns)
    c11 = gl.amd.cdna3.mfma(x1, y1, c11)
    store_tile(c, c11, i * BM + rows, j * BN + columns, N, rows, columns)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    """A plain Triton product; tiles in groups of rows."""
    number = tl.program_id(0)
    rows = M // BM
    columns = N // BN
    area = GROUP * columns
    first = number // area * GROUP
    height = tl.minimum(rows - first, GROUP)
    i = first + number % area % height
    j = number % area // height
    r = i * BM + tl.arange(0, BM)
    n = j * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    at = a + r[:, None] * K + k[None, :]
    bt = b + k[:, None] + n[None, :] * K
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K // BK):
        acc = tl.dot(tl.load(at), tl.load(bt), acc)
        at += BK
        bt += BK
    tl.store(c + r[:, None] * N + n[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def attention(q, k, v, o, length, scale, ROWS: tl.constexpr, COLUMNS: tl.constexpr, D: tl.constexpr):
    """Causal attention, forward, one block of rows of one head per workgroup; all operands [heads, length, D]. scale: of the
    logits, times log2(e)."""
    first = tl.program_id(0) * ROWS
    head = tl.program_id(1).to(tl.int64) * length * D
    r = first + tl.arange(0, ROWS)
    n = tl.arange(0, COLUMNS)
    d = tl.arange(0, D)
    x = tl.load(q + head + r[:, None] * D + d[None, :])
    kt = k + head + d[:, None] + n[None, :] * D
    vt = v + head + n[:, None] * D + d[None, :]
    high = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, D), tl.float32)
    for _ in range(0, first, COLUMNS):
        s = tl.dot(x, tl.load(kt)) * scale
        now = tl.maximum(high, tl.max(s, 1))
        p = tl.exp2(s - now[:, None])
        shrink = tl.exp2(high - now)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype.element_ty), tl.load(vt), acc * shrink[:, None])
        high = now
        kt += COLUMNS * D
        vt += COLUMNS * D
    for start in range(first, first + ROWS, COLUMNS):
        s = tl.dot(x, tl.load(kt)) * scale
        s = tl.where(r[:, None] >= (start + n)[None, :], s, -float("inf"))
        now = tl.maximum(high, tl.max(s, 1))
        p = tl.exp2(s - now[:, None])
        shrink = tl.exp2(high - now)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype.element_ty), tl.load(vt), acc * shrink[:, None])
        high = now
        kt += COLUMNS * D
        vt += COLUMNS * D
    tl.store(o + head + r[:, None] * D + d[None, :], (acc / total[:, None]).to(o.dtype.element_ty))
