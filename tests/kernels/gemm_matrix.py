"""The matrix of GEMMs that must keep their registers: forms, types, chips, tiles, numbers of waves."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import NamedTuple

from tileir import kernels
from tileir.frontend import parse
from tileir.ir.core import Kernel
from tileir.ir.diagnostics import CompileError, Diagnostic
from tileir.lowering.amdgpu.compile import Compiled, compile_kernel
from tileir.target import get

FORMS = ("nt", "nn", "tt", "tn")
SUM = {"bf16": "f32", "f16": "f32", "f32": "f32", "f64": "f64", "i8": "i32"}
OUT = {"bf16": "bf16", "f16": "f16", "f32": "f32", "f64": "f64", "i8": "i32"}
CHIPS = ("gfx942", "gfx950")
EDGES = (64, 128, 192, 256)
DEPTHS = (32, 64, 128)
WAVES = (4, 8)
SECONDS = 5  # within which an error must come


class Case(NamedTuple):
    """One GEMM: C = op(A) · op(B) with tiles of bm x bn x bk, in the types of `dtype`."""

    form: str
    dtype: str
    chip: str
    bm: int
    bn: int
    bk: int
    waves: int

    def __str__(self) -> str:
        return f"{self.form}-{self.dtype}-{self.chip}-{self.bm}x{self.bn}x{self.bk}-{self.waves}"

    @property
    def lds_bytes(self) -> int:
        """LDS that both operands need at least."""
        return (self.bm + self.bn) * self.bk * {"i8": 1, "bf16": 2, "f16": 2, "f32": 4, "f64": 8}[self.dtype]

    @property
    def accumulator_registers(self) -> int:
        """Registers of a lane for the accumulator."""
        size = 8 if self.dtype == "f64" else 4
        return self.bm * self.bn * size // 4 // (64 * self.waves)

    def compile(self) -> Compiled:
        """Both versions, for aligned and other views. Raises CompileError."""
        params = {
            "BM": self.bm,
            "BN": self.bn,
            "BK": self.bk,
            "T": self.dtype,
            "S": SUM[self.dtype],
            "O": OUT[self.dtype],
        }
        plain = "grid(cdiv(M, BM), cdiv(N, BN))"
        text = kernels.source("gemm_forms").replace(plain, f"{plain} with(waves = {self.waves})")
        name = f"gemm_{self.form}"
        return compile_kernel(parse(text, "gemm_forms.tile", params, kernel=name), name, self.chip)


def all_cases() -> Iterator[Case]:
    """Every combination."""
    for values in itertools.product(FORMS, SUM, CHIPS, EDGES, EDGES, DEPTHS, WAVES):
        yield Case(*values)


def may_fail(case: Case, error: Diagnostic) -> str:
    """ "" if the error is the one that this case deserves, else what is wrong with it."""
    chip = get(case.chip)
    if not (error.loc.file == "gemm_forms.tile" and error.loc.line and error.legal):
        return f"not located, or without a way out: {error}"
    if error.code == "E0861":
        enough = case.lds_bytes <= chip.lds_bytes
        return f"{case.lds_bytes} bytes would fit" if enough else ""
    if error.code == "E0863":
        return "" if registers_are_short(case) else f"the registers suffice: {error.message}"
    return f"another error: {error.code} {error.message}"


def registers_are_short(case: Case) -> bool:
    """Whether a wave cannot hold the accumulator, one slice of both operands along k and 64 registers for the rest."""
    chip = get(case.chip)
    per_simd = max(1, case.waves // chip.simds_per_cu)
    most = chip.max_arch_vgprs if per_simd > 1 else chip.max_acc_vgprs
    budget = chip.registers_per_wave(per_simd)
    need = case.accumulator_registers
    return need > most or need + 64 + 2 * 32 > budget


def check(case: Case) -> None:
    """The case compiles without a deviation, or gives the error that it deserves within seconds."""
    start = time.perf_counter()
    try:
        compiled = case.compile()
    except CompileError as e:
        taken = time.perf_counter() - start
        problem = may_fail(case, e.diagnostics[0])
        assert not problem, f"{case}: {problem}"
        assert taken < SECONDS, f"{case}: the error came after {taken:.1f} s"
        return
    s = compiled.stats
    assert (s["vgpr_spills"], s["sgpr_spills"], s["scratch_bytes"]) == (0, 0, 0), f"{case}: {s}"
    assert s["deviations"] == [], f"{case}: {s['deviations']}"
    assert _both_versions(compiled.final), f"{case}: the version for unaligned views is missing"


def _both_versions(kernel: Kernel | None) -> bool:
    """Whether both sides of the branch that ends the kernel multiply: tiles, or fragments where the loop is scheduled."""
    if kernel is None:
        return False
    versions = next((op.regions for op in reversed(kernel.body.ops) if op.name == "if"), [])
    return len(versions) == 2 and all(any(op.name in ("mma", "mfma") for op in side.walk()) for side in versions)
