"""The op registry: one declaration per op that parser, printer, verifier, interpreter and documentation all read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import cache
from typing import Any, NoReturn

from tileir.ir.core import AttrValue, Block, Text
from tileir.ir.diagnostics import Note, error
from tileir.ir.location import UNKNOWN, Loc
from tileir.ir.types import MAX_ELEMENTS, FragmentType, GlobalType, SharedType, TileType, Type
from tileir.records import dataclass


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()


@dataclass(frozen=True)
class AttrSpec:
    """An attribute. `kind` is int, number, bool, word, text, symbol, elem, shape (a list of integers) or numbers (a list).

    Positional attributes are written first in `<…>` without a name; the others are written `<name = value>`, or
    `(…, name = value)` when `paren` is set. An attribute equal to its default is not printed.
    """

    name: str
    kind: str
    default: Any = REQUIRED
    positional: bool = False
    paren: bool = False
    choices: tuple[str, ...] = ()
    doc: str = ""


class Check:
    """What a type rule sees of an op, and how it rejects one."""

    def __init__(
        self,
        name: str,
        operands: Sequence[Type],
        attrs: dict[str, AttrValue],
        spans: tuple[int | None, ...] | None,
        regions: Sequence[Block],
        expected: Sequence[Type | None],
        loc: Loc,
        operand_locs: Sequence[Loc],
        num_results: int | None,
    ):
        self.name = name
        self.operands = operands
        self.attrs = attrs
        self.spans = spans
        self.regions = regions
        self.expected = expected  # types written after ":", empty when none were
        self.loc = loc
        self.operand_locs = operand_locs
        self.num_results = num_results  # names on the left of "=", None when built by a pass

    def loc_of(self, operand: int | None) -> Loc:
        if operand is not None and operand < len(self.operand_locs) and self.operand_locs[operand].line:
            return self.operand_locs[operand]
        return self.loc

    def fail(
        self, code: str, message: str, at: int | None = None, *, legal: str = "", notes: Iterable[Note] = ()
    ) -> NoReturn:
        """Rejects the op; `at` is the number of the operand to underline."""
        raise error(code, message, self.loc_of(at), legal=legal, notes=notes)

    def tile(self, i: int, what: str = "a tile or scalar") -> TileType:
        """Operand `i`, which must be a tile or scalar."""
        t = self.operands[i]
        if not isinstance(t, TileType):
            self.fail("E0301", f"'{self.name}' wants {what} here, not {t}", i, legal="load from the view first")
        return t

    def wanted(self, i: int = 0) -> Type | None:
        return self.expected[i] if i < len(self.expected) else None


Rule = Callable[[Check], Sequence[Type]]
# (interpreter context, op, operand values) -> result or tuple of results; the op's attributes are checked before, so it is
# taken as Any and its attributes need no narrowing.
Semantics = Callable[[Any, Any, Sequence[Any]], Any]


@dataclass(frozen=True)
class OpDef:
    """Declaration of an op.

    operands: names of the operands in order; "access" stands for a view with its indices, "name*" for any number.
    level: "tile" (authors), "wave" (passes and experts) or "both".
    effects: of read, write, atomic, sync, alloc, control, async; empty means pure.
    literals: per operand (the last one stands for the rest) the element type that a literal takes: "" that of the run-time
        operands it meets, "result" that of the written result type, or the name of a fixed one.
    semantics: NumPy meaning, called by the interpreter (None for control flow, which the interpreter walks itself).
    """

    name: str
    summary: str
    operands: tuple[str, ...]
    rule: Rule
    attrs: tuple[AttrSpec, ...] = ()
    level: str = "tile"
    effects: frozenset[str] = frozenset()
    semantics: Semantics | None = None
    example: str = ""
    regions: int = 0
    category: str = ""
    infix: str = ""
    elementwise: bool = False
    literals: tuple[str, ...] = ()
    traits: frozenset[str] = field(default_factory=frozenset[str])

    def attr(self, name: str) -> AttrSpec | None:
        return next((a for a in self.attrs if a.name == name), None)

    @property
    def access_position(self) -> int | None:
        """Index of the view operand of an access, or None."""
        return self.operands.index("access") if "access" in self.operands else None

    @property
    def is_pure(self) -> bool:
        return not self.effects


_REGISTRY: dict[str, OpDef] = {}


def declare(definition: OpDef) -> OpDef:
    """Adds an op; its name must be new."""
    assert definition.name not in _REGISTRY, definition.name
    _REGISTRY[definition.name] = definition
    return definition


def lookup(name: str) -> OpDef | None:
    _load()
    return _REGISTRY.get(name)


def get(name: str) -> OpDef:
    """The declaration of an op that is known to exist."""
    _load()
    return _REGISTRY[name]


def all_ops() -> dict[str, OpDef]:
    """Every op by name, in order of declaration."""
    _load()
    return dict(_REGISTRY)


def _load() -> None:
    if not _REGISTRY:  # an import statement costs more than the lookup, of which passes do thousands
        import tileir.ir.ops  # noqa: F401  # pyright: ignore[reportUnusedImport]  (declarations register themselves)


def infer(
    name: str,
    operands: Sequence[Type],
    attrs: dict[str, AttrValue],
    *,
    spans: tuple[int | None, ...] | None = None,
    regions: Sequence[Block] = (),
    expected: Sequence[Type | None] = (),
    loc: Loc = UNKNOWN,
    operand_locs: Sequence[Loc] = (),
    num_results: int | None = None,
) -> list[Type]:
    """Result types of an op, after checking everything its declaration states. Raises CompileError.

    Where `expected` gives a type, it must equal the inferred one up to a layout that the rule leaves open.
    """
    definition = get(name)
    if definition.elementwise and any(isinstance(t, FragmentType) for t in operands):
        types = infer(
            name, [_as_tile(t) for t in operands], attrs, expected=[t and _as_tile(t) for t in expected], loc=loc,
            operand_locs=operand_locs, num_results=num_results,
        )  # fmt: skip
        return [FragmentType(t.elem, t.shape[0]) if isinstance(t, TileType) and t.rank == 1 else t for t in types]
    check = Check(name, operands, attrs, spans, regions, expected, loc, operand_locs, num_results)
    _check_attrs(definition, check)
    types = list(definition.rule(check))
    if num_results is not None and num_results != len(types):
        check.fail(
            "E0303",
            f"'{name}' has {len(types)} result{'s' if len(types) != 1 else ''}, but {num_results} names are given",
            legal=f"{len(types)} names on the left of '='",
        )
    for i, t in enumerate(types):
        if isinstance(t, TileType) and t.size > MAX_ELEMENTS:
            check.fail("E0344", f"'{name}' gives a tile of {t.size} elements", legal=f"at most {MAX_ELEMENTS} elements")
        want = check.wanted(i)
        if want is not None and want != t and not _open_layout(want, t):
            check.fail("E0304", f"'{name}' gives {t}, but its type is written as {want}", legal=f": {t}")
    return types


def _as_tile(t: Type) -> Type:
    """A fragment as a tile of rank 1: elementwise ops treat both alike, so a fragment of one element goes with any."""
    return TileType(t.elem, (t.count,)) if isinstance(t, FragmentType) else t


def _open_layout(want: Type, got: Type) -> bool:
    """A written type without a layout stands for the inferred one with its layout."""
    if isinstance(want, TileType) and isinstance(got, TileType):
        return want.layout is None and want == got.with_layout(None)
    return False


def _check_attrs(definition: OpDef, check: Check) -> None:
    for spec in definition.attrs:
        if spec.name not in check.attrs:
            if spec.default is REQUIRED:
                check.fail(
                    "E0305", f"'{check.name}' needs the attribute '{spec.name}'", legal=f"{spec.name}: {spec.kind}"
                )
            continue
        check_attr(f"'{definition.name}'", spec, check.attrs[spec.name], check.loc)
    for name in check.attrs:
        if definition.attr(name) is None:
            names = ", ".join(a.name for a in definition.attrs) or "none"
            check.fail("E0307", f"'{check.name}' has no attribute '{name}'", legal=f"its attributes: {names}")


def check_attr(owner: str, spec: AttrSpec, value: AttrValue, loc: Loc) -> None:
    """Raises CompileError unless the value is one that the attribute of `owner`, as a message names it, can have."""
    if _fits(spec, value):
        return
    legal = " | ".join(c for c in spec.choices if c) if spec.choices else _KINDS[spec.kind]
    raise error("E0306", f"attribute '{spec.name}' of {owner} cannot be {format_attr(value)}", loc, legal=legal)


_KINDS = {
    "int": "an integer",
    "number": "a number",
    "bool": "true or false",
    "constant": "a number, true or false",
    "word": "a word",
    "text": "a text in quotes",
    "symbol": "a dimension symbol such as M",
    "elem": "an element type such as bf16",
    "shape": "a list of integers such as [64, 64]",
    "numbers": "a list of numbers such as [0.5, 1.5]",
}


def is_default(spec: AttrSpec, value: AttrValue) -> bool:
    """Whether an attribute says nothing that its absence does not say (-0.0 is not 0)."""
    return value == spec.default and not (isinstance(value, float) and str(value).startswith("-"))


def without_defaults(name: str, attrs: dict[str, AttrValue]) -> dict[str, AttrValue]:
    """The attributes of an op that are printed: an op never carries one that equals its default."""
    if not attrs:
        return {}
    optional = _optional_attrs(name)
    return {k: v for k, v in attrs.items() if k not in optional or not is_default(optional[k], v)}


@cache
def _optional_attrs(name: str) -> dict[str, AttrSpec]:
    return {a.name: a for a in get(name).attrs if a.default is not REQUIRED}


def _fits(spec: AttrSpec, value: AttrValue) -> bool:
    from tileir.ir.types import Elem

    match spec.kind:
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "bool":
            return isinstance(value, bool)
        case "constant":
            return isinstance(value, int | float | bool)
        case "word" | "symbol":
            return (
                isinstance(value, str) and not isinstance(value, Text) and (not spec.choices or value in spec.choices)
            )
        case "text":
            return isinstance(value, Text)
        case "elem":
            return isinstance(value, Elem)
        case "numbers":
            return isinstance(value, tuple) and all(
                isinstance(v, int | float) and not isinstance(v, bool) for v in value
            )
        case "shape":
            return isinstance(value, tuple) and all(isinstance(v, int) and not isinstance(v, bool) for v in value)
    raise AssertionError(spec.kind)


def format_attr(value: AttrValue) -> str:
    """An attribute value as the language writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format_float(value)
    if isinstance(value, Text):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return "[" + ", ".join(format_attr(v) for v in value) + "]"
    return str(value)


def format_float(value: float) -> str:
    """The shortest text that reads back as the same float64."""
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    text = repr(value)
    if "e" in text and "." not in text.split("e")[0]:
        mantissa, exponent = text.split("e")
        text = f"{mantissa}.0e{exponent}"
    return text


def view_rank(t: Type) -> int | None:
    """Rank of something that an access can index, else None."""
    return t.rank if isinstance(t, GlobalType | SharedType) else None
