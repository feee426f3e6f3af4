"""What the compiler chooses by the model of loops is the best of all that the model could have been asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tileir.frontend import parse
from tileir.ir.core import Kernel, Op
from tileir.ir.diagnostics import Log
from tileir.passes.choose_waves import (
    WORTH_OTHER_WAVES,
    choose_waves,
    chosen_spread,
    price,
    sums_products,
    trip_of,
)
from tileir.passes.loop_model import LoopModel, Trip, Way
from tileir.passes.manager import run_pipeline
from tileir.passes.mfma_choice import usual_waves
from tileir.passes.priced_ops import priced
from tileir.target import Target
from tileir.target import get as get_target

TEXT = """tileir 1

kernel @product(%A: global<{elem}[M, K]>, %B: global<{elem}[N, K]>, %C: global<f32[M, N]>)
    grid(cdiv(M, {m}), cdiv(N, {n})) {{
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[{m}, {n}]>
  %acc = for %k = 0 to K step {k} carry(%c = %zero) {{
    %a = load(%A[%i * {m} +: {m}, %k +: {k}])
    %b = load(%B[%j * {n} +: {n}, %k +: {k}])
    %d = mma(%a, transpose(%b), %c)
    yield %d
  }}
  store(%acc, %C[%i * {m} +: {m}, %j * {n} +: {n}])
}}
"""
TILES = [(16, 64, 128), (64, 64, 64), (32, 128, 64), (128, 128, 64), (256, 256, 64)]
CASES = [
    (chip, elem, tile)
    for chip, eight in (("gfx942", "f8E4M3FNUZ"), ("gfx950", "f8E4M3FN"))
    for elem in ("bf16", eight)
    for tile in TILES
]


def text_of(elem: str, tile: tuple[int, int, int]) -> str:
    return TEXT.format(elem=elem, **dict(zip("mnk", tile, strict=True)))


def after(text: str, chip: str, step: str, log: Log | None = None) -> Kernel:
    return run_pipeline(parse(text, "product.tile"), "", chip, stop_after=step, log=log or Log()).kernel


def main_loop(kernel: Kernel) -> Op:
    counted = dict(priced(kernel.body))
    return next(op for op in kernel.walk() if op.name == "for" and op in counted)


def remarks(log: Log, code: str) -> list[str]:
    return [d.message for d in log.diagnostics if d.code == code]


def all_ways(trip: Trip, waves: int, target: Target) -> Iterator[Way]:
    """Every pattern with every number of stages that LDS has room for, one by one."""
    model = LoopModel(target)
    for pattern, depths in (("interleave", (2, 3, 4)), ("ping_pong", (2, 3, 4)), ("plain", (1,))):
        for depth in depths:
            room = trip.buffers(depth) * trip.stage_bytes <= target.lds_bytes
            if room and (pattern != "ping_pong" or waves == 8):
                yield model.way(trip, pattern, depth, waves)


@pytest.mark.parametrize(("chip", "elem", "tile"), CASES)
def test_waves_are_the_best_of_all(chip: str, elem: str, tile: tuple[int, int, int]) -> None:
    target = get_target(chip)
    placed = after(text_of(elem, tile), chip, "place-memory")
    trips = dict(priced(placed.body))
    usual = usual_waves(placed)
    loops = [main_loop(placed)]
    each = {w: p.score for w in (1, 2, 4, 8) if (p := price(loops, trips, w, placed, target)) is not None}
    found = choose_waves(placed, trips, usual, target)
    assert {p.waves for p in found} == set(each)
    best = min(each.values())
    assert found[0].waves == usual or found[0].score == best < WORTH_OTHER_WAVES * each[usual]
    assert found[0].score <= best / WORTH_OTHER_WAVES
    assert after(text_of(elem, tile), chip, "assign-layouts").attrs["waves"] == found[0].waves


@pytest.mark.parametrize(("chip", "elem", "tile"), CASES)
def test_patterns_and_stages_are_the_best_of_all(chip: str, elem: str, tile: tuple[int, int, int]) -> None:
    target, log = get_target(chip), Log()
    laid_out = after(text_of(elem, tile), chip, "register-files")
    loop, waves = main_loop(laid_out), laid_out.attrs["waves"]
    assert isinstance(waves, int) and sums_products(loop)
    spreads = {op: chosen_spread(op) for op in loop.walk() if op.name == "mma"}
    trip = trip_of(loop, waves, LoopModel(target), spreads)
    ways = sorted(all_ways(trip, waves, target), key=lambda w: w.score)
    after(text_of(elem, tile), chip, "pipeline-loops", log)
    (told,) = set(remarks(log, "R0819"))
    first, *others = told.split("iteration: ")[1].split("; ")
    assert first in [str(w) for w in ways if round(w.score) == round(ways[0].score)]
    assert set(others) <= {str(w) for w in ways}
    (numbers,) = remarks(log, "R0818")
    assert numbers.startswith(f"chosen by the clocks of an iteration: {waves} waves: %k ")


def test_more_waves_where_one_would_issue_all_loads() -> None:
    """One wave has one fragment of 16 x 64, but all loads: with more waves they are issued beside each other."""
    assert after(text_of("bf16", (16, 64, 128)), "gfx950", "assign-layouts").attrs["waves"] in (2, 4)


def test_what_the_text_states_stays() -> None:
    text = text_of("bf16", (128, 128, 64)) + (
        "\nschedule @own of @product for gfx950 {\n  waves %acc 1 x 4\n  stage %a, %b in shared depth 3\n"
        "  loop %k pattern interleave\n}\n"
    )
    log = Log()
    kernel = after(text, "gfx950", "pipeline-loops", log)
    assert kernel.attrs["waves"] == 4
    assert not remarks(log, "R0818") and not remarks(log, "R0819")


def test_clocks_grow_with_what_there_is_to_do() -> None:
    """More bytes, more products, or fewer tiles under way never take fewer clocks."""
    for chip in ("gfx942", "gfx950"):
        target = get_target(chip)
        model = LoopModel(target)

        def trip(matrix: float, staged: float, model: LoopModel = model) -> Trip:
            made = Trip(matrix=matrix, direct=model.direct)
            model.stage(made, staged, staged, 4)
            made.memory = staged * model.nearest(256)
            return made

        for pattern in ("interleave", "plain"):
            depth = 3 if pattern == "interleave" else 1
            base = model.way(trip(500, 16384), pattern, depth, 4)
            assert model.way(trip(1000, 16384), pattern, depth, 4).clocks >= base.clocks
            assert model.way(trip(500, 32768), pattern, depth, 4).alone > base.alone
        deep, shallow = (model.way(trip(500, 16384), "interleave", d, 4).alone for d in (4, 2))
        assert deep <= shallow if model.direct else shallow < deep + 500
