"""Order of the loops that the text writes instruction by instruction: the code must have the same order.

A fence in the text, and a barrier, is a place across which nothing moves. What stands between two of them – matrix instructions,
reads and writes of LDS, direct copies, loads – is a *slot*; within it, the machine scheduler may exchange instructions. So the code
has the order of the text if it can be cut into the same slots with the same instructions in each, which is checked here one by one.
A guard ends a slot as well. Its region only computes, so it does not matter where in the code it stands; loops with a guard begin
behind it in the code, since LLVM puts the test at their end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field

from tileir.codeobject import CodeObject
from tileir.ir.core import Kernel, Op, Value
from tileir.ir.location import Loc
from tileir.ir.types import FragmentType, TileType
from tileir.lowering.amdgpu.contract_waits import Deviation, matrix_regions
from tileir.records import dataclass
from tileir.simulator.inspect import classify
from tileir.simulator.inspect.counts import class_of
from tileir.simulator.inspect.flow import Flow
from tileir.simulator.inspect.items import Item

_TEXT = {
    "mfma": "matrix instruction",
    "shared_load_fragment": "read of LDS",
    "shared_load_transposed_fragment": "read of LDS",
    "shared_store_fragment": "write to LDS",
    "copy_async_part": "direct copy",
    "load_fragment": "load",
    "load": "load",
    "shared_store": "write to LDS",
    "barrier": "barrier",
}
_CODE = {
    classify.MFMA: "matrix instruction",
    classify.LDS_READ: "read of LDS",
    classify.LDS_TRANSPOSE_READ: "read of LDS",
    classify.LDS_WRITE: "write to LDS",
    classify.TO_LDS: "direct copy",
    classify.LOAD: "load",
    classify.BARRIER: "barrier",
}
# Whole tiles of which it is not known here how many instructions they take.
_WHOLE = ("shared_load", "shared_load_transposed", "copy_async", "copy", "mma", "store")


_BYTES = ("read of LDS", "write to LDS", "load")
Event = tuple[str, int]
"""Kind of an instruction, and the bytes of a lane for loads and accesses to LDS, which LLVM may join, 1 for others."""


@dataclass
class Slot:
    """Instructions between two fences, and where the first stands."""

    loc: Loc
    kinds: Counter[str] = field(default_factory=Counter[str])


def scheduled_loops(kernel: Kernel) -> Iterator[Op]:
    """Innermost loops whose matrix instructions stand in the text one by one, and that hold nothing of unknown length. Guards may be in
    them whose regions only compute."""
    for op in kernel.walk():
        if op.name != "for" or not any(o.name == "mfma" for o in op.regions[0].ops):
            continue
        inner = [o for o in op.walk() if o is not op]
        cold = [o for guard in op.regions[0].ops if guard.name == "guard" for o in guard.walk()]
        if any((o.regions and o not in cold) or o.name in _WHOLE for o in inner):
            continue
        if not any(o.name in _TEXT or (o.regions and o.name != "guard") for o in cold):
            yield op


def slots(loop: Op, barriers: bool) -> list[Slot]:
    """The slots of one iteration in order. A barrier is a slot of its own."""
    found: list[Slot] = []
    open_ = False
    for op in loop.regions[0].ops:
        if op.name in ("schedule_fence", "guard") or (op.name == "barrier" and not barriers):
            open_ = False
            continue
        kind = _TEXT.get(op.name)
        if kind is None:
            continue
        if not open_ or op.name == "barrier":
            found.append(Slot(op.loc))
        found[-1].kinds[kind] += _bytes((op.results or op.operands)[0]) if kind in _BYTES else 1
        open_ = op.name != "barrier"
    return found


def _bytes(v: Value) -> int:
    """Bytes that a lane holds of a fragment or tile."""
    t = v.type
    if isinstance(t, FragmentType):
        return t.count * t.elem.bits // 8
    assert isinstance(t, TileType) and t.layout is not None
    return t.layout.num_registers * t.elem.bits // 8


def order(code: CodeObject, kernel: Kernel, flow: Flow) -> list[Deviation]:
    """W0909 for every scheduled loop that the code has in no loop of the same order."""
    barriers = kernel.attrs.get("waves") != 1  # LLVM drops the barriers of a workgroup that is a single wave
    emitted: list[list[Event]] = []
    for n in matrix_regions(flow):
        events = (_event(item) for item in flow.items_of(flow.loops[n].nodes))
        emitted.append([e for e in events if e is not None and (barriers or e[0] != "barrier")])
    found: list[Deviation] = []
    for loop in scheduled_loops(kernel):
        wanted = slots(loop, barriers)
        total = sum((s.kinds for s in wanted), Counter[str]())
        versions = [e for e in emitted if _total(e) == total]
        faults = [_first_fault(wanted, e) for e in versions]
        if faults and all(faults) and any(_is_turned(wanted, e) for e in versions):
            continue  # copies under a mask, and guards, make LLVM begin the loop elsewhere
        legal = "the instructions of the text between its fences"
        if not versions:
            text = "no loop of the code has the instructions of this one"
            found.append(Deviation("W0909", text, loop.loc, legal))
        elif all(fault is not None for fault in faults):
            fault = faults[0]
            assert fault is not None
            text = f"the code has another order here: {fault[1]}"
            found.append(Deviation("W0909", text, fault[0].loc, legal))
    return found


def _event(item: Item) -> Event | None:
    """Kind and amount of an instruction; None for those that have no place in the text."""
    kind = _CODE.get(class_of(item))
    if kind is None:
        return None
    return kind, classify.width(item.name) if kind in _BYTES else 1


def _total(events: Sequence[Event]) -> Counter[str]:
    total: Counter[str] = Counter()
    for kind, amount in events:
        total[kind] += amount
    return total


def _first_fault(wanted: Sequence[Slot], got: Sequence[Event]) -> tuple[Slot, str] | None:
    """The first slot that the code does not have, and what it has there."""
    at = 0
    for slot in wanted:
        have: Counter[str] = Counter()
        while have != slot.kinds and at < len(got):
            kind, amount = got[at]
            have[kind] += amount
            at += 1
            if have[kind] > slot.kinds[kind]:
                break
        if have != slot.kinds:
            return slot, f"{_text(have)} instead of {_text(slot.kinds)}"
    return None


def _is_turned(wanted: Sequence[Slot], got: Sequence[Event]) -> bool:
    """Whether the code has the slots if its loop begins at another place."""
    return any(_first_fault(wanted, [*got[i:], *got[:i]]) is None for i in range(1, len(got)))


def _text(kinds: Counter[str]) -> str:
    return ", ".join(f"{n} {'bytes of ' if k in _BYTES else 'x '}{k}" for k, n in sorted(kinds.items()))
