"""narrow-loops: which loops are cut into narrower tiles of k, and that what they compute stays the same."""

from __future__ import annotations

import pytest

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


def test_stages_are_multiplied() -> None:
    text = GEMM + "schedule @s of @gemm for gfx950 {\n  stage %a, %b in shared depth 2 direct\n}\n"
    kernel = narrowed(text)
    assert {op.attrs["depth"] for op in kernel.walk() if op.name == "load"} == {4}
    assert widths(narrowed(text.replace("depth 2", "depth 3"))) == {(256, 64)}, "six stages are too many"
    assert widths(narrowed(text.replace("depth 2", "depth 1"))) == {(256, 64)}


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
