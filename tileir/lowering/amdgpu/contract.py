"""Does the machine code keep what the text says? Compares a code object with the kernel that was lowered.

LLVM chooses registers, adds waits of its own and moves instructions between fences; what the text promises must survive
that. Checked are: no spilled register and no scratch memory; no accumulator moved between the register files in loops;
LDS size and workgroup size; and in every matrix loop, before each barrier, waits at least as strict as the stated ones.

How loops are paired: a matrix loop is a loop with `mma` that holds no smaller one, in the text as in the code. A loop of
the code stands for one of the text if their matrix instructions share a source line and the barriers of the one are a
multiple of those of the other (LLVM may unroll). Waits are compared per stretch between barriers, round the end of the
loop, and as minima: LLVM merges waits that meet. A wait that moved to the other side of the memory operations it is for
is not seen here; the simulator sees it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tileir.codeobject import CodeObject, CodeObjectError
from tileir.codeobject import Kernel as MachineKernel
from tileir.ir.core import Kernel, Op
from tileir.ir.location import Loc
from tileir.simulator.decoder.table import load
from tileir.simulator.inspect import classify
from tileir.simulator.inspect.counts import class_of, wait_of
from tileir.simulator.inspect.flow import Flow, InspectError, control_flow
from tileir.simulator.inspect.items import Item
from tileir.target import Target

_LOOPS = ("for", "while")
_LDS_CLASSES = (classify.LDS_READ, classify.LDS_TRANSPOSE_READ, classify.LDS_WRITE, classify.LDS_OTHER, classify.TO_LDS)

Minimum = tuple[int, int]
"""The strictest wait of a stretch: vmcnt and lgkmcnt; `_NO_WAIT` where there is none."""
_NO_WAIT = 1 << 16
_SAME = (False, False, 0)


@dataclass(frozen=True)
class Deviation:
    """One thing in which the code differs from the text; fields as of `tileir.ir.diagnostics.Diagnostic`."""

    code: str
    message: str
    loc: Loc
    legal: str


@dataclass(frozen=True)
class _TextLoop:
    op: Op
    lines: frozenset[int]
    """Source lines of its `mma` ops."""
    stretches: tuple[Minimum, ...]
    places: tuple[Loc, ...]
    """Where each stretch ends: its barrier, or the loop."""


@dataclass(frozen=True)
class _CodeLoop:
    address: int
    lines: frozenset[int]
    stretches: tuple[Minimum, ...]


def prepare(chip: str) -> None:
    """Loads the opcode table of a chip, so that `check` need not; may run in another thread."""
    load(chip)


def check(hsaco: bytes, kernel: Kernel) -> list[Deviation]:
    """Deviations of the code object from `kernel`, the text that was lowered to it; none if all promises are kept.

    Code that cannot be analysed is itself a deviation (W0906). Raises nothing.
    """
    try:
        code = CodeObject.from_bytes(hsaco)
        machine = code.kernel(kernel.name)
        found = _resources(machine, kernel, code.target)
        flow = control_flow(code, machine)
        return [*found, *_lds(machine, kernel, flow), *_moves(code, kernel, flow), *_waits(code, kernel, flow)]
    except (CodeObjectError, InspectError) as error:
        text = f"the emitted code could not be compared with the text: {error}"
        return [Deviation("W0906", text, kernel.loc, "please report this: TileIR reads all code that LLVM emits")]


def _resources(machine: MachineKernel, kernel: Kernel, target: Target) -> list[Deviation]:
    found: list[Deviation] = []
    metadata, scratch = machine.metadata, machine.descriptor.private_segment_fixed_size
    spilled = [
        f"{number} {what}"
        for number, what in (
            (metadata.vgpr_spill_count if metadata else 0, "vgpr spills"),
            (metadata.sgpr_spill_count if metadata else 0, "sgpr spills"),
            (scratch, "scratch bytes"),
        )
        if number
    ]
    if spilled:
        legal = "smaller tiles, more waves, or --allow-spills to accept it"
        found.append(Deviation("W0902", f"registers did not suffice: {', '.join(spilled)}", kernel.loc, legal))
    waves = kernel.attrs.get("waves")
    if metadata and isinstance(waves, int) and metadata.max_flat_workgroup_size != waves * target.wave_size:
        text = f"the code is for workgroups of {metadata.max_flat_workgroup_size}, the text for {waves} waves"
        found.append(Deviation("W0904", text, kernel.loc, f"{waves * target.wave_size} work-items"))
    return found


def _lds(machine: MachineKernel, kernel: Kernel, flow: Flow) -> list[Deviation]:
    """LDS in bytes; none at all is right where the code never touches it (LLVM drops an unused buffer)."""
    stated, emitted = kernel.attrs.get("lds", 0), machine.descriptor.group_segment_fixed_size
    unused = emitted == 0 and not any(class_of(item) in _LDS_CLASSES for item in flow.items)
    if not isinstance(stated, int) or emitted == stated or unused:
        return []
    return [
        Deviation("W0904", f"the code takes {emitted} bytes of LDS, the text {stated}", kernel.loc, f"{stated} bytes")
    ]


# Accumulator moves


def _moves(code: CodeObject, kernel: Kernel, flow: Flow) -> list[Deviation]:
    """Moves in matrix loops. Others, such as the loops of an epilogue, must read accumulators to compute with them."""
    found: list[Deviation] = []
    for number in _matrix_regions(flow):
        moves = [i for i in flow.items_of(flow.loops[number].nodes) if classify.is_accumulator_move(i.name)]
        if moves:
            text = f"accumulator moves in a loop: {len(moves)} in each iteration, none is needed"
            legal = "smaller tiles, more waves, or another matrix instruction"
            found.append(Deviation("W0903", text, _place(code, kernel, moves), legal))
    return found


def _place(code: CodeObject, kernel: Kernel, items: Sequence[Item]) -> Loc:
    """The op of the text that the first item with a source line comes from; the kernel when there is none."""
    lines = _lines(code, items)
    for op in kernel.walk():
        if op.loc.line in lines:
            return op.loc
    return kernel.loc


def _lines(code: CodeObject, items: Sequence[Item]) -> frozenset[int]:
    places = [code.line_table.lookup(item.address) for item in items]
    return frozenset(place.line for place in places if place is not None and place.line)


def _matrix_regions(flow: Flow) -> list[int]:
    """Loops with matrix instructions that hold no smaller such loop."""
    with_mfma = [
        n
        for n, region in enumerate(flow.loops)
        if any(class_of(item) == classify.MFMA for item in flow.items_of(region.nodes))
    ]
    return [n for n in with_mfma if not any(flow.loops[inner].parent == n for inner in with_mfma)]


# Waits


def _waits(code: CodeObject, kernel: Kernel, flow: Flow) -> list[Deviation]:
    waves = kernel.attrs.get("waves")
    barriers = waves != 1  # LLVM drops the barriers of a workgroup that is a single wave
    wanted = [loop for loop in _text_loops(kernel, barriers) if any(s != (_NO_WAIT, _NO_WAIT) for s in loop.stretches)]
    emitted = [_code_loop(code, flow, n, barriers) for n in _matrix_regions(flow)]
    if not wanted or not emitted:
        return []
    kept = [[_difference(text, loop) == _SAME for loop in emitted] for text in wanted]
    if len(wanted) == len(emitted):
        partner = _matching(kept)
        return [_broken(wanted, [loop]) for i, loop in enumerate(emitted) if i not in partner.values()]
    return [_broken([text], emitted) for i, text in enumerate(wanted) if not any(kept[i])]


def _text_loops(kernel: Kernel, barriers: bool) -> Iterator[_TextLoop]:
    def has_mma(op: Op) -> bool:
        return any(inner.name == "mma" for inner in op.walk())

    for op in kernel.walk():
        if op.name not in _LOOPS or not has_mma(op):
            continue
        inner = [o for o in op.walk() if o is not op]
        if any(o.name in _LOOPS and has_mma(o) for o in inner):
            continue
        flat = {id(o) for region in op.regions for o in region.ops}
        nested = any(o.name in ("wait", "barrier") and id(o) not in flat for o in inner)
        events: list[Minimum | None] = []
        places: list[Loc] = []
        for o in inner:
            if o.name == "wait":
                events.append((_stated(o, "vm"), _stated(o, "lgkm")))
            elif o.name == "barrier" and barriers and not nested:
                events.append(None)
                places.append(o.loc)
        lines = frozenset(o.loc.line for o in inner if o.name == "mma")
        yield _TextLoop(op, lines, _stretches(events), tuple(places or [op.loc]))


def _stated(op: Op, counter: str) -> int:
    value = op.attrs.get(counter, -1)
    return value if isinstance(value, int) and value >= 0 else _NO_WAIT


def _code_loop(code: CodeObject, flow: Flow, number: int, barriers: bool) -> _CodeLoop:
    items = flow.items_of(flow.loops[number].nodes)
    events: list[Minimum | None] = []
    for item in items:
        kind = class_of(item)
        if kind == classify.WAIT:
            wait = wait_of(item, code.target)
            events.append((_NO_WAIT if wait.vm is None else wait.vm, _NO_WAIT if wait.lgkm is None else wait.lgkm))
        elif kind == classify.BARRIER and barriers:
            events.append(None)
    lines = _lines(code, [item for item in items if class_of(item) == classify.MFMA])
    return _CodeLoop(items[0].address, lines, _stretches(events))


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
    missing = min((_missing(text, loop, turn) for turn in range(len(text.stretches))), key=len)
    if not missing:
        what = f"{where} is no version of this loop: its matrix instructions come from other lines"
        return Deviation("W0905", what, text.op.loc, legal)
    place, name, want, have = missing[0]
    most = f"the strictest is {name}({have})" if have != _NO_WAIT else "there is none"
    return Deviation("W0905", f"{where} lacks {name}({want}) before this barrier: {most}", place, legal)


def _difference(text: _TextLoop, loop: _CodeLoop) -> tuple[bool, bool, int]:
    """How far a loop of the code is from one of the text: other lines, other barriers, missing waits."""
    period = len(text.stretches)
    other_barriers = len(loop.stretches) % period != 0
    missing = 0 if other_barriers else min(len(_missing(text, loop, turn)) for turn in range(period))
    return bool(text.lines and loop.lines and not text.lines & loop.lines), other_barriers, missing


def _missing(text: _TextLoop, loop: _CodeLoop, turn: int) -> list[tuple[Loc, str, int, int]]:
    """(place, counter, stated, emitted) of each wait that is too weak if the code begins `turn` barriers later."""
    period = len(text.stretches)
    emitted = _whole(loop.stretches) if period == 1 else loop.stretches
    return [
        (text.places[(i + turn) % period], name, want, have)
        for i, got in enumerate(emitted)
        for name, want, have in zip(("vmcnt", "lgkmcnt"), text.stretches[(i + turn) % period], got, strict=True)
        if have > want
    ]
