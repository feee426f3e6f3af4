"""Kernels from LLVM IR, compiled by llvmlite and linked by ziglang: the tool chain of the product, no clang needed."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_compile import CHIPS, from_ir

from tileir.simulator import Simulator
from tileir.simulator.spec import matrix

RNG = np.random.default_rng(5)
both = pytest.mark.parametrize("chip", CHIPS)

HEAD = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
"""


def launch(
    code: bytes, chip: str, arrays: list[np.ndarray], grid: int, block: int, scalars: tuple[int, ...] = ()
) -> list[np.ndarray]:
    simulator = Simulator(chip)
    module = simulator.load(code)
    buffers = [simulator.memory.allocate(a.nbytes) for a in arrays]
    for buffer, array in zip(buffers, arrays, strict=True):
        buffer.write(array)
    module.launch("k", (grid, 1, 1), (block, 1, 1), [*buffers, *scalars])
    return [buffer.read(a.dtype).reshape(a.shape) for buffer, a in zip(buffers, arrays, strict=True)]


def element_wise(ty: str, body: str, sources: int, declare: str = "") -> str:
    """out[i] = body of %x0, %x1 … (one load each); the body defines %r."""
    pointers = ", ".join(f"ptr addrspace(1) %p{i}" for i in range(sources + 1))
    loads = "".join(
        f"  %q{i} = getelementptr {ty}, ptr addrspace(1) %p{i}, i64 %w\n  %x{i - 1} = load {ty}, ptr addrspace(1) %q{i}\n"
        for i in range(1, sources + 1)
    )
    return f"""{HEAD}{declare}
define amdgpu_kernel void @k({pointers}) {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %s = shl i32 %g, 6
  %i = or i32 %s, %t
  %w = zext i32 %i to i64
{loads}{body}
  %q0 = getelementptr {ty}, ptr addrspace(1) %p0, i64 %w
  store {ty} %r, ptr addrspace(1) %q0
  ret void
}}
"""


@both
@pytest.mark.parametrize("ty,dtype", [("float", np.float32), ("double", np.float64), ("half", np.float16)])
def test_division(chip: str, ty: str, dtype: type) -> None:
    n = 1024
    info = np.finfo(dtype)
    x, y = (
        (np.ldexp(RNG.uniform(1, 2, n), RNG.integers(info.minexp - 6, info.maxexp, n)) * RNG.choice([-1, 1], n)).astype(
            dtype
        )
        for _ in range(2)
    )
    code = from_ir(element_wise(ty, f"  %r = fdiv {ty} %x0, %x1", 2), chip)
    got = launch(code, chip, [np.zeros(n, dtype), x, y], n // 64, 64)[0]
    with np.errstate(all="ignore"):
        assert np.array_equal(got, x / y, equal_nan=True)


@both
@pytest.mark.parametrize(
    "name,function", [("exp2", np.exp2), ("log2", np.log2), ("sqrt", np.sqrt), ("exp", np.exp), ("log", np.log)]
)
def test_elementary_functions(chip: str, name: str, function: np.ufunc) -> None:
    """Within 4 ulp of f64, over the whole range of positive arguments (exp: where the result is finite)."""
    n = 512
    x = (
        RNG.uniform(-80, 80, n) if "exp" in name else np.ldexp(RNG.uniform(1, 2, n), RNG.integers(-140, 127, n))
    ).astype(np.float32)
    body = f"  %r = call float @llvm.{name}.f32(float %x0)"
    code = from_ir(element_wise("float", body, 1, f"declare float @llvm.{name}.f32(float)\n"), chip)
    got = launch(code, chip, [np.zeros(n, np.float32), x], n // 64, 64)[0]
    want = function(x.astype(np.float64))
    assert (np.abs(got - want) <= 4 * np.spacing(np.abs(want).astype(np.float32))).all()


_MFMA = {
    # intrinsic: (mnemonic, A and B type, D type, chips)
    "f32.32x32x8f16": ("v_mfma_f32_32x32x8_f16", "<4 x half>", "<16 x float>", CHIPS),
    "f32.16x16x16f16": ("v_mfma_f32_16x16x16_f16", "<4 x half>", "<4 x float>", CHIPS),
    "f32.32x32x8bf16.1k": ("v_mfma_f32_32x32x8_bf16", "<4 x i16>", "<16 x float>", CHIPS),
    "f32.16x16x16bf16.1k": ("v_mfma_f32_16x16x16_bf16", "<4 x i16>", "<4 x float>", CHIPS),
    "f32.32x32x4f16": ("v_mfma_f32_32x32x4_2b_f16", "<4 x half>", "<32 x float>", CHIPS),
    "f32.16x16x4f16": ("v_mfma_f32_16x16x4_4b_f16", "<4 x half>", "<16 x float>", CHIPS),
    "f32.4x4x4f16": ("v_mfma_f32_4x4x4_16b_f16", "<4 x half>", "<4 x float>", CHIPS),
    "f32.32x32x2f32": ("v_mfma_f32_32x32x2_f32", "float", "<16 x float>", CHIPS),
    "f32.16x16x4f32": ("v_mfma_f32_16x16x4_f32", "float", "<4 x float>", CHIPS),
    "i32.32x32x16.i8": ("v_mfma_i32_32x32x16_i8", "i64", "<16 x i32>", CHIPS),
    "i32.16x16x32.i8": ("v_mfma_i32_16x16x32_i8", "i64", "<4 x i32>", CHIPS),
    "f32.16x16x32.fp8.bf8": ("v_mfma_f32_16x16x32_fp8_bf8", "i64", "<4 x float>", CHIPS),
    "f32.32x32x16.bf8.fp8": ("v_mfma_f32_32x32x16_bf8_fp8", "i64", "<16 x float>", CHIPS),
    "f64.16x16x4f64": ("v_mfma_f64_16x16x4_f64", "double", "<4 x double>", CHIPS),
    "f64.4x4x4f64": ("v_mfma_f64_4x4x4_4b_f64", "double", "double", CHIPS),
    "f32.16x16x8.xf32": ("v_mfma_f32_16x16x8_xf32", "<2 x float>", "<4 x float>", ("gfx942",)),
    "f32.16x16x32.bf16": ("v_mfma_f32_16x16x32_bf16", "<8 x bfloat>", "<4 x float>", ("gfx950",)),
    "f32.32x32x16.bf16": ("v_mfma_f32_32x32x16_bf16", "<8 x bfloat>", "<16 x float>", ("gfx950",)),
    "f32.16x16x32.f16": ("v_mfma_f32_16x16x32_f16", "<8 x half>", "<4 x float>", ("gfx950",)),
    "i32.32x32x32.i8": ("v_mfma_i32_32x32x32_i8", "<4 x i32>", "<16 x i32>", ("gfx950",)),
}
_DTYPES = {"f16": np.float16, "f32": np.float32, "xf32": np.float32, "f64": np.float64, "i8": np.int8}


def _operand(kind: str, chip: str, items: int) -> np.ndarray:
    """Small integers of a format, 64 lanes of ``items`` elements, as bytes."""
    values = RNG.integers(-3, 4, (64, items))
    if kind in _DTYPES:
        return values.astype(_DTYPES[kind]).view(np.uint8)
    if kind == "bf16":
        return np.ascontiguousarray(values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    small = kind + ("fnuz" if chip == "gfx942" else "")
    codes = [matrix.encode_small(float(x), small) for x in range(-3, 4)]
    return np.array(codes, np.uint8)[values + 3]


@both
@pytest.mark.parametrize("intrinsic", sorted(_MFMA))
def test_mfma_intrinsics(chip: str, intrinsic: str) -> None:
    mnemonic, ab, d, chips = _MFMA[intrinsic]
    if chip not in chips:
        pytest.skip(f"not on {chip}")
    result, m, k, blocks, kinds = matrix.parse(mnemonic)
    per_lane = 1 if kinds[0] == "f64" else k if blocks > 1 else k * m // 64
    n = m * m * blocks // 64
    name = f"llvm.amdgcn.mfma.{intrinsic}"
    body = f"""{HEAD}
declare {d} @{name}({ab}, {ab}, {d}, i32 immarg, i32 immarg, i32 immarg)
define amdgpu_kernel void @k(ptr addrspace(1) %pd, ptr addrspace(1) %pa, ptr addrspace(1) %pb) {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %i = zext i32 %t to i64
  %qa = getelementptr {ab}, ptr addrspace(1) %pa, i64 %i
  %qb = getelementptr {ab}, ptr addrspace(1) %pb, i64 %i
  %qd = getelementptr {d}, ptr addrspace(1) %pd, i64 %i
  %a = load {ab}, ptr addrspace(1) %qa
  %b = load {ab}, ptr addrspace(1) %qb
  %c = load {d}, ptr addrspace(1) %qd
  %r = call {d} @{name}({ab} %a, {ab} %b, {d} %c, i32 0, i32 0, i32 0)
  store {d} %r, ptr addrspace(1) %qd
  ret void
}}
attributes #0 = {{ nounwind }}
"""
    dtype = {"f32": np.float32, "f64": np.float64, "i32": np.int32}[result]
    a, b = _operand(kinds[0], chip, per_lane), _operand(kinds[1], chip, per_lane)
    c = RNG.integers(-50, 50, (64, n)).astype(dtype)
    got = launch(from_ir(body, chip), chip, [c, a, b], 1, 64)[0]
    registers = [np.ascontiguousarray(x.reshape(64, -1).view(np.uint32).T) for x in (a, b, c)]
    want, _ = matrix.multiply(mnemonic, chip, *registers)
    assert np.array_equal(got.T.astype(np.float64), want)


@both
def test_lds_transpose(chip: str) -> None:
    """A 64 by 64 transposition through LDS by four waves, with a barrier that LLVM surrounds with waits."""
    text = f"""{HEAD}
@t = internal addrspace(3) global [4160 x i32] poison, align 16
declare void @llvm.amdgcn.s.barrier()
define amdgpu_kernel void @k(ptr addrspace(1) %out, ptr addrspace(1) %in) #0 {{
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %c = and i32 %t, 63
  %r0 = lshr i32 %t, 6
  br label %a
a:
  %r = phi i32 [ %r0, %entry ], [ %r1, %a ]
  %m = shl i32 %r, 6
  %i = or i32 %m, %c
  %w = zext i32 %i to i64
  %p = getelementptr i32, ptr addrspace(1) %in, i64 %w
  %x = load i32, ptr addrspace(1) %p
  %l0 = mul i32 %r, 65
  %l = add i32 %l0, %c
  %q = getelementptr i32, ptr addrspace(3) @t, i32 %l
  store i32 %x, ptr addrspace(3) %q
  %r1 = add i32 %r, 4
  %more = icmp ult i32 %r1, 64
  br i1 %more, label %a, label %sync
sync:
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  br label %b
b:
  %s = phi i32 [ %r0, %sync ], [ %s1, %b ]
  %k0 = mul i32 %c, 65
  %k = add i32 %k0, %s
  %u = getelementptr i32, ptr addrspace(3) @t, i32 %k
  %y = load i32, ptr addrspace(3) %u
  %n = shl i32 %s, 6
  %j = or i32 %n, %c
  %z = zext i32 %j to i64
  %v = getelementptr i32, ptr addrspace(1) %out, i64 %z
  store i32 %y, ptr addrspace(1) %v
  %s1 = add i32 %s, 4
  %again = icmp ult i32 %s1, 64
  br i1 %again, label %b, label %done
done:
  ret void
}}
attributes #0 = {{ nounwind "amdgpu-flat-work-group-size"="256,256" }}
"""
    x = RNG.integers(0, 1 << 31, (64, 64)).astype(np.uint32)
    got = launch(from_ir(text, chip), chip, [np.zeros_like(x), x], 1, 256)[0]
    assert np.array_equal(got, x.T)


@both
def test_flushed_denormals(chip: str) -> None:
    """A kernel whose descriptor asks for flushed f32 denormals, also across the mode switch of LLVM's division."""
    text = element_wise("float", "  %a = fmul float %x0, 5.000000e-01\n  %r = fdiv float %a, %x1", 2).replace(
        "{\n  %t", "#0 {\n  %t", 1
    )
    text += 'attributes #0 = { "denormal-fp-math-f32"="preserve-sign,preserve-sign" }\n'
    x = np.array([2.0**-126, -(2.0**-126), 2.0**-140, 3.0] * 16, np.float32)
    y = np.array([1.0, 1.0, 2.0**-100, 7.0] * 16, np.float32)
    got = launch(from_ir(text, chip), chip, [np.zeros(64, np.float32), x, y], 1, 64)[0]
    assert got[:4].tolist() == [0.0, -0.0, 0.0, float(np.float32(1.5) / np.float32(7.0))]
    assert np.signbit(got[:4]).tolist() == [False, True, False, False]
