"""Takes tile ops apart into ops on fragments: the parts that one matrix instruction, one read of LDS or a few registers make up.

What is taken apart: matrix products, reads of LDS that only feed products, transposes, elementwise ops, swaps of rows of lanes, and
reductions that stay in the lane. `Parts` writes them in program order; `order_ops` then says in which order they stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from tileir.ir.core import AttrValue, Op, Value
from tileir.ir.ops.shape import permutation
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter
from tileir.ir.types import FragmentType, TileType
from tileir.layout.broadcasts import broadcast_registers
from tileir.layout.conversion import transpose_sources
from tileir.layout.mma import MmaPlan
from tileir.passes.lane_code import reduced_bits, reduced_waves
from tileir.passes.mma_cost import TRANSCENDENTAL
from tileir.passes.pressure import part_of_pin
from tileir.passes.weave import REGISTER_BITS, plan_of, read_count
from tileir.records import dataclass

TOGETHER = 2  # registers of an elementwise op that one op on a fragment computes
SLOW_TOGETHER = 1  # of a transcendental function, which takes as long as four others
READS = ("shared_load", "shared_load_transposed")
FOLDS = {"reduce_add": "add", "reduce_max": "max", "reduce_min": "min"}
_WHOLE = ("sin", "cos", "tan", "philox_bits", "philox_uniform")  # computed for whole tiles


@dataclass
class _Held:
    """A tile value as fragments of `size` registers, in order."""

    size: int
    fragments: list[Value]


@dataclass
class Parts:
    """Writes the parts of ops through `rw`. `users` are the ops that use each value, `inside` those that may be taken apart."""

    rw: Rewriter
    inside: set[Op]
    users: dict[Value, list[Op]]
    held: dict[Value, _Held] = field(default_factory=dict[Value, _Held])
    maps: dict[Value, Value] = field(default_factory=dict[Value, Value])
    cut: dict[tuple[Value, int, int], Value] = field(default_factory=dict[tuple[Value, int, int], Value])
    filled: dict[tuple[TileType, int], list[Value]] = field(default_factory=dict[tuple[TileType, int], list[Value]])

    # -- which ops -----------------------------------------------------------------------------------------------

    def takes(self, op: Op) -> bool:
        """Whether the op can be taken apart."""
        if (
            op.regions
            or len(op.results) != 1
            or not isinstance(op.result.type, TileType)
            or op.result.tile.layout is None
        ):
            return False
        if op.name == "mma":
            return len(op.operands) in (2, 3) and self._product(op) is not None
        if op.name in READS:
            n = read_count(op)
            whole = op.result.tile.layout.padded_shape == op.result.tile.layout.shape
            return whole and n * op.result.tile.elem.bits >= REGISTER_BITS and self._feeds_products(op.result)
        if op.name == "transpose":
            return self._feeds_products(op.result)
        if op.name in FOLDS:
            return self._folds(op)
        if op.name == "swap_lanes":
            return self._swaps(op)
        if op.name == "broadcast":
            return op.operands[0].tile.layout is not None and op.operands[0].tile.rank == op.result.tile.rank
        return get(op.name).elementwise and op.name not in _WHOLE and self._elementwise(op)

    def _product(self, op: Op) -> MmaPlan | None:
        plan = plan_of(op)
        if plan is None:
            return None
        for v in op.operands[:2]:
            layout = v.tile.layout
            if layout is None or layout.padded_shape != layout.shape or v.tile.elem.bits not in (8, 16, 32):
                return None
        return plan

    def _feeds_products(self, v: Value) -> bool:
        return all(
            u in self.inside and ((u.name == "mma" and v not in u.operands[2:]) or (u.name == "transpose" and self._feeds_products(u.result)))
            for u in self.users.get(v, [])
        )  # fmt: skip

    def _folds(self, op: Op) -> bool:
        x, axis, result = op.operands[0].tile, op.attrs["axis"], op.result.tile.layout
        if x.layout is None or not isinstance(axis, int) or result is None or x.elem.bits != REGISTER_BITS:
            return False
        across = [j for j in reduced_bits(x.layout, axis) if not result.lane[j][axis]]
        waves = [j for j in reduced_waves(x.layout, axis) if not result.wave[j][axis]]
        return not across and not waves and x.layout.padded_shape == x.layout.shape and not x.layout.free.reg

    @staticmethod
    def _swaps(op: Op) -> bool:
        """Whether whole registers change places, by the instruction that swaps rows of lanes."""
        t, register = op.result.tile, op.attrs["register"]
        assert isinstance(register, int)
        whole = t.layout is not None and t.layout.padded_shape == t.layout.shape and t.elem.bits in (16, 32)
        return whole and op.attrs["via"] == "permlane_swap" and 1 << register >= REGISTER_BITS // t.elem.bits

    def _elementwise(self, op: Op) -> bool:
        t = op.result.tile
        elems = [t.elem, *(v.elem for v in op.operands)]
        if any(e.bits not in (1, 16, 32) for e in elems) or t.layout is None:
            return False
        if t.layout.num_registers % self.count_of(op):
            return False
        return all(v.tile.is_scalar or self._source(op, v) is not None for v in op.operands)

    @staticmethod
    def count_of(op: Op) -> int:
        """Registers of a fragment of an elementwise op."""
        layout = op.result.tile.layout
        assert layout is not None
        return min(SLOW_TOGETHER if op.name in TRANSCENDENTAL else TOGETHER, layout.num_registers)

    def _source(self, op: Op, v: Value) -> tuple[int, ...] | None:
        """For each register of an elementwise result that of an operand; None where a fragment of it has no run of them."""
        layout = op.result.tile.layout
        if v.tile.layout is None or layout is None:
            return None
        if v.tile.shape == op.result.tile.shape:
            return tuple(range(layout.num_registers))
        sources = broadcast_registers(layout, v.tile.shape)
        n = self.count_of(op)
        runs = [sources[i : i + n] for i in range(0, len(sources), n)]
        if all(len(set(run)) == 1 or run == tuple(range(run[0], run[0] + n)) for run in runs):
            return sources
        return None

    # -- fragments -----------------------------------------------------------------------------------------------

    def of(self, v: Value, at: int, count: int) -> Value:
        """Registers `at` … of a tile."""
        key = (v, at, count)
        if key not in self.cut:
            self.cut[key] = self._of(v, at, count)
        return self.cut[key]

    def _of(self, v: Value, at: int, count: int) -> Value:
        held = self.held.get(v) or self._split(v, count)
        n = held.size
        if n == count and at % n == 0:
            return held.fragments[at // n]
        if n >= count:
            return self._value(
                "slice_fragment", [held.fragments[at // n]], {"at": at % n}, FragmentType(v.elem, count), v
            )
        parts = [held.fragments[i // n] for i in range(at, at + count, n)]
        return self._value("join_fragments", parts, {}, FragmentType(v.elem, count), v)

    def _split(self, v: Value, count: int) -> _Held:
        """The registers of a tile from outside."""
        new = self.rw.use(v)
        layout = v.tile.layout
        assert layout is not None
        n = self._width(v, count)
        types = [FragmentType(v.elem, n)] * (layout.num_registers // n)
        made = self.rw.op("split_registers", [new], types=types, hint=v.name)
        self.held[v] = _Held(n, list(made.results))
        return self.held[v]

    def _width(self, v: Value, count: int) -> int:
        """Registers of the fragments of a tile from outside: those of the widest use."""
        widths = [count]
        for u in self.users.get(v, []):
            if u.name == "mma" and u in self.inside and (plan := plan_of(u)) is not None:
                sizes = (plan.a_registers, plan.b_registers, plan.c_registers)
                widths += [n for n, x in zip(sizes, u.operands, strict=False) if x is v]
        layout = v.tile.layout
        assert layout is not None
        return max(n for n in widths if layout.num_registers % n == 0)

    def _value(
        self, name: str, operands: Sequence[Value], attrs: dict[str, AttrValue], type: FragmentType, like: Value
    ) -> Value:
        attrs = {k: a for k, a in attrs.items() if not (k == "at" and a == 0 and name != "slice_fragment")}
        result = Value(self.rw.names.fresh(like.name), type, self.rw.loc)
        self.rw.insert(Op(name, list(operands), attrs, [result], [], None, self.rw.loc))
        return result

    def tile(self, v: Value) -> Value:
        """A tile that was taken apart, put together again."""
        held = self.held[v]
        return self.rw.value("join_registers", held.fragments, types=[v.type], names=[v.name])

    # -- ops -----------------------------------------------------------------------------------------------------

    def write(self, op: Op) -> None:
        """The parts of an op."""
        self.rw.loc = op.loc
        if op.name == "mma":
            self._mma(op)
        elif op.name in READS:
            self._read(op)
        elif op.name == "transpose":
            self._transpose(op)
        elif op.name in FOLDS:
            self._fold(op)
        elif op.name == "broadcast":
            self._broadcast(op)
        elif op.name == "swap_lanes":
            self._swap(op)
        else:
            self._each(op)

    def _read(self, op: Op) -> None:
        t, n = op.result.tile, read_count(op)
        assert t.layout is not None
        table = self.rw.value("register_map", (), types=[t], hint=f"m{op.result.name}")
        buffer = self.rw.use(op.operands[0])
        type = FragmentType(t.elem, n)
        made = [
            self._value(f"{op.name}_fragment", [buffer, table], {"at": at}, type, op.result)
            for at in range(0, t.layout.num_registers, n)
        ]
        self.held[op.result] = _Held(n, made)

    def _transpose(self, op: Op) -> None:
        x = op.operands[0]
        assert x.tile.layout is not None
        sources = transpose_sources(x.tile.layout, permutation(op.attrs, x.tile.rank))
        if sources == tuple(range(len(sources))):
            if x not in self.held:
                self._split(x, self._width(op.result, 1))
            self.held[op.result] = self.held[x]
            return
        n = self._width(op.result, 1)
        while any(sources[i + j] != sources[i] + j for i in range(0, len(sources), n) for j in range(n)):
            n //= 2
        self.held[op.result] = _Held(n, [self.of(x, sources[i], n) for i in range(0, len(sources), n)])

    def _broadcast(self, op: Op) -> None:
        x, layout = op.operands[0], op.result.tile.layout
        assert layout is not None
        sources = broadcast_registers(layout, x.tile.shape)
        n = min(TOGETHER, len(sources))
        if len(sources) % n or any(
            sources[i + j] != sources[i] + j for i in range(0, len(sources), n) for j in range(n)
        ):
            n = 1
        self.held[op.result] = _Held(n, [self.of(x, sources[i], n) for i in range(0, len(sources), n)])

    def _swap(self, op: Op) -> None:
        """Register by register: those whose numbers differ in the bit."""
        x, t, register = op.operands[0], op.result.tile, op.attrs["register"]
        assert t.layout is not None and isinstance(register, int)
        n = REGISTER_BITS // t.elem.bits
        type, apart = FragmentType(t.elem, n), 1 << register
        made: dict[int, Value] = {}
        for at in range(0, t.layout.num_registers, n):
            if not at & apart:
                pair = [self.of(x, at, n), self.of(x, at | apart, n)]
                swapped = self.rw.op(
                    "swap_fragments", pair, {"lane": op.attrs["lane"]}, types=[type, type], hint=op.result.name
                )
                made[at], made[at | apart] = swapped.results
        self.held[op.result] = _Held(n, [made[at] for at in sorted(made)])

    def _mma(self, op: Op) -> None:
        plan = self._product(op)
        layout = op.result.tile.layout
        assert plan is not None and layout is not None
        swapped = bool(op.attrs.get("swapped", False))
        files = {k: op.attrs.get(k, "") for k in ("file", "file_a", "file_b")}
        if swapped:
            files["file_a"], files["file_b"] = files["file_b"], files["file_a"]
        attrs: dict[str, AttrValue] = {"instr": op.attrs["instr"], **{k: v for k, v in files.items() if v}}
        n = plan.c_registers
        count = layout.num_registers // n
        type = FragmentType(op.result.elem, n)
        acc: list[Value]
        if len(op.operands) == 3:
            acc = [self.of(op.operands[2], i * n, n) for i in range(count)]
        else:
            acc = list(self._filled(op.result.tile, 0 if op.result.elem.is_int else 0.0, n))
        for step in plan.steps:
            a, b = self.of(op.operands[0], step.a, plan.a_registers), self.of(op.operands[1], step.b, plan.b_registers)
            x, y = (b, a) if swapped else (a, b)
            i = step.c // n
            acc[i] = self._value("mfma", [x, y, acc[i]], attrs | part_of_pin(op, i, type.registers), type, op.result)
        self.held[op.result] = _Held(n, acc)

    def _filled(self, like: TileType, value: float | int, n: int) -> list[Value]:
        """Fragments of `n` registers of a tile that holds one number."""
        key = (like, n)
        if key not in self.filled:
            number = self.rw.constant(value, like.elem)
            whole = self.rw.value("fill", [number], types=[like], hint="fill")
            assert like.layout is not None
            types = [FragmentType(like.elem, n)] * (like.layout.num_registers // n)
            self.filled[key] = list(self.rw.op("split_registers", [whole], types=types, hint="fill").results)
        return self.filled[key]

    def _each(self, op: Op) -> None:
        t = op.result.tile
        assert t.layout is not None
        n = self.count_of(op)
        sources = {i: self._source(op, v) for i, v in enumerate(op.operands) if not v.tile.is_scalar}
        made: list[Value] = []
        for at in range(0, t.layout.num_registers, n):
            operands: list[Value] = []
            for i, v in enumerate(op.operands):
                registers = sources.get(i)
                if registers is None:
                    operands.append(self.rw.use(v))
                    continue
                run = registers[at : at + n]
                operands.append(self.of(v, run[0], 1 if len(set(run)) == 1 else n))
            made.append(self._value(op.name, operands, dict(op.attrs), FragmentType(t.elem, n), op.result))
        self.held[op.result] = _Held(n, made)

    def _fold(self, op: Op) -> None:
        x, axis = op.operands[0], op.attrs["axis"]
        layout = x.tile.layout
        assert layout is not None and isinstance(axis, int)
        source = x
        if op.name == "reduce_add" and x.owner is not None and x.owner.name == "convert" and x.owner in self.inside:
            narrow = x.owner.operands[0]
            if narrow.elem.is_float and narrow.elem.bits == 16:
                source = narrow
        attrs: dict[str, AttrValue] = {"kind": FOLDS[op.name]}
        if op.attrs.get("flush", False):
            attrs["flush"] = True
        one = FragmentType(x.elem, 1)
        made: list[Value] = []
        for number, group in enumerate(layout.reduce_sources(axis)):
            runs = _runs(group)
            if source is x and op.name == "reduce_add" and runs[0][1] == TOGETHER:
                # side by side, for packed additions
                sums = self.of(source, *runs[0])
                for at, n in runs[1:]:
                    sums = self._value("add", [sums, self.of(source, at, n)], {}, FragmentType(x.elem, n), op.result)
                first, second = (
                    self._value("slice_fragment", [sums], {"at": i}, one, op.result) for i in range(TOGETHER)
                )
                total = self._value("fold_fragment", [first, second], attrs, one, op.result)
                made.append(total)
                continue
            if source is x:
                at, n = runs[0]
                total = self.of(x, at, 1)
                runs = [*([(at + 1, n - 1)] if n > 1 else []), *runs[1:]]
            else:
                total = self._filled(op.result.tile, 0.0, 1)[number]
            for at, n in runs:
                total = self._value("fold_fragment", [total, self.of(source, at, n)], attrs, one, op.result)
            made.append(total)
        self.held[op.result] = _Held(1, made)


def _runs(registers: Sequence[int]) -> list[tuple[int, int]]:
    """Registers as runs of equal length, of at most `TOGETHER`: (first, length)."""
    ordered, n = sorted(registers), TOGETHER
    while len(ordered) % n or any(
        ordered[i + j] != ordered[i] + j for i in range(0, len(ordered), n) for j in range(n)
    ):
        n //= 2
    return [(ordered[i], n) for i in range(0, len(ordered), n)]
