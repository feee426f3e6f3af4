"""Writing one LLVM-dialect function: names, constants, blocks, locations.

Two streams are kept. The *prologue* ends up in the entry block and takes what depends only on arguments, lane and wave
(constants, coordinates, strides, LDS addresses), so that it is computed once; the *body* takes the ops in order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tileir.ir.location import Loc
from tileir.ir.types import Elem

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
    """MLIR type of one element in registers; 8-bit floats travel as i8."""
    return MLIR_TYPES.get(elem.name, "i8")


def vector_type(element: str, n: int) -> str:
    """`element` itself for n = 1, else a vector of it."""
    return element if n == 1 else f"vector<{n}x{element}>"


def file_name(path: str) -> str:
    """The last part of a path as it can stand in an MLIR string."""
    return "".join(c if c.isprintable() and c not in '"\\\\' else "_" for c in os.path.basename(path))


@dataclass
class Writer:
    """The text of one function under construction. Values are MLIR names such as `%v12`."""

    file: str
    loc: Loc = field(default_factory=Loc)
    prologue: list[str] = field(default_factory=list[str])
    body: list[str] = field(default_factory=list[str])
    block: int = 0  # number of the current block; values made in it may be used later in it only with certainty
    _count: int = 0
    _blocks: int = 0
    _hoisting: bool = False
    _hoisted: dict[object, str] = field(default_factory=dict[object, str])
    masks: dict[object, int] = field(default_factory=dict[object, int])  # bits that a hoisted value can have set
    _locs: dict[tuple[str, int, int], int] = field(default_factory=dict[tuple[str, int, int], int])

    # -- lines ---------------------------------------------------------------------------------------------------------

    def name(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def line(self, text: str) -> None:
        """A statement without result."""
        (self.prologue if self._hoisting else self.body).append(f"      {text} {self.loc_text()}")

    def op(self, text: str) -> str:
        """A statement with one result; gives its name."""
        name = self.name()
        self.line(f"{name} = {text}")
        return name

    def loc_text(self) -> str:
        if not self.loc.line:
            return "loc(unknown)"
        key = (file_name(self.loc.file) or self.file, self.loc.line, self.loc.column)
        return f"loc(#l{self._locs.setdefault(key, len(self._locs))})"

    def loc_aliases(self) -> list[str]:
        return [f'#l{n} = loc("{file}":{line}:{column})' for (file, line, column), n in self._locs.items()]

    def hoist(self, key: object, emit: Callable[[], str]) -> str:
        """The value under `key`, emitted into the prologue on first use. `emit` may only use hoisted values."""
        if key not in self._hoisted:
            outer, self._hoisting = self._hoisting, True
            self._hoisted[key] = emit()
            self._hoisting = outer
        return self._hoisted[key]

    @property
    def hoisting(self) -> bool:
        """Whether statements go to the prologue now."""
        return self._hoisting

    def has(self, key: object) -> bool:
        """Whether something was hoisted under `key`."""
        return key in self._hoisted

    # -- blocks --------------------------------------------------------------------------------------------------------

    def label(self) -> str:
        self._blocks += 1
        return f"^b{self._blocks}"

    def start(self, label: str, args: Sequence[tuple[str, str]] = ()) -> None:
        """Begins a block; `args` are (name, type) pairs."""
        text = ", ".join(f"{n}: {t} {self.loc_text()}" for n, t in args)
        self.body.append(f"    {label}{f'({text})' if args else ''}:")
        self.block = self._blocks = self._blocks + 1

    def branch(self, label: str, values: Sequence[str] = (), types: Sequence[str] = ()) -> None:
        self.line(f"llvm.br {label}{_block_args(values, types)}")

    def cond_branch(
        self,
        condition: str,
        then: str,
        other: str,
        then_args: tuple[Sequence[str], Sequence[str]] = ((), ()),
        other_args: tuple[Sequence[str], Sequence[str]] = ((), ()),
    ) -> None:
        self.line(f"llvm.cond_br {condition}, {then}{_block_args(*then_args)}, {other}{_block_args(*other_args)}")

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
        return self.hoist(("const", value, type), lambda: self.op(f"llvm.mlir.constant({value} : {type}) : {type}"))

    def splat_const(self, text: str, element: str, n: int) -> str:
        """A constant given as MLIR attribute text, repeated `n` times."""
        t = vector_type(element, n)
        value = f"dense<{text}> : {t}" if n > 1 else text if element == "i1" else f"{text} : {element}"
        return self.hoist(("splat", text, t), lambda: self.op(f"llvm.mlir.constant({value}) : {t}"))

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
        return self.op(f"llvm.select {c}, {a}, {b} : {condition}, {type}")

    def to_i64(self, a: str, type: str) -> str:
        return a if type == "i64" else self.op(f"llvm.sext {a} : {type} to i64")

    def bitcast(self, a: str, source: str, target: str) -> str:
        return a if source == target else self.op(f"llvm.bitcast {a} : {source} to {target}")

    def extract(self, vector: str, i: int, type: str) -> str:
        return self.op(f"llvm.extractelement {vector}[{self.const(i)} : i32] : {type}")

    def pack(self, values: Sequence[str], element: str) -> str:
        """A vector of scalars (the scalar itself if there is one)."""
        if len(values) == 1:
            return values[0]
        t = vector_type(element, len(values))
        v = self.hoist(("poison", t), lambda: self.op(f"llvm.mlir.poison : {t}"))
        for i, x in enumerate(values):
            v = self.op(f"llvm.insertelement {x}, {v}[{self.const(i)} : i32] : {t}")
        return v


def _block_args(values: Sequence[str], types: Sequence[str]) -> str:
    return f"({', '.join(values)} : {', '.join(types)})" if values else ""
