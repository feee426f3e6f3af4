"""Scans along an axis. Blocks of neighbouring elements grow by doubling: over register bits, lane bits, repetitions, in the order
of their steps along the axis. Every register knows the total of its block and what comes before its part of it; of two blocks
that become one, the second has the total of the first before it. What waves hold before is handed in as totals of parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from tileir.ir.core import Op
from tileir.ir.ops.reduce import neutral
from tileir.ir.ops.scan import identity
from tileir.ir.types import F32, I32, Elem
from tileir.layout import Layout
from tileir.lowering.amdgpu.emit.coords import lane, register_table, wave
from tileir.lowering.amdgpu.emit.elementwise import Pieces
from tileir.lowering.amdgpu.emit.lanes import Emitter
from tileir.lowering.amdgpu.emit.reduce import combiner, dwords, element_of, partner, swapped
from tileir.lowering.amdgpu.emit.shared import hole_test
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import Tile
from tileir.lowering.amdgpu.emit.writer import scalar_type
from tileir.passes.lane_code import DWORD_BITS, lane_step
from tileir.passes.scan_layouts import is_scannable
from tileir.records import dataclass


@dataclass
class _Scan:
    """Values under way. Equal combinations are made once: registers of a block share what is before them."""

    s: State
    op: Op
    wide: Elem
    combine: Callable[[str, str], str]
    rest: str  # what changes nothing
    made: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])
    pairs: dict[tuple[str, ...], tuple[str, str]] = field(default_factory=dict[tuple[str, ...], tuple[str, str]])

    def joined(self, a: str, b: str) -> str:
        """a ∘ b, either of which may be "" for nothing."""
        if not a or not b:
            return a or b
        key = (a, b)
        if key not in self.made:
            self.made[key] = self.combine(a, b)
        return self.made[key]

    def chosen(self, condition: str, a: str, b: str) -> str:
        key = (condition, a, b)
        if key not in self.made:
            self.made[key] = self.s.w.select(condition, a or self.rest, b or self.rest, scalar_type(self.wide))
        return self.made[key]

    def across(self, value: str, bit: int, done: Sequence[int], reverse: bool) -> tuple[str, str]:
        """For a total of each lane: that of the lanes whose number differs in a bit, as far as it comes before, and both
        together. Lanes that differ by `done` have equal totals."""
        key = (value, "across")
        if key not in self.pairs:
            step = lane_step(bit, done, self.s.target)
            if step.kind == "permlane_swap":
                low, high = swapped(self.s, value, value, step, self.wide)
                self.pairs[key] = (high if reverse else low), self.joined(low, high)
            else:
                m = Emitter(self.s)
                found = [partner(self.s, m, x, step) for x in dwords(self.s, value, self.wide)]
                other = element_of(self.s, found, self.wide)
                self.pairs[key] = other, self.joined(value, other)
        return self.pairs[key]


def scan(s: State, op: Op) -> None:
    w = s.w
    x = op.operands[0].tile
    layout, axis = x.layout, op.attrs["axis"]
    assert layout is not None and isinstance(axis, int)
    waves = [v[axis] for v in layout.wave if v[axis]]
    if not is_scannable(layout, axis) or bool(waves) != (len(op.operands) == 2):
        raise s.unsupported(
            f"'{op.name}' along waves or in this layout", op.loc, "the passes assign-layouts and lower-conversions"
        )
    wide = x.elem if x.elem.bits >= DWORD_BITS else F32 if x.elem.is_float else I32
    p = Pieces(s, op, 1)
    exclusive, reverse = bool(op.attrs.get("exclusive")), bool(op.attrs.get("reverse"))
    first = s.splat_literal(identity(op.name, x.elem), wide, 1)
    rest = first if exclusive else s.splat_literal(neutral(op.name.replace("scan", "reduce"), x.elem), wide, 1)
    state = _Scan(s, op, wide, combiner(p, op.name.replace("scan", "reduce"), wide), rest)
    values = [p.convert(v, x.elem, wide) for v in s.tile(op.operands[0]).scalars(w)]
    if reverse:  # what lies beyond the tile comes first
        tests = [hole_test(s, layout, r) for r in range(len(values))]
        values = [w.select(t, v, rest, scalar_type(wide)) if t else v for t, v in zip(tests, values, strict=True)]
    before = _in_wave(state, layout, axis, values, rest if exclusive else "", reverse)
    if waves:
        others = _parts_before(state, op, layout, axis, reverse)
        before = [state.joined(a, b) for a, b in zip(others, before, strict=True)]
    out = before if exclusive else [state.joined(b, v) for b, v in zip(before, values, strict=True)]
    s.values[op.result] = Tile(op.result.tile, 1, [p.convert(v, wide, x.elem) for v in out])


def _in_wave(state: _Scan, layout: Layout, axis: int, values: list[str], start: str, reverse: bool) -> list[str]:
    """What lies before each register's element in the wave, beginning with `start` ("": nothing)."""
    w = state.s.w
    total, before = list(values), [start] * len(values)
    done = [0]
    steps = [(v[axis], "reg", b) for b, v in enumerate(layout.reg) if v[axis]]
    steps += [(v[axis], "lane", b) for b, v in enumerate(layout.lane) if v[axis]]
    for _, source, bit in sorted(steps):
        if source == "reg":
            for r in range(len(values)):
                other = r ^ (1 << bit)
                if bool(r >> bit & 1) != reverse:  # in the second block
                    before[r] = state.joined(total[other], before[r])
            total = [state.joined(total[min(r, r ^ 1 << bit)], total[max(r, r ^ 1 << bit)]) for r in range(len(values))]
        else:
            mask = w.const(1 << bit)
            condition = w.hoist(
                ("lane bit", bit, reverse),
                lambda mask=mask: w.icmp("eq" if reverse else "ne", w.binary("and", lane(w), mask), w.const(0)),
            )
            met = [state.across(t, bit, done, reverse) for t in total]
            before = [state.chosen(condition, state.joined(o, b), b) for (o, _), b in zip(met, before, strict=True)]
            total = [both for _, both in met]
            done += [x ^ 1 << bit for x in done]
    return _repeated(state, layout, axis, total, before, reverse)


def _repeated(state: _Scan, layout: Layout, axis: int, total: list[str], before: list[str], reverse: bool) -> list[str]:
    """The repetitions of the block along the axis, one after the other."""
    count = layout.reps[axis]
    inner = layout.registers_per_block
    for n in layout.reps[axis + 1 :]:
        inner *= n  # registers from one repetition along the axis to the next
    carried = [""] * len(total)
    for i in reversed(range(count)) if reverse else range(count):
        for r in range(len(total)):
            if r // inner % count != i:
                continue
            before[r] = state.joined(carried[r], before[r])
            following = r + (-inner if reverse else inner)
            if 0 <= (i - 1 if reverse else i + 1) < count:
                carried[following] = state.joined(carried[r], total[r])
    return before


def _parts_before(state: _Scan, op: Op, layout: Layout, axis: int, reverse: bool) -> list[str]:
    """For every register the total of what other waves hold before."""
    s, w = state.s, state.s.w
    totals = op.operands[1].tile
    assert totals.layout is not None
    p = Pieces(s, op, 1)
    values = [p.convert(v, totals.elem, state.wide) for v in s.tile(op.operands[1]).scalars(w)]

    def place(table: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
        return tuple(sum(c) for d, c in enumerate(table) if d != axis)

    at = {(place(c), sum(c[axis])): v for c, v in zip(register_table(totals.layout), values, strict=True)}
    inner, parts = op.attrs["inner"], op.attrs["parts"]
    assert isinstance(inner, int) and isinstance(parts, int)
    bits = sorted((v[axis] // inner, j) for j, v in enumerate(layout.wave) if v[axis])
    found: dict[tuple[int, ...], str] = {}
    out: list[str] = []
    for c in register_table(layout):
        row = place(c)
        if row not in found:
            sums = [""]
            order = list(reversed(range(parts))) if reverse else list(range(parts))
            for k in order[:-1]:
                sums.append(state.joined(sums[-1], at[row, k]))
            by_part = dict(zip(order, sums, strict=True))
            level = [by_part[k] for k in range(parts)]
            for _, j in bits:
                condition = w.hoist(
                    ("wave bit", j), lambda j=j: w.icmp("ne", w.binary("and", wave(w), w.const(1 << j)), w.const(0))
                )
                level = [state.chosen(condition, b, a) for a, b in zip(level[::2], level[1::2], strict=True)]
            found[row] = level[0]
        out.append(found[row])
    return out
