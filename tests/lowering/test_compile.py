"""What comes out of the compiler: code objects that LLVM reads, listings that reassemble, line tables, determinism."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernels.harness import CHIPS, library
from tileir import kernels
from tileir.codeobject import CodeObject
from tileir.frontend import parse
from tileir.ir.core import Kernel, Module
from tileir.ir.diagnostics import CompileError, error
from tileir.ir.printer import print_module
from tileir.lowering.amdgpu import compile as compile_module
from tileir.lowering.amdgpu.compile import Options, compile_kernel, resume
from tileir.passes import manager
from tileir.passes.manager import run_pipeline
from tileir.simulator.decoder import disassemble

LIBRARY = ("vector_add", "softmax", "transpose", "gemm")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", LIBRARY)
def test_objdump_decodes_every_instruction(
    name: str, chip: str, llvm_tool: Callable[[str], str], tmp_path: Path
) -> None:
    tool = llvm_tool("llvm-objdump")
    file = tmp_path / "k.hsaco"
    file.write_bytes(library(name, chip).hsaco)
    out = subprocess.run([tool, "-d", f"--mcpu={chip}", str(file)], capture_output=True, text=True, check=True)
    assert "s_endpgm" in out.stdout
    assert "<unknown>" not in out.stdout and "// warning" not in out.stderr


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", LIBRARY)
def test_our_listing_reassembles(name: str, chip: str, llvm_tool: Callable[[str], str]) -> None:
    """Our disassembly, assembled by LLVM, is the code again byte by byte."""
    tool = llvm_tool("llvm-mc")
    code = CodeObject.from_bytes(library(name, chip).hsaco).kernels[name].code
    listing = disassemble(chip, code)
    text = "\n".join(i.text for _, i in listing) + "\n"
    out = subprocess.run(
        [tool, "-arch=amdgcn", f"-mcpu={chip}", "-show-encoding"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    encoded = b"".join(
        bytes(int(x, 16) for x in line.split("encoding: [")[1].split("]")[0].split(","))
        for line in out.stdout.splitlines()
        if "encoding: [" in line
    )
    assert encoded == code


@pytest.mark.parametrize("chip", CHIPS)
def test_llvm_assembly_gives_the_same_code(chip: str) -> None:
    """--emit asm assembles to the kernel's very bytes."""
    module = parse(kernels.source("gemm"), "gemm.tile", {"BM": 64, "BN": 64})
    compiled = compile_kernel(module, "", chip, Options(emit=("mlir", "llvm", "asm")))
    code = CodeObject.from_bytes(compiled.hsaco).kernels["gemm"].code
    for stage in ("mlir", "llvm", "asm"):
        again = resume(stage, compiled.texts[stage], chip)
        assert CodeObject.from_bytes(again.hsaco).kernels["gemm"].code == code, stage


@pytest.mark.parametrize("version", [5, 6])
def test_code_object_version(version: int) -> None:
    module = parse(kernels.source("vector_add"), "vector_add.tile")
    compiled = compile_kernel(module, "", "gfx950", Options(code_object_version=version))
    assert CodeObject.from_bytes(compiled.hsaco).code_object_version == version


def test_metadata_names_arguments_and_holds_the_grid() -> None:
    compiled = library("gemm", "gfx950")
    metadata = CodeObject.from_bytes(compiled.hsaco).kernels["gemm"].metadata
    assert metadata is not None
    names = [a.name for a in metadata.args]
    assert names == ["A", "M", "K", "LDA", "B", "N", "LDB", "C", "LDC"]
    assert compiled.interface["grid"] == ["cdiv(M, 128)", "cdiv(N, 128)"]
    assert compiled.interface["block"] == [256, 1, 1]


def test_lines_point_into_the_tile_file() -> None:
    """Matrix instructions are at the line of the `mma`, stores at that of the `store`; only base names are recorded."""
    text = kernels.source("gemm")
    compiled = compile_kernel(parse(text, "some/where/gemm.tile"), "", "gfx950")
    code = CodeObject.from_bytes(compiled.hsaco)
    kernel = code.kernels["gemm"]
    lines = text.splitlines()
    seen = {"v_mfma": 0, "buffer_store": 0}
    for address, instruction in disassemble("gfx950", kernel.code, kernel.entry_address):
        place = code.line_table.lookup(address)
        for prefix, op in (("v_mfma", "mma("), ("buffer_store", "store(")):
            if instruction.name.startswith(prefix):
                assert place is not None and place.file == "gemm.tile"
                assert op in lines[place.line - 1]
                seen[prefix] += 1
    assert all(seen.values())


SCRIPT = """
import hashlib, sys
from tileir import kernels
from tileir.frontend import parse
from tileir.lowering.amdgpu.compile import compile_kernel
for name in ("softmax", "gemm"):
    module = parse(kernels.source(name), name + ".tile")
    print(hashlib.sha256(compile_kernel(module, "", sys.argv[1]).hsaco).hexdigest())
"""


@pytest.mark.parametrize("chip", CHIPS)
def test_same_input_same_bytes(chip: str) -> None:
    """In this process, in others, and under other hash seeds."""
    here = [
        hashlib.sha256(compile_kernel(parse(kernels.source(n), f"{n}.tile"), "", chip).hsaco).hexdigest()
        for n in ("softmax", "gemm")
    ]
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = [sys.executable, "-c", SCRIPT, chip]
        out = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
        assert out.stdout.split() == here


def test_import_of_tileir_is_light() -> None:
    """Neither MLIR nor LLVM nor NumPy is loaded before something is compiled."""
    check = "import sys, tileir; assert not {'mlir', 'llvmlite', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
    check = (
        "import sys; from tileir.frontend import parse; from tileir.lowering.amdgpu import compile; "
        "assert not {'mlir', 'llvmlite', 'lark'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)


ALL_MMA = [
    ("bf16", "16x16x16"), ("bf16", "16x16x32"), ("bf16", "32x32x8"), ("bf16", "32x32x16"), ("bf16", "16x16x8"),
    ("f16", "16x16x16"), ("f16", "16x16x32"), ("f32", "16x16x4"), ("f32", "32x32x2"), ("f32", "16x16x8"),
    ("f64", "16x16x4"), ("i8", "16x16x32"), ("i8", "16x16x64"), ("f8E4M3FN", "16x16x32"), ("f8E4M3FNUZ", "16x16x32"),
    ("f8E5M2", "32x32x16"), ("f8E4M3FN", "16x16x128"), ("f4E2M1FN", "16x16x128"), ("f6E2M3FN", "16x16x128"),
    ("i32", "16x16x16"), ("i1", "16x16x16"), ("bf16", "4x4x4"), ("bf16", "1x1x1"), ("bf16", "64x64x64"),
]  # fmt: skip


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("dtype", "shape"), ALL_MMA, ids=lambda x: x)
def test_wrong_chip_op(chip: str, dtype: str, shape: str) -> None:
    """Case wrong-chip-op: whatever instruction a text asks for, it compiles or is rejected at a place in the text."""
    text = (
        f"tileir 1\nkernel @k(%A: global<{dtype}[M, K]>, %B: global<{dtype}[N, K]>) grid(1) {{\n"
        "  %a = load(%A[0 +: 64, 0 +: 128])\n  %b = load(%B[0 +: 64, 0 +: 128])\n"
        f"  %d = mma(%a, transpose(%b))\n  %e = convert<f32>(%d)\n  assume(reshape<[]>(reduce_add(reduce_add(%e, axis = 0), axis = 1)) == 0.0)\n}}\n"
        f"schedule @s of @k for {chip} {{\n  mma %d {shape}\n}}\n"
    )
    try:
        compiled = compile_kernel(parse(text, "k.tile"), "", chip)
    except CompileError as e:
        for d in e.diagnostics:
            assert d.loc.line > 0 and d.legal, d
            assert not d.code.startswith("E09") or d.code == "E0903", d  # rejected before code generation
    else:
        CodeObject.from_bytes(compiled.hsaco)


@pytest.mark.parametrize("name", ["vector_add", "softmax"])
def test_lines_point_into_the_first_file_after_resuming(name: str) -> None:
    """The text of a pass with the places of the author gives the same lines, of the author's file, and the same code."""
    module = parse(kernels.source(name), "author.tile")
    whole = CodeObject.from_bytes(compile_kernel(module, "", "gfx942").hsaco)
    staged = run_pipeline(module, "", "gfx942", stop_after="place-memory").kernel
    text = print_module(Module([staged]), locations=True)
    options = Options(start_from="assign-layouts")
    resumed = CodeObject.from_bytes(compile_kernel(parse(text, "staged.tile"), "", "gfx942", options).hsaco)
    entry = next(iter(whole.kernels))
    first, second = whole.kernels[entry], resumed.kernels[entry]
    assert first.code == second.code
    places = [whole.line_table.lookup(first.entry_address + i) for i in range(0, len(first.code), 4)]
    assert {p.file for p in places if p is not None} == {"author.tile"}
    assert places == [resumed.line_table.lookup(second.entry_address + i) for i in range(0, len(second.code), 4)]


def test_checks_beside_code_generation_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kernel: Kernel) -> None:
        raise error("E0303", "refused", kernel.loc)

    source = parse(kernels.source("vector_add"), "vector_add.tile")
    monkeypatch.setattr(manager, "verify", refuse)
    with pytest.raises(CompileError) as caught:
        compile_kernel(source, "", "gfx950")
    assert caught.value.diagnostics[0].message == "refused" and caught.value.sources == source.sources

    def fail(*_: object, **__: object) -> str:
        raise AssertionError("of the text that the checks refuse")

    monkeypatch.setattr(compile_module, "emit_module", fail)
    with pytest.raises(CompileError, match="refused"):
        compile_kernel(source, "", "gfx950")
    monkeypatch.undo()
    monkeypatch.setattr(compile_module, "emit_module", fail)
    with pytest.raises(AssertionError, match="of the text"):
        compile_kernel(source, "", "gfx950")
