"""Registers as a promise: kernels that want many compile without spills, or the message says where they go and what would help."""

from __future__ import annotations

import time

import pytest

from tests.kernels.harness import CHIPS
from tileir import kernels
from tileir.frontend import parse
from tileir.ir.core import Module
from tileir.ir.diagnostics import CompileError
from tileir.ir.printer import print_module
from tileir.lowering.amdgpu.compile import Compiled, Options, compile_kernel
from tileir.lowering.amdgpu.emit.kernel import register_attributes
from tileir.lowering.amdgpu.registers.advice import advice
from tileir.passes.manager import run_pipeline
from tileir.passes.pressure import budget
from tileir.simulator.inspect import inspect
from tileir.target import get

SPILLS = ("vgpr_spills", "sgpr_spills", "scratch_bytes")


def eight_accumulators() -> str:
    """Eight sums of products that live across an outer loop."""
    names = [f"%B{i}: global<bf16[N, K]>" for i in range(8)]

    def row(x: str) -> str:
        return ", ".join(f"%{x}{i}" for i in range(8))

    def carry(into: str, start: str) -> str:
        return ", ".join(f"%{into}{i} = {start}{i if start != '%z' else ''}" for i in range(8))

    lines = [
        "tileir 1",
        f"kernel @k(%A: global<bf16[M, K]>, {', '.join(names)}, %C: global<f32[M, N]>) grid(cdiv(M, 64), cdiv(N, 64)) {{",
        "  %i, %j = program_id()",
        "  %z = fill(0.0) : tile<f32[64, 64]>",
        f"  {row('r')} = for %o = 0 to 4 step 1 carry({carry('c', '%z')}) {{",
        f"    {row('s')} = for %k = 0 to K step 32 carry({carry('d', '%c')}) {{",
        "      %a = load(%A[%i * 64 +: 64, %k +: 32])",
    ]
    for i in range(8):
        lines.append(f"      %b{i} = load(%B{i}[%j * 64 +: 64, %k +: 32])")
        lines.append(f"      %e{i} = mma(%a, transpose(%b{i}), %d{i})")
    lines += [f"      yield {row('e')}", "    }"]
    lines += [f"    %h{i} = %s{i} * 0.5" for i in range(8)]
    lines += [f"    yield {row('h')}", "  }", "  %t0 = %r0 + %r1"]
    lines += [f"  %t{i} = %t{i - 1} + %r{i + 1}" for i in range(1, 7)]
    return "\n".join([*lines, "  store(%t6, %C[%i * 64 +: 64, %j * 64 +: 64])", "}", ""])


def twenty_views() -> str:
    """Twenty views that one loop reads, each through a buffer descriptor of its own."""
    views = ", ".join(f"%X{i}: global<f32[1024, 256]>" for i in range(20))
    lines = [
        "tileir 1",
        f"kernel @k({views}, %Y: global<f32[1024, 256]>) grid(32) {{",
        "  %i = program_id()",
        "  %z = fill(0.0) : tile<f32[32, 64]>",
        "  %r = for %k = 0 to 256 step 64 carry(%c = %z) {",
    ]
    lines += [f"    %x{i} = load(%X{i}[%i * 32 +: 32, %k +: 64])" for i in range(20)]
    lines += [f"    %s{i} = {f'%s{i - 1}' if i else '%c'} + %x{i}" for i in range(20)]
    return "\n".join([*lines, "    yield %s19", "  }", "  store(%r, %Y[%i * 32 +: 32, 0 +: 64])", "}", ""])


def compiled(text: str, chip: str, schedule: str = "") -> Compiled:
    return compile_kernel(parse(text + schedule, "k.tile"), "", chip)


def with_budget(chip: str, count: int, tile: int = 128) -> Module:
    """The library's GEMM on four waves under a stated budget."""
    schedule = f"\nschedule @budget of @gemm for {chip} {{\n  waves %acc 2 x 2\n  registers {count}\n}}\n"
    return parse(kernels.source("gemm") + schedule, "gemm.tile", {"BM": tile, "BN": tile})


@pytest.mark.parametrize(("chip", "tile", "count"), [("gfx942", 64, 64), ("gfx950", 64, 64)])
def test_a_stated_budget_is_kept(chip: str, tile: int, count: int) -> None:
    """By the metadata as by the instructions; without it the code takes more, in both files."""
    free = compile_kernel(parse(kernels.source("gemm"), "gemm.tile", {"BM": tile, "BN": tile}), "", chip)
    assert int(str(free.stats["vgprs"])) > count
    kept = compile_kernel(with_budget(chip, count, tile), "", chip, Options(schedule="budget"))
    assert [kept.stats[k] for k in SPILLS] == [0, 0, 0] and kept.stats["deviations"] == []
    assert kept.final is not None and kept.final.attrs["budget"] == count
    used = inspect(kept.hsaco).kernel.registers
    assert used.vgprs_used + used.agprs_used <= int(str(kept.stats["vgprs"])) <= count


def test_a_budget_comes_back_with_the_final_text() -> None:
    final = run_pipeline(with_budget("gfx950", 96, 64), "", "gfx950", schedule="budget").kernel
    again = parse(print_module(Module([final])), "final.tile").kernels[0]
    target = get("gfx950")
    assert budget(again, target) == 96
    assert register_attributes(again, target) == register_attributes(final, target)
    assert '["amdgpu-num-vgpr", "48"]' in register_attributes(final, target)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_budget_that_cannot_be_kept_is_an_error_at_the_peak(chip: str) -> None:
    """Accumulators of 64 registers in 64; and 24 for tiles of 32 x 32, found out by code generation."""
    for tile, count in ((128, 64), (32, 24)):
        module = with_budget(chip, count, tile)
        start = time.process_time()
        with pytest.raises(CompileError) as caught:
            compile_kernel(module, "", chip, Options(schedule="budget"))
        assert time.process_time() - start < 5
        (d,) = caught.value.diagnostics
        line = module.sources["gemm.tile"].splitlines()[d.loc.line - 1]
        assert d.code == "E0863" and ("mma(" in line or "load(" in line or "for " in line)
        said = next(n for n in d.notes if f"the budget of {count} registers per lane is stated here" in n.message)
        assert (
            said.loc is not None and f"registers {count}" in module.sources["gemm.tile"].splitlines()[said.loc.line - 1]
        )
        assert any("%c takes" in n.message for n in d.notes)


def test_a_smaller_budget_moves_accumulators_to_the_vector_file() -> None:
    """With 256 registers of its SIMD's 512 a wave gains nothing by two files."""
    files = {
        count: [op.attrs["file"] for op in run_pipeline(with_budget("gfx950", count), "", "gfx950", schedule="budget").kernel.walk() if op.name == "mfma"]
        for count in (512, 256)
    }  # fmt: skip
    assert set(files[512]) == {"accumulation"} and set(files[256]) == {"vector"}


@pytest.mark.parametrize("chip", CHIPS)
def test_eight_accumulators_across_an_outer_loop(chip: str) -> None:
    stats = compiled(eight_accumulators(), chip).stats
    assert [stats[k] for k in SPILLS] == [0, 0, 0]


@pytest.mark.parametrize("chip", CHIPS)
def test_what_exceeds_the_registers_by_little_is_an_error_at_once(chip: str) -> None:
    """Eight accumulators of 64 registers in a wave of 512: LLVM would work on the spills for minutes."""
    text = eight_accumulators().replace("cdiv(N, 64)) {", "cdiv(N, 64)) with(waves = 1) {")
    start = time.process_time()
    with pytest.raises(CompileError) as caught:
        compiled(text, chip)
    assert time.process_time() - start < 5
    (d,) = caught.value.diagnostics
    assert d.code == "E0863" and "about 512 per lane are accumulators that live at the same time; 1 waves" in d.message
    assert d.loc.line and len([n for n in d.notes if "takes 64" in n.message]) == 8


@pytest.mark.parametrize("chip", CHIPS)
def test_operands_of_three_stages_wait_in_registers(chip: str) -> None:
    schedule = f"\nschedule @s of @gemm for {chip} {{\n  waves %acc 2 x 2\n  stage %a, %b in shared depth 3 via_registers\n}}\n"
    stats = compiled(kernels.source("gemm"), chip, schedule).stats
    assert [stats[k] for k in SPILLS] == [0, 0, 0]


@pytest.mark.parametrize("chip", CHIPS)
def test_twenty_descriptors_do_not_spill(chip: str) -> None:
    """Neither to memory nor to lanes of a vector register."""
    assert [compiled(twenty_views(), chip).stats[k] for k in SPILLS] == [0, 0, 0]


def too_large(chip: str) -> tuple[Module, CompileError]:
    module = parse(kernels.source("gemm"), "gemm.tile", {"BM": 512, "BN": 512})
    with pytest.raises(CompileError) as caught:
        compile_kernel(module, "", chip)
    return module, caught.value


@pytest.mark.parametrize("chip", CHIPS)
def test_the_error_says_what_would_help(chip: str) -> None:
    """The first sizes that it names compile, with about as many registers as it says."""
    start = time.process_time()
    _, error = too_large(chip)
    assert time.process_time() - start < 5
    (d,) = error.diagnostics
    assert d.code == "E0863" and d.loc.line == 10
    notes = [n.message for n in d.notes if "would need about" in n.message]
    assert any(n.startswith("BM=") for n in notes) and any(n.startswith("BN=") for n in notes)
    words = notes[0].split()
    size, needed, room = int(words[0].removeprefix("BM=")), int(words[4]), int(words[6])
    assert needed <= room
    smaller = compile_kernel(parse(kernels.source("gemm"), "gemm.tile", {"BM": size, "BN": 512}), "", chip)
    assert [smaller.stats[k] for k in SPILLS] == [0, 0, 0]
    assert abs(int(str(smaller.stats["vgprs"])) - needed) <= 32


def test_advice_is_the_same_each_time() -> None:
    module = parse(kernels.source("gemm"), "gemm.tile", {"BM": 512, "BN": 512})
    found = [advice(module, module.kernels[0], get("gfx950"), "") for _ in range(2)]
    assert found[0] == found[1] and found[0]


def test_nothing_is_advised_where_nothing_helps() -> None:
    """A tile of fixed size: there is no parameter, and more waves than 8 are not tried."""
    text = (
        "tileir 1\nkernel @k(%X: global<f32[M, N]>) grid(1) with(waves = 8) {\n"
        "  %z = fill(0.0) : tile<f32[4096, 4096]>\n  store(%z, %X[0 +: 4096, 0 +: 4096])\n}\n"
    )
    module = parse(text, "k.tile")
    assert advice(module, module.kernels[0], get("gfx942"), "") == []
