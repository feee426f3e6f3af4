"""Mappings of matrix products: what is chosen for shapes whose best mapping is known, and that what the text states stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, compiled, device, integers
from tests.passes.mma_texts import CHAIN, CHAIN_TRANSPOSED, assigned, chain, gemm, products
from tileir.ir.core import Kernel, Op
from tileir.ir.diagnostics import CompileError
from tileir.ir.printer import print_module
from tileir.layout import conversion
from tileir.passes.layout_classes import Layouts
from tileir.runtime import launch
from tileir.target import get as get_target

# -- single products ---------------------------------------------------------------------------------------------------

# Tile, waves stated (0: open) -> waves, and the grids that are right: no wave computes padding or what another computes, and
# among those the one that reads the fewest operand rows (or columns) from LDS.
GRIDS = [
    ((16, 256, 64), 4, 4, {(1, 4)}),  # one row of fragments: other rows of waves would repeat it
    ((256, 16, 64), 4, 4, {(4, 1)}),
    ((32, 32, 64), 1, 1, {(1, 1)}),
    ((32, 32, 64), 0, 4, {(2, 2)}),  # loads of one wave would be issued one after the other
    ((64, 64, 64), 0, 4, {(2, 2)}),
    ((192, 256, 64), 0, 8, {(2, 4)}),  # 96 x 64 a wave reads 160 rows, 48 x 128 reads 176
    ((128, 80, 64), 4, 4, {(4, 1)}),  # five fragments of columns: two waves would compute six
    ((80, 128, 64), 4, 4, {(1, 4)}),
    ((96, 96, 64), 4, 4, {(2, 2)}),
    ((256, 256, 64), 8, 8, {(2, 4), (4, 2)}),
    ((256, 256, 64), 4, 4, {(2, 2)}),
    ((16, 256, 64), 8, 8, {(1, 8)}),
]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("tile", "stated", "waves", "grids"), GRIDS, ids=str)
def test_split_over_waves(chip: str, tile: tuple[int, int, int], stated: int, waves: int, grids: set[object]) -> None:
    kernel, _ = assigned(gemm(*tile, head=f"with(waves = {stated}) " if stated else ""), chip)
    assert kernel.attrs["waves"] == waves
    assert {op.attrs["waves"] for op in kernel.walk() if op.name == "mma"} <= grids


@pytest.mark.parametrize("elem", ["bf16", "f16", "f32", "f64", "i8"])
@pytest.mark.parametrize("chip", CHIPS)
def test_instructions_run_at_the_full_rate(chip: str, elem: str) -> None:
    """16x16x16 and 32x32x8 of 16-bit types run at half the rate of gfx950."""
    out = {"i8": "i32"}.get(elem, elem)
    kernel, _ = assigned(gemm(64, 64, 64, elem, out, store="%acc" if elem in ("f32", "f64", "i8") else ""), chip)
    target = get_target(chip)
    acc = {"i8": "i32", "f64": "f64"}.get(elem, "f32")
    for op in products(kernel):
        (instr,) = (
            i for i in target.mfmas_for(elem, elem, acc) if (i.m, i.n, i.k) == op.attrs["instr"] and i.blocks == 1
        )
        assert target.is_full_rate(instr, elem, elem)


@pytest.mark.parametrize("chip", CHIPS)
def test_lanes_lie_along_what_is_stored(chip: str) -> None:
    """A lane has runs of what the accumulator map gives runs of: columns if swapped. Rows of C want that, columns do not."""
    rows, _ = assigned(gemm(128, 128, 64), chip)
    columns, _ = assigned(
        gemm(128, 128, 64, store="transpose(convert<bf16>(%acc))").replace(
            "%C[%i * 128 +: 128, %j * 128 +: 128]", "%C[%j * 128 +: 128, %i * 128 +: 128]"
        ),
        chip,
    )
    assert products(rows)[0].attrs["swapped"] is True
    assert not products(columns)[0].attrs.get("swapped")


@pytest.mark.parametrize("chip", CHIPS)
def test_reductions_stay_inside_waves(chip: str) -> None:
    """A softmax over rows: a wave holds whole rows, though another grid reads less from LDS; for columns whole columns."""
    for axis, shape, lone in ((1, "[128, 1]", 1), (0, "[1, 128]", 0)):
        text = gemm(
            128, 128, 32, out="f32", store=f"exp(%acc - broadcast<[128, 128]>(reduce_max(%acc, axis = {axis})))"
        )
        # inside the loop, where it counts: the accumulator is rescaled by what a reduction of it gives
        text = text.replace(
            "yield mma(%a, transpose(%b), %c)",
            f"%s = mma(%a, transpose(%b))\n    %r = reduce_max(%s, axis = {axis}) : tile<f32{shape}>\n    yield %c + exp(%s - %r)",
        )
        kernel, _ = assigned(text, chip)
        grid = products(kernel)[0].attrs["waves"]
        assert isinstance(grid, tuple) and grid[lone] == 1 and grid[1 - lone] == kernel.attrs["waves"], (axis, grid)


def stores_through_lds(kernel: Kernel) -> bool:
    """Whether a tile is brought into another layout right before it is stored."""
    stores = [op for op in kernel.walk() if op.name == "store" and op.attrs["via"] == "buffer"]
    assert stores
    return any(op.operands[0].owner is not None and op.operands[0].owner.name == "convert_layout" for op in stores)


@pytest.mark.parametrize("chip", CHIPS)
def test_stores_go_through_lds_where_it_pays(chip: str) -> None:
    """bf16 from 16x16 accumulators has runs of 32 bytes, two to a request of 64: not worth an exchange. From 32x32 ones it has
    runs of 16 bytes, four requests instead of one. f32 has runs of 64 and 32 bytes. A whole 256 x 256 tile of f32 would take
    256 KiB."""
    wide = "<instr = [32, 32, 16]>" if chip == "gfx950" else "<instr = [32, 32, 8]>"
    assert not stores_through_lds(assigned(gemm(128, 128, 64), chip)[0])
    assert stores_through_lds(assigned(gemm(128, 128, 64, attrs=wide), chip)[0])
    assert not stores_through_lds(assigned(gemm(128, 128, 64, out="f32", store="%acc"), chip)[0])
    assert not stores_through_lds(assigned(gemm(256, 256, 64, out="f32", store="%acc", attrs=wide), chip)[0])


# -- what the text states ----------------------------------------------------------------------------------------------


def test_stated_attributes_stay() -> None:
    text = gemm(128, 128, 64, attrs="<instr = [32, 32, 16], waves = [1, 4]>", head="with(waves = 4) ")
    (op,) = products(assigned(text, "gfx950")[0])
    assert op.attrs["instr"] == (32, 32, 16) and op.attrs["waves"] == (1, 4)
    text += "schedule @s of @k for gfx950 {\n  waves %acc 4 x 2\n}\n"
    kernel, _ = assigned(
        text.replace("<instr = [32, 32, 16], waves = [1, 4]>", "").replace("with(waves = 4) ", ""), "gfx950"
    )
    assert kernel.attrs["waves"] == 8 and products(kernel)[0].attrs["waves"] == (4, 2)


def test_grid_must_fit_the_workgroup() -> None:
    with pytest.raises(CompileError, match="E0603"):
        assigned(gemm(64, 64, 64, attrs="<waves = [2, 2]>", head="with(waves = 8) "), "gfx950")


@pytest.mark.parametrize("chip", CHIPS)
def test_what_was_assigned_is_kept_when_resumed(chip: str) -> None:
    from tileir.frontend import parse
    from tileir.ir.core import Module
    from tileir.passes.manager import run_pipeline

    kernel, _ = assigned(chain(CHAIN, 64, 32, 64), chip)
    text = print_module(Module([kernel]))
    again = run_pipeline(
        parse(text, "again.tile"), "", "", start_from="assign-layouts", stop_after="assign-layouts"
    ).kernel
    assert print_module(Module([again])) == text


# -- chained products --------------------------------------------------------------------------------------------------


def moving(kernel: Kernel) -> list[Op]:
    """Conversions in loops that are more than a renaming of registers."""

    def moves(op: Op) -> bool:
        src, dst = op.operands[0].tile.layout, op.result.tile.layout
        assert src is not None and dst is not None
        return conversion(src, dst).sources is None

    loops = [op for op in kernel.walk() if op.name == "for"]
    return [op for loop in loops for op in loop.walk() if op.name == "convert_layout" and moves(op)]


@pytest.mark.parametrize("elem", ["bf16", "f16"])
@pytest.mark.parametrize("size", [(64, 64, 64), (64, 32, 32), (64, 96, 64), (128, 32, 64)], ids=str)
@pytest.mark.parametrize("form", [CHAIN, CHAIN_TRANSPOSED], ids=["S = QK", "St = KQt"])
@pytest.mark.parametrize("chip", CHIPS)
def test_chained_products_move_nothing_between_them(
    chip: str, form: str, size: tuple[int, int, int], elem: str
) -> None:
    """The result of the first is an operand of the second as it lies: lanes along the rows of Q in both, k in the order that
    the accumulator has, whichever way the text is written."""
    kernel, remarks = assigned(chain(form, *size, elem), chip)
    assert moving(kernel) == []
    first, second = products(kernel)
    transposed = form is CHAIN_TRANSPOSED
    assert first.attrs.get("swapped", False) == second.attrs.get("swapped", False) == (not transposed)
    assert remarks and f"k as {'b' if transposed else 'a'} lies" in remarks[1].message


@pytest.mark.parametrize("chip", CHIPS)
def test_attention_moves_nothing_between_its_products(chip: str, repository: Path) -> None:
    kernel, _ = assigned((repository / "examples" / "attention.tile").read_text(encoding="utf-8"), chip)
    assert moving(kernel) == []
    assert kernel.attrs["waves"] == 8
    assert {op.attrs["waves"] for op in kernel.walk() if op.name == "mma"} == {(8, 1)}


@pytest.mark.parametrize("form", [CHAIN, CHAIN_TRANSPOSED], ids=["S = QK", "St = KQt"])
@pytest.mark.parametrize("chip", CHIPS)
def test_chained_products_are_right(chip: str, form: str) -> None:
    """On the simulator, bit by bit: small integers, so that S is exact in bf16 and O in f32."""
    rng = np.random.default_rng(5)
    q, k, v = (integers(rng, (n, 32), DTYPES["bf16"], most=1) for n in (70, 45, 45))
    o = np.zeros((70, 32), np.float32)
    kernel = compiled(chain(form, 64, 32, 32), chip)
    launch(kernel, {"Q": q, "K": k, "V": v, "O": o}, device(f"simulator:{chip}"))
    s = q.astype(np.float64) @ k.astype(np.float64).T
    assert np.array_equal(o, s @ v.astype(np.float64))


# -- the choice itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", CHIPS)
def test_remark_tells_cost_and_runner_up(chip: str) -> None:
    text = gemm(128, 128, 64)
    _, (remark,) = assigned(text, chip)
    assert remark.severity == "remark" and remark.loc.line == 1 + text.split("\n").index(
        "    yield mma(%a, transpose(%b), %c)"
    )
    small, waves = ("16x16x32", "2 x 2") if chip == "gfx950" else ("16x16x16", "2 x 4")
    head, _, tail = remark.message.partition("; next ")
    assert f"128 x 128 x 64 by {small} swapped, waves {waves}: about" in head and "matrix" in head
    mine, other = float(head.split("about ")[1].split()[0]), float(tail.rsplit(": ", 1)[1])
    assert mine <= other


def test_choice_is_the_same_in_every_process(repository: Path) -> None:
    script = (
        "import sys; from tests.passes.mma_texts import *; from tileir.ir.core import Module\n"
        "from tileir.ir.printer import print_module\n"
        "k, r = assigned(chain(CHAIN, 64, 32, 64), 'gfx950'); print(print_module(Module([k])), [d.message for d in r])"
    )
    seen: set[str] = set()
    for seed in ("1", "77"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", script], env=env, cwd=repository, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        seen.add(done.stdout)
    assert len(seen) == 1


def test_layouts_spread_once_over_each_relation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reductions that are spread over the rows they come from: one class of tiles touches them all, and the work still
    grows with their number, not with its square."""

    def looked_at(n: int) -> int:
        looks = 0
        across = Layouts._across  # pyright: ignore[reportPrivateUsage]

        def counted(self: Layouts, op: Op) -> bool:
            nonlocal looks
            looks += 1
            return across(self, op)

        lines = "".join(f"  %m{k} = reduce_max(%x{k}, axis = 1)\n  %x{k + 1} = %x{k} - %m{k}\n" for k in range(n))
        head = "tileir 1\nkernel @k(%P: global<f32[M, N]>) grid(1) {\n  %x0 = load(%P[0 +: 64, 0 +: 64])\n"
        with monkeypatch.context() as patch:
            patch.setattr(Layouts, "_across", counted)
            assigned(f"{head}{lines}  store(%x{n}, %P[0 +: 64, 0 +: 64])\n}}\n", "gfx950")
        return looks

    small, large = looked_at(20), looked_at(80)
    assert 0 < large <= 5 * small
