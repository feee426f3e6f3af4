"""Kernels in Triton that the tests compile: somebody else's compiler, our sources. Read by Triton's interpreter alone."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def elementwise(x, y, out, n, OP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n, other=1)
    b = tl.load(y + at, mask=at < n, other=1)
    if OP == "math":
        r = (
            tl.exp(-tl.abs(a))
            + tl.log(1.0 + tl.abs(b))
            + tl.sqrt(tl.abs(a)) * tl.rsqrt(1.0 + b * b)
            + tl.sin(a)
            + tl.cos(b)
        )
    elif OP == "erf":
        r = tl.erf(a) + tl.exp2(tl.minimum(b, 3.0)) + tl.log2(tl.abs(a) + 0.5)
    elif OP == "divide":
        r = a / b + tl.fdiv(b, 3.0) + tl.floor(a) - tl.ceil(b)
    elif OP == "fma":
        r = tl.fma(a, b, a) + tl.maximum(a, b) * tl.where(a > b, a, b)
    elif OP == "clamp":
        r = tl.clamp(a, -0.5, 0.75) + tl.sigmoid(b)
    elif OP == "integers":
        r = a // b + a % b + (a << 3) - (b >> 1) + (a & b) * 3 + (a | 5) - (a ^ b)
    elif OP == "umulhi":
        r = tl.umulhi(a.to(tl.uint32), b.to(tl.uint32)).to(tl.int32)
    else:
        r = tl.minimum(a, b) * a + tl.abs(b)
    tl.store(out + at, r, mask=at < n)


@triton.jit
def convert(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n).to(out.dtype.element_ty), mask=at < n)


@triton.jit
def softmax(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + at, mask=at < cols, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * cols + at, (e / tl.sum(e, axis=0)).to(out.dtype.element_ty), mask=at < cols)


@triton.jit
def layer_norm(x, weight, bias, out, mean, rstd, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * cols + at, mask=at < cols, other=0.0).to(tl.float32)
    mu = tl.sum(total, axis=0) / cols
    spread = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * cols + at, mask=at < cols, other=0.0).to(tl.float32)
        d = tl.where(at < cols, v - mu, 0.0)
        spread += d * d
    r = 1 / tl.sqrt(tl.sum(spread, axis=0) / cols + eps)
    tl.store(mean + row, mu)
    tl.store(rstd + row, r)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * cols + at, mask=at < cols, other=0.0).to(tl.float32)
        w, b = tl.load(weight + at, mask=at < cols), tl.load(bias + at, mask=at < cols)
        tl.store(out + row * cols + at, ((v - mu) * r * w + b).to(out.dtype.element_ty), mask=at < cols)


@triton.jit
def matmul(
    a,
    b,
    c,
    m,
    n,
    k,
    stride_a,
    stride_b,
    stride_c,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    ACC: tl.constexpr,
):
    pid = tl.program_id(0)
    rows_of_tiles, cols_of_tiles = tl.cdiv(m, BM), tl.cdiv(n, BN)
    width = GROUP * cols_of_tiles
    group = pid // width
    size = min(rows_of_tiles - group * GROUP, GROUP)
    tile_m = group * GROUP + pid % width % size
    tile_n = pid % width // size
    rows = tile_m * BM + tl.arange(0, BM)
    cols = tile_n * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    pa = a + rows[:, None] * stride_a + depth[None, :]
    if TRANSPOSED:
        pb = b + cols[None, :] * stride_b + depth[:, None]
    else:
        pb = b + depth[:, None] * stride_b + cols[None, :]
    total = tl.zeros((BM, BN), ACC)
    for i in range(0, tl.cdiv(k, BK)):
        inside = depth < k - i * BK
        left = tl.load(pa, mask=(rows[:, None] < m) & inside[None, :], other=0.0)
        right = tl.load(pb, mask=(cols[None, :] < n) & inside[:, None], other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee", out_dtype=ACC)
        pa += BK
        pb += BK if TRANSPOSED else BK * stride_b
    at = c + rows[:, None] * stride_c + cols[None, :]
    tl.store(at, total.to(c.dtype.element_ty), mask=(rows[:, None] < m) & (cols[None, :] < n))


@triton.jit
def scaled_matmul(
    a,
    sa,
    b,
    sb,
    c,
    n,
    k,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
):
    """a [m, k / pack_a], sa [m, k / 32], b [n, k / pack_b], sb [n, k / 32]; full tiles only."""
    PA: tl.constexpr = 2 if LEFT == "e2m1" else 1
    PB: tl.constexpr = 2 if RIGHT == "e2m1" else 1
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    pa = a + rows[:, None] * (k // PA) + tl.arange(0, BK // PA)[None, :]
    pb = b + cols[None, :] * (k // PB) + tl.arange(0, BK // PB)[:, None]
    psa = sa + rows[:, None] * (k // 32) + tl.arange(0, BK // 32)[None, :]
    psb = sb + cols[:, None] * (k // 32) + tl.arange(0, BK // 32)[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, k, BK):
        total = tl.dot_scaled(tl.load(pa), tl.load(psa), LEFT, tl.load(pb), tl.load(psb), RIGHT, total)
        pa += BK // PA
        pb += BK // PB
        psa += BK // 32
        psb += BK // 32
    tl.store(c + rows[:, None] * n + cols[None, :], total)


@triton.jit
def attention(
    q,
    k,
    v,
    out,
    lse,
    length,
    scale,
    BM: tl.constexpr,
    BN: tl.constexpr,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """One head per program_id(1); q, k, v, out [heads, length, D]; softmax in base 2 with a running maximum."""
    start = tl.program_id(0) * BM
    base = tl.program_id(1) * length * D
    rows = start + tl.arange(0, BM)
    cols = tl.arange(0, BN)
    d = tl.arange(0, D)
    tile_q = tl.load(q + base + rows[:, None] * D + d[None, :], mask=rows[:, None] < length, other=0.0)
    top = tl.full([BM], -float("inf"), tl.float32)
    denominator = tl.zeros([BM], tl.float32)
    total = tl.zeros([BM, D], tl.float32)
    end = min(start + BM, length) if CAUSAL else length
    for first in range(0, end, BN):
        at = first + cols
        tile_k = tl.load(k + base + at[None, :] * D + d[:, None], mask=at[None, :] < length, other=0.0)
        s = tl.dot(tile_q, tile_k) * (scale * 1.44269504)
        legal = at[None, :] < length
        if CAUSAL:
            legal = legal & (rows[:, None] >= at[None, :])
        s = tl.where(legal, s, -float("inf"))
        peak = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - peak[:, None])
        shrink = tl.exp2(top - peak)
        denominator = denominator * shrink + tl.sum(p, 1)
        tile_v = tl.load(v + base + at[:, None] * D + d[None, :], mask=at[:, None] < length, other=0.0)
        total = tl.dot(p.to(v.dtype.element_ty), tile_v, total * shrink[:, None])
        top = peak
    total = total / denominator[:, None]
    inside = rows < length
    tl.store(lse + tl.program_id(1) * length + rows, top + tl.log2(denominator), mask=inside)
    tl.store(out + base + rows[:, None] * D + d[None, :], total.to(out.dtype.element_ty), mask=inside[:, None])


@triton.jit
def atomics(x, count, total, high, low, bits, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside, other=0)
    tl.atomic_add(count + v % 13, 1, mask=inside)
    tl.atomic_add(total + v % 5, 0.5, mask=inside, sem="relaxed")
    tl.atomic_max(high, tl.max(tl.where(inside, v, -1000000), 0))
    tl.atomic_min(low + v % 3, v, mask=inside)
    tl.atomic_or(bits + v % 2, 1 << (v % 31), mask=inside)
    tl.atomic_xor(bits + 2 + at * 0, v, mask=inside)
    tl.atomic_and(bits + 3 + at * 0, v | 255, mask=inside)


@triton.jit
def atomic_add_floats(x, out, n, m, BLOCK: tl.constexpr):
    """Adds rows of a tile to one row; 16-bit types use packed atomics."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + at % m, tl.load(x + at, mask=at < n, other=0.0), mask=at < n, sem="relaxed")


@triton.jit
def spin_lock(lock, counter, out):
    """Programs take a lock in turn and number themselves. Lock 0 is free."""
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    mine = tl.load(counter)
    tl.store(counter, mine + 1)
    tl.store(out + tl.program_id(0), mine)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def reductions(x, total, high, where_high, low, cumulative, product, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows, cols = tl.arange(0, ROWS), tl.arange(0, COLS)
    at = rows[:, None] * COLS + cols[None, :]
    v = tl.load(x + at)
    tl.store(total + cols, tl.sum(v, 0))
    tl.store(high + rows, tl.max(v, 1))
    tl.store(where_high + rows, tl.argmax(v, 1))
    tl.store(low + cols, tl.min(v, 0))
    tl.store(cumulative + at, tl.cumsum(v, 1))
    tl.store(product + at, tl.cumprod(tl.where(v > 0, 2, 1), 0))


@triton.jit
def sort_rows(x, out, flipped, ROWS: tl.constexpr, COLS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :]
    v = tl.load(x + at)
    tl.store(out + at, tl.sort(v, 1))
    tl.store(flipped + at, tl.flip(v, 1))


@triton.jit
def transpose(x, out, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows, cols = tl.arange(0, ROWS), tl.arange(0, COLS)
    v = tl.load(x + rows[:, None] * COLS + cols[None, :])
    tl.store(out + cols[:, None] * ROWS + rows[None, :], tl.trans(v))


@triton.jit
def gather_rows(x, index, out, histogram, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows, cols = tl.arange(0, ROWS), tl.arange(0, COLS)
    at = rows[:, None] * COLS + cols[None, :]
    i = tl.load(index + at)
    tl.store(out + at, tl.gather(tl.load(x + at), i, 0))
    tl.store(histogram + tl.arange(0, ROWS), tl.histogram(tl.ravel(i), ROWS))


@triton.jit
def random_numbers(out, integers, seed, n, BLOCK: tl.constexpr):
    """Philox: 32-bit multiplications with high halves."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.rand(seed, at), mask=at < n)
    tl.store(integers + at, tl.randint(seed, at), mask=at < n)


@triton.jit
def join_split(x, y, out, low, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    pairs = tl.interleave(tl.load(x + at), tl.load(y + at))
    tl.store(out + tl.arange(0, 2 * BLOCK), pairs)
    first, second = tl.split(tl.reshape(pairs, (BLOCK, 2)))
    tl.store(low + at, first * 2 - second)


@triton.jit
def _larger(x, y):
    return tl.where(x > y, x, y)


@triton.jit
def _sum(x, y):
    return x + y


@triton.jit
def scans(x, high, back, where, ROWS: tl.constexpr, COLS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :]
    v = tl.load(x + at)
    tl.store(high + at, tl.associative_scan(v, 1, _larger))
    tl.store(back + at, tl.associative_scan(v, 1, _sum, reverse=True))
    tl.store(where + tl.arange(0, ROWS), tl.argmin(v, 1))


@triton.jit
def exchanges(cells, x, old, wide, before, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(old + i, tl.atomic_cas(cells + i, v, v + 10))
    tl.store(before + i, tl.atomic_xchg(wide + i, v.to(tl.int64)))
