"""Waits of the matrix loops of a kernel: what the text states against what the code has.

How loops are paired: a matrix loop is a loop with `mma` that holds no smaller one, in the text as in the code. A loop of
the code stands for one of the text if their matrix instructions share a source line and the barriers of the one are a
multiple of those of the other (LLVM may unroll).

Waits are compared per stretch between barriers, round the end of the loop. First the strictest wait of each counter before
each barrier: it must be as strict as stated. Then every stated wait by itself: in the order of the text each needs a wait of
the code that is as strict and stands on the same side of the memory operations that it is for – direct copies for vmcnt,
reads and writes of LDS for lgkmcnt. Copies are counted; reads and writes, which LLVM may join, are only told apart by
whether the text has them before the wait, behind it, or both. LLVM merges waits with nothing between them, and so does this.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tileir.codeobject import CodeObject
from tileir.ir.core import Kernel, Op
from tileir.ir.location import UNKNOWN, Loc
from tileir.passes.outstanding import rounds
from tileir.records import dataclass
from tileir.simulator.inspect import classify
from tileir.simulator.inspect.counts import class_of, wait_of
from tileir.simulator.inspect.flow import Flow
from tileir.simulator.inspect.items import Item

_LOOPS = ("for", "while")
Minimum = tuple[int, int]
"""The strictest wait of a stretch: vmcnt and lgkmcnt; `_NO_WAIT` where there is none."""
_NO_WAIT = 1 << 16
_COUNTERS = ("vmcnt", "lgkmcnt")
# What each counter is for; see `Memory`.
_FOR = (("copy",), ("read", "write"))
_TEXT_KINDS = {
    "copy_async": "copy",
    "shared_store": "write",
    "copy": "write",
    "shared_load": "read",
    "shared_load_transposed": "read",
    "copy_async_part": "copy",
    "shared_store_fragment": "write",
    "shared_load_fragment": "read",
    "shared_load_transposed_fragment": "read",
}
_CODE_KINDS = {
    classify.TO_LDS: "copy",
    classify.LDS_WRITE: "write",
    classify.LDS_READ: "read",
    classify.LDS_TRANSPOSE_READ: "read",
}


@dataclass(frozen=True)
class Deviation:
    """One thing in which the code differs from the text; fields as of `tileir.ir.diagnostics.Diagnostic`. `weight` says how
    much: of two ways to generate code the one with less is better."""

    code: str
    message: str
    loc: Loc
    legal: str
    weight: int = 1


@dataclass(frozen=True)
class Memory:
    """Instructions that touch LDS: `count` of kind "copy" (direct), "read" or "write"."""

    kind: str
    count: int = 1


@dataclass(frozen=True)
class Wait:
    """A wait for both counters."""

    minimum: Minimum
    loc: Loc


Event = Memory | Wait


@dataclass(frozen=True)
class _TextLoop:
    op: Op
    lines: frozenset[int]
    """Source lines of its `mma` ops."""
    stretches: tuple[Minimum, ...]
    places: tuple[Loc, ...]
    """Where each stretch ends: its barrier, or the loop."""
    sequences: tuple[tuple[Event, ...], ...] = ()
    """What happens in each stretch; empty where branches hold waits, so that there is no one order."""


@dataclass(frozen=True)
class _CodeLoop:
    address: int
    lines: frozenset[int]
    stretches: tuple[Minimum, ...]
    sequences: tuple[tuple[Event, ...], ...] = ()


def lines_of(code: CodeObject, items: Sequence[Item]) -> frozenset[int]:
    """Source lines of instructions, as far as the line table has them."""
    places = [code.line_table.lookup(item.address) for item in items]
    return frozenset(place.line for place in places if place is not None and place.line)


def matrix_regions(flow: Flow) -> list[int]:
    """Loops with matrix instructions that hold no smaller such loop."""
    with_mfma = [
        n
        for n, region in enumerate(flow.loops)
        if any(class_of(item) == classify.MFMA for item in flow.items_of(region.nodes))
    ]
    return [n for n in with_mfma if not any(flow.loops[inner].parent == n for inner in with_mfma)]


def waits(code: CodeObject, kernel: Kernel, flow: Flow) -> list[Deviation]:
    """W0905 for every matrix loop that does not keep the waits of the text."""
    waves = kernel.attrs.get("waves")
    barriers = waves != 1  # LLVM drops the barriers of a workgroup that is a single wave
    wanted = [loop for loop in _text_loops(kernel, barriers) if any(s != (_NO_WAIT, _NO_WAIT) for s in loop.stretches)]
    emitted = [_code_loop(code, flow, n, barriers) for n in matrix_regions(flow)]
    if not wanted or not emitted:
        return []
    kept = [[_keeps(text, loop) for loop in emitted] for text in wanted]
    if len(wanted) == len(emitted):
        partner = _matching(kept)
        return [_broken(wanted, [loop]) for i, loop in enumerate(emitted) if i not in partner.values()]
    return [_broken([text], emitted) for i, text in enumerate(wanted) if not any(kept[i])]


def _text_loops(kernel: Kernel, barriers: bool) -> Iterator[_TextLoop]:
    def has_mma(op: Op) -> bool:
        return any(inner.name in ("mma", "mfma") for inner in op.walk())

    for op in kernel.walk():
        if op.name not in _LOOPS or not has_mma(op):
            continue
        inner = [o for o in op.walk() if o is not op]
        if any(o.name in _LOOPS and has_mma(o) for o in inner):
            continue
        flat = {id(o) for region in op.regions for o in region.ops}
        nested = any(o.name in ("wait", "barrier") and id(o) not in flat for o in inner)
        events: list[Event | None] = []
        places: list[Loc] = []
        for o in inner:
            if o.name == "wait":
                events.append(Wait((_stated(o, "vm"), _stated(o, "lgkm")), o.loc))
            elif o.name == "barrier" and barriers and not nested:
                events.append(None)
                places.append(o.loc)
            elif o.name in _TEXT_KINDS:
                events.append(Memory(_TEXT_KINDS[o.name], _copies(o, kernel)))
        lines = frozenset(o.loc.line for o in inner if o.name in ("mma", "mfma"))
        sequences = () if nested else _sequences(events)
        yield _TextLoop(op, lines, _stretches(_minima(events)), tuple(places or [op.loc]), sequences)


def _copies(op: Op, kernel: Kernel) -> int:
    """Instructions of a wave for a direct copy, each of which fills 64 consecutive pieces. For other ops the number is not known here."""
    waves = kernel.attrs.get("waves")
    return rounds(op, waves)[1] if op.name == "copy_async" and isinstance(waves, int) else 1


def _stated(op: Op, counter: str) -> int:
    value = op.attrs.get(counter, -1)
    return value if isinstance(value, int) and value >= 0 else _NO_WAIT


def _code_loop(code: CodeObject, flow: Flow, number: int, barriers: bool) -> _CodeLoop:
    items = flow.items_of(flow.loops[number].nodes)
    events: list[Event | None] = []
    for item in items:
        kind = class_of(item)
        if kind == classify.WAIT:
            wait = wait_of(item, code.target)
            minimum = (_NO_WAIT if wait.vm is None else wait.vm, _NO_WAIT if wait.lgkm is None else wait.lgkm)
            events.append(Wait(minimum, UNKNOWN))
        elif kind == classify.BARRIER and barriers:
            events.append(None)
        elif kind in _CODE_KINDS:
            events.append(Memory(_CODE_KINDS[kind]))
    lines = lines_of(code, [item for item in items if class_of(item) == classify.MFMA])
    return _CodeLoop(items[0].address, lines, _stretches(_minima(events)), _sequences(events))


def _minima(events: Sequence[Event | None]) -> list[Minimum | None]:
    """The waits and the barriers (None) among events."""
    return [e.minimum if isinstance(e, Wait) else None for e in events if not isinstance(e, Memory)]


def _sequences(events: Sequence[Event | None]) -> tuple[tuple[Event, ...], ...]:
    """Events before each barrier (None) of a loop; what follows the last barrier comes before the first."""
    parts: list[list[Event]] = [[]]
    for event in events:
        if event is None:
            parts.append([])
        else:
            parts[-1].append(event)
    if len(parts) > 1:
        parts[0] = parts.pop() + parts[0]
    return tuple(tuple(part) for part in parts)


def _stretches(events: Sequence[Minimum | None]) -> tuple[Minimum, ...]:
    """The strictest waits before each barrier (None) of a loop; what follows the last barrier belongs to the first."""
    stretches: list[Minimum] = [(_NO_WAIT, _NO_WAIT)]
    for event in events:
        if event is None:
            stretches.append((_NO_WAIT, _NO_WAIT))
        else:
            stretches[-1] = _stricter(stretches[-1], event)
    if len(stretches) > 1:
        stretches[0] = _stricter(stretches[0], stretches.pop())
    return tuple(stretches)


def _stricter(a: Minimum, b: Minimum) -> Minimum:
    return min(a[0], b[0]), min(a[1], b[1])


def _whole(stretches: Sequence[Minimum]) -> tuple[Minimum, ...]:
    result: Minimum = (_NO_WAIT, _NO_WAIT)
    for stretch in stretches:
        result = _stricter(result, stretch)
    return (result,)


def _matching(kept: Sequence[Sequence[bool]]) -> dict[int, int]:
    """A largest pairing of rows with columns whose entry is true, by augmenting paths: row to column."""
    row_of: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, possible in enumerate(kept[row]):
            if possible and column not in tried:
                tried.add(column)
                if column not in row_of or place(row_of[column], tried):
                    row_of[column] = row
                    return True
        return False

    for row in range(len(kept)):
        place(row, set())
    return {row: column for column, row in row_of.items()}


def _broken(texts: Sequence[_TextLoop], loops: Sequence[_CodeLoop]) -> Deviation:
    """Says what is missing, for the loop of the text and that of the code that come closest."""
    pairs = [(text, loop) for text in texts for loop in loops]
    text, loop = min(pairs, key=lambda pair: _difference(*pair))
    legal = "waits at least as strict as those of the text, before the same barriers"
    where = f"the loop at {loop.address:#x} of the code"
    if len(loop.stretches) % len(text.stretches):
        what = f"{where} has {len(loop.stretches)} barriers, the text {len(text.stretches)}"
        return Deviation("W0905", what, text.op.loc, legal)
    missing, misplaced = _faults(text, loop)
    if not missing and misplaced:
        wait, counter = misplaced[0]
        what = f"{where} has no {_COUNTERS[counter]}({wait.minimum[counter]}) where the text has this wait"
        legal = "as many waits as the text, in its order, on the same side of the memory operations that they are for"
        return Deviation("W0905", what, wait.loc, legal)
    if not missing:
        what = f"{where} is no version of this loop: its matrix instructions or memory operations are others"
        return Deviation("W0905", what, text.op.loc, legal)
    place, name, want, have = missing[0]
    most = f"the strictest is {name}({have})" if have != _NO_WAIT else "there is none"
    return Deviation("W0905", f"{where} lacks {name}({want}) before this barrier: {most}", place, legal)


def _keeps(text: _TextLoop, loop: _CodeLoop) -> bool:
    """Whether a loop of the code is one of the text, with all of its waits."""
    if _is_other(text, loop) or len(loop.stretches) % len(text.stretches):
        return False
    turns = range(len(text.stretches))
    return any(not _missing(text, loop, turn) and not _misplaced(text, loop, turn) for turn in turns)


def _is_other(text: _TextLoop, loop: _CodeLoop) -> bool:
    """Whether a loop of the code has other lines or other kinds of memory operations than one of the text."""
    other = bool(text.lines and loop.lines and not text.lines & loop.lines)
    return other or bool(text.sequences and _kinds(text.sequences) != _kinds(loop.sequences))


def _difference(text: _TextLoop, loop: _CodeLoop) -> tuple[bool, bool, int, int]:
    """How far a loop of the code is from one of the text: other lines or other kinds of memory operations, other barriers,
    missing waits, misplaced waits."""
    other = _is_other(text, loop)
    if len(loop.stretches) % len(text.stretches):
        return other, True, 0, 0
    missing, misplaced = _faults(text, loop)
    return other, False, len(missing), len(misplaced)


def _kinds(sequences: Sequence[Sequence[Event]]) -> set[str]:
    return {e.kind for events in sequences for e in events if isinstance(e, Memory)}


def _faults(text: _TextLoop, loop: _CodeLoop) -> tuple[list[tuple[Loc, str, int, int]], list[tuple[Wait, int]]]:
    """What `_missing` and `_misplaced` find, where the code begins so that it is least."""
    turns = range(len(text.stretches))
    found = [(_missing(text, loop, turn), _misplaced(text, loop, turn)) for turn in turns]
    return min(found, key=lambda faults: len(faults[0]) + len(faults[1]))


def _misplaced(text: _TextLoop, loop: _CodeLoop, turn: int) -> list[tuple[Wait, int]]:
    """Stated waits, and the number of their counter, that have no partner in the code if it begins `turn` barriers later."""
    period = len(text.stretches)
    if not text.sequences or (period == 1 and len(loop.sequences) > 1):
        return []
    if len(loop.sequences) == 1:  # no barrier says where an iteration begins, and LLVM turns loops as it likes
        turned = (_unpaired(text.sequences[0], got) for got in _turns(loop.sequences[0]))
        least = next(turned)
        for other in turned:
            if not least:
                break
            least = min(least, other, key=len)
        return least
    found: list[tuple[Wait, int]] = []
    for i, got in enumerate(loop.sequences):
        found += _unpaired(text.sequences[(i + turn) % period], got)
    return found


def _turns(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """The events of a loop as they are, and from every wait and every other kind of memory operation on."""
    yield events
    for i in range(1, len(events)):
        before, here = events[i - 1], events[i]
        if not isinstance(here, Memory) or not isinstance(before, Memory) or here.kind != before.kind:
            yield (*events[i:], *events[:i])


def _unpaired(stated: Sequence[Event], got: Sequence[Event]) -> list[tuple[Wait, int]]:
    """Waits of one stretch of the text without a partner in one of the code, and the number of their counter."""
    return [(wait, n) for n in range(len(_COUNTERS)) for wait in _without_partner(stated, got, n)]


def _without_partner(stated: Sequence[Event], got: Sequence[Event], counter: int) -> list[Wait]:
    """Waits of one stretch of the text for which no wait of the code stands at the same place, in the same order."""
    found: list[Wait] = []
    sums = [(_sums(stated, kind), _sums(got, kind), kind == "copy") for kind in _FOR[counter]]
    first = 0
    for i, wait in _merged(stated, counter):
        for j in range(first, len(got)):
            other = got[j]
            if (
                isinstance(other, Wait)
                and other.minimum[counter] <= wait.minimum[counter]
                and all(_same_side(text[i], text[-1], code[j], code[-1], counted) for text, code, counted in sums)
            ):
                first = j + 1
                break
        else:
            found.append(wait)
    return found


def _sums(events: Sequence[Event], kind: str) -> list[int]:
    """Operations of a kind before each event, and in all."""
    counts = (e.count if isinstance(e, Memory) and e.kind == kind else 0 for e in events)
    return list(itertools.accumulate(counts, initial=0))


def _merged(events: Sequence[Event], counter: int) -> list[tuple[int, Wait]]:
    """Places and waits for a counter, of those with no memory operation in between the last, as strict as the strictest."""
    found: list[tuple[int, Wait]] = []
    for i, event in enumerate(events):
        if not isinstance(event, Wait) or event.minimum[counter] == _NO_WAIT:
            continue
        if found and not any(isinstance(e, Memory) for e in events[found[-1][0] : i]):
            event = Wait(_stricter(found.pop()[1].minimum, event.minimum), event.loc)
        found.append((i, event))
    return found


def _same_side(before: int, total: int, have_before: int, have: int, counted: bool) -> bool:
    """Whether operations of a kind stand around a place of the code as they do around one of the text: `before` of the text's
    `total`, `have_before` of the code's `have`. Where they are counted and equally many, the numbers must agree."""
    if (not before and have_before) or (before == total and have_before < have):
        return False
    return not counted or total != have or before == have_before


def _missing(text: _TextLoop, loop: _CodeLoop, turn: int) -> list[tuple[Loc, str, int, int]]:
    """(place, counter, stated, emitted) of each wait that is too weak if the code begins `turn` barriers later."""
    period = len(text.stretches)
    emitted = _whole(loop.stretches) if period == 1 else loop.stretches
    return [
        (text.places[(i + turn) % period], name, want, have)
        for i, got in enumerate(emitted)
        for name, want, have in zip(_COUNTERS, text.stretches[(i + turn) % period], got, strict=True)
        if have > want
    ]
