"""C kernels for clang, and what NumPy or plain Python says comes out. Each is compiled at several levels of optimisation."""

from __future__ import annotations

import binascii
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass
class Run:
    """arrays: contents of the pointer arguments. expected: by position, what they hold afterwards, and the error."""

    arrays: list[Array]
    expected: dict[int, tuple[Array, Array | float]]
    scalars: tuple[int | float, ...] = ()
    grid: int = 1
    block: int = 64


@dataclass
class Program:
    name: str
    source: str
    run: Callable[[np.random.Generator], Run]
    levels: tuple[str, ...] = ("-O2",)
    chips: tuple[str, ...] = ("gfx942", "gfx950")
    options: tuple[str, ...] = field(default_factory=tuple)
    gate: bool = False


PROGRAMS: list[Program] = []


def program(source: str, **options: Any) -> Callable[[Callable[[np.random.Generator], Run]], None]:
    """Declares a program; the decorated function makes inputs and results."""

    def declare(run: Callable[[np.random.Generator], Run]) -> None:
        PROGRAMS.append(Program(run.__name__.replace("_", "-"), source, run, **options))

    return declare


ALL = ("-O0", "-O1", "-O3")


@program(
    """
    SHARED float ta[16][17], tb[16][17];
    KERNEL __attribute__((amdgpu_flat_work_group_size(256, 256))) void k(GLOBAL float *c, GLOBAL float *a, GLOBAL float *b, int n) {
      int t = TID, row = t / 16, col = t % 16, tiles = n / 16, by = WG / tiles, bx = WG % tiles;
      float sum = 0;
      for (int s = 0; s < tiles; s++) {
        ta[row][col] = a[(by * 16 + row) * n + s * 16 + col];
        tb[row][col] = b[(s * 16 + row) * n + bx * 16 + col];
        BARRIER();
        for (int i = 0; i < 16; i++) sum += ta[row][i] * tb[i][col];
        BARRIER();
      }
      c[(by * 16 + row) * n + bx * 16 + col] = sum;
    }""",
    levels=ALL,
    gate=True,
)
def tiled_product(rng: np.random.Generator) -> Run:
    a, b = (rng.integers(-9, 9, (48, 48)).astype(np.float32) for _ in range(2))
    return Run([np.zeros((48, 48), np.float32), a, b], {0: (a @ b, 0.0)}, (48,), 9, 256)


@program(
    """
    SHARED i32 s[512];
    KERNEL __attribute__((amdgpu_flat_work_group_size(256, 256))) void k(GLOBAL i32 *x) {
      int t = TID; GLOBAL i32 *p = x + WG * 512;
      s[t] = p[t]; s[t + 256] = p[t + 256]; BARRIER();
      for (int size = 2; size <= 512; size <<= 1)
        for (int stride = size >> 1; stride; stride >>= 1) {
          int i = 2 * t - (t & (stride - 1)), j = i + stride, up = (i & size) == 0;
          i32 a = s[i], b = s[j];
          if ((a > b) == up) { s[i] = b; s[j] = a; }
          BARRIER();
        }
      p[t] = s[t]; p[t + 256] = s[t + 256];
    }""",
    levels=ALL,
)
def bitonic_sort(rng: np.random.Generator) -> Run:
    x = rng.integers(-1000000, 1000000, (2, 512)).astype(np.int32)
    return Run([x], {0: (np.sort(x, 1), 0.0)}, (), 2, 256)


@program(
    """
    static const u32 table[64] = {
      0x428a2f98,0x71374491,0xb5c0fbcf,0xe9b5dba5,0x3956c25b,0x59f111f1,0x923f82a4,0xab1c5ed5,0xd807aa98,0x12835b01,0x243185be,
      0x550c7dc3,0x72be5d74,0x80deb1fe,0x9bdc06a7,0xc19bf174,0xe49b69c1,0xefbe4786,0x0fc19dc6,0x240ca1cc,0x2de92c6f,0x4a7484aa,
      0x5cb0a9dc,0x76f988da,0x983e5152,0xa831c66d,0xb00327c8,0xbf597fc7,0xc6e00bf3,0xd5a79147,0x06ca6351,0x14292967,0x27b70a85,
      0x2e1b2138,0x4d2c6dfc,0x53380d13,0x650a7354,0x766a0abb,0x81c2c92e,0x92722c85,0xa2bfe8a1,0xa81a664b,0xc24b8b70,0xc76c51a3,
      0xd192e819,0xd6990624,0xf40e3585,0x106aa070,0x19a4c116,0x1e376c08,0x2748774c,0x34b0bcb5,0x391c0cb3,0x4ed8aa4a,0x5b9cca4f,
      0x682e6ff3,0x748f82ee,0x78a5636f,0x84c87814,0x8cc70208,0x90befffa,0xa4506ceb,0xbef9a3f7,0xc67178f2};
    #define ROT(x, n) __builtin_rotateright32(x, n)
    KERNEL void k(GLOBAL u32 *out, GLOBAL u32 *in) {
      int t = TID; u32 w[64];
      for (int i = 0; i < 16; i++) w[i] = __builtin_bswap32(in[t * 16 + i]);
      for (int i = 16; i < 64; i++) {
        u32 s0 = ROT(w[i - 15], 7) ^ ROT(w[i - 15], 18) ^ (w[i - 15] >> 3);
        u32 s1 = ROT(w[i - 2], 17) ^ ROT(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
      }
      u32 h[8] = {0x6a09e667,0xbb67ae85,0x3c6ef372,0xa54ff53a,0x510e527f,0x9b05688c,0x1f83d9ab,0x5be0cd19}, v[8];
      for (int i = 0; i < 8; i++) v[i] = h[i];
      for (int i = 0; i < 64; i++) {
        u32 s1 = ROT(v[4], 6) ^ ROT(v[4], 11) ^ ROT(v[4], 25), ch = (v[4] & v[5]) ^ (~v[4] & v[6]);
        u32 a = v[7] + s1 + ch + table[i] + w[i];
        u32 s0 = ROT(v[0], 2) ^ ROT(v[0], 13) ^ ROT(v[0], 22), maj = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        for (int j = 7; j; j--) v[j] = v[j - 1];
        v[4] += a; v[0] = a + s0 + maj;
      }
      for (int i = 0; i < 8; i++) out[t * 8 + i] = __builtin_bswap32(h[i] + v[i]);
    }""",
    levels=ALL,
)
def sha256(rng: np.random.Generator) -> Run:
    """One block per lane: 55 bytes of message, the mark, and the length in bits."""
    messages = [rng.bytes(55) for _ in range(64)]
    blocks = b"".join(m + b"\x80" + (440).to_bytes(8, "big") for m in messages)
    want = np.frombuffer(b"".join(hashlib.sha256(m).digest() for m in messages), np.uint32)
    return Run([np.zeros(512, np.uint32), np.frombuffer(blocks, np.uint32).copy()], {0: (want, 0.0)})


@program(
    """
    KERNEL void k(GLOBAL u32 *out, GLOBAL u8 *in, int n) {
      u32 crc = ~0u;
      for (int i = 0; i < n; i++) {
        crc ^= in[TID * n + i];
        for (int b = 0; b < 8; b++) crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
      }
      out[TID] = ~crc;
    }""",
    levels=ALL,
)
def crc32(rng: np.random.Generator) -> Run:
    data = rng.integers(0, 256, (64, 13)).astype(np.uint8)
    want = np.array([binascii.crc32(row.tobytes()) for row in data])
    return Run([np.zeros(64, np.uint32), data], {0: (want, 0.0)}, (13,))


@program(
    """
    __attribute__((noinline)) int place(int n, int row, u32 cols, u32 left, u32 right) {
      if (row == n) return 1;
      int count = 0;
      for (u32 free = ~(cols | left | right) & ((1u << n) - 1); free; free &= free - 1) {
        u32 bit = free & -free;
        count += place(n, row + 1, cols | bit, (left | bit) << 1, (right | bit) >> 1);
      }
      return count;
    }
    KERNEL void k(GLOBAL i32 *out) { out[TID] = place(TID % 7, 0, 0, 0, 0); }""",
    levels=("-O0", "-O2"),
)
def recursion(rng: np.random.Generator) -> Run:
    want = np.array([[1, 1, 0, 0, 2, 10, 4][i % 7] for i in range(64)])
    return Run([np.zeros(64, np.int32)], {0: (want, 0.0)})


@program(
    """
    typedef i32 (*function)(i32, i32);
    __attribute__((noinline)) i32 add(i32 a, i32 b) { return a + b; }
    __attribute__((noinline)) i32 sub(i32 a, i32 b) { return a - b; }
    __attribute__((noinline)) i32 mul(i32 a, i32 b) { return a * b; }
    __attribute__((noinline)) i32 both(i32 a, i32 b) { return mul(add(a, b), sub(a, b)); }
    KERNEL void k(GLOBAL i32 *out, GLOBAL i32 *a, GLOBAL i32 *b, GLOBAL i32 *which) {
      int t = TID; function f;
      switch (which[t]) { case 0: f = add; break; case 1: f = sub; break; case 2: f = mul; break; default: f = both; }
      out[t] = f(a[t], b[t]);
    }""",
    levels=ALL,
    gate=True,
)
def function_pointers(rng: np.random.Generator) -> Run:
    a, b = (rng.integers(-1000, 1000, 64).astype(np.int32) for _ in range(2))
    which = rng.integers(0, 4, 64).astype(np.int32)
    want = np.choose(which, [a + b, a - b, a * b, (a + b) * (a - b)])
    return Run([np.zeros(64, np.int32), a, b, which], {0: (want, 0.0)})


@program(
    """
    struct point { double x, y; int weight; };
    __attribute__((noinline)) struct point move(struct point p, double dx, int n) { p.x += dx; p.weight *= n; return p; }
    KERNEL void k(GLOBAL double *out, GLOBAL double *in, struct point origin) {
      int t = TID; struct point p = {in[t], in[t] * 2, t};
      struct point q = move(p, origin.x, origin.weight);
      out[t] = q.x * q.weight + q.y - origin.y;
    }""",
    levels=("-O0",),
)
def structures(rng: np.random.Generator) -> Run:
    x = rng.integers(-50, 50, 64).astype(np.float64)
    want = (x + 0) * (np.arange(64) * 0) + x * 2 - 0
    return Run([np.zeros(64), x], {0: (want, 0.0)}, (bytes(24),))


@program(
    """
    KERNEL void k(GLOBAL u64 *out, GLOBAL u64 *x, GLOBAL u64 *y) {
      int t = TID; u64 a = x[t], b = y[t]; unsigned __int128 p = (unsigned __int128)a * b;
      out[8 * t] = p >> 64; out[8 * t + 1] = p;
      out[8 * t + 2] = __builtin_rotateleft64(a, b & 63) + __builtin_bitreverse64(b);
      out[8 * t + 3] = __builtin_popcountll(a) + 100 * __builtin_clzll(b | 1) + 10000 * __builtin_ctzll(a | 1ul << 63);
      out[8 * t + 4] = (i64)a >> (b & 63); out[8 * t + 5] = (i64)a < (i64)b ? a : b;
      u64 sum; out[8 * t + 6] = __builtin_add_overflow(a, b, &sum); out[8 * t + 7] = __builtin_bswap64(sum);
    }""",
    levels=ALL,
)
def wide_integers(rng: np.random.Generator) -> Run:
    x, y = ([int.from_bytes(rng.bytes(8), "little") >> int(rng.integers(0, 40)) for _ in range(64)] for _ in range(2))
    top, mask = 1 << 63, (1 << 64) - 1
    out: list[int] = []
    for a, b in zip(x, y, strict=True):
        r = b & 63
        signed = a - (1 << 64) if a & top else a
        other = b - (1 << 64) if b & top else b
        c = a | top
        out += [a * b >> 64, a * b & mask]
        out.append(((a << r | a >> (64 - r)) + int(f"{b:064b}"[::-1], 2)) & mask)
        out.append(a.bit_count() + 100 * (64 - (b | 1).bit_length()) + 10000 * ((c & -c).bit_length() - 1))
        out += [signed >> r & mask, a if signed < other else b, int(a + b > mask)]
        out.append(int.from_bytes((a + b & mask).to_bytes(8, "little"), "big"))
    arrays = [np.zeros(512, np.uint64), np.array(x, np.uint64), np.array(y, np.uint64)]
    return Run(arrays, {0: (np.array(out, np.uint64), 0.0)})


@program(
    """
    KERNEL void k(GLOBAL double *out, GLOBAL double *x, GLOBAL float *f) {
      int t = TID; double a = x[t]; float b = f[t];
      out[8 * t] = (i64)a; out[8 * t + 1] = (u64)__builtin_fabs(a); out[8 * t + 2] = (float)(i64)(a * 1e6);
      out[8 * t + 3] = __builtin_floor(a) + __builtin_ceil(b) * 4 + __builtin_trunc(a) * 16 + __builtin_rint(b) * 64;
      out[8 * t + 4] = (double)(u32)(b * b); out[8 * t + 5] = __builtin_fma(a, b, a);
      out[8 * t + 6] = __builtin_fmin(a, b) + __builtin_fmax(a, b) * 3; out[8 * t + 7] = __builtin_copysign(a, b) / (a + 1e3);
    }""",
    levels=ALL,
    options=("-ffp-contract=off",),
)
def doubles(rng: np.random.Generator) -> Run:
    a = rng.uniform(-300, 300, 64)
    f = rng.uniform(-30, 30, 64).astype(np.float32)
    b = f.astype(np.float64)
    rows = [np.trunc(a), np.trunc(np.abs(a)), np.trunc(a * 1e6).astype(np.float32).astype(np.float64)]
    rows.append(np.floor(a) + np.ceil(b) * 4 + np.trunc(a) * 16 + np.rint(b) * 64)
    exact = np.array([float(np.longdouble(p) * np.longdouble(q) + np.longdouble(p)) for p, q in zip(a, b, strict=True)])
    rows += [np.trunc((f * f).astype(np.float64)), exact]
    rows += [np.minimum(a, b) + np.maximum(a, b) * 3, np.copysign(a, b) / (a + 1e3)]
    allowed = np.zeros((64, 8))
    allowed[:, 5] = np.abs(exact) * 2.0**-52  # long double may round twice
    return Run([np.zeros((64, 8)), a, f], {0: (np.stack(rows, 1), allowed)})


@program(
    """
    typedef _Float16 h2 __attribute__((ext_vector_type(2))); typedef _Float16 h4 __attribute__((ext_vector_type(4)));
    typedef float f2 __attribute__((ext_vector_type(2))); typedef short s2 __attribute__((ext_vector_type(2)));
    typedef u8 b4 __attribute__((ext_vector_type(4)));
    KERNEL void k(GLOBAL h4 *o1, GLOBAL f2 *o2, GLOBAL s2 *o3, GLOBAL b4 *o4, GLOBAL h4 *h, GLOBAL f2 *f, GLOBAL s2 *s, GLOBAL b4 *b) {
      int t = TID, u = (t + 1) & 63;
      h4 x = h[t], y = h[u]; o1[t] = __builtin_elementwise_max(x * y, x + y).wzyx;
      f2 p = f[t], q = f[u]; o2[t] = p * q + p.yx;
      s2 v = s[t], w = s[u]; o3[t] = __builtin_elementwise_min(v - w, v * w) + (v >> (s2)3);
      b4 c = b[t], d = b[u]; o4[t] = __builtin_elementwise_add_sat(c, d).yxwz ^ (b4)(c < d);
    }""",
    levels=ALL,
    options=("-ffp-contract=off",),
    gate=True,
)
def small_vectors(rng: np.random.Generator) -> Run:
    h = rng.normal(size=(64, 4)).astype(np.float16)
    f = rng.normal(size=(64, 2)).astype(np.float32)
    s = rng.integers(-32768, 32768, (64, 2)).astype(np.int16)
    b = rng.integers(0, 256, (64, 4)).astype(np.uint8)
    roll = lambda x: np.roll(x, -1, 0)  # noqa: E731
    with np.errstate(over="ignore"):
        o1 = np.maximum(h * roll(h), h + roll(h))[:, ::-1]
        o2 = f * roll(f) + f[:, ::-1]
        o3 = np.minimum(s - roll(s), s * roll(s)) + (s >> 3)
        o4 = np.minimum(b.astype(int) + roll(b), 255)[:, [1, 0, 3, 2]] ^ np.where(b < roll(b), 255, 0)
    arrays = [np.zeros_like(x) for x in (h, f, s, b)] + [h, f, s, b]
    return Run(arrays, {0: (o1, 0.0), 1: (o2, 0.0), 2: (o3, 0.0), 3: (o4, 0.0)})


@program(
    """
    SHARED u32 bins[64]; SHARED u32 smallest, largest; SHARED float total; SHARED double precise; SHARED u64 wide;
    KERNEL __attribute__((amdgpu_flat_work_group_size(256, 256))) void k(GLOBAL u32 *out, GLOBAL double *dout, GLOBAL u32 *in) {
      int t = TID;
      if (t < 64) bins[t] = 0;
      if (!t) { smallest = ~0u; largest = 0; total = 0; precise = 0; wide = 0; }
      BARRIER();
      u32 x = in[t];
      #define A(op, p, v) __scoped_atomic_##op(p, v, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP)
      u32 rank = A(fetch_add, &bins[x & 63], 1);
      A(fetch_min, &smallest, x); A(fetch_max, &largest, x); A(fetch_add, &total, (float)(x & 255));
      A(fetch_add, &precise, (double)x); A(fetch_xor, &wide, (u64)x << 32 | t);
      BARRIER();
      if (t < 64) out[t] = bins[t];
      out[64 + t] = rank < bins[x & 63];
      if (!t) { out[320] = smallest; out[321] = largest; dout[0] = total; dout[1] = precise; dout[2] = wide & 0xffffffff; dout[3] = wide >> 32; }
    }""",
    levels=ALL,
    gate=True,
)
def lds_atomics(rng: np.random.Generator) -> Run:
    x = rng.integers(0, 1 << 24, 256).astype(np.uint32)
    out = [*np.bincount(x & 63, minlength=64), *[1] * 256, x.min(), x.max()]
    low = int(np.bitwise_xor.reduce(np.arange(256)))
    doubles = [float((x & 255).sum()), float(x.astype(np.float64).sum()), low, float(np.bitwise_xor.reduce(x))]
    arrays = [np.zeros(322, np.uint32), np.zeros(4), x]
    return Run(arrays, {0: (np.array(out), 0.0), 1: (np.array(doubles), 0.0)}, (), 1, 256)


@program(
    """
    typedef _Float16 h2 __attribute__((ext_vector_type(2)));
    KERNEL void k(GLOBAL u32 *u, GLOBAL float *f, GLOBAL double *d, GLOBAL u64 *w, GLOBAL u32 *in) {
      int i = WG * 64 + TID; u32 x = in[i];
      #define A(op, p, v) __scoped_atomic_##op(p, v, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE)
      A(fetch_sub, &u[0], x); A(fetch_and, &u[1], x | 0xff); A(fetch_or, &u[2], x); A(fetch_nand, &u[7], 0);
      A(fetch_min, (GLOBAL i32 *)&u[3], (i32)x - 500); A(fetch_max, (GLOBAL i32 *)&u[4], (i32)x - 500);
      u[8 + i] = A(exchange_n, &u[5], i + 1);
      __builtin_amdgcn_global_atomic_fadd_f64(d, (double)x); A(fetch_min, &d[1], (double)x); A(fetch_max, &d[2], (double)x);
      A(fetch_add, &f[0], 0.25f); A(fetch_max, &w[0], (u64)x << 33); A(fetch_min, &w[1], (u64)x << 33);
      __builtin_amdgcn_global_atomic_fadd_v2f16((GLOBAL h2 *)&f[1], (h2){1, 2});
    }""",
    gate=True,
)
def global_atomics(rng: np.random.Generator) -> Run:
    x = rng.integers(0, 1000, 192).astype(np.uint32)
    u = np.zeros(200, np.uint32)
    u[[1, 7]] = 0xFFFFFFFF
    want = [-int(x.sum()) & 0xFFFFFFFF, int(np.bitwise_and.reduce(x | 0xFF)), int(np.bitwise_or.reduce(x))]
    signed = x.astype(int) - 500
    want += [min(0, int(signed.min())) & 0xFFFFFFFF, max(0, int(signed.max())), 192, 0, 0xFFFFFFFF, *range(192)]
    d = np.array([0.0, 1e9, -1.0])
    w = np.array([0, 1 << 62], np.uint64)
    packed = np.array([np.float32(48), np.array([192, 384], np.float16).view(np.float32)[0]])
    expected = {0: (np.array(want), 0.0), 1: (packed, 0.0), 2: (np.array([x.sum(), x.min(), x.max()]), 0.0)}
    expected[3] = (np.array([int(x.max()) << 33, int(x.min()) << 33]), 0.0)
    return Run([u, np.zeros(2, np.float32), d, w, x], expected, (), 3)


@program(
    """
    KERNEL void k(GLOBAL u32 *out, GLOBAL u32 *a, GLOBAL u32 *b, GLOBAL u32 *c) {
      int t = TID; u32 x = a[t], y = b[t], z = c[t]; GLOBAL u32 *o = out + t * 16;
      o[0] = __builtin_amdgcn_perm(x, y, z & 0x07070707); o[1] = __builtin_amdgcn_alignbit(x, y, z & 31);
      o[2] = __builtin_amdgcn_alignbyte(x, y, z & 3); o[3] = __builtin_amdgcn_ubfe(x, y & 31, z & 31);
      o[4] = __builtin_amdgcn_sbfe(x, y & 31, z & 31); o[5] = __builtin_amdgcn_sad_u8(x, y, z);
      o[6] = __builtin_amdgcn_lerp(x, y, z); o[7] = __builtin_amdgcn_msad_u8(x, y, z); o[8] = __builtin_amdgcn_sad_hi_u8(x, y, z);
      o[9] = __builtin_amdgcn_sad_u16(x, y, z); o[10] = __builtin_amdgcn_sdot4(x, y, z, 0); o[11] = __builtin_amdgcn_udot4(x, y, z, 0);
      o[12] = __builtin_amdgcn_sdot8(x, y, z, 0); o[13] = __builtin_amdgcn_udot8(x, y, z, 0);
      o[14] = __builtin_amdgcn_mbcnt_hi(x, __builtin_amdgcn_mbcnt_lo(y, z)); o[15] = __builtin_bitreverse32(x) + __builtin_amdgcn_sad_u8(x, y, 0);
    }""",
)
def bit_and_byte_operations(rng: np.random.Generator) -> Run:
    a, b, c = (rng.integers(0, 1 << 32, 64, dtype=np.uint32) for _ in range(3))
    mask = 0xFFFFFFFF
    rows: list[list[int]] = []
    for lane, (x, y, z) in enumerate(zip(a.tolist(), b.tolist(), c.tolist(), strict=True)):
        xb, yb, zb = ([v >> 8 * i & 255 for i in range(4)] for v in (x, y, z))
        xn, yn = ([v >> 4 * i & 15 for i in range(8)] for v in (x, y))
        s8, s4 = (lambda v: v - 256 if v > 127 else v), (lambda v: v - 16 if v > 7 else v)
        joined, offset, width = x << 32 | y, y & 31, z & 31
        field_ = x >> offset & ((1 << width) - 1) if offset + width < 32 else x >> offset
        signed = x - (1 << 32) if x >> 31 else x
        if width == 0:
            field_ = signed_field = 0
        elif offset + width < 32:
            signed_field = field_ - (1 << width) if field_ >> (width - 1) else field_
        else:
            signed_field = signed >> offset
        sad = sum(abs(p - q) for p, q in zip(xb, yb, strict=True))
        lerp = sum((p + q + (r & 1) >> 1) << 8 * i for i, (p, q, r) in enumerate(zip(xb, yb, zb, strict=True)))
        masked = sum(abs(p - q) for p, q in zip(xb, yb, strict=True) if q)
        sad16 = abs((x & 0xFFFF) - (y & 0xFFFF)) + abs((x >> 16) - (y >> 16))
        below = (1 << lane) - 1
        rows.append(
            [
                sum((joined >> 8 * (zb[i] & 7) & 255) << 8 * i for i in range(4)),
                joined >> (z & 31),
                joined >> 8 * (z & 3),
                field_,
                signed_field,
                sad + z,
                lerp,
                masked + z,
                (sad << 16) + z,
                sad16 + z,
                sum(s8(p) * s8(q) for p, q in zip(xb, yb, strict=True)) + z,
                sum(p * q for p, q in zip(xb, yb, strict=True)) + z,
                sum(s4(p) * s4(q) for p, q in zip(xn, yn, strict=True)) + z,
                sum(p * q for p, q in zip(xn, yn, strict=True)) + z,
                (x & below >> 32).bit_count() + (y & below & mask).bit_count() + z,
                int(f"{x:032b}"[::-1], 2) + sad,
            ]
        )
    want = np.array([[v & mask for v in row] for row in rows], np.uint32)
    return Run([np.zeros((64, 16), np.uint32), a, b, c], {0: (want, 0.0)})


@program(
    """
    typedef float f16v __attribute__((ext_vector_type(16))); typedef _Float16 h8 __attribute__((ext_vector_type(8)));
    typedef _Float16 h4 __attribute__((ext_vector_type(4))); typedef float f4 __attribute__((ext_vector_type(4)));
    typedef double d4 __attribute__((ext_vector_type(4)));
    KERNEL void k(GLOBAL float *o1, GLOBAL float *o2, GLOBAL double *o3, GLOBAL h4 *a, GLOBAL h4 *b, GLOBAL double *da, GLOBAL double *db) {
      int t = TID; f4 c4 = {0, 0, 0, 0}; f16v c16 = 0; d4 cd = 0;
      c4 = __builtin_amdgcn_mfma_f32_16x16x16f16(a[t], b[t], c4, 0, 0, 0);
      for (int i = 0; i < 4; i++) o1[(t / 16 * 4 + i) * 16 + t % 16] = c4[i];
      c16 = __builtin_amdgcn_mfma_f32_32x32x8f16(a[64 + t], b[64 + t], c16, 0, 0, 0);
      for (int i = 0; i < 16; i++) o2[(t / 32 * 4 + i % 4 + i / 4 * 8) * 32 + t % 32] = c16[i];
      cd = __builtin_amdgcn_mfma_f64_16x16x4f64(da[t], db[t], cd, 0, 0, 0);
      for (int i = 0; i < 4; i++) o3[(i * 4 + t / 16) * 16 + t % 16] = cd[i];
    }""",
    gate=True,
)
def matrix_instructions(rng: np.random.Generator) -> Run:
    a, b = (rng.integers(-8, 8, (128, 4)).astype(np.float16) for _ in range(2))
    da, db = (rng.integers(-8, 8, 64).astype(np.float64) for _ in range(2))

    def operand(x: Array, rows: int) -> Array:
        """[rows, k] of four elements per lane."""
        out = np.zeros((rows, 4 * 64 // rows))
        for lane in range(64):
            out[lane % rows, 4 * (lane // rows) : 4 * (lane // rows) + 4] = x[lane]
        return out

    o1 = operand(a[:64], 16) @ operand(b[:64], 16).T
    o2 = operand(a[64:], 32) @ operand(b[64:], 32).T
    o3 = da.reshape(4, 16).T @ db.reshape(4, 16)
    arrays = [np.zeros((16, 16), np.float32), np.zeros((32, 32), np.float32), np.zeros((16, 16)), a, b, da, db]
    return Run(arrays, {0: (o1, 0.0), 1: (o2, 0.0), 2: (o3, 0.0)})


@program(
    """
    KERNEL void k(GLOBAL float *out, GLOBAL float *in, int n) {
      float volatile heap[96]; int t = TID, size = 0;
      for (int i = 0; i < n; i++) {
        float x = in[t * n + i]; int at = size++; heap[at] = x;
        while (at && heap[(at - 1) / 2] > heap[at]) { float y = heap[at]; heap[at] = heap[(at - 1) / 2]; at = (at - 1) / 2; heap[at] = y; }
      }
      for (int i = 0; i < n; i++) {
        out[t * n + i] = heap[0]; heap[0] = heap[--size]; int at = 0;
        for (;;) {
          int child = 2 * at + 1;
          if (child >= size) break;
          if (child + 1 < size && heap[child + 1] < heap[child]) child++;
          if (heap[at] <= heap[child]) break;
          float y = heap[at]; heap[at] = heap[child]; heap[child] = y; at = child;
        }
      }
    }""",
    levels=ALL,
)
def heap_sort_in_scratch(rng: np.random.Generator) -> Run:
    x = rng.normal(size=(64, 23)).astype(np.float32)
    return Run([np.zeros_like(x), x], {0: (np.sort(x, 1), 0.0)}, (23,))


@program(
    """
    KERNEL void k(GLOBAL i32 *out, GLOBAL float *x0, GLOBAL float *y0) {
      int i = WG * 64 + TID; float cx = x0[i], cy = y0[i], x = 0, y = 0; int n = 0;
      while (x * x + y * y <= 4.0f && n < 200) { float z = x * x - y * y + cx; y = 2 * x * y + cy; x = z; n++; }
      out[i] = n;
    }""",
    levels=ALL,
    options=("-ffp-contract=off",),
    gate=True,
)
def mandelbrot(rng: np.random.Generator) -> Run:
    cx, cy = (rng.uniform(-2, 1, 256).astype(np.float32), rng.uniform(-1.2, 1.2, 256).astype(np.float32))
    want: list[int] = []
    f = np.float32
    for a, b in zip(cx, cy, strict=True):
        x = y = f(0)
        n = 0
        while x * x + y * y <= f(4) and n < 200:
            x, y = x * x - y * y + a, f(2) * x * y + b
            n += 1
        want.append(n)
    return Run([np.zeros(256, np.int32), cx, cy], {0: (np.array(want), 0.0)}, (), 4)


@program(
    """
    KERNEL void k(GLOBAL u64 *out, GLOBAL u32 *in) {
      int t = TID; u32 x = in[t];
      u64 odd = __builtin_amdgcn_ballot_w64(x & 1); out[t] = odd;
      u32 sum = x;
      for (int d = 1; d < 64; d <<= 1) {
        u32 other = __builtin_amdgcn_ds_bpermute(4 * (t - d), sum);
        if (t >= d) sum += other;
      }
      out[64 + t] = sum;
      u32 first = __builtin_amdgcn_readfirstlane(x), last = __builtin_amdgcn_readlane(x, 63);
      out[128 + t] = first ^ last;
      u32 seen = 0;
      for (u64 todo = __builtin_amdgcn_ballot_w64(1); todo; ) {
        u32 leader = __builtin_amdgcn_readfirstlane(x & 7);
        u64 same = __builtin_amdgcn_ballot_w64((x & 7) == leader);
        if ((x & 7) == leader) { out[192 + t] = same; break; }
        todo &= ~same;
      }
    }""",
    levels=("-O1", "-O3"),
)
def wave_operations(rng: np.random.Generator) -> Run:
    x = rng.integers(0, 1 << 20, 64).astype(np.uint32)
    mask = lambda bits: sum(1 << i for i, bit in enumerate(bits) if bit)  # noqa: E731
    same = [mask((x & 7) == v) for v in (x & 7)]
    want = [*[mask(x & 1)] * 64, *x.cumsum(), *[int(x[0] ^ x[63])] * 64]
    return Run([np.zeros(256, np.uint64), x], {0: (np.array([*want, *same], np.uint64), 0.0)})


@program(
    """
    SHARED u8 bytes[1024];
    KERNEL __attribute__((amdgpu_flat_work_group_size(128, 128))) void k(GLOBAL u8 *out, GLOBAL u8 *in, GLOBAL i16 *h, GLOBAL i16 *ho) {
      int t = TID;
      for (int i = 0; i < 8; i++) bytes[(t * 8 + i) * 5 & 1023] = in[t * 8 + i];
      BARRIER();
      for (int i = 0; i < 8; i++) out[t * 8 + i] = bytes[t + 128 * i] + (i8)in[t];
      i16 a = h[t], b = h[128 + t]; ho[t] = a / (b | 1) + (a >> 3) * (u16)b; ho[128 + t] = a % (b | 1);
    }""",
    levels=ALL,
)
def bytes_in_lds(rng: np.random.Generator) -> Run:
    x = rng.integers(0, 256, 1024).astype(np.uint8)
    lds = np.zeros(1024, np.uint8)
    lds[np.arange(1024) * 5 & 1023] = x
    t = np.arange(128)
    out = np.stack([lds[t + 128 * i] + x[t] for i in range(8)], 1).astype(np.uint8).ravel()
    h = rng.integers(-32768, 32768, 256).astype(np.int16)
    a, b = h[:128].astype(int), h[128:].astype(int)
    odd = b | 1
    quotient = np.array([abs(p) // abs(q) * (-1 if (p < 0) != (q < 0) else 1) for p, q in zip(a, odd, strict=True)])
    ho = np.concatenate([quotient + (a >> 3) * (b & 0xFFFF), a - quotient * odd]).astype(np.int64).astype(np.uint16)
    arrays = [np.zeros(1024, np.uint8), x, h, np.zeros(256, np.uint16)]
    return Run(arrays, {0: (out, 0.0), 3: (ho, 0.0)}, (), 1, 128)


@program(
    """
    KERNEL void k(GLOBAL float *out, GLOBAL float *x) {
      int t = TID; float a = x[t]; int e; GLOBAL float *o = out + 8 * t;
      o[0] = __builtin_amdgcn_fractf(a); o[1] = __builtin_amdgcn_frexp_mantf(a); o[2] = __builtin_amdgcn_frexp_expf(a);
      o[3] = __builtin_ldexpf(a, t - 32); o[4] = __builtin_amdgcn_fmed3f(a, 1.0f, -2.0f); o[5] = __builtin_roundevenf(a);
      o[6] = __builtin_amdgcn_classf(a, 0x264); o[7] = __builtin_canonicalizef(a) + __builtin_amdgcn_rcpf(4.0f);
    }""",
    levels=("-O0", "-O2"),
)
def float_parts(rng: np.random.Generator) -> Run:
    x = rng.normal(size=64).astype(np.float32) * 10
    x[:4] = [0.0, -0.0, np.inf, -np.inf]
    mantissa, exponent = np.frexp(x)
    with np.errstate(invalid="ignore"):
        fract = np.where(np.isinf(x), np.nan, np.minimum(x - np.floor(x), np.float32(1 - 2.0**-24)))
    rows = [fract, mantissa, np.where(np.isfinite(x), exponent, 0), np.ldexp(x, np.arange(64) - 32)]
    rows += [
        np.clip(x, -2, 1),
        np.rint(x),
        (x == 0) & ~np.signbit(x) | (x == 0) & np.signbit(x) | np.isposinf(x) | np.isneginf(x),
    ]
    rows.append(x + np.float32(0.25))
    # class mask 0x264: -infinity (2^2), -0 (2^5), +0 (2^6), +infinity (2^9)
    return Run([np.zeros((64, 8), np.float32), x], {0: (np.stack(rows, 1).astype(np.float32), 0.0)})


@program(
    """
    typedef i32 i4 __attribute__((ext_vector_type(4)));
    KERNEL void k(GLOBAL i32 *out, GLOBAL i32 *in, int n) {
      __amdgpu_buffer_rsrc_t r = __builtin_amdgcn_make_buffer_rsrc((void *)in, 0, n * 4, 0x27000);
      int t = TID;
      out[t] = __builtin_amdgcn_raw_buffer_load_b32(r, 4 * t, 0, 0);
      i4 v = __builtin_amdgcn_raw_buffer_load_b128(r, 16 * (t & 7), 16, 0);
      out[64 + t] = v.x + v.y * 2 + v.z * 4 + v.w * 8;
      out[128 + t] = __builtin_amdgcn_raw_buffer_load_b8(r, t, 8, 0);
      __amdgpu_buffer_rsrc_t w = __builtin_amdgcn_make_buffer_rsrc((void *)(out + 192), 0, 4 * 40, 0x27000);
      __builtin_amdgcn_raw_buffer_store_b32(in[t], w, 4 * t, 0, 0);
    }""",
)
def buffer_descriptors(rng: np.random.Generator) -> Run:
    """Loads out of range give zero, stores out of range vanish."""
    x = rng.integers(1, 1 << 28, 64).astype(np.int32)
    n, t = 50, np.arange(64)
    seen = np.where(t < n, x, 0)
    quads = np.stack([seen[4 * (t & 7) + 4 + i] for i in range(4)])
    expected = [
        *seen,
        *(quads * [[1], [2], [4], [8]]).sum(0).astype(np.int32),
        *x.view(np.uint8)[8 + t],
        *x[:40],
        *[-7] * 24,
    ]
    out = np.zeros(256, np.int32)
    out[192:] = -7
    return Run([out, x], {0: (np.array(expected), 0.0)}, (n,))


@program(
    """
    SHARED float s[256];
    KERNEL __attribute__((amdgpu_flat_work_group_size(128, 128))) void k(GLOBAL float *out, GLOBAL float *in) {
      int t = TID, wave = __builtin_amdgcn_readfirstlane(t / 64);
      __builtin_amdgcn_global_load_lds(in + 128 - t, (LDS void *)(s + 64 * wave), 4, 0, 0);
      __builtin_amdgcn_s_waitcnt(0x0f70); BARRIER();
      out[t] = s[127 - t] * 2; __builtin_amdgcn_s_sleep(1); __builtin_amdgcn_s_setprio(2);
    }""",
)
def direct_to_lds(rng: np.random.Generator) -> Run:
    x = rng.normal(size=129).astype(np.float32)
    lds = x[128 - np.arange(128)]
    return Run([np.zeros(128, np.float32), x], {0: (lds[::-1] * 2, 0.0)}, (), 1, 128)


@program(
    """
    KERNEL void k(GLOBAL float *out, GLOBAL float *a, GLOBAL float *b, int n) {
      int t = TID; float m[6][7];
      for (int i = 0; i < 6; i++) { for (int j = 0; j < 6; j++) m[i][j] = a[(t * 6 + i) * 6 + j]; m[i][6] = b[t * 6 + i]; }
      for (int c = 0; c < n; c++) {
        int best = c;
        for (int r = c + 1; r < n; r++) if (__builtin_fabsf(m[r][c]) > __builtin_fabsf(m[best][c])) best = r;
        for (int j = 0; j < 7; j++) { float x = m[c][j]; m[c][j] = m[best][j]; m[best][j] = x; }
        for (int r = 0; r < n; r++) if (r != c) { float f = m[r][c] / m[c][c]; for (int j = c; j < 7; j++) m[r][j] -= f * m[c][j]; }
      }
      for (int i = 0; i < n; i++) out[t * 6 + i] = m[i][6] / m[i][i];
    }""",
    levels=ALL,
)
def gauss_elimination(rng: np.random.Generator) -> Run:
    a = rng.normal(size=(64, 6, 6)).astype(np.float32) + 3 * np.eye(6, dtype=np.float32)
    b = rng.normal(size=(64, 6)).astype(np.float32)
    want = np.linalg.solve(a.astype(np.float64), b.astype(np.float64)[..., None])[..., 0]
    allowed = 1e-5 * np.linalg.cond(a.astype(np.float64))[:, None] * (1 + np.abs(want))
    return Run([np.zeros((64, 6), np.float32), a, b], {0: (want, allowed)}, (6,))


@program(
    """
    KERNEL void k(GLOBAL i32 *out, GLOBAL i32 *in) {
      int t = TID, x = in[t], r;
      switch (x) {
        case 0: r = 17; break; case 1: r = x * t; break; case 2: r = t - 5; break; case 3: r = t << 3; break;
        case 4: r = -t; break; case 5: r = t % 7; break; case 6: r = t / 3; break; case 7: r = ~t; break;
        case 8: for (r = 0; r < t; r += 3) if (r == 33) break; break; case 9: r = in[r = (t + 1) & 63]; break;
        case 10: goto odd; case 11: odd: r = t & 1 ? 99 : 98; break; default: r = 1000;
      }
      if (t & 1) { if (r > 10) r -= 10; else if (r < -10) r += 10; else r *= 100; } else do { r--; } while (r > 200);
      out[t] = r;
    }""",
    levels=ALL,
)
def switches(rng: np.random.Generator) -> Run:
    x = rng.integers(0, 13, 64).astype(np.int32)
    want: list[int] = []
    for t, v in enumerate(x.tolist()):
        steps = next((r for r in range(0, t + 3, 3) if r >= t or r == 33), 0)
        special = 99 if t & 1 else 98
        values = [17, v * t, t - 5, t << 3, -t, t % 7, t // 3, ~t, steps, int(x[(t + 1) & 63]), special, special, 1000]
        r = values[v]
        if t & 1:
            r = r - 10 if r > 10 else r + 10 if r < -10 else r * 100
        else:
            r = min(r - 1, 200)
        want.append(r)
    return Run([np.zeros(64, np.int32), x], {0: (np.array(want), 0.0)})


@program(
    """
    KERNEL void k(GLOBAL double *out, GLOBAL double *x, GLOBAL i32 *e) {
      int t = TID; double a = x[t];
      out[4 * t] = __builtin_ldexp(a, e[t]); out[4 * t + 1] = __builtin_amdgcn_frexp_mant(a);
      out[4 * t + 2] = __builtin_amdgcn_fract(a); out[4 * t + 3] = __builtin_roundeven(a) + __builtin_amdgcn_frexp_exp(a);
    }""",
)
def double_parts(rng: np.random.Generator) -> Run:
    x = rng.normal(size=64) * 100
    e = rng.integers(-40, 40, 64).astype(np.int32)
    mantissa, exponent = np.frexp(x)
    want = np.stack([np.ldexp(x, e), mantissa, x - np.floor(x), np.rint(x) + exponent], 1)
    return Run([np.zeros((64, 4)), x, e], {0: (want, 0.0)})


@program(
    """
    typedef u32 u2 __attribute__((ext_vector_type(2)));
    KERNEL void k(GLOBAL u32 *out, GLOBAL u32 *in) {
      int t = TID; u32 x = in[t], y = in[64 + t];
      u2 a = __builtin_amdgcn_permlane32_swap(x, y, 0, 0), b = __builtin_amdgcn_permlane16_swap(x, y, 0, 0);
      out[t] = a.x; out[64 + t] = a.y; out[128 + t] = b.x; out[192 + t] = b.y;
    }""",
    chips=("gfx950",),
)
def permlane_swaps(rng: np.random.Generator) -> Run:
    """Rows of 32 (16) lanes: the odd rows of the first operand change places with the even rows of the second."""
    x, y = rng.integers(0, 1 << 32, (2, 64), dtype=np.uint32)
    want: list[Array] = []
    for rows in (32, 16):
        a, b = x.reshape(-1, rows).copy(), y.reshape(-1, rows).copy()
        a[1::2], b[0::2] = y.reshape(-1, rows)[0::2], x.reshape(-1, rows)[1::2]
        want += [a.ravel(), b.ravel()]
    return Run([np.zeros(256, np.uint32), np.stack([x, y])], {0: (np.concatenate(want), 0.0)})


@program(
    """
    KERNEL void k(GLOBAL float *out, GLOBAL float *re, GLOBAL float *im) {
      int t = TID; float ar = re[t], ai = im[t];
      for (int half = 1; half < 64; half <<= 1) {
        int pair = t ^ half; float br = __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(4 * pair, __builtin_bit_cast(int, ar)));
        float bi = __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(4 * pair, __builtin_bit_cast(int, ai)));
        float turn = -0.5f * (t & (half - 1)) / half, c = __builtin_amdgcn_cosf(turn), s = __builtin_amdgcn_sinf(turn);
        float ur = t & half ? br : ar, ui = t & half ? bi : ai, vr = t & half ? ar : br, vi = t & half ? ai : bi;
        float wr = vr * c - vi * s, wi = vr * s + vi * c;
        ar = t & half ? ur - wr : ur + wr; ai = t & half ? ui - wi : ui + wi;
      }
      out[2 * t] = ar; out[2 * t + 1] = ai;
    }""",
    levels=("-O0", "-O3"),
)
def fourier_transform(rng: np.random.Generator) -> Run:
    """Decimation in time; the input stands in bit-reversed order."""
    x = rng.normal(size=64) + 1j * rng.normal(size=64)
    order = [int(f"{i:06b}"[::-1], 2) for i in range(64)]
    want = np.fft.fft(x)
    shuffled = x[order]
    arrays = [np.zeros((64, 2), np.float32), shuffled.real.astype(np.float32), shuffled.imag.astype(np.float32)]
    return Run(arrays, {0: (np.stack([want.real, want.imag], 1), 1e-4)})


@program(
    """
    KERNEL void k(GLOBAL float *out, GLOBAL double *dout, GLOBAL float *x, GLOBAL float *y, GLOBAL float *z) {
      int t = TID; float a = x[t], b = y[t], c = z[t]; GLOBAL float *o = out + 5 * t;
      o[0] = __builtin_amdgcn_cubeid(a, b, c); o[1] = __builtin_amdgcn_cubesc(a, b, c);
      o[2] = __builtin_amdgcn_cubetc(a, b, c); o[3] = __builtin_amdgcn_cubema(a, b, c); o[4] = __builtin_amdgcn_cvt_off_f32_i4(t);
      dout[2 * t] = __builtin_amdgcn_trig_preop((double)a, 0); dout[2 * t + 1] = __builtin_amdgcn_trig_preop((double)a, 1);
    }""",
)
def cube_maps_and_argument_reduction(rng: np.random.Generator) -> Run:
    x, y, z = (rng.normal(size=64).astype(np.float32) for _ in range(3))
    rows: list[list[float]] = []
    for t, (a, b, c) in enumerate(zip(x.tolist(), y.tolist(), z.tolist(), strict=True)):
        axis = int(np.argmax(np.abs([a, b, c])))
        major = (a, b, c)[axis]
        sign = -1 if major < 0 else 1
        s, u = ((-c * sign, -b), (a, c * sign), (a * sign, -b))[axis]
        rows.append([2 * axis + (major < 0), s, u, 2 * major, ((t & 15) ^ 8) / 16 - 0.5])
    # 2/pi lies between 1/2 and 1: 53 bits, cut off, and what follows is below their last place
    bits = np.tile([2 / np.pi, 0.0], (64, 1))
    arrays = [np.zeros((64, 5), np.float32), np.zeros((64, 2)), x, y, z]
    return Run(arrays, {0: (np.array(rows, np.float32), 0.0), 1: (bits, 2.0**-53)})


@program(
    """
    typedef _Float16 h4 __attribute__((ext_vector_type(4))); typedef _Float16 h8 __attribute__((ext_vector_type(8)));
    typedef float f4 __attribute__((ext_vector_type(4)));
    KERNEL void k(GLOBAL float *out, GLOBAL h4 *a, GLOBAL h8 *b, GLOBAL i32 *index) {
      int t = TID; f4 c = {1, 1, 1, 1};
      c = __builtin_amdgcn_smfmac_f32_16x16x32_f16(a[t], b[t], c, index[t], 0, 2);
      for (int i = 0; i < 4; i++) out[(t / 16 * 4 + i) * 16 + t % 16] = c[i];
    }""",
)
def sparse_matrix_instruction(rng: np.random.Generator) -> Run:
    """Two of four elements of A; set 2 of the index register."""
    a, b = rng.integers(-8, 8, (64, 4)).astype(np.float16), rng.integers(-8, 8, (64, 8)).astype(np.float16)
    index = rng.integers(0, 1 << 31, 64).astype(np.int32)
    dense, right = np.zeros((16, 32)), np.zeros((32, 16))
    for lane in range(64):
        row, part = lane % 16, lane // 16
        right[8 * part : 8 * part + 8, row] = b[lane]
        for e in range(4):
            dense[row, 8 * part + e // 2 * 4 + (int(index[lane]) >> 16 + 2 * e & 3)] += a[lane, e]
    return Run([np.zeros((16, 16), np.float32), a, b, index], {0: (dense @ right + 1, 0.0)})


@program(
    """
    typedef float v32 __attribute__((ext_vector_type(32))); typedef u32 u6 __attribute__((ext_vector_type(6)));
    KERNEL void k(GLOBAL float *out, GLOBAL v32 *in, GLOBAL u32 *seed) {
      int t = TID; u6 packed = __builtin_amdgcn_cvt_scalef32_sr_pk32_fp6_f32(in[t], seed[t], 0.5f);
      v32 back = __builtin_amdgcn_cvt_scalef32_pk32_f32_fp6(packed, 4.0f);
      for (int i = 0; i < 32; i++) out[t * 32 + i] = back[i];
    }""",
    chips=("gfx950",),
)
def six_bit_floats(rng: np.random.Generator) -> Run:
    """Numbers that e2m3 holds after division by 1/2 survive any random bits, and come back times 4."""
    codes = rng.integers(0, 32, (64, 32))
    exponent, mantissa = codes >> 3, codes & 7
    magnitude = np.where(exponent == 0, mantissa / 8, (1 + mantissa / 8) * 2.0 ** (exponent - 1))
    values = (magnitude * rng.choice([-1, 1], codes.shape)).astype(np.float32)
    seed = rng.integers(0, 1 << 32, 64, dtype=np.uint32)
    return Run([np.zeros((64, 32), np.float32), values / 2, seed], {0: (values * 4, 0.0)})


@program(
    """
    typedef i32 i2v __attribute__((ext_vector_type(2))); typedef i32 i3v __attribute__((ext_vector_type(3)));
    SHARED u32 s[512];
    KERNEL void k(GLOBAL u32 *out, GLOBAL u32 *in) {
      int t = TID;
      for (int i = 0; i < 5; i++) s[i * 64 + t] = in[i * 64 + t];
      BARRIER();
      i2v a = __builtin_amdgcn_ds_read_tr4_b64_v2i32((LDS i2v *)s + t);
      i3v b = __builtin_amdgcn_ds_read_tr6_b96_v3i32((LDS i3v *)(s + 128 + 3 * t));
      for (int i = 0; i < 2; i++) out[5 * t + i] = a[i];
      for (int i = 0; i < 3; i++) out[5 * t + 2 + i] = b[i];
    }""",
    chips=("gfx950",),
)
def transposing_reads(rng: np.random.Generator) -> Run:
    x = rng.integers(0, 1 << 32, 320, dtype=np.uint32)
    out = np.zeros((64, 5), np.uint32)
    for lane in range(64):
        for bits, first, words, column in ((4, 0, 2, 0), (6, 128, 3, 2)):
            word = 0
            for e in range(16):
                start = first + words * (lane // 16 * 16 + e)
                held = int.from_bytes(x[start : start + words].tobytes(), "little")
                word |= (held >> bits * (lane % 16) & (1 << bits) - 1) << bits * e
            out[lane, column : column + words] = [word >> 32 * i & 0xFFFFFFFF for i in range(words)]
    return Run([np.zeros((64, 5), np.uint32), x], {0: (out, 0.0)})
