"""What the workgroups of a grid read alike: from which results of `program_id` the place of each access follows.

%i, %j = program_id() : i32, i32
%r = mul(%i, %c128)
for %k …
  copy_async(%A[%r +: 128, %k +: 64], %sa)     // follows from %i: all workgroups of a block row read the same
  copy_async(%B[%s +: 128, %k +: 64], %sb)     // follows from %j: all of a block column
"""

from __future__ import annotations

import math

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.registry import get
from tileir.ir.types import GlobalType
from tileir.passes.identities import constant_of
from tileir.records import dataclass

ROW, COLUMN = 1, 2
PLANE = ROW | COLUMN
"""The first two dimensions of the grid, as bits."""
USUAL_TRIPS = 64
"""Times that a loop runs whose bounds are not literal: only ratios of bytes matter."""

_CONTROL = {"for": 3, "if": 1, "guard": 1, "while": 0}
"""Operands of control flow before those that are carried."""

Footprint = tuple[tuple[int | str, ...], int]
"""Dimensions of a view whose product is what all workgroups together read of it, and bits of an element."""


@dataclass(frozen=True)
class Sharing:
    """Bytes that a workgroup reads at places that follow from its block row or block column alone, and which parts of views
    these are. `even`: all workgroups do the same work, as far as the text shows."""

    rows: float
    columns: float
    row_views: tuple[Footprint, ...]
    column_views: tuple[Footprint, ...]
    even: bool


def sharing(kernel: Kernel) -> Sharing:
    """Of a kernel whose grid has two dimensions or more."""
    return _Reader(kernel).sharing()


class _Reader:
    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.follows: dict[Value, int] = {}
        self.even = True
        self.reads: dict[tuple[Value, int, tuple[int | None, ...]], float] = {}
        self.footprints: dict[Value, Footprint] = {}
        while self._block(kernel.body):
            pass

    def sharing(self) -> Sharing:
        self._weigh(self.kernel.body, 1.0, within=0)
        bytes_of, views = {ROW: 0.0, COLUMN: 0.0}, {ROW: dict[Value, Footprint](), COLUMN: dict[Value, Footprint]()}
        for (view, side, _), amount in self.reads.items():
            if side in bytes_of:
                bytes_of[side] += amount
                views[side][view] = self.footprints[view]
        return Sharing(
            bytes_of[ROW], bytes_of[COLUMN], tuple(views[ROW].values()), tuple(views[COLUMN].values()), self.even
        )

    # What follows from what: bits of the grid's dimensions. Repeated until nothing changes, as loops carry values.

    def _block(self, block: Block) -> bool:
        return any([self._op(op) for op in block.ops])

    def _op(self, op: Op) -> bool:
        if op.name == "program_id":
            return any([self._set(v, 1 << i) for i, v in enumerate(op.results)])
        skip = _CONTROL.get(op.name)
        if skip is None:
            bits = self._of(op.operands)
            return any([self._set(v, bits) for v in op.results])
        control, inits = self._of(op.operands[:skip]), op.operands[skip:]
        changed = False
        for region in op.regions:
            first = len(region.args) - len(inits)  # the variable of a loop comes before what is carried
            changed |= any([self._set(v, control) for v in region.args[:first]])
            changed |= any([self._set(v, self._of([init])) for v, init in zip(region.args[first:], inits, strict=True)])
            changed |= self._block(region)
            last = region.terminator.operands if op.name != "while" or region is op.regions[-1] else []
            into = zip(region.args[first:], last, strict=True) if op.name in ("for", "while") and last else ()
            changed |= any([self._set(v, self._of([end]) | control) for v, end in into])
            changed |= any([self._set(v, self._of([end]) | control) for v, end in zip(op.results, last, strict=False)])
        return any([self._set(v, self._of([init])) for v, init in zip(op.results, inits, strict=False)]) or changed

    def _of(self, values: list[Value]) -> int:
        bits = 0
        for v in values:
            bits |= self.follows.get(v, 0)
        return bits

    def _set(self, v: Value, bits: int) -> bool:
        old = self.follows.get(v, 0)
        self.follows[v] = old | bits
        return old | bits != old

    # What is read

    def _weigh(self, block: Block, times: float, within: int) -> None:
        """within: what the conditions around the block follow from."""
        for op in block.ops:
            self._read(op, times)
            if op.attrs.get("ordering", "relaxed") != "relaxed" or op.name == "while":
                self.even = False  # workgroups may wait for each other
            bits = within
            if op.regions:
                bits |= self._of(op.operands[: _CONTROL[op.name]])
            if op.name == "for" and bits & PLANE:
                self.even = False
            for region in op.regions:
                self._weigh(region, times * (_trips(op) if op.name == "for" else 1), bits)

    def _read(self, op: Op, times: float) -> None:
        definition = get(op.name)
        at = definition.access_position
        if at is None or op.spans is None or "read" not in definition.effects or "atomic" in definition.effects:
            return
        view = op.operands[at]
        t = view.type
        if not isinstance(t, GlobalType):
            return
        indices = op.operands[at + 1 : at + 1 + len(op.spans)]
        elements = 1
        for index, span in zip(indices, op.spans, strict=True):
            elements *= span if span is not None else math.prod(index.tile.shape)
        key = (view, self._of(indices) & PLANE, op.spans)
        # Parts of one copy, and the copies ahead of a pipelined loop, read what the loop reads: the most often executed one counts.
        self.reads[key] = max(self.reads.get(key, 0.0), times * elements * t.elem.bits / 8)
        whole = [
            d
            for d, index, span in zip(t.dims, indices, op.spans, strict=True)
            if span is not None or index.tile.shape or self.follows.get(index, 0) & PLANE
        ]
        self.footprints[view] = tuple(whole), t.elem.bits


def _trips(loop: Op) -> float:
    known = [int(c) for v in loop.operands[:3] if (c := constant_of(v)) is not None]
    if len(known) == 3 and known[2] > 0:
        start, stop, step = known
        return max(0, -((start - stop) // step))
    return USUAL_TRIPS
