"""`print` and `assert`: lanes write records into the buffer that the launcher reads (`tileir.ir.reports` has the protocol).

A record is claimed by one atomic addition; which lane writes which element follows from the layout alone, so waves need not wait for
each other. The way of an assertion that holds is a comparison and a branch that the wave does not take.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tileir.ir import reports
from tileir.ir.core import Op, Value
from tileir.ir.types import Elem
from tileir.layout import Layout
from tileir.lowering.amdgpu.emit.coords import coordinate, lane, thread, wave
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.writer import scalar_type

_LANES, _AXES = 64, "xyz"


class _Reporter:
    """Writes the records of one site."""

    def __init__(self, s: State, op: Op):
        self.s, self.w, self.op = s, s.w, op
        self.site = s.report_sites.setdefault(op, len(s.report_sites))
        count = op.attrs.get("ids", 0)
        assert isinstance(count, int)
        ids = [s.scalar(v) for v in op.operands[len(op.operands) - count :]]
        self.position = [*(ids or self._workgroup()), *([s.w.const(0)] * 3)][:3]

    def _workgroup(self) -> list[str]:
        """The position that the hardware states, for texts in which no pass put that of the language."""
        w = self.w
        return [
            w.hoist(("workgroup", a), lambda a=a: w.op(f"rocdl.workgroup.id.{a} : i32"), entry=True)
            for a in _AXES[: len(self.s.kernel.grid)]
        ]

    def when(self, condition: str, body: Callable[[], None]) -> None:
        """Something for the lanes in which `condition` holds ("": all)."""
        if not condition:
            body()
            return
        then, after = self.w.label(), self.w.label()
        self.w.cond_branch(condition, then, after)
        self.w.start(then)
        body()
        self.w.branch(after)
        self.w.start(after)

    def all_of(self, conditions: list[str]) -> str:
        total = ""
        for c in conditions:
            total = self.w.binary("and", total, c, "i1") if total and c else total or c
        return total

    def bits(self, x: str, elem: Elem) -> tuple[str, str]:
        """An element as two dwords."""
        w, t = self.w, scalar_type(elem)
        if elem.bits == 64:
            pair = w.bitcast(x, t, "vector<2xi32>")
            return w.extract(pair, 0, "vector<2xi32>"), w.extract(pair, 1, "vector<2xi32>")
        plain = f"i{max(elem.bits, 8)}" if not elem.is_bool else "i1"
        if elem.is_float and elem.bits > 8:
            x = w.bitcast(x, t, plain)
        return (x if plain == "i32" else w.op(f"llvm.zext {x} : {plain} to i32")), w.const(0)

    def write(self, records: list[tuple[int, str, tuple[str, str]]]) -> None:
        """Consecutive records – number of the value, number of the element, bits – in each active lane, if there is room."""
        w, count = self.w, len(records)
        buffer = f"%arg_{reports.ARGUMENT}"
        number = w.op(f'llvm.atomicrmw add {buffer}, {w.const(count)} syncscope("agent") monotonic : !llvm.ptr<1>, i32')

        def put() -> None:
            start = w.add(w.mul(number, reports.RECORD_BYTES), reports.HEADER_BYTES)
            for at, (value, index, bits) in enumerate(records):
                words = [w.const(self.site), *self.position, w.const(value), index, *bits]
                for half in range(2):
                    offset = w.add(start, at * reports.RECORD_BYTES + half * reports.RECORD_BYTES // 2)
                    place = w.op(f"llvm.getelementptr {buffer}[{offset}] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8")
                    four = w.pack(words[4 * half : 4 * half + 4], "i32")
                    w.line(f"llvm.store {four}, {place} {{alignment = 16 : i64}} : vector<4xi32>, !llvm.ptr<1>")

        self.when(w.icmp("ult", number, w.const(reports.CAPACITY - count + 1)), put)

    def first_lane(self) -> str:
        """True in one lane of the workgroup."""
        return self.w.icmp("eq", thread(self.w), self.w.const(0))

    def canonical(self, layout: Layout) -> list[str]:
        """Conditions that hold in one of the lanes and waves that have copies of the same elements."""
        w, free, found = self.w, layout.free, list[str]()
        for mask, number in ((free.lane, lane), (free.wave, wave)):
            if mask:
                found.append(w.icmp("eq", w.binary("and", number(w), w.const(mask)), w.const(0)))
        return found

    def inside(self, layout: Layout, r: int) -> list[str]:
        """Conditions that hold where the register is an element of the tile and not of what pads it."""
        found: list[str] = []
        for d in range(layout.rank):
            if layout.padded_shape[d] != layout.shape[d]:
                c = coordinate(self.w, layout, r, d)
                found.append(self.w.icmp("ult", self.w.add(c.base, c.offset), self.w.const(layout.shape[d])))
        return found

    def index(self, layout: Layout, r: int) -> str:
        """Row-major number of the element in a register."""
        w, total = self.w, ""
        for d in range(layout.rank):
            c = coordinate(w, layout, r, d)
            part = w.mul(w.add(c.base, c.offset), math.prod(layout.shape[d + 1 :]))
            total = w.binary("add", total, part) if total else part
        return total


def _least_numbers(layout: Layout) -> list[int]:
    """For each register the smallest number of an element that any lane has in it."""
    lanes, waves = np.arange(_LANES)[:, None], np.arange(layout.num_waves)[None, :]
    found: list[int] = []
    for r in range(layout.num_registers):
        total = np.zeros((_LANES, layout.num_waves), np.int64)
        for c, n in zip(layout.coords(r, lanes, waves), layout.shape, strict=True):
            total = total * n + np.broadcast_to(c, total.shape)
        found.append(int(total.min()))
    return found


def _layout(v: Value) -> Layout:
    layout = v.tile.layout
    assert layout is not None
    return layout


def print_values(s: State, op: Op) -> None:
    """A `print`: of each tile the elements below the limit, by the lanes that hold them."""
    out, w = _Reporter(s, op), s.w
    site = reports.site_of(op)
    for number, v in enumerate(reports.shown_operands(op)):
        if v.tile.is_scalar:
            x = s.scalar(v)
            out.when(
                out.first_lane(), lambda n=number, x=x, v=v: out.write([(n, w.const(0), out.bits(x, v.tile.elem))])
            )
            continue
        layout, shown = _layout(v), site.shown(number)
        values, least, own = s.tile(v).scalars(w), _least_numbers(layout), out.canonical(layout)
        for r in range(layout.num_registers):
            if r & layout.free.reg or least[r] >= shown:
                continue
            index = out.index(layout, r)
            conditions = [*own, *out.inside(layout, r), w.icmp("ult", index, w.const(shown))]
            out.when(
                out.all_of(conditions),
                lambda n=number, i=index, x=values[r], v=v: out.write([(n, i, out.bits(x, v.tile.elem))]),
            )
    if not reports.shown_operands(op):  # a message alone
        zero = w.const(0)
        out.when(out.first_lane(), lambda: out.write([(0, zero, (zero, zero))]))
    w.mark()


def assertion(s: State, op: Op) -> None:
    """An `assert`: a branch for waves with a lane whose condition does not hold. There each such lane reports the first of its
    elements that fails, and how many do."""
    w = s.w
    condition, *others = reports.shown_operands(op)
    scalar = condition.tile.is_scalar
    layout = None if scalar else _layout(condition)
    checked = [s.scalar(condition)] if scalar else s.tile(condition).scalars(w)
    registers = [0] if layout is None else [r for r in range(len(checked)) if not r & layout.free.reg]
    out = _Reporter(s, op)
    zero, one = w.const(0), w.const(1)
    fails: dict[int, str] = {}
    some = ""
    for r in registers:
        fail = w.binary("xor", checked[r], w.const(1, "i1"), "i1")
        fails[r] = fail if layout is None else out.all_of([fail, *out.inside(layout, r)])
        some = w.binary("or", some, fails[r], "i1") if some else fails[r]
    lanes = w.op(f"rocdl.ballot {some} : i64")
    cold, after = w.label(), w.label()
    w.cond_branch(w.icmp("ne", lanes, w.const(0, "i64"), "i64"), cold, after)
    w.start(cold)
    values = [[s.scalar(v)] if v.tile.is_scalar else s.tile(v).scalars(w) for v in others]
    types = [scalar_type(v.tile.elem) for v in others]
    own = [out.first_lane()] if layout is None else out.canonical(layout)
    first, count = w.const((1 << 31) - 1), zero
    chosen = [xs[0] for xs in values]
    for r in registers:
        index = zero if layout is None else out.index(layout, r)
        earlier = w.binary("and", fails[r], w.icmp("slt", index, first), "i1")
        count = w.binary("add", count, w.select(fails[r], one, zero, "i32"))
        first = w.select(earlier, index, first, "i32")
        if len(registers) > 1:
            chosen = [
                x if v.tile.is_scalar else w.select(earlier, xs[r], x, t)
                for x, xs, v, t in zip(chosen, values, others, types, strict=True)
            ]
    records = [(0, first, (count, zero))]
    records += [(n, first, out.bits(x, v.tile.elem)) for n, (x, v) in enumerate(zip(chosen, others, strict=True), 1)]
    out.when(out.all_of([some, *own]), lambda: out.write(records))
    w.branch(after)
    w.start(after)
    w.mark()
