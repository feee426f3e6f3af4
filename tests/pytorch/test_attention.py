"""Attention as one differentiable function, against float64. Skipped where PyTorch is not installed."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
import tileir.torch as tt  # noqa: E402

CompileCounterWithBackend: Any = import_module("torch._dynamo.testing").CompileCounterWithBackend

# What rounding inputs, probabilities and results to a type costs, relative to the largest element. [5 units in the last place]
BOUNDS = {torch.bfloat16: 5 * 2**-9, torch.float16: 5 * 2**-12}


def reference(q: Any, k: Any, v: Any, causal: bool, scale: float) -> Any:
    """In float64, by the definition; rows that see nothing are 0."""
    shared = q.shape[2] // k.shape[2]
    k, v = (t.repeat_interleave(shared, 2) for t in (k, v))
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale
    if causal:
        seen = torch.ones(s.shape[-2:], dtype=torch.bool).tril(s.shape[-1] - s.shape[-2])
        s = s.masked_fill(~seen, -1e300)
        p = torch.softmax(s, -1) * seen
    else:
        p = torch.softmax(s, -1)
    return torch.einsum("bhqk,bkhd->bqhd", p, v)


def inputs(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> list[Any]:
    batch, queries, keys, heads, groups, size = shape
    r = torch.Generator().manual_seed(seed)
    sizes = ((queries, heads), (keys, groups), (keys, groups))
    return [torch.randn(batch, n, h, size, generator=r).to(dtype).requires_grad_() for n, h in sizes]


def close(got: Any, want: Any, dtype: Any) -> bool:
    return bool((got.double() - want).abs().max() <= BOUNDS[dtype] * want.abs().max())


SHAPES = [(1, 70, 90, 4, 2, 32), (2, 33, 33, 2, 2, 64), (1, 40, 17, 1, 1, 128), (1, 1, 65, 2, 1, 32)]


CASES = [
    pytest.param(s, c, t, id=f"{s}-{c}-{t}", marks=() if (n + c + (t == torch.float16)) % 3 == 0 else pytest.mark.nightly)
    for n, s in enumerate(SHAPES) for c in (False, True) for t in BOUNDS
]  # fmt: skip


@pytest.mark.parametrize(("shape", "causal", "dtype"), CASES)
def test_forward_and_backward(shape: tuple[int, ...], causal: bool, dtype: Any) -> None:
    """Grouped heads, more queries than keys (whose first rows see nothing when causal), fewer, sizes that no tile divides."""
    own = inputs(shape, dtype)
    o = tt.attention(*own, causal=causal)
    grad = torch.randn(o.shape, generator=torch.Generator().manual_seed(9)).to(dtype)
    o.backward(grad)
    exact = [t.detach().double().requires_grad_() for t in own]
    want = reference(*exact, causal, shape[-1] ** -0.5)
    want.backward(grad.double())
    assert close(o.detach(), want.detach(), dtype)
    for name, a, b in zip("qkv", own, exact, strict=True):
        assert close(a.grad, b.grad, dtype), name


def test_log_sum_exp_has_a_gradient_too() -> None:
    q, k, v = inputs((1, 20, 30, 2, 2, 32), torch.float16)
    lse = torch.ops.tileir.attention(q, k, v, 0.2)[1]
    lse.sum().backward()
    exact = [t.detach().double().requires_grad_() for t in (q, k)]
    want = torch.logsumexp(torch.einsum("bqhd,bkhd->bhqk", *exact) * 0.2, -1)
    want.sum().backward()
    assert (lse.double() - want).abs().max() < 1e-4
    assert close(q.grad, exact[0].grad, torch.float16) and close(k.grad, exact[1].grad, torch.float16)


def test_gradients_are_the_same_bits_every_time() -> None:
    found = []
    for _ in range(2):
        own = inputs((1, 40, 50, 2, 1, 32), torch.bfloat16)
        tt.attention(*own).square().sum().backward()
        found.append([t.grad for t in own])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_agrees_with_pytorch() -> None:
    q, k, v = (t.detach() for t in inputs((2, 40, 40, 2, 2, 64), torch.bfloat16))
    want = torch.nn.functional.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
    assert (tt.attention(q, k, v, causal=True).float() - want.transpose(1, 2).float()).abs().max() < 0.02


@pytest.mark.parametrize("name", ["attention", "attention_causal"])
def test_opcheck(name: str) -> None:
    q, k, v = inputs((1, 20, 30, 2, 1, 32), torch.float16)
    op = getattr(torch.ops.tileir, name).default
    found = torch.library.opcheck(op, (q, k, v, 0.3), rtol=1e-3, atol=1e-3)
    assert set(found.values()) == {"SUCCESS"}, found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_training_step_under_torch_compile(backend: str) -> None:
    """Forward and backward in one graph each, for sequences of any length."""
    torch._dynamo.reset()
    count = CompileCounterWithBackend(backend)

    @torch.compile(backend=count, fullgraph=True, dynamic=True)
    def f(q: Any, k: Any, v: Any) -> Any:
        return tt.attention(q * 1.0, k, v, causal=True).float().square().sum()

    for n in (20, 45):
        own, plain = inputs((1, n, n, 2, 1, 32), torch.bfloat16, n), inputs((1, n, n, 2, 1, 32), torch.bfloat16, n)
        f(*own).backward()
        tt.attention(*plain, causal=True).float().square().sum().backward()
        assert all(torch.equal(a.grad, b.grad) for a, b in zip(own, plain, strict=True))
    assert count.frame_count == 1


def test_scale_and_strides() -> None:
    q, k, v = (t.detach() for t in inputs((1, 30, 30, 2, 2, 32), torch.float16))
    moved = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)]
    assert not moved[0].is_contiguous()
    assert torch.equal(tt.attention(*moved, scale=0.5), tt.attention(q, k, v, scale=0.5))
    assert close(
        tt.attention(q, k, v, scale=0.5), reference(q.double(), k.double(), v.double(), False, 0.5), torch.float16
    )
    assert torch.equal(tt.attention(q, k, v), tt.attention(q, k, v, scale=1 / math.sqrt(32)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, v: (q[0], k, v), "q has 3 dimensions"),
        (lambda q, k, v: (q, k.float(), v), "k has dtype torch.float32"),
        (lambda q, k, v: (q.float(), k, v), "q has dtype torch.float32"),
        (lambda q, k, v: (q, k[:, :5], v), "do not fit each other"),
        (lambda q, k, v: (q[:, :, :1], k, v), "1 heads cannot share 2 key heads"),
        (lambda q, k, v: (q[..., :24], k[..., :24], v[..., :24]), "heads have size 24"),
        (lambda q, k, v: (q, k.to("meta"), v), "k is on meta, q on cpu"),
    ],
)
def test_what_does_not_fit_is_said(change: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        tt.attention(*change(*inputs((1, 10, 10, 2, 2, 32), torch.bfloat16)))
    with pytest.raises(ValueError, match="must be positive"):
        tt.attention(*inputs((1, 10, 10, 2, 2, 32), torch.bfloat16), scale=0.0)
