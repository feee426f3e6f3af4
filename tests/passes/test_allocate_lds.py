"""allocate-lds: who may share bytes, and what is said when they do not suffice (case lds-budget)."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.harness import DTYPES, device, integers
from tileir import kernels
from tileir.frontend import parse
from tileir.ir.core import Kernel, Module, Op
from tileir.ir.diagnostics import CompileError
from tileir.lowering.amdgpu.compile import compile_kernel
from tileir.passes.allocate_lds import PASS, allocate, check_allocation
from tileir.passes.base import Context
from tileir.passes.lds_sizes import Buffer, buffers, least_bytes
from tileir.passes.manager import run_pipeline
from tileir.runtime import launch
from tileir.target import get


def allocated(body: str, chip: str = "gfx950") -> Kernel:
    text = f"""tileir 1
kernel @k(%A: global<f32[64, 64]>) grid(1) with(target = {chip}, waves = 4) {{
  %z = constant<0>() : i32
  %n = constant<8>() : i32
  %f = constant<0.0>() : f32
  %v = fill(%f) : tile<f32[32, 32]>
{body}
}}
"""
    kernel = parse(text, "lds.tile").kernels[0]
    new = PASS.run(kernel, Context(get(chip), Module([kernel], sources={"lds.tile": text})))
    check_allocation(new, get(chip))
    return new


def offsets(kernel: Kernel) -> dict[str, object]:
    return {op.result.name: op.attrs["offset"] for op in kernel.walk() if op.name == "shared_alloc"}


def alloc(name: str, attrs: str = "", layout: str = "rows", shape: str = "32, 32") -> str:
    return f"  %{name} = shared_alloc{attrs}() : shared<f32[{shape}], {layout}>\n"


def use(name: str, n: int) -> str:
    return f"  shared_store(%v, %{name})\n  %r{name}{n} = shared_load(%{name}) : tile<f32[32, 32]>\n"


def test_buffers_used_at_one_time_lie_apart() -> None:
    kernel = allocated(alloc("s") + alloc("t") + use("s", 0) + use("t", 0) + use("s", 1))
    assert sorted(offsets(kernel).values()) == [0, 4096]
    assert kernel.attrs["lds"] == 8192


@pytest.mark.parametrize("layout", ["rows", "swizzle(1, 4, 3)", "padded(144)"])
def test_leading_dimensions_count_once(layout: str) -> None:
    """A buffer of rank 3 takes what a matrix of all its rows takes."""
    sizes = {allocated(alloc("s", layout=layout, shape=shape)).attrs["lds"] for shape in ("4, 8, 32", "32, 32")}
    assert sizes == {31 * 144 + 128 if layout[0] == "p" else 4096}


def test_buffers_used_one_after_the_other_share() -> None:
    kernel = allocated(alloc("s") + alloc("t") + use("s", 0) + use("t", 0))
    assert offsets(kernel) == {"s": 0, "t": 0}
    assert kernel.attrs["lds"] == 4096


def test_a_loop_keeps_what_it_uses_for_all_of_its_iterations() -> None:
    loop = "  for %i = %z to %n step %n {\n" + use("s", 0) + use("t", 0) + "  yield\n  }\n"
    assert sorted(offsets(allocated(alloc("s") + alloc("t") + loop)).values()) == [0, 4096]
    inside = "  for %i = %z to %n step %n {\n" + alloc("s") + use("s", 0) + alloc("t") + use("t", 0) + "  yield\n  }\n"
    assert offsets(allocated(inside)) == {"s": 0, "t": 0}


def test_branches_share_and_the_join_does_not() -> None:
    branch = (
        "  %p = lt(%z, %n) : i1\n  if %p {\n" + use("s", 0) + "  yield\n  } else {\n" + use("t", 0) + "  yield\n  }\n"
    )
    assert offsets(allocated(alloc("s") + alloc("t") + branch)) == {"s": 0, "t": 0}
    after = offsets(allocated(alloc("s") + alloc("t") + branch + use("s", 1)))
    assert sorted(after.values()) == [0, 4096]


def test_carried_buffers_are_in_use_while_the_loop_runs() -> None:
    loop = (
        "  %a, %b = for %i = %z to %n step %n carry(%x = %s, %y = %t) {\n  shared_store(%v, %x)\n  yield %y, %x\n  }\n"
        "  %r = shared_load(%a) : tile<f32[32, 32]>\n"
    )
    kernel = allocated(alloc("s") + alloc("t") + alloc("u") + use("t", 0) + loop + use("u", 0))
    found = offsets(kernel)
    assert found["s"] != found["t"] and found["u"] in (0, 4096) and kernel.attrs["lds"] == 8192


def test_alignment_of_copies_and_swizzles_and_kept_offsets() -> None:
    copy = "  copy_async<bytes = 16>(%A[%z +: 32, %z +: 32], %t)\n"
    small = "  %w = shared_alloc() : shared<f32[3, 4], rows>\n"
    touch = "  %small = fill(%f) : tile<f32[3, 4]>\n  shared_store(%small, %w)\n"
    rest = "  %x = shared_load(%t) : tile<f32[32, 32]>\n  %y = shared_load(%w) : tile<f32[3, 4]>\n"
    found = offsets(allocated(small + alloc("t") + touch + copy + rest))
    assert found["t"] % 1024 == 0  # type: ignore[operator]
    kept = offsets(allocated(alloc("s", "<offset = 8192>") + alloc("t") + use("s", 0) + use("t", 0) + use("s", 1)))
    assert kept["s"] == 8192 and kept["t"] == 0


@pytest.mark.parametrize(("chip", "budget"), [("gfx942", 65536), ("gfx950", 163840)])
def test_lds_budget(chip: str, budget: int) -> None:
    """The error lists every buffer with its bytes and place, and the budget of the chip."""
    body = "".join(alloc(n, shape="128, 128") for n in "stu") + (
        "  %w = fill(%f) : tile<f32[128, 128]>\n"
        + "".join(f"  shared_store(%w, %{n})\n" for n in "stu")
        + "".join(f"  %r{n} = shared_load(%{n}) : tile<f32[128, 128]>\n" for n in "stu")
    )
    with pytest.raises(CompileError) as caught:
        allocated(body, chip)
    (d,) = caught.value.diagnostics
    assert d.code == "E0861" and str(budget) in d.message and "196608" in d.message
    assert d.loc.line == 7
    assert [(n.loc.line if n.loc else 0, "65536 bytes" in n.message) for n in d.notes] == [
        (7, True),
        (8, True),
        (9, True),
    ]


@pytest.mark.parametrize("tile", [(192, 192, 192), (256, 192, 96), (192, 256, 96)], ids=str)
@pytest.mark.parametrize("form", ["nt", "nn", "tn", "tt"])
def test_the_budget_is_checked_before_layouts_are_sought(form: str, tile: tuple[int, int, int]) -> None:
    """Both operands of a product do not fit gfx942, and are not cut to rows that fit: the error comes at once, with all buffers (of both versions)."""
    values: dict[str, object] = dict(zip(("BM", "BN", "BK"), tile, strict=True))
    module = parse(kernels.source("gemm_forms"), "f.tile", values, kernel=f"gemm_{form}")
    start = time.process_time()
    with pytest.raises(CompileError) as caught:
        run_pipeline(module, f"gemm_{form}", "gfx942")
    assert time.process_time() - start < 2  # seconds of the processor; measured 0.02
    (d,) = caught.value.diagnostics
    dense = (tile[0] + tile[1]) * tile[2] * 2
    assert d.code == "E0861" and f"needs {dense} bytes" in d.message and d.loc.line
    assert len(d.notes) == 4 and all(n.loc and n.loc.line and "takes" in n.message for n in d.notes)


def test_least_bytes() -> None:
    """Only what is in use at one time counts."""

    def buffer(size: int, first: int, last: int) -> Buffer:
        return Buffer(Op("shared_alloc", []), size, 16, first, last)

    apart = [buffer(100, 1, 3), buffer(200, 4, 6), buffer(50, 2, 5)]
    assert least_bytes(apart) == 250 and least_bytes([]) == 0
    assert least_bytes([*apart, buffer(1000, 9, 9)]) == 1000


@pytest.mark.parametrize(
    ("lds", "first", "second", "message"),
    [
        (8192, 0, 2048, "share bytes"),
        (4096, 0, 4096, "does not fit"),
        (8192, 0, -1, "no offset"),
        (8192, 0, 4112, "does not fit"),
        (1 << 20, 0, 4096, "needs 1048576 bytes"),
    ],
)
def test_the_form_rejects_wrong_places(lds: int, first: int, second: int, message: str) -> None:
    at = ["" if o < 0 else f"<offset = {o}>" for o in (first, second)]
    body = alloc("s", at[0]) + alloc("t", at[1]) + use("s", 0) + use("t", 0) + use("s", 1)
    text = (
        f"tileir 1\nkernel @k() grid(1) with(target = gfx950, lds = {lds}) {{\n"
        f"  %f = constant<0.0>() : f32\n  %v = fill(%f) : tile<f32[32, 32]>\n{body}}}\n"
    )
    with pytest.raises(CompileError) as caught:
        check_allocation(parse(text, "lds.tile").kernels[0], get("gfx950"))
    assert message in caught.value.diagnostics[0].message


@st.composite
def many(draw: st.DrawFn) -> list[Buffer]:
    found: list[Buffer] = []
    for _ in range(draw(st.integers(1, 12))):
        first = draw(st.integers(0, 30))
        size = draw(st.integers(1, 5000))
        found.append(
            Buffer(
                Op("shared_alloc", []),
                size,
                draw(st.sampled_from([16, 128, 1024])),
                first,
                first + draw(st.integers(0, 10)),
            )
        )
    return found


@given(many())
def test_random_lifetimes_never_collide(found: list[Buffer]) -> None:
    places = allocate(found)
    for i, a in enumerate(found):
        start = places[a.op]
        assert start >= 0 and start % a.alignment == 0
        for b in found[:i]:
            apart = start + a.size <= places[b.op] or places[b.op] + b.size <= start
            assert apart or not a.meets(b)


CHAIN = """tileir 1

kernel @chain(%A: global<bf16[M, 256]>, %B: global<bf16[256, 64]>, %D: global<bf16[64, 128]>, %C: global<f32[M, 128]>)
    grid(cdiv(M, 64)) {
  %i = program_id()
  %p = mma(load(%A[%i * 64 +: 64, 0 +: 256]), load(%B[0 +: 256, 0 +: 64]))
  store(mma(convert<bf16>(%p), load(%D[0 +: 64, 0 +: 128])), %C[%i * 64 +: 64, 0 +: 128])
}
"""


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_buffers_that_share_bytes_keep_their_contents(chip: str) -> None:
    """Operands of a product that follows another lie in the bytes of the first one's: together they exceed the LDS of gfx942.
    By hand: A and B take 32 KiB each, D 16 KiB."""
    kernel = compile_kernel(parse(CHAIN, "chain.tile"), "", chip)
    assert kernel.final is not None
    found = buffers(kernel.final)
    lds = kernel.final.attrs["lds"]
    assert isinstance(lds, int) and lds <= 65536 < sum(b.size for b in found)
    rng = np.random.default_rng(0)
    a, b, d = (integers(rng, shape, DTYPES["bf16"], 1) for shape in ((70, 256), (256, 64), (64, 128)))
    c = np.zeros((70, 128), np.float32)
    launch(kernel, {"A": a, "B": b, "D": d, "C": c}, device(f"simulator:{chip}"))
    p = (a.astype(np.float32) @ b.astype(np.float32)).astype(DTYPES["bf16"]).astype(np.float32)
    assert np.array_equal(c, p @ d.astype(np.float32))
