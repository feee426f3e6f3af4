"""Scalar memory, branches, jumps, hardware registers, barriers of one wave."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_harness import Bench, a, imm, instruction, s, v, wait

from tileir.simulator import state
from tileir.simulator.decoder import Instruction, Operand
from tileir.simulator.native.op import Context, Unsupported
from tileir.simulator.native.registry import lower

DONE = wait(0, 0)


def sopp(name: str, *operands: Operand) -> Instruction:
    return instruction(name, *operands, encoding="sopp", size=4)


def label(instructions: int) -> Operand:
    """Distance over a number of 4-byte instructions."""
    return Operand("label", 4 * instructions, 1)


def set_to(register: int, value: int) -> Instruction:
    return instruction("s_mov_b32", s(register), imm(value), encoding="sop1", size=4)


def bench() -> tuple[Bench, np.ndarray]:
    b = Bench()
    memory = b.memory.allocate(1024)
    words = np.random.default_rng(1).integers(0, 1 << 32, 256).astype(np.uint32)
    memory.write(words)
    b.set_sgpr64(0, memory.address)
    return b, words


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16])
def test_scalar_load(n: int) -> None:
    name = "s_load_dword" + (f"x{n}" if n > 1 else "")
    b, words = bench()
    b.set_sgpr(4, 128)
    b.must_run(instruction(name, s(16, n), s(0, 2), imm(64), encoding="smem"), DONE)
    assert [b.sgpr(16 + i) for i in range(n)] == words[16 : 16 + n].tolist()
    b.must_run(instruction(name, s(16, n), s(0, 2), s(4), encoding="smem"), DONE)
    assert [b.sgpr(16 + i) for i in range(n)] == words[32 : 32 + n].tolist()
    b.must_run(instruction(name, s(16, n), s(0, 2), s(4), encoding="smem", offset=-64), DONE)
    assert [b.sgpr(16 + i) for i in range(n)] == words[16 : 16 + n].tolist()
    b.must_run(instruction(name, s(16, n), s(0, 2), imm(66), encoding="smem"), DONE)  # low address bits are ignored
    assert b.sgpr(16) == words[16]
    b.set_sgpr64(2, b.sgpr64(0) + 512)
    b.must_run(instruction(name, s(16, n), s(2, 2), imm(-64), encoding="smem"), DONE)
    assert b.sgpr(16) == words[112]
    assert (
        b.run(instruction(name, s(16, n), s(0, 2), imm(1024 - 4 * n + 4), encoding="smem")) == state.FAULT_MEMORY_BOUNDS
    )


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16])
def test_scalar_buffer_load(n: int) -> None:
    """Dwords beyond num_records read as zero."""
    name = "s_buffer_load_dword" + (f"x{n}" if n > 1 else "")
    b, words = bench()
    b.set_sgpr(2, 72)
    b.must_run(instruction(name, s(16, n), s(0, 4), imm(64), encoding="smem"), DONE)
    want = [int(words[16 + i]) if 64 + 4 * i + 4 <= 72 else 0 for i in range(n)]
    assert [b.sgpr(16 + i) for i in range(n)] == want


@pytest.mark.parametrize("condition", ["scc0", "scc1", "vccz", "vccnz", "execz", "execnz"])
@pytest.mark.parametrize("value", [0, 1])
def test_conditional_branch(condition: str, value: int) -> None:
    b = Bench()
    b.scc = value
    b.vcc = value << 40
    b.exec = value << 63
    b.must_run(set_to(10, 1), sopp(f"s_cbranch_{condition}", label(1)), set_to(10, 2))
    taken = value == (0 if condition in ("scc0", "vccz", "execz") else 1)
    assert b.sgpr(10) == (1 if taken else 2)


def test_loop_and_unconditional_branch() -> None:
    b = Bench()
    b.set_sgpr(10, 5)
    b.set_sgpr(11, 0)
    b.must_run(
        instruction("s_add_u32", s(11), s(11), imm(3), encoding="sop2", size=4),
        instruction("s_sub_u32", s(10), s(10), imm(1), encoding="sop2", size=4),
        instruction("s_cmp_lg_u32", s(10), imm(0), encoding="sopc", size=4),
        sopp("s_cbranch_scc1", label(-4)),
        sopp("s_branch", label(1)),
        set_to(11, 99 & 63),
    )
    assert b.sgpr(11) == 15
    assert b.records.counts()[:6].tolist() == [5, 5, 5, 5, 1, 0]


def test_call_and_return() -> None:
    """s_call_b64 stores the address behind itself; s_getpc_b64 that of the next instruction."""
    b = Bench()
    program = (
        instruction("s_call_b64", s(30, 2), label(2), encoding="sopk", size=4),
        set_to(10, 1),
        sopp("s_endpgm"),
        set_to(11, 2),
        instruction("s_getpc_b64", s(32, 2), encoding="sop1", size=4),
        instruction("s_setpc_b64", s(30, 2), encoding="sop1", size=4),
    )
    b.must_run(*program)
    assert b.sgpr64(30) == 0x1004 and b.sgpr64(32) == 0x1014
    assert (b.sgpr(10), b.sgpr(11)) == (1, 2)


def test_jump_outside_the_code() -> None:
    b = Bench()
    b.set_sgpr64(30, 0xDEAD0000)
    assert b.run(instruction("s_setpc_b64", s(30, 2), encoding="sop1", size=4)) == state.FAULT_JUMP
    assert int(b.raw[state.FAULT_ADDRESS : state.FAULT_ADDRESS + 8].view(np.uint64)[0]) == 0xDEAD0000


def _hwreg(number: int, low: int, width: int) -> Operand:
    return imm(number | low << 6 | (width - 1) << 11)


def test_mode_register() -> None:
    b = Bench()
    get = instruction("s_getreg_b32", s(10), _hwreg(1, 4, 4), encoding="sopk", size=4)
    b.must_run(get)
    assert b.sgpr(10) == 0xF
    b.must_run(instruction("s_setreg_imm32_b32", _hwreg(1, 4, 2), imm(1), encoding="sopk"), get)
    assert b.sgpr(10) == 0b1101
    b.set_sgpr(12, 2)
    b.must_run(instruction("s_setreg_b32", _hwreg(1, 6, 2), s(12), encoding="sopk", size=4), get)
    assert b.sgpr(10) == 0b1011
    for bit in (8, 9, 27, 28):  # DX10_CLAMP, IEEE, GPR_IDX_EN, VSKIP
        flipped = imm(~b.mode >> bit & 1)
        assert b.run(instruction("s_setreg_imm32_b32", _hwreg(1, bit, 1), flipped, encoding="sopk")) == state.FAULT_MODE


def test_clock_advances() -> None:
    b = Bench()
    now = instruction("s_memtime", s(10, 2), encoding="smem")
    later = instruction("s_memtime", s(12, 2), encoding="smem")
    b.must_run(now, later, DONE)
    assert b.sgpr64(12) > b.sgpr64(10)


def test_barrier_stops_the_wave_behind_itself() -> None:
    b = Bench()
    assert b.run(sopp("s_barrier"), set_to(10, 1)) == state.STATUS_BARRIER
    resume = int(b.raw[state.CURRENT : state.CURRENT + 8].view(np.uint64)[0])
    assert b.records.number(resume) == 1


def test_budget_is_exact() -> None:
    b = Bench()
    assert b.run(sopp("s_branch", label(-1)), budget=1000) == state.STATUS_SLICE
    assert b.records.counts()[0] == 1000


def test_accumulation_registers_move() -> None:
    b = Bench()
    b.row(v(1))[:] = np.arange(64)
    b.must_run(
        instruction("v_accvgpr_write_b32", a(7), v(1), encoding="mai"),
        instruction("v_accvgpr_mov_b32", a(9), a(7), encoding="vop1", size=4),
        instruction("v_accvgpr_read_b32", v(2), a(9), encoding="mai"),
    )
    assert np.array_equal(b.row(v(2)), np.arange(64))
    assert np.array_equal(b.row(a(7)), np.arange(64))


def test_constants_are_no_places() -> None:
    """Found by fuzzing: a literal where a register is stored to or jumped through must not become a host address."""
    for program in (
        instruction("s_swappc_b64", s(30, 2), Operand("lit", 0x7D981006, 2), encoding="sop1"),
        instruction("s_setpc_b64", imm(64, 2), encoding="sop1", size=4),
        instruction("v_swap_b32", v(1), imm(5), encoding="vop1", size=4),
    ):
        with pytest.raises(Unsupported):
            lower(program, Context("gfx950"))
