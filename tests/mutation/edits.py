"""Single edits of final texts, and what the two judges of synchronisation say of each.

Every wait, barrier, priority, access of memory and matrix instruction of the version for aligned views is deleted, weakened, moved
past its neighbour in either direction, and moved past the nearest wait or barrier, one edit at a time. The verifier reads the text as a
person would hand it in, with `synchronised = true`, so that nothing is added to it. The simulator runs what code generation makes
of the same text when nothing verifies it, with all checks on, and compares the results with those of the text as it was, bit by bit.

    python -m tests.mutation.edits                     # all subjects: what disagrees for no reason, and a count of the rest
    python -m tests.mutation.edits "gfx950 gemm"       # those whose names contain the words
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.mutation.subjects import SUBJECTS, Subject
from tileir.ir.core import Block, Kernel, Op
from tileir.ir.diagnostics import Diagnostic
from tileir.ir.ops.fragments import part_mask
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import FragmentType, SharedType
from tileir.passes import check_sync
from tileir.passes.halves import Extra
from tileir.passes.outstanding import LANES

MEETINGS = ("wait", "barrier", "barrier_of")
ACCESSES = (
    "copy", "copy_async", "copy_async_part", "load", "load_fragment", "store", "shared_load", "shared_load_fragment",
    "shared_load_transposed", "shared_load_transposed_fragment", "shared_store", "shared_store_fragment",
)  # fmt: skip
PLACES = (*MEETINGS, "priority", *ACCESSES, "mma", "mfma")
"""What edits are made of; all other ops go along where they are needed."""


# -- edits -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Edit:
    """A change of one block: the ops it then has."""

    kind: str
    op: Op
    block: Block
    ops: tuple[Op, ...]

    @property
    def name(self) -> str:
        """What was done to which op."""
        where = next((v.name for v in (*self.op.results, *self.op.operands)), "")
        attrs = ", ".join(
            f"{k} = {v}" for k, v in self.op.attrs.items() if k in ("vm", "lgkm", "part", "at", "half", "level")
        )
        return f"{self.kind}: {self.op.name}<{attrs}> %{where} at {self.op.loc.line}"

    def applied(self, kernel: Kernel) -> Kernel:
        """The kernel with the edit. The ops are shared with the old one, but nothing changes them."""
        edited = Block(self.block.args, list(self.ops))
        if kernel.body is self.block:
            return rewrite(replace(kernel, body=edited), lambda rw, op: False)

        def rule(rw: Rewriter, op: Op) -> bool:
            if not any(r is self.block for r in op.regions):
                return False
            regions = [edited if r is self.block else r for r in op.regions]
            rw.copy(op)  # for the results and their names
            rw.block.ops.pop()
            made = Op(op.name, [rw.use(v) for v in op.operands], op.attrs, [rw.use(v) for v in op.results],
                      [rw.region(r) for r in regions], op.spans, op.loc, op.operand_locs)  # fmt: skip
            rw.insert(made)
            return True

        return rewrite(kernel, rule)


def edits(kernel: Kernel) -> Iterator[Edit]:
    """All edits of the version for aligned views, each text once."""
    seen: set[tuple[int, ...]] = set()
    for block in _blocks(_version(kernel)):
        for edit in _edits(block):
            key = (id(block), *((id(op) if op in block.ops else hash(op.key())) for op in edit.ops))
            if key not in seen:
                seen.add(key)
                yield edit


def _version(kernel: Kernel) -> Block:
    """The block with everything of the version for aligned views."""
    for op in kernel.body.ops:
        if op.name == "if" and len(op.regions) == 2 and any(o.name in ACCESSES for o in op.regions[1].walk()):
            return op.regions[0]
    return kernel.body


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for op in block.ops:
        for region in op.regions:
            yield from _blocks(region)


def _edits(block: Block) -> Iterator[Edit]:
    ops = list(block.ops)
    at = [i for i, op in enumerate(ops) if op.name in PLACES or _holds(op)]
    for n, i in enumerate(at):
        op = ops[i]
        if op.name not in PLACES:
            continue
        if not op.results:
            yield Edit("deleted", op, block, (*ops[:i], *ops[i + 1 :]))
        for kind, attrs in _weaker(op):
            yield Edit(kind, op, block, (*ops[:i], _with(op, attrs), *ops[i + 1 :]))
        for kind, numbers in (("later", at[n + 1 :]), ("earlier", at[:n][::-1])):
            meeting = next((j for j in numbers if ops[j].name in MEETINGS), None)
            for how, j in (("by one", next(iter(numbers), None)), ("past a meeting", meeting)):
                if j is not None and (moved := _moved(ops, i, j)) is not None:
                    yield Edit(f"{kind} {how}", op, block, tuple(moved))


def _holds(op: Op) -> bool:
    return any(o.name in PLACES for region in op.regions for o in region.walk())


def _with(op: Op, attrs: dict[str, Any]) -> Op:
    return Op(op.name, op.operands, attrs, op.results, op.regions, op.spans, op.loc, op.operand_locs)


def _weaker(op: Op) -> Iterator[tuple[str, dict[str, Any]]]:
    """Kinds of weaker forms, and their attributes."""
    if op.name == "barrier_of":
        yield "other half", {**op.attrs, "half": 1 - int(op.attrs["half"])}  # type: ignore[arg-type]
    if op.name != "wait":
        return
    vm = op.attrs.get("vm", -1)
    assert isinstance(vm, int)
    if 0 <= vm < 63:
        yield "weaker by one", {**op.attrs, "vm": vm + 1}
    if len(op.attrs) > 1:
        for counter in op.attrs:
            yield f"without {counter}", {k: v for k, v in op.attrs.items() if k != counter}


def _moved(ops: Sequence[Op], i: int, j: int) -> list[Op] | None:
    """The ops with op i behind op j (before it, if j < i), and with it what of the ops between needs it (what it needs); None where that
    includes op j, or what is not pure."""
    low, high = min(i, j), max(i, j)
    along = {i}
    for k in range(i + 1, j) if i < j else range(i - 1, j, -1):
        needs = _needs(ops[k], [ops[x] for x in along]) if i < j else any(_needs(ops[x], [ops[k]]) for x in along)
        if needs:
            if ops[k].regions or not get(ops[k].name).is_pure or ops[k].name in PLACES:
                return None
            along.add(k)
    last = [ops[x] for x in along]
    if (i < j and _needs(ops[j], last)) or (i > j and any(_needs(x, [ops[j]]) for x in last)):
        return None
    moving = [ops[k] for k in range(low, high + 1) if k in along]
    rest = [ops[k] for k in range(low, high + 1) if k not in along]
    middle = rest + moving if i < j else moving + rest
    return [*ops[:low], *middle, *ops[high + 1 :]]


def _needs(op: Op, others: Sequence[Op]) -> bool:
    made = {id(v) for other in others for v in other.results}
    return any(id(v) in made for o in op.walk() for v in o.operands)


# -- judgement -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What the verifier says ("" if nothing) and what is wrong with the machine code ("" if nothing). reason: why the two may disagree,
    as another run has shown; "" if nothing shows it, or they agree."""

    edit: str
    rejected: str
    wrong: str
    reason: str = ""


WRITES = ("copy", "copy_async", "copy_async_part", "store", "shared_store", "shared_store_fragment")


def reason(subject: Subject, edit: Edit, kernel: Kernel, rejected: bool, wrong: str) -> str:
    """Why a text is accepted whose code is wrong, or rejected whose code is right."""
    if not rejected:
        took = edit.kind == "deleted" and edit.op.name in WRITES and wrong == "result"
        return "another program" if took and subject.says_so(kernel) else ""
    left = subject.errors(kernel)
    if all(d.code == "E1036" for d in left):
        return "priorities cost time alone"
    reasons: list[str] = []

    def without(name: str, fewer: Sequence[Diagnostic]) -> None:
        nonlocal left
        if len(fewer) < len(left):
            left = fewer
            reasons.append(name)

    waited = waited_for(kernel)
    without("the code waits for registers", subject.errors(waited))
    without("copies of the same lanes come in order", _not_of_same_lanes(left))
    waves = kernel.attrs["waves"]
    assert isinstance(waves, int)
    for name, size, rule in (("themselves", 1, _alone), ("waves of their half", waves // 2, _within_halves)):
        among = buffers_of(subject.final, size)  # no edit changes which elements an access touches
        if left and all(any(f" %{name}" in d.message for name in among) for d in left):
            with patch.object(check_sync, "enough", rule):
                without(f"waves meet only {name}", _not_of_same_lanes(subject.errors(waited)))
    return "" if left else ", ".join(reasons)


def _not_of_same_lanes(errors: Sequence[Diagnostic]) -> Sequence[Diagnostic]:
    """Errors but those about a copy that may overtake another: of the same part to the same buffer, which the same lanes make."""
    return [d for d in errors if "may overtake the 'copy_async" not in d.message]


def _alone(passed: int, complete: Extra, now: Extra) -> bool:
    """Instead of `enough`, for accesses of one wave."""
    return True


def _within_halves(passed: int, complete: Extra, now: Extra) -> bool:
    """Instead of `enough`, for accesses of two waves of one half: barriers that this half alone counts separate them, too."""
    return all(passed + after - before >= 1 for before, after in zip(complete, now, strict=True))


def waited_for(kernel: Kernel) -> Kernel:
    """The text with the waits that the code has anyway: before a product uses the registers of a read of LDS, LLVM waits for the read,
    and so for the LDS instructions of the wave before that, since they complete in order."""
    users: set[int] = set()
    for block in _blocks(kernel.body):
        late: set[int] = set()
        for op in block.ops:
            used = any(id(v) in late for v in op.operands)
            if op.name in ("mma", "mfma") and used:
                users.add(id(op))
                late.clear()
            elif op.name.startswith("shared_load") or (used and get(op.name).is_pure):
                late |= {id(v) for v in op.results}

    def rule(rw: Rewriter, op: Op) -> bool:
        if id(op) in users:
            rw.insert(Op("wait", [], {"lgkm": 0}, loc=op.loc))
        return False

    return rewrite(kernel, rule)


def buffers_of(kernel: Kernel, size: int) -> frozenset[str]:
    """Names of LDS buffers that only parts of direct copies write and only fragments read, and of which no wave touches an element that
    a wave of another group writes; groups are of so many waves that follow each other. Proved element by element: instruction `part` of a
    copy fills a slab of 64 lanes, and those of a wave follow each other (`part_mask`, which the interpreter's copies are tested
    with); a read takes what its map says of each wave. In groups of one, a wave's own waits order all that happens to the buffer, without
    a barrier."""
    waves = kernel.attrs["waves"]
    assert isinstance(waves, int)
    written: dict[str, dict[int, Any]] = {}
    read: dict[str, dict[int, Any]] = {}
    shared: set[str] = set()
    for op in kernel.walk():
        for v in op.operands if op.name != "shared_alloc" else ():
            if not isinstance(v.type, SharedType):
                continue
            kind = {"copy_async_part": written, "shared_load_fragment": read}.get(op.name)
            if kind is None or v.owner is None or v.owner.name != "shared_alloc":
                shared.add(v.name)
                continue
            for w in range(waves):
                mask = _copied_by(op, w, waves) if kind is written else _read_by(op, w)
                kind.setdefault(v.name, {}).setdefault(w, np.zeros(v.type.shape, bool))[mask] = True
    return frozenset(
        name
        for name in written
        if name not in shared
        and not any(
            (written[name][w] & other[name][x]).any()
            for other in (written, read)
            if name in other
            for w in range(waves)
            for x in range(waves)
            if w // size != x // size
        )
    )


def _copied_by(op: Op, wave: int, waves: int) -> Any:
    """The elements that a wave writes with a part of a copy: of the slabs of all waves, the part's own of this wave's run."""
    t, width, together = op.operands[-1].type, op.attrs["bytes"], op.attrs.get("together", 1)
    assert isinstance(t, SharedType) and t.layout is not None and isinstance(width, int) and isinstance(together, int)
    assert t.layout.kind != "slabs" and t.matrix == t.shape
    slabs = t.layout.offset(*np.indices(t.matrix)) // (width * LANES)
    return part_mask(op, waves * LANES) & (slabs // together % waves == wave)


def _read_by(op: Op, wave: int) -> Any:
    """The elements that a wave reads with a fragment."""
    layout, fragment, buffer = op.operands[1].tile.layout, op.results[0].type, op.operands[0].type
    at = op.attrs.get("at", 0)
    assert (
        layout is not None
        and isinstance(fragment, FragmentType)
        and isinstance(buffer, SharedType)
        and isinstance(at, int)
    )
    table = layout.owner_table()[wave, :, at : at + fragment.count].reshape(-1, layout.rank)
    mask = np.zeros(buffer.shape, bool)
    mask[tuple(table.T)] = True
    return mask


def judge(subject: Subject, wanted: Callable[[int, Edit], bool] = lambda i, edit: True) -> Iterator[Verdict]:
    """The verdicts on edits of a subject, on those that are wanted by number."""
    assert not subject.rejected(subject.final) and not subject.wrong(subject.final)
    for i, edit in enumerate(edits(subject.final)):
        if wanted(i, edit):
            kernel = edit.applied(subject.final)
            rejected, wrong = subject.rejected(kernel), subject.wrong(kernel)
            agree = bool(rejected) == bool(wrong)
            why = "" if agree else reason(subject, edit, kernel, bool(rejected), wrong)
            yield Verdict(edit.name, rejected, wrong, why)


def main(words: str = "") -> None:
    """Prints what the judges say of all edits."""
    for subject in SUBJECTS:
        if words not in str(subject):
            continue
        start, counts = time.process_time(), Counter[str]()
        for v in judge(subject):
            kind = f"{'rejected' if v.rejected else 'accepted'}, {'wrong' if v.wrong else 'right'}"
            counts[kind] += 1
            if v.reason:
                counts[v.reason] += 1
            elif bool(v.rejected) != bool(v.wrong):
                print(f"{subject}: {kind}: {v.edit}: {v.rejected or v.wrong}", flush=True)
        print(f"{subject}: {dict(counts)}, {time.process_time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
