"""Splits loops into a part whose masks need not be computed and one whose masks must.

    %r = for %j = %c0 to %NK step %c64 carry(%c = %zero) {
      %col = add(%j, %iota) : tile<i32[1, 64]>
      %m = lt(%col, %NK) : tile<i1[1, 64]>
      %x = where(%m, %s, %low) : tile<f32[128, 64]>
      …
    }

becomes

    %rest = mod(%NK, %c64) : i32
    %split = sub(%NK, %rest) : i32
    %r_0 = for %j = %c0 to %split step %c64 carry(%c = %zero) { … }        // %s in place of %x
    %r = for %j_0 = %split to %NK step %c64 carry(%c_0 = %r_0) { … }       // as it was

`mask_limits` finds up to which iteration the masks are certainly all true (or all false), in exact arithmetic; the number is rounded to whole steps
and kept between start and end, so that the parts run the same iterations in the same order. Masks that are so in all iterations go altogether.

A loop is split where that takes away a part of its elementwise work, at most into two parts, if it has matrix products (others wait
for memory) and no loop within. `loop %j masks split` asks for it, at both ends of the loop if need be; `loop %j masks whole` leaves the loop as it is.
"""

from __future__ import annotations

from functools import reduce

from tileir.ir.core import AttrValue, Block, Kernel, Op, Value
from tileir.ir.diagnostics import error
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import I32, I64, Elem, TileType
from tileir.passes.affine import MOST_NESTED, Affine, Forms, Ranges, constant_int, limits
from tileir.passes.base import Context, Pass
from tileir.passes.facts import Divisibility
from tileir.passes.identities import splat_of
from tileir.passes.mask_limits import (
    ALWAYS,
    MOST_EXACT,
    NEVER,
    Bound,
    Check,
    Fixed,
    Joined,
    Limit,
    Masks,
    Test,
    forms_of,
    join,
)
from tileir.passes.meet_masks import meet_masks
from tileir.passes.place_masks import place_masks
from tileir.passes.simplify import simplify
from tileir.records import dataclass

SHARE = 1 / 16  # of the elementwise work of an iteration that must go for the code to be worth having twice
_BOOLEAN = frozenset("and or not xor".split())
_SHAPES = frozenset("fill broadcast reshape transpose convert_layout".split())


@dataclass
class Known:
    """What masks are in the first iterations of a loop, or the last ones: their values, and up to where."""

    masks: Masks
    values: dict[Value, bool]
    limit: Limit


@dataclass
class Split:
    """How a loop is split: masks that have one value everywhere, and those of the first and the last iterations."""

    loop: Op
    forms: Forms
    everywhere: dict[Value, bool]
    first: Known | None = None
    last: Known | None = None


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    loops = [op for op in kernel.walk() if op.name == "for"]
    roots = {loop: found for loop in loops if (found := _roots(loop))}
    for loop in loops:
        if loop.attrs.get("masks") == "split" and loop not in roots:
            raise _nothing_to_split(loop, kernel, ctx)
    if not roots:
        return kernel
    ranges, divisors = Ranges(kernel), Divisibility(kernel)
    splits: dict[Op, Split] = {}
    for loop, masks in roots.items():
        if loop.attrs.get("masks") == "whole":
            continue
        split = _plan(loop, masks, ranges, divisors)
        if split.first is not None or split.last is not None or split.everywhere:
            splits[loop] = split
        elif loop.attrs.get("masks") == "split":
            raise _nothing_to_split(loop, kernel, ctx)
    for split in splits.values():
        _tell(split, ctx)

    def rule(rw: Rewriter, op: Op) -> bool:
        if op not in splits:
            return False
        _Writer(rw, splits[op], ranges).write()
        return True

    new = simplify(rewrite(kernel, rule)) if splits else kernel
    met = meet_masks(new, Ranges(new) if splits else ranges)
    placed = place_masks(met, Ranges(met), Divisibility(met))
    return simplify(placed) if placed is not new else new


# -- what a loop has to save -------------------------------------------------------------------------------------------


def _roots(loop: Op) -> dict[Value, bool]:
    """Masks that elementwise ops on tiles use in an innermost loop of constant step, without masks of masks; and the value with which
    they let something through: what is chosen and not the same for all elements."""
    step = constant_int(loop.operands[2])
    if step is None or step <= 0 or any(op.name in ("for", "while") for op in loop.regions[0].walk()):
        return {}
    found: dict[Value, bool] = {}
    for op in loop.regions[0].walk():
        if not get(op.name).elementwise or len(op.results) != 1 or op.result.tile.is_scalar or op.name in _BOOLEAN:
            continue
        for i, v in enumerate(op.operands):
            if v.tile.elem.is_bool:
                turned = op.name == "where" and i == 0 and splat_of(op.operands[1]) is not None
                found.setdefault(v, not (turned and splat_of(op.operands[2]) is None))
    return found


def _plan(loop: Op, roots: dict[Value, bool], ranges: Ranges, divisors: Divisibility) -> Split:
    """What to do with a loop."""
    forms = Forms(loop, ranges)
    both = [Masks(loop, forms, ranges, divisors, first) for first in (True, False)]
    values = [_known(roots, masks, forms, usual=True) for masks in both]
    asked = loop.attrs.get("masks") == "split"
    some = [any(limit != ALWAYS for _, limit in v.values()) for v in values]
    for i, masks in enumerate(both):
        if not some[i] and (asked or not any(some)):
            values[i] = {**_known(roots, masks, forms, usual=False), **values[i]}
    split = Split(loop, forms, {v: wanted for some in values for v, (wanted, limit) in some.items() if limit == ALWAYS})
    work, found = _Work(loop), list[tuple[float, Known]]()
    for masks, all_values in zip(both, values, strict=True):
        rest = {v: found for v, found in all_values.items() if v not in split.everywhere}
        if not rest or not _is_countable(masks, loop):
            continue
        known = Known(masks, {v: w for v, (w, _) in rest.items()}, join(True, [limit for _, limit in rest.values()]))
        saved = work.saved({*known.values, *split.everywhere}) - work.saved(set(split.everywhere))
        if saved > 0:
            found.append((saved, known))
    if not asked:
        products = any(op.name == "mma" for op in loop.regions[0].walk())
        total = work.total - work.saved(set(split.everywhere))
        found = [f for f in found if products and f[0] >= SHARE * total]
        found = sorted(found, key=lambda f: -f[0])[:1]  # stable: of equals the first iterations
    for _, known in found:
        if known.masks.first:
            split.first = known
        else:
            split.last = known
    return split


def _known(roots: dict[Value, bool], masks: Masks, forms: Forms, *, usual: bool) -> dict[Value, tuple[bool, Limit]]:
    """The largest parts of masks that have one value in the first or last iterations, with that value and the limit: the `usual`
    value, with which they let everything through, or the other one."""
    found: dict[Value, tuple[bool, Limit]] = {}

    def visit(v: Value, wanted: bool, depth: int = 0) -> None:
        if v in found or depth > MOST_NESTED or (v.tile.is_scalar and forms.is_fixed(v)):
            return
        limit = masks.limit(v, wanted)
        if limit != NEVER:
            found[v] = wanted, limit
            return
        op = v.owner
        if op is not None and op.name in _BOOLEAN | _SHAPES:
            for o in op.operands:
                # of `and` and `or`, the value that leaves the other operand
                inner = not wanted if op.name == "not" else op.name == "and" if op.name in _BOOLEAN else wanted
                visit(o, inner, depth + 1)

    for v, through in roots.items():
        visit(v, through == usual)
    return found


def _is_countable(masks: Masks, loop: Op) -> bool:
    """Whether the iterations can be counted in i64."""
    step = constant_int(loop.operands[2])
    assert step is not None
    return masks.size(masks.end) + masks.size(masks.start) + step < MOST_EXACT


class _Work:
    """Elementwise work of an iteration, in elements."""

    def __init__(self, loop: Op):
        self._ops = list(loop.regions[0].walk())
        self._weights = {op: _elements(op) for op in self._ops}
        self.total = sum(self._weights.values())

    def saved(self, known: set[Value]) -> float:
        """The work that is not needed where these masks are known: ops that they decide, and what was computed for them alone."""
        gone: set[Op] = set()
        needed: set[Value] = set()
        for op in reversed(self._ops):
            decided = op.name in _BOOLEAN | {"where", "convert"} and any(v in known for v in op.operands)
            pure = get(op.name).is_pure and not op.regions and op.name != "yield"
            useless = pure and bool(op.results) and not any(v in needed for v in op.results)
            if decided or useless or any(v in known for v in op.results):
                gone.add(op)
            if not useless and not any(v in known for v in op.results):
                needed.update(v for v in op.operands if v not in known)
        return sum(self._weights[op] for op in gone)


def _elements(op: Op) -> float:
    """Elements of a tile that an op computes."""
    if not op.results or not (get(op.name).elementwise or op.name.startswith("reduce_")):
        return 0.0
    tiles = [v.type for v in (*op.operands, *op.results) if isinstance(v.type, TileType)]
    return float(max(t.size if not t.is_scalar else 0 for t in tiles))


def _tell(split: Split, ctx: Context) -> None:
    loop = split.loop
    name = loop.regions[0].args[0].name
    if split.everywhere:
        text = f"in every iteration of the loop over %{name} {_list(split.everywhere)}: nothing of it is computed"
        ctx.log.remark("R0811", text, loop.loc)
    parts: list[str] = []
    if split.first is not None:
        parts.append(f"first iterations in which {_list(split.first.values)}")
    if split.last is not None:
        parts.append(f"last iterations in which {_list(split.last.values)}")
    first, last = split.first, split.last
    if first is not None and last is not None and not first.values.keys() & last.values.keys():
        parts = [f"iterations in which {_list({**first.values, **last.values})}", "those before", "those after"]
    elif parts:
        parts.append("the others")
    if parts:
        text = f"the loop over %{name} is split into {len(parts)} parts: {', '.join(parts)}"
        ctx.log.remark("R0810", text, loop.loc)


def _list(values: dict[Value, bool]) -> str:
    return " and ".join(f"%{v.name} is all {str(wanted).lower()}" for v, wanted in values.items())


def _nothing_to_split(loop: Op, kernel: Kernel, ctx: Context) -> Exception:
    name = loop.regions[0].args[0].name
    place = next((d.loc for d in ctx.directives(kernel) if d.kind == "loop" and name in d.values), loop.loc)
    return error(
        "E0608",
        f"the loop over %{name} has no mask that is known to have one value for all elements in its first or last iterations",
        place,
        legal="an innermost loop of constant step, with masks that compare sums of its variable, 'iota' and scalars from before it",
    )


# -- writing -----------------------------------------------------------------------------------------------------------


class _Writer:
    """Writes the parts of one loop."""

    def __init__(self, rw: Rewriter, split: Split, ranges: Ranges):
        self.rw = rw
        self.split = split
        self.ranges = ranges
        self.loop = split.loop
        step = constant_int(self.loop.operands[2])
        assert step is not None
        self.step = step
        self.index = self.loop.operands[0].tile.elem
        self.elem = self.index  # of the numbers that are being computed
        self.wide: dict[Value, Value] = {}

    def write(self) -> None:
        rw, loop, split = self.rw, self.loop, self.split
        start, end, step, *carried = [rw.use(v) for v in loop.operands]
        rw.loc = loop.loc
        first = split.first.values if split.first is not None else {}
        last = split.last.values if split.last is not None else {}
        ends = [(end, {} if first and last and not first.keys() & last.keys() else last)]
        if split.last is not None:
            ends.insert(0, (self._place(split.last), {}))
        if split.first is not None:
            place = self._place(split.first)
            if not last:
                ends.insert(0, (place, first))
            elif first.keys() & last.keys():  # one mask at both ends: first iterations, those between, last iterations
                later = rw.value("max", [place, ends[0][0]], hint="split")
                ends = [(place, first), (later, {}), (end, last)]
            else:  # all masks are known in the middle
                later = rw.value("max", [place, ends[0][0]], hint="split")
                ends.insert(1, (later, {**first, **last}))
        for i, (stop, values) in enumerate(ends):
            region = self._body({**values, **split.everywhere})
            if i:
                for v in [*region.args, *(v for op in region.walk() for v in (*op.results, *_arguments(op)))]:
                    v.name = rw.names.fresh(v.name)
            final = i == len(ends) - 1
            names = [v.name if final else rw.names.fresh(v.name) for v in loop.results]
            attrs: dict[str, AttrValue] = {k: v for k, v in loop.attrs.items() if k != "masks"}
            if len(ends) > 1:
                attrs["part"] = i + 1
                if not values:  # the ends of what can be seen: few iterations of many
                    attrs["few"] = True
            made = rw.op("for", [start, stop, step, *carried], attrs, regions=[region], loc=loop.loc, names=names)
            start, carried = stop, made.results
        rw.replace(loop, carried)

    def _body(self, values: dict[Value, bool]) -> Block:
        """The body with masks that are known."""
        rw = self.rw
        outside = {v: rw.mapping.get(v) for v in values}
        rule = rw.rule

        def known(inner: Rewriter, op: Op) -> bool:
            if len(op.results) != 1 or op.result not in values:
                return rule(inner, op)
            inner.replace(op, [self._mask(op.result, values[op.result])])
            return True

        made = {v: self._mask(v, wanted) for v, wanted in values.items() if self.split.forms.is_fixed(v)}
        rw.mapping.update(made)
        rw.rule = known
        region = rw.region(self.loop.regions[0])
        rw.rule = rule
        for v in made:
            before = outside[v]
            if before is None:
                del rw.mapping[v]
            else:
                rw.mapping[v] = before
        return region

    def _mask(self, v: Value, wanted: bool) -> Value:
        truth = self.rw.constant(wanted, v.tile.elem)
        return truth if v.tile.is_scalar else self.rw.value("fill", [truth], types=[v.tile], hint=v.name)

    # Places between iterations

    def _place(self, known: Known) -> Value:
        """The value of the loop variable at which the part begins or ends: after whole steps, between start and end."""
        rw, masks = self.rw, known.masks
        limit = self._short(known.limit, masks)
        self.elem = self._wide_enough(limit, masks)
        start, end = self._number(masks.start), self._number(masks.end)
        at = self._limit(limit, masks)
        if at is not end:
            at = rw.value("min", [at, end], hint="split")
        bounds = [self.ranges.of(v) for v in self.loop.operands[:2]]
        if at is not end or bounds[1][0] < bounds[0][1]:
            at = rw.value("max", [at, start], hint="split")
        origin = constant_int(self.loop.operands[0]) == 0
        if masks.first and self.elem != self.index and self.ranges.of(self.loop.operands[0])[0] >= 0:
            at, self.elem = rw.value("convert", [at], {"elem": self.index}, hint="split"), self.index
            start = self._number(masks.start)
        passed = at if origin else rw.value("sub", [at, start], hint="split")
        step = rw.constant(self.step, self.elem)
        rest = rw.value("mod", [passed, step], hint="rest")
        if masks.first:
            at = rw.value("sub", [at, rest], hint="split")
        else:
            zero = rw.constant(0, self.elem)
            missing = rw.value("sub", [step, rest], hint="rest")
            missing = rw.value("where", [rw.value("eq", [rest, zero], hint="rest"), zero, missing], hint="rest")
            at = rw.value("min", [rw.value("add", [at, missing], hint="split"), end], hint="split")
            if bounds[1][0] < bounds[0][1]:  # the end may be before the start
                at = rw.value("max", [at, start], hint="split")
        return at if self.elem == self.index else rw.value("convert", [at], {"elem": self.index}, hint="split")

    def _short(self, limit: Limit, masks: Masks) -> Limit:
        """The limit without bounds behind the end, which stands in any case: what is left of the last step is a matter of rounding."""
        if isinstance(limit, Joined):
            return join(limit.every, [self._short(p, masks) for p in limit.parts])
        if isinstance(limit, Bound) and masks.first and limit.divisor == 1:
            return ALWAYS if masks.reaches_end(limit.form.plus(self.step)) else limit
        return limit

    def _wide_enough(self, limit: Limit, masks: Masks) -> Elem:
        """i32 if no number on the way can pass it, else i64."""
        most = limits(I32)[1]
        sizes = [masks.size(f) + self.step for f in forms_of(limit)]
        sizes += [masks.size(masks.end) + (0 if masks.first else self.step)]
        narrow = max(sizes) <= most and self.ranges.of(self.loop.operands[0])[0] >= 0
        return I32 if narrow and self.index == I32 else I64

    def _limit(self, limit: Limit, masks: Masks) -> Value:
        """A number that the place is not after (of the first iterations) or not before (of the last ones), if they are
        to satisfy a limit; start and end stand for none and all."""
        rw = self.rw
        parts = limit.parts if isinstance(limit, Joined) and limit.every else (limit,)
        conditions = [self._condition(p) for p in parts if isinstance(p, Test | Check)]
        numbers = [self._number_of(p, masks) for p in parts if not isinstance(p, Test | Check)]
        everything, nothing = (masks.end, masks.start) if masks.first else (masks.start, masks.end)
        narrower = "min" if masks.first else "max"
        whole = self._number(everything)
        numbers = [n for n in dict.fromkeys(numbers) if n is not whole] or [whole]
        at = reduce(lambda a, b: rw.value(narrower, [a, b], hint="split"), numbers)
        if not conditions:
            return at
        holds = reduce(lambda a, b: rw.value("and", [a, b], hint="holds"), conditions)
        return rw.value("where", [holds, at, self._number(nothing)], hint="split")

    def _number_of(self, limit: Limit, masks: Masks) -> Value:
        rw = self.rw
        match limit:
            case Fixed(everywhere):
                return self._number(masks.end if everywhere == masks.first else masks.start)
            case Bound(form, divisor) if masks.first:
                if divisor == 1:
                    return self._number(form.plus(self.step))
                # rounded down: the quotient of the negated number, rounded up
                up = rw.value("cdiv", [self._number(form * -1), rw.constant(divisor, self.elem)], hint="split")
                return rw.value("sub", [rw.constant(self.step, self.elem), up], hint="split")
            case Bound(form, divisor):
                at = self._number(form)
                return at if divisor == 1 else rw.value("cdiv", [at, rw.constant(divisor, self.elem)], hint="split")
            case Joined(False, parts):
                wider = "max" if masks.first else "min"
                return reduce(
                    lambda a, b: rw.value(wider, [a, b], hint="split"), [self._limit(p, masks) for p in parts]
                )
            case _:
                return self._limit(limit, masks)

    def _condition(self, limit: Test | Check) -> Value:
        rw = self.rw
        if isinstance(limit, Check):
            rest = Affine(0, limit.form.scalars)
            most = rw.constant(-limit.form.constant, self.elem)
            return rw.value("le", [self._number(rest), most], hint="holds")
        condition = rw.use(limit.condition)
        return condition if limit.wanted else rw.value("not", [condition], hint="holds")

    def _number(self, form: Affine) -> Value:
        """A form in scalars as a number."""
        rw = self.rw
        total: Value | None = None
        for v, factor in sorted(form.scalars.items(), key=lambda item: item[1] < 0):
            term = self._widened(v)
            if abs(factor) != 1:
                term = rw.value("mul", [term, rw.constant(abs(factor), self.elem)], hint="split")
            if total is None:
                total = term if factor > 0 else rw.value("neg", [term], hint="split")
            else:
                total = rw.value("add" if factor > 0 else "sub", [total, term], hint="split")
        if total is None:
            return rw.constant(form.constant, self.elem)
        if form.constant:
            total = rw.value("add", [total, rw.constant(form.constant, self.elem)], hint="split")
        return total

    def _widened(self, v: Value) -> Value:
        """A scalar in the element type of the numbers."""
        new = self.rw.use(v)
        if new.tile.elem == self.elem:
            return new
        if v not in self.wide:
            self.wide[v] = self.rw.value("convert", [new], {"elem": self.elem}, hint=v.name)
        return self.wide[v]


def _arguments(op: Op) -> list[Value]:
    return [v for region in op.regions for v in region.args]


PASS = Pass(
    "split-loops", _run, requires=frozenset({"bound"}), summary="splits loops into parts with and without masks"
)
