"""Case far-too-much: a kernel that needs many times the register file is rejected within seconds, with the values that take it."""

from __future__ import annotations

import time

import pytest

from tests.kernels.harness import CHIPS, library
from tileir.frontend import parse
from tileir.ir.diagnostics import CompileError
from tileir.lowering.amdgpu.compile import compile_kernel
from tileir.lowering.amdgpu.emit.kernel import emit_module
from tileir.passes.manager import run_pipeline
from tileir.passes.pressure import peak, registers_of


def many_tiles(count: int) -> str:
    """`count` tiles of 32 registers a lane (four waves) that are all alive at once."""
    lines = [f"  %x{i} = load(%X[{i * 64} +: 64, 0 +: 128])" for i in range(count)]
    lines.append(f"  %t0 = %x{count - 1} * 2.0")
    lines += [f"  %t{i + 1} = %t{i} * %x{i} + 1.0" for i in range(count)]
    lines.append(f"  store(%t{count}, %Y[0 +: 64, 0 +: 128])")
    body = "\n".join(lines)
    return f"tileir 1\nkernel @k(%X: global<f32[M, N]>, %Y: global<f32[M, N]>) grid(1) {{\n{body}\n}}\n"


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("count", [18, 40])
def test_far_too_much(chip: str, count: int) -> None:
    """Case far-too-much: more than both files hold, and many times that: LLVM would work on it for minutes."""
    module = parse(many_tiles(count), "k.tile")
    start = time.perf_counter()
    with pytest.raises(CompileError) as caught:
        compile_kernel(module, "", chip)
    assert time.perf_counter() - start < 5
    (d,) = caught.value.diagnostics
    assert d.code == "E0863" and d.loc.line == 2 * count + 4 and d.legal, (
        "the store, up to which all is computed piece by piece"
    )
    assert [n.loc.line for n in d.notes if n.loc][:2] == [3, 4], "the values alive at that place, with theirs"


def test_peak_by_hand() -> None:
    """Four tiles of 32 registers; what is computed from them is made piece by piece for the store."""
    kernel = run_pipeline(parse(many_tiles(4), "k.tile"), "", "gfx950").kernel
    worst = peak(kernel)
    assert worst.op is not None and worst.op.name == "store"
    assert (worst.vector, worst.accumulation) == (32 * 4, 0), "x0 to x3"
    assert [(v.name, n) for v, n in worst.values] == [(f"x{i}", 32) for i in range(4)]
    assert all(registers_of(v) == 32 for v, _ in worst.values)


def test_long_rows_of_work_are_cut() -> None:
    """A row of ops that are made late is as long as the lowering's recursion may be, however long the text's is."""
    body = "  %s0 = load(%X[0 +: 64, 0 +: 128])\n" + "".join(f"  %s{i + 1} = %s{i} + %s0\n" for i in range(2000))
    text = (
        "tileir 1\nkernel @k(%X: global<f32[M, N]>, %Y: global<f32[M, N]>) grid(1) {\n"
        f"{body}  store(%s2000, %Y[0 +: 64, 0 +: 128])\n}}\n"
    )
    result = run_pipeline(parse(text, "k.tile"), "", "gfx950")
    assert emit_module(result.kernel, result.context.target).count("llvm.fadd") >= 2000


@pytest.mark.parametrize("chip", CHIPS)
def test_tiles_of_24_registers_go_turned_to_lds(chip: str) -> None:
    """64 x 192 over eight waves: no power of two for each lane."""
    text = (
        "tileir 1\nkernel @k(%A: global<bf16[M, K]>, %B: global<bf16[K, N]>, %C: global<f32[M, N]>) grid(1) with(waves = 8) {\n"
        "  %a = load(%A[0 +: 128, 0 +: 64])\n  %b = load(%B[0 +: 64, 0 +: 192])\n"
        "  store(mma(%a, %b), %C[0 +: 128, 0 +: 192])\n}\n"
    )
    assert compile_kernel(parse(text, "k.tile"), "", chip).hsaco


@pytest.mark.parametrize("chip", CHIPS)
def test_library_is_far_from_hopeless(chip: str) -> None:
    for name in ("vector_add", "softmax", "transpose", "gemm"):
        final = library(name, chip).final
        assert final is not None and peak(final).registers <= 256
