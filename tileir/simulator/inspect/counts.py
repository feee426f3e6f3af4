"""What a stretch of code consists of. Every instruction is counted once per occurrence in the code, not per execution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cache

from tileir.records import dataclass
from tileir.simulator.decoder import DecodeError
from tileir.simulator.decoder.immediates import waitcnt_fields
from tileir.simulator.inspect import classify
from tileir.simulator.inspect.items import Item
from tileir.target import Target

N_CLOCKS = 1024
"""n is per this many MFMA clocks of one wave."""
_NARROW_FORMATS = (2, 3, 4)
"""cbsz and blgp of operands below 8 bits: fp6, bf6, fp4 (CDNA4 ISA, V_MFMA_F32_*_F8F6F4)."""


@dataclass(frozen=True)
class Opcode:
    """How often an opcode occurs, and the issue clocks of all of these together."""

    count: int
    clocks: int


@dataclass(frozen=True)
class Wait:
    """An s_waitcnt: the most operations that may be outstanding, None where the counter is left alone."""

    vm: int | None
    exp: int | None
    lgkm: int | None

    @property
    def text(self) -> str:
        """In assembly syntax."""
        named = (("vmcnt", self.vm), ("expcnt", self.exp), ("lgkmcnt", self.lgkm))
        return " ".join(f"{name}({count})" for name, count in named if count is not None) or "none"


@dataclass(frozen=True)
class Counts:
    """The numbers of some code.

    `classes` adds up to `instructions`. `widths` splits the classes that move data by bytes per lane. `valu` of
    `classes` includes `accumulator_moves` and `vector_moves`; transcendental and matrix instructions are apart.
    """

    instructions: int
    code_bytes: int
    classes: Mapping[str, int]
    widths: Mapping[str, Mapping[int, int]]
    mfma: Mapping[str, Opcode]
    waits: Mapping[str, int]
    """By text, such as `vmcnt(4) lgkmcnt(0)`."""
    vmcnt_drains: int
    lgkmcnt_drains: int
    nop_states: int
    """Wait states of all s_nop together; s_nop k is k + 1 of them."""
    nop_clocks: int
    """Their time: a wait state is a turn of the SIMD, 4 clocks like a pass of an MFMA. (Derived: LLVM asks for 19 or 20
    states behind an MFMA of 16 passes.)"""
    accumulator_reads: int
    accumulator_writes: int
    accumulator_copies: int
    vector_moves: int
    """v_mov_b32 and wider whatever the source, without the lane-crossing (DPP) and part-register (SDWA) forms."""
    vector_copies: int
    """Those among them that copy a vector register."""
    valu_clocks: int
    """Issue clocks of VALU (4 each) and transcendental (at least 8 each) instructions."""

    @property
    def mfma_count(self) -> int:
        """Matrix instructions."""
        return self.classes[classify.MFMA]

    @property
    def mfma_clocks(self) -> int:
        """Issue clocks of the matrix instructions on one SIMD."""
        return sum(opcode.clocks for opcode in self.mfma.values())

    @property
    def accumulator_moves(self) -> int:
        """v_accvgpr_read, _write and _mov."""
        return self.accumulator_reads + self.accumulator_writes + self.accumulator_copies

    @property
    def non_mfma(self) -> int:
        """Instructions that are no matrix instruction: waits, barriers and nops too."""
        return self.instructions - self.mfma_count

    @property
    def n(self) -> float | None:
        """Non-MFMA instructions per 1024 MFMA clocks of one wave; None without MFMA."""
        clocks = self.mfma_clocks
        return self.non_mfma * N_CLOCKS / clocks if clocks else None

    @property
    def valu_ratio(self) -> float | None:
        """Issue clocks of VALU and transcendental instructions over those of MFMA; None without MFMA."""
        clocks = self.mfma_clocks
        return self.valu_clocks / clocks if clocks else None


@dataclass
class _Tally:
    classes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(classify.CLASSES, 0))
    widths: dict[str, dict[int, int]] = field(default_factory=dict[str, dict[int, int]])
    mfma: dict[str, Opcode] = field(default_factory=dict[str, Opcode])
    waits: dict[str, int] = field(default_factory=dict[str, int])
    moves: dict[str, int] = field(default_factory=dict[str, int])


def wait_of(item: Item, target: Target) -> Wait:
    """The counters of an s_waitcnt."""
    vm, exp, lgkm = waitcnt_fields(item.immediate)
    limits = ((vm, target.vmcnt_max), (exp, target.expcnt_max), (lgkm, target.lgkmcnt_max))
    counts = [None if count == limit else count for count, limit in limits]
    return Wait(counts[0], counts[1], counts[2])


def nop_states(item: Item, target: Target) -> int:
    """Wait states of an s_nop: one more than its operand, of which the low bits count (CDNA3 ISA, S_NOP)."""
    return (item.immediate & target.nop_max) + 1


def mfma_clocks(item: Item, target: Target) -> int:
    """Issue clocks of a matrix instruction; those of f8f6f4 depend on the operand formats that it names."""
    mfma = target.mfma(item.name)
    if "f8f6f4" in item.name:
        modifiers = item.instruction.modifiers
        if all(modifiers.get(name, 0) in _NARROW_FORMATS for name in ("cbsz", "blgp")):
            return mfma.passes_narrow * mfma.pass_clocks
    return mfma.issue_clocks


def class_of(item: Item) -> str:
    """The class of an item, see `classify.CLASSES`."""
    return classify.classify(item.name, item.encoding, item.to_lds)


@cache
def valu_costs(target: Target) -> tuple[int, int]:
    """Issue clocks of a VALU and of a transcendental instruction (the lower figure where sources differ)."""
    plain, slow = target.fact("valu_clocks").value, target.fact("transcendental_clocks").value
    assert isinstance(plain, int) and isinstance(slow, tuple)
    return plain, min(slow)


def count(items: Iterable[Item], target: Target) -> Counts:
    """Counts instructions. Raises DecodeError for a matrix or move instruction with reserved field values."""
    tally = _Tally()
    instructions = size = states = vm_drains = lgkm_drains = vector_moves = copies = 0
    for item in items:
        instructions += 1
        size += item.size
        kind = class_of(item)
        tally.classes[kind] += 1
        if kind in classify.BY_WIDTH:
            by_width = tally.widths.setdefault(kind, {})
            bytes_per_lane = classify.width(item.name)
            by_width[bytes_per_lane] = by_width.get(bytes_per_lane, 0) + 1
        elif kind == classify.MFMA:
            old = tally.mfma.get(item.name, Opcode(0, 0))
            tally.mfma[item.name] = Opcode(old.count + 1, old.clocks + mfma_clocks(item, target))
        elif kind == classify.WAIT:
            wait = wait_of(item, target)
            tally.waits[wait.text] = tally.waits.get(wait.text, 0) + 1
            vm_drains += wait.vm == 0
            lgkm_drains += wait.lgkm == 0
        elif kind == classify.NOP:
            states += nop_states(item, target)
        elif classify.is_accumulator_move(item.name):
            tally.moves[item.name] = tally.moves.get(item.name, 0) + 1
        elif classify.is_vector_move(item.name) and item.encoding not in ("dpp", "sdwa"):
            vector_moves += 1
            copies += _copies_register(item)
    plain, slow = valu_costs(target)
    return Counts(
        instructions=instructions,
        code_bytes=size,
        classes=tally.classes,
        widths={k: dict(sorted(tally.widths[k].items())) for k in classify.CLASSES if k in tally.widths},
        mfma=dict(sorted(tally.mfma.items())),
        waits=dict(sorted(tally.waits.items())),
        vmcnt_drains=vm_drains,
        lgkmcnt_drains=lgkm_drains,
        nop_states=states,
        nop_clocks=states * target.mfma_pass_clocks,
        accumulator_reads=tally.moves.get("v_accvgpr_read_b32", 0),
        accumulator_writes=tally.moves.get("v_accvgpr_write_b32", 0),
        accumulator_copies=tally.moves.get("v_accvgpr_mov_b32", 0),
        vector_moves=vector_moves,
        vector_copies=copies,
        valu_clocks=plain * tally.classes[classify.VALU] + slow * tally.classes[classify.TRANSCENDENTAL],
    )


def _copies_register(item: Item) -> bool:
    try:
        return all(operand.kind == "v" for operand in item.instruction.operands[1:])
    except DecodeError:
        return False
