"""What steers a wave, and scalar moves relative to M0, on a small state of Python integers. [CDNA3 ISA, "Program Control"]

State: ``pc`` (address of the instruction), ``scc``, ``vcc``, ``exec``, ``m0``, ``mode``, ``s`` (list of scalar registers).
A function takes the state and the operands as the encoding holds them and changes the state; ``pc`` then is the address of
the next instruction. Instructions of :data:`NOTHING` change nothing that a program can see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from tileir.records import dataclass


@dataclass
class State:
    """Scalar state of a wave."""

    pc: int = 0
    scc: int = 0
    vcc: int = 0
    exec: int = 0
    m0: int = 0
    mode: int = 0
    s: list[int] = field(default_factory=lambda: [0] * 102)

    def get64(self, n: int) -> int:
        return self.s[n] | self.s[n + 1] << 32

    def put64(self, n: int, value: int) -> None:
        self.s[n], self.s[n + 1] = value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF


Step = Callable[..., None]

CONTROL: dict[str, Step] = {}
ONES = (1 << 64) - 1


def _saveexec(operation: Callable[[int, int], int], write_first: bool) -> Step:
    """(state, destination, source value)."""

    def step(state: State, destination: int, source: int) -> None:
        old = state.exec
        state.exec = operation(source, old) & ONES
        state.put64(destination, state.exec if write_first else old)
        state.scc = int(state.exec != 0)
        state.pc += 4

    return step


for _name, _operation in {
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "andn2": lambda x, y: x & ~y,
    "orn2": lambda x, y: x | ~y,
    "nand": lambda x, y: ~(x & y),
    "nor": lambda x, y: ~(x | y),
    "xnor": lambda x, y: ~(x ^ y),
    "andn1": lambda x, y: ~x & y,
    "orn1": lambda x, y: ~x | y,
}.items():
    CONTROL[f"s_{_name}_saveexec_b64"] = _saveexec(_operation, False)
    if _name in ("andn1", "andn2"):
        CONTROL[f"s_{_name}_wrexec_b64"] = _saveexec(_operation, True)

CONDITIONS: dict[str, Callable[[State], bool]] = {
    "s_branch": lambda state: True,
    "s_cbranch_scc0": lambda state: not state.scc,
    "s_cbranch_scc1": lambda state: bool(state.scc),
    "s_cbranch_vccz": lambda state: state.vcc == 0,
    "s_cbranch_vccnz": lambda state: state.vcc != 0,
    "s_cbranch_execz": lambda state: state.exec == 0,
    "s_cbranch_execnz": lambda state: state.exec != 0,
    # bits that only a debugger sets
    "s_cbranch_cdbgsys": lambda state: False,
    "s_cbranch_cdbguser": lambda state: False,
    "s_cbranch_cdbgsys_or_user": lambda state: False,
    "s_cbranch_cdbgsys_and_user": lambda state: False,
}
"""When a branch is taken."""


def branch(name: str, state: State, offset: int) -> None:
    """offset: bytes from the end of the instruction."""
    state.pc += 4 + (offset if CONDITIONS[name](state) else 0)


def movrels(state: State, destination: int, source: int, dwords: int) -> None:
    for k in range(dwords):
        state.s[destination + k] = state.s[source + state.m0 + k]
    state.pc += 4


def movreld(state: State, destination: int, values: list[int]) -> None:
    for k, value in enumerate(values):
        state.s[destination + state.m0 + k] = value
    state.pc += 4


RELATIVE = tuple(f"s_movrel{way}_b{bits}" for way in "sd" for bits in (32, 64))

GPR_IDX_EN = 1 << 27


def index_on(state: State, index: int, which: int) -> None:
    state.m0 = state.m0 & ~0xF0FF | index & 0xFF | which << 12
    state.mode |= GPR_IDX_EN
    state.pc += 4


def index_off(state: State) -> None:
    state.mode &= ~GPR_IDX_EN
    state.pc += 4


def index_idx(state: State, index: int) -> None:
    state.m0 = state.m0 & ~0xFF | index & 0xFF
    state.pc += 4


def index_mode(state: State, which: int) -> None:
    state.m0 = state.m0 & ~0xF000 | which << 12
    state.pc += 4


INDEXING = ("s_set_gpr_idx_on", "s_set_gpr_idx_off", "s_set_gpr_idx_idx", "s_set_gpr_idx_mode")


def getreg(value: int, low: int, width: int) -> int:
    """Bits of a hardware register."""
    return value >> low & ((1 << width) - 1)


def setreg(old: int, low: int, width: int, value: int) -> int:
    """A hardware register after a write of some of its bits."""
    mask = (1 << width) - 1
    return old & ~(mask << low) | (value & mask) << low


HARDWARE = ("s_getreg_b32", "s_setreg_b32", "s_setreg_imm32_b32")
JUMPS = ("s_getpc_b64", "s_setpc_b64", "s_swappc_b64", "s_call_b64")

NOTHING = (
    "s_nop", "s_sleep", "s_setprio", "s_wakeup", "s_inst_prefetch", "s_icache_inv", "s_incperflevel", "s_decperflevel",
    "s_ttracedata", "s_dcache_inv", "s_dcache_wb", "s_dcache_inv_vol", "s_dcache_wb_vol", "s_atc_probe",
    "s_atc_probe_buffer", "v_nop", "v_clrexcp", "ds_nop", "buffer_inv", "buffer_wbl2",
)  # fmt: skip
"""Hints, cache control, priorities, and messages that nobody receives."""
STOPS = ("s_endpgm", "s_endpgm_saved", "s_barrier", "s_trap", "s_setkill", "s_sethalt", "s_sendmsg", "s_sendmsghalt")
"""End of a wave, or a stop that the dispatcher handles; ``s_setkill 0``, ``s_sethalt 0`` and interrupts do nothing."""
WAITS = ("s_waitcnt", "s_memtime", "s_memrealtime")
SKIPS = ("s_setvskip",)
