"""Building ops: names, type inference and insertion in one place, for the frontend and for every pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from tileir.ir import registry
from tileir.ir.core import AttrValue, Block, Op, Value
from tileir.ir.location import UNKNOWN, Loc
from tileir.ir.types import Elem, TileType, Type


class Names:
    """Hands out value names that are unique in one kernel. `taken` are the names in use, or a function that finds them when the first name is
    asked for: most rewrites ask for none."""

    def __init__(self, taken: Iterable[str] | Callable[[], Iterable[str]] = ()):
        self._find = taken
        self._next: dict[str, int] = {}

    @cached_property
    def _taken(self) -> set[str]:
        return set(self._find() if callable(self._find) else self._find)

    def fresh(self, hint: str = "") -> str:
        """`hint` itself if it is free (and not empty), else the hint with the lowest number that is."""
        if hint and hint not in self._taken:
            self._taken.add(hint)
            return hint
        n = self._next.get(hint, 0)
        stem = f"{hint}_" if hint else ""
        while f"{stem}{n}" in self._taken:
            n += 1
        self._next[hint] = n + 1
        self._taken.add(f"{stem}{n}")
        return f"{stem}{n}"


class Builder:
    """Appends type-checked ops to a block."""

    def __init__(self, block: Block, names: Names, loc: Loc = UNKNOWN):
        self.block = block
        self.names = names
        self.loc = loc

    def insert(self, op: Op) -> Op:
        self.block.ops.append(op)
        return op

    def op(
        self,
        name: str,
        operands: Sequence[Value] = (),
        attrs: dict[str, AttrValue] | None = None,
        *,
        spans: tuple[int | None, ...] | None = None,
        regions: Sequence[Block] = (),
        types: Sequence[Type | None] = (),
        names: Sequence[str] = (),
        loc: Loc | None = None,
        operand_locs: Sequence[Loc] = (),
        num_results: int | None = None,
        hint: str = "",
    ) -> Op:
        """Checks, infers the result types and appends. `names` are the exact result names; without them fresh ones
        are made from `hint`. Raises CompileError."""
        loc = loc or self.loc
        attrs = registry.without_defaults(name, attrs or {})
        inferred = registry.infer(
            name,
            [v.type for v in operands],
            attrs,
            spans=spans,
            regions=regions,
            expected=types,
            loc=loc,
            operand_locs=operand_locs,
            num_results=num_results,
        )
        results = [
            Value(names[i] if i < len(names) else self.names.fresh(hint), t, loc) for i, t in enumerate(inferred)
        ]
        return self.insert(Op(name, list(operands), attrs, results, list(regions), spans, loc, list(operand_locs)))

    def value(
        self, name: str, operands: Sequence[Value] = (), attrs: dict[str, AttrValue] | None = None, **kw: object
    ) -> Value:
        """Like `op`, for ops with exactly one result."""
        return self.op(name, operands, attrs, **kw).result  # type: ignore[arg-type]

    def constant(self, value: int | float | bool, elem: Elem, loc: Loc | None = None, hint: str = "c") -> Value:
        """A scalar constant."""
        return self.value("constant", (), {"value": value}, types=[TileType(elem)], loc=loc, hint=hint)
