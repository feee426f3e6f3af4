"""Which accesses of a kernel can meet in memory: what `synchronise` and its checker agree on before they disagree.

An access is one read or write of an LDS buffer or of a view by one op. Two accesses conflict when one of them writes and
they can touch the same byte. For views, spans that are provably apart (by constant differences of their indices, also
between iterations of a loop) do not conflict; LDS buffers are compared by the byte ranges they are allocated at.
"""

from __future__ import annotations

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.ops.atomic import has_updates_that_commute
from tileir.ir.registry import get
from tileir.ir.types import GlobalType, SharedType
from tileir.passes.lds_sizes import buffer_bytes
from tileir.passes.meeting import Span, groups
from tileir.passes.outstanding import instructions
from tileir.records import dataclass

VM, LGKM = "vm", "lgkm"
Loops = frozenset[Op]
Way = tuple[tuple[Op, int], ...]
"""The ops that an op is inside of, with the number of the region, from the outermost."""


_ACCESSES = frozenset({"read", "write", "atomic"})  # effects
_LDS = -1  # the group of all its accesses
_WRAPS = 1 << 31
# Ops that write a part of a tile to LDS, and the attribute that says which: parts with other numbers do not overlap.
_PARTS = {"copy_async_part": ("part", -1), "shared_store_fragment": ("at", 0)}


class Access:
    """One access. `place` is the buffer or view, `counter` the hardware counter that tells when it is complete."""

    __slots__ = ("counter", "in_lds", "op", "place", "writes")

    def __init__(self, op: Op, place: Value, writes: bool, counter: str) -> None:
        self.op = op
        self.place = place
        self.writes = writes
        self.counter = counter
        self.in_lds = isinstance(place.type, SharedType)

    def describe(self) -> str:
        """`the copy_async to %sa`."""
        return f"the '{self.op.name}' {'to' if self.writes else 'of'} %{self.place.name}"


@dataclass(frozen=True)
class Form:
    """An integer as sum of coefficient · value plus constant."""

    terms: tuple[tuple[Value, int], ...]
    constant: int

    def minus(self, other: Form) -> Form:
        terms = dict(self.terms)
        for v, c in other.terms:
            terms[v] = terms.get(v, 0) - c
        return Form(tuple((v, c) for v, c in terms.items() if c), self.constant - other.constant)


class Memory:
    """The accesses of a kernel, and which of them conflict."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        waves = kernel.attrs.get("waves")
        self.single_wave = waves == 1
        self._holder: dict[Value, tuple[Op, int, int]] = {}
        self._inside: dict[Op, set[Value]] = {}
        self._forms: dict[Value, Form] = {}
        self._origins: dict[Value, frozenset[Op]] = {}
        self._meetings: dict[tuple[Value, Value], bool] = {}
        self._alike: dict[object, Access] = {}
        self._first_alike: dict[Access, Access] = {}
        # Of accesses of LDS: the one of those that are asked for, the other of the first that are alike.
        self._conflicts: dict[tuple[Access, Access], bool] = {}
        self._orders: dict[tuple[Access, Access], bool] = {}
        self._aliases = {frozenset(pair) for pair in kernel.aliases}
        for op in kernel.walk():
            for r, region in enumerate(op.regions):
                self._holder.update((v, (op, r, i)) for i, v in enumerate(region.args))
        self._way: dict[Op, Way] = {}
        self._varying: set[Value] = set()  # what is defined inside loops
        self._find_ways(kernel.body, (), False)
        found = {op: self._accesses(op) for op in kernel.walk()}
        # A number that accesses have in common if they may meet: one for all of LDS, others for views.
        self._group: dict[Access, int] = {a: _LDS for accesses in found.values() for a in accesses if a.in_lds}
        self._find_groups([a for accesses in found.values() for a in accesses if not a.in_lds])
        self.accesses: dict[Op, tuple[Access, ...]] = {
            op: kept for op, accesses in found.items() if (kept := tuple(a for a in accesses if a in self._group))
        }
        self._relevant: dict[Block, list[Op]] = {}
        self.retrace()

    def retrace(self) -> None:
        """Takes notice of another order of the ops in their blocks."""
        self._trace(self.kernel.body)

    def _trace(self, block: Block) -> bool:
        relevant: list[Op] = []
        for op in block.ops:
            inside = [self._trace(region) for region in op.regions]
            orders = op.name in ("wait", "barrier", "barrier_of")
            if any(inside) or op in self.accesses or orders or instructions(op, self.kernel):
                relevant.append(op)
        self._relevant[block] = relevant
        return bool(relevant)

    def trace(self, block: Block) -> list[Op]:
        """The ops of a block that access memory, are counted by waits or order accesses, or hold such ops."""
        return self._relevant[block]

    def of(self, op: Op) -> tuple[Access, ...]:
        """Accesses of an op that can conflict with any other."""
        return self.accesses.get(op, ())

    @staticmethod
    def _accesses(op: Op) -> list[Access]:
        definition = get(op.name)
        effects = definition.effects
        if effects.isdisjoint(_ACCESSES):
            return []
        at, writes = definition.access_position, "write" in effects or "atomic" in effects
        buffers = [v for v in op.operands if isinstance(v.type, SharedType)]
        fills = at is not None and bool(buffers)  # from global memory into LDS
        found = [Access(op, v, fills or writes, VM if "async" in effects else LGKM) for v in buffers]
        if at is not None:
            found.append(Access(op, op.operands[at], writes and not fills, VM))
        return found

    def _find_ways(self, block: Block, way: Way, looped: bool) -> None:
        for op in block.ops:
            self._way[op] = way
            if looped:
                self._varying.update(op.results)
            for i, region in enumerate(op.regions):
                again = looped or op.name in ("for", "while")
                if again:
                    self._varying.update(region.args)
                self._find_ways(region, (*way, (op, i)), again)

    def _find_groups(self, accesses: list[Access]) -> None:
        """Numbers the groups of accesses of views that may meet. Accesses that meet no other have no number: nobody waits for
        them."""
        joined: dict[str, str] = {}  # names of views that may share memory, some also through others

        def name(n: str) -> str:
            while joined.get(n, n) != n:
                n = joined[n]
            return n

        for pair in self.kernel.aliases:
            joined[name(pair[0])] = name(pair[1])
        shared = {name(a.place.name) for a in accesses if a.place.name != name(a.place.name)}
        by_memory: dict[str, list[Access]] = {}
        for a in accesses:
            by_memory.setdefault(name(a.place.name), []).append(a)
        number = 0
        for memory, mine in by_memory.items():
            view = mine[0].place.type
            assert isinstance(view, GlobalType)
            plain = view.strides is None and memory not in shared
            for part in self._apart_by_branches(mine):
                for group in groups(part, len(view.dims) if plain else 0, self._span, _WRAPS):
                    if self._meet(group):
                        self._group.update(dict.fromkeys(group, number))
                        number += 1

    def _apart_by_branches(self, accesses: list[Access], level: int = 0) -> list[list[Access]]:
        """Accesses that all lie in branches of one `if`, such as the two versions of a kernel, by branch; others in one piece."""
        ways = [self._way[a.op] for a in accesses]
        if any(len(way) == level or way[level][0] is not ways[0][level][0] for way in ways):
            return [accesses]
        op = ways[0][level][0]
        if op.name in ("for", "while"):
            return [accesses]
        branches: dict[int, list[Access]] = {}
        for a, way in zip(accesses, ways, strict=True):
            branches.setdefault(way[level][1], []).append(a)
        return [part for branch in branches.values() for part in self._apart_by_branches(branch, level + 1)]

    def _meet(self, group: list[Access]) -> bool:
        """Whether two of a group, of which one writes, can come one after the other."""
        return any(
            any(a.writes for a in part)
            and (len(part) > 1 or any(op.name in ("for", "while") for op, _ in self._way[part[0].op]))
            for part in self._apart_by_branches(group)
        )

    def _span(self, a: Access, dim: int) -> Span | None:
        """Where an access lies in a dimension, if no loop changes that."""
        start, extent = _index(a.op)[dim]
        form = self.form(start)
        if extent is None or any(v in self._varying for v, _ in form.terms):
            return None
        return frozenset(form.terms), form.constant, form.constant + extent

    def group(self, access: Access) -> int:
        """A number that accesses have in common if they may meet: one for all of LDS, others for views."""
        return self._group[access]

    def _may_alias(self, a: Value, b: Value) -> bool:
        return a is b or frozenset((a.name, b.name)) in self._aliases

    # -- conflicts -----------------------------------------------------------------------------------------------

    def conflict(self, first: Access, later: Access, crossed: Loops = frozenset()) -> bool:
        """Whether a wait or barrier must keep `later` from overtaking `first`. `crossed` are the loops whose back edge lies
        between them."""
        if not first.in_lds:
            return self.ordered(first, later, crossed)
        known = self._conflicts.get((first, later))
        if known is None:
            # The LDS instructions of one wave execute in order (CDNA3 ISA, data share).
            in_order = self.single_wave and first.counter == later.counter == LGKM
            known = self._conflicts[first, later] = not in_order and self.ordered(first, later, crossed)
        return known

    def ordered(self, first: Access, later: Access, crossed: Loops = frozenset()) -> bool:
        """Whether the order of the two in the text means something: they can touch the same byte, and one writes."""
        if not (first.writes or later.writes) or self.group(first) != self.group(later):
            return False
        if first.op.name == later.op.name and all(has_updates_that_commute(a.op) for a in (first, later)):
            return False
        if first.in_lds:
            pair = self.alike(first), self.alike(later)
            if pair not in self._orders:
                apart = _parts_of_one(first.op, later.op)
                self._orders[pair] = not apart and self._buffers_meet(first.place, later.place)
            return self._orders[pair]
        return self._may_alias(first.place, later.place) and not self._apart(first, later, crossed)

    def _buffers_meet(self, a: Value, b: Value) -> bool:
        if (a, b) not in self._meetings:
            self._meetings[a, b] = any(_overlap(x, y) for x in self.origins(a) for y in self.origins(b))
        return self._meetings[a, b]

    def alike(self, access: Access) -> Access:
        """The first access of LDS by the same kind of op to the same place (for parts of a tile: to the same part): what conflicts
        with one of them conflicts with all. Accesses of views stand for themselves."""
        if not access.in_lds:
            return access
        known = self._first_alike.get(access)
        if known is not None:
            return known
        op = access.op
        part = op.attrs.get(*_PARTS[op.name]) if op.name in _PARTS else None
        tile = op.operands[2] if op.name == "shared_store_fragment" else None
        key = (op.name, access.place, access.writes, access.counter, part, op.attrs.get("together"), tile)
        first = self._first_alike[access] = self._alike.setdefault(key, access)
        return first

    def origins(self, buffer: Value) -> frozenset[Op]:
        """The allocations that a buffer value can stand for (buffers may be carried by loops)."""
        if buffer not in self._origins:
            found: set[Op] = set()
            seen: set[Value] = set()
            pending = [buffer]
            while pending:
                v = pending.pop()
                if v in seen:
                    continue
                seen.add(v)
                if v in self._holder:
                    pending += _into_argument(*self._holder[v])
                elif v.owner is not None and v.owner.regions:
                    pending += _into_result(v.owner, v.owner.results.index(v))
                elif v.owner is not None:
                    found.add(v.owner)
            self._origins[buffer] = frozenset(found)
        return self._origins[buffer]

    def _apart(self, first: Access, later: Access, crossed: Loops) -> bool:
        """Whether the spans of two accesses to one dense view certainly have no element in common."""
        view = first.place.type
        if first.place is not later.place or not isinstance(view, GlobalType) or view.strides is not None:
            return False
        for (i, n), (j, m) in zip(_index(first.op), _index(later.op), strict=True):
            if n is None or m is None:
                continue
            a, b = self.form(i), self.form(j)
            # Loops that change nothing in the two forms do not matter.
            changing = [x for x in crossed if any(v in self._values_inside(x) for v, _ in (*a.terms, *b.terms))]
            outer = [loop for loop in changing if not any(self._is_inside(loop, other) for other in changing)]
            if len(outer) <= 1 and self._dimension_apart(a, n, b, m, outer[0] if outer else None):
                return True
        return False

    def _dimension_apart(self, a: Form, n: int, b: Form, m: int, loop: Op | None) -> bool:
        """[a, a + n) and [b, b + m) in one dimension, where b is evaluated in a later iteration of `loop`.

        Index arithmetic wraps at 32 bits: a difference that does not fit may mean the same place.
        """
        if abs(b.minus(a).constant) >= _WRAPS:
            return False
        if loop is None:
            difference = b.minus(a)
            return not difference.terms and (difference.constant >= n or -difference.constant >= m)
        if loop.name != "for":
            return False
        iv = loop.regions[0].args[0]
        ca, cb = dict(a.terms).get(iv, 0), dict(b.terms).get(iv, 0)
        if ca != cb:
            return False
        rest = b.minus(a)
        inside = self._values_inside(loop)
        if rest.terms or any(v in inside for v, _ in (*a.terms, *b.terms) if v is not iv):
            return False
        step = self.form(loop.operands[2])
        if ca and (step.terms or step.constant <= 0):
            return False
        if ca > 0:
            return ca * step.constant + rest.constant >= n
        if ca < 0:
            return -(ca * step.constant + rest.constant) >= m
        return rest.constant >= n or -rest.constant >= m

    def _is_inside(self, op: Op, other: Op) -> bool:
        return op is not other and any(inner is op for inner in other.walk())

    def _values_inside(self, loop: Op) -> set[Value]:
        if loop not in self._inside:
            found: set[Value] = set()
            for inner in loop.walk():
                for region in inner.regions:
                    found.update(region.args)
                if inner is not loop:
                    found.update(inner.results)
            self._inside[loop] = found
        return self._inside[loop]

    def form(self, v: Value) -> Form:
        """A scalar as a linear form over values that are not sums or multiples themselves."""
        if v not in self._forms:
            self._forms[v] = self._form(v)
        return self._forms[v]

    def _form(self, v: Value) -> Form:
        op = v.owner
        if op is not None and op.name == "constant" and isinstance(op.attrs["value"], int):
            return Form((), int(op.attrs["value"]))
        if op is not None and op.name in ("add", "sub") and v.tile.is_scalar:
            a, b = self.form(op.operands[0]), self.form(op.operands[1])
            return a.minus(_scaled(b, -1)) if op.name == "add" else a.minus(b)
        if op is not None and op.name == "mul" and v.tile.is_scalar:
            a, b = self.form(op.operands[0]), self.form(op.operands[1])
            if not b.terms:
                return _scaled(a, b.constant)
            if not a.terms:
                return _scaled(b, a.constant)
        return Form(((v, 1),), 0)


def _parts_of_one(a: Op, b: Op) -> bool:
    """Whether two ops write different parts of one tile to one buffer."""
    if a.name != b.name or a.name not in _PARTS:
        return False
    name, default = _PARTS[a.name]
    same = [x for x in a.operands if isinstance(x.type, SharedType)] == [
        x for x in b.operands if isinstance(x.type, SharedType)
    ]
    if a.name == "shared_store_fragment":
        same = same and a.operands[2] is b.operands[2]
    same = same and a.attrs.get("together", 1) == b.attrs.get("together", 1)
    return same and a.attrs.get(name, default) != b.attrs.get(name, default)


def _scaled(form: Form, factor: int) -> Form:
    return Form(tuple((v, c * factor) for v, c in form.terms if c * factor), form.constant * factor)


def _index(op: Op) -> list[tuple[Value, int | None]]:
    """Start and extent per dimension of an access; extent None where rows are gathered."""
    at = get(op.name).access_position
    assert at is not None and op.spans is not None
    found: list[tuple[Value, int | None]] = []
    for v, span in zip(op.operands[at + 1 :], op.spans, strict=False):
        found.append((v, span if span is not None else 1 if v.tile.is_scalar else None))
    return found


def _overlap(a: Op, b: Op) -> bool:
    """Whether two allocations share bytes; before offsets are known, only an allocation with itself."""
    if a is b:
        return True
    x, y = a.attrs.get("offset", -1), b.attrs.get("offset", -1)
    if not isinstance(x, int) or not isinstance(y, int) or x < 0 or y < 0:
        return False
    return x < y + buffer_bytes(b.result.type) and y < x + buffer_bytes(a.result.type)


def _into_argument(op: Op, region: int, index: int) -> list[Value]:
    if op.name == "for":
        return [] if index == 0 else [op.operands[2 + index], op.regions[0].terminator.operands[index - 1]]
    if op.name == "while":
        return [op.operands[index], op.regions[1].terminator.operands[index]]
    return [op.operands[1 + index]]


def _into_result(op: Op, index: int) -> list[Value]:
    ends = [r.terminator.operands[index] for r in (op.regions[1:] if op.name == "while" else op.regions)]
    inits = {"for": 3, "while": 0}.get(op.name, 1)
    return ends if op.name == "if" and len(op.regions) == 2 else [*ends, op.operands[inits + index]]
