"""Program control and relative addressing: native library against the state machine of the specification."""

from __future__ import annotations

import random

import numpy as np
import pytest
from simulator_harness import FULL, Bench, imm, instruction, s, v, wait

from tileir.simulator import state
from tileir.simulator.decoder import Operand
from tileir.simulator.native.op import Context, Unsupported
from tileir.simulator.native.registry import lower
from tileir.simulator.spec import control
from tileir.simulator.spec.control import CONTROL, State

PC = 0x1000
EDGES = [0, 1, FULL, 1 << 63, 0xFFFFFFFF, 0xFFFFFFFF00000000, 0x5555555555555555]


def sopp(name: str, *operands: Operand) -> object:
    return instruction(name, *operands, encoding="sopp", size=4)


def check_exec_mask(name: str) -> None:
    for x in EDGES:
        for active in EDGES:
            b, want = Bench(), State(pc=PC, exec=active)
            b.set_sgpr64(20, x)
            b.exec = active
            copy = instruction("s_mov_b64", s(40, 2), Operand("special", 0, 2, "exec"), encoding="sop1", size=4)
            b.must_run(instruction(name, s(30, 2), s(20, 2), encoding="sop1", size=4), copy)
            CONTROL[name](want, 30, x)
            assert (b.sgpr64(30), b.sgpr64(40), b.scc) == (want.get64(30), want.exec, want.scc)


def check_branch(name: str) -> None:
    """A taken branch passes the instruction behind it."""
    for scc in (0, 1):
        for vcc in EDGES[:4]:
            for active in EDGES[:4]:
                b, want = Bench(), State(pc=PC, scc=scc, vcc=vcc, exec=active)
                b.scc, b.vcc, b.exec = scc, vcc, active
                mark = instruction("s_movk_i32", s(9), imm(1), encoding="sopk", size=4)
                b.set_sgpr(9, 0)
                b.must_run(sopp(name, Operand("label", 4, 1)), mark)  # type: ignore[arg-type]
                control.branch(name, want, 4)
                assert b.sgpr(9) == int(want.pc == PC + 4)


def check_relative_scalar_move(name: str) -> None:
    rng = random.Random(name)
    dwords = 2 if name.endswith("b64") else 1
    for m0 in (0, 1, 17, 60, 102 - 32 - dwords, 102 - 31 - dwords, 200, 0xFFFFFFFF):
        b, want = Bench(), State(pc=PC, m0=m0)
        for i in range(102):
            want.s[i] = rng.getrandbits(32)
            b.set_sgpr(i, want.s[i])
        b.set_sgpr(124, m0)
        moves = "movrels" in name
        operands = (s(8, dwords), s(32, dwords)) if moves else (s(32, dwords), s(8, dwords))
        act = instruction(name, *operands, encoding="sop1", size=4)
        if m0 + 32 + dwords > 102:
            assert b.run(act) == state.FAULT_INDEX
            continue
        b.must_run(act)
        if moves:
            control.movrels(want, 8, 32, dwords)
        else:
            control.movreld(want, 32, want.s[8 : 8 + dwords])
        assert [b.sgpr(i) for i in range(102)] == want.s


def test_relative_move_from_a_register_that_waits() -> None:
    load = instruction("s_load_dword", s(20), s(4, 2), imm(0), encoding="smem")
    move = instruction("s_movrels_b32", s(30), s(17), encoding="sop1", size=4)
    for waits, status in (((), state.FAULT_POISONED_REGISTER), ((wait(63, 0),), state.STATUS_ENDED)):
        b = Bench()
        allocation = b.memory.allocate(64)
        b.set_sgpr64(4, allocation.address)
        b.set_sgpr(124, 3)
        assert b.run(load, *waits, move) == status


def check_indexing(name: str) -> None:
    """M0 and MODE after each instruction, and the moves that they steer (bit 0: source, bit 3: destination)."""
    b, want = Bench(), State(pc=PC, m0=0xDEADBEEF, mode=0xF0)
    b.set_sgpr(124, want.m0)
    b.set_sgpr(9, 0x305)
    read_m0 = [
        instruction("s_mov_b32", s(20 + i), Operand("special", 0, 1, "m0"), encoding="sop1", size=4) for i in range(4)
    ]
    steps = (
        instruction("s_set_gpr_idx_on", s(9), imm(1), encoding="sopc", size=4),
        instruction("s_set_gpr_idx_idx", imm(0x42), encoding="sop1", size=4),
        sopp("s_set_gpr_idx_mode", imm(8)),
        sopp("s_set_gpr_idx_off"),
    )
    b.must_run(*[i for pair in zip(steps, read_m0, strict=True) for i in pair])  # type: ignore[arg-type]
    seen = []
    for step in (
        lambda: control.index_on(want, 0x305, 1),
        lambda: control.index_idx(want, 0x42),
        lambda: control.index_mode(want, 8),
        lambda: control.index_off(want),
    ):
        step()
        seen.append(want.m0)
    assert [b.sgpr(20 + i) for i in range(4)] == seen
    assert not want.mode & control.GPR_IDX_EN
    assert name in [step.name for step in steps]  # type: ignore[attr-defined]


@pytest.mark.parametrize("which", [1, 8, 9])
def test_indexed_moves(which: int) -> None:
    b = Bench()
    for i in range(30):
        b.row(v(i))[:] = i * 100 + np.arange(64)
    before = [b.row(v(i)).copy() for i in range(30)]
    on = instruction("s_set_gpr_idx_on", imm(7), imm(which), encoding="sopc", size=4)
    move = instruction("v_mov_b32", v(2), v(10), encoding="vop1", size=4)
    b.indexing = {1: which}
    b.must_run(on, move, sopp("s_set_gpr_idx_off"))  # type: ignore[arg-type]
    source, target = 10 + 7 * (which & 1), 2 + 7 * (which >> 3)
    for i in range(30):
        assert np.array_equal(b.row(v(i)), before[source if i == target else i])


def check_nothing_changes(name: str) -> None:
    """All registers, LDS and memory stay as they are."""
    b = Bench()
    rng = np.random.default_rng(6)
    b.raw[state.SGPR : state.SGPR + 400] = rng.integers(0, 256, 400)
    for i in range(8):
        b.row(v(i))[:] = rng.integers(0, 1 << 32, 64)
    before = b.raw[: state.STATUS].copy(), b.raw[state.VGPR :].copy()
    operands = {
        "s_nop": [imm(3)], "s_sleep": [imm(1)], "s_setprio": [imm(2)], "s_incperflevel": [imm(0)],
        "s_decperflevel": [imm(0)], "s_atc_probe": [imm(0), s(4, 2), imm(0)],
        "s_atc_probe_buffer": [imm(0), s(4, 4), imm(0)],
    }.get(name, [])  # fmt: skip
    before[0][state.EXEC : state.EXEC + 8] = 255
    before[0][state.MODE : state.MODE + 4] = np.array([b.mode], np.uint32).view(np.uint8)
    b.must_run(instruction(name, *operands, encoding="sopp", size=4))
    assert np.array_equal(b.raw[: state.STATUS], before[0]) and np.array_equal(b.raw[state.VGPR :], before[1])


def check_stop(name: str) -> None:
    """Whether the instruction behind is reached; what would wait for a debugger or a host for ever is refused."""
    if name == "s_barrier":
        assert Bench().run(sopp(name)) == state.STATUS_BARRIER  # type: ignore[arg-type]
        return
    if name == "s_trap":
        assert Bench().run(sopp(name, imm(2))) == state.FAULT_TRAP  # type: ignore[arg-type]
        return
    mark = instruction("s_movk_i32", s(9), imm(1), encoding="sopk", size=4)
    goes_on = {"s_setkill": [(1, False), (0, True)], "s_sethalt": [(0, True)], "s_sendmsg": [(1, True)]}
    for operand, passed in goes_on.get(name, [(None, False)] if name.startswith("s_endpgm") else []):
        b = Bench()
        b.must_run(sopp(name, *([imm(operand)] if operand is not None else [])), mark)  # type: ignore[arg-type]
        assert b.sgpr(9) == int(passed), name
    refused = {"s_sethalt": 1, "s_sendmsg": 2, "s_sendmsghalt": 1}
    if name in refused:
        with pytest.raises(Unsupported):
            lower(sopp(name, imm(refused[name])), Context("gfx950"))  # type: ignore[arg-type]


def check_wait(name: str) -> None:
    """A load's register may be read behind its wait, and not before; clocks are results of loads, and grow."""
    if name == "s_waitcnt":
        b = Bench()
        allocation = b.memory.allocate(64)
        b.set_sgpr64(4, allocation.address)
        load = instruction("s_load_dword", s(20), s(4, 2), imm(0), encoding="smem")
        read = instruction("s_mov_b32", s(21), s(20), encoding="sop1", size=4)
        assert b.run(load, wait(0, 1), read) == state.FAULT_POISONED_REGISTER
        fresh = Bench()
        fresh.memory = b.memory
        fresh.set_sgpr64(4, allocation.address)
        fresh.must_run(load, wait(63, 0), read)
        return
    b = Bench()
    clocks = [instruction(name, s(10 + 2 * i, 2), encoding="smem") for i in range(3)]
    b.must_run(*clocks, wait(63, 0))
    assert b.sgpr64(10) < b.sgpr64(12) < b.sgpr64(14)
    read = instruction("s_mov_b32", s(21), s(10), encoding="sop1", size=4)
    assert Bench().run(clocks[0], read) == state.FAULT_POISONED_REGISTER


def check_jump(name: str) -> None:
    """Where the program goes on, and what it leaves as the way back."""
    b = Bench()
    marks = [instruction("s_movk_i32", s(40 + i), imm(1), encoding="sopk", size=4) for i in range(3)]
    target = PC + 12
    b.set_sgpr64(20, target)
    jump = {
        "s_getpc_b64": instruction(name, s(30, 2), encoding="sop1", size=4),
        "s_setpc_b64": instruction(name, s(20, 2), encoding="sop1", size=4),
        "s_swappc_b64": instruction(name, s(30, 2), s(20, 2), encoding="sop1", size=4),
        "s_call_b64": instruction(name, s(30, 2), Operand("label", 8, 1), encoding="sopk", size=4),
    }[name]
    b.must_run(jump, *marks)
    assert [b.sgpr(40 + i) for i in range(3)] == ([1, 1, 1] if name == "s_getpc_b64" else [0, 0, 1])
    assert b.sgpr64(30) == (0 if name == "s_setpc_b64" else PC + 4)


def check_skip(name: str) -> None:
    """Bit S1 of S0; only its cleared state is executed."""
    b = Bench()
    b.set_sgpr(10, 0xFFFFFFF7)
    b.must_run(instruction(name, s(10), imm(35), encoding="sopc", size=4))
    assert b.run(instruction(name, s(10), imm(4), encoding="sopc", size=4)) == state.FAULT_MODE


def check_hardware(name: str) -> None:
    for low, width in ((0, 32), (4, 4), (6, 2), (23, 1), (0, 1)):
        _check_field(name, low, width)


def _check_field(name: str, low: int, width: int) -> None:
    b = Bench(dynamic=True)
    start = b.mode
    field = imm(1 | low << 6 | (width - 1) << 11)
    get = instruction("s_getreg_b32", s(10), field, encoding="sopk", size=4)
    whole = instruction("s_getreg_b32", s(11), imm(1 | 31 << 11), encoding="sopk", size=4)
    b.must_run(get)
    assert b.sgpr(10) == control.getreg(start, low, width)
    value = start if width == 32 else 0b0110_1011
    b.set_sgpr(12, value)
    steps = {
        "s_setreg_b32": instruction("s_setreg_b32", field, s(12), encoding="sopk", size=4),
        "s_setreg_imm32_b32": instruction("s_setreg_imm32_b32", field, imm(value), encoding="sopk"),
    }
    if name in steps:
        b.must_run(steps[name], whole)
        assert b.sgpr(11) == control.setreg(start, low, width, value)
