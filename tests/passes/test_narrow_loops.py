"""narrow-loops: which loops get narrower or wider tiles of k, and that what they compute stays the same."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tileir
from tileir.frontend import parse
from tileir.ir.core import Kernel, Op
from tileir.passes.manager import run_pipeline

GEMM = """tileir 1
kernel @gemm<BM: int = 256, BN: int = 256, BK: int = 64, T: type = bf16, E: int = 0>(
    %A: global<T[M, K]>, %B: global<T[N, K]>, %C: global<f32[M, N]>, %end: i32) grid(cdiv(M, BM), cdiv(N, BN)) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[BM, BN]>
  %acc = for %k = 0 to K step BK carry(%c = %zero) {
    %a = load(%A[%i * BM +: BM, %k +: BK])
    %b = load(%B[%j * BN +: BN, %k +: BK])
    %d = mma(%a, transpose(%b), %c)
    yield %d
  }
  store(%acc, %C[%i * BM +: BM, %j * BN +: BN])
}
"""


def narrowed(text: str, chip: str = "gfx950", **params: object) -> Kernel:
    return run_pipeline(parse(text, "gemm.tile", params), "gemm", chip, stop_after="narrow-loops").kernel  # type: ignore[arg-type]


def widths(kernel: Kernel) -> set[tuple[int | None, ...]]:
    loads = [op for op in kernel.walk() if op.name == "load"]
    assert loads
    return {op.spans for op in loads if op.spans is not None}


def step(kernel: Kernel) -> int:
    (loop,) = [op for op in kernel.walk() if op.name == "for"]
    owner = loop.operands[2].owner
    assert isinstance(owner, Op)
    value = owner.attrs["value"]
    assert isinstance(value, int)
    return value


@pytest.mark.parametrize(("size", "want"), [(32, 32), (64, 32), (128, 32), (96, 96), (256, 32)])
def test_tiles_of_64_bytes(size: int, want: int) -> None:
    """Halves, quarters and eighths; what is no power of two of 64 bytes stays."""
    kernel = narrowed(GEMM, BK=size)
    assert widths(kernel) == {(256, want)} and step(kernel) == want


@pytest.mark.parametrize(
    ("chip", "elem", "size", "want"),
    [
        ("gfx950", "f8E4M3FN", 128, 64),
        ("gfx942", "f8E4M3FNUZ", 256, 128),
        ("gfx942", "bf16", 128, 64),
    ],
)
def test_until_stages_fit(chip: str, elem: str, size: int, want: int) -> None:
    """Four where tiles are copied directly; one where they go through registers."""
    assert widths(narrowed(GEMM, chip, T=elem, BK=size)) == {(256, want)}
    assert widths(narrowed(GEMM, chip, T=elem, BK=want)) == {(256, want)}


def test_operands_that_are_summed_over_rows() -> None:
    text = GEMM.replace("%B: global<T[N, K]>", "%B: global<T[K, N]>").replace(
        "load(%B[%j * BN +: BN, %k +: BK])", "load(%B[%k +: BK, %j * BN +: BN])"
    )
    kernel = narrowed(text.replace("transpose(%b)", "%b"))
    assert widths(kernel) == {(256, 32), (32, 256)}
    (product,) = [op for op in kernel.walk() if op.name == "mma"]
    assert [v.tile.shape for v in product.operands] == [(256, 32), (32, 256), (256, 256)]


COUNTED = GEMM.replace("%k = 0 to K step BK", "%k = 0 to cdiv(K, BK) step 1").replace("%k +: BK", "%k * BK +: BK")


def test_loops_that_count_tiles() -> None:
    """They become loops over elements, unless the number is used otherwise, or tiles are of another size."""
    kernel = narrowed(COUNTED)
    (loop,) = [op for op in kernel.walk() if op.name == "for"]
    assert step(kernel) == 32 and widths(kernel) == {(256, 32)}
    assert loop.operands[1].owner is not None and loop.operands[1].owner.name == "dim"
    for old, new in (
        ("cdiv(K, BK)", "cdiv(K, 2 * BK)"),
        ("%k * BK +: BK])\n    %b", "%k * BK + %k +: BK])\n    %b"),
        ("= 0 to", "= 1 to"),
        ("step 1 carry", "step 2 carry"),
    ):
        assert old in COUNTED
        assert widths(narrowed(COUNTED.replace(old, new))) == {(256, 64)}, new


def test_stages_are_multiplied() -> None:
    text = GEMM + "schedule @s of @gemm for gfx950 {\n  stage %a, %b in shared depth 2 direct\n}\n"
    kernel = narrowed(text)
    assert {op.attrs["depth"] for op in kernel.walk() if op.name == "load"} == {4}
    assert widths(narrowed(text.replace("depth 2", "depth 3"))) == {(256, 64)}, "six stages are too many"
    assert widths(narrowed(text.replace("depth 2", "depth 1"))) == {(256, 64)}


@pytest.mark.parametrize(
    ("chip", "elem", "tile", "want"),
    [
        ("gfx950", "f8E4M3FN", (256, 256, 32), 64),  # the k of the fast instruction
        ("gfx950", "bf16", (256, 256, 32), 32),
        ("gfx942", "bf16", (128, 256, 32), 64),
        ("gfx942", "f8E4M3FNUZ", (128, 256, 32), 128),
        ("gfx942", "bf16", (256, 256, 32), 64),
        ("gfx942", "bf16", (128, 128, 32), 32),  # two workgroups fit
        ("gfx942", "bf16", (128, 256, 48), 48),
    ],
)
def test_short_rows_are_joined(chip: str, elem: str, tile: tuple[int, int, int], want: int) -> None:
    m, n, k = tile
    kernel = narrowed(GEMM, chip, T=elem, BM=m, BN=n, BK=k)
    assert widths(kernel) == {(m, want), (n, want)} and step(kernel) == want


def test_stated_stages_of_short_rows() -> None:
    """Half as many of twice the size, where that is a number; what waits in registers stays one tile."""
    for depth, want in ((4, (64, 2)), (3, (32, 3)), (2, (32, 2))):
        text = GEMM + f"schedule @s of @gemm for gfx950 {{\n  stage %a, %b in shared depth {depth} direct\n}}\n"
        kernel = narrowed(text, T="f8E4M3FN", BK=32, BM=128)
        assert (step(kernel), *{op.attrs["depth"] for op in kernel.walk() if op.name == "load"}) == want
    text = GEMM + "schedule @s of @gemm for gfx942 {\n  stage %a, %b in shared depth 2 via_registers\n}\n"
    kernel = narrowed(text, "gfx942", BK=32)
    assert step(kernel) == 64 and {op.attrs["depth"] for op in kernel.walk() if op.name == "load"} == {2}


@pytest.mark.parametrize(("chip", "tile"), [("gfx942", (128, 256, 32)), ("gfx950", (128, 128, 128))])
def test_the_result_is_the_same(chip: str, tile: tuple[int, int, int]) -> None:
    m, n, k = tile
    bf16: Any = ml_dtypes.bfloat16
    text = GEMM.replace(", %end: i32", "").replace(
        "BM: int = 256, BN: int = 256, BK: int = 64", f"BM: int = {m}, BN: int = {n}, BK: int = {k}"
    )
    compiled = tileir.compile(text, chip)
    device = tileir.get_device(f"simulator:{chip}", check="all")
    for depth in (8, k, 3 * k + 8, 5 * k):
        rng = np.random.default_rng(depth)
        a, b = (rng.integers(-3, 4, (rows, depth)).astype(bf16) for rows in (m + 8, n - 8))
        c = np.zeros((m + 8, n - 8), np.float32)
        compiled.launch(A=a, B=b, C=c, device=device)
        assert (c == a.astype(np.float32) @ b.astype(np.float32).T).all()


STAYS = {
    "LDS has room for one stage, and more wait in registers": (GEMM, "gfx942", {}),
    "LDS has room for four stages": (GEMM, "gfx950", {"BM": 128, "BN": 128}),
    "32-bit elements": (GEMM, "gfx950", {"T": "f32"}),
    "it ends elsewhere than the view": (GEMM.replace("0 to K step", "0 to %end step"), "gfx950", {}),
    "it starts elsewhere in one view": (
        GEMM.replace("%B[%j * BN +: BN, %k +: BK]", "%B[%j * BN +: BN, %k + 8 +: BK]"),
        "gfx950",
        {},
    ),
    "the tile is used otherwise, too": (
        GEMM.replace("    yield %d", "    store(%a, %A[%i * BM +: BM, %k +: BK])\n    yield %d"),
        "gfx950",
        {},
    ),
    "it shall be plain": (GEMM + "schedule @s of @gemm for gfx950 {\n  loop %k pattern plain\n}\n", "gfx950", {}),
}


@pytest.mark.parametrize("why", sorted(STAYS))
def test_stays(why: str) -> None:
    text, chip, params = STAYS[why]
    kernel = narrowed(text, chip, **params)
    size = params.get("BK", 64)
    assert all(spans[1] == size for spans in widths(kernel)), why
