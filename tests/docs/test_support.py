"""What the documentation says about compiled ops: no probe may crash, and in the nightly run each reaches machine code."""

import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
sys.path.insert(0, str(DOCS))

import support  # noqa: E402

from tileir.frontend import parse  # noqa: E402
from tileir.ir.registry import all_ops  # noqa: E402
from tileir.lowering.amdgpu.compile import compile_kernel  # noqa: E402

pytestmark = pytest.mark.xdist_group("docs")


# Ops that have tests of their own for what compiles.
ELSEWHERE = {
    "convert": "conversions of support.py",
    "pack": "tests/kernels/test_packing.py",
    "unpack": "tests/kernels/test_packing.py",
    "mma_scaled": "tests/kernels/test_quantised_gemm.py",
    "print": "tests/runtime/test_reports.py",
    "assert": "tests/runtime/test_reports.py",
    "join_fragments": "tests/kernels/test_transposing_reads.py",
    "swap_fragments": "tests/kernels/test_attention_backward.py",
    "shared_load_transposed_fragment": "tests/kernels/test_transposing_reads.py",
}


def test_every_op_has_a_probe_or_occurs_in_our_kernels() -> None:
    missing = set(support.without_probe()) - set(ELSEWHERE) - support.ops_in_compiled_kernels()
    assert not missing
    for file in ELSEWHERE.values():
        assert not file.startswith("tests/") or (DOCS.parent / file).exists(), file


def test_probes_that_fail_do_so_with_a_diagnostic() -> None:
    for definition in all_ops().values():
        support.support(definition)
    support.conversions()
    support.special_forms()
    assert support.CRASHES == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", list(all_ops()))
def test_what_lowers_also_becomes_machine_code(name: str) -> None:
    for elem, text, params in support.probes(all_ops()[name]):
        for chip in support.CHIPS:
            if support.compiles(text, chip, params):
                compiled = compile_kernel(parse(text, "probe.tile", params), "", chip)
                assert compiled.hsaco, (name, elem, chip)


@pytest.mark.nightly
@pytest.mark.parametrize("source", support.CONVERT_ELEMS)
def test_conversions_become_machine_code(source: str) -> None:
    for target in support.CONVERT_ELEMS:
        text = support.conversion_probe(source, target)
        for chip in support.CHIPS:
            if support.compiles(text, chip):
                assert compile_kernel(parse(text, "probe.tile"), "", chip).hsaco, (source, target, chip)


def test_gaps_that_the_text_names_are_gaps() -> None:
    """language.md and known-gaps.md say in prose what is only interpreted; whoever closes a gap changes them."""
    assert support.special_forms() == {"gather": support.CHIPS, "scatter": support.CHIPS}
    for name in ("guard", "sin", "cos", "erf", "exp", "exp2", "log", "log2", "tanh", "sigmoid"):
        found = support.support(all_ops()[name])
        assert found is not None and all("f64" in done for done in found.compiled.values()), name
