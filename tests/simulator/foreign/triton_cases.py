"""What to compile with Triton, what to give it, and what NumPy says comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
FLOAT8 = {
    "fp8e4b8": ml_dtypes.float8_e4m3fnuz,
    "fp8e5b16": ml_dtypes.float8_e5m2fnuz,
    "fp8e4nv": ml_dtypes.float8_e4m3fn,
    "fp8e5": ml_dtypes.float8_e5m2,
}
DTYPES: dict[str, Any] = {
    "fp64": np.float64,
    "fp32": np.float32,
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    **FLOAT8,
}
HALF_ULP = {"fp64": 2.0**-53, "fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8, **dict.fromkeys(FLOAT8, 2.0**-3)}


@dataclass
class Launch:
    """Values of the run-time arguments in order; and by name what arrays must hold, with the error allowed."""

    grid: tuple[int, int, int]
    arguments: dict[str, Any]
    expected: dict[str, tuple[Array, Array | float]]


@dataclass
class Case:
    """One code object per chip. types: Triton's type of each run-time argument."""

    name: str
    kernel: str
    types: dict[str, str]
    constants: dict[str, Any]
    launch: Callable[[np.random.Generator], Launch]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    chips: tuple[str, ...] = ("gfx942", "gfx950")
    gate: bool = False


def pointers(**types: str) -> dict[str, str]:
    """Arguments; pointers are aligned to 16 bytes."""
    return {n: t + ":16" if t.startswith("*") else t for n, t in types.items()}


def numbers(rng: np.random.Generator, dtype: str, *shape: int, scale: float = 1.0) -> Array:
    if dtype.startswith("i"):
        return rng.integers(-100, 100, shape).astype(DTYPES[dtype])
    return (rng.standard_normal(shape) * scale).astype(DTYPES[dtype])


def wide(x: Array) -> Array:
    return x.astype(np.float64)


def vector_add(dtype: str, block: int, warps: int, gate: bool = False) -> Case:
    n = 3 * block + 17

    def launch(rng: np.random.Generator) -> Launch:
        x, y = numbers(rng, dtype, n), numbers(rng, dtype, n)
        out = np.zeros(n, DTYPES[dtype])
        return Launch((4, 1, 1), {"x": x, "y": y, "out": out, "n": n}, {"out": (wide(x + y), 0.0)})

    types = pointers(x=f"*{dtype}", y=f"*{dtype}", out=f"*{dtype}", n="i32")
    return Case(
        f"add-{dtype}-{block}-w{warps}", "vector_add", types, {"BLOCK": block}, launch, {"num_warps": warps}, gate=gate
    )


def _erf(x: Array) -> Array:
    from math import erf

    return np.array([erf(v) for v in x])


ELEMENTWISE: dict[str, Callable[[Array, Array], Array]] = {
    "math": lambda a, b: (
        np.exp(-np.abs(a)) + np.log(1 + np.abs(b)) + np.sqrt(np.abs(a)) / np.sqrt(1 + b * b) + np.sin(a) + np.cos(b)
    ),
    "erf": lambda a, b: _erf(a) + np.exp2(np.minimum(b, 3)) + np.log2(np.abs(a) + 0.5),
    "divide": lambda a, b: a / b + b / 3 + np.floor(a) - np.ceil(b),
    "fma": lambda a, b: a * b + a + np.maximum(a, b) * np.where(a > b, a, b),
    "clamp": lambda a, b: np.clip(a, -0.5, 0.75) + 1 / (1 + np.exp(-b)),
    "other": lambda a, b: np.minimum(a, b) * a + np.abs(b),
}


def elementwise(op: str, dtype: str, gate: bool = False) -> Case:
    n, block = 1000, 512
    integer = dtype.startswith("i")

    def launch(rng: np.random.Generator) -> Launch:
        if integer:
            bits = 8 * np.dtype(DTYPES[dtype]).itemsize
            a = rng.integers(-(1 << bits - 2), 1 << bits - 2, n).astype(DTYPES[dtype])
            b = rng.integers(1, 100, n).astype(DTYPES[dtype])
            b[::3] = -b[::3]
            if op == "umulhi":
                product = a.astype(np.uint32).astype(np.uint64) * b.astype(np.uint32).astype(np.uint64)
                want = (product >> np.uint64(32)).astype(np.uint32).astype(np.int32)
            elif op == "integers":
                quotient = np.trunc(a.astype(np.longdouble) / b.astype(np.longdouble)).astype(a.dtype)
                with np.errstate(over="ignore"):
                    rest = a - quotient * b
                    want = quotient + rest + (a << 3) - (b >> 1) + (a & b) * 3 + (a | 5) - (a ^ b)
            else:
                with np.errstate(over="ignore"):
                    want = np.minimum(a, b) * a + np.abs(b)
            allowed: Array | float = 0.0
        else:
            a, b = numbers(rng, dtype, n, scale=2), numbers(rng, dtype, n, scale=2)
            want = ELEMENTWISE[op](wide(a), wide(b))
            # several operations, each rounded to the type: eight roundings of what the terms can reach
            allowed = 16 * HALF_ULP[dtype] * (4 + np.abs(want) + wide(a) ** 2 + wide(b) ** 2)
            if op == "divide":
                allowed = allowed + 4 * HALF_ULP[dtype] * np.abs(wide(a) / wide(b))
            if dtype == "fp64":
                allowed = allowed * 4
        out = np.zeros(n, DTYPES[dtype])
        return Launch((2, 1, 1), {"x": a, "y": b, "out": out, "n": n}, {"out": (want, allowed)})

    types = pointers(x=f"*{dtype}", y=f"*{dtype}", out=f"*{dtype}", n="i32")
    return Case(f"{op}-{dtype}", "elementwise", types, {"OP": op, "BLOCK": block}, launch, gate=gate)


def convert(source: str, target: str, chips: tuple[str, ...] = ("gfx942", "gfx950"), gate: bool = False) -> Case:
    n, block = 1000, 512

    def launch(rng: np.random.Generator) -> Launch:
        x = numbers(rng, source, n, scale=8)
        if not source.startswith("i") and not target.startswith("i"):
            x[:6] = np.array([0.0, -0.0, 1.0, 0.5, -2.0, 3.0]).astype(x.dtype)
        want = x.astype(np.float32).astype(DTYPES[target]) if source != "fp64" else x.astype(DTYPES[target])
        return Launch((2, 1, 1), {"x": x, "out": np.zeros(n, DTYPES[target]), "n": n}, {"out": (want, 0.0)})

    types = pointers(x=f"*{source}", out=f"*{target}", n="i32")
    return Case(f"convert-{source}-{target}", "convert", types, {"BLOCK": block}, launch, chips=chips, gate=gate)


def softmax(dtype: str, cols: int, block: int, warps: int, gate: bool = False) -> Case:
    def launch(rng: np.random.Generator) -> Launch:
        x = numbers(rng, dtype, 5, cols, scale=4)
        e = np.exp(wide(x) - wide(x).max(1, keepdims=True))
        want = e / e.sum(1, keepdims=True)
        allowed = want * (2**-18 + HALF_ULP[dtype]) + 2.0**-24
        out = np.zeros_like(x)
        return Launch((5, 1, 1), {"x": x, "out": out, "cols": cols}, {"out": (want, allowed)})

    types = pointers(x=f"*{dtype}", out=f"*{dtype}", cols="i32")
    return Case(
        f"softmax-{dtype}-{block}-w{warps}",
        "softmax",
        types,
        {"BLOCK": block},
        launch,
        {"num_warps": warps},
        gate=gate,
    )


def layer_norm(dtype: str, cols: int, block: int, warps: int, gate: bool = False) -> Case:
    def launch(rng: np.random.Generator) -> Launch:
        x = numbers(rng, dtype, 3, cols, scale=3) + np.array(1.5, DTYPES[dtype])
        w, b = numbers(rng, dtype, cols), numbers(rng, dtype, cols)
        mean = wide(x).mean(1)
        rstd = 1 / np.sqrt(wide(x).var(1) + 1e-5)
        want = (wide(x) - mean[:, None]) * rstd[:, None] * wide(w) + wide(b)
        arguments = {"x": x, "weight": w, "bias": b, "out": np.zeros_like(x)}
        arguments |= {"mean": np.zeros(3, np.float32), "rstd": np.zeros(3, np.float32), "cols": cols, "eps": 1e-5}
        allowed = (np.abs(want) + 4) * (HALF_ULP[dtype] + 2.0**-19)
        return Launch((3, 1, 1), arguments, {"out": (want, allowed), "mean": (mean, 1e-5), "rstd": (rstd, 1e-5)})

    p = f"*{dtype}"
    types = pointers(x=p, weight=p, bias=p, out=p, mean="*fp32", rstd="*fp32", cols="i32", eps="fp32")
    return Case(
        f"layernorm-{dtype}-{block}-w{warps}",
        "layer_norm",
        types,
        {"BLOCK": block},
        launch,
        {"num_warps": warps},
        gate=gate,
    )


def product_error(a: Array, b: Array, want: Array, out: str) -> Array:
    """Rounding of the result, and of every partial sum in f32: k · 2^-24 of the sum of magnitudes is a safe bound."""
    k = a.shape[-1]
    if out == "i32":
        return np.zeros(())
    unit = 2.0**-53 if out == "fp64" else 2.0**-24
    return np.abs(want) * HALF_ULP[out] + k * unit * (np.abs(wide(a)) @ np.abs(wide(b))) + 1e-30


def matmul(
    dtype: str,
    out: str,
    tile: tuple[int, int, int],
    warps: int,
    stages: int,
    size: tuple[int, int, int] = (100, 136, 112),
    transposed: bool = False,
    chips: tuple[str, ...] = ("gfx942", "gfx950"),
    gate: bool = False,
    **options: Any,
) -> Case:
    m, n, k = size
    acc = {"i8": "tl.int32", "fp64": "tl.float64"}.get(dtype, "tl.float32")

    def launch(rng: np.random.Generator) -> Launch:
        a, b = numbers(rng, dtype, m, k), numbers(rng, dtype, k, n)
        want = wide(a) @ wide(b)
        grid = (-(-m // tile[0]) * -(-n // tile[1]), 1, 1)
        stored = np.ascontiguousarray(b.T) if transposed else b
        arguments = {"a": a, "b": stored, "c": np.zeros((m, n), DTYPES[out]), "m": m, "n": n, "k": k}
        arguments |= {"stride_a": k, "stride_b": k if transposed else n, "stride_c": n}
        return Launch(grid, arguments, {"c": (want, product_error(a, b, want, out))})

    types = pointers(a=f"*{dtype}", b=f"*{dtype}", c=f"*{out}", m="i32", n="i32", k="i32:16")
    types |= {"stride_a": "i32:16", "stride_b": "i32:16" if transposed else "i32", "stride_c": "i32"}
    if n % 16 == 0:
        types |= {"n": "i32:16", "stride_b": "i32:16", "stride_c": "i32:16"}
    constants = dict(zip(("BM", "BN", "BK"), tile, strict=True)) | {"GROUP": 2, "TRANSPOSED": transposed, "ACC": acc}
    extra = "".join(f"-{key.split('_')[-1]}{value}" for key, value in options.items())
    name = f"matmul-{dtype}-{out}-{tile[0]}x{tile[1]}x{tile[2]}-w{warps}-s{stages}{'-t' if transposed else ''}{extra}"
    return Case(
        name,
        "matmul",
        types,
        constants,
        launch,
        {"num_warps": warps, "num_stages": stages, **options},
        chips,
        gate,
    )


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
SCALED = {"e4m3": ("fp8e4nv", ml_dtypes.float8_e4m3fn), "e5m2": ("fp8e5", ml_dtypes.float8_e5m2), "e2m1": ("u8", None)}


def _block_scaled(rng: np.random.Generator, kind: str, rows: int, k: int) -> tuple[Array, Array, Array]:
    """Raw operand, raw E8M0 scales, and the values they stand for; k innermost."""
    scales = rng.integers(124, 131, (rows, k // 32)).astype(np.uint8)
    if kind == "e2m1":
        raw = rng.integers(0, 256, (rows, k // 2)).astype(np.uint8)
        values = np.stack([E2M1[raw & 15], E2M1[raw >> 4]], -1).reshape(rows, k)
    else:
        raw = rng.standard_normal((rows, k)).astype(SCALED[kind][1])
        values = wide(raw)
    return raw, scales, values * np.repeat(np.ldexp(1.0, scales.astype(int) - 127), 32, 1)


def scaled_matmul(left: str, right: str, tile: tuple[int, int, int], warps: int, gate: bool = False) -> Case:
    m, n, k = 2 * tile[0], tile[1], 2 * tile[2]

    def launch(rng: np.random.Generator) -> Launch:
        a, sa, va = _block_scaled(rng, left, m, k)
        b, sb, vb = _block_scaled(rng, right, n, k)
        want = va @ vb.T
        arguments = {"a": a, "sa": sa, "b": b, "sb": sb, "c": np.zeros((m, n), np.float32), "n": n, "k": k}
        # where the chip has no scaled products, Triton multiplies in bf16, in which these values are exact
        return Launch((2, 1, 1), arguments, {"c": (want, product_error(va, vb.T, want, "fp32"))})

    types = pointers(a=f"*{SCALED[left][0]}", sa="*u8", b=f"*{SCALED[right][0]}", sb="*u8", c="*fp32")
    types |= {"n": "i32:16", "k": "i32:16"}
    constants = dict(zip(("BM", "BN", "BK"), tile, strict=True)) | {"LEFT": left, "RIGHT": right}
    name = f"scaled-{left}-{right}-{tile[0]}x{tile[1]}x{tile[2]}-w{warps}"
    return Case(name, "scaled_matmul", types, constants, launch, {"num_warps": warps}, gate=gate)


def attention(
    dtype: str,
    tile: tuple[int, int],
    d: int,
    causal: bool,
    warps: int,
    stages: int = 2,
    length: int = 150,
    gate: bool = False,
) -> Case:
    heads = 2

    def launch(rng: np.random.Generator) -> Launch:
        q, k, v = (numbers(rng, dtype, heads, length, d) for _ in range(3))
        scale = d**-0.5
        s = wide(q) @ wide(k).transpose(0, 2, 1) * scale
        if causal:
            s = np.where(np.tril(np.ones((length, length), bool)), s, -np.inf)
        peak = s.max(-1, keepdims=True)
        e = np.exp(s - peak)
        total = e.sum(-1, keepdims=True)
        want = e / total @ wide(v)
        # p is rounded to the type before the second product
        allowed = HALF_ULP[dtype] * (np.abs(want) + 2 * (e / total @ np.abs(wide(v)))) + 1e-4
        lse = (peak + np.log(total))[..., 0] * np.log2(np.e)
        arguments = {"q": q, "k": k, "v": v, "out": np.zeros_like(q), "lse": np.zeros((heads, length), np.float32)}
        arguments |= {"length": length, "scale": scale}
        return Launch((-(-length // tile[0]), heads, 1), arguments, {"out": (want, allowed), "lse": (lse, 1e-4)})

    p = f"*{dtype}"
    types = pointers(q=p, k=p, v=p, out=p, lse="*fp32", length="i32", scale="fp32")
    constants = {"BM": tile[0], "BN": tile[1], "D": d, "CAUSAL": causal}
    name = f"attention-{dtype}-{tile[0]}x{tile[1]}-d{d}-{'causal' if causal else 'full'}-w{warps}-s{stages}"
    return Case(name, "attention", types, constants, launch, {"num_warps": warps, "num_stages": stages}, gate=gate)


def atomics() -> Case:
    n, block = 900, 256

    def launch(rng: np.random.Generator) -> Launch:
        x = rng.integers(0, 1 << 20, n).astype(np.int32)
        bits = np.array([0, 0, 0, -1], np.int32)
        ored = [int(np.bitwise_or.reduce(1 << (x[x % 2 == i] % 31))) for i in (0, 1)]
        bits_want = np.array([*ored, np.bitwise_xor.reduce(x), np.bitwise_and.reduce(x | 255)])
        low = np.array([x[x % 3 == i].min() for i in range(3)])
        arguments = {
            "x": x,
            "count": np.zeros(13, np.int32),
            "total": np.zeros(5, np.float32),
            "high": np.full(1, -5, np.int32),
            "low": np.full(3, 1 << 30, np.int32),
            "bits": bits,
            "n": n,
        }
        expected: dict[str, tuple[Array, Array | float]] = {
            "count": (np.bincount(x % 13, minlength=13), 0.0),
            "total": (np.bincount(x % 5, minlength=5) * 0.5, 0.0),
            "high": (np.array([x.max()]), 0.0),
            "low": (low, 0.0),
            "bits": (bits_want, 0.0),
        }
        return Launch((4, 1, 1), arguments, expected)

    types = pointers(x="*i32", count="*i32", total="*fp32", high="*i32", low="*i32", bits="*i32", n="i32")
    return Case("atomics", "atomics", types, {"BLOCK": block}, launch, gate=True)


def atomic_add_floats(dtype: str, gate: bool = False) -> Case:
    n, m, block = 1000, 64, 256

    def launch(rng: np.random.Generator) -> Launch:
        x = rng.integers(-3, 4, n).astype(DTYPES[dtype])
        want = np.zeros(m)
        np.add.at(want, np.arange(n) % m, wide(x))
        arguments = {"x": x, "out": np.zeros(m, DTYPES[dtype]), "n": n, "m": m}
        return Launch((4, 1, 1), arguments, {"out": (want, 0.0)})

    types = pointers(x=f"*{dtype}", out=f"*{dtype}", n="i32", m="i32:16")
    return Case(f"atomic-add-{dtype}", "atomic_add_floats", types, {"BLOCK": block}, launch, gate=gate)


def spin_lock() -> Case:
    def launch(rng: np.random.Generator) -> Launch:
        arguments = {"lock": np.zeros(1, np.int32), "counter": np.zeros(1, np.int32), "out": np.full(6, -1, np.int32)}
        # workgroups run one after the other here
        return Launch((6, 1, 1), arguments, {"counter": (np.array([6]), 0.0), "out": (np.arange(6), 0.0)})

    return Case("spin-lock", "spin_lock", pointers(lock="*i32", counter="*i32", out="*i32"), {}, launch)


def reductions(rows: int, cols: int, warps: int) -> Case:
    def launch(rng: np.random.Generator) -> Launch:
        x = rng.permutation(rows * cols).reshape(rows, cols).astype(np.int32) - rows * cols // 2
        low = x.min(0)
        arguments = {"x": x, "total": np.zeros(cols, np.int32), "high": np.zeros(rows, np.int32)}
        arguments |= {"where_high": np.zeros(rows, np.int32), "low": np.zeros(cols, np.int32)}
        arguments |= {"cumulative": np.zeros_like(x), "product": np.zeros_like(x)}
        want = {"total": x.sum(0), "high": x.max(1), "where_high": x.argmax(1), "low": low}
        want |= {"cumulative": x.cumsum(1), "product": np.cumprod(np.where(x > 0, 2, 1), 0, dtype=np.int32)}
        return Launch((1, 1, 1), arguments, {k: (v, 0.0) for k, v in want.items()})

    p = "*i32"
    types = pointers(x=p, total=p, high=p, where_high=p, low=p, cumulative=p, product=p)
    constants = {"ROWS": rows, "COLS": cols}
    return Case(f"reductions-{rows}x{cols}-w{warps}", "reductions", types, constants, launch, {"num_warps": warps})


def sort_rows(dtype: str, rows: int, cols: int) -> Case:
    def launch(rng: np.random.Generator) -> Launch:
        x = numbers(rng, dtype, rows, cols)
        arguments = {"x": x, "out": np.zeros_like(x), "flipped": np.zeros_like(x)}
        return Launch((1, 1, 1), arguments, {"out": (np.sort(x, 1), 0.0), "flipped": (x[:, ::-1], 0.0)})

    p = f"*{dtype}"
    return Case(
        f"sort-{dtype}-{rows}x{cols}",
        "sort_rows",
        pointers(x=p, out=p, flipped=p),
        {"ROWS": rows, "COLS": cols},
        launch,
    )


def transpose(dtype: str, rows: int, cols: int, gate: bool = False) -> Case:
    def launch(rng: np.random.Generator) -> Launch:
        x = numbers(rng, dtype, rows, cols)
        out = np.zeros((cols, rows), x.dtype)
        return Launch((1, 1, 1), {"x": x, "out": out}, {"out": (x.T, 0.0)})

    p = f"*{dtype}"
    constants = {"ROWS": rows, "COLS": cols}
    return Case(f"transpose-{dtype}-{rows}x{cols}", "transpose", pointers(x=p, out=p), constants, launch, gate=gate)


def gather() -> Case:
    rows, cols = 32, 64

    def launch(rng: np.random.Generator) -> Launch:
        x, index = numbers(rng, "fp32", rows, cols), rng.integers(0, rows, (rows, cols)).astype(np.int32)
        arguments = {"x": x, "index": index, "out": np.zeros_like(x), "histogram": np.zeros(rows, np.int32)}
        want = {"out": np.take_along_axis(x, index, 0), "histogram": np.bincount(index.ravel(), minlength=rows)}
        return Launch((1, 1, 1), arguments, {k: (v, 0.0) for k, v in want.items()})

    types = pointers(x="*fp32", index="*i32", out="*fp32", histogram="*i32")
    return Case("gather-histogram", "gather_rows", types, {"ROWS": rows, "COLS": cols}, launch)


def _philox(seed: int, offsets: Array) -> Array:
    """First word of Philox 4x32 with ten rounds, counter (offset, 0, 0, 0), key (seed, 0). [Salmon et al., SC 2011]"""
    mask = np.uint64(0xFFFFFFFF)
    c = [offsets.astype(np.uint64), *(np.zeros(len(offsets), np.uint64) for _ in range(3))]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            p1 >> np.uint64(32) ^ c[1] ^ np.uint64(k0),
            p1 & mask,
            p0 >> np.uint64(32) ^ c[3] ^ np.uint64(k1),
            p0 & mask,
        ]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c[0].astype(np.uint32)


def random_numbers() -> Case:
    n, block, seed = 700, 256, 123456

    def launch(rng: np.random.Generator) -> Launch:
        words = _philox(seed, np.arange(n)).view(np.int32)
        folded = np.where(words < 0, -words - 1, words)
        arguments = {"out": np.zeros(n, np.float32), "integers": np.zeros(n, np.int32), "seed": seed, "n": n}
        return Launch((3, 1, 1), arguments, {"integers": (words, 0.0), "out": (folded * 4.6566127342e-10, 1e-7)})

    types = pointers(out="*fp32", integers="*i32", seed="i32", n="i32")
    return Case("philox", "random_numbers", types, {"BLOCK": block}, launch, gate=True)


def join_split() -> Case:
    block = 256

    def launch(rng: np.random.Generator) -> Launch:
        x, y = numbers(rng, "fp32", block), numbers(rng, "fp32", block)
        arguments = {"x": x, "y": y, "out": np.zeros(2 * block, np.float32), "low": np.zeros(block, np.float32)}
        want = np.stack([x, y], 1).ravel()
        return Launch((1, 1, 1), arguments, {"out": (want, 0.0), "low": (x * np.float32(2) - y, 1e-6)})

    p = "*fp32"
    return Case("join-split", "join_split", pointers(x=p, y=p, out=p, low=p), {"BLOCK": block}, launch)


def gluon_product(version: int, dtype: str, tile: tuple[int, int, int], k: int, chip: str, gate: bool = False) -> Case:
    m, n, step = tile

    def launch(rng: np.random.Generator) -> Launch:
        a, b = numbers(rng, dtype, m, k), numbers(rng, dtype, k, n)
        want = wide(a) @ wide(b)
        arguments = {"a": a, "b": b, "c": np.zeros((m, n), np.float32), "k": k}
        return Launch((1, 1, 1), arguments, {"c": (want, product_error(a, b, want, "fp32"))})

    types = pointers(a=f"*{dtype}", b=f"*{dtype}", c="*fp32", k="i32:16")
    constants = {"VERSION": version, "M": m, "N": n, "K": step}
    name = f"gluon-product-v{version}-{dtype}-{m}x{n}x{step}"
    return Case(name, "tile_product", types, constants, launch, {"num_warps": 4}, (chip,), gate)


def gluon_counts() -> Case:
    n, block = 900, 256

    def launch(rng: np.random.Generator) -> Launch:
        x = rng.integers(-50, 50, n).astype(np.int32)
        total = np.zeros(7)
        np.add.at(total, np.arange(n) % 7, x)
        high = np.array([x[i::5].max() for i in range(5)])
        arguments = {"x": x, "total": np.zeros(7, np.float32), "high": np.full(5, -99, np.int32), "n": n}
        return Launch((4, 1, 1), arguments, {"total": (total, 0.0), "high": (high, 0.0)})

    types = pointers(x="*i32", total="*fp32", high="*i32", n="i32")
    return Case("gluon-counts", "counts", types, {"BLOCK": block}, launch, {"num_warps": 4})


def gluon_copy() -> Case:
    rows, block = 5, 1024

    def launch(rng: np.random.Generator) -> Launch:
        x = numbers(rng, "fp32", rows, block)
        return Launch((1, 1, 1), {"x": x, "out": np.zeros_like(x), "n": rows}, {"out": (2 * x[::-1], 0.0)})

    types = pointers(x="*fp32", out="*fp32", n="i32")
    return Case("gluon-copy", "copy_through_lds", types, {"BLOCK": block}, launch, {"num_warps": 4}, ("gfx950",), True)


def gluon_scaled(kind: str, tile: tuple[int, int, int]) -> Case:
    m, n, k = tile

    def launch(rng: np.random.Generator) -> Launch:
        a, sa, va = _block_scaled(rng, kind, m, k)
        b, sb, vb = _block_scaled(rng, kind, n, k)
        want = va @ vb.T
        arguments = {"a": a, "sa": sa, "b": b, "sb": sb, "c": np.zeros((m, n), np.float32)}
        return Launch((1, 1, 1), arguments, {"c": (want, product_error(va, vb.T, want, "fp32"))})

    types = pointers(a=f"*{SCALED[kind][0]}", sa="*u8", b=f"*{SCALED[kind][0]}", sb="*u8", c="*fp32")
    constants = {"FORMAT": kind, "M": m, "N": n, "K": k}
    name = f"gluon-scaled-{kind}-{m}x{n}x{k}"
    return Case(name, "scaled_tile", types, constants, launch, {"num_warps": 4}, ("gfx950",))


def scans(rows: int, cols: int, warps: int) -> Case:
    """Scans with a function of our own, and the position of the smallest element where NaNs are absent."""

    def launch(rng: np.random.Generator) -> Launch:
        x = rng.permutation(rows * cols).reshape(rows, cols).astype(np.float32) - rows * cols // 2
        arguments = {"x": x, "high": np.zeros_like(x), "back": np.zeros_like(x), "where": np.zeros(rows, np.int32)}
        want = {"high": np.maximum.accumulate(x, 1), "back": np.cumsum(x[:, ::-1], 1)[:, ::-1], "where": x.argmin(1)}
        return Launch((1, 1, 1), arguments, {k: (v, 0.0) for k, v in want.items()})

    types = pointers(x="*fp32", high="*fp32", back="*fp32", where="*i32")
    constants = {"ROWS": rows, "COLS": cols}
    return Case(f"scans-{rows}x{cols}-w{warps}", "scans", types, constants, launch, {"num_warps": warps})


def exchanges() -> Case:
    """Compare-and-swap and exchange on cells of their own per element; the previous values come back."""
    n = 256

    def launch(rng: np.random.Generator) -> Launch:
        cells, x = rng.integers(0, 3, n).astype(np.int32), rng.integers(0, 3, n).astype(np.int32)
        wide_cells = rng.integers(-(1 << 40), 1 << 40, n).astype(np.int64)
        arguments = {
            "cells": cells,
            "x": x,
            "old": np.zeros(n, np.int32),
            "wide": wide_cells,
            "before": np.zeros(n, np.int64),
        }
        want = {
            "cells": np.where(cells == x, x + 10, cells),
            "old": cells,
            "wide": x.astype(np.int64),
            "before": wide_cells,
        }
        return Launch((1, 1, 1), arguments, {k: (v, 0.0) for k, v in want.items()})

    types = pointers(cells="*i32", x="*i32", old="*i32", wide="*i64", before="*i64")
    return Case("exchanges", "exchanges", types, {"BLOCK": n}, launch)


def cases() -> Iterator[Case]:
    """All of them."""
    old, new = ("gfx942",), ("gfx950",)
    yield vector_add("fp32", 256, 4, gate=True)
    yield vector_add("fp16", 1024, 4)
    yield vector_add("bf16", 512, 8, gate=True)
    yield vector_add("i64", 128, 1)
    yield vector_add("i8", 1024, 2)
    for op in ELEMENTWISE:
        yield elementwise(op, "fp32", gate=op == "math")
    for dtype in ("fp16", "bf16"):
        yield elementwise("fma", dtype)
        yield elementwise("other", dtype)
    yield elementwise("math", "fp64")
    yield elementwise("divide", "fp64")
    for dtype in ("i8", "i16", "i32", "i64"):
        yield elementwise("integers", dtype)
    yield elementwise("umulhi", "i32")
    for source, target in (
        ("fp32", "fp16"), ("fp32", "bf16"), ("bf16", "fp32"), ("fp16", "bf16"), ("i32", "fp32"), ("fp32", "i32"),
        ("i8", "fp16"), ("fp64", "fp32"), ("i64", "fp64"), ("fp32", "i8"), ("fp32", "i64"),
    ):  # fmt: skip
        yield convert(source, target)
    for dtype, chips in (("fp8e4b8", old), ("fp8e5b16", old), ("fp8e4nv", new), ("fp8e5", ("gfx942", "gfx950"))):
        for other in ("fp32", "fp16", "bf16"):
            yield convert(other, dtype, chips)
            yield convert(dtype, other, chips)
    yield softmax("fp32", 781, 1024, 4, gate=True)
    yield softmax("fp16", 200, 256, 1)
    yield softmax("bf16", 2000, 2048, 8)
    yield softmax("fp32", 60, 64, 1)
    yield softmax("fp16", 4000, 4096, 16)
    yield layer_norm("fp16", 700, 256, 4, gate=True)
    yield layer_norm("fp32", 1000, 1024, 8)
    yield layer_norm("bf16", 130, 64, 1)
    for dtype in ("bf16", "fp16"):
        for tile, warps, stages in (
            ((32, 32, 32), 1, 2), ((64, 64, 32), 4, 1), ((64, 64, 64), 4, 2), ((128, 64, 32), 4, 3), ((128, 128, 64), 8, 2),
            ((16, 64, 64), 2, 2), ((256, 128, 32), 8, 3), ((64, 128, 128), 4, 2),
        ):  # fmt: skip
            gate = dtype == "bf16" and tile == (64, 64, 64)
            yield matmul(dtype, dtype if warps < 8 else "fp32", tile, warps, stages, gate=gate)
        yield matmul(dtype, dtype, (64, 64, 64), 4, 2, transposed=True)
        yield matmul(dtype, "fp32", (32, 64, 32), 2, 2, size=(33, 65, 96))
        yield matmul(dtype, dtype, (64, 64, 64), 4, 2, matrix_instr_nonkdim=16)
        yield matmul(dtype, dtype, (64, 64, 64), 4, 2, matrix_instr_nonkdim=32)
        yield matmul(dtype, dtype, (64, 64, 64), 4, 2, kpack=2, chips=old)
    for chips, formats in ((old, ("fp8e4b8", "fp8e5b16")), (new, ("fp8e4nv", "fp8e5"))):
        for dtype in formats:
            yield matmul(dtype, "fp32", (64, 64, 64), 4, 2, chips=chips, gate=dtype == formats[0])
            yield matmul(dtype, "bf16", (128, 64, 128), 4, 2, size=(128, 64, 256), transposed=True, chips=chips)
    yield matmul("fp8e5", "fp32", (32, 32, 64), 2, 2, chips=old)
    yield matmul("i8", "i32", (64, 64, 64), 4, 2)
    yield matmul("fp32", "fp32", (32, 32, 32), 4, 2)
    yield matmul("fp64", "fp64", (32, 32, 16), 4, 2, size=(40, 48, 32))
    for left, right in (("e4m3", "e4m3"), ("e2m1", "e2m1"), ("e5m2", "e4m3"), ("e4m3", "e2m1")):
        yield scaled_matmul(left, right, (64, 64, 128), 4, gate=(left, right) == ("e2m1", "e2m1"))
    yield scaled_matmul("e4m3", "e4m3", (32, 128, 256), 4)
    yield scaled_matmul("e2m1", "e2m1", (128, 128, 256), 8)
    yield attention("fp16", (64, 32), 64, False, 4)
    yield attention("bf16", (64, 64), 64, True, 4, gate=True)
    yield attention("bf16", (128, 64), 128, False, 4)
    yield attention("fp16", (128, 32), 128, True, 8, 1)
    yield attention("bf16", (32, 32), 32, True, 2)
    yield atomics()
    yield atomic_add_floats("fp32")
    yield atomic_add_floats("fp16", gate=True)
    yield atomic_add_floats("bf16")
    yield atomic_add_floats("fp64")
    yield spin_lock()
    yield reductions(16, 32, 1)
    yield reductions(64, 64, 4)
    yield sort_rows("i32", 8, 64)
    yield sort_rows("fp32", 4, 128)
    yield transpose("fp32", 64, 32)
    yield transpose("bf16", 64, 128, gate=True)
    yield transpose("i8", 128, 64)
    yield gather()
    yield random_numbers()
    yield join_split()
    yield scans(16, 64, 2)
    yield scans(8, 256, 4)
    yield exchanges()
    yield gluon_product(3, "fp16", (64, 64, 32), 80, "gfx942")
    yield gluon_product(3, "bf16", (128, 64, 64), 192, "gfx942")
    yield gluon_product(4, "bf16", (64, 64, 32), 96, "gfx950", gate=True)
    yield gluon_product(4, "fp16", (128, 128, 64), 128, "gfx950")
    yield gluon_counts()
    yield gluon_copy()
    yield gluon_scaled("e4m3", (64, 64, 256))
    yield gluon_scaled("e2m1", (64, 64, 256))
