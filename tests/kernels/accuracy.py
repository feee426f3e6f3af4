"""Measuring errors of elementwise functions in units of the last place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tests.kernels.harness import compiled, device
from tileir.lowering.amdgpu.compile import Compiled
from tileir.runtime import launch

Array = np.ndarray[Any, Any]
TYPES: dict[str, Any] = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
WIDE = np.longdouble  # 64 bits of mantissa on x86, 113 elsewhere
TILE = 256


def kernel_of(names: Sequence[str], elem: str, chip: str) -> Compiled:
    """A kernel that stores every function of X to a view of its own."""
    views = "".join(f", %Y{i}: global<{elem}[N]>" for i in range(len(names)))
    body = "".join(f"  store({name}(%x), %Y{i}[%i * {TILE} +: {TILE}])\n" for i, name in enumerate(names))
    text = f"""tileir 1
kernel @functions(%X: global<{elem}[N]>{views}) grid(cdiv(N, {TILE})) {{
  %i = program_id()
  %x = load(%X[%i * {TILE} +: {TILE}])
{body}}}
"""
    return compiled(text, chip)


def evaluate(names: Sequence[str], x: Array, elem: str, chip: str) -> dict[str, Array]:
    """The functions of all of x on the simulator."""
    arrays = {"X": x} | {f"Y{i}": np.zeros_like(x) for i in range(len(names))}
    launch(kernel_of(names, elem, chip), arrays, device(f"simulator:{chip}"))
    return {name: arrays[f"Y{i}"] for i, name in enumerate(names)}


def evaluate_pairs(name: str, x: Array, y: Array, elem: str, chip: str) -> Array:
    """A function of two operands on the simulator."""
    text = f"""tileir 1
kernel @pairs(%X: global<{elem}[N]>, %Y: global<{elem}[N]>, %Z: global<{elem}[N]>) grid(cdiv(N, {TILE})) {{
  %i = program_id()
  %x = load(%X[%i * {TILE} +: {TILE}])
  %y = load(%Y[%i * {TILE} +: {TILE}])
  store({name}(%x, %y), %Z[%i * {TILE} +: {TILE}])
}}
"""
    z = np.zeros_like(x)
    launch(compiled(text, chip), {"X": x, "Y": y, "Z": z}, device(f"simulator:{chip}"))
    return z


def every_value(elem: str) -> Array:
    """All values of a 16-bit type."""
    return np.arange(1 << 16, dtype=np.uint16).view(TYPES[elem])


def samples(elem: str, count: int, seed: int = 0) -> Array:
    """Special values, random bit patterns (every exponent alike), and values around those where functions change."""
    t = TYPES[elem]
    rng = np.random.default_rng(seed)
    bits = np.dtype(t).itemsize * 8
    unsigned = np.dtype(f"u{bits // 8}")
    info: Any = ml_dtypes.finfo(t)
    special = [
        0.0,
        1.0,
        0.5,
        2.0,
        np.inf,
        np.nan,
        float(info.max),
        float(info.smallest_normal),
        float(info.smallest_subnormal),
    ]
    special += [
        0.625,
        np.sqrt(0.5),
        np.sqrt(2.0),
        np.pi / 4,
        np.pi / 2,
        np.pi,
        4.0,
        6.0,
        88.7228,
        709.7827,
        127.9999,
        1023.9999,
    ]
    special += [2.0**20, 2.0**30, 103.9, 745.1, 149.5, 1074.5, 2.0**54, 2.0**100]
    special += [k * np.pi / 2 for k in (3, 11, 355 / 113, 1000003, 5e8)]
    with np.errstate(over="ignore"):
        points = np.array(special).astype(t)
        around = points.view(unsigned)[:, None].astype(np.int64) + np.arange(-3, 4)
        near = around.astype(unsigned).view(t).ravel()
        plain = [rng.uniform(-width, width, count).astype(t) for width in (1.0, 10.0, 100.0, 1000.0, 2.0**21)]
    patterns = rng.integers(0, 1 << bits, count, dtype=np.uint64).astype(unsigned).view(t)
    one = (1 + rng.uniform(-1, 1, count) * 2.0 ** rng.uniform(-50, -1, count)).astype(t)
    return np.concatenate([near, -near, patterns, one, *plain])


def error_function(x: Array) -> Array:
    """2/√π · exp(-x²) · Σ 2ⁿ x²ⁿ⁺¹ / (2n+1)!!, of which all terms have one sign."""
    size = np.minimum(np.abs(x), WIDE(9))
    # x² in two parts, so that the error of the exponential does not grow with it
    high = (size * WIDE(2.0**20)).astype(np.float64).astype(np.float32).astype(WIDE) / WIDE(2.0**20)
    low = size - high
    scale = np.exp(-high * high) * np.exp(-low * (high + size))
    term, total = size.copy(), size.copy()
    for n in range(1, 260):
        term = term * (2 * size * size) / (2 * n + 1)
        total = total + term
    pi = WIDE("3.14159265358979323846264338327950288")
    return np.copysign(np.where(size > 8, WIDE(1), 2 / np.sqrt(pi) * scale * total), x)


REFERENCES: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "erf": error_function,
    "sigmoid": lambda x: np.where(x < 0, np.exp(-np.abs(x)), WIDE(1)) / (1 + np.exp(-np.abs(x))),
    "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "rcp": lambda x: 1 / x,
}  # fmt: skip


PAIRS: dict[str, Callable[[Array, Array], Array]] = {"pow": np.power, "atan2": np.arctan2}


def pairs(elem: str, count: int, seed: int = 0) -> tuple[Array, Array]:
    """All pairs of special values, and random ones: any bits, and numbers whose powers are in range."""
    t = TYPES[elem]
    rng = np.random.default_rng(seed)
    info: Any = ml_dtypes.finfo(t)
    special = [
        0.0,
        1.0,
        0.5,
        2.0,
        3.0,
        2.5,
        7.0,
        np.inf,
        np.nan,
        float(info.max),
        float(info.smallest_normal),
        float(info.eps),
    ]
    special += [
        float(info.smallest_subnormal),
        1 + float(info.eps),
        1 - float(info.eps) / 2,
        1000.5,
        2.0 ** (info.nmant + 1),
        1e4,
    ]
    points = np.array([*special, *(-s for s in special)]).astype(t)
    first, second = (g.ravel() for g in np.meshgrid(points, points))
    base = np.exp2(rng.uniform(-8, 8, count))
    power = rng.uniform(-1, 1, count) * min(info.maxexp, 1000) / np.maximum(np.abs(np.log2(base)), 0.01)
    whole = np.where(rng.random(count) < 0.3, -base, base), np.where(rng.random(count) < 0.5, np.rint(power), power)
    bits = np.dtype(t).itemsize * 8
    patterns = [rng.integers(0, 1 << bits, count, dtype=np.uint64).astype(f"u{bits // 8}").view(t) for _ in range(2)]
    with np.errstate(over="ignore"):
        x = np.concatenate([first, whole[0].astype(t), patterns[0], base.astype(t)])
        y = np.concatenate([second, whole[1].astype(t), patterns[1], np.exp2(rng.uniform(-8, 8, count)).astype(t)])
    return np.ascontiguousarray(x), np.ascontiguousarray(y)


def measure_pairs(name: str, x: Array, y: Array, elem: str, chip: str) -> tuple[float, tuple[float, float]]:
    """The largest error in ulp and its arguments."""
    with np.errstate(all="ignore"):
        error = ulps(evaluate_pairs(name, x, y, elem, chip), PAIRS[name](x.astype(WIDE), y.astype(WIDE)), elem)
    worst = int(np.argmax(error))
    return float(error[worst]), (float(x[worst]), float(y[worst]))


def ulps(got: Array, want: Array, elem: str) -> Array:
    """Errors in units of the last place of the exact result in that type: 0 where both are NaN, or both infinite or zero of one sign;
    infinite where only one is NaN or a zero has the wrong sign. An exact result beyond the range counts as the next power of two."""
    info: Any = ml_dtypes.finfo(TYPES[elem])
    wide = got.astype(WIDE)
    _, exponent = np.frexp(want)
    unit = np.ldexp(WIDE(1), np.maximum(exponent - 1, info.minexp) - info.nmant)
    top = np.ldexp(WIDE(1), info.maxexp)
    with np.errstate(invalid="ignore", over="ignore"):
        clipped = np.where(np.isinf(wide), np.copysign(top, wide), wide)
        error = np.abs(clipped - np.clip(want, -top, top)) / np.where(np.isfinite(unit), unit, 1)
    agree = np.isnan(wide) & np.isnan(want)
    agree |= (wide == want) & (np.signbit(wide) == np.signbit(want))
    error = np.where(agree, 0.0, error)
    wrong = (np.isnan(wide) != np.isnan(want)) | ((want == 0) & (np.signbit(wide) != np.signbit(want)))
    return np.where(wrong, np.inf, error).astype(np.float64)


def measure(names: Sequence[str], x: Array, elem: str, chip: str) -> dict[str, tuple[float, float]]:
    """For each function the largest error in ulp, and the argument that has it."""
    with np.errstate(all="ignore"):
        got = evaluate(names, x, elem, chip)
        out: dict[str, tuple[float, float]] = {}
        for name in names:
            error = ulps(got[name], REFERENCES[name](x.astype(WIDE)), elem)
            worst = int(np.argmax(error))
            out[name] = float(error[worst]), float(x[worst])
    return out
