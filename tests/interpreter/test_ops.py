"""Every op of the registry against hand-computed vectors, and ops with a state of their own against small programs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime import test_reports
from tileir.ir import registry

from . import test_atomic, test_control, test_fragments, test_memory, test_program, test_wave
from .kernels import evaluate
from .vectors import VECTORS, Case

ELSEWHERE = {
    **test_atomic.COVERS,
    **test_control.COVERS,
    **test_fragments.COVERS,
    **test_memory.COVERS,
    **test_program.COVERS,
    **test_wave.COVERS,
    "print": [test_reports.test_lines_come_by_workgroup_and_in_program_order],
    "assert": [test_reports.test_failed_assertions_name_line_workgroup_element_and_values],
}


def test_every_op_has_vectors_or_a_test() -> None:
    assert set(VECTORS) | set(ELSEWHERE) == set(registry.all_ops())


def test_every_entry_is_an_op_and_not_empty() -> None:
    assert all(VECTORS.values())
    assert all(callable(test) for tests in ELSEWHERE.values() for test in tests)
    assert all(ELSEWHERE.values())


def same(x: np.ndarray, y: np.ndarray) -> bool:
    """Equal dtype, shape and bits, except that all NaN are alike."""
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    nan = (x != x) & (y != y)
    unsigned = f"u{x.dtype.itemsize}"
    return bool(np.all(nan | (np.atleast_1d(x).view(unsigned) == np.atleast_1d(y).view(unsigned)).reshape(x.shape)))


@pytest.mark.parametrize(
    ("name", "case"), [pytest.param(n, c, id=f"{n}-{i}") for n, cs in VECTORS.items() for i, c in enumerate(cs)]
)
def test_vector(name: str, case: Case) -> None:
    got = np.asarray(evaluate(name, case.inputs, case.attrs, case.types))
    assert same(got, case.expected), f"{got!r} is not {case.expected!r}"


def test_neg_flips_only_the_sign_bit() -> None:
    x = np.array([0x7FC00000, 0x00000000, 0x80000000], np.uint32).view(np.float32)
    assert list(evaluate("neg", [x]).view(np.uint32)) == [0xFFC00000, 0x80000000, 0x00000000]
