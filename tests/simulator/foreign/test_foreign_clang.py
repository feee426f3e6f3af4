"""C programs compiled by clang 22 in this test run at several levels of optimisation, compared with NumPy. All checks are on
and must find nothing."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from clang_cases import PROGRAMS, Program

from tests.simulator.simulator_compile import from_c
from tileir.simulator import Simulator, SimulatorError, SimulatorFault


def check(program: Program, level: str, chip: str) -> None:
    """Runs a program and compares every array that it says something about."""
    run = program.run(np.random.default_rng(zlib.crc32(program.name.encode())))
    simulator = Simulator(chip)
    module = simulator.load(from_c(program.source, chip, level, *program.options))
    buffers = [simulator.memory.allocate(array.nbytes, f"argument {i}") for i, array in enumerate(run.arrays)]
    for buffer, array in zip(buffers, run.arrays, strict=True):
        buffer.write(array)
    statistics = module.launch("k", (run.grid, 1, 1), (run.block, 1, 1), [*buffers, *run.scalars], check="all")
    assert [str(f) for f in statistics.findings] == []
    for position, (want, allowed) in run.expected.items():
        given = run.arrays[position]
        got = buffers[position].read(given.dtype).reshape(given.shape)
        if given.dtype.kind == "f":
            want = want.astype(np.float64).reshape(given.shape)
            with np.errstate(invalid="ignore"):
                wrong = ~((np.abs(got - want) <= allowed) | (got == want) | (np.isnan(got) & np.isnan(want)))
        else:
            want = want.astype(given.dtype).reshape(given.shape)
            wrong = got != want
        where = np.argwhere(wrong)[:4]
        assert not len(where), [(i.tolist(), got[tuple(i)], want[tuple(i)]) for i in where]


def _parameters(gate: bool) -> list[Any]:
    """The gate takes the last level of the programs that belong to it; the rest is nightly."""
    return [
        pytest.param(p, level, chip, id=f"{p.name}{level}-{chip}")
        for p in PROGRAMS
        for level in p.levels
        for chip in p.chips
        if (p.gate and level == p.levels[-1]) == gate
    ]


@pytest.mark.parametrize("program,level,chip", _parameters(True))
def test_clang(program: Program, level: str, chip: str) -> None:
    check(program, level, chip)


@pytest.mark.nightly
@pytest.mark.parametrize("program,level,chip", _parameters(False))
def test_clang_more(program: Program, level: str, chip: str) -> None:
    check(program, level, chip)


DEEP = """
__attribute__((noinline)) int sum(GLOBAL i32 *x, int n) {
  volatile int here = x[n];
  return n ? here + sum(x, n - 1) : here;
}
KERNEL void k(GLOBAL i32 *out, GLOBAL i32 *x, int n) { out[TID] = sum(x, n); }"""


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_a_dynamic_stack_is_as_deep_as_the_launch_says(chip: str) -> None:
    simulator = Simulator(chip)
    module = simulator.load(from_c(DEEP, chip))
    out, x = simulator.memory.allocate(256, "out"), simulator.memory.allocate(400, "x")
    x.write(np.arange(100, dtype=np.int32))
    with pytest.raises(SimulatorFault, match="stack is dynamic") as fault:
        module.launch("k", (1, 1, 1), (64, 1, 1), [out, x, 99])
    assert fault.value.kind == "scratch-bounds"
    module.launch("k", (1, 1, 1), (64, 1, 1), [out, x, 99], stack=16384)
    assert (out.read(np.int32) == 4950).all()
    with pytest.raises(SimulatorError, match="a stack of"):
        module.launch("k", (1, 1, 1), (64, 1, 1), [out, x, 99], stack=1 << 20)
