"""Accumulators in the registers to which a schedule pins them: in every loop of the code, or an error."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tileir
from tests.kernels.harness import CHIPS
from tileir import kernels
from tileir.codeobject import CodeObject
from tileir.frontend import parse
from tileir.ir.core import Module
from tileir.ir.diagnostics import CompileError
from tileir.ir.printer import print_module
from tileir.lowering.amdgpu.accumulation_file import renamed
from tileir.lowering.amdgpu.compile import Compiled, Options, compile_kernel
from tileir.lowering.amdgpu.contract import check
from tileir.lowering.amdgpu.contract_pins import written
from tileir.lowering.amdgpu.contract_waits import matrix_regions
from tileir.passes.manager import run_pipeline
from tileir.simulator.inspect import classify
from tileir.simulator.inspect.counts import class_of
from tileir.simulator.inspect.flow import control_flow


def pinned(chip: str, where: str) -> Module:
    """The library's GEMM of 64 x 64 on four waves, which sums in 16 registers."""
    schedule = f"\nschedule @pinned of @gemm for {chip} {{\n  waves %acc 2 x 2\n  pin %d in {where}\n}}\n"
    return parse(kernels.source("gemm") + schedule, "gemm.tile", {"BM": 64, "BN": 64})


def sums(compiled: Compiled) -> list[int]:
    return sums_of(CodeObject.from_bytes(compiled.hsaco))


def sums_of(code: CodeObject) -> list[int]:
    """Of each innermost loop of matrix instructions the registers that these write, as a mask; the accumulation file from bit 256 on."""
    flow = control_flow(code, next(iter(code.kernels.values())))
    found: list[int] = []
    for number in matrix_regions(flow):
        mask = 0
        for item in flow.items_of(flow.loops[number].nodes):
            if class_of(item) == classify.MFMA:
                mask |= written(item)
        found.append(mask)
    return found


@pytest.mark.parametrize(("chip", "where", "first"), [("gfx942", "v[0:15]", 0), ("gfx950", "a[0:15]", 256)])
def test_products_are_summed_where_the_text_says(chip: str, where: str, first: int) -> None:
    compiled = compile_kernel(pinned(chip, where), "", chip, Options(schedule="pinned"))
    assert compiled.stats["deviations"] == [] and compiled.stats["vgpr_spills"] == 0
    found = sums(compiled)
    assert len(found) >= 2 and set(found) == {0xFFFF << first}
    assert compiled.final is not None
    for op in compiled.final.walk():  # the same code is not what a text with another pin says
        pin = op.attrs.get("pin")
        if isinstance(pin, tuple):
            op.attrs["pin"] = tuple(int(n) + 4 for n in pin)
    assert {d.code for d in check(compiled.hsaco, compiled.final)} == {"E0866"}


TWO = """tileir 1
kernel @two(%A: global<bf16[M, K]>, %B: global<bf16[N, K]>, %C: global<f32[M, N]>, %D: global<f32[M, N]>)
    grid(cdiv(M, 64), cdiv(N, 64)) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[64, 64]>
  %c, %d = for %k = 0 to K step 64 carry(%x = %zero, %y = %zero) {
    %a = load(%A[%i * 64 +: 64, %k +: 64])
    %b = load(%B[%j * 64 +: 64, %k +: 64])
    %p = mma(%a, transpose(%b), %x)
    %q = mma(%b, transpose(%a), %y)
    yield %p, %q
  }
  store(%c, %C[%i * 64 +: 64, %j * 64 +: 64])
  store(transpose(%d), %D[%i * 64 +: 64, %j * 64 +: 64])
}
schedule @s of @two for gfx942 { waves %c 2 x 2 pin %p in a[192:207] pin %q in a[66:81] }
schedule @t of @two for gfx950 { waves %c 2 x 2 pin %p in a[240:255] pin %q in a[0:15] }
"""


@pytest.mark.parametrize(("chip", "places"), [("gfx942", (192, 66)), ("gfx950", (240, 0))])
def test_sums_in_two_places_are_right(chip: str, places: tuple[int, int]) -> None:
    kernel = tileir.compile(TWO, chip)
    assert kernel.stats["deviations"] == [] and kernel.stats["sgpr_spills"] == 0
    code = CodeObject.from_bytes(kernel.hsaco)
    assert kernel.stats["agprs"] == max(places) + 16
    loops = sums_of(code)
    assert loops and set(loops) == {sum(0xFFFF << 256 + first for first in places)}
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (rows, 136)).astype(ml_dtypes.bfloat16) for rows in (72, 104))
    c, d = np.zeros((72, 104), np.float32), np.zeros((72, 104), np.float32)
    kernel.launch(A=a, B=b, C=c, D=d, device=tileir.get_device(f"simulator:{chip}", check="all"))
    want = a.astype(np.float32) @ b.astype(np.float32).T
    assert (c == want).all() and (d == want).all()


@pytest.mark.parametrize(
    ("chip", "where", "rows", "waves"),
    [
        ("gfx942", "a[128:255]", 256, "2 x 2"),
        ("gfx950", "a[128:191]", 128, "2 x 2"),
        ("gfx950", "a[36:99]", 256, "2 x 4"),
    ],
)
def test_sums_may_lie_anywhere_in_the_accumulation_file(chip: str, where: str, rows: int, waves: str) -> None:
    schedule = f"\nschedule @pinned of @gemm for {chip} {{\n  waves %acc {waves}\n  pin %d in {where}\n}}\n"
    module = parse(kernels.source("gemm") + schedule, "gemm.tile", {"BM": rows, "BN": 128})
    compiled = compile_kernel(module, "", chip, Options(schedule="pinned", emit=("asm",)))
    first, last = (int(n) for n in where[2:-1].split(":"))
    assert compiled.stats["deviations"] == [] and compiled.stats["agprs"] == last + 1
    assert set(sums(compiled)) == {((1 << last + 1 - first) - 1) << 256 + first}
    assert f"a[{first}:" in compiled.texts["asm"]


@pytest.mark.parametrize(
    ("where", "code", "legal"), [("a[128:255]", "E0665", "registers 0 to 247"), ("a[120:247]", "E0865", "")]
)
def test_a_pin_that_leaves_no_registers_is_an_error(where: str, code: str, legal: str) -> None:
    schedule = f"\nschedule @pinned of @gemm for gfx950 {{\n  waves %acc 2 x 4\n  pin %d in {where}\n}}\n"
    module = parse(kernels.source("gemm") + schedule, "gemm.tile", {"BM": 256, "BN": 256})
    with pytest.raises(CompileError) as caught:
        compile_kernel(module, "", "gfx950", Options(schedule="pinned"))
    (d, *_) = caught.value.diagnostics
    assert d.code == code and d.loc.line and legal in d.legal


def test_registers_are_renamed_with_what_shares_their_tuples() -> None:
    moved = ((0, 8, 4), (4, 20, 2))
    text = """gemm:
\tv_mfma_f32_16x16x32_bf16 a[0:3], v[0:3], v[4:7], a[0:3] ; a1
\tv_accvgpr_read_b32 v1, a4
\tv_accvgpr_read_b32 v1, a6
\tds_write_b128 v1, a[10:13]
\tglobal_store_dwordx2 v[0:1], a[12:13], off
\ts_add_u32 s0, s0, a1@rel32@lo+4
\t.set a3, 5"""
    want = """gemm:
\tv_mfma_f32_16x16x32_bf16 a[8:11], v[0:3], v[4:7], a[8:11] ; a1
\tv_accvgpr_read_b32 v1, a20
\tv_accvgpr_read_b32 v1, a0
\tds_write_b128 v1, a[2:5]
\tglobal_store_dwordx2 v[0:1], a[4:5], off
\ts_add_u32 s0, s0, a1@rel32@lo+4
\t.set a3, 5"""
    assert renamed(text, moved) == want


@pytest.mark.parametrize("line", ["ds_write_b128 v1, a[2:5]", "ds_write_b64 v1, a[4:5]", "ds_write_b64 v1, a[6:7]"])
def test_what_cannot_be_renamed_stays(line: str) -> None:
    """A tuple across two pins, one that is partly pinned, one for which there is no room."""
    moved = ((0, 0, 4), (4, 6, 1)) if "[6:7]" not in line else ((0, 1, 4), (4, 6, 2))
    assert renamed(f"\t{line}", moved) == f"\t{line}"


@pytest.mark.parametrize("chip", CHIPS)
def test_pins_are_in_the_final_text(chip: str) -> None:
    final = run_pipeline(pinned(chip, "v[32:47]"), "", chip, schedule="pinned").kernel
    again = parse(print_module(Module([final])), "final.tile").kernels[0]
    for kernel in (final, again):
        parts = {op.attrs["pin"] for op in kernel.walk() if op.name == "mfma"}
        assert parts == {(n, n + 3) for n in (32, 36, 40, 44)}
        assert {op.attrs["pin"] for op in kernel.walk() if op.name == "mma"} <= {(32, 47)}
