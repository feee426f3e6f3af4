"""Hand-computed vectors: for each op a list of cases. Expected values were worked out from the op's summary, not run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tileir.ir.types import ELEMS, TileType, Type

from .kernels import E

INF, NAN = float("inf"), float("nan")
I32_MIN, I32_MAX = -(2**31), 2**31 - 1


@dataclass
class Case:
    inputs: list[np.ndarray]
    expected: np.ndarray
    attrs: dict[str, Any] = field(default_factory=dict)
    types: list[Type] = field(default_factory=list)


def a(elem: str, *values: Any) -> np.ndarray:
    """A vector of that element type."""
    return np.array(values).astype(E[elem].np)


def s(elem: str, value: Any) -> np.ndarray:
    """A scalar of that element type."""
    return np.array(value).astype(E[elem].np)


def bits(elem: str, *words: int) -> np.ndarray:
    """A vector from its bits."""
    dtype = E[elem].np
    return np.array(words, f"u{dtype.itemsize}").view(dtype)


def col(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, 1)


def case(inputs: list[np.ndarray], expected: np.ndarray, *types: Type, **attrs: Any) -> Case:
    return Case(inputs, expected, attrs, list(types))


def binary(elem: str, x: list[Any], y: list[Any], z: list[Any], out: str = "") -> Case:
    return case([a(elem, *x), a(elem, *y)], a(out or elem, *z))


def compare(truth: str) -> list[Case]:
    """Cases of a comparison from its truth values for (1, 2), (2, 1), (2, 2), (-0, +0), (nan, 1), (nan, nan)."""
    x, y = [1, 2, 2, -0.0, NAN, NAN], [2, 1, 2, 0.0, 1, NAN]
    want = np.array([t == "T" for t in truth])
    floats = [case([a(e, *x), a(e, *y)], want) for e in ("f64", "f32", "f16", "bf16", "f8E4M3FN", "f8E5M2")]
    ints = [case([a(e, 1, 2, 2), a(e, 2, 1, 2)], want[:3]) for e in ("i8", "i16", "i32", "i64")]
    signed = case([a("i32", -1), a("i32", 1)], want[:1])
    return [*floats, *ints, signed, case([a("i1", 0, 1, 1), a("i1", 1, 0, 1)], want[:3])]


def unary(elem: str, x: list[Any], y: list[Any]) -> Case:
    return case([a(elem, *x)], a(elem, *y))


def to(elem: str, x: np.ndarray, want: np.ndarray) -> Case:
    return case([x], want, elem=E[elem])


VECTORS: dict[str, list[Case]] = {
    # -- create
    "constant": [
        case([], s("f32", 0.1), TileType(E["f32"]), value=0.1),
        case([], s("bf16", 1.0078125), TileType(E["bf16"]), value=1.0117),  # ulp 2^-7; tie at 1.01171875, just below
        case([], s("i32", -1), TileType(E["i32"]), value=2**32 - 1),
        case([], s("i64", -(2**63)), TileType(E["i64"]), value=-(2**63)),
        case([], s("i1", True), TileType(E["i1"]), value=True),
        case([], s("f32", -INF), TileType(E["f32"]), value=-INF),
        case([], s("f16", 7), TileType(E["f16"]), value=7),
    ],
    "fill": [
        case([s("f32", 2.5)], np.full((2, 3), 2.5, np.float32), TileType(E["f32"], (2, 3))),
        case([s("bf16", -INF)], a("bf16", -INF, -INF), TileType(E["bf16"], (2,))),
        case([s("i1", True)], a("i1", 1, 1, 1), TileType(E["i1"], (3,))),
    ],
    "iota": [
        case([], a("i32", 0, 1, 2, 3), shape=(4,), axis=0),
        case([], np.array([[0, 0], [1, 1]], np.int32), shape=(2, 2), axis=0),
        case([], np.array([[0, 1], [0, 1]], np.int32), shape=(2, 2), axis=1),
        case([], np.array([[[0, 1, 2]]], np.int32), shape=(1, 1, 3), axis=2),
    ],
    # -- arithmetic
    "add": [
        binary("f32", [1, 2**24, INF, NAN, -0.0], [2, 1, -INF, 1, 0.0], [3, 2**24, NAN, NAN, 0.0]),
        binary("f32", [1e-45], [1e-45], [2.8e-45]),  # denormals are kept
        binary("i32", [I32_MAX, -1], [1, 1], [I32_MIN, 0]),
        binary("i8", [127, -128], [1, -1], [-128, 127]),
        binary("i64", [2**63 - 1], [1], [-(2**63)]),
        binary("bf16", [256, 256], [1, 3], [256, 260]),  # ties to even
        binary("f16", [65504, 2048], [32, 1], [INF, 2048]),
        binary("f8E4M3FN", [448, -448, NAN], [448, -1, 1], [448, -448, NAN]),
        case([s("i32", 3), a("i32", 1, 2)], a("i32", 4, 5)),
        case([col(a("f32", 1, 2)), a("f32", 10, 20).reshape(1, 2)], np.array([[11, 21], [12, 22]], np.float32)),
        case([s("f32", 3), s("f32", 4)], s("f32", 7)),
    ],
    "sub": [
        binary("f32", [1, INF, 1.5], [2, INF, 0.5], [-1, NAN, 1]),
        binary("i32", [I32_MIN], [1], [I32_MAX]),
        binary("bf16", [1], [0.0078125], [0.9921875]),
    ],
    "mul": [
        binary("f32", [3, 0, -0.0, 1e30], [2, INF, 5, 1e30], [6, NAN, -0.0, INF]),
        binary("i32", [2**16, 3], [2**16, -4], [0, -12]),
        binary("i16", [300], [300], [90000 - 65536]),
        binary("f16", [256, 0.1], [256, 0.1], [INF, 1310 * 2.0**-17]),
    ],
    "div": [
        binary("f32", [1, -1, 0, 1, 7], [0, 0, 0, -0.0, 2], [INF, -INF, NAN, -INF, 3.5]),
        binary("f32", [1], [3], [0.3333333432674408]),
        binary("bf16", [1], [3], [0.333984375]),
        binary("i32", [7, -7, 7, -7, I32_MIN, 5, -5], [2, 2, -2, -2, -1, 0, 0], [3, -3, -3, 3, I32_MIN, -1, -1]),
        binary("i64", [-(2**63), 2**40], [-1, -3], [-(2**63), -366503875925]),
        binary("i8", [-128, 0], [-1, 0], [-128, -1]),
    ],
    "mod": [
        binary("i32", [7, -7, 7, -7, I32_MIN, 5], [3, 3, -3, -3, -1, 0], [1, -1, 1, -1, 0, 5]),
        binary("i64", [2**40], [1000], [776]),
        binary("f32", [7.5, -7.5, 1, INF, 1], [2, 2, 0, 2, INF], [1.5, -1.5, NAN, NAN, 1]),
        binary("bf16", [10], [3], [1]),
    ],
    "cdiv": [
        binary("i32", [7, 6, -7, 7, -7, 0, 5, I32_MIN], [2, 2, 2, -2, -2, 3, 0, -1], [4, 3, -3, -3, 4, 0, -1, I32_MIN]),
    ],
    "min": [
        binary("f32", [1, NAN, 2, NAN, -INF], [2, 5, NAN, NAN, 0], [1, 5, 2, NAN, -INF]),
        binary("f32", [0.0, -0.0, 0.0], [-0.0, 0.0, 0.0], [-0.0, -0.0, 0.0]),
        binary("bf16", [0.0, NAN, 3], [-0.0, 1, 2], [-0.0, 1, 2]),
        binary("f8E4M3FNUZ", [0.0, NAN, 3], [0.0, 1, 2], [0.0, 1, 2]),
        binary("i32", [I32_MIN, 5], [1, -5], [I32_MIN, -5]),
    ],
    "max": [
        binary("f32", [1, NAN, 2, NAN, INF], [2, 5, NAN, NAN, 0], [2, 5, 2, NAN, INF]),
        binary("f32", [0.0, -0.0, -0.0], [-0.0, 0.0, -0.0], [0.0, 0.0, -0.0]),
        binary("f16", [0.0, NAN, 3], [-0.0, 1, 2], [0.0, 1, 3]),
        binary("i64", [-(2**63), 5], [1, -5], [1, 5]),
    ],
    "and": [
        binary("i32", [0b1100, -1], [0b1010, 7], [0b1000, 7]),
        binary("i1", [0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 1]),
    ],
    "or": [binary("i8", [0b1100], [0b1010], [0b1110]), binary("i1", [0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 1])],
    "xor": [binary("i16", [0b1100, -1], [0b1010, -1], [0b0110, 0]), binary("i1", [0, 1, 1], [1, 0, 1], [1, 1, 0])],
    "shl": [
        binary("i32", [1, 1, 3, 1], [31, 32, 33, -1], [I32_MIN, 1, 6, I32_MIN]),
        binary("i8", [1, 1], [7, 8], [-128, 1]),
        binary("i64", [1], [40], [2**40]),
    ],
    "shr": [binary("i32", [-8, 8, -1, 5], [1, 2, 31, 32], [-4, 2, -1, 5]), binary("i8", [-128], [7], [-1])],
    # -- comparison, for (1, 2), (2, 1), (2, 2), (-0, +0), (nan, 1), (nan, nan)
    "eq": compare("FFTTFF"),
    "ne": compare("TTFFTT"),
    "lt": compare("TFFFFF"),
    "le": compare("TFTTFF"),
    "gt": compare("FTFFFF"),
    "ge": compare("FTTTFF"),
    # -- unary
    "neg": [
        case([bits("f32", 0, 0x80000000, 0x7FC00000, 0x3F800000)], bits("f32", 0x80000000, 0, 0xFFC00000, 0xBF800000)),
        case([bits("bf16", 0, 0x7FC0, 0xBF80)], bits("bf16", 0x8000, 0xFFC0, 0x3F80)),
        unary("i32", [5, I32_MIN, 0], [-5, I32_MIN, 0]),
        unary("f8E4M3FNUZ", [0, 1, NAN], [0, -1, NAN]),
    ],
    "not": [unary("i32", [0, -1, 5], [-1, 0, -6]), unary("i1", [0, 1], [1, 0]), unary("i8", [127], [-128])],
    "abs": [
        unary("f32", [-1.5, -0.0, -INF, 2], [1.5, 0.0, INF, 2]),
        unary("bf16", [-1.5, -0.0], [1.5, 0.0]),
        unary("i32", [-7, I32_MIN], [7, I32_MIN]),
    ],
    "exp": [
        unary("f32", [0, 1, -INF, INF, NAN, 100], [1, 2.7182817459106445, 0, INF, NAN, INF]),
        unary("f32", [-100], [3.783506e-44]),  # e^-100 = 3.72e-44 is 26.55 steps of 2^-149: rounds to 27
        unary("bf16", [1], [2.71875]),
    ],
    "exp2": [
        unary("f32", [0, 10, -1, 0.5, -149, -150, 128], [1, 1024, 0.5, 1.4142135381698608, 2.0**-149, 0, INF]),
        unary("f16", [-24, -25, 0.5], [2.0**-24, 0, 1.4140625]),
    ],
    "log": [
        unary("f32", [1, 0, -1, INF, 2], [0, -INF, NAN, INF, 0.6931471824645996]),
        unary("f16", [2], [0.693359375]),
    ],
    "log2": [unary("f32", [8, 0, -1, 2.0**-149, 3], [3, -INF, NAN, -149, 1.5849624872207642])],
    "sqrt": [unary("f32", [4, 2, -1, -0.0, INF], [2, 1.4142135381698608, NAN, -0.0, INF]), unary("f64", [9], [3])],
    "rsqrt": [unary("f32", [4, 0, -0.0, INF, -1, 2], [0.5, INF, -INF, 0, NAN, 0.7071067690849304])],
    "rcp": [unary("f32", [4, 0, -0.0, -INF, 3], [0.25, INF, -INF, -0.0, 0.3333333432674408])],
    "sin": [unary("f32", [0, 1, INF], [0, 0.8414709568023682, NAN])],
    "cos": [unary("f32", [0, 1, -INF], [1, 0.5403022766113281, NAN])],
    "tan": [unary("f32", [0, 1, INF], [0, 1.5574077367782593, NAN])],
    "sinh": [unary("f32", [0, 1, -INF], [0, 1.175201177597046, -INF])],
    "cosh": [unary("f32", [0, 1, -INF], [1, 1.5430806875228882, INF])],
    "pow": [binary("f32", [2, -2, 0, INF, 4], [10, 3, 0, -1, 0.5], [1024, -8, 1, 0, 2])],
    "atan2": [
        binary("f32", [0, 1, -1, 0.0], [1, 0, 0, -1], [0, 1.5707963705062866, -1.5707963705062866, 3.1415927410125732])
    ],
    "mulhi": [binary("i32", [1 << 20, -1, I32_MIN], [1 << 20, 1, 2], [256, -1, -1])],
    "mulhi_unsigned": [binary("i32", [1 << 20, -1], [1 << 20, 2], [256, 1])],
    "tanh": [unary("f32", [0, 1, INF, -INF], [0, 0.7615941762924194, 1, -1])],
    "erf": [unary("f32", [0, 1, INF, -INF], [0, 0.8427007794380188, 1, -1]), unary("f64", [0.5], [0.5204998778130465])],
    "sigmoid": [unary("f32", [0, INF, -INF, 1], [0.5, 1, 0, 0.7310585975646973])],
    "floor": [unary("f32", [1.5, -1.5, -0.0, INF], [1, -2, -0.0, INF]), unary("bf16", [2.5], [2])],
    "ceil": [unary("f32", [1.5, -1.5, -0.5], [2, -1, -0.0])],
    "round": [unary("f32", [0.5, 1.5, 2.5, -0.5, -1.5], [0, 2, 2, -0.0, -2])],
    # -- ternary
    "fma": [
        # (1 + 2^-12)^2 - 1 needs 2^-24, which the rounded product has lost
        case([a("f32", 1 + 2.0**-12), a("f32", 1 + 2.0**-12), a("f32", -1)], a("f32", 2.0**-11 + 2.0**-24)),
        case([a("f32", 1), a("f32", 1 + 2.0**-23), a("f32", 2.0**-24)], a("f32", 1 + 2.0**-22)),  # a tie: to even
        # 2^-54 below and above a tie of f32, which f64 cannot hold next to 1: no double rounding
        case([a("f32", 2.0**-24 + 2.0**-39), a("f32", 1 - 2.0**-15), a("f32", 1 + 2.0**-23)], a("f32", 1 + 2.0**-23)),
        case(
            [a("f32", -(2.0**-24) - 2.0**-39), a("f32", 1 - 2.0**-15), a("f32", 1 + 2.0**-23)], a("f32", 1 + 2.0**-23)
        ),
        case([a("f32", 2.0**-50), a("f32", 2.0**-50), a("f32", 1.0)], a("f32", 1.0)),
        case([a("f32", 1 + 2.0**-23), a("f32", 2.0**-24), a("f32", 1)], a("f32", 1 + 2.0**-23)),
        case([a("f32", -1 + 2.0**-24), a("f32", 2.0**-24), a("f32", 1 + 2.0**-23)], a("f32", 1 + 2.0**-23)),
        case([a("f64", 1 + 2.0**-30), a("f64", 1 + 2.0**-30), a("f64", -1)], a("f64", 2.0**-29 + 2.0**-60)),
        case([a("f64", INF, NAN), a("f64", 0, 1), a("f64", 1, 1)], a("f64", NAN, NAN)),
        case([a("i32", 2**16), a("i32", 2**16), a("i32", 5)], a("i32", 5)),
        case([a("f16", 256), a("f16", 256), a("f16", -INF)], a("f16", -INF)),
    ],
    "where": [
        case([a("i1", 1, 0, 1), a("f32", 1, 2, NAN), a("f32", 4, NAN, 6)], a("f32", 1, NAN, NAN)),
        case([a("i1", 1, 0), s("bf16", 1), s("bf16", -INF)], a("bf16", 1, -INF)),
        case([s("i1", False), s("i32", 3), s("i32", 4)], s("i32", 4)),
        case([col(a("i1", 1, 0)), a("i8", 1, 2).reshape(1, 2), s("i8", 9)], np.array([[1, 2], [9, 9]], np.int8)),
    ],
    "clamp": [
        case([a("f32", -2, 0.5, 3, NAN), s("f32", -1), s("f32", 1)], a("f32", -1, 0.5, 1, -1)),
        case([a("i32", -2, 0, 3), s("i32", -1), s("i32", 1)], a("i32", -1, 0, 1)),
    ],
    # -- conversion
    "convert": [
        to("bf16", a("f32", 1.00390625, 1.01171875, 1.00390637, 3.4e38), a("bf16", 1, 1.015625, 1.0078125, INF)),
        to("bf16", a("f32", NAN, INF, -0.0, 1e-45), a("bf16", NAN, INF, -0.0, 0)),
        # f64 just above a tie of bf16 must not be rounded to the tie first
        to("bf16", a("f64", 1.00390625 + 2.0**-40), a("bf16", 1.0078125)),
        to("f16", a("f64", 1 + 2.0**-11 + 2.0**-40), a("f16", 1 + 2.0**-10)),
        to("f16", a("f32", 65519, 65520, 2.0**-25, 2.0**-25 + 2.0**-30), a("f16", 65504, INF, 0, 2.0**-24)),
        to("f32", bits("bf16", 0x3F80, 0x7F80, 0x0001), bits("f32", 0x3F800000, 0x7F800000, 0x00010000)),
        to("f64", a("f32", 0.1), np.array([float(np.float32(0.1))])),
        to(
            "i32",
            a("f32", 1.9, -1.9, 3e9, -3e9, NAN, INF, -INF),
            a("i32", 1, -1, I32_MAX, I32_MIN, 0, I32_MAX, I32_MIN),
        ),
        to("i8", a("f32", 127.5, -128.9, 128, -130), a("i8", 127, -128, 127, -128)),
        to("i64", a("f64", 2.0**63, -(2.0**63), 1e300), a("i64", 2**63 - 1, -(2**63), 2**63 - 1)),
        to("i8", a("bf16", 3.75, -INF), a("i8", 3, -128)),
        to("i8", a("i32", 300, -1, 128), a("i8", 44, -1, -128)),
        to("i64", a("i32", -5), a("i64", -5)),
        to("i32", a("i1", 0, 1), a("i32", 0, 1)),
        to("bf16", a("i1", 0, 1), a("bf16", 0, 1)),
        to("i1", a("f32", 0, -0.0, 0.5, NAN), a("i1", 0, 0, 1, 1)),
        to("i1", a("i32", 0, 256), a("i1", 0, 1)),
        to("f32", a("i32", 2**24 + 1, I32_MIN), a("f32", 2**24, -(2.0**31))),
        to("bf16", a("i32", 257, 259), a("bf16", 256, 260)),
        # 2^62 + 2^54 is a tie of bf16, and one more must round up although f64 cannot hold it
        to("bf16", a("i64", 2**62 + 2**54, 2**62 + 2**54 + 1), a("bf16", 2.0**62, 2.0**62 + 2.0**55)),
        to("bf16", -a("i64", 2**62 + 2**54, 2**62 + 2**54 + 1), a("bf16", -(2.0**62), -(2.0**62) - 2.0**55)),
        to("f8E4M3FN", a("f32", 448, 464, 1e9, INF, -INF, NAN), bits("f8E4M3FN", 0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0x7F)),
        to("f8E4M3FN", a("f32", 1.0625, 1.1875, 2.0**-10, -0.0), bits("f8E4M3FN", 0x38, 0x3A, 0x00, 0x80)),
        to("f8E5M2", a("bf16", 57344, 1e6, -INF, NAN), bits("f8E5M2", 0x7B, 0x7B, 0xFB, 0x7E)),
        to("f8E4M3FNUZ", a("f32", 240, 1e9, -INF, NAN, -0.0), bits("f8E4M3FNUZ", 0x7F, 0x7F, 0xFF, 0x80, 0x00)),
        to("f8E5M2FNUZ", a("f16", 57344, 65504, -INF, NAN), bits("f8E5M2FNUZ", 0x7F, 0x7F, 0xFF, 0x80)),
        to("f8E5M2", a("i32", 1000000, -3), bits("f8E5M2", 0x7B, 0xC2)),
        to("f8E8M0FNU", a("f32", 1, 1.5, 3, 0, -1, NAN, INF), bits("f8E8M0FNU", 127, 128, 129, 255, 255, 255, 254)),
        to("f6E2M3FN", a("f32", 100, -INF, 1.0625), bits("f6E2M3FN", 0x1F, 0x3F, 0x08)),
        to("f6E3M2FN", a("f32", 100, -1), bits("f6E3M2FN", 0x1F, 0x2C)),
        to("f4E2M1FN", a("f32", 100, -INF, 2.5, 0.25), bits("f4E2M1FN", 0x7, 0xF, 0x4, 0x0)),
        case([a("f32", 2.5, -2.5, 1.75)], a("f4E2M1FN", 3, -3, 2), elem=E["f4E2M1FN"], rounding="nearest_away"),
        case([a("f32", 2.9, -2.9, 100)], a("f4E2M1FN", 2, -2, 6), elem=E["f4E2M1FN"], rounding="toward_zero"),
        case([a("f32", 1e6, -INF, 57344)], bits("f8E5M2", 0x7C, 0xFC, 0x7B), elem=E["f8E5M2"], overflow="infinity"),
        case([a("f32", 465, -INF, 463)], bits("f8E4M3FN", 0x7F, 0xFF, 0x7E), elem=E["f8E4M3FN"], overflow="infinity"),
        case([a("f32", 1e6, INF)], bits("f8E5M2FNUZ", 0x80, 0x80), elem=E["f8E5M2FNUZ"], overflow="infinity"),
        case([a("f32", 70000, -1e9, 1)], a("f16", 65504, -65504, 1), elem=E["f16"], overflow="saturate"),
        # a quarter of the step from 1 to 1.125 lies below: the bits must be three quarters of 2^32 or more
        case(
            [a("f32", 1.03125, 1.03125, -1.03125, 1), a("i32", -(2**30) - 1, -(2**30), -1, -1)],
            a("f8E4M3FN", 1, 1.125, -1.125, 1),
            elem=E["f8E4M3FN"],
            rounding="stochastic",
        ),
        case([a("f32", 1.9, 2, 0.75)], bits("f8E8M0FNU", 127, 128, 126), elem=E["f8E8M0FNU"], rounding="toward_zero"),
    ],
    "bitcast": [
        to("i32", a("f32", 1, -0.0), a("i32", 0x3F800000, I32_MIN)),
        to("f32", a("i32", 0x7F800000), a("f32", INF)),
        to("i16", a("bf16", 1), a("i16", 0x3F80)),
        to("f16", a("bf16", 1), bits("f16", 0x3F80)),
        to("i64", s("f64", 1.0), s("i64", 0x3FF0000000000000)),
    ],
    # -- shape
    "transpose": [
        case([a("i32", 1, 2, 3, 4, 5, 6).reshape(2, 3)], np.array([[1, 4], [2, 5], [3, 6]], np.int32)),
        case(
            [a("i32", *range(6)).reshape(1, 2, 3)],
            np.array([[[0], [3]], [[1], [4]], [[2], [5]]], np.int32),
            perm=(2, 1, 0),
        ),
    ],
    "reshape": [
        case([a("f32", 1, 2, 3, 4, 5, 6).reshape(2, 3)], a("f32", 1, 2, 3, 4, 5, 6).reshape(3, 2), shape=(3, 2)),
        case([a("f32", 1, 2).reshape(2, 1)], a("f32", 1, 2), shape=(2,)),
    ],
    "broadcast": [
        case([col(a("f32", 1, 2))], np.array([[1, 1, 1], [2, 2, 2]], np.float32), shape=(2, 3)),
        case([s("bf16", 3)], a("bf16", 3, 3), shape=(2,)),
    ],
    # -- reduce
    "reduce_add": [
        case([np.array([[1, 2], [3, 4]], np.float32)], np.array([[3], [7]], np.float32), axis=1),
        case([np.array([[1, 2], [3, 4]], np.float32)], np.array([[4, 6]], np.float32), axis=0),
        case([a("f32", 2**24, 1, 1)], a("f32", 2**24 + 2), axis=0),  # one rounding at the end
        case([a("bf16", 256, 1, 1, 1)], a("bf16", 260), axis=0),
        case([a("f32", INF, 1, -INF)], a("f32", NAN), axis=0),
        case([a("i32", I32_MAX, 1)], a("i32", I32_MIN), axis=0),
        case([a("i8", 100, 100)], a("i8", -56), axis=0),
        # elements j with (j / 2) mod 2 = 0 are 0 1 4 5, the others 2 3 6 7
        case([a("i32", 0, 1, 2, 3, 4, 5, 6, 7)], a("i32", 10, 18), axis=0, parts=2, inner=2),
        case([a("i32", 0, 1, 2, 3, 4, 5, 6, 7)], a("i32", 12, 16), axis=0, parts=2, inner=1),
        case([a("i32", 1, 2, 3)], a("i32", 3, 3, 0), axis=0, parts=3, inner=2),
    ],
    "reduce_max": [
        case([np.array([[1, NAN, 3], [NAN, NAN, NAN]], np.float32)], np.array([[3], [NAN]], np.float32), axis=1),
        case([a("f32", -0.0, -0.0, 0.0)], a("f32", 0.0), axis=0),
        case([a("f32", -INF, -INF)], a("f32", -INF), axis=0),
        case([a("bf16", 1, 5, 2)], a("bf16", 5), axis=0),
        case([a("i32", I32_MIN, -1, -7)], a("i32", -1), axis=0),
        case([a("i32", 9, 1, 2, 3)], a("i32", 9, 3), axis=0, parts=2, inner=1),
    ],
    "table": [
        case([], a("f16", 1, -0.5, INF), elem=ELEMS["f16"], values=(1, -0.5, INF)),
        case([], a("i8", 1, -128, -1), elem=ELEMS["i8"], values=(1, -128, 255)),
        case([], a("bf16", 256), elem=ELEMS["bf16"], values=(256.75,)),
    ],
    "slice": [
        case([a("i32", 1, 2, 3, 4)], a("i32", 2, 3), offsets=(1,), shape=(2,)),
        case(
            [np.array([[1, 2, 3], [4, 5, 6]], np.int32)], np.array([[3], [6]], np.int32), offsets=(0, 2), shape=(2, 1)
        ),
    ],
    "insert": [
        case(
            [np.array([[1, 2], [3, 4]], np.int32), np.array([[9], [8]], np.int32)],
            np.array([[1, 9], [3, 8]], np.int32),
            offsets=(0, 1),
        )
    ],
    "concat": [
        case([a("i8", 1, 2), a("i8", 3), a("i8", 4, 5)], a("i8", 1, 2, 3, 4, 5), axis=0),
        case(
            [np.array([[1], [2]], np.int32), np.array([[3], [4]], np.int32)],
            np.array([[1, 3], [2, 4]], np.int32),
            axis=1,
        ),
    ],
    "reduce_and": [
        case([a("i32", 12, -1, 10)], a("i32", 8), axis=0),
        case([a("i8", 3, 5)], a("i8", 3, 5, -1), axis=0, parts=3, inner=1),
    ],
    "reduce_or": [case([a("i32", 12, 0, 3)], a("i32", 15), axis=0)],
    "reduce_xor": [case([a("i32", 12, -1, 10)], a("i32", -7), axis=0)],
    "reduce_argmax": [
        case([np.array([[1, NAN, 3, 3], [NAN, -INF, NAN, NAN]], np.float32)], np.array([[2], [1]], np.int32), axis=1),
        case([a("f32", NAN, NAN)], a("i32", 0), axis=0),
        case([a("f32", -0.0, 0.0)], a("i32", 0), axis=0),
        case([a("i8", -3, 5, 5, -128)], a("i32", 1), axis=0),
    ],
    "reduce_argmin": [
        case([np.array([[NAN, 1, 3, 1]], np.float32)], np.array([[1]], np.int32), axis=1),
        case([a("f64", 0.0, -0.0)], a("i32", 0), axis=0),
        case([np.array([[4, 2], [2, 2]], np.int64)], np.array([[1, 0]], np.int32), axis=0),
    ],
    "any": [case([np.array([[True, False], [False, False]])], np.array([[True], [False]]), axis=1)],
    "all": [case([np.array([[True, False], [True, True]])], np.array([[False], [True]]), axis=1)],
    "scan_add": [
        case([a("i32", 1, 2, 3, 4)], a("i32", 1, 3, 6, 10), axis=0),
        case([a("i32", 1, 2, 3, 4)], a("i32", 0, 1, 3, 6), axis=0, exclusive=True),
        case([a("i32", 1, 2, 3, 4)], a("i32", 10, 9, 7, 4), axis=0, reverse=True),
        case([a("i32", 1, 2, 3, 4)], a("i32", 9, 7, 4, 0), axis=0, reverse=True, exclusive=True),
        case([a("i8", 100, 100)], a("i8", 100, -56), axis=0),
        case([a("f32", -0.0, -0.0)], a("f32", -0.0, -0.0), axis=0),
        case([a("f32", -0.0, -0.0)], a("f32", 0.0, 0.0), axis=0, exclusive=True),
        case(
            [a("bf16", 256, 0.75, 0.75)], a("bf16", 256, 256, 258), axis=0
        ),  # the whole sum is rounded, not every step
        case([np.array([[1, 2], [3, 4]], np.float32)], np.array([[1, 2], [4, 6]], np.float32), axis=0),
        case([a("i32", 1, 2, 3, 4, 5), a("i32", 3, 12)], a("i32", 1, 3, 6, 7, 12), axis=0, parts=2, inner=3),
        case(
            [a("i32", 1, 2, 3), a("i32", 3, 3)],
            a("i32", 5, 3, 0),
            axis=0,
            parts=2,
            inner=2,
            reverse=True,
            exclusive=True,
        ),
    ],
    "scan_mul": [case([a("i32", 2, 3, 4)], a("i32", 1, 2, 6), axis=0, exclusive=True)],
    "scan_max": [
        case([a("f32", NAN, 1, NAN, 3)], a("f32", NAN, 1, 1, 3), axis=0),
        case([a("f32", NAN, 1, NAN, 3)], a("f32", -INF, -INF, 1, 1), axis=0, exclusive=True),
        case([a("i8", 1, 3, 2)], a("i8", -128, 1, 3), axis=0, exclusive=True),
    ],
    "scan_min": [
        case([a("f32", 3, NAN, 1)], a("f32", INF, 3, 3), axis=0, exclusive=True),
        case([a("i32", 5, 7, 6)], a("i32", 5, 6, 6), axis=0, reverse=True),
    ],
    "reduce_min": [
        case([np.array([[1, NAN, 3], [NAN, NAN, NAN]], np.float32)], np.array([[1], [NAN]], np.float32), axis=1),
        case([a("f32", 0.0, -0.0, 0.0)], a("f32", -0.0), axis=0),
        case([a("i32", 4, I32_MIN, 7)], a("i32", I32_MIN), axis=0),
    ],
    "reduce_mul": [
        case([a("f32", 2, 3, 4)], a("f32", 24), axis=0),
        case([a("f32", 1e30, 1e30, 1e-30)], a("f32", 1e30), axis=0),
        case([a("i32", 2**16, 2**16)], a("i32", 0), axis=0),
    ],
    "unpack": [
        case([a("i8", 0x21, -1).reshape(1, 2)], bits("f4E2M1FN", 1, 2, 15, 15).reshape(1, 4), elem=E["f4E2M1FN"]),
        case([a("i32", 0x40302010)], a("i8", 0x10, 0x20, 0x30, 0x40), elem=E["i8"]),
        case([a("i32", -0x40000000)], bits("f16", 0, 0xC000), elem=E["f16"]),
    ],
    "pack": [
        case([bits("f4E2M1FN", 1, 2, 15, 15).reshape(1, 4)], a("i8", 0x21, -1).reshape(1, 2), elem=E["i8"]),
        case([a("i8", 0x10, -1, 0x30, -0x80)], a("i32", 0x8030FF10 - 2**32), elem=E["i32"]),
        case([bits("f8E4M3FNUZ", 0x80, 0x7F)], a("i16", 0x7F80), elem=E["i16"]),
    ],
    # -- contract
    "mma_scaled": [
        # two blocks of 32 with scales of 2 and 1/4 for the row of a, 1 and 8 for the column of b
        case(
            [
                np.ones((1, 64), E["f8E4M3FN"].np),
                bits("f8E8M0FNU", 128, 125).reshape(1, 2),
                np.full((64, 1), 0.5, E["f4E2M1FN"].np),
                bits("f8E8M0FNU", 127, 130).reshape(2, 1),
                a("f32", 0.25).reshape(1, 1),
            ],
            a("f32", 0.25 + 32 * 2 * 0.5 + 32 * 0.25 * 4).reshape(1, 1),
        ),
        case(
            [
                np.ones((1, 32), E["f8E5M2"].np),
                bits("f8E8M0FNU", 255).reshape(1, 1),
                np.zeros((32, 1), E["f8E5M2"].np),
                bits("f8E8M0FNU", 127).reshape(1, 1),
            ],
            a("f32", NAN).reshape(1, 1),
        ),
    ],
    "mma": [
        case(
            [a("f32", 1, 2, 3, 4).reshape(2, 2), a("f32", 5, 6, 7, 8).reshape(2, 2)],
            a("f32", 19, 22, 43, 50).reshape(2, 2),
        ),
        case(
            [a("bf16", 1, 2).reshape(1, 2), a("bf16", 3, 4).reshape(2, 1), a("f32", 0.5).reshape(1, 1)],
            a("f32", 11.5).reshape(1, 1),
        ),
        # 2^24 + 1 - 2^24: wide accumulation keeps the 1
        case(
            [a("f32", 2**12, 1, -(2**12)).reshape(1, 3), a("f32", 2**12, 1, 2**12).reshape(3, 1)],
            a("f32", 1).reshape(1, 1),
        ),
        case([a("i8", -128, -128).reshape(1, 2), a("i8", -128, -128).reshape(2, 1)], a("i32", 32768).reshape(1, 1)),
        case(
            [a("i8", 1).reshape(1, 1), a("i8", 1).reshape(1, 1), a("i32", I32_MAX).reshape(1, 1)],
            a("i32", I32_MIN).reshape(1, 1),
        ),
        case([a("f64", 0.1).reshape(1, 1), a("f64", 10).reshape(1, 1)], a("f64", 1).reshape(1, 1)),
        case([a("f8E4M3FN", 448).reshape(1, 1), a("f8E5M2", 2).reshape(1, 1)], a("f32", 896).reshape(1, 1)),
        case([a("f16", INF).reshape(1, 1), a("f16", 0).reshape(1, 1)], a("f32", NAN).reshape(1, 1)),
    ],
    # -- random: words of Random123's reference implementation (kat_vectors and its definition)
    "philox_bits": [
        case([s("i64", 0), a("i64", 0)], bits("i32", 0x6627E8D5)),
    ],
    "philox_uniform": [
        case([s("i64", 0), a("i64", 0)], a("f32", 0x6627E8 * 2.0**-24)),
    ],
}
