"""Masks of odd tiles, bounds that are known, and places of many direct copies do not fill the scalar registers."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, device, integers
from tileir import kernels
from tileir.frontend import parse, parse_file
from tileir.lowering.amdgpu.compile import compile_kernel
from tileir.lowering.amdgpu.emit.coords import thread
from tileir.lowering.amdgpu.emit.kernel import emit_module
from tileir.lowering.amdgpu.emit.writer import Writer
from tileir.passes.manager import run_pipeline
from tileir.runtime import launch
from tileir.target import get

EXAMPLES = Path(__file__).parents[2] / "examples"
# Primes; few columns, so that a wave copies many pieces of every stage.
TILES = ((61, 53, 29), (64, 16, 128))


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("name", ["nt", "tn"])
@pytest.mark.parametrize("chip", CHIPS)
def test_odd_tiles(chip: str, name: str, tile: tuple[int, int, int]) -> None:
    params = {**dict(zip(("BM", "BN", "BK"), tile, strict=True)), "O": "f32"}
    module = parse(kernels.source("gemm_forms"), "forms.tile", params, kernel=f"gemm_{name}")
    compiled = compile_kernel(module, f"gemm_{name}", chip)
    stats = compiled.stats
    assert (stats["vgpr_spills"], stats["sgpr_spills"], stats["scratch_bytes"]) == (0, 0, 0), stats
    rng = np.random.default_rng(4)
    for m, n, k in ((61, 53, 58), (64, 56, 96), (5, 70, 31)):
        a, b = integers(rng, (m, k), DTYPES["bf16"]), integers(rng, (k, n), DTYPES["bf16"])
        c = np.full((m, n), 7, np.float32)
        views = {"A": a, "B": np.ascontiguousarray(b.T)} if name == "nt" else {"A": np.ascontiguousarray(a.T), "B": b}
        launch(compiled, {**views, "C": c}, device(f"simulator:{chip}"))
        assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


def test_rows_of_known_length() -> None:
    """Rows of 4096 elements that no access can leave: no test, no mask, in neither version."""
    compiled = compile_kernel(parse_file(EXAMPLES / "layernorm.tile"), "", "gfx950")
    stats = compiled.stats
    assert (stats["vgpr_spills"], stats["sgpr_spills"], stats["attempts"]) == (0, 0, 1), stats


def test_a_mask_of_columns_is_there_for_one_column_at_a_time() -> None:
    """Rows that share a mask are chosen one after the other, so that it takes two scalar registers from the first to the last of them."""
    text = """tileir 1
kernel @k(%X: global<f32[64, 64]>, %Y: global<f32[64, 64]>, %n: i32) grid(1) with(waves = 1, target = gfx950) {
  %i = iota<[1, 64]>(axis = 1) : tile<i32[1, 64], linear(reg = [[0, 1], [0, 2]], lane = [[0, 4], [0, 8], [0, 16], [0, 32], [0, 0], [0, 0]], wave = [])>
  %w = broadcast<[64, 64]>(%i) : tile<i32[64, 64], LAYOUT>
  %m = lt(%w, %n) : tile<i1[64, 64], LAYOUT>
  %c_0 = constant<0>() : i32
  %x = load<bytes = 4, via = buffer>(%X[%c_0 +: 64, %c_0 +: 64]) : tile<f32[64, 64], LAYOUT>
  %0 = constant<0.0>() : f32
  %y = where(%m, %x, %0) : tile<f32[64, 64], LAYOUT>
  store<bytes = 4, via = buffer>(%y, %X[%c_0 +: 64, %c_0 +: 64])
  store<bytes = 4, via = buffer>(%y, %Y[%c_0 +: 64, %c_0 +: 64])
}
""".replace(
        "LAYOUT",
        "linear(reg = [[0, 1], [0, 2], [16, 0], [32, 0], [4, 0], [8, 0]], lane = [[0, 4], [0, 8], [0, 16], [0, 32], [1, 0], [2, 0]], wave = [])",
    )
    lines = emit_module(parse(text, "k.tile").kernels[0], get("gfx950")).splitlines()
    order = [re.search(r"icmp \"slt\" (%v\d+)|select", x) for x in lines if 'icmp "slt"' in x or "llvm.select" in x]
    compared = [m[1] for m in order if m is not None]
    # Each column is compared for the 16 rows that a lane has, with nothing else between.
    columns = [x for x in compared if x]
    assert len(columns) == 64 and columns == sorted(columns, key=columns.index)
    assert len(dict.fromkeys(columns)) == 4 and all(columns[i : i + 16] == [columns[i]] * 16 for i in range(0, 64, 16))


def test_what_a_test_of_the_launch_computes_is_not_kept_for_its_version() -> None:
    """Sizes and strides are tied anew in each version, and behind each loop. The order of workgroups, which the versions share, is left out:
    it uses sizes before them."""
    text = kernels.source("gemm").replace("cdiv(N, BN)) {", "cdiv(N, BN)) with(ordered = true) {")
    final = run_pipeline(parse(text, "gemm.tile", {"BM": 64, "BN": 64}), "", "gfx950").kernel
    assert not any(op.name == "program_id" for op in final.body.ops)
    lines = emit_module(final, get("gfx950")).splitlines()
    ties = [i for i, x in enumerate(lines) if '"=s,0"' in x and "%sym_" in x]
    branch = next(i for i, x in enumerate(lines) if "llvm.cond_br" in x)
    assert any(i < branch for i in ties) and sum(i > branch for i in ties) >= 4
    used = [x for x in lines[: branch + 1] if re.search(r"%sym_\w+", x) and "llvm.func" not in x and '"=s,0"' not in x]
    assert not used


def test_behind_a_loop_only_numbers_that_are_used_are_tied() -> None:
    """A tie keeps what it ties in a register through the loop before it: it is written where that loop ends, once something asks for it."""
    w = Writer("k.tile")
    with w.scope():
        before = thread(w)
        w.forget({key: partial(w.op, f"tie {key}") for key in ("thread", "wave")})
        w.line("behind")
        assert not [x for x in w.lines() if "tie" in x]
        again = thread(w)
        assert again != before and thread(w) == again
    assert thread(w) == before
    assert [x.split(" loc")[0].strip() for x in w.lines()][1:] == [f"{again} = tie thread", "behind"]


@pytest.mark.parametrize(("chip", "attempts"), [("gfx950", 2)])
def test_backward_with_a_causal_mask(chip: str, attempts: int) -> None:
    """The positions of a part of a loop that is no loop any more are added up where they are compared, not kept in a register each."""
    module = parse(kernels.source("attention_backward"), "attention_backward.tile", {"D": 128, "CAUSAL": True})
    stats = compile_kernel(module, "dkv", chip).stats
    assert (stats["vgpr_spills"], stats["sgpr_spills"], stats["scratch_bytes"]) == (0, 0, 0), stats
    assert int(str(stats["attempts"])) <= attempts


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("chip", CHIPS)
def test_fused_backward(chip: str, depth: int, causal: bool) -> None:
    """Two loops around pipelined loops, of four views that are fetched ahead and one that is added to: none of their addresses waits in lanes."""
    params = {"D": depth, "CAUSAL": causal}
    module = parse(kernels.source("attention_backward"), "attention_backward.tile", params)
    stats = compile_kernel(module, "fused", chip).stats
    assert (stats["vgpr_spills"], stats["sgpr_spills"], stats["scratch_bytes"]) == (0, 0, 0), stats
    assert not stats["deviations"] and int(str(stats["attempts"])) <= 2, stats
