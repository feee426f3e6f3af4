"""What `tileir-opt --print-schedule` and `--schedule-json` write: for every loop of the final text what a wave does in which order.

A *slot* is what stands between two fences or barriers: the machine code has the slots of the text in their order. Clocks are those that
a wave occupies its matrix or vector unit; what is under way is counted as the waits of the text leave it, in an iteration that is not
the first.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.types import FragmentType, SharedType, TileType
from tileir.passes.manager import Result
from tileir.passes.order_ops import NAMES, instruction_clocks, unit_of
from tileir.passes.outstanding import LANES, rounds
from tileir.passes.rate_loops import rate
from tileir.records import dataclass
from tileir.target import Target

MATRIX, VECTOR = "matrix", "vector"
READ, WRITE, COPY, LOAD, STORE = "read of LDS", "write to LDS", "direct copy", "load", "store"
ORDER, SCALAR, REGION = "order", "scalar", "region"
_KINDS = {
    "shared_load": READ,
    "shared_load_transposed": READ,
    "shared_load_fragment": READ,
    "shared_load_transposed_fragment": READ,
    "shared_store": WRITE,
    "shared_store_fragment": WRITE,
    "copy_async": COPY,
    "copy_async_part": COPY,
    "load": LOAD,
    "load_fragment": LOAD,
    "copy": LOAD,
    "store": STORE,
}
_ORDERS = ("wait", "barrier", "barrier_of", "priority")
_WIDEST = 16  # bytes that a lane reads or writes of LDS in one instruction
_UNKNOWN = 0  # clocks of what is not on fragments, and instructions of what no layout tells


@dataclass
class Row:
    """One line: an op, or vector and scalar ops that follow each other in a slot. instructions: of a wave, as far as the text says.
    lds_bytes: that a wave moves from or to LDS. vm, lgkm: instructions of each counter under way behind it, at most."""

    slot: int
    kind: str
    text: str
    clocks: int
    instructions: int
    lds_bytes: int
    priority: int
    vm: int = 0
    lgkm: int = 0


@dataclass
class Loop:
    """The rows of one loop. counts: instructions by kind; clocks by unit. order: what the order of a loop of products takes by the timing
    model, and what it cannot go below; empty for others."""

    line: int
    variable: str
    depth: int
    rows: list[Row]
    counts: dict[str, int]
    clocks: dict[str, int]
    order: str = ""


@dataclass
class Schedule:
    """The loops of a kernel in the order of the text."""

    kernel: str
    target: str
    waves: int
    loops: list[Loop]


def of(results: Sequence[Result]) -> list[Schedule]:
    """Schedules of kernels behind all passes."""
    return [_schedule(r.kernel, r.context.target) for r in results]


def _schedule(kernel: Kernel, target: Target) -> Schedule:
    waves = kernel.attrs["waves"]
    assert isinstance(waves, int)
    writer = _Writer(target, waves)
    ops = list(_loops(kernel.body, 0))
    loops = [writer.loop(op, depth) for op, depth in ops]
    orders = {op: found.text() for op, found in rate(kernel, target)}
    for (op, _), loop in zip(ops, loops, strict=True):
        loop.order = orders.get(op, "")
    return Schedule(kernel.name, target.name, waves, loops)


def _loops(block: Block, depth: int) -> Iterator[tuple[Op, int]]:
    for op in block.ops:
        is_loop = op.name in ("for", "while")
        if is_loop:
            yield op, depth
        for region in op.regions:
            yield from _loops(region, depth + is_loop)


class _Writer:
    """Writes the rows of loops."""

    def __init__(self, target: Target, waves: int):
        self.target, self.waves = target, waves

    def loop(self, op: Op, depth: int) -> Loop:
        ops = [o for region in op.regions for o in region.ops if o.name != "yield"]
        rows = list(self._joined(self._rows(ops)))
        vm = lgkm = 0
        for _ in range(3):  # counters are bounded by the waits of the text: the third time is as the second
            waits = iter([o for o in ops if o.name == "wait"])
            for row in rows:
                vm += row.instructions if row.kind in (COPY, LOAD, STORE) else 0
                lgkm += row.instructions if row.kind in (READ, WRITE) else 0
                if row.kind == ORDER and row.text.startswith("wait"):
                    wait = next(waits)
                    vm, lgkm = (_left(wait, name, n) for name, n in (("vm", vm), ("lgkm", lgkm)))
                row.vm, row.lgkm = vm, lgkm
        counts = Counter[str]()
        clocks = Counter[str]()
        for row in rows:
            counts[row.kind] += row.instructions
            clocks[row.kind] += row.clocks
        variable = op.regions[0].args[0].name if op.name == "for" else "while"
        return Loop(op.loc.line, variable, depth, rows, dict(counts), {k: n for k, n in clocks.items() if n})

    def _rows(self, ops: Sequence[Op]) -> Iterator[Row]:
        slot, priority = 0, 0
        for op in ops:
            if op.name == "schedule_fence":
                slot += 1
                continue
            if op.name == "priority":
                level = op.attrs["level"]
                assert isinstance(level, int)
                priority = level
            if op.name not in NAMES:
                yield self._row(op, slot, priority)
            if op.name == "barrier":
                slot += 1

    def _row(self, op: Op, slot: int, priority: int) -> Row:
        if op.name in _ORDERS:
            words = ", ".join(f"{k} = {v}" for k, v in op.attrs.items() if op.name != "barrier")
            return Row(slot, ORDER, f"{op.name} {words}".strip(), 0, 1, 0, priority)
        if op.regions:
            inside = sum(len(r.ops) for r in op.regions)
            what = (
                "waves skip it that need no row" if op.name == "guard" else "see below" if _is_loop(op) else "a branch"
            )
            return Row(slot, REGION, f"{op.name}: {inside} ops, {what}", 0, 0, 0, priority)
        if op.name in _KINDS:
            count, size = self._accesses(op)
            kind = _KINDS[op.name]
            lds = size if kind in (READ, WRITE, COPY) or op.name == "copy" else 0
            return Row(slot, kind, self._access_text(op), 0, count, lds, priority)
        if op.name == "mfma":
            m, n, k = op.attrs["instr"]  # type: ignore[misc]
            a, b, c = (v.name for v in op.operands)
            text = f"mfma {m}x{n}x{k} %{op.result.name} = %{a} · %{b} + %{c}"
            return Row(slot, MATRIX, text, instruction_clocks(op, self.target), 1, 0, priority)
        if op.name == "mma":
            return self._product(op, slot, priority)
        return self._vector(op, slot, priority)

    def _product(self, op: Op, slot: int, priority: int) -> Row:
        """An `mma` of tiles: as many instructions as its size takes."""
        a, c = op.operands[0].tile, op.result.tile
        instr = op.attrs.get("instr")
        count = _UNKNOWN
        if isinstance(instr, tuple) and len(instr) == 3:
            m, n, k = instr
            count = -(-c.shape[0] // m) * -(-c.shape[1] // n) * -(-a.shape[1] // k) // self.waves
        clocks = count * instruction_clocks(op, self.target)
        return Row(slot, MATRIX, f"mma %{op.result.name}", clocks, count, 0, priority)

    def _vector(self, op: Op, slot: int, priority: int) -> Row:
        t = op.results[0].type if op.results else None
        if isinstance(t, FragmentType) and not t.elem.is_bool:
            unit = unit_of(op, self.target)
            return Row(slot, VECTOR, op.name, unit.busy * unit.count, unit.count, 0, priority)
        if isinstance(t, TileType) and not t.is_scalar and t.layout is not None:
            n = t.layout.num_registers
            return Row(slot, VECTOR, op.name, unit_of(op, self.target).busy * n, n, 0, priority)
        return Row(slot, SCALAR, op.name, 0, 1, 0, priority)

    def _accesses(self, op: Op) -> tuple[int, int]:
        """Instructions of a wave, and the bytes that it moves."""
        if op.name in ("copy_async", "copy_async_part"):
            piece = op.attrs["bytes"]
            assert isinstance(piece, int)
            count = 1 if op.name == "copy_async_part" else rounds(op, self.waves)[1]
            return count, count * LANES * piece
        size = _lane_bytes(op.results[0] if op.results else op.operands[0])
        widest = op.attrs.get("bytes", _WIDEST)
        if op.name.endswith("_fragment"):
            return 1, size * LANES
        assert isinstance(widest, int)
        return -(-size // max(1, widest)), size * LANES

    def _access_text(self, op: Op) -> str:
        buffer = next((v for v in op.operands if isinstance(v.type, SharedType)), None)
        names = [f"%{v.name}" for v in op.results]
        if buffer is not None:
            offset = buffer.owner.attrs.get("offset") if buffer.owner is not None else None
            names.append(f"%{buffer.name}" + (f" at byte {offset}" if offset is not None else ""))
        at = (
            [f"register {op.attrs['at']}"]
            if "at" in op.attrs
            else [f"part {op.attrs['part']}"]
            if "part" in op.attrs
            else []
        )
        view = [f"%{v.name}" for v in op.operands if v.type.__class__.__name__ == "GlobalType"]
        return " ".join([op.name, ", ".join([*names, *view, *at])])

    def _joined(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Vector and scalar ops that follow each other in a slot become one row."""
        run: list[Row] = []
        for row in rows:
            if run and (
                row.kind not in (VECTOR, SCALAR)
                or (row.kind, row.slot, row.priority) != (run[0].kind, run[0].slot, run[0].priority)
            ):
                yield _sum(run)
                run = []
            if row.kind in (VECTOR, SCALAR):
                run.append(row)
            else:
                yield row
        if run:
            yield _sum(run)


def _sum(run: Sequence[Row]) -> Row:
    names = Counter(row.text for row in run)
    text = ", ".join(name if n == 1 else f"{n} x {name}" for name, n in names.items())
    first = run[0]
    clocks, count = (sum(getattr(row, name) for row in run) for name in ("clocks", "instructions"))
    return Row(first.slot, first.kind, text, clocks, count, 0, first.priority)


def _is_loop(op: Op) -> bool:
    return op.name in ("for", "while")


def _left(wait: Op, counter: str, under_way: int) -> int:
    """Instructions that a wait leaves under way."""
    most = wait.attrs.get(counter, -1)
    assert isinstance(most, int)
    return under_way if most < 0 else min(under_way, most)


def _lane_bytes(v: Value) -> int:
    """Bytes that a lane holds of a tile or fragment; 0 for what has no layout."""
    t = v.type
    if isinstance(t, FragmentType):
        return t.count * t.elem.bits // 8
    if isinstance(t, TileType) and t.layout is not None:
        return t.layout.num_registers * t.elem.bits // 8
    return _UNKNOWN


def text(schedule: Schedule) -> str:
    """The loops as tables."""
    lines = [f"kernel {schedule.kernel} on {schedule.target}, {schedule.waves} waves, {len(schedule.loops)} loops"]
    for loop in schedule.loops:
        inside = f", inside of {loop.depth} others" if loop.depth else ""
        lines += ["", f"loop %{loop.variable}, line {loop.line}{inside}: {_totals(loop)}"]
        lines.append("slot  clocks    vm  lgkm  priority  LDS bytes")
        last = -1
        for row in loop.rows:
            slot = str(row.slot) if row.slot != last else ""
            last = row.slot
            clocks, size = str(row.clocks or ""), str(row.lds_bytes or "")
            lines.append(
                f"{slot:>4} {clocks:>7} {row.vm:>5} {row.lgkm:>5} {row.priority or '':>9} {size:>10}  {row.text}"
            )
    return "\n".join(lines) + "\n"


def _totals(loop: Loop) -> str:
    words = [f"{loop.clocks.get(kind, 0)} clocks of {kind} instructions" for kind in (MATRIX, VECTOR)]
    words += [
        f"{loop.counts[kind]} x {kind}" for kind in (MATRIX, READ, WRITE, COPY, LOAD, STORE) if loop.counts.get(kind)
    ]
    return ", ".join(words) + (f"; in this order {loop.order}" if loop.order else "")


def as_json(schedules: Sequence[Schedule]) -> str:
    """The same as data: a list of kernels, fields as of `Schedule`, `Loop` and `Row`."""
    return json.dumps([asdict(s) for s in schedules], indent=1) + "\n"
