"""What a family of native ops hands to the translator, and how operands become slots of a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from tileir.records import dataclass

from .. import state
from ..decoder import Instruction, Operand

Checks = tuple[tuple[int, int], ...]
"""Registers as (first, count) in the check numbering of :mod:`..state`."""


class Unsupported(Exception):
    """The instruction is decoded but not executed; the text says what is missing. Becomes a fault when reached."""


@dataclass(frozen=True)
class Context:
    """What is known about the program that an instruction stands in.

    chip: ``gfx942`` or ``gfx950``. address: simulated address of the instruction. dynamic_mode: the float mode may
    differ from "all denormals, round to nearest even", so ops have to look at MODE. dx10_clamp: NaN clamps to zero.
    indexing: operands of the instruction whose register number is relative to M0 (bit 0 source 0, bit 3 destination),
    between s_set_gpr_idx_on and s_set_gpr_idx_off. vgprs: architectural vector registers of the kernel.
    """

    chip: str
    address: int = 0
    dynamic_mode: bool = False
    dx10_clamp: bool = True
    ieee: bool = True
    indexing: int = 0
    vgprs: int = 256


@dataclass(frozen=True)
class Op:
    """One instruction, ready to become a record.

    key: name of the native function; equal keys mean equal code. make: module text for a symbol name. slots: operand
    slots. checks: registers that must not be poisoned. target: address of a branch target.
    """

    key: str
    make: Callable[[str], str]
    slots: tuple[int, ...] = ()
    checks: Checks = ()
    target: int | None = None
    extra: Mapping[str, int] = field(default_factory=dict[str, int])


_SPECIAL: Mapping[str, int] = {
    "flat_scratch": state.FLAT_SCRATCH,
    "flat_scratch_lo": state.FLAT_SCRATCH,
    "flat_scratch_hi": state.FLAT_SCRATCH + 4,
    "xnack_mask": state.XNACK_MASK,
    "xnack_mask_lo": state.XNACK_MASK,
    "xnack_mask_hi": state.XNACK_MASK + 4,
    "vcc": state.VCC,
    "vcc_lo": state.VCC,
    "vcc_hi": state.VCC + 4,
    "m0": state.M0,
    "exec": state.EXEC,
    "exec_lo": state.EXEC,
    "exec_hi": state.EXEC + 4,
    "scc": state.SCC,
    "src_scc": state.SCC,
    "src_shared_base": state.SHARED_BASE,
    "src_shared_limit": state.SHARED_LIMIT,
    "src_private_base": state.PRIVATE_BASE,
    "src_private_limit": state.PRIVATE_LIMIT,
}


def scalar_offset(operand: Operand) -> int:
    """Byte offset in the wave of a scalar register operand."""
    if operand.kind == "s":
        if operand.index + operand.count > 128:
            raise Unsupported(f"scalar register s{operand.index} does not exist")
        return state.SGPR + 4 * operand.index
    name = operand.name
    if name.startswith("ttmp"):
        return state.TTMP + 4 * operand.index
    if name in _SPECIAL:
        return _SPECIAL[name]
    raise Unsupported(f"operand {name or operand.kind}")


def is_vector(operand: Operand) -> bool:
    return operand.kind in ("v", "a")


def is_constant(operand: Operand) -> bool:
    return operand.kind in ("imm", "lit")


def row_offset(operand: Operand) -> int:
    """Byte offset in the wave of the first row of a vector register operand."""
    base = state.VGPR if operand.kind == "v" else state.AGPR
    if operand.index + operand.count > 256:
        raise Unsupported(f"register {operand.kind}{operand.index}, {operand.count} dwords, passes the end of the file")
    return base + 256 * operand.index


def slot_of(operand: Operand) -> tuple[str, int]:
    """Kind of a source or destination (``v`` rows, ``s`` scalar, ``k`` constant) and its slot value."""
    if is_vector(operand):
        return "v", row_offset(operand)
    if is_constant(operand):
        return "k", operand.index
    return "s", scalar_offset(operand)


OFFSET_SLOT = 7
"""Slot of the address offset, so that equal accesses at different offsets share one native function."""


def with_offset(slots: tuple[int, ...], *constants: int) -> tuple[int, ...]:
    """Operand slots, and constants from the last slot downward (an address offset is the first of them)."""
    room = 1 + OFFSET_SLOT - len(slots) - len(constants)
    return (*slots, *[0] * room, *reversed(constants))


def require(operand: Operand, dwords: int, name: str) -> None:
    """Refuses a vector operand with fewer registers than the op touches: native code relies on it."""
    if operand.kind not in ("v", "a") or operand.count < dwords:
        raise Unsupported(f"{name} with operand {operand.kind}{operand.index} of {operand.count} registers")


def check_of(operand: Operand) -> tuple[int, int] | None:
    """The registers of an operand in the check numbering; ``None`` when they can never be poisoned."""
    if operand.kind == "v":
        return operand.index, operand.count
    if operand.kind == "a":
        return state.CHECK_AGPR + operand.index, operand.count
    if operand.kind in ("s", "special"):
        try:
            number = scalar_offset(operand) // 4
        except Unsupported:
            return None
        return (state.CHECK_SGPR + number, operand.count) if number < 124 else None
    return None


def checks_of(*operands: Operand) -> Checks:
    return tuple(found for operand in operands if (found := check_of(operand)))


Lower = Callable[[Instruction, Context], Op]
"""Translates one instruction; raises :class:`Unsupported`."""
