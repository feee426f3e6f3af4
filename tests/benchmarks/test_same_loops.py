"""One product written in several ways has one hot loop; and so have tiles of other shapes (`benchmarks/tile_sweep.py`)."""

from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import tile_sweep as sweep  # noqa: E402
from products import Product  # noqa: E402

import tileir  # noqa: E402
from tileir.simulator.inspect import inspect  # noqa: E402
from tileir.simulator.inspect.report import KernelReport  # noqa: E402

HEAD = """tileir 1
kernel @gemm(%A: global<bf16[M, K]>, %B: global<bf16[N, K]>, %C: global<f32[M, N]>, %bias: global<f32[1, N]>)
    grid(cdiv(M, 256), cdiv(N, 256)) {
  %i, %j = program_id()
"""
LOADS = ("%a = load(%A[%i * 256 +: 256, %k +: 64])", "%b = load(%B[%j * 256 +: 256, %k +: 64])")
STORE = "store(%acc, %C[%i * 256 +: 256, %j * 256 +: 256])"


def _loop(loads: tuple[str, str], product: str, head: str = "%k = 0 to K step 64") -> str:
    body = "\n    ".join((*loads, f"%d = mma({product}, %c)", "yield %d"))
    return f"  %zero = fill(0.0) : tile<f32[256, 256]>\n  %acc = for {head} carry(%c = %zero) {{\n    {body}\n  }}\n"


PLAIN = _loop(LOADS, "%a, transpose(%b)")
FORMS = {
    "as it is": PLAIN + f"  {STORE}\n",
    "operands in the other order": _loop((LOADS[1], LOADS[0]), "%a, transpose(%b)") + f"  {STORE}\n",
    "transposed": _loop(LOADS, "%b, transpose(%a)") + f"  {STORE.replace('%acc', 'transpose(%acc)')}\n",
    "added to what was there": "  %old = load(%C[%i * 256 +: 256, %j * 256 +: 256])\n"
    + PLAIN.replace("%c = %zero", "%c = %old")
    + f"  {STORE}\n",
    "bias and activation": PLAIN
    + "  %row = load(%bias[0 +: 1, %j * 256 +: 256])\n  %sum = %acc + %row\n"
    + f"  {STORE.replace('%acc', 'max(%sum, 0.0)')}\n",
    "index in tiles": _loop(
        (LOADS[0].replace("%k +:", "%t * 64 +:"), LOADS[1].replace("%k +:", "%t * 64 +:")),
        "%a, transpose(%b)",
        "%t = 0 to cdiv(K, 64) step 1",
    )
    + f"  {STORE}\n",
    "summed outside of the product": PLAIN.replace("mma(%a, transpose(%b), %c)", "%c + mma(%a, transpose(%b))")
    + f"  {STORE}\n",
}
ROWS = {("gfx950", "2 x 2"): 39.0, ("gfx950", "2 x 4"): 68.0, ("gfx942", "2 x 4"): 34.0}


def compiled(form: str, chip: str, waves: str) -> tileir.CompiledKernel:
    return tileir.compile(
        f"{HEAD}{FORMS[form]}}}\nschedule @s of @gemm for {chip} {{\n  waves %acc {waves}\n}}\n", chip
    )


def n_of(kernel: tileir.CompiledKernel) -> float:
    report: KernelReport = inspect(kernel.hsaco).kernel
    hot = report.hot_loop
    assert hot is not None and hot.counts.n is not None
    assert not report.spills.vgprs_stated and not report.spills.scratch_bytes
    assert hot.counts.accumulator_moves == 0 and hot.counts.vmcnt_drains == 0
    return hot.counts.n


def same(chip: str, waves: str, forms: list[str]) -> None:
    found = {form: n_of(compiled(form, chip, waves)) for form in forms}
    assert len(set(found.values())) == 1 and found[forms[0]] <= ROWS[chip, waves], found


def test_forms_have_the_same_loop() -> None:
    same("gfx942", "2 x 4", ["as it is", "bias and activation", "summed outside of the product"])


def test_a_sum_that_begins_with_a_loaded_tile_has_the_same_loop() -> None:
    """Of 256 registers: nothing is left of the accumulation file."""
    same("gfx950", "2 x 2", ["as it is", "added to what was there"])


@pytest.mark.nightly
@pytest.mark.parametrize(("chip", "waves"), ROWS)
def test_every_form_has_the_same_loop(chip: str, waves: str) -> None:
    same(chip, waves, list(FORMS))


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_right(form: str) -> None:
    for chip, waves in ROWS:
        kernel = compiled(form, chip, waves)
        rng = np.random.default_rng(0)
        m, n, k = 264, 248, 136
        a, b = (rng.integers(-3, 4, (rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
        bias, c = (rng.integers(-9, 9, shape).astype(np.float32) for shape in ((1, n), (m, n)))
        want = a.astype(np.float32) @ b.astype(np.float32).T
        if form == "added to what was there":
            want += c
        if form == "bias and activation":
            want = np.maximum(want + bias, 0)
        kernel.launch(A=a, B=b, C=c, bias=bias, device=tileir.get_device(f"simulator:{chip}", check="all"))
        assert (c == want).all(), form


SAMPLE = (
    "gfx950 bf16 128x256x64, 4 waves",
    "gfx950 bf16 256x128x32, 4 waves",
    "gfx950 bf16 256x128x128 M-contiguous A, 4 waves",
    "gfx950 fp8 256x256x128, 4 waves",
    "gfx942 fp8 256x128x32, 8 waves",
)
STRETCH = {
    "gfx950 bf16 256x256x64, 4 waves": 36.0,
    "gfx950 bf16 256x256x64, 8 waves": 64.0,
    "gfx942 bf16 256x256x64, 8 waves": 33.0,
}


def within(product: Product, bar: float) -> bool:
    return not sweep.measure(product).faults(STRETCH.get(product.name, bar))


@pytest.mark.parametrize("name", SAMPLE)
def test_sampled_tiles_are_within_their_bars(name: str) -> None:
    ((product, bar),) = [(p, b) for row in sweep.BARS for p, b in sweep.cells(*row) if p.name == name]
    assert within(product, bar)


@pytest.mark.nightly
@pytest.mark.parametrize("row", range(len(sweep.BARS)))
def test_all_tiles_are_within_their_bars(row: int) -> None:
    assert [p.name for p, bar in sweep.cells(*sweep.BARS[row]) if not within(p, bar)] == []
