"""Which numbers of a launch must be aligned, so that the operands of products in loops are loaded with wide accesses.

    for %k = %lo to %hi step 64 {
      %a = load(%A[%i * 64 +: 64, %k +: 64])

Nothing says that `%lo`, an argument, is a multiple of 8. If it is not, each element is loaded by itself, which costs most of the speed of a
product; so it is tested once per launch, beside base address and strides (`split-access`), and is a fact in the version for wide
accesses. Tested are numbers that are there before the loops: arguments, dimensions, numbers of workgroups, and what arithmetic makes of
them. A start that comes from memory, or that a loop carries, is not. Nor are those of other loads: one that is meant to be unaligned
would take all others of its launch with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tileir.ir.builder import Builder
from tileir.ir.core import Kernel, Op, Value
from tileir.ir.registry import get
from tileir.ir.rewriter import uses
from tileir.ir.types import GlobalType, TileType
from tileir.passes.facts import Divisibility

_SOURCES = ("constant", "dim", "program_id", "num_programs")
_DIVISIONS = ("div", "mod", "cdiv")
PRODUCTS = ("mma", "mma_scaled")


def start_tests(kernel: Kernel, wanted: Iterable[tuple[Value, int]], facts: Divisibility) -> dict[Value, int]:
    """Scalars that are to be tested at launch, and the power of two that must divide each, so that each of the `wanted` starts is a multiple of
    its number; without those for which nothing would do."""
    found: dict[Value, int] = {}
    launch = _LaunchNumbers(kernel)
    for start, need in wanted:
        for v, n in (launch.roots(start, need, facts) or {}).items():
            found[v] = max(n, found.get(v, 1))
    return found


def emit_tests(builder: Builder, tests: dict[Value, int], mapping: dict[Value, Value]) -> list[Value]:
    """Whether each number is a multiple (i1), computed anew where the builder stands. `mapping`: the arguments of the new kernel."""
    made = dict(mapping)

    def again(v: Value) -> Value:
        op = v.owner
        if v not in made:
            assert op is not None
            new = builder.op(
                op.name,
                [again(x) for x in op.operands],
                dict(op.attrs),
                types=[r.type for r in op.results],
                num_results=len(op.results),
                loc=op.loc,
                hint=v.name,
            )
            made.update(zip(op.results, new.results, strict=True))
        return made[v]

    found: list[Value] = []
    for v, n in tests.items():
        number = again(v)
        mask = builder.constant(n - 1, v.tile.elem)
        rest = builder.value("and", [number, mask], hint="rest")
        found.append(builder.value("eq", [rest, builder.constant(0, v.tile.elem)], hint="aligned"))
    return found


def operand_loads(kernel: Kernel) -> list[Op]:
    """Loads in loops whose tiles become operands of products there, as they are or converted and transposed."""
    users = uses(kernel)
    loops = [op for op in kernel.walk() if op.name in ("for", "while")]
    found: dict[Op, None] = {}
    for op in (op for loop in loops for op in loop.walk()):
        if op.name != "load" or op.attrs.get("bytes") or op in found:
            continue
        pending, seen = [op.result], set[Value]()
        while pending:
            v = pending.pop()
            for user, i in users.get(v, ()):
                if user.name in PRODUCTS and i != 2:
                    found[op] = None
                elif len(user.results) == 1 and not user.regions and user.result not in seen:
                    seen.add(user.result)
                    pending.append(user.result)
    return list(found)


class _LaunchNumbers:
    """Which scalars are known before the loops of a kernel."""

    def __init__(self, kernel: Kernel):
        self._known: dict[Value, bool] = {a: not isinstance(a.type, GlobalType) for a in kernel.args}
        self._loops = {op.regions[0].args[0]: op for op in kernel.walk() if op.name == "for"}

    def has(self, v: Value) -> bool:
        """Whether a scalar is one: an argument, a dimension, a number of the workgroup, or arithmetic of such that cannot fail."""
        if v not in self._known:
            op = v.owner
            self._known[v] = False
            if op is not None and isinstance(v.type, TileType) and v.type.is_scalar and v.type.elem.is_int:
                pure = op.name in _SOURCES or (get(op.name).elementwise and op.name not in _DIVISIONS)
                self._known[v] = pure and all(self.has(x) for x in op.operands)
        return self._known[v]

    def roots(self, v: Value, need: int, facts: Divisibility) -> dict[Value, int] | None:
        """Launch numbers of which `v` is a multiple of `need` if they are of theirs; None if that cannot be said."""
        if facts.of(v) % need == 0:
            return {}
        if self.has(v):
            return {v: need}
        op = v.owner or self._loops.get(v)
        if op is None:
            return None
        if op.name == "for":
            return self._all((op.operands[0], op.operands[2]), need, facts)
        if op.name in ("add", "sub", "min", "max"):
            return self._all(op.operands, need, facts)
        if op.name == "mul":
            for x, y in (op.operands, reversed(op.operands)):
                by = math.gcd(facts.of(x), need)
                if by > 1:
                    return self.roots(y, need // by, facts)
        return None

    def _all(self, values: tuple[Value, ...] | list[Value], need: int, facts: Divisibility) -> dict[Value, int] | None:
        found: dict[Value, int] = {}
        for v in values:
            roots = self.roots(v, need, facts)
            if roots is None:
                return None
            for x, n in roots.items():
                found[x] = max(n, found.get(x, 1))
        return found
