"""Running the kernels of attention backward against float64, with bounds that follow from the roundings of each step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tests.kernels.attention import Array, Shape, inputs, raise_key, reference
from tests.kernels.harness import compiled, device
from tileir import kernels
from tileir.ir.types import ELEMS
from tileir.lowering.amdgpu.compile import Compiled
from tileir.runtime import compare, launch
from tileir.runtime.compare import gamma, rounding_bound
from tileir.runtime.device import Device

STEPS = ("delta", "dkv", "dq")


def backward_kernel(step: str, chip: str, shape: Shape, dtype: str = "bf16", **tile: int) -> Compiled:
    """One kernel of the file."""
    params: dict[str, object] = {"D": shape.depth, "T": dtype, **tile}
    if step != "delta":
        params["CAUSAL"] = shape.causal
    return compiled(kernels.source("attention_backward"), chip, tuple(params.items()), step)


class Gradients(NamedTuple):
    """Gradients, or what they may be off by."""

    dq: Array
    dk: Array
    dv: Array


def exact(
    q: Array, k: Array, v: Array, o: Array, do: Array, lse: Array, shape: Shape, dtype: str
) -> tuple[Gradients, Gradients]:
    """Gradients in float64 from the same O and row log-sum-exp, and how far the kernels may be from them: scores and their gradients are sums in
    f32, probabilities and gradients of scores are rounded to the type of the operands."""
    scale, elem = float(np.float32(shape.depth**-0.5)), ELEMS[dtype]
    q, k, v, o, do, lse = (x.astype(np.float64) for x in (q, k, v, o, do, lse))
    shared = shape.heads // shape.groups
    k, v = (np.repeat(x, shared, axis=2) for x in (k, v))

    def rows(a: Array, b: Array) -> Array:
        return np.einsum("bihd,bjhd->bhij", a, b)

    seen = np.ones((shape.nq, shape.nk), bool)
    if shape.causal:
        seen = np.arange(shape.nk) <= np.arange(shape.nq)[:, None] + (shape.nk - shape.nq)
    shift = np.where(np.isneginf(lse), np.inf, lse)[..., None]
    scores = scale * rows(q, k) - shift
    p = np.where(seen, np.exp(np.where(seen, scores, -np.inf)), 0.0)
    shift = np.where(np.isinf(shift), 0.0, np.abs(shift))
    p_off = p * (gamma(shape.depth + 16) * (scale * rows(np.abs(q), np.abs(k)) + shift + 1.0)) + 2.0**-126
    delta, size = (np.einsum("bihd,bihd->bhi", f(o), f(do))[..., None] for f in (lambda x: x, np.abs))
    dp = rows(do, v) - delta
    dp_off = gamma(shape.depth + 16) * (rows(np.abs(do), np.abs(v)) + size)
    ds = p * dp
    ds_off = p_off * (np.abs(dp) + dp_off) + p * dp_off
    p_off, ds_off = p_off + rounding_bound(p + p_off, elem), ds_off + rounding_bound(np.abs(ds) + ds_off, elem)

    def grouped(x: Array) -> Array:
        b, n, _, d = x.shape
        return x.reshape(b, n, shape.groups, shared, d).sum(3)

    def total(weights: Array, off: Array, values: Array, which: str, factor: float, terms: int) -> tuple[Array, Array]:
        found = factor * np.einsum(which, weights, values)
        size = factor * np.einsum(which, np.abs(weights) + off, np.abs(values))
        wide = factor * np.einsum(which, off, np.abs(values)) + gamma(terms + 8) * size
        return found, wide

    over_keys, over_queries = "bhij,bjhd->bihd", "bhij,bihd->bjhd"
    found = [
        total(ds, ds_off, k, over_keys, scale, shape.nk),
        *(
            tuple(map(grouped, total(w, off, x, over_queries, factor, shape.nq * shared)))
            for w, off, x, factor in ((ds, ds_off, q, scale), (p, p_off, do, 1.0))
        ),
    ]
    bounds = [wide + rounding_bound(np.abs(value) + wide, elem) + 1e-37 for value, wide in found]
    return Gradients(*(value for value, _ in found)), Gradients(*bounds)


def check_backward(
    shape: Shape,
    chip: str,
    steps: dict[str, Compiled],
    dtype: str = "bf16",
    outlier: bool = False,
    seed: int = 0,
    on: Device | None = None,
) -> Gradients:
    """Runs the kernels on inputs of a normal distribution, one key an outlier if asked, and compares. Gives the gradients."""
    q, k, v = inputs(shape, dtype, seed)
    if outlier:
        raise_key(shape.nk - 1)(q, k, v)
    rng = np.random.default_rng([seed, 5])
    do = rng.standard_normal(q.shape).astype(q.dtype)
    scale = shape.depth**-0.5
    out, lse, _, _ = reference(q, k, v, float(np.float32(scale)), shape.causal)
    o, lse = out.astype(q.dtype), np.ascontiguousarray(lse, np.float32)
    where = on or device(f"simulator:{chip}")
    nl, nd = (np.full(lse.shape, np.nan, np.float32) for _ in range(2))
    launch(steps["delta"], {"O": o, "DO": do, "LSE": lse, "NL": nl, "ND": nd}, where)
    named: dict[str, Any] = {"Q": q, "K": k, "V": v, "DO": do, "NL": nl, "ND": nd, "scale": scale}
    dk, dv = np.full(k.shape, np.nan).astype(q.dtype), np.full(k.shape, np.nan).astype(q.dtype)
    if "fused" in steps:
        dq = np.zeros(q.shape, np.float32)
        launch(steps["fused"], {**named, "DQ": dq, "DK": dk, "DV": dv}, where)
    else:
        dq = np.full(q.shape, np.nan).astype(q.dtype)
        launch(steps["dkv"], {**named, "DK": dk, "DV": dv}, where)
        launch(steps["dq"], {**named, "DQ": dq}, where)
    want, bound = exact(q, k, v, o, do, lse, shape, dtype)
    for name, got in (("dq", dq), ("dk", dk), ("dv", dv)):
        found = compare(got, getattr(want, name), getattr(bound, name))
        assert found.ok, f"{shape} {dtype} {chip}: {name} {found}"
    return Gradients(dq, dk, dv)
