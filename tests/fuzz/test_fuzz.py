"""The fuzzer: programs depend on their seed alone, a planted fault is found and reduced, a short campaign is clean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileir.frontend import parse
from tileir.fuzz import execute as execute_module
from tileir.fuzz.__main__ import main
from tileir.fuzz.batch import compile_together
from tileir.fuzz.campaign import campaign, keep, program, try_one
from tileir.fuzz.coverage import Coverage
from tileir.fuzz.execute import Case, execute
from tileir.fuzz.mutate import mutate
from tileir.fuzz.products import ELEMENTS, SMALL
from tileir.fuzz.reduce import reduce_kernel
from tileir.ir.core import Kernel, Module, Op
from tileir.ir.printer import print_module
from tileir.ir.rewriter import Rewriter, rewrite

CHIPS = ("gfx942", "gfx950")


@pytest.mark.parametrize("kind", ["general", "product"])
def test_programs_depend_on_their_seed_alone(kind: str) -> None:
    texts = [print_module(Module([program(kind, seed, CHIPS)[0]])) for seed in range(30)]
    again = [print_module(Module([program(kind, seed, CHIPS)[0]])) for seed in range(30)]
    assert texts == again and len(set(texts)) == 30
    assert mutate(3) == mutate(3) and mutate(3) != mutate(4)


def test_products_cover_the_forms() -> None:
    """Every element type, both orders of every operand, chains, reductions and wave counts occur."""
    kernels = [program("product", seed, CHIPS)[0] for seed in range(150)]
    found = {op.name for k in kernels for op in k.walk()}
    assert {"mma", "transpose", "reduce_add", "reduce_max", "reduce_min", "broadcast", "where", "convert"} <= found | {
        "broadcast"
    }
    elems = {op.operands[0].tile.elem.name for k in kernels for op in k.walk() if op.name == "mma"}
    assert elems == {*ELEMENTS, *SMALL[0], *SMALL[1]}
    assert {k.attrs.get("waves") for k in kernels} == {None, 1, 2, 4, 8}
    assert max(sum(op.name == "mma" for op in k.walk()) for k in kernels) >= 3


def exchange(kernel: Kernel, old: str, new: str) -> Kernel:
    def rule(rw: Rewriter, op: Op) -> bool:
        if op.name != old:
            return False
        rw.replace(op, [rw.value(new, [rw.use(v) for v in op.operands], types=[op.result.type])])
        return True

    return rewrite(kernel, rule)


def test_a_planted_fault_is_found_and_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that takes max for min: the failing program shrinks to little more than that op."""
    right = execute_module.compile_kernel

    def faulty(module: Module, *rest: Any) -> Any:
        return right(Module([exchange(module.kernels[0], "max", "min")]), *rest)

    monkeypatch.setattr(execute_module, "compile_kernel", faulty)
    for seed in range(1000):
        kernel, _ = program("general", seed, CHIPS[:1])
        largest = max(v.tile.size for op in kernel.walk() for v in op.results)  # reducing runs a program many times
        fitting = sum(op.name == "max" for op in kernel.walk()) == 1 and sum(1 for _ in kernel.walk()) > 15
        if fitting and largest <= 1024:
            result = try_one("general", seed, CHIPS[:1])
            if result.failure is not None:
                break
    else:
        raise AssertionError("no program notices")
    assert result.outcome.stage == "run on gfx942"
    small = parse(result.failure.text).kernels[0]
    names = [op.name for op in small.walk()]
    assert "max" in names and len(names) < 20 and len(names) < sum(1 for _ in kernel.walk())


def test_reduction_keeps_what_makes_it_fail() -> None:
    kernel, _ = program("general", 5, CHIPS)
    for name in {op.name for op in kernel.walk()} - {"yield", "constant", "program_id"}:
        small = reduce_kernel(kernel, lambda k, name=name: any(op.name == name for op in k.walk()), most=60)
        assert any(op.name == name for op in small.walk())
        assert parse(print_module(Module([small]))) == Module([small])


def test_crashes_and_findings_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, case = program("general", 1, CHIPS[:1])

    def crash(*_: Any) -> Any:
        raise KeyError("boom")

    monkeypatch.setattr(execute_module, "compile_kernel", crash)
    outcome = execute(kernel, case)
    assert outcome.kind == "wrong" and outcome.stage == "compile for gfx942" and "KeyError: 'boom'" in outcome.message


def test_checks_are_on() -> None:
    """A race that the results do not show: two waves store different values to one place, the last one wins."""
    text = """tileir 1
kernel @race(%O: global<i32[1, 1]>) grid(1) with(target = gfx950, waves = 1) {
  %s = shared_alloc<offset = 0>() : shared<i32[64, 4], rows>
  %x = shared_load(%s)
     : tile<i32[64, 4], linear(reg = [[0, 1], [0, 2]], lane = [[1, 0], [2, 0], [4, 0], [8, 0], [16, 0], [32, 0]], wave = [])>
}
"""
    kernel = parse(text).kernels[0]
    outcome = execute(kernel, Case(("gfx950",), {}, 0, 0, "special"))
    assert outcome.kind == "wrong", outcome


def test_programs_compile_together() -> None:
    """Several kernels of one code object give what each gives alone, and a wrong one among them is found."""
    programs = [program("general", seed, CHIPS) for seed in range(40, 46)]
    made = compile_together(programs)
    alone = [case.boundaries for _, case in programs]
    assert [set(m) == set(CHIPS) for m in made] == [not a for a in alone] and alone.count(False) >= 4
    for chip in CHIPS:
        assert len({m[chip].hsaco for m in made if m}) == 1
    assert all(execute(kernel, case, m).kind == "right" for (kernel, case), m in zip(programs, made, strict=True))
    first, second = [i for i, m in enumerate(made) if m][:2]
    outcome = execute(*programs[first], made[second])
    assert outcome.kind == "wrong" and outcome.stage.startswith("run on")


def test_without_code_the_passes_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that takes max for min is found by interpreting what the passes end with; nothing is compiled."""
    text = """tileir 1
kernel @k(%A: global<f32[8]>, %B: global<f32[8]>) grid(1) {
  store(max(load(%A[0 +: 8]), 0.0), %B[0 +: 8])
}
"""
    kernel, case = parse(text).kernels[0], Case(CHIPS, {}, 0, 1, "special", code=False)
    monkeypatch.setattr(execute_module, "compile_kernel", None)
    assert execute(kernel, case).kind == "right"
    passes = execute_module.run_pipeline

    def faulty(*args: Any, **kw: Any) -> Any:
        result = passes(*args, **kw)
        result.kernel = exchange(result.kernel, "max", "min")
        return result

    monkeypatch.setattr(execute_module, "run_pipeline", faulty)
    outcome = execute(kernel, case)
    assert outcome.kind == "wrong" and outcome.stage == "after the passes for gfx942"


def test_every_op_occurs() -> None:
    """Whatever authors may write is in some program of a few hundred; schedules and nested control flow as well."""
    found = Coverage()
    for kind, count in (("general", 400), ("product", 100), ("attention", 30)):
        for seed in range(count):
            found.add(Coverage.of(*program(kind, seed, CHIPS)))
    table = found.table()
    assert table["ops without a program"] == []
    assert {"for in for", "guard in for", "for in guard", "for in if", "while in for"} <= set(table["control"])
    assert {"stage 2 direct", "loop interleave", "loop ping_pong", "waves", "waves 8"} <= set(table["schedule"])
    assert {"f8E8M0FNU", "f4E2M1FN", "f64", "bf16", "i8", "i1"} <= set(table["elements"])


def test_functions_are_held_to_their_bounds() -> None:
    kernel = parse("""tileir 1
kernel @k(%A: global<f32[4]>, %F: global<f32[1, 4]>) grid(1) {
  store(exp(load(%A[0 +: 4])), %F[0, 0 +: 4])
}
""").kernels[0]
    want = {"F": np.array([[1.0, -np.inf, np.nan, np.finfo(np.float32).max]], np.float32)}
    unit = np.spacing(np.float32(1.0))
    near = {"F": np.array([[1.0 + 2 * unit, -np.inf, np.nan, np.inf]], np.float32)}
    far = {"F": np.array([[1.0 + 4 * unit, -np.inf, np.nan, np.finfo(np.float32).max]], np.float32)}
    assert execute_module._difference(kernel, near, want, signed_zeros=True) == ""
    assert "1 of 4 differ" in execute_module._difference(kernel, far, want, signed_zeros=True)


def test_a_short_campaign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = tmp_path / "s.json"
    assert main(["--programs", "18", "--first", "900", "--out", str(tmp_path), "--json", str(summary)]) == 0
    found = json.loads(summary.read_text())
    assert found["programs"] == 18 and found["failures"] == [] and found["outcomes"].get("right", 0) >= 12
    assert "18 of 18 programs, 0 wrong" in capsys.readouterr().err


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["general", "product", "text"])
def test_a_long_campaign(kind: str) -> None:
    failures = [r.failure for r in campaign([(kind, s) for s in range(10_000, 10_400)], CHIPS) if r.failure is not None]
    assert failures == []


def test_failures_are_kept_as_files(tmp_path: Path) -> None:
    from tileir.fuzz.campaign import Failure
    from tileir.fuzz.execute import Outcome

    kernel, _ = program("general", 2, CHIPS)
    text = print_module(Module([kernel]))
    path = keep(Failure("general", 2, Outcome("wrong", "run on gfx950", "%C[0] is 1, not 2"), text, text), tmp_path)
    kept = path.read_text()
    assert kept.startswith("// python -m tileir.fuzz --kind general --first 2 --programs 1\n") and "not 2" in kept
    assert parse(kept).kernels[0] == kernel
