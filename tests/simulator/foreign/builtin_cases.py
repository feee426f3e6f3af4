"""For each AMDGPU builtin of clang: arguments, and what the specifications say comes out.

Ordinary builtins are called once per lane with arguments from arrays; :data:`CALLS` has their constants and results. Those
that need a kernel of their own (addresses, wave-wide values) are in ``builtin_kernels.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from tileir.simulator.spec import convert, media, scaled, vector_float, vector_int  # noqa: F401  (they fill VECTOR)
from tileir.simulator.spec import lanes as lane_spec
from tileir.simulator.spec import memory as memory_spec
from tileir.simulator.spec.core import DTYPES, VECTOR
from tileir.simulator.spec.matrix import SMALL, decode_small, multiply, parse
from tileir.simulator.spec.sparse import sparse_product
from tileir.simulator.spec.vector_int import CLAMPED, bitop3

Array = np.ndarray[Any, Any]
NUMPY: dict[str, Any] = {
    "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32,
    "i64": np.int64, "u64": np.uint64, "float": np.float32, "double": np.float64, "half": np.float16,
    "bf16": ml_dtypes.bfloat16, "bool_": np.int32,
}  # fmt: skip
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 1e-40, 65504.0, 3e38, 2.5, -3.5, 448.0, 0.25]


@dataclass
class Call:
    """What a call is about. instruction: name of the instruction of the compiled kernel that :attr:`names` of the family
    picks ("" for none). constants: of the parameters that must be. parameters: number of the others. arguments: for each of
    these, [lane] or [lane][element]."""

    builtin: str
    chip: str
    instruction: str
    constants: list[int]
    parameters: int
    arguments: list[Array] = field(default_factory=list[Array])


@dataclass
class Family:
    """constants: tuples to try. expected: the result, [lane] or [lane][element]. picks: prefix of the instruction.
    arguments: own generator (rng, call without arguments, parameter, C element, elements). ulp: allowed error of floats. bits: of an integer result that count.
    fixed: places in the signature of parameters that clang does not call constant, but that must be."""

    expected: Callable[[Call], Array]
    constants: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    picks: str = ""
    arguments: Callable[..., Array] | None = None
    ulp: int = 0
    bits: Callable[[Call], int] = lambda call: -1
    fixed: tuple[int, ...] = ()


def values(rng: np.random.Generator, element: str, count: int) -> Array:
    """Random and special values of a C type: [lane] or, for vectors, [lane][element]."""
    dtype = NUMPY[element]
    shape = (64, count) if count else (64,)
    if element == "bool_":
        return rng.integers(0, 2, shape).astype(dtype)
    if np.dtype(dtype).kind in "iu":
        bits = np.dtype(dtype).itemsize * 8
        raw = rng.integers(0, 1 << 63, shape, dtype=np.uint64) * np.uint64(2) + rng.integers(
            0, 2, shape, dtype=np.uint64
        )
        small = rng.integers(0, 40, shape).astype(np.uint64)
        edge = rng.choice(np.array([0, 1, (1 << bits) - 1, 1 << bits - 1, (1 << bits - 1) - 1], np.uint64), shape)
        pick = rng.integers(0, 3, shape)
        mixed = np.where(pick == 0, raw, np.where(pick == 1, small, edge))
        return mixed.astype(np.dtype(f"u{bits // 8}")).view(dtype)
    wide = np.where(rng.random(shape) < 0.4, rng.choice(np.array(SPECIAL), shape), rng.normal(0, 8, shape))
    with np.errstate(over="ignore"):
        return wide.astype(dtype)


CALLS: dict[str, Family] = {}


def _vector(builtin: str, spec: str, constants: list[tuple[int, ...]] | None = None) -> None:
    """A builtin with the operands of an instruction of VECTOR, in the same order."""
    one = VECTOR[spec]

    def expected(call: Call) -> Array:
        flat = [a.reshape(64, -1).copy().view(np.uint8).reshape(64, -1) for a in call.arguments]
        sources = []
        for raw, ty in zip(flat, one.sources, strict=False):
            sources.append(np.ascontiguousarray(raw[:, : np.dtype(DTYPES[ty]).itemsize]).view(DTYPES[ty]).reshape(64))
        if one.lane:
            sources.append(np.arange(64))
        with np.errstate(all="ignore"):
            out = one.function(*sources)
        return np.asarray(out[0] if isinstance(out, tuple) else out)

    CALLS[builtin] = Family(expected, constants or [()], spec, ulp=one.ulp)


for _builtin, _spec in {
    "lerp": "v_lerp_u8", "div_fixup": "v_div_fixup_f64", "div_fixupf": "v_div_fixup_f32", "div_fixuph": "v_div_fixup_f16",
    "trig_preop": "v_trig_preop_f64", "rcp": "v_rcp_f64", "rcpf": "v_rcp_f32", "rcph": "v_rcp_f16", "sqrt": "v_sqrt_f64",
    "sqrtf": "v_sqrt_f32", "sqrth": "v_sqrt_f16", "rsq": "v_rsq_f64", "rsqf": "v_rsq_f32", "rsqh": "v_rsq_f16",
    "sinf": "v_sin_f32", "cosf": "v_cos_f32", "sinh": "v_sin_f16", "cosh": "v_cos_f16", "logf": "v_log_f32",
    "exp2f": "v_exp_f32", "ldexp": "v_ldexp_f64", "ldexpf": "v_ldexp_f32", "frexp_mant": "v_frexp_mant_f64",
    "frexp_mantf": "v_frexp_mant_f32", "frexp_manth": "v_frexp_mant_f16", "frexp_exp": "v_frexp_exp_i32_f64",
    "frexp_expf": "v_frexp_exp_i32_f32", "frexp_exph": "v_frexp_exp_i16_f16", "fract": "v_fract_f64",
    "fractf": "v_fract_f32", "fracth": "v_fract_f16", "class": "v_cmp_class_f64", "classf": "v_cmp_class_f32",
    "classh": "v_cmp_class_f16", "cubeid": "v_cubeid_f32", "cubesc": "v_cubesc_f32", "cubetc": "v_cubetc_f32",
    "cubema": "v_cubema_f32", "fmed3f": "v_med3_f32", "fmed3h": "v_med3_f16", "alignbit": "v_alignbit_b32",
    "alignbyte": "v_alignbyte_b32", "ubfe": "v_bfe_u32", "sbfe": "v_bfe_i32", "cvt_pkrtz": "v_cvt_pkrtz_f16_f32",
    "cvt_pknorm_i16": "v_cvt_pknorm_i16_f32", "cvt_pknorm_u16": "v_cvt_pknorm_u16_f32",
    "cvt_pk_i16": "v_cvt_pk_i16_i32", "cvt_pk_u16": "v_cvt_pk_u16_u32", "cvt_pk_u8_f32": "v_cvt_pk_u8_f32",
    "cvt_off_f32_i4": "v_cvt_off_f32_i4", "msad_u8": "v_msad_u8", "sad_u8": "v_sad_u8", "sad_hi_u8": "v_sad_hi_u8",
    "sad_u16": "v_sad_u16", "qsad_pk_u16_u8": "v_qsad_pk_u16_u8", "mqsad_pk_u16_u8": "v_mqsad_pk_u16_u8",
    "perm": "v_perm_b32", "prng_b32": "v_prng_b32", "ashr_pk_i8_i32": "v_ashr_pk_i8_i32",
    "ashr_pk_u8_i32": "v_ashr_pk_u8_i32", "mbcnt_lo": "v_mbcnt_lo_u32_b32", "mbcnt_hi": "v_mbcnt_hi_u32_b32",
}.items():  # fmt: skip
    _vector(_builtin, _spec)


def _dot_product(plain: str, call: Call) -> Array:
    """The constant asks for saturation."""
    if not call.constants[0]:
        words = (
            np.ascontiguousarray(a).view(DTYPES[t]).reshape(64)
            for a, t in zip(call.arguments, VECTOR[plain].sources, strict=True)
        )
        return np.asarray(VECTOR[plain].function(*words))
    ty, exact = CLAMPED[plain]
    limits = np.iinfo(DTYPES[ty])
    words = [np.ascontiguousarray(a).view(DTYPES[ty]).reshape(64).tolist() for a in call.arguments]
    return np.array([max(limits.min, min(limits.max, exact(*lane))) for lane in zip(*words, strict=True)], DTYPES[ty])


for _builtin, _spec in {
    "fdot2": "v_dot2_f32_f16", "sdot2": "v_dot2_i32_i16", "udot2": "v_dot2_u32_u16", "sdot4": "v_dot4_i32_i8",
    "udot4": "v_dot4_u32_u8", "sdot8": "v_dot8_i32_i4", "udot8": "v_dot8_u32_u4", "fdot2_f32_bf16": "v_dot2_f32_bf16",
    "fdot2c_f32_bf16": "v_dot2_f32_bf16",
}.items():  # fmt: skip
    _vector(_builtin, _spec, [(0,)])
    CALLS[_builtin].picks = "v_dot"
    if _spec in CLAMPED:
        CALLS[_builtin] = Family(partial(_dot_product, _spec), [(0,), (1,)], "v_dot")
CALLS["ldexph"] = Family(
    lambda c: VECTOR["v_ldexp_f16"].function(c.arguments[0], c.arguments[1].astype(np.int16)),
    picks="v_ldexp_f16",
)
for _builtin in ("class", "classf", "classh"):
    CALLS[_builtin].picks = "v_cmp_class"
for _builtin in ("rcp", "rsq", "sqrt"):
    CALLS[_builtin].ulp = max(CALLS[_builtin].ulp, 1)


def _fmas(call: Call) -> Array:
    spec = VECTOR["v_div_fmas_f32" if call.arguments[0].dtype == np.float32 else "v_div_fmas_f64"]
    with np.errstate(all="ignore"):
        return np.asarray(spec.function(*call.arguments[:3], call.arguments[3] != 0))


CALLS["div_fmas"] = Family(_fmas, picks="v_div_fmas")
CALLS["div_fmasf"] = Family(_fmas, picks="v_div_fmas")
CALLS["mqsad_u32_u8"] = Family(
    lambda c: media.four_wide_sums(c.arguments[0], c.arguments[1], c.arguments[2].T).T, picks="v_mqsad_u32_u8"
)
CALLS["bitop3_b32"] = Family(
    lambda c: bitop3(c.constants[0], *(a.view(np.uint32) for a in c.arguments)),
    [(0x78,), (0xE8,), (0x01,), (0x35,)],
    "v_bitop3",
)
CALLS["bitop3_b16"] = Family(
    lambda c: bitop3(c.constants[0], *(a.view(np.uint16) for a in c.arguments)), [(0x78,), (0x35,)], "v_bitop3"
)


# ---- comparisons: the constant is LLVM's predicate
def _integer_compare(call: Call) -> Array:
    x, y = call.arguments
    operation = {
        32: np.equal, 33: np.not_equal, 34: np.greater, 35: np.greater_equal, 36: np.less, 37: np.less_equal,
        38: np.greater, 39: np.greater_equal, 40: np.less, 41: np.less_equal,
    }[call.constants[0]]  # fmt: skip
    return _mask(operation(x, y))


def _float_compare(call: Call) -> Array:
    x, y = call.arguments
    unordered = np.isnan(x) | np.isnan(y)
    kind = call.constants[0]
    base = np.zeros(64, bool)
    for bit, operation in ((1, np.equal), (2, np.greater), (4, np.less)):
        if kind & bit:
            base |= operation(x, y)
    return _mask(base | (unordered if kind & 8 else False))


def _mask(lanes: Array) -> Array:
    return np.full(64, sum(1 << i for i in range(64) if lanes[i]), np.uint64)


for _builtin in ("uicmp", "uicmpl"):
    CALLS[_builtin] = Family(_integer_compare, [(k,) for k in range(32, 38)], "v_cmp")
for _builtin in ("sicmp", "sicmpl"):
    CALLS[_builtin] = Family(_integer_compare, [(k,) for k in (32, 33, 38, 39, 40, 41)], "v_cmp")
for _builtin in ("fcmp", "fcmpf"):
    # LLVM 22 takes v_cmp_neq for "ordered and not equal" (6)
    CALLS[_builtin] = Family(_float_compare, [(k,) for k in range(1, 15) if k != 6], "v_cmp")


# ---- 8-bit floats and scaled conversions
def _chip_kind(kind: str, chip: str) -> str:
    return kind + "fnuz" if chip == "gfx942" and kind in ("fp8", "bf8") else kind


def _from_byte(call: Call) -> Array:
    kind = _chip_kind(call.builtin.rpartition("_")[2], call.chip)
    pairs = "pk" in call.builtin
    width, first = (2, 16 * call.constants[0]) if pairs else (1, 8 * call.constants[0])
    words = call.arguments[0].view(np.uint32).tolist()
    out = [[decode_small(w >> first + 8 * i & 255, kind) for i in range(width)] for w in words]
    return np.array(out, np.float32) if pairs else np.array(out, np.float32)[:, 0]


def _to_bytes(call: Call) -> Array:
    kind = _chip_kind(call.builtin.split("_")[2], call.chip)
    x, y, old = call.arguments
    shift = 16 * call.constants[0]
    out = []
    for p, q, o in zip(x, y, old.view(np.uint32).tolist(), strict=True):
        word = scaled.narrow(float(p), kind, False, None) | scaled.narrow(float(q), kind, False, None) << 8
        out.append(o & ~(0xFFFF << shift) | word << shift)
    return np.array(out, np.uint32)


def _to_byte_stochastic(call: Call) -> Array:
    kind = _chip_kind(call.builtin.split("_")[2], call.chip)
    x, random, old = call.arguments
    shift = 8 * call.constants[0]
    out = []
    for p, r, o in zip(x, random.view(np.uint32).tolist(), old.view(np.uint32).tolist(), strict=True):
        out.append(o & ~(0xFF << shift) | scaled.narrow(float(p), kind, False, r) << shift)
    return np.array(out, np.uint32)


for _kind in ("fp8", "bf8"):
    CALLS[f"cvt_f32_{_kind}"] = Family(_from_byte, [(i,) for i in range(4)], "v_cvt_f32")
    CALLS[f"cvt_pk_f32_{_kind}"] = Family(_from_byte, [(0,), (1,)], "v_cvt_pk_f32")
    CALLS[f"cvt_pk_{_kind}_f32"] = Family(_to_bytes, [(0,), (1,)], "v_cvt_pk")
    CALLS[f"cvt_sr_{_kind}_f32"] = Family(_to_byte_stochastic, [(i,) for i in range(4)], "v_cvt_sr")


def rows(x: Array) -> Array:
    """[register][lane] of values per lane; 16-bit scalars fill the lower half."""
    raw = np.ascontiguousarray(x.reshape(64, -1)).view(np.uint8).reshape(64, -1)
    if raw.shape[1] % 4:
        raw = np.concatenate([raw, np.zeros((64, -raw.shape[1] % 4), np.uint8)], 1)
    return np.ascontiguousarray(np.ascontiguousarray(raw).view(np.uint32).T)


_SCALED = re.compile(
    r"cvt_scalef32_(?P<sr>sr_)?(?:(?P<group>2xpk16|pk32|pk)_)?(?P<to>[a-z0-9]+)_(?P<source>[a-z0-9]+)$"
)


def _scaled(call: Call) -> Array:
    match = _SCALED.match(call.builtin)
    assert match
    down, group = match["to"] in SMALL, match["group"] or ""
    rest = list(call.arguments)
    size = {"": 1, "pk": 2, "pk32": 32, "2xpk16": 32}[group] * scaled.BITS[match["to"]]
    old = rest.pop(0) if size < 32 else None
    scale = rest.pop()
    random = rest.pop() if match["sr"] else None
    select = call.constants[0] if call.constants else 0
    if down:
        op_sel = select << (2 if size == 8 else 3 if len(rest) == 2 or random is not None else 2)
    else:
        op_sel = select | (call.constants[1] << 2 if len(call.constants) > 1 else 0)
    registers = max(1, size // 32)
    before = rows(old) if old is not None else np.zeros((registers, 64), np.uint32)
    out = scaled.convert(
        "v_" + call.builtin,
        op_sel,
        [rows(x) for x in rest],
        scale.view(np.uint32),
        None if random is None else random.view(np.uint32),
        before,
    )
    return np.ascontiguousarray(out.T)


def _scaled_arguments(rng: np.random.Generator, call: Call, place: int, element: str, count: int) -> Array:
    """Powers of two as scales (the last float parameter), numbers near the range of the small formats elsewhere."""
    is_scale = element == "float" and place == call.parameters - 1
    if element in ("float", "half", "bf16") and not is_scale:
        shape = (64, count) if count else (64,)
        wide = np.ldexp(rng.uniform(1, 2, shape), rng.integers(-8, 8, shape)) * rng.choice([-1, 1], shape)
        wide = np.where(rng.random(shape) < 0.1, rng.choice(np.array([0.0, -0.0, np.inf, np.nan, 1e-5]), shape), wide)
        return wide.astype(NUMPY[element])
    if element == "float":
        scale = (rng.integers(120, 135, 64) << 23).astype(np.uint32)
        scale[:3] = np.array([0, 254, 255]) << 23
        return scale.view(np.float32)
    return values(rng, element, count)


def scaled_family(name: str, constants: int) -> Family:
    """By the number of constants: selectors of source and destination."""
    match = _SCALED.match(name)
    assert match
    down, group = match["to"] in SMALL, match["group"] or ""
    if constants == 0:
        choices: list[tuple[int, ...]] = [()]
    elif constants == 2:
        choices = [(0, 0), (3, 1), (1, 1), (2, 0)]
    elif (down and scaled.BITS[match["to"]] * (2 if group == "pk" else 1) == 16) or (
        not down and group == "pk" and scaled.BITS[match["source"]] == 8
    ):
        choices = [(0,), (1,)]
    else:
        choices = [(i,) for i in range(4)]
    one = Family(_scaled, choices, "v_cvt_scalef32", _scaled_arguments)
    if "sr_pk_fp4" in name:  # LLVM 22 forgets that the instruction keeps the other bytes of the destination
        one.bits = lambda call: 0xFF << 8 * call.constants[0]
    return one


def _stochastic16(call: Call) -> Array:
    old, x, random = call.arguments
    kind = "bf16" if "bf16" in call.builtin else "f16"
    out = np.ascontiguousarray(old).view(np.uint16).reshape(64, 2).copy()
    for lane in range(64):
        nan = 0x7FC0 if kind == "bf16" else 0x7E00
        code = nan if np.isnan(x[lane]) else scaled.stochastic16(float(x[lane]), kind, int(random[lane]))
        out[lane, call.constants[0]] = code
    return out.view(NUMPY["bf16" if kind == "bf16" else "half"])


for _kind in ("f16", "bf16"):
    CALLS[f"cvt_sr_{_kind}_f32"] = Family(_stochastic16, [(0,), (1,)], "v_cvt_sr")


# ---- matrix instructions
_FORMATS = ("fp8", "bf8", "fp6", "bf6", "fp4")


def _codes(rng: np.random.Generator, chip: str, kind: str, count: int) -> Array:
    """[lane][dword] of small integers in a format: sums are exact in every order."""
    if kind in ("fp6", "bf6", "fp4"):
        return rng.integers(0, 1 << 32, (64, count), dtype=np.uint32)
    if kind == "xf32":
        kind = "f32"
    float8 = {
        "fp8": ml_dtypes.float8_e4m3fnuz if chip == "gfx942" else ml_dtypes.float8_e4m3fn,
        "bf8": ml_dtypes.float8_e5m2fnuz if chip == "gfx942" else ml_dtypes.float8_e5m2,
    }
    dtype: Any = {
        "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "i8": np.int8,
    }.get(kind) or float8[kind]  # fmt: skip
    n = count * 4 // np.dtype(dtype).itemsize
    raw = rng.integers(-4, 5, (64, n)).astype(np.float32).astype(dtype)
    return np.ascontiguousarray(raw).view(np.uint8).reshape(64, -1).view(np.uint32)


def _kinds(instruction: str, constants: tuple[int, ...]) -> tuple[str, str]:
    kinds = parse(instruction)[4]
    return (_FORMATS[constants[0]], _FORMATS[constants[1]]) if kinds[0] == "f8f6f4" else (kinds[0], kinds[1])


def _matrix_arguments(rng: np.random.Generator, call: Call, place: int, element: str, count: int) -> Array:
    dtype = np.dtype(NUMPY[element])
    dwords = max(1, count) * dtype.itemsize // 4
    if place >= 3:
        exponents = rng.integers(125, 129, (64, 4)).astype(np.uint8)
        return exponents.view(np.int32)[:, 0]
    if place == 2:
        small = rng.integers(-9, 9, (64, max(1, count))).astype(dtype)
        return small if count else small[:, 0]
    raw = np.ascontiguousarray(
        _codes(rng, call.chip, _kinds(call.instruction, tuple(call.constants))[place], dwords)
    ).view(np.uint8)
    out = raw.reshape(64, -1).view(dtype)
    return out if count else out[:, 0]


def _matrix(call: Call) -> Array:
    a, b, c, *scales = call.arguments
    mixed = "f8f6f4" in call.instruction
    kinds = _kinds(call.instruction, tuple(call.constants)) if mixed else None
    ra, rb = rows(a), rows(b)
    exponents = None
    if mixed:
        assert kinds
        ra, rb = (r[: {8: 8, 6: 6, 4: 4}[scaled.BITS[k]]] for r, k in zip((ra, rb), kinds, strict=True))
        exponents = tuple(
            (s.view(np.uint32) >> np.uint32(8 * place) & np.uint32(255))
            for s, place in zip(scales, call.constants[2:], strict=True)
        )
    if "f64" in call.instruction:
        a, b, c = (-x if call.constants[2] >> i & 1 else x for i, x in enumerate((a, b, c)))
        ra, rb = rows(a), rows(b)
    want, _ = multiply(call.instruction, call.chip, ra, rb, rows(c), kinds, exponents)  # type: ignore[arg-type]
    out = np.ascontiguousarray(want.T)
    if parse(call.instruction)[0] == "i32":
        return ((out.astype(np.int64) + (1 << 31)) % (1 << 32) - (1 << 31)).astype(np.int32)
    return out.astype(c.dtype)


def matrix_family(name: str) -> Family:
    if "scale" in name:
        constants = [(0, 0, 0, 0), (4, 4, 1, 2), (2, 3, 3, 0), (1, 4, 2, 1)]
    else:
        # f64: the last constant negates A, B and C
        constants = [(0, 0, 0), (0, 0, 1), (0, 0, 6)] if "f64" in name else [(0, 0, 0)]
    return Family(_matrix, constants, "v_mfma", _matrix_arguments, ulp=1 if "scale" in name else 0)


_SPARSE = re.compile(r"v_smfmac_(?:f32|i32)_(\d+)x\d+x\d+_([a-z0-9]+?)(?:_([a-z0-9]+))?$")


def _sparse_arguments(rng: np.random.Generator, call: Call, place: int, element: str, count: int) -> Array:
    if place == 3:
        return rng.integers(-(1 << 31), 1 << 31, 64).astype(np.int32)
    match = _SPARSE.match(call.instruction)
    assert match
    dtype = np.dtype(NUMPY[element])
    if place == 2:
        return rng.integers(-9, 9, (64, count)).astype(dtype)
    kind = match[2] if place == 0 else match[3] or match[2]
    raw = np.ascontiguousarray(_codes(rng, call.chip, kind, count * dtype.itemsize // 4)).view(np.uint8)
    return raw.reshape(64, -1).view(dtype)


def _sparse(call: Call) -> Array:
    a, b, c, index = call.arguments
    product = sparse_product(
        call.instruction, rows(a), rows(b), index.view(np.uint32), call.chip, call.constants[0], call.constants[1]
    )
    m = product.shape[0]
    out = c.copy()
    for lane in range(64):
        for e in range(c.shape[1]):
            row = 4 * (lane // m) + (e if m == 16 else e % 4 + 8 * (e // 4))
            out[lane, e] += product[row, lane % m]
    return out


def sparse_family(name: str) -> Family:
    return Family(_sparse, [(0, 0), (1, 1)], "v_smfmac", _sparse_arguments)


# ---- lanes
def _dpp_source(control: int, lane: int) -> int:
    """Lane that a lane reads, -1 for none. [CDNA3 ISA, DPP_CTRL]"""
    row, i = lane & 48, lane & 15
    if control < 0x100:
        return lane & 60 | control >> 2 * (lane & 3) & 3
    kind, amount = control & 0x1F0, control & 15
    if kind == 0x100:
        return row | i + amount if i + amount < 16 else -1
    if kind == 0x110:
        return row | i - amount if i >= amount else -1
    if kind == 0x120:
        return row | (i - amount) % 16
    return {
        0x130: lane + 1 if lane < 63 else -1,
        0x134: (lane + 1) % 64,
        0x138: lane - 1,
        0x13C: (lane - 1) % 64,
        0x140: row | 15 - i,
        0x141: lane ^ 7,
        0x142: row - 1,
        0x143: 31 if lane >= 32 else -1,
    }[control]


def _dpp(call: Call) -> Array:
    control, row_mask, bank_mask, bound = call.constants
    source = call.arguments[-1]
    old = call.arguments[0] if len(call.arguments) == 2 else np.zeros(64, np.int32)
    out = old.copy()
    for lane in range(64):
        there = _dpp_source(control, lane)
        if row_mask >> lane // 16 & 1 and bank_mask >> lane % 16 // 4 & 1:
            out[lane] = source[there] if there >= 0 else 0 if bound else old[lane]
    return out


CALLS["update_dpp"] = Family(
    _dpp,
    [
        (c, r, k, b)
        for c in (0x1B, 0x101, 0x111, 0x118, 0x121, 0x12F, 0x130, 0x134, 0x138, 0x13C, 0x140, 0x141, 0x142, 0x143)
        for r, k, b in ((15, 15, 0), (15, 15, 1), (10, 5, 0))
    ],
    "v_mov_b32",
)
CALLS["mov_dpp"] = Family(_dpp, [(0x1B, 15, 15, 1), (0x121, 15, 15, 1), (0x140, 15, 15, 1), (0x111, 15, 15, 1)])
CALLS["ds_swizzle"] = Family(
    lambda c: memory_spec.swizzle(c.arguments[0].view(np.uint32), c.constants[0]),
    [(k,) for k in (0x041F, 0x2A0C, 0x801B, 0xC0A0, 0xC523, 0xE000, 0xE010, 0xE01F)],
    "ds_swizzle",
)
CALLS["ds_permute"] = Family(
    lambda c: np.array(
        memory_spec.permute(c.arguments[0].tolist(), c.arguments[1].view(np.uint32), 0, (1 << 64) - 1), np.uint32
    ),
    picks="ds_permute",
)
CALLS["ds_bpermute"] = Family(
    lambda c: np.array(
        memory_spec.bpermute(c.arguments[0].tolist(), c.arguments[1].view(np.uint32), 0, (1 << 64) - 1), np.uint32
    ),
    picks="ds_bpermute",
)
CALLS["readfirstlane"] = Family(
    lambda c: np.full(64, c.arguments[0][lane_spec.first_lane((1 << 64) - 1)]), picks="v_readfirstlane"
)
CALLS["readlane"] = Family(
    lambda c: np.full(64, c.arguments[0][c.constants[0] % 64]), [(0,), (63,), (17,)], "v_readlane", fixed=(2,)
)
for _width in (16, 32):
    CALLS[f"permlane{_width}_swap"] = Family(
        lambda c, w=_width: np.stack(lane_spec.permlane_swap(c.arguments[0], c.arguments[1], w), 1),
        [(0, 0)],
        "v_permlane",
    )
CALLS["ballot_w64"] = Family(lambda c: _mask(c.arguments[0] != 0))

_REDUCTIONS: dict[str, Callable[[Array], Any]] = {
    "add": lambda x: x.sum(dtype=x.dtype),
    "sub": lambda x: -x.sum(dtype=x.dtype),
    "min": lambda x: x.min(),
    "max": lambda x: x.max(),
    "and": np.bitwise_and.reduce,
    "or": np.bitwise_or.reduce,
    "xor": np.bitwise_xor.reduce,
    "fadd": lambda x: x.sum(dtype=np.float64),
    "fsub": lambda x: -x.sum(dtype=np.float64),
    "fmin": lambda x: x.min(),
    "fmax": lambda x: x.max(),
}


def _reduce(call: Call) -> Array:
    operation, kind = call.builtin.split("_")[2:]
    dtype = np.dtype({"u": "u", "i": "i", "b": "u", "f": "f"}[kind[0]] + str(int(kind[1:]) // 8))
    with np.errstate(over="ignore"):
        result = _REDUCTIONS[operation](call.arguments[0].view(dtype))
    return np.full(64, np.asarray(result).astype(dtype))


def _small_floats(rng: np.random.Generator, call: Call, place: int, element: str, count: int) -> Array:
    return rng.integers(-50, 50, 64).astype(np.float32) if element == "float" else values(rng, element, count)


for _operation, _kinds_of in {
    **dict.fromkeys(("add", "sub"), ("u32", "u64")),
    **dict.fromkeys(("min", "max"), ("i32", "u32", "i64", "u64")),
    **dict.fromkeys(("and", "or", "xor"), ("b32", "b64")),
    **dict.fromkeys(("fadd", "fsub", "fmin", "fmax"), ("f32",)),
}.items():
    for _kind in _kinds_of:
        CALLS[f"wave_reduce_{_operation}_{_kind}"] = Family(_reduce, [(0,), (1,), (2,)], "", _small_floats, fixed=(2,))


def family(name: str, constants: int) -> Family | None:
    """The family of a builtin that is called lane by lane; constants: the number of its constant parameters."""
    if name in CALLS:
        return CALLS[name]
    if name.startswith("mfma_"):
        return matrix_family(name)
    if name.startswith("smfmac_"):
        return sparse_family(name)
    if name.startswith("cvt_scalef32_"):
        return scaled_family(name, constants)
    return None
