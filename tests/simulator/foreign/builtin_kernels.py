"""Builtins that need a kernel of their own: addresses, values of the whole wave, launch state; and those left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from tileir.simulator.spec import memory as memory_spec
from tileir.simulator.spec.core import VECTOR

Array = np.ndarray[Any, Any]
LANES = np.arange(64)
_BOTH = ("gfx942", "gfx950")
_UNSELECTED = "clang accepts it, LLVM 22 cannot select an instruction for the chip"
LEFT_OUT: dict[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("mfma_f32_16x16x2bf16", "mfma_f32_16x16x8bf16", "mfma_f32_32x32x2bf16", "mfma_f32_32x32x4bf16",
         "mfma_f32_4x4x2bf16", "mfma_i32_16x16x16i8", "mfma_i32_32x32x8i8", "log_clampf", "trig_preopf",
         "buffer_wbinvl1", "buffer_wbinvl1_vol", "interp_mov", "interp_p1", "interp_p1_f16", "interp_p2", "interp_p2_f16"),
        (_UNSELECTED, _BOTH),
    ),
    **dict.fromkeys(("fdot2c_f32_bf16", "mfma_f32_16x16x8_xf32", "mfma_f32_32x32x4_xf32"), (_UNSELECTED, ("gfx950",))),
    **dict.fromkeys(
        ("ds_gws_barrier", "ds_gws_init", "ds_gws_sema_br", "ds_gws_sema_p", "ds_gws_sema_release_all", "ds_gws_sema_v"),
        ("global wave sync is not executed", _BOTH),
    ),
    **dict.fromkeys(("get_fpenv", "set_fpenv"), ("exceptions are not recorded: TRAPSTS is not there", _BOTH)),
    "s_sendmsghalt": ("the wave would wait for the host for ever", _BOTH),
}  # fmt: skip


def left_out(name: str, chip: str) -> bool:
    return name in LEFT_OUT and chip in LEFT_OUT[name][1]


@dataclass
class Run:
    """arrays: contents of the pointer arguments. expected: by position what they hold afterwards; a function looks at the
    array itself."""

    arrays: list[Array]
    expected: dict[int, Array | Callable[[Array], bool]]
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (64, 1, 1)


@dataclass
class Kernel:
    """source: parameters and body of the kernel."""

    source: str
    run: Callable[[np.random.Generator], Run]
    chips: tuple[str, ...] = field(default=_BOTH)


KERNELS: dict[str, Kernel] = {}
PREAMBLE = "#define FLAT __attribute__((address_space(0)))\n"
B = "__builtin_amdgcn_"


# ---- no effect on values
for _name, _arguments in {
    "wave_barrier": "", "sched_barrier": "0", "sched_group_barrier": "8, 1, 0", "iglp_opt": "0", "s_sleep": "1",
    "s_setprio": "2", "s_incperflevel": "1", "s_decperflevel": "1", "s_dcache_inv": "", "s_dcache_inv_vol": "",
    "s_dcache_wb": "", "s_waitcnt": "0", "fence": '__ATOMIC_SEQ_CST, "agent"', "s_barrier": "", "s_sendmsg": "1, 0",
    "s_ttracedata": "5",
}.items():  # fmt: skip
    KERNELS[_name] = Kernel(
        f"(GLOBAL i32 *out) {{ {B}{_name}({_arguments}); out[TID] = TID + 1; }}",
        lambda rng: Run([np.zeros(64, np.int32)], {0: LANES + 1}),
    )
KERNELS["endpgm"] = Kernel(
    f"(GLOBAL i32 *out) {{ out[TID] = 5; if (out[64]) {B}endpgm(); out[TID] = 6; }}",
    lambda rng: Run([np.ones(65, np.int32)], {0: np.array([5] * 64 + [1])}),
)


# ---- launch state
_GRID, _BLOCK = (2, 3, 2), (4, 8, 2)


def _ids(value: Callable[[int, int, int, int, int, int], int]) -> Callable[[np.random.Generator], Run]:
    """Work items in order of x, y, z, workgroups likewise."""
    want = [
        value(wx, wy, wz, x, y, z)
        for wz in range(2)
        for wy in range(3)
        for wx in range(2)
        for z in range(2)
        for y in range(8)
        for x in range(4)
    ]
    return lambda rng: Run([np.zeros(768, np.int32)], {0: np.array(want)}, _GRID, _BLOCK)


_AT = (
    "int wg = __builtin_amdgcn_workgroup_id_x() + 2 * (__builtin_amdgcn_workgroup_id_y() + 3 * __builtin_amdgcn_workgroup_id_z());"
    "int t = __builtin_amdgcn_workitem_id_x() + 4 * (__builtin_amdgcn_workitem_id_y() + 8 * __builtin_amdgcn_workitem_id_z());"
)
for _i, _axis in enumerate("xyz"):
    for _name, _value in {
        f"workgroup_id_{_axis}": lambda *p, i=_i: p[i],
        f"workitem_id_{_axis}": lambda *p, i=_i: p[3 + i],
        f"workgroup_size_{_axis}": lambda *p, i=_i: _BLOCK[i],
        f"grid_size_{_axis}": lambda *p, i=_i: _GRID[i] * _BLOCK[i],
    }.items():
        KERNELS[_name] = Kernel(f"(GLOBAL i32 *out) {{ {_AT} out[64 * wg + t] = {B}{_name}(); }}", _ids(_value))
KERNELS["wavefrontsize"] = Kernel(
    f"(GLOBAL i32 *out) {{ out[TID] = {B}wavefrontsize(); }}",
    lambda rng: Run([np.zeros(64, np.int32)], {0: np.full(64, 64)}),
)
KERNELS["groupstaticsize"] = Kernel(
    f"(GLOBAL i32 *out) {{ SHARED i32 s[200]; s[TID] = TID; BARRIER(); out[TID] = {B}groupstaticsize() + s[63 - TID] - 63 + TID; }}",
    lambda rng: Run([np.zeros(64, np.int32)], {0: np.full(64, 800)}),
)
KERNELS["kernarg_segment_ptr"] = Kernel(
    f"(GLOBAL i64 *out) {{ out[TID] = *(__attribute__((address_space(4))) i64 *){B}kernarg_segment_ptr() == (i64)out; }}",
    lambda rng: Run([np.zeros(64, np.int64)], {0: np.ones(64)}),
)
KERNELS["implicitarg_ptr"] = Kernel(  # hidden arguments: block counts x, y, z; then group sizes as 16-bit numbers
    f"(GLOBAL i32 *out) {{ {_AT} out[64 * wg + t] = ((__attribute__((address_space(4))) i32 *){B}implicitarg_ptr())[1] * 1000"
    f" + ((__attribute__((address_space(4))) u16 *){B}implicitarg_ptr())[7]; }}",
    _ids(lambda *p: 3008),
)
KERNELS["dispatch_ptr"] = Kernel(  # AQL packet: workgroup sizes from byte 4, grid sizes from byte 12
    f"(GLOBAL i32 *out) {{ {_AT} out[64 * wg + t] = ((__attribute__((address_space(4))) u16 *){B}dispatch_ptr())[3] * 1000"
    f" + ((__attribute__((address_space(4))) i32 *){B}dispatch_ptr())[4]; }}",
    _ids(lambda *p: 8024),
)
KERNELS["queue_ptr"] = Kernel(
    f"(GLOBAL i32 *out) {{ out[TID] = {B}queue_ptr() != 0; }}",
    lambda rng: Run([np.zeros(64, np.int32)], {0: np.ones(64)}),
)
KERNELS["is_shared"] = Kernel(
    f"(GLOBAL i32 *out) {{ SHARED i32 s[64]; i32 here; s[TID] = 1; FLAT void *p[3] = {{ (FLAT void *)s, (FLAT void *)&here, (FLAT void *)out }};"
    f" here = {B}is_shared(p[TID % 3]); out[TID] = here; }}",
    lambda rng: Run([np.zeros(64, np.int32)], {0: LANES % 3 == 0}),
)
KERNELS["is_private"] = Kernel(
    f"(GLOBAL i32 *out) {{ SHARED i32 s[64]; i32 here; s[TID] = 1; FLAT void *p[3] = {{ (FLAT void *)s, (FLAT void *)&here, (FLAT void *)out }};"
    f" here = {B}is_private(p[TID % 3]); out[TID] = here; }}",
    lambda rng: Run([np.zeros(64, np.int32)], {0: LANES % 3 == 1}),
)


# ---- clocks, modes, program counter, masks
for _name in ("s_memtime", "s_memrealtime"):
    KERNELS[_name] = Kernel(
        f"(GLOBAL i64 *out) {{ i64 a = {B}{_name}(); out[TID] = a; i64 b = {B}{_name}(); out[64 + TID] = b; }}",
        lambda rng: Run([np.zeros(128, np.int64)], {0: lambda got: bool((got[64:] > got[:64]).all())}),
    )
KERNELS["s_getpc"] = Kernel(
    f"(GLOBAL i64 *out) {{ out[TID] = {B}s_getpc(); }}",
    lambda rng: Run([np.zeros(64, np.int64)], {0: lambda got: bool((got == got[0]).all() and got[0] > 0)}),
)
_MODE = 1 | 0 << 6 | 3 << 11  # rounding of f32 and of f64 and f16
KERNELS["s_getreg"] = Kernel(
    f"(GLOBAL i32 *out) {{ out[TID] = {B}s_getreg({_MODE}); }}",
    lambda rng: Run([np.zeros(64, np.int32)], {0: np.zeros(64)}),
)
KERNELS["s_setreg"] = Kernel(
    "(GLOBAL float *out, GLOBAL float *x) { float a = x[TID];"
    + "".join(
        f'{B}s_setreg({_MODE}, {mode}); asm volatile("" : "+v"(a)); out[{at} + TID] = a + 0x1p-40f;'
        for mode, at in ((1, 0), (2, 64), (0, 128))
    )
    + "}",
    lambda rng: Run(
        [np.zeros(192, np.float32), np.ones(64, np.float32)],
        {0: np.repeat(np.array([1 + 2.0**-23, 1, 1], np.float32), 64)},
    ),
)
KERNELS["read_exec"] = Kernel(
    f"(GLOBAL u64 *out) {{ out[TID] = 0; if (TID % 3 == 1) out[TID] = {B}read_exec(); }}",
    lambda rng: Run([np.zeros(64, np.uint64)], {0: np.where(LANES % 3 == 1, sum(1 << i for i in range(1, 64, 3)), 0)}),
)
for _name, _shift in (("read_exec_lo", 0), ("read_exec_hi", 32)):
    KERNELS[_name] = Kernel(
        f"(GLOBAL u32 *out) {{ out[TID] = 0; if (TID % 3 == 1) out[TID] = {B}{_name}(); }}",
        lambda rng, s=_shift: Run(
            [np.zeros(64, np.uint32)],
            {0: np.where(LANES % 3 == 1, sum(1 << i for i in range(1, 64, 3)) >> s & 0xFFFFFFFF, 0)},
        ),
    )
KERNELS["inverse_ballot_w64"] = Kernel(
    f"(GLOBAL u32 *out, GLOBAL u64 *mask) {{ out[TID] = {B}inverse_ballot_w64(mask[0]); }}",
    lambda rng: Run([np.zeros(64, np.uint32), np.array([0xF0F0123456789ABC], np.uint64)],
                    {0: np.array([0xF0F0123456789ABC >> i & 1 for i in range(64)])}),
)  # fmt: skip


# ---- division
def _division(dtype: Any, spec: str) -> Callable[[np.random.Generator], Run]:
    def run(rng: np.random.Generator) -> Run:
        x, y = (np.ldexp(rng.normal(size=64), rng.integers(-120, 120, 64)).astype(dtype) for _ in range(2))
        x[:4], y[:4] = [1, 0, np.inf, 1e-40], [1e-40, 1, 2, 3]
        with np.errstate(all="ignore"):
            high, mask = VECTOR[spec].function(x, y, x)  # type: ignore[misc]
            low, _ = VECTOR[spec].function(y, y, x)  # type: ignore[misc]
        return Run([np.zeros(128, dtype), x, y, np.zeros(64, np.int32)], {0: np.concatenate([high, low]), 3: mask})

    return run


for _name, _type, _dtype, _spec in (
    ("div_scale", "double", np.float64, "v_div_scale_f64"),
    ("div_scalef", "float", np.float32, "v_div_scale_f32"),
):
    KERNELS[_name] = Kernel(
        f"(GLOBAL {_type} *out, GLOBAL {_type} *x, GLOBAL {_type} *y, GLOBAL i32 *m) {{ _Bool a, b;"
        f" out[TID] = {B}{_name}(x[TID], y[TID], 1, &a); out[64 + TID] = {B}{_name}(x[TID], y[TID], 0, &b);"
        f" m[TID] = a; }}",
        _division(_dtype, _spec),
    )
for _name, _type, _dtype in (("rsq_clamp", "double", np.float64), ("rsq_clampf", "float", np.float32)):

    def _clamped(rng: np.random.Generator, dtype: Any = _dtype) -> Run:
        x = np.concatenate(
            [np.array([0, 1, 4, 0.25], dtype), np.ldexp(rng.uniform(1, 2, 60), rng.integers(-60, 60, 60)).astype(dtype)]
        )
        largest = np.finfo(dtype).max
        with np.errstate(all="ignore"):
            want = np.minimum(1 / np.sqrt(x.astype(np.float64)), float(largest))
        near = 2 * np.finfo(dtype).eps
        return Run([np.zeros(64, dtype), x], {0: lambda got: bool((np.abs(got / want - 1) <= near).all())})

    KERNELS[_name] = Kernel(f"(GLOBAL {_type} *out, GLOBAL {_type} *x) {{ out[TID] = {B}{_name}(x[TID]); }}", _clamped)


# ---- atomics: eight cells, all lanes; small integers, so that sums are exact in every order
def _atomic(dtype: Any, operation: str, shared: bool) -> Callable[[np.random.Generator], Run]:
    def run(rng: np.random.Generator) -> Run:
        width = 2 if dtype in (np.float16, ml_dtypes.bfloat16) else 1
        start = rng.integers(-8, 8, (8, width)).astype(np.float64)
        data = rng.integers(-3, 4, (64, width)).astype(np.float64)
        want = start.copy()
        for lane in range(64):
            cell = want[lane % 8]
            want[lane % 8] = {
                "add": cell + data[lane],
                "min": np.minimum(cell, data[lane]),
                "max": np.maximum(cell, data[lane]),
            }[operation]
        out, x = start.astype(dtype).reshape(-1), data.astype(dtype).reshape(-1)
        return Run([out, x], {0: want.astype(dtype).reshape(-1)})

    return run


_CELLS = {
    "f32": ("float", np.float32), "f64": ("double", np.float64), "v2f16": ("v2half", np.float16),
    "v2bf16": ("v2i16", ml_dtypes.bfloat16),
}  # fmt: skip


def _in_lds(c: str, call: str) -> str:
    """Cells in LDS, filled from and copied to global memory."""
    return (
        f"(GLOBAL {c} *out, GLOBAL {c} *x) {{ SHARED {c} s[8]; if (TID < 8) s[TID] = out[TID]; BARRIER(); {call} BARRIER();"
        " if (TID < 8) out[TID] = s[TID]; }"
    )


for _kind, (_c, _dtype) in _CELLS.items():
    for _space in ("global", "flat"):
        _cast = "(GLOBAL {0} *)" if _space == "global" else "(FLAT {0} *)"
        KERNELS[f"{_space}_atomic_fadd_{_kind}"] = Kernel(
            f"(GLOBAL {_c} *out, GLOBAL {_c} *x) {{ {B}{_space}_atomic_fadd_{_kind}({_cast.format(_c)}(out + TID % 8), x[TID]); }}",
            _atomic(_dtype, "add", False),
        )
    KERNELS[f"ds_atomic_fadd_{_kind}"] = Kernel(
        _in_lds(_c, f"{B}ds_atomic_fadd_{_kind}(s + TID % 8, x[TID]);"), _atomic(_dtype, "add", True)
    )
for _operation in ("min", "max"):
    for _space in ("global", "flat"):
        _cast = "(GLOBAL double *)" if _space == "global" else "(FLAT double *)"
        KERNELS[f"{_space}_atomic_f{_operation}_f64"] = Kernel(
            f"(GLOBAL double *out, GLOBAL double *x) {{ {B}{_space}_atomic_f{_operation}_f64({_cast}(out + TID % 8), x[TID]); }}",
            _atomic(np.float64, _operation, False),
        )
for _operation in ("add", "min", "max"):
    KERNELS[f"ds_f{_operation}f"] = Kernel(
        _in_lds("float", f"{B}ds_f{_operation}f(s + TID % 8, x[TID], 0, 0, 0);"), _atomic(np.float32, _operation, True)
    )


def _counting(dtype: Any, up: bool) -> Callable[[np.random.Generator], Run]:
    """Wraps around at 5: the number of lanes per cell decides."""

    def run(rng: np.random.Generator) -> Run:
        cells = rng.integers(0, 6, 8).astype(dtype)
        want = cells.copy()
        for lane in range(64):
            old = want[lane % 8]
            want[lane % 8] = (0 if old >= 5 else old + 1) if up else (5 if old == 0 or old > 5 else old - 1)
        return Run([cells], {0: want})

    return run


for _bits, _dtype in ((32, np.uint32), (64, np.uint64)):
    for _way in ("inc", "dec"):
        KERNELS[f"atomic_{_way}{_bits}"] = Kernel(
            f'(GLOBAL u{_bits} *out) {{ {B}atomic_{_way}{_bits}((u{_bits} *)(out + TID % 8), 5, __ATOMIC_RELAXED, "agent"); }}',
            _counting(_dtype, _way == "inc"),
        )
for _name, _sign in (("ds_append", 1), ("ds_consume", -1)):
    KERNELS[_name] = Kernel(
        f"(GLOBAL i32 *out) {{ SHARED i32 s[2]; if (TID == 0) s[1] = 1000; BARRIER();"
        f" i32 old = 0; if (TID % 4) old = {B}{_name}(s + 1); out[TID] = old; BARRIER(); if (TID == 0) out[64] = s[1]; }}",
        lambda rng, sign=_sign: Run(
            [np.zeros(65, np.int32)], {0: np.append(np.where(LANES % 4, 1000, 0), 1000 + 48 * sign)}
        ),
    )


# ---- buffers
_RSRC = "__amdgpu_buffer_rsrc_t r = __builtin_amdgcn_make_buffer_rsrc((void *)x, 0, 1000, 0x20000);"
_UNITS = {
    "b8": ("u8", 1),
    "b16": ("u16", 2),
    "b32": ("u32", 4),
    "b64": ("v2u32", 8),
    "b96": ("v3u32", 12),
    "b128": ("v4u32", 16),
}


def _buffer(size: int, stores: bool) -> Callable[[np.random.Generator], Run]:
    """16 bytes a lane from byte 8 on; what lies beyond byte 1000 reads zero, dword by dword, and is not written."""

    def run(rng: np.random.Generator) -> Run:
        memory = rng.integers(0, 256, 2048).astype(np.uint8)
        other = rng.integers(0, 256, 1024).astype(np.uint8)
        target, source = (memory.copy(), other) if stores else (np.zeros(1024, np.uint8), memory)
        step = min(4, size)
        for lane in range(64):
            for k in range(0, size, step):
                at = 16 * lane + 8 + k
                inside = at + step <= 1000
                if stores and inside:
                    target[at : at + step] = other[16 * lane + k : 16 * lane + k + step]
                elif not stores and inside:
                    target[16 * lane + k : 16 * lane + k + step] = source[at : at + step]
        # a register of three dwords is stored in an array of four
        return Run([memory, other], {0: target}) if stores else Run([memory, np.zeros(1024, np.uint8)], {1: target})

    return run


for _unit, (_c, _size) in _UNITS.items():
    KERNELS[f"raw_buffer_load_{_unit}"] = Kernel(
        f"(GLOBAL u8 *x, GLOBAL u8 *out) {{ {_RSRC} {_c} v = {B}raw_buffer_load_{_unit}(r, 16 * TID, 8, 0);"
        f" __builtin_memcpy((void *)(out + 16 * TID), &v, {_size}); }}",
        _buffer(_size, False),
    )
    KERNELS[f"raw_buffer_store_{_unit}"] = Kernel(
        f"(GLOBAL u8 *x, GLOBAL u8 *in) {{ {_RSRC} {_c} v; __builtin_memcpy(&v, (void *)(in + 16 * TID), {_size});"
        f" {B}raw_buffer_store_{_unit}(v, r, 16 * TID, 8, 0); }}",
        _buffer(_size, True),
    )
KERNELS["make_buffer_rsrc"] = KERNELS["raw_buffer_load_b32"]
for _name, _c, _dtype, _operation in (
    ("add_i32", "i32", np.int32, "add"),
    ("fadd_f32", "float", np.float32, "add"),
    ("fadd_v2f16", "v2half", np.float16, "add"),
    ("fmin_f64", "double", np.float64, "min"),
    ("fmax_f64", "double", np.float64, "max"),
):
    _size = {"i32": 4, "float": 4, "v2half": 4, "double": 8}[_c]
    KERNELS[f"raw_ptr_buffer_atomic_{_name}"] = Kernel(
        f"(GLOBAL {_c} *x, GLOBAL {_c} *in) {{ {_RSRC} {B}raw_ptr_buffer_atomic_{_name}(in[TID], r, TID % 8 * {_size}, 0, 0); }}",
        _atomic(_dtype, _operation, False),
    )


# ---- memory to LDS
def _to_lds(rng: np.random.Generator) -> Run:
    """Lane i fetches dword 63 - i; LDS receives them in the order of the lanes."""
    x = rng.integers(0, 1 << 31, 64).astype(np.int32)
    return Run([np.zeros(64, np.int32), x], {0: x[::-1]})


_FROM_LDS = " __builtin_amdgcn_s_waitcnt(0x70); BARRIER(); out[TID] = s[TID]; }"
KERNELS["global_load_lds"] = Kernel(
    f"(GLOBAL i32 *out, GLOBAL i32 *x) {{ SHARED i32 s[64]; {B}global_load_lds(x + 63 - TID, s, 4, 0, 0);" + _FROM_LDS,
    _to_lds,
)
KERNELS["load_to_lds"] = Kernel(
    f"(GLOBAL i32 *out, GLOBAL i32 *x) {{ SHARED i32 s[64]; {B}load_to_lds(x + 63 - TID, s, 4, 0, 0);" + _FROM_LDS,
    _to_lds,
)
KERNELS["raw_ptr_buffer_load_lds"] = Kernel(
    f"(GLOBAL i32 *out, GLOBAL i32 *x) {{ SHARED i32 s[64]; {_RSRC} {B}raw_ptr_buffer_load_lds(r, s, 4, 252 - 4 * TID, 0, 0, 0);"
    + _FROM_LDS,
    _to_lds,
)
KERNELS["struct_ptr_buffer_load_lds"] = Kernel(
    "(GLOBAL i32 *out, GLOBAL i32 *x) { SHARED i32 s[64];"
    " __amdgpu_buffer_rsrc_t r = __builtin_amdgcn_make_buffer_rsrc((void *)x, 4, 64, 0x20000);"
    f" {B}struct_ptr_buffer_load_lds(r, s, 4, 63 - TID, 0, 0, 0, 0);" + _FROM_LDS,
    _to_lds,
)


# ---- transposing reads
def _transposing(bits: int) -> Callable[[np.random.Generator], Run]:
    size = 12 if bits == 6 else 8

    def run(rng: np.random.Generator) -> Run:
        memory = rng.integers(0, 256, 64 * 16).astype(np.uint8)
        order = rng.permutation(64).astype(np.int32)
        want = memory_spec.transposing_read(memory, (order * 16).tolist(), bits)
        shown = np.zeros((64, 4), np.uint32)
        shown[:, : size // 4] = want.T
        return Run([np.zeros(256, np.uint32), memory, order], {0: shown.reshape(-1)})

    return run


for _name, _bits, _c, _size in (
    ("tr4_b64_v2i32", 4, "v2i32", 8), ("tr8_b64_v2i32", 8, "v2i32", 8), ("tr6_b96_v3i32", 6, "v3i32", 12),
    ("tr16_b64_v4i16", 16, "v4i16", 8), ("tr16_b64_v4f16", 16, "v4half", 8), ("tr16_b64_v4bf16", 16, "v4bf16", 8),
):  # fmt: skip
    KERNELS[f"ds_read_{_name}"] = Kernel(
        "(GLOBAL v4u32 *out, GLOBAL v4u32 *x, GLOBAL i32 *order) { SHARED v4u32 s[64]; s[TID] = x[TID]; BARRIER();"
        f" {_c} v = {B}ds_read_{_name}((LDS {_c} *)(s + order[TID])); v4u32 o = 0; __builtin_memcpy(&o, &v, {_size}); out[TID] = o; }}",
        _transposing(_bits),
        ("gfx950",),
    )
