"""C kernels compiled by clang, run on the simulator, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_compile import CHIPS, from_c

from tileir.simulator import Simulator

RNG = np.random.default_rng(7)

both = pytest.mark.parametrize("chip", CHIPS)


def run(
    chip: str,
    source: str,
    arrays: list[np.ndarray],
    scalars: tuple[int | float, ...] = (),
    grid: int = 1,
    block: int = 64,
    kernel: str = "k",
    options: tuple[str, ...] = (),
) -> list[np.ndarray]:
    """Launches ``kernel(arrays…, scalars…)`` and returns the arrays afterwards."""
    simulator = Simulator(chip)
    module = simulator.load(from_c(source, chip, *options))
    buffers = [simulator.memory.allocate(array.nbytes, f"argument {i}") for i, array in enumerate(arrays)]
    for buffer, array in zip(buffers, arrays, strict=True):
        buffer.write(array)
    module.launch(kernel, (grid, 1, 1), (block, 1, 1), [*buffers, *scalars])
    return [buffer.read(array.dtype).reshape(array.shape) for buffer, array in zip(buffers, arrays, strict=True)]


def map_kernel(types: str, expression: str) -> str:
    """A kernel ``out[i] = expression`` of x[i], y[i], z[i]; types of out, x, y, z."""
    out, *ins = types.split()
    names = "xyz"[: len(ins)]
    parameters = ", ".join(f"GLOBAL {t} *p{n}" for t, n in zip(ins, names, strict=True))
    loads = " ".join(f"{t} {n} = p{n}[i];" for t, n in zip(ins, names, strict=True))
    return f"KERNEL void k(GLOBAL {out} *o, {parameters}) {{ int i = WG * 64 + TID; {loads} o[i] = {expression}; }}"


def special_floats(dtype: type, n: int) -> np.ndarray:
    info = np.finfo(dtype)
    edge = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        info.max,
        -info.max,
        info.tiny,
        -info.tiny,
        info.smallest_subnormal,
        np.inf,
        -np.inf,
        np.nan,
        3.0,
        0.1,
    ]
    wide = np.ldexp(RNG.uniform(1, 2, n), RNG.integers(info.minexp - 8, info.maxexp, n)) * RNG.choice([-1, 1], n)
    values = wide.astype(dtype)
    values[: len(edge) ** 2] = np.tile(np.array(edge, dtype), len(edge))[: min(n, len(edge) ** 2)]
    return values


@both
def test_vector_add_with_tail(chip: str) -> None:
    source = "KERNEL void k(GLOBAL float *a, GLOBAL float *b, GLOBAL float *c, int n) { int i = WG * 256 + TID; if (i < n) c[i] = a[i] + b[i]; }"
    n = 1000
    a, b = RNG.normal(size=n).astype(np.float32), RNG.normal(size=n).astype(np.float32)
    result = run(chip, source, [a, b, np.zeros(n, np.float32)], (n,), grid=4, block=256)
    assert np.array_equal(result[2], a + b)


@both
@pytest.mark.parametrize("dtype,name", [(np.float32, "float"), (np.float64, "double")])
def test_division_is_correctly_rounded(chip: str, dtype: type, name: str) -> None:
    n = 4096
    x, y = special_floats(dtype, n), np.repeat(special_floats(dtype, 64), 64)[RNG.permutation(n)]
    x[:196], y[:196] = x[:196], np.repeat(x[:14], 14)
    got = run(chip, map_kernel(f"{name} {name} {name}", "x / y"), [np.zeros(n, dtype), x, y], grid=n // 64)[0]
    with np.errstate(all="ignore"):
        want = x / y
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    assert same.all(), (x[~same][:4], y[~same][:4], got[~same][:4], want[~same][:4])
    zero = want == 0
    assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@both
@pytest.mark.parametrize("dtype,name", [(np.float32, "float"), (np.float64, "double")])
def test_square_root_is_correctly_rounded(chip: str, dtype: type, name: str) -> None:
    n = 1024
    x = np.abs(special_floats(dtype, n))
    function = "__builtin_sqrtf(x)" if dtype is np.float32 else "__builtin_sqrt(x)"
    got = run(chip, map_kernel(f"{name} {name}", function), [np.zeros(n, dtype), x], grid=n // 64)[0]
    assert np.array_equal(got, np.sqrt(x), equal_nan=True)


@both
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("signed", [True, False])
def test_integer_division(chip: str, bits: int, signed: bool) -> None:
    n = 512
    dtype = np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
    ty = f"{'i' if signed else 'u'}{bits}"
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max, n, dtype=dtype, endpoint=True)
    y = RNG.integers(info.min, info.max, n, dtype=dtype, endpoint=True) >> RNG.integers(0, bits, n).astype(dtype)
    y[y == 0] = 7
    source = f"""
    KERNEL void k(GLOBAL {ty} *q, GLOBAL {ty} *r, GLOBAL {ty} *x, GLOBAL {ty} *y) {{
      int i = WG * 64 + TID; q[i] = x[i] / y[i]; r[i] = x[i] % y[i]; }}"""
    q, r, _, _ = run(chip, source, [np.zeros(n, dtype), np.zeros(n, dtype), x, y], grid=n // 64)
    for i in range(n):
        p, d = int(x[i]), int(y[i])
        quotient = abs(p) // abs(d) * (-1 if (p < 0) != (d < 0) else 1)
        assert int(q[i]) == quotient and int(r[i]) == p - quotient * d


@both
def test_integer_arithmetic(chip: str) -> None:
    n = 256
    x = RNG.integers(0, 1 << 63, n).astype(np.uint64) * np.uint64(2) + np.uint64(1)
    y = RNG.integers(0, 1 << 63, n).astype(np.uint64)
    got = run(
        chip,
        map_kernel("u64 u64 u64", "x * y + (x >> (y & 63)) - (y << (x & 31)) ^ (x / 1000003)"),
        [np.zeros(n, np.uint64), x, y],
        grid=4,
    )[0]
    want = (x * y + (x >> (y & np.uint64(63))) - (y << (x & np.uint64(31)))) ^ (x // np.uint64(1000003))
    assert np.array_equal(got, want)
    i32 = np.int32
    a, b, c = (RNG.integers(-(1 << 31), 1 << 31, n).astype(i32) for _ in range(3))
    expression = "__builtin_popcount(x) + __builtin_clz(x | 1) * 3 + (x > y ? x - z : y ^ z) + (i32)(i8)(x >> 5) + ((x < y ? x : y) | (y > z ? y : z))"
    got = run(chip, map_kernel("i32 i32 i32 i32", expression), [np.zeros(n, i32), a, b, c], grid=4)[0]
    with np.errstate(all="ignore"):
        pop = np.array([int(v & 0xFFFFFFFF).bit_count() for v in a.tolist()], i32)
        clz = np.array([32 - ((v | 1) & 0xFFFFFFFF).bit_length() for v in a.tolist()], i32)
        want = (
            pop
            + clz * 3
            + np.where(a > b, a - c, b ^ c)
            + (a >> 5).astype(np.int8).astype(i32)
            + (np.minimum(a, b) | np.maximum(b, c))
        )
    assert np.array_equal(got, want.astype(i32))


@both
def test_half_and_bfloat(chip: str) -> None:
    n = 512
    x = special_floats(np.float32, n)
    y = RNG.normal(size=n).astype(np.float32)
    got = run(
        chip,
        map_kernel("_Float16 float float", "(_Float16)x * (_Float16)y + (_Float16)1.5f"),
        [np.zeros(n, np.float16), x, y],
        grid=8,
        options=("-ffp-contract=off",),
    )[0]
    with np.errstate(all="ignore"):
        want = x.astype(np.float16) * y.astype(np.float16) + np.float16(1.5)
    assert np.array_equal(got, want, equal_nan=True)
    import ml_dtypes

    got = run(chip, map_kernel("__bf16 float float", "(__bf16)(x + y)"), [np.zeros(n, np.uint16), x, y], grid=8)[0]
    with np.errstate(all="ignore"):
        want = (x + y).astype(ml_dtypes.bfloat16)
    numbers = ~np.isnan(want.astype(np.float32))
    assert np.array_equal(got[numbers], want.view(np.uint16)[numbers])
    assert np.isnan(got.view(ml_dtypes.bfloat16)[~numbers].astype(np.float32)).all()


@both
def test_bytes_and_shorts(chip: str) -> None:
    n = 256
    x, y = RNG.integers(-128, 128, n).astype(np.int8), RNG.integers(0, 1 << 16, n).astype(np.uint16)
    got = run(chip, map_kernel("i16 i8 u16", "(i16)(x * 3 + (y >> 2) - (u8)x)"), [np.zeros(n, np.int16), x, y], grid=4)[
        0
    ]
    want = (x.astype(int) * 3 + (y.astype(int) >> 2) - x.view(np.uint8).astype(int)).astype(np.int16)
    assert np.array_equal(got, want)


@both
def test_lds_reduction(chip: str) -> None:
    source = """
    SHARED float s[256];
    KERNEL __attribute__((amdgpu_flat_work_group_size(256, 256))) void k(GLOBAL float *out, GLOBAL float *in) {
      int t = TID; s[t] = in[WG * 256 + t];
      BARRIER();
      for (int d = 128; d; d >>= 1) { if (t < d) s[t] += s[t + d]; BARRIER(); }
      if (!t) out[WG] = s[0];
    }"""
    x = RNG.normal(size=(5, 256)).astype(np.float32)
    got = run(chip, source, [np.zeros(5, np.float32), x], grid=5, block=256)[0]
    want = x.copy()
    d = 128
    while d:
        want[:, :d] += want[:, d : 2 * d]
        d //= 2
    assert np.array_equal(got, want[:, 0])


@both
def test_divergent_loops(chip: str) -> None:
    source = """
    KERNEL void k(GLOBAL i32 *out, GLOBAL u32 *in) {
      int i = WG * 64 + TID; u32 n = in[i]; int steps = 0;
      while (n != 1) { n = n & 1 ? 3 * n + 1 : n >> 1; steps++; if (steps > 500) break; }
      switch (n & 3) { case 0: steps += 1000; break; case 1: steps += 1; break; default: steps -= 7; }
      out[i] = steps;
    }"""
    x = RNG.integers(1, 10000, 192).astype(np.uint32)
    got = run(chip, source, [np.zeros(192, np.int32), x], grid=3)[0]

    def collatz(n: int) -> int:
        steps = 0
        while n != 1:
            n = (3 * n + 1) & 0xFFFFFFFF if n & 1 else n >> 1
            steps += 1
            if steps > 500:
                break
        return steps + {0: 1000, 1: 1}.get(n & 3, -7)

    assert got.tolist() == [collatz(v) for v in x.tolist()]


@both
def test_scratch_array_with_dynamic_index(chip: str) -> None:
    source = """
    KERNEL void k(GLOBAL i32 *out, GLOBAL i32 *in) {
      int i = WG * 64 + TID; volatile i32 a[40];
      for (int j = 0; j < 40; j++) a[j] = in[i] + j * j;
      int s = 0; for (int j = 0; j < 40; j++) s = s * 3 + a[(in[i] * 7 + j * 11) % 40 & 31];
      out[i] = s;
    }"""
    x = RNG.integers(0, 1000, 128).astype(np.int32)
    got = run(chip, source, [np.zeros(128, np.int32), x], grid=2)[0]
    want = []
    for value in x.tolist():
        total = 0
        for j in range(40):
            total = total * 3 + value + (((value * 7 + j * 11) % 40) & 31) ** 2
        want.append(((total + (1 << 31)) & 0xFFFFFFFF) - (1 << 31))
    assert got.tolist() == want


@both
def test_function_calls(chip: str) -> None:
    source = """
    __attribute__((noinline)) i32 f(i32 a, i32 b) { volatile i32 x = a * b; return x + 1; }
    __attribute__((noinline)) i32 g(i32 a) { return f(a, a + 2) - f(a, 3); }
    KERNEL void k(GLOBAL i32 *out, GLOBAL i32 *in) { int i = TID; if (in[i] & 1) out[i] = g(in[i]); else out[i] = f(in[i], 5); }"""
    x = RNG.integers(-100, 100, 64).astype(np.int32)
    got = run(chip, source, [np.zeros(64, np.int32), x])[0]
    want = np.where(x & 1, x * (x + 2) - x * 3, x * 5 + 1)
    assert np.array_equal(got, want)


@both
def test_atomics(chip: str) -> None:
    source = """
    KERNEL void k(GLOBAL u32 *count, GLOBAL float *sum, GLOBAL u64 *big, GLOBAL u32 *high, GLOBAL u32 *in) {
      int i = WG * 64 + TID; u32 x = in[i];
      __scoped_atomic_fetch_add(&count[x & 7], 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
      __scoped_atomic_fetch_add(&sum[x & 3], 0.5f, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
      __scoped_atomic_fetch_add(&big[0], (u64)x << 20, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
      __scoped_atomic_fetch_max(&high[0], x, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
      u32 old = high[1], want;
      do {
        want = old;
        __scoped_atomic_compare_exchange_n(
            &high[1], &old, want + 3, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
      } while (old != want);
    }"""
    x = RNG.integers(0, 1 << 20, 256).astype(np.uint32)
    arrays = [np.zeros(8, np.uint32), np.zeros(4, np.float32), np.zeros(1, np.uint64), np.zeros(2, np.uint32), x]
    count, total, big, high, _ = run(chip, source, arrays, grid=4)
    assert np.array_equal(count, np.bincount(x & 7, minlength=8))
    assert np.array_equal(total, np.bincount(x & 3, minlength=4) * 0.5)
    assert int(big[0]) == int(x.astype(np.uint64).sum()) << 20
    assert high[0] == x.max() and high[1] == 3 * 256


@both
def test_lds_atomics_and_flat_pointers(chip: str) -> None:
    source = """
    __attribute__((noinline)) void add(u32 *p, u32 v) { *p += v; }
    SHARED u32 s[64]; SHARED u32 total;
    KERNEL void k(GLOBAL u32 *out, GLOBAL u32 *in) {
      int t = TID; if (!t) total = 0; s[t] = in[t]; BARRIER();
      __scoped_atomic_fetch_add(&total, in[t], __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
      u32 local[4] = {t, t + 1, t + 2, t + 3};
      u32 *p = in[t] & 1 ? (u32 *)&s[t] : in[t] & 2 ? &local[in[t] >> 3 & 3] : (u32 *)&out[t];
      out[t] = 0; BARRIER(); add(p, 5); BARRIER();
      out[64 + t] = s[t] + local[0] + local[1] + local[2] + local[3] + total;
    }"""
    x = RNG.integers(0, 1 << 12, 64).astype(np.uint32)
    got = run(chip, source, [np.zeros(128, np.uint32), x])[0]
    t = np.arange(64)
    assert np.array_equal(got[:64], np.where(x & 3, 0, 5))
    assert np.array_equal(got[64:], x + 4 * t + 6 + x.sum() + np.where(x & 3, 5, 0))


@both
def test_three_dimensional_ids_and_hidden_arguments(chip: str) -> None:
    source = """
    typedef __attribute__((address_space(4))) unsigned short *hidden;
    KERNEL void k(GLOBAL u32 *out) {
      u32 x = __builtin_amdgcn_workitem_id_x(), y = __builtin_amdgcn_workitem_id_y(), z = __builtin_amdgcn_workitem_id_z();
      u32 nx = __builtin_amdgcn_workgroup_size_x(), ny = __builtin_amdgcn_workgroup_size_y(), nz = __builtin_amdgcn_workgroup_size_z();
      u32 gx = __builtin_amdgcn_workgroup_id_x(), gy = __builtin_amdgcn_workgroup_id_y(), gz = __builtin_amdgcn_workgroup_id_z();
      u32 cx = __builtin_amdgcn_grid_size_x() / nx, cy = __builtin_amdgcn_grid_size_y() / ny;
      u32 group = (gz * cy + gy) * cx + gx, item = (z * ny + y) * nx + x;
      out[group * nx * ny * nz + item] = x | y << 4 | z << 8 | gx << 12 | gy << 16 | gz << 20;
    }"""
    simulator = Simulator(chip)
    module = simulator.load(from_c(source, chip))
    grid, block = (2, 3, 2), (5, 4, 3)
    total = 12 * 60
    out = simulator.memory.allocate(4 * total)
    module.launch("k", grid, block, [out])
    want = []
    for gz in range(2):
        for gy in range(3):
            for gx in range(2):
                want += [
                    x | y << 4 | z << 8 | gx << 12 | gy << 16 | gz << 20
                    for z in range(3)
                    for y in range(4)
                    for x in range(5)
                ]
    assert out.read(np.uint32).tolist() == want


@both
def test_dpp_row_reduction_and_permutes(chip: str) -> None:
    source = """
    KERNEL void k(GLOBAL i32 *out, GLOBAL i32 *in) {
      int t = TID; i32 x = in[t];
      out[t] = x + __builtin_amdgcn_update_dpp(0, x, 0x111, 0xf, 0xf, 1);
      out[64 + t] = __builtin_amdgcn_update_dpp(-5, x, 0x142, 0xa, 0xf, 0);
      out[128 + t] = __builtin_amdgcn_update_dpp(-7, x, 0x143, 0xc, 0xf, 0);
      out[192 + t] = __builtin_amdgcn_ds_bpermute(4 * ((t * 7 + 3) & 63), x);
      out[256 + t] = __builtin_amdgcn_ds_permute(4 * ((t * 5 + 1) & 63), x);
      out[320 + t] = __builtin_amdgcn_ds_swizzle(x, 0x041F);
      out[384 + t] = __builtin_amdgcn_readlane(x, 13) + __builtin_amdgcn_readfirstlane(x);
      out[448 + t] = __builtin_amdgcn_mov_dpp(x, 0x1B, 0xf, 0xf, 0);
    }"""
    x = RNG.integers(-1000, 1000, 64).astype(np.int32)
    got = run(chip, source, [np.zeros(512, np.int32), x])[0].reshape(8, 64)
    t = np.arange(64)
    assert np.array_equal(got[0], x + np.where(t % 16 == 0, 0, np.roll(x, 1)))
    assert np.array_equal(got[1], np.where(t // 16 % 2 == 1, x[np.maximum(t // 16 * 16 - 1, 0)], -5))
    assert np.array_equal(got[2], np.where(t >= 32, x[31], -7))
    assert np.array_equal(got[3], x[(t * 7 + 3) % 64])
    want = np.zeros(64, np.int32)
    want[(t * 5 + 1) % 64] = x
    assert np.array_equal(got[4], want)
    assert np.array_equal(got[5], x[t ^ 1])
    assert np.array_equal(got[6], np.full(64, x[13] + x[0]))
    assert np.array_equal(got[7], x[t // 4 * 4 + 3 - t % 4])


@both
def test_exp_log_sin(chip: str) -> None:
    n = 256
    x = RNG.uniform(-20, 20, n).astype(np.float32)
    got = run(
        chip,
        map_kernel("float float", "__builtin_exp2f(x) + __builtin_log2f(__builtin_fabsf(x))"),
        [np.zeros(n, np.float32), x],
        grid=4,
    )[0]
    want = np.exp2(x.astype(float)) + np.log2(np.abs(x.astype(float)))
    assert np.allclose(got, want, rtol=3e-7, atol=3e-7)


@both
def test_dynamic_register_index(chip: str) -> None:
    """A small array that LLVM keeps in registers: relative addressing through M0."""
    source = """
    KERNEL void k(GLOBAL i32 *out, GLOBAL i32 *in, int n, int m) {
      int t = TID; i32 a[16];
      for (int j = 0; j < 16; j++) a[j] = in[t * 16 + j] * 3;
      a[n & 15] = 7;
      out[t] = a[m & 15] + a[3]; }"""
    x = RNG.integers(0, 1000, (64, 16)).astype(np.int32)
    for n, m in ((0, 0), (3, 3), (5, 14), (15, 15)):
        got = run(chip, source, [np.zeros(64, np.int32), x], (n, m))[0]
        a = x * 3
        a[:, n] = 7
        assert np.array_equal(got, a[:, m] + a[:, 3])


@both
@pytest.mark.parametrize(
    "waves,n,spills",
    [
        pytest.param(1, 262, "v_accvgpr_write_b32", marks=pytest.mark.nightly),  # clang takes many seconds
        (8, 100, "scratch_store_dword"),
    ],
)
def test_spills(chip: str, waves: int, n: int, spills: str) -> None:
    """More live values than vector registers: LLVM spills to accumulation registers and to scratch memory."""
    source = f"""
    KERNEL __attribute__((amdgpu_flat_work_group_size(64, 64), amdgpu_waves_per_eu({waves}, {waves})))
    void k(GLOBAL i32 *out, GLOBAL volatile i32 *in) {{
      i32 a[{n}];
      #pragma unroll
      for (int j = 0; j < {n}; j++) a[j] = in[j * 64 + TID];
      i32 s = 0;
      #pragma unroll
      for (int j = 0; j < {n}; j++) {{ s = s * 3 + a[j] * a[{n - 1} - j]; }}
      #pragma unroll
      for (int j = 0; j < {n}; j++) {{ s ^= a[(j * 7) % {n}] + j; s = s * 5; }}
      out[TID] = s; }}"""
    x = RNG.integers(-1000, 1000, (n, 64)).astype(np.int32)
    simulator = Simulator(chip)
    module = simulator.load(from_c(source, chip))
    assert spills in {i.name for i in module.program("k").instructions if i}
    out, data = simulator.memory.allocate(256), simulator.memory.allocate(x.nbytes)
    data.write(x)
    module.launch("k", (1, 1, 1), (64, 1, 1), [out, data])
    total = np.zeros(64, np.int32)
    for j in range(n):
        total = total * np.int32(3) + x[j] * x[n - 1 - j]
    for j in range(n):
        total = (total ^ (x[j * 7 % n] + np.int32(j))) * np.int32(5)
    assert np.array_equal(out.read(np.int32), total)


@both
def test_accumulation_registers(chip: str) -> None:
    """Values parked in accumulation registers, which begin at accum_offset of the kernel."""
    source = """
    KERNEL void k(GLOBAL i32 *out, GLOBAL i32 *in) {
      i32 x = in[TID], y = in[64 + TID], p, q;
      __asm__ volatile("v_accvgpr_write_b32 %0, %1" : "=a"(p) : "v"(x));
      __asm__ volatile("v_accvgpr_write_b32 %0, %1" : "=a"(q) : "v"(y));
      x = x * 3 + y; i32 r, s;
      __asm__ volatile("v_accvgpr_read_b32 %0, %1" : "=v"(r) : "a"(p));
      __asm__ volatile("v_accvgpr_read_b32 %0, %1" : "=v"(s) : "a"(q));
      out[TID] = r * 1000 + s + x; }"""
    x = RNG.integers(0, 1000, (2, 64)).astype(np.int32)
    got = run(chip, source, [np.zeros(64, np.int32), x])[0]
    assert np.array_equal(got, x[0] * 1003 + 2 * x[1])
