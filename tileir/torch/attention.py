"""Attention with a backward pass: operators made of kernels, put together by PyTorch's autograd.

Forward is the library's `attention_lazy`; backward are the three kernels of its `attention_backward` that compute the scores again
from the row log-sum-exp, without atomics: results are reproducible to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tileir import kernels
from tileir.torch.dtypes import elem_of
from tileir.torch.operator import KernelOp, register

_BACKWARD = kernels.source("attention_backward")
_ELEMS = ("bf16", "f16")


def _types(values: Mapping[str, Any], view: str) -> dict[str, Any]:
    """Element type and head size of a view."""
    return {"T": elem_of(values[view]), "D": int(values[view].shape[3])}


_delta = register("tileir::attention_delta", _BACKWARD, kernel="delta", params=lambda a: _types(a, "O"), adapt=False)


def _of(name: str, source: str, kernel: str, causal: bool) -> KernelOp:
    """One of the operators that exist with and without causal mask."""
    return register(
        f"tileir::{name}{'_causal' if causal else ''}",
        source,
        kernel=kernel,
        params=lambda a: {**_types(a, "Q"), "CAUSAL": causal},
        adapt=False,  # the tiles of the library are those that are known to need no spills
    )


def _forward(causal: bool) -> KernelOp:
    """The forward operator `(Q, K, V, scale) -> (O, LSE)`, differentiable in Q, K and V."""
    forward = _of("attention", kernels.source("attention_lazy"), "attention", causal)
    dkv = _of("attention_dkv", _BACKWARD, "dkv", causal)
    dq = _of("attention_dq", _BACKWARD, "dq", causal)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        q, k, v, scale = inputs
        ctx.save_for_backward(q, k, v, *output)
        ctx.scale = scale
        ctx.set_materialize_grads(False)

    def backward(ctx: Any, grad_o: Any, grad_lse: Any) -> tuple[Any, ...]:
        q, k, v, o, lse = ctx.saved_tensors
        if grad_o is None and grad_lse is None:
            return None, None, None, None
        grad_o = o.new_zeros(o.shape) if grad_o is None else grad_o.contiguous()
        nl, nd = _delta(o, grad_o, lse)
        if grad_lse is not None:  # the derivative of the log-sum-exp by a score is its probability, too
            nd = nd + grad_lse
        dk, dv = dkv(q, k, v, grad_o, nl, nd, ctx.scale)
        return dq(q, k, v, grad_o, nl, nd, ctx.scale), dk, dv, None

    forward.op.register_autograd(backward, setup_context=setup)
    return forward


_FORWARD = {causal: _forward(causal) for causal in (False, True)}


def attention(q: Any, k: Any, v: Any, *, causal: bool = False, scale: float | None = None) -> Any:
    """softmax(q kᵀ scale) v for every head, differentiable.

    q: [batch, queries, heads, D]; k, v: [batch, keys, key heads, D] of the same dtype, bfloat16 or float16; heads is a multiple
    of key heads, which then serve several. causal: the last query sees the last key, each one before it one key less.
    scale: by default 1/sqrt(D). Returns a tensor like q. Rows that see no key are 0.

    Raises ValueError or TypeError for tensors that do not fit.
    """
    for name, t in (("q", q), ("k", k), ("v", v)):
        if t.dim() != 4:
            raise ValueError(f"{name} has {t.dim()} dimensions; [batch, positions, heads, D] are wanted")
        if t.dtype != q.dtype or elem_of(t).name not in _ELEMS:
            raise TypeError(f"{name} has dtype {t.dtype}; bfloat16 or float16 is wanted, the same for q, k and v")
        if t.device != q.device:
            raise ValueError(f"{name} is on {t.device}, q on {q.device}")
    if k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"q has shape {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}: they do not fit each other"
        )
    if k.shape[2] == 0 or q.shape[2] % k.shape[2]:
        raise ValueError(f"{q.shape[2]} heads cannot share {k.shape[2]} key heads")
    if q.shape[3] not in (16, 32, 64, 128):
        raise ValueError(f"heads have size {q.shape[3]}; 16, 32, 64 and 128 are compiled")
    factor = 1.0 / math.sqrt(q.shape[3]) if scale is None else scale
    if factor <= 0.0:
        raise ValueError(f"scale is {factor}; it must be positive")
    return _FORWARD[causal](q, k, v, factor)[0]
