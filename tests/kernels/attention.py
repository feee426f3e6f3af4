"""Running attention kernels against float64, with bounds that follow from the roundings of each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.kernels.harness import DTYPES, compiled, device
from tileir import kernels
from tileir.ir.types import ELEMS
from tileir.lowering.amdgpu.compile import Compiled
from tileir.runtime import compare, launch
from tileir.runtime.compare import gamma, rounding_bound
from tileir.runtime.device import Device

Array = np.ndarray[Any, Any]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
UNIT = 2.0**-24  # half an ulp of f32, relative


@dataclass(frozen=True)
class Shape:
    """Sizes of one launch; the last query sees the last key where `causal`."""

    nq: int
    nk: int
    depth: int = 64
    heads: int = 2
    groups: int = 1
    batches: int = 1
    causal: bool = False


@cache
def source(name: str) -> str:
    """Text of an attention kernel: the example or one of the library."""
    return (EXAMPLES / "attention.tile").read_text() if name == "attention" else kernels.source(name)


def attention_kernel(
    name: str, chip: str, shape: Shape, bm: int, bn: int, dtype: str = "bf16", *, away: bool = False
) -> Compiled:
    """`away` rounds halves of probabilities away from zero (`attention_lazy` only)."""
    params: tuple[tuple[str, object], ...] = (("BM", bm), ("BN", bn), ("D", shape.depth), ("CAUSAL", shape.causal))
    params = (*params, ("T", dtype), *((("AWAY", True),) if away else ()))
    return compiled(source(name), chip, params)


def inputs(shape: Shape, dtype: str, seed: int = 0) -> tuple[Array, Array, Array]:
    """Q, K and V from a normal distribution."""
    rng = np.random.default_rng([seed, shape.nq, shape.nk, shape.depth])
    s, t = shape, DTYPES[dtype]
    q = rng.standard_normal((s.batches, s.nq, s.heads, s.depth)).astype(t)
    k, v = (rng.standard_normal((s.batches, s.nk, s.groups, s.depth)).astype(t) for _ in range(2))
    return q, k, v


def reference(q: Array, k: Array, v: Array, scale: float, causal: bool) -> tuple[Array, Array, Array, Array]:
    """Output and log-sum-exp in float64; Σ p|v| / Σ p; and for each query the largest sum of |q·k| terms that makes a score,
    times the scale. A query that sees no key gives 0 and -inf."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    nq, heads, nk, groups = q.shape[1], q.shape[2], k.shape[1], k.shape[2]
    k, v = (np.repeat(x, heads // groups, axis=2) for x in (k, v))
    scores = scale * np.einsum("bihd,bjhd->bhij", q, k)
    seen = np.ones((nq, nk), bool)
    if causal:
        seen = np.arange(nk) <= np.arange(nq)[:, None] + (nk - nq)
    scores = np.where(seen, scores, -np.inf)
    top = scores.max(axis=3, keepdims=True)
    weights = np.exp(scores - np.where(np.isneginf(top), 0.0, top))
    total = weights.sum(axis=3, keepdims=True)
    p = weights / np.where(total == 0, 1.0, total)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    out, size = (np.einsum("bhij,bjhd->bihd", p, x) for x in (v, np.abs(v)))
    terms = scale * np.einsum("bihd,bjhd->bhij", np.abs(q), np.abs(k)).max(axis=3)
    return out, lse, size, terms


def check_attention(
    kernel: Compiled,
    chip: str,
    shape: Shape,
    dtype: str = "bf16",
    change: Callable[[Array, Array, Array], None] | None = None,
    seed: int = 0,
    name: str = "attention",
    on: Device | None = None,
) -> tuple[Array, Array]:
    """Runs the kernel and compares; `change` may put special values into Q, K and V before. Other kernels than
    `attention` sum the probabilities as they are multiplied, rounded to the type of V; `attention_prescaled` rounds Q times the scale.
    Gives O and LSE."""
    q, k, v = inputs(shape, dtype, seed)
    if change is not None:
        change(q, k, v)
    scale = shape.depth**-0.5
    o = np.full(q.shape, np.nan).astype(q.dtype)
    lse = np.full((shape.batches, shape.heads, shape.nq), np.nan, np.float32)
    arrays = {"Q": q, "K": k, "V": v, "O": o, "LSE": lse, "scale": scale}
    launch(kernel, arrays, on or device(f"simulator:{chip}"))
    want, want_lse, size, terms = reference(q, k, v, float(np.float32(scale)), shape.causal)
    # A score is a sum of `depth` products in f32, scaled and shifted by some ten operations: its absolute error becomes a relative
    # one of exp. Each p is rounded to the type of V, then summed and rescaled in f32; the result is rounded once more.
    elem = ELEMS[dtype]
    half_ulp = float(rounding_bound(1.0, elem))
    each = gamma(shape.depth + 10) + (half_ulp if name == "attention_prescaled" else 0.0)
    score = (each * terms).transpose(0, 2, 1)[..., None]
    relative = score + half_ulp + gamma(2 * shape.nk + 40)
    found = compare(o, want, 2 * relative * size + rounding_bound(size, elem) + 1e-37)
    assert found.ok, f"{shape} {dtype}: O {found}"
    found = compare(
        lse,
        want_lse,
        2 * each * terms + gamma(2 * shape.nk + 40) * (1 + np.log(shape.nk)) + half_ulp * (name != "attention"),
    )
    assert found.ok, f"{shape} {dtype}: LSE {found}"
    return o, lse


def raise_key(position: int, factor: float = 30.0) -> Callable[[Array, Array, Array], None]:
    """Makes one key an outlier: scores of that column grow by the factor, in both directions."""

    def change(q: Array, k: Array, v: Array) -> None:
        k[:, position] = (factor * k[:, position].astype(np.float64)).astype(k.dtype)

    return change
