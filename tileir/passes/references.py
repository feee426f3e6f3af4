"""Checks that what carries the old reference of a guard passes through it: nothing is added up that was computed against two references.

Where a guard moves a reference (`rescaling`), every value that was computed against the old one must be rescaled in the region too, or
be computed anew behind it. The check follows values through the kernel and knows of each

* that it has nothing to do with a reference,
* that it contains one, and with which sign: scores less their maximum, the initial value of an accumulator,
* or that it is *scaled* by one, as powers of such differences are, and their sums and products with anything else;

and for the latter two, behind which guard, in this iteration of its loop or one before. Adding two values that are scaled by different
references of one family is an error that names both. What the rules do not cover is *unknown* and never an error: so all that is
rejected is wrong, and what is wrong in other ways (a correction by hand with the wrong factor) is not found here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.diagnostics import CompileError, Diagnostic, Note
from tileir.passes.rescaling import HANDED_ON, POWERS, RISING, Rescaling, constant_of, rescaling_of
from tileir.records import dataclass

# What a version of a reference is relative to its guard: what came in at first, what an earlier iteration left, what this one has.
FIRST, BEFORE, NOW = range(3)
Version = tuple[Op, int]
_ROUNDS = 8  # of a loop, until what its values are no longer changes; each value can change a few times only


@dataclass(frozen=True)
class Scale:
    """What is known of a value. kind: "zero" (zeros and infinities, which are what one likes), "free", "reference", "scaled" or
    "unknown"; weight: the sign with which a reference is contained; made: the op from which a scaled value is."""

    kind: str
    version: Version | None = None
    weight: int = 0
    made: Op | None = field(default=None, compare=False)


ZERO, FREE, UNKNOWN = Scale("zero"), Scale("free"), Scale("unknown")
_MOST = 10  # errors; a text with single instructions has one for each
_WEAK = ("zero", "free")


def check_references(kernel: Kernel) -> None:
    """Raises CompileError (E1035, one for each addition) if values computed against different references are added up."""
    guards = {op: found for op in kernel.walk() if op.name == "guard" and (found := rescaling_of(op)) is not None}
    if not guards:
        return
    checker = _Checker(kernel, guards)
    checker.block(kernel.body)
    if checker.found:
        found = sorted(checker.found, key=lambda op: checker.order[op])
        raise CompileError([checker.found[op] for op in found[:_MOST]])


class _Checker:
    """Follows the values of one kernel."""

    def __init__(self, kernel: Kernel, guards: dict[Op, Rescaling]):
        self.guards = guards
        self.scales: dict[Value, Scale] = {}
        self.order = {op: i for i, op in enumerate(kernel.walk())}
        self.found: dict[Op, Diagnostic] = {}
        self.final = True  # whether errors are kept: in loops, once nothing changes any more
        self.family: dict[Op, Op] = {g: g for g in guards}
        self.first: dict[Value, Scale] = {}
        for guard, rescaling in guards.items():
            inits = guard.operands[1:]
            for i, weight in rescaling.weights.items():
                self.first.setdefault(inits[i], Scale("reference", (guard, FIRST), weight))
            for i, op in rescaling.factors.items():
                self.first.setdefault(inits[i], Scale("scaled", (guard, FIRST), made=op))

    def of(self, v: Value) -> Scale:
        return self.scales.get(v, FREE)

    def define(self, v: Value, scale: Scale) -> None:
        """Notes what a value is; where nothing is known of what a guard takes as its reference, it is a first one."""
        self.scales[v] = self.first.get(v, scale) if scale == FREE else scale

    def block(self, block: Block) -> list[Scale]:
        """Follows a block; what it yields."""
        for op in block.ops:
            if op.name == "yield":
                return [self.of(v) for v in op.operands]
            match op.name:
                case "for" | "while":
                    results = self._loop(op)
                case "if":
                    results = self._if(op)
                case "guard":
                    results = self._guard(op)
                case _:
                    results = [self._op(op)] * len(op.results)
            for v, scale in zip(op.results, results, strict=True):
                self.define(v, scale)
        return []

    # Control flow

    def _loop(self, op: Op) -> list[Scale]:
        skip = 3 if op.name == "for" else 0
        inits = [self.of(v) for v in op.operands[skip:]]
        inside = {inner for inner in op.walk() if inner.name == "guard"}
        carried = list(inits)
        final, self.final = self.final, False
        for round_ in range(_ROUNDS):
            ends = self._iteration(op, carried)
            around = [self._around(a, b, inside) for a, b in zip(inits, ends, strict=True)]
            if around == carried:
                break
            last = round_ == _ROUNDS - 1
            carried = [UNKNOWN if last and a != b else b for a, b in zip(carried, around, strict=True)]
        self.final = final
        ends = self._iteration(op, carried)
        return [b if b.kind not in _WEAK else a for a, b in zip(inits, ends, strict=True)]

    def _iteration(self, op: Op, carried: Sequence[Scale]) -> list[Scale]:
        args = [a for r in op.regions for a in (r.args[1:] if op.name == "for" else r.args)]
        for v, scale in zip(args, [*carried, *carried] if op.name == "while" else carried, strict=True):
            self.define(v, scale)
        for region in op.regions[:-1]:
            self.block(region)
        return self.block(op.regions[-1])

    def _around(self, init: Scale, end: Scale, inside: set[Op]) -> Scale:
        """A carried value from the second iteration on: the first one is no excuse."""
        if end.kind in _WEAK:
            return init
        if end.version is not None and end.version[0] in inside and end.version[1] == NOW:
            return replace(end, version=(end.version[0], BEFORE))
        return end

    def _if(self, op: Op) -> list[Scale]:
        inits = [self.of(v) for v in op.operands[1:]]
        ends: list[list[Scale]] = []
        for region in op.regions:
            for v, scale in zip(region.args, inits, strict=True):
                self.define(v, scale)
            ends.append(self.block(region))
        if len(ends) == 1:
            ends.append(inits)
        return [joined(a, b) for a, b in zip(*ends, strict=True)]

    def _guard(self, op: Op) -> list[Scale]:
        region, rescaling = op.regions[0], self.guards.get(op)
        inits = [self.of(v) for v in op.operands[1:]]
        for v, scale in zip(region.args, inits, strict=True):
            self.define(v, scale)
        ends = self.block(region)
        results = [joined(a, b) for a, b in zip(inits, ends, strict=True)]
        if rescaling is None:
            return results
        for scale in inits:
            if scale.version is not None:
                self._link(scale.version[0], op)
        for i, weight in rescaling.weights.items():
            results[i] = Scale("reference", (op, NOW), weight)
        for i, factor in rescaling.factors.items():
            results[i] = Scale("scaled", (op, NOW), made=factor)
        return results

    def _root(self, guard: Op) -> Op:
        while self.family[guard] is not guard:
            guard = self.family[guard]
        return guard

    def _link(self, a: Op, b: Op) -> None:
        self.family[self._root(a)] = self._root(b)

    # Other ops

    def _op(self, op: Op) -> Scale:
        rule = _RULES.get(op.name)
        if rule is not None:
            return rule(self, op)
        if op.name in RISING:
            x = self.of(op.operands[0])
            rounds = op.name not in HANDED_ON and op.name not in ("reduce_max", "reduce_min")
            return UNKNOWN if rounds and x.kind == "scaled" else x
        return FREE if all(self.of(v).kind in _WEAK for v in op.operands) else UNKNOWN

    def constant(self, op: Op) -> Scale:
        value = op.attrs["value"]
        return ZERO if isinstance(value, int | float) and value in (0, float("inf"), float("-inf")) else FREE

    def joined(self, op: Op) -> Scale:
        found = self.of(op.operands[0])
        for v in op.operands[1:]:
            found = joined(found, self.of(v))
        return found

    def choice(self, op: Op) -> Scale:
        return joined(self.of(op.operands[1]), self.of(op.operands[2]))

    def extremum(self, op: Op) -> Scale:
        a, b = (self.of(v) for v in op.operands)
        return b if a == ZERO else a if b in (ZERO, a) else UNKNOWN

    def power(self, op: Op) -> Scale:
        x = self.of(op.operands[0])
        if x.kind == "reference":
            return Scale("scaled", x.version, made=op) if x.weight > 0 else UNKNOWN
        return FREE if x.kind in _WEAK else UNKNOWN

    def negative(self, op: Op) -> Scale:
        return _negative(self.of(op.operands[0]))

    def product(self, op: Op) -> Scale:
        return self._times(op.operands[0], op.operands[1])

    def _times(self, a: Value, b: Value) -> Scale:
        x, y = self.of(a), self.of(b)
        if y.kind not in _WEAK:
            x, y, b = y, x, a
        if y.kind not in _WEAK:
            return UNKNOWN
        if ZERO in (x, y):
            return ZERO
        factor = constant_of(b)
        return _negative(x) if factor is not None and factor < 0 else x

    def quotient(self, op: Op) -> Scale:
        return self._times(op.operands[0], op.operands[1]) if self.of(op.operands[1]).kind in _WEAK else UNKNOWN

    def sum(self, op: Op) -> Scale:
        a, b = op.operands
        return self.added(op, (self.of(a), a), (self.of(b), b))

    def difference(self, op: Op) -> Scale:
        a, b = op.operands
        return self.added(op, (self.of(a), a), (_negative(self.of(b)), b))

    def fused(self, op: Op) -> Scale:
        """a · b + c, and what products of matrices do."""
        a, b = op.operands[:2]
        product = self._times(a, b)
        if len(op.operands) == 2:
            return product
        named = b if self.of(b).kind == "scaled" else a
        return self.added(op, (product, named), (self.of(op.operands[2]), op.operands[2]))

    def folded(self, op: Op) -> Scale:
        acc, x = op.operands
        if op.attrs["kind"] == "add":
            return self.added(op, (self.of(x), x), (self.of(acc), acc))
        return self.extremum(op)

    def added(self, op: Op, first: tuple[Scale, Value], second: tuple[Scale, Value]) -> Scale:
        (a, _), (b, _) = first, second
        if ZERO in (a, b):
            return b if a == ZERO else a
        kinds = {a.kind, b.kind}
        if kinds == {"free"}:
            return FREE
        if kinds == {"free", "reference"}:
            return a if a.kind == "reference" else b
        if kinds != {"scaled"} or a.version is None or b.version is None:
            return UNKNOWN
        if a.version == b.version:
            return a
        if self._root(a.version[0]) is not self._root(b.version[0]):
            return UNKNOWN
        old, new = sorted((first, second), key=lambda x: self._age(x[0]))
        if self.final:
            self._reject(op, old, new)
        return new[0]

    def _age(self, scale: Scale) -> tuple[int, int]:
        assert scale.version is not None
        guard, age = scale.version
        return age, self.order[guard]

    def _reject(self, op: Op, old: tuple[Scale, Value], new: tuple[Scale, Value]) -> None:
        (before, v), (behind, w) = old, new
        assert behind.version is not None
        guard = behind.version[0]
        text = f"'{op.name}' adds %{v.name}, with the reference from before a 'guard', to %{w.name}, with the one from behind it"
        earlier = " in an earlier iteration" if before.made is behind.made else ""
        notes = (_origin(v, before, earlier), _origin(w, behind), Note("the guard", guard.loc))
        legal = f"%{v.name} carried through the guard and rescaled there, or computed behind it with the new reference"
        self.found.setdefault(op, Diagnostic("E1035", text, op.loc, "error", notes, legal))


def _origin(v: Value, scale: Scale, when: str = "") -> Note:
    assert scale.made is not None
    return Note(f"%{v.name} has it from %{scale.made.result.name}, this '{scale.made.name}'{when}", scale.made.loc)


def joined(a: Scale, b: Scale) -> Scale:
    """A value that is one or the other."""
    if a.kind in _WEAK and b.kind in _WEAK:
        return a if a == b else FREE
    return b if a.kind in _WEAK else a if b.kind in _WEAK or a == b else UNKNOWN


def _negative(scale: Scale) -> Scale:
    return replace(scale, weight=-scale.weight)


_RULES: dict[str, Callable[[_Checker, Op], Scale]] = {
    "constant": _Checker.constant,
    "join_registers": _Checker.joined,
    "join_fragments": _Checker.joined,
    "concat": _Checker.joined,
    "reduce_add": lambda c, op: c.of(op.operands[0]),
    "where": _Checker.choice,
    "max": _Checker.extremum,
    "min": _Checker.extremum,
    "neg": _Checker.negative,
    "mul": _Checker.product,
    "div": _Checker.quotient,
    "add": _Checker.sum,
    "sub": _Checker.difference,
    "fma": _Checker.fused,
    "mma": _Checker.fused,
    "mfma": _Checker.fused,
    "fold_fragment": _Checker.folded,
    **dict.fromkeys(POWERS, _Checker.power),
}
