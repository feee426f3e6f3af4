"""The search: what it proposes is what it timed, and does not depend on who did the work."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

import tileir
from tileir import kernels
from tileir.simulator.inspect import inspect
from tileir.tuning import compare
from tileir.tuning.executors import UnknownExecutor, executor_of
from tileir.tuning.trials import FAULTS, Order, Result, carry_out

SHAPE = {"M": 64, "N": 48, "K": 100}
SPACE = {"BM": (16, 32), "BN": (16, 64), "BK": 64}


def search(executor: Executor | None = None, **more: Any) -> tileir.Tuned:
    return tileir.tune(
        kernels.source("gemm"), "gfx950", SHAPE, params=SPACE, trials=3, executor=executor, filename="gemm.tile", **more
    )


@pytest.fixture(scope="module")
def found() -> tileir.Tuned:
    return search()


def test_the_file_as_it_is_comes_first(found: tileir.Tuned) -> None:
    assert found.baseline.directives is None
    assert found.baseline.result.usable and len(found.trials) == 4
    assert found.best.result.estimated_seconds == min(t.result.estimated_seconds for t in found.trials)
    assert found.speedup >= 1


def test_the_text_reproduces_the_estimate(found: tileir.Tuned) -> None:
    module = tileir.parse(found.text, params={"BK": 64})
    (schedule,) = module.schedules
    assert schedule.applies and schedule.name == found.name
    assert {n: module.kernels[0].params[n] for n in found.best.params} == found.best.params
    shape = ",".join(f"{k}={v}" for k, v in SHAPE.items())
    again = carry_out(Order(found.text, "tuned.tile", "gemm", "gfx950", shape, {"BK": 64}))
    assert again.clocks == found.best.result.clocks
    assert again.vgprs == found.best.result.vgprs


def test_the_schedule_is_canonical(found: tileir.Tuned) -> None:
    from tileir.ir.printer import print_schedule

    (schedule,) = tileir.parse(found.text, params={"BK": 64}).schedules
    assert print_schedule(schedule) == found.schedule
    assert found.text.endswith(found.schedule)


def test_threads_give_the_same(found: tileir.Tuned) -> None:
    done: list[tuple[int, int]] = []
    with ThreadPoolExecutor(2) as pool:
        again = search(pool, progress=lambda n, total, trial: done.append((n, total)))
    assert again == found
    assert sorted(done) == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_processes_give_the_same(found: tileir.Tuned) -> None:
    with executor_of("processes", 2) as pool:
        assert search(pool).json() == found.json()


@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="distributed is not installed")
def test_a_cluster_gives_the_same(found: tileir.Tuned) -> None:
    from dask.distributed import LocalCluster  # type: ignore[import-not-found]

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        executor_of(f"dask:{cluster.scheduler_address}", 1) as pool,
    ):
        assert search(pool).json() == found.json()


def test_executors_that_do_not_exist() -> None:
    for kind in ("fibres", "dask:"):
        with pytest.raises(UnknownExecutor), executor_of(kind, 2):
            pass


class Broken(Executor):
    """Loses every second order."""

    def __init__(self) -> None:
        self.count = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.count += 1
        future: Future[Any] = Future()
        if self.count % 2 == 0:
            future.set_exception(RuntimeError("the worker died"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_an_executor_that_breaks_loses_candidates_not_the_search() -> None:
    found = search(Broken())
    lost = [t for t in found.trials if t.code == "E1906"]
    assert lost and "the worker died" in lost[0].result.diagnostic.message  # type: ignore[union-attr]
    assert found.best.result.usable
    assert "E1906" in found.table() and found.json()["trials"][1]["diagnostic"]["code"] == "E1906"


def test_an_executor_that_takes_nothing_is_an_error_that_says_so() -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(tileir.CompileError, match=r"E1906.*no answer from the executor") as e:
        search(pool)
    assert e.value.diagnostics[0].code == "E1901"


class Spilling(Executor):
    """Says of every candidate but the file as it is that it is fast, and that its code spills."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        (order,) = args
        future: Future[Any] = Future()
        spills = bool(order.schedule)
        warnings = ("W0902",) if spills else ()
        future.set_result(Result(1e-6 if spills else 2e-6, 1.0, grid=(1, 1), warnings=warnings, rejected=spills))
        return future


def test_code_that_spills_is_shown_and_not_proposed() -> None:
    found = search(Spilling())
    assert found.best is found.baseline and found.schedule == ""
    assert [t.code for t in found.trials] == [""] + [
        "W0902"
    ] * 5  # two, the two next by the model, and one near the best
    assert "W0902" in found.table()


# -- several kernels of one file --------------------------------------------------------------------------------------


def test_kernels_that_are_alternatives_are_ranked() -> None:
    """Few tiles and a long k: parts of k beside each other, filling C with zeros included, beat one loop over all."""
    text = kernels.source("gemm") + "\n" + kernels.source("gemm_split_k").removeprefix("tileir 1\n")
    tiles = {"BM": 32, "BN": 32, "BK": 64, "S": (8, 16)}
    shape = {"M": 32, "N": 64, "K": 4096}
    found = compare(text, "gfx950", shape, ("gemm", "gemm_split_k"), params=tiles, trials=1, filename="both.tile")
    (first, fill), (second, none) = found.kernels
    assert (first.kernel, second.kernel) == ("gemm_split_k", "gemm") and found.best is first
    assert 0 < fill < 1e-6 and none == 0
    assert first.best.result.estimated_seconds + fill < second.best.result.estimated_seconds
    assert {s.kernel for s in tileir.parse(found.text).schedules} == {
        t.kernel for t, _ in found.kernels if t.schedule
    }  # each found for the text with those before
    assert "fill with zeros" in found.table() and [k["kernel"] for k in found.json()["kernels"]] == [
        "gemm_split_k",
        "gemm",
    ]


def test_kernels_that_do_not_exist_are_named() -> None:
    with pytest.raises(tileir.CompileError, match="other"):
        compare(kernels.source("gemm"), "gfx950", SHAPE, ("gemm", "other"), params=SPACE, trials=1, executor=Spilling())


# -- candidates that fail --------------------------------------------------------------------------------------------


def test_candidates_that_do_not_compile_are_listed_with_their_code() -> None:
    # about registers: the model is told nothing of a tile that elementwise work needs
    source = """tileir 1

kernel @rows<B: int = 1>(%X: global<f64[M, 8192]>, %Y: global<f64[M, 8192]>) grid(cdiv(M, B)) {
  %i = program_id()
  %x = load(%X[%i * B +: B, 0 +: 8192])
  %y = %x * reduce_add(%x, axis = 1)
  store(%y / reduce_add(%y, axis = 1) + %x, %Y[%i * B +: B, 0 +: 8192])
}
"""
    found = tileir.tune(source, "gfx942", {"M": 8}, params={"B": (1, 16)}, trials=1, filename="rows.tile")
    assert [t.code for t in found.trials] == ["", "E0863"]
    assert found.best is found.baseline and found.schedule == "" and found.text == source
    assert any("E0863" in line and "B=16" in line for line in found.table().splitlines())
    assert "the file as it is, is the best of what was tried" in found.notes


def test_if_nothing_can_be_used_the_error_says_why() -> None:
    source = kernels.source("gemm").replace("mma(", "mma<instr = [16, 16, 4]>(")
    with pytest.raises(tileir.CompileError) as e:
        tileir.tune(source, "gfx950", SHAPE, params=SPACE, trials=2, filename="gemm.tile")
    (d,) = e.value.diagnostics
    assert d.code == "E1901" and d.loc.file == "gemm.tile" and d.loc.line == 4
    assert all("[E0" in n.message for n in d.notes) and d.notes


def test_sizes_that_are_missing() -> None:
    with pytest.raises(tileir.CompileError, match=r"\[E1905\] the sizes of K, N are not known"):
        tileir.tune(kernels.source("gemm"), "gfx950", {"M": 64})


# -- by the quick model alone ----------------------------------------------------------------------------------------


def seconds(kernel: str, chip: str, shape: dict[str, int], params: dict[str, int]) -> float:
    sizes = ",".join(f"{k}={v}" for k, v in shape.items())
    result = carry_out(Order(kernels.source(kernel), "k.tile", kernel, chip, sizes, params))
    return result.estimated_seconds if result.usable else math.inf


def bindings(space: dict[str, tuple[int, ...]]) -> Iterator[dict[str, int]]:
    if not space:
        yield {}
        return
    (name, values), *rest = space.items()
    for v in values:
        for other in bindings(dict(rest)):
            yield {name: v, **other}


def held(kernel: str, chip: str, shape: dict[str, int], space: dict[str, tuple[int, ...]]) -> None:
    """What the model chooses is no slower than the defaults, and within a tenth of the best of a space."""
    choice = tileir.choose(kernels.source(kernel), chip, shape)
    chosen = seconds(kernel, chip, shape, choice.params)
    assert chosen <= seconds(kernel, chip, shape, {})
    best = min(seconds(kernel, chip, shape, p) for p in bindings(space))
    assert chosen <= 1.1 * best, (choice, chosen, best)


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_small_products(chip: str) -> None:
    held("gemm", chip, {"M": 64, "N": 64, "K": 64}, {"BM": (16, 64), "BN": (16, 64)})


SPACES = {
    "skinny": ("gemm", {"M": 16, "N": 4096, "K": 4096}, {"BM": (16, 32, 64), "BN": (16, 32, 64, 128), "BK": (64, 128)}),
    "square": ("gemm", {"M": 4096, "N": 4096, "K": 4096}, {"BM": (64, 128, 256), "BN": (128, 256)}),
    "split": ("gemm_split_k", {"M": 16, "N": 4096, "K": 4096}, {"BM": (16,), "BN": (16, 64, 256), "S": (1, 4, 8, 16)}),
    "long": ("gemm_split_k", {"M": 64, "N": 64, "K": 8192}, {"BM": (16, 64), "BN": (16, 64), "S": (1, 8, 32)}),
}


@pytest.mark.nightly
@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", sorted(SPACES))
def test_the_choice_against_an_exhaustive_search(name: str, chip: str) -> None:
    held(SPACES[name][0], chip, *SPACES[name][1:])


@pytest.mark.nightly
@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_a_larger_search(chip: str) -> None:
    shape = {"M": 1024, "N": 1024, "K": 1024}
    with executor_of("processes", 2) as pool:
        found = tileir.tune(kernels.source("gemm"), chip, shape, trials=24, executor=pool)
    assert len(found.trials) == 25 and found.speedup > 1.1
    assert all(t.result.usable or t.code for t in found.trials)
    chosen = seconds("gemm", chip, shape, tileir.choose(kernels.source("gemm"), chip, shape).params)
    assert found.best.result.estimated_seconds <= chosen


PROPOSED = {
    "gemm": ({"M": 512, "N": 768, "K": 512}, {"T": ("bf16",), "BM": (128, 256), "BN": (128, 256)}),
    "gemm_persistent": ({"M": 512, "N": 768, "K": 512}, {"BM": (128, 256), "BN": (128, 256), "G": 4, "X": 1}),
    "gemm_epilogue": ({"M": 512, "N": 768, "K": 512}, {}),
    "gemm_fp8": ({"M": 512, "N": 768, "K": 512}, {}),
    "gemm_int8": ({"M": 512, "N": 768, "K": 512}, {}),
    "gemm_split_k": ({"M": 64, "N": 96, "K": 4096}, {}),
}


@pytest.mark.nightly
@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", sorted(PROPOSED))
def test_what_is_proposed_has_no_spills_and_no_moves(name: str, chip: str) -> None:
    """The best of a search, compiled anew: nothing in scratch, no moves between register files in loops, no more registers than stated;
    and what has any of it is in the table with its code."""
    shape, params = PROPOSED[name]
    one = {n: v[0] if isinstance(v, tuple) and len(v) == 1 else v for n, v in params.items()}
    (module,) = [tileir.parse(kernels.source(name))]
    symbols = module.kernels[0].symbols()
    found = tileir.tune(kernels.source(name), chip, {n: shape[n] for n in shape if n in symbols}, params=one, trials=8)
    for t in found.trials:
        assert t.result.usable or t.code, t
    given = {**found.fixed, **found.best.params}
    code = tileir.compile(found.text, chip, kernel=name, params=given)
    assert not any(code.stats[n] for n in ("vgpr_spills", "sgpr_spills", "scratch_bytes"))
    report = inspect(code.hsaco).kernel
    assert all(loop.counts.accumulator_moves == 0 for loop in report.loops)
    assert not FAULTS & {d.code for d in code.diagnostics}
