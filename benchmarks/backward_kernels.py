"""Attention backward in Triton, the peer of the library's: delta, gradients of K and V, of Q, and all three with atomic updates of dQ.

Run by Triton's own Python (`timing_compile.py`). All operands are [heads, length, D], bf16 or f16, contiguous; lengths are multiples of the
tiles. g: the gradient of the output. nl: -log-sum-exp in base 2, nd: the negative sum over a row of o · g, both [heads, length] in f32. scale:
of the scores. Causal loops have a part with masks and one without.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def delta(o, g, nd, length, ROWS: tl.constexpr, D: tl.constexpr):
    """nd of one block of rows."""
    r = tl.program_id(1) * length + tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = r[:, None].to(tl.int64) * D + tl.arange(0, D)[None, :]
    tl.store(nd + r, -tl.sum(tl.load(o + at).to(tl.float32) * tl.load(g + at).to(tl.float32), 1))


@triton.jit
def weights(s, x, row_first, column_first, scale, MASKED: tl.constexpr, TURNED: tl.constexpr):
    """Probabilities of a block of scores, keys by queries if TURNED."""
    x = s * (scale * 1.4426950408889634) + x
    if MASKED:
        if TURNED:
            r = row_first + tl.arange(0, s.shape[1])[None, :]
            c = column_first + tl.arange(0, s.shape[0])[:, None]
        else:
            r = row_first + tl.arange(0, s.shape[0])[:, None]
            c = column_first + tl.arange(0, s.shape[1])[None, :]
        x = tl.where(r >= c, x, -float("inf"))
    return tl.exp2(x)


@triton.jit
def over_queries(
    dk, dv, k, v, q, g, nl, nd, dq, start, stop, first, scale,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr, ATOMIC: tl.constexpr,
):  # fmt: skip
    """Adds what the queries from start to stop give to dk and dv of the keys from first on, and to dQ in memory if ATOMIC."""
    d = tl.arange(0, D)
    for i in range(start, stop, ROWS):
        r = i + tl.arange(0, ROWS)
        at = r[:, None] * D + d[None, :]
        x, y = tl.load(q + at), tl.load(g + at)
        p = weights(tl.dot(k, tl.trans(x)), tl.load(nl + r)[None, :], i, first, scale, MASKED, True)
        dv = tl.dot(p.to(y.dtype), y, dv)
        ds = (p * (tl.dot(v, tl.trans(y)) + tl.load(nd + r)[None, :])).to(x.dtype)
        dk = tl.dot(ds, x, dk)
        if ATOMIC:
            tl.atomic_add(dq + at, tl.dot(tl.trans(ds), k) * scale, sem="relaxed")
    return dk, dv


@triton.jit
def keys(
    q, k, v, g, nl, nd, dq, dk, dv, length, scale,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr, ATOMIC: tl.constexpr,
):  # fmt: skip
    """dK and dV of one block of COLUMNS keys of one head, queries in blocks of ROWS; COLUMNS is a multiple of ROWS."""
    first = tl.program_id(0) * COLUMNS
    head = tl.program_id(1).to(tl.int64) * length
    at = (first + tl.arange(0, COLUMNS))[:, None] * D + tl.arange(0, D)[None, :]
    q, g, dq, nl, nd = q + head * D, g + head * D, dq + head * D, nl + head, nd + head
    x, y = tl.load(k + head * D + at), tl.load(v + head * D + at)
    a, b = tl.zeros((COLUMNS, D), tl.float32), tl.zeros((COLUMNS, D), tl.float32)
    start = 0
    if CAUSAL:
        start = first + COLUMNS
        a, b = over_queries(a, b, x, y, q, g, nl, nd, dq, first, start, first, scale, ROWS, COLUMNS, D, True, ATOMIC)
    a, b = over_queries(a, b, x, y, q, g, nl, nd, dq, start, length, first, scale, ROWS, COLUMNS, D, False, ATOMIC)
    tl.store(dk + head * D + at, (a * scale).to(x.dtype))
    tl.store(dv + head * D + at, b.to(x.dtype))


@triton.jit
def over_keys(
    acc, x, y, z, w, k, v, start, stop, first, scale,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Adds what the keys from start to stop give to acc of the queries from first on."""
    for j in range(start, stop, COLUMNS):
        at = (j + tl.arange(0, COLUMNS))[:, None] * D + tl.arange(0, D)[None, :]
        kj, vj = tl.load(k + at), tl.load(v + at)
        p = weights(tl.dot(x, tl.trans(kj)), z, first, j, scale, MASKED, False)
        ds = p * (tl.dot(y, tl.trans(vj)) + w)
        acc = tl.dot(ds.to(kj.dtype), kj, acc)
    return acc


@triton.jit
def queries(
    q, k, v, g, nl, nd, dq, length, scale,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """dQ of one block of ROWS queries of one head, keys in blocks of COLUMNS; ROWS is a multiple of COLUMNS."""
    first = tl.program_id(0) * ROWS
    head = tl.program_id(1).to(tl.int64) * length
    r = first + tl.arange(0, ROWS)
    at = r[:, None] * D + tl.arange(0, D)[None, :]
    x, y = tl.load(q + head * D + at), tl.load(g + head * D + at)
    z, w = tl.load(nl + head + r)[:, None], tl.load(nd + head + r)[:, None]
    k, v = k + head * D, v + head * D
    stop = length
    if CAUSAL:
        stop = first
    acc = over_keys(tl.zeros((ROWS, D), tl.float32), x, y, z, w, k, v, 0, stop, first, scale, ROWS, COLUMNS, D, False)
    if CAUSAL:
        acc = over_keys(acc, x, y, z, w, k, v, first, first + ROWS, first, scale, ROWS, COLUMNS, D, True)
    tl.store(dq + head * D + at, (acc * scale).to(x.dtype))
