"""Random well-typed kernels.

`random_kernel` makes a tile-level kernel that verifies and has defined behaviour for any arrays that fit its views: loops are
short, every access may reach outside its view (which is defined), integer division is total, and every workgroup stores to
places of its own.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Protocol, TypeVar

from tileir.fuzz.constructs import function, masked_loop, talk
from tileir.ir import expr, registry
from tileir.ir.builder import Builder, Names
from tileir.ir.core import AttrValue, Block, Kernel, Op, Text, Value
from tileir.ir.location import Loc
from tileir.ir.ops.atomic import ORDERINGS, SCOPES, UPDATES
from tileir.ir.types import ELEMS, F32, I1, I32, I64, Elem, GlobalType, TileType, scalar
from tileir.ir.verifier import verify
from tileir.records import dataclass

FLOATS = ("f32", "bf16", "f16", "f64")
SMALL_FLOATS = ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ", "f6E2M3FN", "f6E3M2FN", "f4E2M1FN")
INTS = ("i32", "i64", "i16", "i8")
_DIMS = (1, 2, 3, 8, 16, 32)
_EXACT_UNARY = "neg abs sqrt rcp floor ceil round".split()
_FLOAT_UNARY = (
    "neg abs exp exp2 log log2 sqrt rsqrt rcp sin cos tan sinh cosh tanh erf sigmoid floor ceil round".split()
)
_BINARY = "add sub mul div mod min max".split()
_INT_BINARY = "cdiv mulhi mulhi_unsigned and or xor shl shr".split()
_COMPARE = "eq ne lt le gt ge".split()
_REDUCE_BITS = "reduce_and reduce_or reduce_xor".split()
_SCAN = "scan_add scan_mul scan_max scan_min".split()
_REDUCE = "reduce_add reduce_max reduce_min reduce_mul".split()


_VIEW_DIMS: tuple[int | str, ...] = ("M", "N", "P", 1, 7, 64)
T = TypeVar("T")


class Choices(Protocol):
    """Where the decisions come from: a seed (`Seeded`), or a tool that can shrink them (hypothesis, in our tests)."""

    def integer(self, low: int, high: int) -> int: ...

    def boolean(self) -> bool: ...

    def real(self) -> float:
        """Any number that f32 has, NaN and infinities included."""
        ...

    def pick(self, options: Sequence[T]) -> T: ...


class Seeded:
    """Choices that follow from a seed alone."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def boolean(self) -> bool:
        return self._random.random() < 0.5

    def real(self) -> float:
        (value,) = struct.unpack("<f", self._random.getrandbits(32).to_bytes(4, "little"))
        return value

    def pick(self, options: Sequence[T]) -> T:
        return options[self._random.randrange(len(options))]


@dataclass(frozen=True)
class Limits:
    """How far a random kernel may go."""

    ops: int = 12
    elems: tuple[str, ...] = ("f32", "bf16", "f16", "i32", "i64")
    control: bool = True
    dims: tuple[int, ...] = _DIMS
    depth: int = 2
    views: int = 2
    outputs: int = 2
    exclude: frozenset[str] = field(default_factory=frozenset)
    exact: bool = False
    """Only kernels of which every bit is defined: no sums of floats, no functions, no bits of NaN."""


class Maker:
    """Appends random ops; `pool` are the values in scope."""

    def __init__(self, choices: Choices, limits: Limits, builder: Builder, views: list[Value]):
        self.choices = choices
        self.limits = limits
        self.b = builder
        self.views = views
        self.pool: list[Value] = []
        self.ids: list[Value] = []
        self.depth = 0
        self.in_guard = False
        self.line = 0

    # -- choices -----------------------------------------------------------------------------------------------------

    def pick(self, options: Sequence[T]) -> T:
        return self.choices.pick(list(options))

    def elem(self, kinds: str = "int float") -> Elem:
        return self.pick([ELEMS[n] for n in self.limits.elems if ELEMS[n].kind in kinds.split()])

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        rank = self.choices.integer(1, 3) if rank is None else rank
        return tuple(self.pick(self.limits.dims) for _ in range(rank))

    def tiles(self, kinds: str = "int float", rank: int | None = None) -> list[Value]:
        return [
            v
            for v in self.pool
            if v.tile.elem.kind in kinds.split() and (rank is None or v.tile.rank == rank) and v.tile.size <= 4096
        ]

    def like(self, v: Value) -> list[Value]:
        """Values that an elementwise op can combine with `v`."""
        return [w for w in self.pool if w.tile.elem == v.tile.elem and _broadcasts(v.tile.shape, w.tile.shape)]

    def emit(self, name: str, operands: Sequence[Value] = (), **kw: Any) -> Value:
        self.line += 1
        hint = self.pick(["", "", "x", "acc"])
        op = self.b.op(name, operands, hint=hint, loc=Loc("random.tile", self.line, 3, self.line, 9), **kw)
        self.pool += op.results
        return op.result

    # -- leaves ------------------------------------------------------------------------------------------------------

    def constant(self, elem: Elem | None = None) -> Value:
        elem = elem or self.pick([*(ELEMS[n] for n in self.limits.elems), I1])
        if elem.is_bool:
            value: object = self.choices.boolean()
        elif elem.is_int:
            value = (
                self.choices.integer(-(1 << (elem.bits - 1)), (1 << (elem.bits - 1)) - 1)
                if self.choices.boolean()
                else self.choices.integer(-4, 4)
            )
        else:
            value = self.pick([0.0, 1.0, -0.5, 2.5, 1e-3]) if self.choices.boolean() else self.choices.real()
        return self.emit("constant", attrs={"value": value}, types=[scalar(elem)])

    def number(self, value: int) -> Value:
        return self.emit("constant", attrs={"value": value}, types=[scalar(I32)])

    def index(self) -> Value:
        scalars = [v for v in self.pool if v.type in (scalar(I32), scalar(I64))]
        if scalars and self.choices.boolean():
            return self.pick(scalars)
        return self.emit("constant", attrs={"value": self.choices.integer(-4, 40)}, types=[scalar(I32)])

    def load(self, rank: int | None = None, elem: Elem | None = None) -> Value:
        views = [v for v in self.views if rank is None or v.view.rank >= rank]
        view = self.pick([v for v in views if elem is None or v.view.elem == elem] or views)
        spanned = [self.choices.boolean() for _ in range(view.view.rank)]
        if rank is not None:
            spanned = [i >= view.view.rank - rank for i in range(view.view.rank)]
        spans = [self.pick(self.limits.dims) if s else None for s in spanned]
        indices = [self.index() for _ in spans]
        if True in spanned and "gather" not in self.limits.exclude and self.choices.integer(0, 3) == 0:
            d = self.pick([d for d, s in enumerate(spanned) if s])
            indices[d], spans[d] = self.rows(), None
        attrs: dict[str, object] = {}
        if view.view.elem.is_float:
            pad = self.pick([0, float("-inf"), 1.5])
            attrs = {"pad": pad} if pad else {}
        return self.emit("load", [view, *indices], attrs=attrs, spans=tuple(spans))

    def rows(self) -> Value:
        """A tile of indices: numbers that are there, or a few in and out of any view."""
        known = [v for v in self.tiles("int", 1) if v.tile.elem in (I32, I64) and v.tile.size <= 64]
        columns = [
            v for v in self.tiles("int", 2) if v.tile.elem in (I32, I64) and v.tile.shape[1] == 1 and v.tile.size <= 64
        ]
        if known + columns and self.choices.boolean():
            return self.pick(known + columns)
        n = self.pick(self.limits.dims)
        shape = (n, 1) if self.choices.boolean() else (n,)
        step = self.emit("constant", attrs={"value": self.choices.integer(-3, 3)}, types=[scalar(I32)])
        first = self.emit("constant", attrs={"value": self.choices.integer(-2, n)}, types=[scalar(I32)])
        return self.emit("fma", [self.emit("iota", attrs={"shape": shape}), step, first])

    def iota(self) -> Value:
        shape = self.shape()
        return self.emit("iota", attrs={"shape": shape, "axis": self.choices.integer(0, len(shape) - 1)})

    def table(self) -> Value:
        elem = self.elem()
        numbers = [-2, -1, 0, 1, 2, 5, 100] if elem.is_int else [-2.5, -1.0, 0.0, 0.25, 1.0, 3.0]
        count = self.pick(self.limits.dims)
        values = tuple(self.pick(numbers) for _ in range(count))
        return self.emit("table", attrs={"elem": elem, "values": values})

    def fill(self) -> Value:
        value = self.constant()
        return self.emit("fill", [value], types=[TileType(value.tile.elem, self.shape())])

    # -- operations --------------------------------------------------------------------------------------------------

    def any_value(self, kinds: str = "int float", rank: int | None = None) -> Value:
        known = self.tiles(kinds, rank)
        if known:
            return self.pick(known)
        elem = self.elem(kinds)
        if not rank:
            return self.constant(elem)
        loaded = self.load(min(rank, max(v.view.rank for v in self.views)), elem)
        if loaded.tile.rank != rank:
            loaded = self.emit("fill", [self.constant(elem)], types=[TileType(elem, self.shape(rank))])
        return loaded if loaded.tile.elem == elem else self.emit("convert", [loaded], attrs={"elem": elem})

    def binary(self) -> Value:
        a = self.any_value()
        names = _BINARY + (_INT_BINARY if a.tile.elem.is_int else [] if self.limits.exact else ["pow", "atan2"])
        return self.emit(self.pick(names), self.shuffled(a, self.pick(self.like(a))))

    def shuffled(self, a: Value, b: Value) -> list[Value]:
        return [a, b] if self.choices.boolean() else [b, a]

    def compare(self) -> Value:
        a = self.any_value()
        return self.emit(self.pick(_COMPARE), self.shuffled(a, self.pick(self.like(a))))

    def unary(self) -> Value:
        a = self.any_value()
        floats = _EXACT_UNARY if self.limits.exact else _FLOAT_UNARY
        return self.emit(self.pick(floats if a.tile.elem.is_float else ["neg", "abs", "not"]), [a])

    def where(self) -> Value:
        a = self.any_value()
        b = self.pick(self.like(a))
        shape = _common(a.tile.shape, b.tile.shape)
        masks = [v for v in self.pool if v.tile.elem == I1 and _broadcasts(shape, v.tile.shape)]
        return self.emit("where", [self.pick(masks) if masks else self.constant(I1), a, b])

    def ternary(self) -> Value:
        a = self.any_value()
        b = self.pick(self.like(a))
        same = [v for v in self.like(a) if v.tile.shape in ((), a.tile.shape)]
        return self.emit(self.pick(["fma", "clamp"]), [a, b, self.pick(same)])

    def convert(self) -> Value:
        a = self.any_value("int float bool")
        return self.emit("convert", [a], attrs={"elem": self.elem()})

    def narrow(self) -> Value:
        """A value of a small float, by any rounding, and back: nothing else is done with such values."""
        a = self.any_value("float")
        elem = ELEMS[self.pick(SMALL_FLOATS)]
        attrs: dict[str, AttrValue] = {"elem": elem}
        operands = [a]
        if self.choices.boolean():
            attrs["rounding"] = self.pick(["nearest_away", "toward_zero", "stochastic"])
            if elem.bits == 8 and self.choices.boolean():
                attrs["overflow"] = self.pick(["saturate", "infinity"])
        if attrs.get("rounding") == "stochastic":
            bits = [v for v in self.tiles("int") if v.type == TileType(I32, a.tile.shape)]
            if not bits:
                value = self.constant(I32)
                bits = [value if a.tile.is_scalar else self.emit("fill", [value], types=[TileType(I32, a.tile.shape)])]
            operands.append(self.pick(bits))
        small = self.b.value("convert", operands, attrs)
        return self.emit("convert", [small], attrs={"elem": self.elem("float")})

    def repack(self) -> Value:
        """Integers taken apart and put together, perhaps otherwise."""
        a = self.any_value("int", self.choices.integer(1, 3))
        parts = [e for e in (ELEMS["i8"], ELEMS["i16"], ELEMS["f4E2M1FN"]) if e.bits < a.tile.elem.bits]
        if not parts:
            return a
        apart = self.b.value("unpack", [a], {"elem": self.pick(parts)})
        words = [e for e in (ELEMS[n] for n in self.limits.elems) if e.is_int and apart.tile.elem.bits < e.bits <= 32]
        fitting = [e for e in words if apart.tile.shape[-1] * apart.tile.elem.bits % e.bits == 0]
        return self.emit("pack", [apart], attrs={"elem": self.pick(fitting)}) if fitting else a

    def bitcast(self) -> Value:
        a = self.any_value("int" if self.limits.exact else "int float")
        same = [ELEMS[n] for n in self.limits.elems if ELEMS[n].bits == a.tile.elem.bits]
        return self.emit("bitcast", [a], attrs={"elem": self.pick(same)})

    def update(self, value: Value, access: list[Value], spans: list[int | None]) -> Value:
        """An atomic update of places that nobody else accesses; the value itself where there is none on its type."""
        # A view with an odd number of 16-bit elements ends inside the 4 bytes that an update works on.
        names = [
            n for n, (elems, _, _) in UPDATES.items() if value.tile.elem.name in elems and value.tile.elem.bits > 16
        ]
        if not names:
            return value
        name = self.pick(names)
        expected = [self.pick([v for v in self.like(value) if v.tile.shape in ((), value.tile.shape)] or [value])]
        if self.choices.boolean():
            self.b.op(
                name, [*(expected if name == "atomic_cas" else []), value, *access], spans=tuple(spans), num_results=0
            )
            if name in ("atomic_xchg", "atomic_cas"):
                return value
        attrs = {"scope": self.pick(SCOPES), "ordering": self.pick(ORDERINGS)}
        return self.emit(
            name, [*(expected if name == "atomic_cas" else []), value, *access], attrs=attrs, spans=tuple(spans)
        )

    def transpose(self) -> Value:
        a = self.any_value(rank=2)
        perm = self.pick([None, (0, 1), (1, 0)])
        return self.emit("transpose", [a], attrs={"perm": perm} if perm else {})

    def reshape(self) -> Value:
        a = self.any_value()
        shapes = [(a.tile.size,), (1, a.tile.size), (a.tile.size, 1), (1, a.tile.size, 1)]
        return self.emit("reshape", [a], attrs={"shape": self.pick(shapes)})

    def broadcast(self) -> Value:
        a = self.any_value("int float bool")
        shape = a.tile.shape or self.shape()
        grown = tuple(self.pick(self.limits.dims) if n == 1 else n for n in shape)
        return self.emit("broadcast", [a], attrs={"shape": grown})

    def reduce(self) -> Value:
        a = self.any_value(rank=self.choices.integer(1, 2))
        attrs: dict[str, object] = {"axis": self.choices.integer(0, a.tile.rank - 1)}
        ordered = self.limits.exact and a.tile.elem.is_float
        names = ["reduce_max", "reduce_min"] if ordered else _REDUCE
        names = [*names, "reduce_argmax", "reduce_argmin"]
        return self.emit(self.pick(names if a.tile.elem.is_float else [*names, *_REDUCE_BITS]), [a], attrs=attrs)

    def truth(self) -> Value:
        tiles = self.tiles("bool")
        a = self.pick(
            [v for v in tiles if v.tile.rank]
            or [self.emit("fill", [self.constant(I1)], types=[TileType(I1, self.shape())])]
        )
        return self.emit(self.pick(["any", "all"]), [a], attrs={"axis": self.choices.integer(0, a.tile.rank - 1)})

    def assemble(self) -> Value:
        a = self.any_value("int float bool", rank=self.choices.integer(1, 2))
        name = self.pick(["slice", "insert", "concat"])
        if name == "concat":
            axis = self.choices.integer(0, a.tile.rank - 1)
            shape = [n for d, n in enumerate(a.tile.shape) if d != axis]
            same = [
                v
                for v in self.pool
                if v.tile.elem == a.tile.elem
                and v.tile.rank == a.tile.rank
                and [n for d, n in enumerate(v.tile.shape) if d != axis] == shape
                and v.tile.size <= 2048
            ]
            return self.emit("concat", [a, *(self.pick(same or [a]) for _ in range(2))], attrs={"axis": axis})
        offsets = tuple(self.choices.integer(0, n - 1) & self.pick([-1, -4, -8]) for n in a.tile.shape)
        sizes = tuple(self.choices.integer(1, n - at) for n, at in zip(a.tile.shape, offsets, strict=True))
        if name == "slice":
            return self.emit("slice", [a], attrs={"offsets": offsets, "shape": sizes})
        part = self.emit("slice", [a], attrs={"offsets": (0,) * a.tile.rank, "shape": sizes})
        return self.emit("insert", [a, part], attrs={"offsets": offsets})

    def scan(self) -> Value:
        a = self.any_value(rank=self.choices.integer(1, 2))
        ordered = self.limits.exact and a.tile.elem.is_float
        attrs: dict[str, object] = {"axis": self.choices.integer(0, a.tile.rank - 1)}
        attrs |= {name: True for name in ("exclusive", "reverse") if self.choices.boolean()}
        return self.emit(self.pick(_SCAN[2:] if ordered else _SCAN), [a], attrs=attrs)

    def mma(self) -> Value:
        floats = [n for n in self.limits.elems if ELEMS[n].is_float]
        tiles = [v for v in self.tiles("float", 2) if v.tile.elem.name in floats]
        a = self.pick(tiles) if tiles else self.any_value("float", 2)
        b = self.emit("transpose", [a])
        if self.choices.boolean():
            return self.emit("mma", [a, b])
        first = self.emit("mma", [a, b])
        return self.emit("mma", [a, b, first])

    def random_bits(self) -> Value:
        seed = self.constant(I64)
        counters = [v for v in self.pool if v.tile.elem == I64] or [seed]
        return self.emit(self.pick(["philox_bits", "philox_uniform"]), [seed, self.pick(counters)])

    def assertion(self) -> None:
        """An `assert` of something that always holds, with values in its message."""
        masks = [v for v in self.pool if v.tile.elem == I1] or [self.constant(I1)]
        mask = self.pick(masks)
        held = self.emit("or", [mask, self.emit("not", [mask])])
        values = [v for v in self.pool if v.tile.shape in ((), mask.tile.shape)][-2:]
        self.line += 1
        message = Text("{{x}} " + "{} " * len(values))
        self.b.op(
            "assert", [held, *values], attrs={"message": message}, loc=Loc("random.tile", self.line, 3, self.line, 9)
        )

    # -- control flow ------------------------------------------------------------------------------------------------

    def region(self, args: Sequence[Value], want: Sequence[TileType] | None) -> Block:
        """A region of a few ops that yields values of these types (None: nothing)."""
        outer, pool = self.b.block, list(self.pool)
        self.b.block = Block(list(args))
        self.pool += args
        self.depth += 1
        for _ in range(self.choices.integer(0, 3)):
            self.step()
        values = [self.of_type(t) for t in want or ()]
        self.b.insert(Op("yield", values, loc=Loc("random.tile", self.line, 1, self.line, 6)))
        self.depth -= 1
        block, self.b.block, self.pool = self.b.block, outer, pool
        return block

    def of_type(self, t: TileType) -> Value:
        same = [v for v in self.pool if v.type == t]
        v = self.pick(same[-3:])
        return (
            self.emit(self.pick(["max", "min"]), [v, self.pick(same)])
            if not t.elem.is_bool and self.choices.boolean()
            else v
        )

    def fresh(self, t: TileType, hint: str) -> Value:
        return Value(self.b.names.fresh(hint), t)

    def loop(self) -> None:
        inits = [self.any_value() for _ in range(self.choices.integer(0, 2))]
        types = [v.tile for v in inits]
        elem = self.pick([I32, I64])
        bounds = [
            self.emit("constant", attrs={"value": self.choices.integer(low, high)}, types=[scalar(elem)])
            for low, high in ((-1, 2), (-1, 5), (1, 3))
        ]
        args = [self.fresh(scalar(elem), "k"), *(self.fresh(t, "c") for t in types)]
        body = self.region(args, types)
        self.control("for", [*bounds, *inits], [body])

    def counting_while(self) -> None:
        start = self.emit("constant", attrs={"value": self.choices.integer(0, 3)}, types=[scalar(I32)])
        first, second = self.fresh(scalar(I32), "n"), self.fresh(scalar(I32), "n")
        outer = self.b.block
        self.b.block = test = Block([first])
        limit = self.b.constant(3, I32)
        self.b.insert(Op("yield", [self.b.value("lt", [first, limit])]))
        self.b.block = outer
        pool = list(self.pool)
        body = self.region([second], None)
        self.pool = pool
        self.b.block = body
        body.ops.pop()
        self.b.insert(Op("yield", [self.b.value("add", [second, self.b.constant(1, I32)])]))
        self.b.block = outer
        self.control("while", [start], [test, body])

    def branch(self) -> None:
        conditions = [v for v in self.pool if v.type == scalar(I1)]
        condition = self.pick(conditions) if conditions else self.constant(I1)
        inits = [self.any_value() for _ in range(self.choices.integer(0, 2))]
        types = [v.tile for v in inits]
        regions = [self.region([self.fresh(t, "c") for t in types], types) for _ in range(self.choices.integer(1, 2))]
        self.control("if", [condition, *inits], regions)

    def guard(self) -> None:
        init = self.any_value(rank=2)
        rows = init.tile.shape[0]
        index = self.emit("iota", attrs={"shape": (rows, 1)})
        limit = self.emit("constant", attrs={"value": self.choices.integer(0, rows)}, types=[scalar(I32)])
        need = self.emit("lt", [index, limit])
        outer, self.in_guard = self.in_guard, True
        body = self.region([self.fresh(init.tile, "g")], [init.tile])
        self.in_guard = outer
        self.control("guard", [need, init], [body])

    def control(self, name: str, operands: Sequence[Value], regions: Sequence[Block]) -> None:
        self.line += 1
        op = self.b.op(name, operands, regions=regions, hint="r", loc=Loc("random.tile", self.line, 3, self.line, 6))
        self.pool += op.results

    # -- the whole ---------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One random op (with what it needs)."""
        steps = {
            "constant": self.constant, "load": self.load, "iota": self.iota, "fill": self.fill, "table": self.table, "binary": self.binary,
            "compare": self.compare, "unary": self.unary, "where": self.where, "ternary": self.ternary,
            "convert": self.convert, "bitcast": self.bitcast, "transpose": self.transpose, "reshape": self.reshape,
            "broadcast": self.broadcast, "reduce": self.reduce, "truth": self.truth, "scan": self.scan, "assemble": self.assemble,
            "mma": self.mma, "random": self.random_bits,
            "narrow": self.narrow, "repack": self.repack,
        }  # fmt: skip
        if not self.in_guard:
            steps |= {"assert": self.assertion, "talk": lambda: talk(self)}
        if self.limits.control and self.depth < self.limits.depth:
            steps |= {"for": self.loop, "while": self.counting_while, "if": self.branch, "guard": self.guard}
            steps |= {"masked_loop": lambda: masked_loop(self)}
        often = ("binary", "binary", "binary", "unary", "ternary")  # many ops each
        self.pick([steps[n] for n in (*steps, *often) if n not in self.limits.exclude])()


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    if not a or not b:
        return True
    return len(a) == len(b) and all(x == y or x == 1 or y == 1 for x, y in zip(a, b, strict=True)) and _small(a, b)


def _small(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    size = 1
    for n in _common(a, b):
        size *= n
    return size <= 8192


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(max(x, y) for x, y in zip(a, b, strict=True)) if a and b else a or b


def random_kernel(choices: Choices, limits: Limits | None = None) -> Kernel:
    """A random kernel; it has 1 to `limits.views` input views and stores up to `limits.outputs` values."""
    limits = limits or Limits()
    elems = [ELEMS[n] for n in limits.elems]
    args: list[Value] = []
    for i in range(choices.integer(1, limits.views)):
        rank = choices.integer(1, 3)
        dims = tuple(choices.pick(_VIEW_DIMS) for _ in range(rank))
        strides = (*(f"S{i}{d}" for d in range(rank - 1)), 1) if choices.integer(0, 2) == 0 else None
        args.append(Value(f"A{i}", GlobalType(choices.pick(elems), dims, strides)))
    views = list(args)
    args += [Value("s", scalar(F32)), Value("n", scalar(I32))]
    names = Names({a.name for a in args} | {f"{x}{i}" for x in "OP" for i in range(limits.outputs)} | {"F"})
    maker = Maker(choices, limits, Builder(Block(), names), views)
    maker.pool += [a for a in args if isinstance(a.type, TileType) and a.type.elem.name in limits.elems]
    rank = choices.integer(1, 3)
    ids = maker.b.op("program_id", num_results=rank, hint="i")
    maker.pool += ids.results
    maker.ids = list(ids.results)
    symbols = [d for v in views if isinstance(v.type, GlobalType) for d in v.type.dims if isinstance(d, str)]
    if symbols and choices.boolean():
        symbol = symbols[0]
        maker.emit("dim", attrs={"symbol": symbol})
    for _ in range(
        choices.integer(1, choices.pick([*[limits.ops // 4 + 1] * 3, limits.ops // 2, limits.ops]))
    ):  # many small
        maker.step()
    sizes = [choices.integer(1, 3) for _ in range(rank)]
    place = maker.b.constant(0, I32)
    for size, i in zip(reversed(sizes), reversed(ids.results), strict=True):
        place = maker.b.value("add", [maker.b.value("mul", [place, maker.b.constant(size, I32)]), i])
    stored = [choices.pick(maker.pool[-6:]) for _ in range(choices.integer(1, limits.outputs))]
    for i, value in enumerate(stored):
        if value.tile.elem.is_bool:
            value = maker.emit("convert", [value], attrs={"elem": maker.elem()})
        shape = value.tile.shape
        view = Value(f"O{i}", GlobalType(value.tile.elem, (math.prod(sizes), *shape)))
        args.append(view)
        zero = maker.b.constant(0, I32)
        indices: list[Value] = [zero] * len(shape)
        spans: list[int | None] = list(shape)
        if shape and "scatter" not in limits.exclude and choices.integer(0, 3) == 0:  # rows from last to first
            d = choices.integer(0, len(shape) - 1)
            row = maker.b.value("iota", attrs={"shape": (shape[d],)})
            indices[d] = maker.b.value("sub", [maker.b.constant(shape[d] - 1, I32), row])
            spans[d] = None
        access, spans = [view, place, *indices], [None, *spans]
        if "atomic" not in limits.exclude and choices.integer(0, 3) == 0:
            value = maker.update(value, access, spans)
            view = Value(f"P{i}", GlobalType(value.tile.elem, (math.prod(sizes), *shape)))
            args.append(view)
            access[0] = view
        maker.b.op("store", [value, *access], spans=tuple(spans))
    if limits.exact and "function" not in limits.exclude and choices.integer(0, 2) == 0:
        value = function(maker)
        if value is not None:
            view = Value("F", GlobalType(value.tile.elem, (math.prod(sizes), *value.tile.shape)))
            args.append(view)
            start = [maker.b.constant(0, I32)] * value.tile.rank
            maker.b.op("store", [value, view, place, *start], spans=(None, *value.tile.shape))
    kernel = Kernel(
        choices.pick(["k", "mma", "for_1"]),
        _params(choices),
        args,
        tuple(expr.integer(n) for n in sizes),
        maker.b.block,
        fp=choices.pick(["default", "strict", "fast"]),
    )
    verify(kernel)
    assert all(registry.lookup(op.name) is not None for op in kernel.walk())
    return kernel


def _params(choices: Choices) -> dict[str, int | float | bool | Elem]:
    """Parameters, which are no more than words in the text of a kernel."""
    found: dict[str, int | float | bool | Elem] = {}
    for name in ("BM", "T", "CAUSAL", "EPS"):
        if choices.integer(0, 3) == 0:
            kind = choices.integer(0, 3)
            found[name] = (
                choices.integer(-(1 << 63), (1 << 63) - 1)
                if kind == 0
                else choices.boolean()
                if kind == 1
                else choices.real()
                if kind == 2
                else choices.pick(list(ELEMS.values()))
            )
    return found
