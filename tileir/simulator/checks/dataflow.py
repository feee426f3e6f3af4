"""Which reads of registers need a test while the program runs: those that are not proved to be of written registers.

A forward analysis over all paths. Of each register two facts are kept: it was written in all lanes that the wave
started with (*whole*), and it was written in all lanes that are active now (*live*). EXEC itself is followed as far as
saved copies of its first value go; a change that cannot only switch lanes off forgets what is only *live*.
"""

from __future__ import annotations

from tileir.records import dataclass
from tileir.simulator import state
from tileir.simulator.checks.registers import copies, items, splits
from tileir.simulator.decoder import Instruction, Operand
from tileir.simulator.native import check_state as c
from tileir.simulator.native.cross_lane import INDEX_DESTINATION, INDEX_SOURCE
from tileir.simulator.program import Program

_INDIRECT = ("s_setpc", "s_swappc", "s_call", "s_rfe", "s_cbranch_g_fork", "s_cbranch_join", "s_cbranch_i_fork")
_NARROWING = ("s_and_saveexec", "s_and_b", "s_andn2_b")
_ALL = -1
_NEVER = 1 << 15  # a register that is never written: the source of a copy of which nothing is known
_COPIED = (
    c.ITEM_COPY_FROM,
    c.ITEM_COPY_FROM_INDEXED,
    c.ITEM_COPY_AND,
    c.ITEM_MASK,
    c.ITEM_COPY_WHERE,
    c.ITEM_WRITTEN_WHERE,
)
"""Items that belong to the next one that is written."""


@dataclass(frozen=True)
class _State:
    """whole, live: sets of registers as bit masks. full: EXEC holds what the wave started with. saved: scalar registers
    that begin a pair with that value."""

    whole: int
    live: int
    full: bool
    saved: int

    def meet(self, other: _State) -> _State:
        return _State(
            self.whole & other.whole, self.live & other.live, self.full and other.full, self.saved & other.saved
        )


@dataclass(frozen=True)
class _Facts:
    """What an instruction does, prepared once."""

    items: tuple[int, ...]
    moves: tuple[tuple[tuple[int, ...], int], ...]
    writes_active: int
    writes_all: int
    exec_change: str
    """"" none, "narrow", "full" (all ones), "pair" (a saved copy, in ``pair``), "other"."""
    pair: int
    receives: int
    """Scalar register that receives EXEC, or -1."""
    kills: int


def _is_exec(operand: Operand) -> bool:
    return operand.kind == "special" and operand.name.startswith("exec")


def _scalar_pair(operand: Operand) -> int:
    return operand.index if operand.kind == "s" and operand.count == 2 else -1


def _exec_change(inst: Instruction, read: list[Operand], write: list[Operand]) -> tuple[str, int, int]:
    """(kind, pair, receives) of :class:`_Facts`."""
    name = inst.name
    if "saveexec" in name or "wrexec" in name:
        kind = "narrow" if name.startswith("s_and_saveexec") else "other"
        return kind, -1, _scalar_pair(inst.operands[0]) if "saveexec" in name else -1
    if name.startswith("v_cmpx"):
        return "narrow", -1, -1
    if any(_is_exec(o) for o in write):
        if name.startswith("s_mov_b64"):
            (source,) = read
            if source.kind == "imm" and source.index & ((1 << 64) - 1) == (1 << 64) - 1:
                return "full", -1, -1
            return "pair", _scalar_pair(source), -1
        if name.startswith(_NARROWING[1:]) and _is_exec(read[0]):
            return "narrow", -1, -1
        if name.startswith("s_and_b") and any(_is_exec(o) for o in read):
            return "narrow", -1, -1
        if name.startswith("s_or_b64") and any(_is_exec(o) for o in read):
            return "pair", max(_scalar_pair(o) for o in read), -1
        return "other", -1, -1
    if name == "s_mov_b64" and _is_exec(read[0]):
        return "", -1, _scalar_pair(write[0])
    return "", -1, -1


def _facts(inst: Instruction, indexing: int) -> _Facts:
    read, write = splits(inst)
    own = items(inst, indexing)
    active = everywhere = kills = 0
    for item in own:
        mode, register = item >> 16, item & 0xFFFF
        if mode == c.ITEM_COPY_TO:
            if register >= state.CHECK_SGPR:
                kills |= 3 << (register - state.CHECK_SGPR) >> 1
        elif mode == c.ITEM_WRITE_ACTIVE:
            active |= 1 << register
        elif mode == c.ITEM_WRITE_ALL:
            everywhere |= 1 << register
            if register >= state.CHECK_SGPR:
                # a pair that begins at the register or one before it is no copy of EXEC any more
                kills |= 3 << (register - state.CHECK_SGPR) >> 1
    change, pair, receives = _exec_change(inst, read, write)
    moves = copies(inst)
    if indexing & INDEX_SOURCE:
        moves = [((_NEVER,), target) for _, target in moves]
    return _Facts(tuple(own), tuple(moves), active, everywhere, change, pair, receives, kills)


def _step(now: _State, facts: _Facts) -> _State:
    whole, live = now.whole | facts.writes_all, now.live | facts.writes_all | facts.writes_active
    if now.full:
        whole |= facts.writes_active
    for sources, target in facts.moves:
        bit = 1 << target
        everywhere = now.full or target >= state.CHECK_SGPR
        if not all(now.live >> source & 1 for source in sources):
            whole, live = whole & ~bit, live & ~bit
        else:
            live |= bit
            if all(now.whole >> source & 1 for source in sources):
                whole |= bit if everywhere else 0
            else:
                whole &= ~bit
    saved = now.saved & ~facts.kills
    full = now.full
    if facts.receives >= 0 and now.full:
        saved |= 1 << facts.receives
    change = facts.exec_change
    if change == "narrow":
        full = False
    elif change:
        full = change == "full" or (change == "pair" and facts.pair >= 0 and bool(now.saved >> facts.pair & 1))
        live = whole
    return _State(whole, live, full, saved)


def initial(program: Program) -> frozenset[int]:
    """Registers that the AMDHSA ABI initialises: user and system SGPRs, the work-item ids, trap and scratch registers."""
    d = program.kernel.descriptor
    system = (d.enable_sgpr_workgroup_id_x, d.enable_sgpr_workgroup_id_y, d.enable_sgpr_workgroup_id_z)
    scalars = [*range(d.user_sgpr_count + sum(map(bool, system))), *range(102, 106), *range(108, 124)]
    return frozenset([0, *(state.CHECK_SGPR + n for n in scalars)])


def _proved(item: int, now: _State) -> bool:
    mode, register = item >> 16, item & 0xFFFF
    known = now.whole if mode == c.ITEM_READ_ANY else now.live
    return bool(known >> register & 1)


def unproved(program: Program) -> list[list[int]]:
    """For each record the items (see ``check_state``) to test and to note; empty where nothing has to be done. Everything
    is tested where jumps go to computed addresses or written registers are relative to M0, since nothing is proved then. A copy from a register
    that is relative to M0 may be of any: what can run before it is noted for all."""
    instructions = program.instructions
    facts = [
        _facts(inst, indexing) if inst else None for inst, indexing in zip(instructions, program.indexing, strict=True)
    ]
    if any(x & INDEX_DESTINATION for x in program.indexing) or any(
        inst and inst.name.startswith(_INDIRECT) for inst in instructions
    ):
        return [list(f.items) if f else [] for f in facts]
    numbers = {address: i for i, address in enumerate(program.addresses)}
    before = _solve(program, facts, numbers)
    reads: list[list[int]] = []
    tracked = 0
    for f, now in zip(facts, before, strict=True):
        own = [item for item in (f.items if f else ()) if item >> 16 in c.READS and now and not _proved(item, now)]
        for item in own:
            tracked |= 1 << (item & 0xFFFF)
        reads.append(own)
    moves = {move for f in facts if f for move in f.moves}
    while True:
        more = tracked
        for sources, target in moves:
            if more >> target & 1:
                for source in sources:
                    more |= 1 << source
        if more == tracked:
            break
        tracked = more
    picks = [
        i
        for i, f in enumerate(facts)
        if f and program.indexing[i] and any(tracked >> target & 1 for _, target in f.moves)
    ]
    noted = _before(program, picks, numbers)
    return [
        own + _noted(f, _ALL if i in noted else tracked) for i, (f, own) in enumerate(zip(facts, reads, strict=True))
    ]


def _before(program: Program, ends: list[int], numbers: dict[int, int]) -> set[int]:
    """The records from which one of `ends` can be reached, these included."""
    preceding: dict[int, list[int]] = {}
    for i in range(len(program.instructions)) if ends else ():
        for target in successors(program, i, numbers):
            preceding.setdefault(target, []).append(i)
    found, work = set(ends), list(ends)
    while work:
        for i in preceding.get(work.pop(), ()):
            if i not in found:
                found.add(i)
                work.append(i)
    return found


def successors(program: Program, i: int, numbers: dict[int, int]) -> list[int]:
    """Records that may follow record ``i``, indirect jumps aside."""
    inst = program.instructions[i]
    out: list[int] = []
    if inst is None:
        return out
    if not inst.name.startswith(("s_endpgm", "s_setpc", "s_swappc", "s_branch", "s_call")):
        out.append(i + 1)
    if inst.name.startswith(("s_branch", "s_cbranch")) and inst.operands and inst.operands[-1].kind == "label":
        target = numbers.get(program.addresses[i] + inst.size + inst.operands[-1].index)
        if target is not None:
            out.append(target)
    return [n for n in out if n < len(program.instructions)]


def _noted(facts: _Facts | None, tracked: int) -> list[int]:
    """The writes of tracked registers; a copy is noted when its destination is tracked."""
    if facts is None:
        return []
    out: list[int] = []
    copied: list[int] = []
    for item in facts.items:
        mode, register = item >> 16, item & 0xFFFF
        if mode in _COPIED:
            copied.append(item)
        elif mode not in c.READS:
            if tracked >> register & 1:
                out += [*copied, item]
            copied = []
    return out


def _solve(program: Program, facts: list[_Facts | None], numbers: dict[int, int]) -> list[_State | None]:
    """The state before each record, ``None`` where it is never reached."""
    n = len(facts)
    begin = 0
    for register in initial(program):
        begin |= 1 << register
    entry = numbers.get(program.kernel.preloaded_entry_address, 0)
    before: list[_State | None] = [None] * n
    if not n:
        return before
    before[entry] = _State(begin, begin, True, 0)
    work = [entry]
    follow = [successors(program, i, numbers) for i in range(n)]
    joins = [0] * n
    for targets in follow:
        for target in targets:
            joins[target] += 1
    joins[entry] += 1
    while work:
        i = work.pop()
        while True:
            now, f = before[i], facts[i]
            if now is None or f is None:
                break
            after = _step(now, f)
            changed: list[int] = []
            for target in follow[i]:
                old = before[target]
                new = after if old is None or joins[target] == 1 else old.meet(after)
                if new != old:
                    before[target] = new
                    changed.append(target)
            if not changed:
                break
            i, rest = changed[0], changed[1:]
            work += rest
    return before
