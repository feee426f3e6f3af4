"""The quick sweep over the code gives the instructions of the decoder."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from inspect_assembly import CHIPS

from tests.kernels.harness import library
from tileir.codeobject import CodeObject
from tileir.simulator.decoder import disassemble
from tileir.simulator.inspect.items import skim


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", ["vector_add", "softmax", "transpose", "gemm"])
def test_same_instructions_as_the_decoder(name: str, chip: str) -> None:
    kernel = CodeObject.from_bytes(library(name, chip).hsaco).kernels[name]
    items = skim(chip, kernel.code, kernel.entry_address)
    decoded = disassemble(chip, kernel.code, kernel.entry_address)
    assert [(i.address, i.name, i.encoding, i.raw) for i in items] == [
        (address, i.name, i.encoding, i.raw) for address, i in decoded
    ]
    assert all(item.instruction == instruction for item, (_, instruction) in zip(items, decoded, strict=True))


LITERALS = """
s_mov_b32 s0, 0x12345678
s_add_u32 s0, 0x12345678, s1
s_add_u32 s0, s1, 0x12345678
s_cmp_eq_u32 s1, 0x12345678
s_movk_i32 s0, 0xff
s_setreg_imm32_b32 hwreg(HW_REG_MODE), 0x12345678
v_mov_b32 v0, 0x12345678
v_add_u32 v0, 0x12345678, v1
v_add_u32 v0, v255, v1
v_add_u32 v255, v1, v255
v_cmp_eq_u32 vcc, 0x12345678, v1
v_fmaak_f32 v0, v1, v2, 0x12345678
v_fma_f32 v255, v255, v255, v255
s_nop 0
"""


@pytest.mark.parametrize("chip", CHIPS)
def test_literals_are_part_of_their_instruction(chip: str, llvm_tool: Callable[[str], str]) -> None:
    lines = LITERALS.strip().splitlines()
    command = [llvm_tool("llvm-mc"), "-arch=amdgcn", f"-mcpu={chip}", "-show-encoding"]
    out = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True).stdout
    encodings = [
        bytes(int(x, 16) for x in line.split("encoding: [")[1].split("]")[0].split(","))
        for line in out.splitlines()
        if "encoding: [" in line
    ]
    assert len(encodings) == len(lines) and {len(e) for e in encodings} == {4, 8}
    assert [i.raw for i in skim(chip, b"".join(encodings), 0)] == encodings


@pytest.mark.parametrize("tail", [b"\x01", b"\x00\x00\xb0", b"\xff\x00\x80\xbe"])
def test_a_cut_off_instruction_is_a_problem(tail: bytes) -> None:
    """Too few bytes for a dword, or for the literal that the last dword asks for."""
    items = skim("gfx950", b"\x00\x00\x80\xbf" + tail, 0)
    assert [(i.name, bool(i.problem)) for i in items] == [("s_nop", False), ("", True)]
    assert items[1].raw == tail and items[1].text.startswith(".byte 0x")
