"""The pass manager: order, normal forms, resuming, and passes that break what they promise."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tileir import kernels
from tileir.frontend import parse
from tileir.ir.core import Kernel, Module, Op
from tileir.ir.diagnostics import CompileError, Log, error
from tileir.ir.printer import print_module
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.passes import manager
from tileir.passes.base import Context, Pass
from tileir.passes.forms import FORMS
from tileir.passes.manager import run_pipeline, step_names
from tileir.passes.pipeline import Step, pipeline

EXAMPLES = sorted((Path(__file__).parents[2] / "tileir" / "kernels").glob("*.tile"))

TEXT = """tileir 1
kernel @k(%A: global<bf16[M, K]>, %B: global<bf16[N, K]>, %C: global<f32[M, N]>) grid(cdiv(M, 32), cdiv(N, 32)) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[32, 32]>
  %acc = for %k = 0 to K step 64 carry(%c = %zero) {
    %a = load(%A[%i * 32 +: 32, %k +: 64])
    %b = load(%B[%j * 32 +: 32, %k +: 64])
    %d = mma(%a, transpose(%b), %c)
    yield %d
  }
  store(%acc, %C[%i * 32 +: 32, %j * 32 +: 32])
}
"""


def module(text: str = TEXT) -> Module:
    return parse(text, "k.tile")


def test_labels_are_unique_and_every_form_has_an_author() -> None:
    labels = step_names()
    assert len(set(labels)) == len(labels) and "simplify" in labels and "simplify-2" in labels
    made = {f for s in pipeline() for f in s.pass_.establishes}
    assert {f for s in pipeline() for f in s.pass_.requires} <= made == set(FORMS)


# Files of which a chip wants other types than the default ones, and those that only one chip has instructions for.
PARAMS: dict[tuple[str, str], dict[str, int | str]] = {
    ("gemm_fp8", "gfx942"): {"T": "f8E4M3FNUZ", "U": "f8E5M2FNUZ"},
}
LIBRARY = [(p, c) for p in EXAMPLES for c in ("gfx942", "gfx950") if (p.stem, c) != ("gemm_mx", "gfx942")]


@pytest.mark.parametrize(("path", "chip"), [pytest.param(p, c, id=f"{p.stem}-{c}") for p, c in LIBRARY])
def test_every_pass_keeps_the_meaning_of_the_library(path: Path, chip: str) -> None:
    log = Log()
    file = parse(path.read_text(), path.name, PARAMS.get((path.stem, chip)))
    for kernel in file.kernels:
        result = run_pipeline(file, kernel.name, chip, verify_each="run", log=log)
        assert [label for label, _ in result.timings] == list(step_names())
    assert not [d for d in log.diagnostics if d.code == "W1001"], "it was not interpreted"


def test_text_after_every_pass_resumes_to_the_same_kernel() -> None:
    texts: dict[str, str] = {}
    final = run_pipeline(
        module(), "k", "gfx950", print_after=lambda label, k: texts.setdefault(label, print_module(Module([k])))
    )
    labels = step_names()
    for done, following in itertools.pairwise(labels):
        again = parse(texts[done], "resumed.tile")
        result = run_pipeline(again, "", "", start_from=following)
        assert print_module(Module([result.kernel])) == print_module(Module([final.kernel])), done


def test_a_text_that_all_passes_have_run_on_stays_as_it_is() -> None:
    """Also where its loops are written instruction by instruction."""
    for name, chip in (("gemm", "gfx950"), ("attention", "gfx942"), ("layer_norm", "gfx950")):
        file = parse(kernels.source(name), f"{name}.tile")
        final = run_pipeline(file, file.kernels[0].name, chip).kernel
        text = print_module(Module([final]))
        result = run_pipeline(parse(text, "final.tile"), "", "")
        assert print_module(Module([result.kernel])) == text
        assert [label for label, _ in result.timings] == [step_names()[-1]]


def test_stop_after() -> None:
    result = run_pipeline(module(), "k", "gfx950", stop_after="simplify")
    assert [label for label, _ in result.timings] == ["specialise", "expand-ops", "accumulate-products", "simplify"]


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"kernel_name": "nobody"}, "E1005"),
        ({"target": "gfx1"}, "E1004"),
        ({"target": ""}, "E1004"),
        ({"stop_after": "nothing"}, "E1002"),
        ({"start_from": "synchronise", "stop_after": "simplify"}, "E1002"),
        ({"start_from": "simplify"}, None),  # simplify requires nothing
        ({"start_from": "split-access"}, "E1001"),
    ],
)
def test_what_cannot_be_run_is_a_located_error(settings: dict[str, str], code: str | None) -> None:
    arguments = {"kernel_name": "k", "target": "gfx950", "stop_after": None, **settings}
    if code is None:
        run_pipeline(module(), **{**arguments, "stop_after": "simplify"})  # type: ignore[arg-type]
        return
    with pytest.raises(CompileError) as caught:
        run_pipeline(module(), **arguments)  # type: ignore[arg-type]
    (d,) = caught.value.diagnostics
    assert d.code == code and d.loc.line == 2 and d.legal and caught.value.sources


def test_no_kernel_and_several_kernels() -> None:
    two = module(TEXT + TEXT.replace("tileir 1\n", "").replace("@k", "@other"))
    with pytest.raises(CompileError, match="holds 2 kernels"):
        run_pipeline(two, "", "gfx950")
    with pytest.raises(CompileError, match="holds no kernel"):
        run_pipeline(module("tileir 1\n"), "", "gfx950")
    with pytest.raises(CompileError, match="bound to gfx950"):
        bound = run_pipeline(two, "other", "gfx950", stop_after="specialise").kernel
        run_pipeline(Module([bound]), "", "gfx942", start_from="simplify")


# -- passes with faults ----------------------------------------------------------------------------------------------


@pytest.fixture
def with_pass(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Replaces the pipeline by `specialise` and one pass of the test."""

    def install(run: object, **fields: frozenset[str]) -> None:
        steps = (pipeline()[0], Step("broken", Pass("broken", run, **fields)))  # type: ignore[arg-type]
        monkeypatch.setattr(manager, "pipeline", lambda: steps)

    yield install


def _swap_operands(kernel: Kernel, ctx: Context) -> Kernel:
    def rule(rw: Rewriter, op: Op) -> bool:
        if op.name != "store":
            return False
        twice = rw.value("add", [rw.use(op.operands[0]), rw.use(op.operands[0])])
        rw.op("store", [twice, *(rw.use(v) for v in op.operands[1:])], dict(op.attrs), spans=op.spans)
        return True

    return rewrite(kernel, rule)


def _dangling(kernel: Kernel, ctx: Context) -> Kernel:
    new = rewrite(kernel, lambda rw, op: False)
    new.body.ops = [op for op in new.body.ops if op.name != "fill"]
    return new


def test_a_pass_that_changes_the_meaning_is_caught_by_running(with_pass: object) -> None:
    with_pass(_swap_operands)  # type: ignore[operator]
    run_pipeline(module(), "k", "gfx950", verify_each="verify")
    with pytest.raises(CompileError, match="after pass 'broken' kernel 'k' computes another %C") as caught:
        run_pipeline(module(), "k", "gfx950", verify_each="run")
    assert "it was" in caught.value.diagnostics[0].notes[0].message


def test_a_pass_that_breaks_the_ir_is_caught_by_the_verifier(with_pass: object) -> None:
    with_pass(_dangling)  # type: ignore[operator]
    with pytest.raises(CompileError, match="pass 'broken' produced a kernel that the verifier rejects"):
        run_pipeline(module(), "k", "gfx950", verify_each="verify")


def test_a_pass_that_breaks_its_promise_is_named(with_pass: object) -> None:
    with_pass(lambda kernel, ctx: kernel, establishes=frozenset({"laid_out"}))  # type: ignore[operator]
    with pytest.raises(CompileError, match="pass 'broken' promises the normal form 'laid_out'"):
        run_pipeline(module(), "k", "gfx950")


def test_a_form_that_an_earlier_pass_broke_is_no_fault_of_the_text(with_pass: object) -> None:
    with_pass(lambda kernel, ctx: kernel, requires=frozenset({"synchronised", "lds_allocated"}))  # type: ignore[operator]
    with pytest.raises(CompileError) as caught:
        run_pipeline(module(), "k", "gfx950")
    assert caught.value.diagnostics[0].code == "E1001"
    assert any("fault of the compiler" in n.message for n in caught.value.diagnostics[0].notes)


def test_a_kernel_that_no_small_input_satisfies_is_reported(with_pass: object) -> None:
    with_pass(lambda kernel, ctx: replace(kernel))  # type: ignore[operator]
    log = Log()
    text = TEXT.replace("%zero =", "assume(M == 12345)\n  %zero =")
    run_pipeline(module(text), "k", "gfx950", verify_each="run", log=log)
    assert [d.code for d in log.diagnostics] == ["W1001"]


def test_last_checks_may_be_left_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    source, checks = module(), list[manager.Check]()
    kernel = run_pipeline(source, "k", "gfx950", later=checks).kernel
    assert len(checks) > 1 + sum(
        len(step.pass_.establishes) for step in pipeline()
    )  # and what steps require of each other
    for check in checks:
        check()
    checked: list[Kernel] = []

    def refuse(kernel: Kernel) -> None:
        checked.append(kernel)
        raise error("E0303", "no", kernel.loc)

    monkeypatch.setattr(manager, "verify", refuse)
    again: list[manager.Check] = []
    final = run_pipeline(source, "k", "gfx950", later=again).kernel
    assert not checked and final == kernel
    with pytest.raises(CompileError) as caught:
        for check in again:
            check()
    assert checked == [final] and caught.value.sources == source.sources
    with pytest.raises(CompileError):
        run_pipeline(source, "k", "gfx950")
