"""No spill, no scratch memory, no accumulator move in any GEMM that fits, and a located error within seconds where it does not."""

from __future__ import annotations

import random

import pytest

from .gemm_matrix import CHIPS, EDGES, FORMS, Case, all_cases, check

# What was hard: full register files, operands that are turned in registers or read element by element, rows that are no powers
# of two, buffers beyond 64 KiB, eight waves with more than half of their registers in the accumulator.
HARD = (
    Case("nt", "bf16", "gfx950", 256, 256, 128, 4),
    Case("nt", "f16", "gfx942", 256, 256, 64, 8),  # case plain-gemm-spills
    Case("nt", "f16", "gfx950", 256, 256, 64, 8),
    Case("nn", "bf16", "gfx942", 256, 256, 64, 4),
    Case("tn", "bf16", "gfx942", 192, 256, 64, 8),
    Case("tt", "i8", "gfx950", 192, 128, 128, 4),
    Case("tn", "i8", "gfx942", 192, 192, 128, 8),
    Case("tn", "f32", "gfx950", 128, 128, 64, 4),
    Case("tt", "f64", "gfx950", 64, 192, 64, 4),
    Case("tn", "f64", "gfx942", 128, 128, 32, 8),
)
SAMPLE = random.Random(7).sample(list(all_cases()), 8)


@pytest.mark.parametrize("case", [*HARD, *SAMPLE], ids=str)
def test_keeps_its_registers(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("waves, dtype", [(4, "f64"), (8, "f64")])
@pytest.mark.parametrize("chip", CHIPS)
def test_more_accumulator_than_a_file(chip: str, waves: int, dtype: str) -> None:
    """256 x 256 in f64: 512 or 256 registers for the accumulator alone."""
    case = Case("nt", dtype, chip, 256, 256, 32, waves)
    with pytest.raises(Exception) as caught:
        case.compile()
    (d, *_) = caught.value.diagnostics  # type: ignore[attr-defined]
    assert d.code in ("E0861", "E0863") and d.loc.line and d.legal
    check(case)


@pytest.mark.nightly
@pytest.mark.parametrize("bm", EDGES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_whole_matrix(chip: str, form: str, bm: int) -> None:
    broken: list[str] = []
    for case in all_cases():
        if (case.chip, case.form, case.bm) == (chip, form, bm):
            try:
                check(case)
            except AssertionError as e:
                broken.append(str(e))
    assert not broken, "\n".join(broken)
