"""Missing wait states between scalar, vector and memory instructions, by the rules of ``hazards.json``."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from tileir.records import dataclass
from tileir.simulator import state
from tileir.simulator.checks.collect import Collector
from tileir.simulator.checks.paths import Paths
from tileir.simulator.checks.plan import to_lds
from tileir.simulator.decoder import Instruction
from tileir.simulator.faults import Finding, Party
from tileir.simulator.native.flow import hwreg_field
from tileir.simulator.native.op import check_of

_VECTORS = (1 << state.CHECK_SGPR) - 1
_EXEC, _M0, _HWREG = (1 << state.CHECK_SGPR + n for n in (200, 201, 202))
"""Bits for what is no register in check numbering; those of hardware registers follow the last."""
_VCC = 3 << state.CHECK_SGPR + state.VCC // 4
_SCALARS = ~_VECTORS & (_EXEC - 1)
_VMEM = ("mubuf", "mtbuf", "global", "flat", "scratch")
_TRANS = ("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_", "v_prng")
_LANES = ("v_readlane_b32", "v_readfirstlane_b32", "v_writelane_b32")
_MATRIX = ("v_mfma_f", "v_mfma_i", "v_mfma_scale_", "v_smfmac")
_WIDE = 2
"""Dwords above which a store holds its data registers for longer."""


@dataclass(frozen=True)
class Rule:
    """Instructions of class ``second`` that ``reads`` what one of class ``first`` ``writes`` need ``states`` between."""

    first: str
    writes: str
    second: str
    reads: str
    states: int
    text: str
    source: str


@lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    data = json.loads((Path(__file__).parent / "hazards.json").read_text(encoding="utf-8"))
    return tuple(Rule(**rule) for rule in data["rules"])


def _writes_exec(inst: Instruction) -> bool:
    return inst.name.startswith("v_cmpx")


def _partial(inst: Instruction) -> bool:
    """Whether the result is a part of its register: SDWA with a destination select, or op_sel of the destination."""
    m = inst.modifiers
    if "sdwa" in inst.encoding:
        return m.get("dst_sel", 6) != 6
    sources = len(inst.operands) - 1
    return inst.encoding == "vop3" and bool(m.get("op_sel", 0) >> sources & 1)


def _reads_m0(inst: Instruction) -> bool:
    return to_lds(inst) or inst.name.startswith(("s_movrel", "s_sendmsg", "ds_gws")) or "addtid" in inst.name


def classes(inst: Instruction) -> frozenset[str]:
    """The classes of ``hazards.json`` that an instruction belongs to."""
    name, out = inst.name, set[str]()
    if name.startswith("v_") and not name.startswith("v_nop"):
        if not name.startswith(_MATRIX):
            out.add("valu")
            out.add("trans" if name.startswith(_TRANS) else "plain-valu")
        if _writes_exec(inst):
            out.add("cmpx")
        if "dpp" in inst.encoding:
            out.add("dpp")
        if name in _LANES:
            out.add("lanes")
            if name != "v_readfirstlane_b32":
                out.add("lane-select")
            if name != "v_writelane_b32":
                out.add("read-lane")
        if name.startswith("v_div_fmas"):
            out.add("div-fmas")
        if name.startswith(("v_permlane16_swap", "v_permlane32_swap")):
            out.add("permlane-swap")
        if _partial(inst):
            out.add("part")
    elif inst.encoding in _VMEM:
        out.add("vmem")
        if _held(inst):
            out.add("wide-store")
    elif name.startswith("s_setreg"):
        out.add("setreg")
    elif name.startswith("s_getreg"):
        out.add("getreg")
    if name.startswith("s_") and inst.encoding.startswith("sop"):
        out.add("salu")
    if _reads_m0(inst):
        out.add("reads-m0")
    return frozenset(out)


def _held(inst: Instruction) -> int:
    """Data registers of a store of more than 8 bytes; 0 for others. Buffer stores with an offset register hold nothing."""
    if not ("_store_" in inst.name or "cmpswap_x2" in inst.name) or inst.encoding == "scratch":
        return 0
    buffer = inst.encoding in ("mubuf", "mtbuf")
    if buffer and inst.operands[-1].kind in ("s", "special"):
        return 0
    data = next((o for i, o in enumerate(inst.operands) if o.kind in ("v", "a") and (buffer or i)), None)
    found = check_of(data) if data is not None and data.count > _WIDE else None
    return ((1 << found[1]) - 1) << found[0] if found else 0


def _hwreg(inst: Instruction) -> int:
    field = next((o for o in inst.operands if o.kind == "imm"), None)
    operand = inst.operands[0 if inst.name.startswith("s_setreg") else 1] if field is not None else None
    return _HWREG << hwreg_field(operand.index)[0] if operand is not None else 0


class _Facts:
    """What an instruction writes and reads in the terms of the rules."""

    def __init__(self, inst: Instruction, reads: int, writes: int) -> None:
        self.classes = classes(inst)
        m0 = any(o.kind == "special" and o.name == "m0" for o in inst.operands[:1])
        hwreg = _hwreg(inst) if self.classes & {"setreg", "getreg"} else 0
        self.writes = {
            "scalar": writes & _SCALARS,
            "vcc": writes & _VCC,
            "vector": writes & _VECTORS,
            "exec": _EXEC if _writes_exec(inst) else 0,
            "data": _held(inst),
            "m0": _M0 if m0 and "salu" in self.classes and not inst.name.startswith("s_cmp") else 0,
            "hwreg": hwreg,
        }
        self.reads = {
            "scalar": reads & _SCALARS,
            "vcc": _VCC,
            "vector": reads & _VECTORS,
            "exec": _EXEC,
            "written": writes & _VECTORS,
            "m0": _M0,
            "hwreg": hwreg,
            "select": self._select(inst),
        }

    @staticmethod
    def _select(inst: Instruction) -> int:
        if inst.name not in _LANES or len(inst.operands) < 3:
            return 0
        found = check_of(inst.operands[2])
        return 1 << found[0] if found and found[0] >= state.CHECK_SGPR else 0


def missing_states(paths: Paths, collect: Collector) -> None:
    """Looks for broken rules behind every executed instruction."""
    facts: dict[int, _Facts] = {}

    def of(i: int) -> _Facts:
        if i not in facts:
            inst = paths.executed[i]
            assert inst is not None
            facts[i] = _Facts(inst, paths.registers[i].reads, paths.registers[i].writes)
        return facts[i]

    for i, inst in enumerate(paths.executed):
        if inst is None:
            continue
        first = of(i)
        active = [(rule, first.writes[rule.writes]) for rule in rules() if rule.first in first.classes]
        active = [(rule, what) for rule, what in active if what]
        if not active:
            continue
        everything = 0
        for _, what in active:
            everything |= what

        def visit(j: int, states: int, live: int, i: int = i, active: list[tuple[Rule, int]] = active) -> None:
            second = of(j)
            for rule, what in active:
                if states < rule.states and rule.second in second.classes and what & live & second.reads[rule.reads]:
                    _report(paths, collect, i, j, states, rule)

        paths.follow(i, everything, max(rule.states for rule, _ in active), visit)


def _report(paths: Paths, collect: Collector, i: int, j: int, states: int, rule: Rule) -> None:
    def make() -> Finding:
        first, second = paths.program.location(i), paths.program.location(j)
        message = f"{rule.text}: {states} wait states stand between the two, {rule.states} are needed"
        notes = (f"rule: {rule.source}",)
        return Finding("hazard", message, Party(second, (0, 0, 0), 0), Party(first, (0, 0, 0), 0), notes)

    collect.add(("hazard", i, j), make)
