"""Writing one LLVM-dialect function: names, constants, blocks, locations.

The *body* takes the ops in order. What depends only on arguments, lane and wave (coordinates, LDS addresses) is *hoisted*: computed
once, before the outermost loop that uses it, or behind the last loop where no loop does. Constants and numbers of lanes go to
the *prologue* in the entry block; if all went there, addresses of one version or of the epilogue would fill registers throughout.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import lru_cache

from tileir.ir.location import Loc
from tileir.ir.ops.contract import SCALE
from tileir.ir.types import Elem
from tileir.lowering.amdgpu.emit import packed
from tileir.passes.mfma_choice import SCALES_TOGETHER
from tileir.records import dataclass

MLIR_TYPES = {
    "i1": "i1",
    "i8": "i8",
    "i16": "i16",
    "i32": "i32",
    "i64": "i64",
    "f64": "f64",
    "f32": "f32",
    "f16": "f16",
    "bf16": "bf16",
}


def scalar_type(elem: Elem) -> str:
    """Type of one element in registers: of MLIR, where 8-bit floats travel as i8, or of `packed` for narrower floats."""
    if elem.is_float and elem.bits < 8:
        return f"u{elem.bits}"
    return MLIR_TYPES.get(elem.name, "i8")


WORD = 4
"""Bytes of a register."""


def vector_type(element: str, n: int) -> str:
    """MLIR type of a piece: `element` itself for n = 1, else a vector of it; what `packed` says for its types."""
    if element in packed.WIDTHS:
        return packed.piece_type(element, n)
    return element if n == 1 else f"vector<{n}x{element}>"


@lru_cache(maxsize=256)
def whole_words(type: str) -> str:
    """The type in which a value goes from block to block: bytes as words of four. LLVM takes vectors of bytes apart that are alive
    in several blocks, one register a byte, and puts them together again behind every jump."""
    if not type.startswith("vector<") or not type.endswith("xi8>"):
        return type
    count = int(type[len("vector<") : -len("xi8>")])
    if count % WORD:
        return type
    return vector_type("i32", count // WORD)


def fragment_type(elem: Elem, n: int) -> str:
    """MLIR type of a fragment: that of a piece; up to four scales of blocks are one word, as the matrix instructions take them."""
    return "i32" if elem.name == SCALE and n <= SCALES_TOGETHER else vector_type(scalar_type(elem), n)


@lru_cache(maxsize=64)
def file_name(path: str) -> str:
    """The last part of a path as it can stand in an MLIR string."""
    return "".join(c if c.isprintable() and c not in '"\\\\' else "_" for c in os.path.basename(path))


@dataclass
class Scope:
    """Where hoisted values of a region go, a place of the body that all of the region behind it passes, those there are, and how some
    others are made there once they are asked for."""

    target: list[str]
    values: dict[object, str] = field(default_factory=dict[object, str])
    makers: dict[object, Callable[[], str]] = field(default_factory=dict[object, Callable[[], str]])


@dataclass
class Writer:
    """The text of one function under construction. Values are MLIR names such as `%v12`."""

    file: str
    loc: Loc = field(default_factory=Loc)
    prologue: list[str] = field(default_factory=list[str])
    body: list[str | list[str]] = field(default_factory=list["str | list[str]"])
    block: int = 0  # number of the current block; values made in it may be used later in it only with certainty
    _count: int = 0
    _blocks: int = 0
    _target: list[str] | None = None  # where a hoisted value is being written
    _hoisted: dict[object, str] = field(default_factory=dict[object, str])
    _scopes: list[Scope] = field(default_factory=list["Scope"])
    _loops: int = 0
    _local: Scope | None = None  # where hoisted values of the current stretch stand, if they are its own
    masks: dict[object, int] = field(default_factory=dict[object, int])  # bits that a hoisted value can have set
    _casts: dict[str, tuple[str, str]] = field(
        default_factory=dict[str, "tuple[str, str]"]
    )  # what was cast, of which type
    _locs: dict[tuple[str, int, int], int] = field(default_factory=dict[tuple[str, int, int], int])
    _last_loc: tuple[Loc | None, str] = (None, "")  # and its text, which many lines have in common

    # -- lines ---------------------------------------------------------------------------------------------------------

    def name(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def line(self, text: str) -> None:
        """A statement without result."""
        line = f"      {text} {self.loc_text()}"
        if self._target is not None:
            self._target.append(line)
        else:
            self.body.append(line)

    def op(self, text: str) -> str:
        """A statement with one result; gives its name."""
        name = self.name()
        self.line(f"{name} = {text}")
        return name

    def loc_text(self) -> str:
        loc, text = self._last_loc
        if loc is not self.loc:
            text = self._loc_text(self.loc)
            self._last_loc = self.loc, text
        return text

    def _loc_text(self, loc: Loc) -> str:
        if not loc.line:
            return "loc(unknown)"
        key = (file_name(loc.file) or self.file, loc.line, loc.column)
        return f"loc(#l{self._locs.setdefault(key, len(self._locs))})"

    def loc_aliases(self) -> list[str]:
        return [f'#l{n} = loc("{file}":{line}:{column})' for (file, line, column), n in self._locs.items()]

    def hoist(self, key: object, emit: Callable[[], str], *, entry: bool = False) -> str:
        """The value under `key`, emitted on first use to where loops do not repeat it (`entry`: into the prologue). `emit`
        may only use hoisted values, and for the prologue values of the prologue."""
        if self._local is not None and self._target is not self.prologue:
            if key in self._local.values or not entry:
                return self._hoist_here(key, emit)
        for scope in () if self._target is self.prologue else reversed(self._scopes):
            if key in scope.makers:
                make = scope.makers.pop(key)
                with self.writing(scope.target):
                    scope.values[key] = make()
            if key in scope.values:
                return scope.values[key]
        entry = entry or self._target is self.prologue
        if key in self._hoisted:
            return self._hoisted[key]
        top = not self._scopes or entry
        target, values = (self.prologue, self._hoisted) if top else (self._scopes[-1].target, self._scopes[-1].values)
        outer, self._target = self._target, target
        value = emit()
        self._target = outer
        values[key] = value
        return value

    def _hoist_here(self, key: object, emit: Callable[[], str]) -> str:
        local = self._local
        assert local is not None
        if key not in local.values:
            outer, self._target = self._target, local.target
            local.values[key] = emit()
            self._target = outer
        return local.values[key]

    def stretch(self, known: Mapping[object, str]) -> Scope:
        """A stretch of the current block, from here on, that shares no hoisted value with the rest: see `local`. `known` are the
        values of some keys, in place of those that the rest of the text uses."""
        return Scope(self.place(), dict(known))

    @contextmanager
    def local(self, stretch: Scope) -> Generator[None, None, None]:
        """What is written belongs to this stretch: its hoisted values stand where it begins, except for constants."""
        assert self._target is None
        outer, self._local = self._local, stretch
        yield
        self._local = outer

    def mark(self) -> None:
        """Hoisted values of the current region go here from now on, unless this is inside a loop."""
        if self._scopes and not self._loops:
            self._scopes[-1].target = self.place()

    def forget(self, makers: Mapping[object, Callable[[], str]]) -> None:
        """Hoisted values of the current region are computed again from here on, instead of being kept from before, unless this is inside a
        loop. `makers` write the values of some keys, also of those of the prologue, in place of those that stood there before; what nobody
        asks for is not written, since it would keep registers in use from before the loop."""
        if self._scopes and not self._loops:
            self._scopes[-1] = Scope(self.place(), makers=dict(makers))

    @contextmanager
    def scope(self) -> Generator[None, None, None]:
        """A region that is not always passed: what is hoisted in it is not known behind it. Nothing inside a loop."""
        if self._loops:
            yield
            return
        self._scopes.append(Scope(self.place()))
        yield
        self._scopes.pop()

    @contextmanager
    def loop(self) -> Generator[None, None, None]:
        """The body of a loop; hoisted values go to the last mark before the outermost."""
        self._loops += 1
        yield
        self._loops -= 1

    @property
    def in_loop(self) -> bool:
        """Whether the body of a loop is being written."""
        return self._loops > 0

    def place(self) -> list[str]:
        """Where lines that are written later stand (`writing`): here."""
        place: list[str] = []
        self.body.append(place)
        return place

    @contextmanager
    def writing(self, place: list[str]) -> Generator[None, None, None]:
        """What is written stands at that place."""
        outer, self._target = self._target, place
        yield
        self._target = outer

    def lines(self) -> list[str]:
        """Prologue and body."""
        return [*self.prologue, *(line for x in self.body for line in ([x] if isinstance(x, str) else x))]

    @property
    def hoisting(self) -> bool:
        """Whether a hoisted value is being written."""
        return self._target is not None

    def has(self, key: object) -> bool:
        """Whether something was hoisted under `key`."""
        return key in self._hoisted

    # -- blocks --------------------------------------------------------------------------------------------------------

    def label(self) -> str:
        self._blocks += 1
        return f"^b{self._blocks}"

    def start(self, label: str, args: Sequence[tuple[str, str]] = ()) -> None:
        """Begins a block; `args` are (name, type) pairs."""
        arrive = [(n, t) if whole_words(t) == t else (self.name(), whole_words(t)) for n, t in args]
        text = ", ".join(f"{n}: {t} {self.loc_text()}" for n, t in arrive)
        self.body.append(f"    {label}{f'({text})' if args else ''}:")
        self.block = self._blocks = self._blocks + 1
        for (n, t), (words, held) in zip(args, arrive, strict=True):
            if n != words:
                self.line(f"{n} = llvm.bitcast {words} : {held} to {t}")
                self._casts[n] = words, held

    def branch(self, label: str, values: Sequence[str] = (), types: Sequence[str] = ()) -> None:
        self.line(f"llvm.br {label}{self._handed(values, types)}")

    def _handed(self, values: Sequence[str], types: Sequence[str]) -> str:
        """Values on their way to a block, as text."""
        held = [whole_words(t) for t in types]
        return _block_args([self.bitcast(v, t, h) for v, t, h in zip(values, types, held, strict=True)], held)

    def cond_branch(
        self,
        condition: str,
        then: str,
        other: str,
        then_args: tuple[Sequence[str], Sequence[str]] = ((), ()),
        other_args: tuple[Sequence[str], Sequence[str]] = ((), ()),
    ) -> None:
        first, second = self._handed(*then_args), self._handed(*other_args)
        self.line(f"llvm.cond_br {condition}, {then}{first}, {other}{second}")

    def when(self, condition: str, text: str) -> None:
        """A statement without result that runs only in the lanes where `condition` holds ("": in all)."""
        if not condition:
            self.line(text)
            return
        then, after = self.label(), self.label()
        self.cond_branch(condition, then, after)
        self.start(then)
        self.line(text)
        self.branch(after)
        self.start(after)

    # -- constants and small integer arithmetic --------------------------------------------------------------------------

    def const(self, value: int, type: str = "i32") -> str:
        return self.hoist(
            ("const", value, type), lambda: self.op(f"llvm.mlir.constant({value} : {type}) : {type}"), entry=True
        )

    def splat_const(self, text: str, element: str, n: int) -> str:
        """A constant given as MLIR attribute text, repeated `n` times."""
        t = vector_type(element, n)
        if element in packed.WIDTHS:
            return self.splat_codes(int(text), element, n)
        value = f"dense<{text}> : {t}" if n > 1 else text if element == "i1" else f"{text} : {element}"
        return self.hoist(("splat", text, t), lambda: self.op(f"llvm.mlir.constant({value}) : {t}"), entry=True)

    def splat_codes(self, code: int, element: str, n: int) -> str:
        """A piece of `packed` with one code `n` times."""
        bits = packed.WIDTHS[element]
        whole = sum(code << bits * i for i in range(n))
        signed = [w - (1 << 32) if w >> 31 else w for w in (whole >> at & 0xFFFFFFFF for at in range(0, n * bits, 32))]
        t = vector_type(element, n)
        value = f"dense<{signed}> : {t}" if t.startswith("vector") else f"{signed[0]} : {t}"
        return self.hoist(("codes", code, t, n), lambda: self.op(f"llvm.mlir.constant({value}) : {t}"), entry=True)

    def binary(self, op: str, a: str, b: str, type: str = "i32") -> str:
        return self.op(f"llvm.{op} {a}, {b} : {type}")

    def add(self, a: str, c: int, type: str = "i32") -> str:
        return a if c == 0 else self.binary("add", a, self.const(c, type), type)

    def mul(self, a: str, c: int, type: str = "i32") -> str:
        if c == 1:
            return a
        if c > 0 and c & (c - 1) == 0:
            return self.binary("shl", a, self.const(c.bit_length() - 1, type), type)
        return self.binary("mul", a, self.const(c, type), type)

    def icmp(self, predicate: str, a: str, b: str, type: str = "i32") -> str:
        return self.op(f'llvm.icmp "{predicate}" {a}, {b} : {type}')

    def select(self, c: str, a: str, b: str, type: str, condition: str = "i1") -> str:
        words = whole_words(type) if condition == "i1" else type
        if words != type:  # LLVM would choose byte by byte
            a, b = self.bitcast(a, type, words), self.bitcast(b, type, words)
        chosen = self.op(f"llvm.select {c}, {a}, {b} : {condition}, {words}")
        return self.bitcast(chosen, words, type)

    def to_i64(self, a: str, type: str) -> str:
        return a if type == "i64" else self.op(f"llvm.sext {a} : {type} to i64")

    def bitcast(self, a: str, source: str, target: str) -> str:
        """A value as another type; what was cast from that type is the value before."""
        if source == target:
            return a
        before = self._casts.get(a)
        if before is not None and before[1] == target:
            return before[0]
        name = self.op(f"llvm.bitcast {a} : {source} to {target}")
        self._casts[name] = a, source
        return name

    def load(self, text: str, type: str) -> str:
        """A load, whose text ends with the type: of whole words where it brings as many bytes."""
        words = whole_words(type)
        return self.bitcast(self.op(f"{text}{words}"), words, type)

    def extract(self, vector: str, i: int, type: str) -> str:
        return self.op(f"llvm.extractelement {vector}[{self.const(i)} : i32] : {type}")

    def pack(self, values: Sequence[str], element: str) -> str:
        """A vector of scalars (the scalar itself if there is one)."""
        if len(values) == 1:
            return values[0]
        if element in packed.WIDTHS:
            return packed.joined(self, values, element, 1)
        t = vector_type(element, len(values))
        v = self.hoist(("poison", t), lambda: self.op(f"llvm.mlir.poison : {t}"), entry=True)
        for i, x in enumerate(values):
            v = self.op(f"llvm.insertelement {x}, {v}[{self.const(i)} : i32] : {t}")
        return v


def _block_args(values: Sequence[str], types: Sequence[str]) -> str:
    return f"({', '.join(values)} : {', '.join(types)})" if values else ""
