"""`guard` in machine code: which rows change, which waves skip, and what happens when waves must exchange data in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.attention import Shape, attention_kernel, check_attention, inputs, raise_key, source
from tests.kernels.harness import CHIPS, compiled, device
from tileir.frontend import parse
from tileir.interpreter import run
from tileir.ir.diagnostics import CompileError
from tileir.lowering.amdgpu.compile import Compiled, compile_kernel
from tileir.runtime import launch
from tileir.runtime.simulator_device import SimulatorDevice

Array = np.ndarray[Any, Any]
ROWS = "tileir 1\nkernel @rows(%X: global<f32[M, 48]>, %N: global<f32[M, 1]>, %Y: global<f32[M, 48]>, %Z: global<f32[M, 1]>)"
BODY = """ grid(cdiv(M, 64)) with(waves = 4) {
  %i = program_id()
  %x = load(%X[%i * 64 +: 64, 0 +: 48])
  %n = load(%N[%i * 64 +: 64, 0 +: 1])
  %r, %q = guard %n > 0.0 carry(%a = %x, %b = %n) {
    %y = sqrt(%a * %a + %b)
    yield %y, reduce_add(%y, axis = 1)
  }
  store(%r, %Y[%i * 64 +: 64, 0 +: 48])
  store(%q, %Z[%i * 64 +: 64, 0 +: 1])
}
"""
REGION_LINE = 7


def both(kernel: Compiled, chip: str, arrays: dict[str, Array], checks: str = "all") -> SimulatorDevice:
    """Runs in the interpreter and in the simulator with checks; results must be equal."""
    got = {k: v.copy() for k, v in arrays.items()}
    want = {k: v.copy() for k, v in arrays.items()}
    on = SimulatorDevice(chip, checks)
    launch(kernel, got, on)
    assert on.statistics is not None and on.statistics.findings == []
    assert kernel.kernel is not None
    run(kernel.kernel, want)
    for name in arrays:
        assert np.allclose(got[name], want[name], rtol=1e-5, atol=0, equal_nan=True), name
    return on


def executed_at(kernel: Compiled, on: SimulatorDevice, line: int) -> int:
    """How often instructions of that line of the text ran."""
    assert on.statistics is not None
    table = on.load(kernel.hsaco).code.line_table
    found = 0
    for address, times in on.statistics.executions.items():
        row = table.lookup(address)
        found += times if row is not None and row.line == line else 0
    return found


def rows(m: int, needed: list[int]) -> dict[str, Array]:
    rng = np.random.default_rng(m)
    n = -1 - rng.random((m, 1)).astype(np.float32)
    n[needed] *= -1
    x = rng.standard_normal((m, 48)).astype(np.float32)
    return {"X": x, "N": n, "Y": np.zeros_like(x), "Z": np.zeros_like(n)}


@pytest.mark.parametrize("chip", CHIPS)
def test_rows_that_need_it_change_and_waves_without_one_skip(chip: str) -> None:
    """64 rows on four waves: each needed row costs one wave the region."""
    kernel = compiled(ROWS + BODY, chip)
    ran = [
        executed_at(kernel, both(kernel, chip, rows(64, needed)), REGION_LINE)
        for needed in ([], [5], [0, 15], [0, 16], [3, 20, 63], list(range(64)))
    ]
    one = ran[1]
    assert one > 0 and ran == [0, one, one, 2 * one, 3 * one, 4 * one]
    both(kernel, chip, rows(101, [64, 99, 100]))


@pytest.mark.parametrize("chip", CHIPS)
def test_nan_in_the_rows_that_do_not_need_it_stays_there(chip: str) -> None:
    arrays = rows(64, [1, 2, 40])
    arrays["N"][[0, 3, 41]] = np.nan
    arrays["X"][::3, 7] = np.inf
    both(compiled(ROWS + BODY, chip), chip, arrays)


EXCHANGES = {
    "a reduction over the rows of all waves": "yield %a + reduce_max(%a, axis = 0)",
    "a product with an operand from memory": "%k = load(%K[0 +: 64, 0 +: 64])\n    yield mma(%k, transpose(%k), %a)",
    "a transposition": "yield %a + transpose(%a)",
}
EXCHANGE = """tileir 1
kernel @exchange(%K: global<f32[64, 64]>, %X: global<f32[64, 64]>, %N: global<f32[64, 1]>, %Y: global<f32[64, 64]>) grid(1) with(waves = 4) {{
  %x = load(%X[0 +: 64, 0 +: 64])
  %n = load(%N[0 +: 64, 0 +: 1])
  %r = guard %n > 0.0 carry(%a = %x) {{
    {}
  }}
  store(%r, %Y[0 +: 64, 0 +: 64])
}}
"""


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("region", EXCHANGES)
def test_a_region_in_which_waves_exchange_data_runs_in_all_of_them(chip: str, region: str) -> None:
    kernel = compiled(EXCHANGE.format(EXCHANGES[region]), chip)
    found = [d for d in kernel.log.diagnostics if d.code == "R0805"]
    assert found and all(d.loc.line == 5 for d in found)
    rng = np.random.default_rng(2)
    k, x = (rng.integers(-3, 4, (64, 64)).astype(np.float32) for _ in range(2))
    for needed in ([], [17], [0, 63]):
        n = -np.ones((64, 1), np.float32)
        n[needed] = 1
        both(kernel, chip, {"K": k, "X": x, "N": n, "Y": np.zeros_like(x)})


def test_a_region_cannot_store() -> None:
    with pytest.raises(CompileError) as caught:
        parse(EXCHANGE.format("store(%a, %Y[0 +: 64, 0 +: 64])\n    yield %a"), "e.tile")
    (found,) = caught.value.diagnostics
    assert found.code == "E0517" and found.loc.line == 6 and found.notes[0].loc is not None


ACCUMULATE = """tileir 1
kernel @accumulate<T: type = bf16>(%A: global<T[M, K]>, %B: global<T[N, K]>, %C: global<f32[M, N]>, %limit: f32) grid(cdiv(M, 64), cdiv(N, 64)) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[64, 64]>
  %acc = for %k = 0 to K step 32 carry(%c = %zero) {
    %a = load(%A[%i * 64 +: 64, %k +: 32])
    %b = load(%B[%j * 64 +: 64, %k +: 32])
    %d = mma(%a, transpose(%b), %c)
    %e = guard reduce_max(abs(%d), axis = 1) > %limit carry(%x = %d) {
      yield %x * 0.25
    }
    yield %e
  }
  store(%acc, %C[%i * 64 +: 64, %j * 64 +: 64])
}
"""


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("waves", ["1 x 1", "4 x 1", "2 x 2", "1 x 4"])
def test_accumulators_pass_through_a_guard(chip: str, waves: str) -> None:
    """Row maxima cross waves where columns are split over them; the guard itself never does. Small integers and powers of two:
    equal bits."""
    text = ACCUMULATE + f"\nschedule @s of @accumulate for {chip} {{\n  waves %acc {waves}\n}}\n"
    kernel = compiled(text, chip)
    assert not any(d.code == "R0805" for d in kernel.log.diagnostics)
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-2, 3, (r, 150)).astype(np.float32) for r in (100, 70))
    arrays = {"A": a.astype("bfloat16"), "B": b.astype("bfloat16"), "C": np.zeros((100, 70), np.float32)}
    for limit in (20.0, 45.0, 1e6):
        assert kernel.kernel is not None
        got, want = ({k: v.copy() for k, v in arrays.items()} for _ in range(2))
        launch(kernel, {**got, "limit": limit}, device(f"simulator:{chip}"))
        run(kernel.kernel, {**want, "limit": limit})
        assert np.array_equal(got["C"], want["C"]), limit


# -- lazy rescaling in attention ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("causal", [False, True])
def test_late_rescale(chip: str, causal: bool) -> None:
    """One outlier key at every position, so that the reference moves in every block, for some rows up and for others not; then two
    of them, the second larger."""
    shape = Shape(40, 75, causal=causal)
    kernel = attention_kernel("attention_lazy", chip, shape, 32, 16)
    check_attention(kernel, chip, shape, name="attention_lazy")
    for position in range(shape.nk):
        check_attention(kernel, chip, shape, change=raise_key(position), name="attention_lazy")

    def twice(q: Array, k: Array, v: Array) -> None:
        raise_key(20, 10.0)(q, k, v)
        raise_key(60, 40.0)(q, k, v)

    check_attention(kernel, chip, shape, change=twice, name="attention_lazy")


@pytest.mark.parametrize(("old", "new"), [("%lo * %r", "%lo"), ("%oo * %r", "%oo")], ids=["sum", "output"])
def test_what_is_not_rescaled_is_rejected(old: str, new: str) -> None:
    """Case late-rescale: the sum or the output keeps the old reference."""
    text = source("attention_lazy")
    assert text.count(old) == 1
    params = (("BM", 32), ("BN", 16), ("D", 64), ("CAUSAL", False), ("T", "bf16"))
    with pytest.raises(CompileError) as caught:
        compiled(text.replace(old, new), "gfx950", params)
    (d,) = caught.value.diagnostics
    assert d.code == "E1035" and any("guard" in n.message for n in d.notes)


MUTANTS = {
    "the reference stays": ("yield %top,", "yield %mo,"),
    "rows are rescaled that kept their reference": (
        "carry(%mo = %mi, %fo = %fi, %lo = %li, %oo = %oi) {",
        "carry(%mo = %mi, %fo = %fi, %lo = %li, %oo = %oi * 0.5) {",
    ),
    "the scaled reference stays": ("where(%top == -inf, 0.0, %top) * %c", "%fo"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_rescale_is_noticed(mutant: str) -> None:
    """Other ways of getting it wrong, which no check of the text finds, fail on some position of the outlier."""
    old, new = MUTANTS[mutant]
    text = source("attention_lazy")
    assert text.count(old) == 1
    shape = Shape(40, 75)
    params = (("BM", 32), ("BN", 16), ("D", shape.depth), ("CAUSAL", False), ("T", "bf16"))
    kernel = compiled(text.replace(old, new), "gfx950", params)
    failed = 0
    for position in range(0, shape.nk, 9):
        try:
            check_attention(kernel, "gfx950", shape, change=raise_key(position), name="attention_lazy")
        except AssertionError:
            failed += 1
    assert failed, mutant


@pytest.mark.parametrize("chip", CHIPS)
def test_late_rescale_in_fewer_instructions(chip: str) -> None:
    """On inputs of a normal distribution the cold region runs in few blocks after the first, and what runs in all is less than
    what the textbook form runs: a rescaling of the output saved for one test."""
    shape = Shape(128, 1024, 128, 1, 1)
    q, k, v = inputs(shape, "bf16")
    counts: dict[str, int] = {}
    for name in ("attention", "attention_lazy"):
        kernel = attention_kernel(name, chip, shape, 128, 64)
        o, lse = np.zeros_like(q), np.zeros((1, 1, shape.nq), np.float32)
        on = SimulatorDevice(chip)
        launch(kernel, {"Q": q, "K": k, "V": v, "O": o, "LSE": lse, "scale": shape.depth**-0.5}, on)
        assert on.statistics is not None
        program = on.load(kernel.hsaco).program("attention")
        counts[name] = sum(
            on.statistics.executions.get(address, 0)
            for address, inst in zip(program.addresses, program.instructions, strict=True)
            if inst is not None and inst.name.startswith("v_") and not inst.name.startswith("v_mfma")
        )
        if name == "attention_lazy":
            lines = source(name).splitlines()
            cold = next(i for i, line in enumerate(lines, 1) if "%lo * %r" in line)
            blocks = shape.nk // 64
            ran = executed_at(kernel, on, cold)
            once = executed_at_most(kernel, on, cold)
            assert 0 < ran < blocks // 2 * once, (ran, once)
    assert counts["attention_lazy"] < 0.97 * counts["attention"], counts


def executed_at_most(kernel: Compiled, on: SimulatorDevice, line: int) -> int:
    """Instructions of a line, times the waves of the launch: what it costs if every wave runs it once."""
    assert on.statistics is not None
    table = on.load(kernel.hsaco).code.line_table
    rows = [table.lookup(a) for a, times in on.statistics.executions.items() if times]
    return on.statistics.waves * sum(row is not None and row.line == line for row in rows)


@pytest.mark.parametrize("chip", CHIPS)
def test_no_wave_is_held_up_in_attention(chip: str) -> None:
    """Rows of score and output accumulators lie in the same lanes, and so the guard stays one."""
    text = source("attention_lazy")
    log = compile_kernel(parse(text, "a.tile", {"BM": 128}), "", chip).log.diagnostics
    assert not any(d.code == "R0805" for d in log)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("waves", [1, 4])
def test_constants_differ_behind_a_mask(chip: str, waves: int) -> None:
    """Tiles that are one value before the guard and in it are two behind it, also where one register holds several rows
    (fuzz program general 100004138)."""
    text = f"""tileir 1
kernel @k(%s: f32, %X: global<f32[5, 40]>) grid(1) with(waves = {waves}) {{
  %one = fill(1.0) : tile<f32[5, 40]>
  %r = guard iota<[5, 1]>() < 4 carry(%g = %one) {{
    yield %one * %s
  }}
  store(%r, %X[0 +: 5, 0 +: 40])
}}
"""
    got = {"s": np.float32(3.0), "X": np.zeros((5, 40), np.float32)}
    launch(compiled(text, chip), got, SimulatorDevice(chip, "all"))
    assert np.array_equal(got["X"], np.repeat(np.float32([3, 3, 3, 3, 1]), 40).reshape(5, 40))
