"""Products of floats of 8 bits and less on both chips: every pairing, form and instruction, ragged shapes, all codes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import compiled, device
from tests.kernels.test_gemm_forms import FORMS, stored
from tileir.frontend import parse
from tileir.ir.binding import LaunchError
from tileir.ir.diagnostics import CompileError
from tileir.ir.types import ELEMS, F32
from tileir.lowering.amdgpu.compile import Compiled, Options, compile_kernel
from tileir.runtime import compare, gemm_bound, launch
from tileir.simulator.inspect import inspect

KINDS = {"gfx942": ("f8E4M3FNUZ", "f8E5M2FNUZ"), "gfx950": ("f8E4M3FN", "f8E5M2")}
PAIRINGS = [(chip, *pair) for chip, kinds in KINDS.items() for pair in itertools.product(kinds, kinds)]
SHAPES = ((64, 64, 256), (67, 131, 37), (1, 97, 7), (127, 1, 100), (65, 63, 129))

TEXT = """tileir 1
kernel @product<BM: int, BN: int, BK: int, T: type, U: type>(
    %A: global<T[{a}], strides = [LDA, 1]>, %B: global<U[{b}], strides = [LDB, 1]>, %C: global<f32[M, N]>)
    grid(cdiv(M, BM), cdiv(N, BN)) {{
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[BM, BN]>
  %acc = for %k = 0 to K step BK carry(%c = %zero) {{
    %a = load(%A[{at_a}])
    %b = load(%B[{at_b}])
    %d = mma({x}, {y}, %c)
    yield %d
  }}
  store(%acc, %C[%i * BM +: BM, %j * BN +: BN])
}}
"""


def text(form: str = "nt", instr: str = "", chip: str = "", swapped: bool = False) -> str:
    """C = A · B with the operands stored as the form says, by the instruction that is asked for."""
    rows, cols, k = "%i * BM +: BM", "%j * BN +: BN", "%k +: BK"
    turned_a, turned_b = form[0] == "t", form[1] == "t"
    body = TEXT.format(
        a="K, M" if turned_a else "M, K",
        b="N, K" if turned_b else "K, N",
        at_a=f"{k}, {rows}" if turned_a else f"{rows}, {k}",
        at_b=f"{cols}, {k}" if turned_b else f"{k}, {cols}",
        x="transpose(%a)" if turned_a else "%a",
        y="transpose(%b)" if turned_b else "%b",
    )
    if instr:
        body += f"schedule @s of @product for {chip} {{\n  mma %d {instr}{' swapped' if swapped else ''}\n}}\n"
    return body


def product(
    chip: str, t: str, u: str, tile: tuple[int, int, int] = (64, 64, 128), form: str = "nt", instr: str = "",
    swapped: bool = False,
) -> Compiled:  # fmt: skip
    params = (("BM", tile[0]), ("BN", tile[1]), ("BK", tile[2]), ("T", t), ("U", u))
    return compiled(text(form, instr, chip, swapped), chip, params)


def operands(rng: np.random.Generator, m: int, n: int, k: int, t: str, u: str) -> tuple[Any, Any]:
    """A [m, k] and B [k, n]: values of a normal distribution, some of them large, some subnormal."""
    made: list[Any] = []
    for shape, elem in (((m, k), t), ((k, n), u)):
        x = rng.standard_normal(shape)
        x *= np.where(rng.random(shape) < 0.05, 2.0 ** rng.integers(-12, 4, shape), 1.0)
        with np.errstate(all="ignore"):
            made.append(np.clip(x, -6.0, 6.0).astype(ELEMS[elem].np))
    return made[0], made[1]


def check(kernel: Compiled, chip: str, a: Any, b: Any, form: str = "nt") -> None:
    """Within the bound of a sum in f32, and nothing written around C."""
    m, n = a.shape[0], b.shape[1]
    frame = np.full((m + 2, n), 77, np.float32)
    x, y = stored(form, a, b)
    launch(kernel, {"A": x, "B": y, "C": frame[1 : m + 1]}, device(f"simulator:{chip}"))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = gemm_bound(a.astype(np.float32), b.astype(np.float32), F32)
    result = compare(frame[1 : m + 1], exact, bound)
    assert result.ok, f"{a.dtype} x {b.dtype} {m}x{n}x{a.shape[1]}: {result}"
    assert np.all(frame[[0, -1]] == 77)


def mnemonics(kernel: Compiled) -> set[str]:
    """The matrix instructions in the machine code."""
    return set(inspect(kernel.hsaco).kernel.counts.mfma)


@pytest.mark.parametrize(("chip", "t", "u"), PAIRINGS)
@pytest.mark.parametrize("depth", [32, pytest.param(64, marks=pytest.mark.nightly), 128])
def test_every_pairing(chip: str, t: str, u: str, depth: int) -> None:
    """All four pairings of the kinds of the chip, with tiles that do and do not fill the widest instruction."""
    kernel = product(chip, t, u, (64, 64, depth))
    for i, (m, n, k) in enumerate(SHAPES):
        check(kernel, chip, *operands(np.random.default_rng(i), m, n, k, t, u))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chip", KINDS)
def test_every_form(chip: str, form: str) -> None:
    """Operands summed over rows: by transposing reads on gfx950, turned in registers on gfx942."""
    t, u = KINDS[chip]
    kernel = product(chip, t, u, form=form)
    for i, (m, n, k) in enumerate(SHAPES):
        check(kernel, chip, *operands(np.random.default_rng(i), m, n, k, t, u), form)


SIX_AND_FOUR = ("f6E2M3FN", "f6E3M2FN", "f4E2M1FN")
MIXED = [
    *((t, t) for t in SIX_AND_FOUR),
    ("f4E2M1FN", "f6E2M3FN"),
    ("f6E3M2FN", "f6E2M3FN"),
    *((t, "f8E5M2") for t in SIX_AND_FOUR),
    *(("f8E4M3FN", t) for t in SIX_AND_FOUR),
]
EVEN_SHAPES = ((64, 64, 256), (67, 131, 36), (1, 97, 8), (65, 63, 132))
"""K is a multiple of 4, since rows end at whole bytes."""


@pytest.mark.parametrize(
    ("t", "u"), [pytest.param(*p, marks=() if i % 2 else pytest.mark.nightly) for i, p in enumerate(MIXED)]
)
def test_six_and_four_bits(t: str, u: str) -> None:
    """Operands that lie packed in memory; both narrow ones at twice the rate of those with 8 bits."""
    for depth in (64, 128):
        kernel = product("gfx950", t, u, (64, 64, depth))
        assert all(name.endswith("f8f6f4") for name in mnemonics(kernel))
        for i, (m, n, k) in enumerate(EVEN_SHAPES):
            check(kernel, "gfx950", *operands(np.random.default_rng(i), m, n, k, t, u))


@pytest.mark.parametrize("form", ["nn", "tt", "tn"])
def test_forms_of_four_bits(form: str) -> None:
    """Operands summed over rows are turned in registers on their way to LDS."""
    kernel = product("gfx950", "f4E2M1FN", "f8E4M3FN", form=form)
    for i, (m, n, k) in enumerate(((64, 64, 256), (66, 130, 36), (2, 98, 8))):
        check(kernel, "gfx950", *operands(np.random.default_rng(i), m, n, k, "f4E2M1FN", "f8E4M3FN"), form)


@pytest.mark.parametrize(("form", "t", "u"), [("nn", "f8E4M3FN", "f4E2M1FN"), ("tt", "f4E2M1FN", "f8E5M2")])
@pytest.mark.parametrize("tile", [(16, 16, 32), (80, 32, 64), (16, 80, 32)])
def test_small_tiles_of_four_bits(form: str, t: str, u: str, tile: tuple[int, int, int]) -> None:
    """Tiles with less than a byte of a row for each lane are loaded by whole bytes, then spread over the lanes."""
    kernel = product("gfx950", t, u, tile, form)
    for i, (m, n, k) in enumerate(((64, 64, 64), (66, 130, 36), (2, 98, 8))):
        check(kernel, "gfx950", *operands(np.random.default_rng(i), m, n, k, t, u), form)


def test_rows_of_whole_bytes() -> None:
    """A launch with rows that end inside a byte is refused, as are accesses that may begin in one."""
    kernel = product("gfx950", "f4E2M1FN", "f4E2M1FN")
    a = np.zeros((4, 33), ELEMS["f4E2M1FN"].np)
    with pytest.raises(LaunchError, match="begin or end inside a byte"):
        launch(kernel, {"A": a, "B": a, "C": np.zeros((4, 4), np.float32)}, device("simulator:gfx950"))
    shifted = text().replace("%k +: BK", "%k + 1 +: BK")
    with pytest.raises(CompileError, match="E0867"):
        compiled(shifted, "gfx950", (("BM", 64), ("BN", 64), ("BK", 64), ("T", "f4E2M1FN"), ("U", "f4E2M1FN")))


@pytest.mark.parametrize(("chip", "t", "u"), PAIRINGS)
def test_every_code(chip: str, t: str, u: str) -> None:
    """Case fnuz-nan: all 256 codes as operands. 0x80 is NaN in the FNUZ kinds, minus zero in the others."""
    codes = np.arange(256, dtype=np.uint8)
    kernel = product(chip, t, u)
    for elem, other, first in ((t, u, True), (u, t, False)):
        values = codes.view(ELEMS[elem].np).reshape(256, 1)
        ones = np.ones((1, 256), ELEMS[other].np)
        a, b = (values, ones) if first else (np.ascontiguousarray(ones.T), np.ascontiguousarray(values.T))
        c = np.zeros((256, 256), np.float32)
        launch(kernel, {"A": a, "B": np.ascontiguousarray(b.T), "C": c}, device(f"simulator:{chip}"))
        got = c[:, 7] if first else c[7]
        assert np.array_equal(got, values[:, 0].astype(np.float32), equal_nan=True)
        assert np.isnan(got[0x80]) == elem.endswith("FNUZ")


@pytest.mark.parametrize(
    ("depth", "legal"),
    [
        (16, {(32, 32, 64)}),  # the loop's tiles are joined
        (32, {(32, 32, 64)}),
        (64, {(32, 32, 64)}),
        (96, {(32, 32, 64), (16, 16, 128)}),
        (128, {(32, 32, 64), (16, 16, 128)}),
        (192, {(32, 32, 64), (16, 16, 128)}),
    ],
)
def test_instruction_fits_the_depth(depth: int, legal: set[tuple[int, int, int]]) -> None:
    """Case half-rate-mfma: the instructions with 64 and 128 values of k have twice the rate, and waste it on tiles that do not
    fill them."""
    kernel = product("gfx950", "f8E4M3FN", "f8E4M3FN", (64, 64, depth))
    assert kernel.final is not None
    chosen = {op.attrs["instr"] for op in kernel.final.walk() if op.name == "mma"}
    assert chosen and chosen <= legal
    assert {name.split("_", 4)[-1] for name in mnemonics(kernel)} == {"f8f6f4"}


@pytest.mark.parametrize("depth", [16, 32])
def test_instruction_fits_a_short_product(depth: int) -> None:
    """The same for a product without a loop, whose k cannot be longer."""
    text = f"""tileir 1
kernel @k(%A: global<f8E4M3FN[64, {depth}]>, %B: global<f8E4M3FN[64, {depth}]>, %C: global<f32[64, 64]>) grid(1) {{
  store(mma(load(%A[0 +: 64, 0 +: {depth}]), transpose(load(%B[0 +: 64, 0 +: {depth}]))), %C[0 +: 64, 0 +: 64])
}}
"""
    kernel = compile_kernel(parse(text, "k.tile"), "", "gfx950")
    assert kernel.final is not None
    chosen = {op.attrs["instr"] for op in kernel.final.walk() if op.name == "mma"}
    assert chosen and chosen <= {(32, 32, 16), (16, 16, 32)}
    assert {name.split("_", 4)[-1] for name in mnemonics(kernel)} == {"fp8_fp8"}


@pytest.mark.parametrize(
    ("depth", "instr"), [(32, "16x16x128"), (64, "16x16x32"), (64, "32x32x16"), (128, "16x16x32"), (160, "32x32x16")]
)
def test_instruction_that_is_asked_for(depth: int, instr: str) -> None:
    """A shape of the lower rate is taken where it costs nothing, and rejected where another one is faster."""
    shape = tuple(map(int, instr.split("x")))
    slow = (instr in ("16x16x32", "32x32x16") and depth >= 128) or (instr == "32x32x16" and depth == 64)
    try:
        kernel = product("gfx950", "f8E4M3FN", "f8E5M2", (64, 64, depth), instr=instr)
    except CompileError as e:
        assert slow and [d.code for d in e.diagnostics] == ["E0704"]
        return
    assert not slow and kernel.final is not None
    assert {op.attrs["instr"] for op in kernel.final.walk() if op.name == "mma"} == {shape}
    check(kernel, "gfx950", *operands(np.random.default_rng(1), 65, 63, 2 * depth + 1, "f8E4M3FN", "f8E5M2"))


BOUNDARIES = (
    ("gfx942", "f8E4M3FNUZ", "f8E5M2FNUZ"),
    ("gfx950", "f8E4M3FN", "f4E2M1FN"),
    ("gfx950", "f6E2M3FN", "f8E5M2"),
)


@pytest.mark.parametrize(("chip", "t", "u"), BOUNDARIES)
def test_every_pass_keeps_the_values(chip: str, t: str, u: str) -> None:
    """The interpreter gives the same before and after every pass, down to single instructions on lanes."""
    module = parse(text(), "kernel.tile", {"BM": 64, "BN": 64, "BK": 128, "T": t, "U": u})
    compile_kernel(module, "", chip, Options(verify_each="run"))
