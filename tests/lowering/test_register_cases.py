"""Registers of kernels that others' compilers spill (cases head-dim, launch-bound, row-sum-chain), and of the whole library as it ships."""

from __future__ import annotations

import re

import pytest

from tests.kernels.harness import CHIPS
from tileir import kernels
from tileir.codeobject import CodeObject
from tileir.frontend import parse
from tileir.ir.diagnostics import CompileError
from tileir.lowering.amdgpu.compile import Compiled, Options, compile_kernel
from tileir.lowering.amdgpu.contract_waits import matrix_regions
from tileir.passes.manager import run_pipeline
from tileir.simulator.inspect import classify, inspect
from tileir.simulator.inspect.flow import control_flow


def assert_kept(compiled: Compiled) -> None:
    """No spill, no scratch, no scalar register in lanes of a vector register, no accumulator moved in an innermost loop of matrix instructions; the
    registers that instructions name are those of the metadata."""
    assert [compiled.stats[k] for k in ("vgpr_spills", "sgpr_spills", "scratch_bytes")] == [0, 0, 0]
    report = inspect(compiled.hsaco).kernel
    code = CodeObject.from_bytes(compiled.hsaco)
    flow = control_flow(code, next(iter(code.kernels.values())))
    for number in matrix_regions(flow):  # innermost loops; others may hold an epilogue, which reads accumulators
        assert not any(classify.is_accumulator_move(i.name) for i in flow.items_of(flow.loops[number].nodes))
    agprs = int(str(compiled.stats["agprs"]))
    assert report.registers.vgprs_used <= int(str(compiled.stats["vgprs"])) - agprs
    assert report.registers.agprs_used <= agprs


def library() -> list[tuple[str, str, str]]:
    """File, kernel and chip of every kernel of the library."""
    found: list[tuple[str, str, str]] = []
    for file in kernels.names():
        for kernel in re.findall(r"^kernel @(\w+)", kernels.source(file), re.MULTILINE):
            found += [(file, kernel, chip) for chip in CHIPS if not (file == "gemm_mx" and chip == "gfx942")]
    return found


@pytest.mark.nightly
@pytest.mark.parametrize(("file", "kernel", "chip"), library())
def test_the_library_keeps_its_registers(file: str, kernel: str, chip: str) -> None:
    formats = {"T": "f8E4M3FNUZ"} if file == "gemm_fp8" and chip == "gfx942" else {}
    needed = {"D": 1024} if file == "layer_norm" else {}
    assert_kept(compile_kernel(parse(kernels.source(file), f"{file}.tile", {**formats, **needed}), kernel, chip))


def kept_or_refused(file: str, kernel: str, chip: str, params: dict[str, int | bool]) -> bool:
    """Whether a kernel of the library compiles, and then keeps its registers; else an error at a place names what takes the registers or the LDS."""
    try:
        compiled = compile_kernel(parse(kernels.source(file), f"{file}.tile", params), kernel, chip)
    except CompileError as e:
        (d, *_) = e.diagnostics
        assert d.code in ("E0861", "E0863") and d.loc.line and any("takes" in n.message for n in d.notes)
        return False
    assert_kept(compiled)
    return True


@pytest.mark.nightly
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("depth", [64, 128, 192, 256, 512])
@pytest.mark.parametrize("chip", CHIPS)
def test_head_dim(chip: str, depth: int, causal: bool) -> None:
    """Case head-dim: up to 256 columns it compiles, and nothing waits elsewhere than in its register."""
    kept = kept_or_refused("attention", "attention", chip, {"D": depth, "CAUSAL": causal})
    assert kept or depth > 256


@pytest.mark.nightly
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("file", "kernel"),
    [
        ("attention_lazy", "attention"),
        ("attention_prescaled", "attention"),
        ("attention_backward", "dkv"),
        ("attention_backward", "dq"),
        ("attention_backward", "fused"),
    ],
)
def test_forms_of_attention(file: str, kernel: str, chip: str, depth: int, causal: bool) -> None:
    assert kept_or_refused(file, kernel, chip, {"D": depth, "CAUSAL": causal})


@pytest.mark.parametrize("chip", CHIPS)
def test_launch_bound(chip: str) -> None:
    """Case launch-bound: 1024 threads leave 128 registers to a lane. More is an error, not an aborted launch."""
    schedule = f"\nschedule @s of @gemm for {chip} {{\n  waves %acc 4 x 4\n  registers COUNT\n}}\n"
    with pytest.raises(CompileError) as caught:
        module = parse(kernels.source("gemm") + schedule.replace("COUNT", "136"), "gemm.tile")
        run_pipeline(module, "gemm", chip, schedule="s", stop_after="specialise")
    (d,) = caught.value.diagnostics
    assert d.code == "E0862" and "at most 128 registers" in d.legal
    module = parse(kernels.source("gemm") + schedule.replace("COUNT", "128"), "gemm.tile")
    compiled = compile_kernel(module, "gemm", chip, Options(schedule="s"))
    assert compiled.block == (1024, 1, 1) and int(str(compiled.stats["vgprs"])) <= 128
    assert_kept(compiled)


@pytest.mark.parametrize("rows", [4, 8])
def test_row_sum_chain(rows: int) -> None:
    """Case row-sum-chain: sums over 64 and 128 values of a lane hold little beside the values."""
    text = (
        "tileir 1\nkernel @k(%X: global<f32[M, 1024]>, %Y: global<f32[M, 1024]>) grid(1) with(waves = 1) {\n"
        f"  %x = load(%X[0 +: {rows}, 0 +: 1024])\n  %s = reduce_add(%x * %x, axis = 1)\n"
        f"  store(%x * broadcast<[{rows}, 1024]>(%s), %Y[0 +: {rows}, 0 +: 1024])\n}}\n"
    )
    compiled = compile_kernel(parse(text, "k.tile"), "", "gfx950")
    values = rows * 1024 // 64
    assert values <= int(str(compiled.stats["vgprs"])) <= values + 48
    assert_kept(compiled)


def products(tile: int, count: int) -> str:
    """A loop over products around a loop over k, with so many accumulators that live across both."""
    n = range(count)
    head = f"""tileir 1
kernel @many(%A: global<bf16[L, {tile}, K]>, %B: global<bf16[L, {tile * count}, K]>, %C: global<f32[{tile}, {tile * count}]>, %n: i32) grid(1) {{
  %z = fill(0.0) : tile<f32[{tile}, {tile}]>
"""
    lines = [
        f"{', '.join(f'%r{i}' for i in n)} = for %l = 0 to %n step 1 carry({', '.join(f'%a{i} = %z' for i in n)}) {{",
        f"{', '.join(f'%s{i}' for i in n)} = for %k = 0 to K step 32 carry({', '.join(f'%c{i} = %a{i}' for i in n)}) {{",
        f"%x = load(%A[%l, 0 +: {tile}, %k +: 32])",
        *(f"%b{i} = load(%B[%l, {i * tile} +: {tile}, %k +: 32])" for i in n),
        *(f"%d{i} = mma(%x, transpose(%b{i}), %c{i})" for i in n),
        f"yield {', '.join(f'%d{i}' for i in n)}\n}}",
        f"yield {', '.join(f'%s{i}' for i in n)}\n}}",
        *(f"store(%r{i}, %C[0 +: {tile}, {i * tile} +: {tile}])" for i in n),
    ]
    return head + "\n".join(lines) + "\n}\n"


def test_accumulators_that_do_not_fit_together_are_an_error_at_once() -> None:
    """Eight of 64 registers each, all alive across two loops: LLVM would work on them for minutes. Half as many rows and columns fit."""
    with pytest.raises(CompileError) as caught:
        compile_kernel(parse(products(128, 8), "many.tile"), "many", "gfx950")
    d = caught.value.diagnostics[0]
    assert d.code == "E0863" and "about 512 per lane are accumulators that live at the same time" in d.message
    assert d.loc.line == 15 and len([n for n in d.notes if "takes 64" in n.message]) == 8
    assert_kept(compile_kernel(parse(products(64, 8), "many.tile"), "many", "gfx942"))
