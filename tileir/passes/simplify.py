"""Removes what need not be computed, exactly: folding, identities, common subexpressions, invariants, dead code.

    %c2 = constant<2>() : i32
    %c3 = constant<3>() : i32
    %six = mul(%c2, %c3) : i32
    %x = mul(%i, %six) : i32
    %y = mul(%i, %six) : i32
    %z = add(%x, %y) : i32

becomes

    %six = constant<6>() : i32
    %x = mul(%i, %six) : i32
    %z = add(%x, %x) : i32

Constants are folded with the semantics of the op's own declaration. Identities on floats are only those that hold for
every value including NaN, infinities and negative zero. Scalars that do not change in a loop move before it; carried
values that never change or that nobody reads disappear, with branches on constants and loops that run zero times.
"""

from __future__ import annotations

from typing import Any

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import TileType
from tileir.passes.base import Context, Pass
from tileir.passes.dead_code import remove_dead
from tileir.passes.identities import candidate, constant_of, fold, identity

MAX_ROUNDS = 16  # each round removes ops, so this only bounds compile time; deep chains settle in two or three


def simplify(kernel: Kernel) -> Kernel:
    """The simplified kernel; simplifying it again changes nothing (unless `MAX_ROUNDS` was reached).

    A sweep goes in program order and looks only at what comes before an op, all of it simplified: what it leaves it would leave
    again. Another one is needed only where ops moved to others that they may equal, or where the end of a loop, which stands behind its
    uses, has come to hand on a carried value as it is.
    """
    for _ in range(MAX_ROUNDS):
        kernel = rewrite(kernel, _Simplifier().rule)
        moved = hoist(kernel.body)
        kernel = remove_dead(kernel)
        if not _meet_equals(kernel, moved) and not any(_unchanging(op) for op in kernel.walk()):
            break
    return kernel


def _meet_equals(kernel: Kernel, moved: list[Op]) -> bool:
    """Whether one of the ops that moved equals another op of the kernel, so that the two may be one now."""
    keys, names = {_key(op, op.operands) for op in moved}, {op.name for op in moved}
    met: set[Any] = set()
    for op in kernel.walk() if moved else ():
        if op.name in names and (key := _key(op, op.operands)) in keys:
            if key in met:
                return True
            met.add(key)
    return False


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    return simplify(kernel)


class _Simplifier:
    """One sweep in program order. `seen` is a stack of tables of the pure ops computed in the enclosing scopes."""

    def __init__(self) -> None:
        self.seen: list[dict[Any, list[Op]]] = [{}]
        self.loop = 0  # the number of the table of the innermost loop

    def rule(self, rw: Rewriter, op: Op) -> bool:
        if op.regions:
            self._structured(rw, op)
            return True
        definition = get(op.name)
        if not definition.is_pure or op.name == "yield":
            return False
        operands = [rw.use(v) for v in op.operands]
        same = identity(op, operands)
        if same is not None:
            rw.replace(op, [same])
            return True
        if self._fold(rw, op, operands) or self._spread(rw, op, operands):
            return True
        key = _key(op, operands)
        earlier = self._find(key, op)
        if earlier is not None:
            rw.replace(op, earlier.results)
            return True
        self.seen[-1].setdefault(key, []).append(rw.copy(op))
        return True

    def _find(self, key: Any, op: Op) -> Op | None:
        """An equal op in scope. Result types are compared and not part of the key: hashing layouts is slow. Positions and masks in registers are
        not kept for a loop (`rematerialise`)."""
        for table in reversed(self.seen[self.loop if _is_made_again(op) else 0 :]):
            for earlier in table.get(key, ()):
                if all(a.type == b.type for a, b in zip(earlier.results, op.results, strict=True)):
                    return earlier
        return None

    def _fold(self, rw: Rewriter, op: Op, operands: list[Value]) -> bool:
        value = fold(op, operands)
        if value is None:
            return False
        new = Op("constant", [], {"value": value}, loc=op.loc)
        if op.result.tile.is_scalar:
            new.results = [Value(op.result.name, op.result.type, op.result.loc)]
            rw.replace(op, [self._reuse(rw, new)])
            return True
        new.results = [Value(rw.names.fresh("c"), TileType(op.result.tile.elem), op.loc)]
        scalar = self._reuse(rw, new)
        fill = Op("fill", [scalar], {}, [Value(op.result.name, op.result.type, op.result.loc)], loc=op.loc)
        rw.replace(op, [self._reuse(rw, fill)])
        return True

    def _spread(self, rw: Rewriter, op: Op, operands: list[Value]) -> bool:
        """A scalar that is reshaped or broadcast to a tile fills it: one op for later passes to know. So does an operand that an
        elementwise op gives as it is, but for the shape."""
        t = op.result.type if len(op.results) == 1 else None
        if not isinstance(t, TileType) or t.is_scalar:
            return False
        if op.name in ("reshape", "broadcast"):
            source = operands[0] if operands[0].tile.is_scalar else None
        else:
            source = candidate(op, operands) if get(op.name).elementwise else None
        if source is None or source.tile.elem != t.elem:
            return False
        if source.tile.is_scalar:
            new = Op("fill", [source], {}, [Value(op.result.name, t, op.result.loc)], loc=op.loc)
        elif t.layout is None and source.tile.layout is None and source.tile.shape != t.shape:
            new = Op("broadcast", [source], {"shape": t.shape}, [Value(op.result.name, t, op.result.loc)], loc=op.loc)
        else:
            return False
        rw.replace(op, [self._reuse(rw, new)])
        return True

    def _reuse(self, rw: Rewriter, new: Op) -> Value:
        """The result of an equal op that is in scope, else of this one, inserted."""
        key = _key(new, new.operands)
        earlier = self._find(key, new)
        if earlier is not None:
            return earlier.result
        for r in new.results:
            r.owner = new
        self.seen[-1].setdefault(key, []).append(rw.insert(new))
        return new.result

    # -- control flow --------------------------------------------------------------------------------------------

    def _structured(self, rw: Rewriter, op: Op) -> None:
        if op.name == "if" and self._branch(rw, op):
            return
        if op.name == "for" and runs_never(rw, op):
            rw.replace(op, [rw.use(v) for v in op.operands[3:]])
            return
        unchanging = _unchanging(op)
        for i, arg in unchanging:
            rw.mapping[arg] = rw.use(op.operands[3 + i])  # uses inside the loop see the initial value
        regions: list[Block] = []
        for region in op.regions:
            args = [Value(v.name, v.type, v.loc) for v in region.args]
            inner = Block(args)
            for old, new in zip(region.args, args, strict=True):
                rw.mapping.setdefault(old, new)
            outer_loop, self.loop = self.loop, len(self.seen) if op.name in ("for", "while") else self.loop
            self.seen.append({})
            outer, rw.block = rw.block, inner
            rw.ops(region)
            rw.block = outer
            self.seen.pop()
            self.loop = outer_loop
            regions.append(inner)
        results = [Value(v.name, v.type, v.loc) for v in op.results]
        operands = [rw.use(v) for v in op.operands]
        rw.insert(Op(op.name, operands, dict(op.attrs), results, regions, op.spans, op.loc, op.operand_locs))
        rw.replace(op, results)
        for i, _ in unchanging:
            rw.mapping[op.results[i]] = rw.use(op.operands[3 + i])

    def _branch(self, rw: Rewriter, op: Op) -> bool:
        """`if` on a constant: the ops of the branch taken, in place."""
        condition = constant_of(rw.use(op.operands[0]))
        if condition is None:
            return False
        inits = [rw.use(v) for v in op.operands[1:]]
        taken = 0 if condition else 1
        if taken == 1 and len(op.regions) == 1:
            rw.replace(op, inits)
            return True
        region = op.regions[taken]
        rw.mapping.update(zip(region.args, inits, strict=True))
        for inner in region.ops[:-1]:
            rw.loc = inner.loc
            if not self.rule(rw, inner):
                rw.copy(inner)
        rw.replace(op, [rw.use(v) for v in region.terminator.operands])
        return True


def _is_made_again(op: Op) -> bool:
    t = op.results[0].type if op.results else None
    return isinstance(t, TileType) and t.layout is not None and (op.name == "iota" or t.elem.is_bool)


def _key(op: Op, operands: list[Value]) -> Any:
    attrs = tuple(sorted((k, type(v).__name__, repr(v)) for k, v in op.attrs.items())) if op.attrs else ()
    return (op.name, tuple(operands), attrs, op.spans, len(op.results))


def runs_never(rw: Rewriter, op: Op) -> bool:
    """Whether a `for` certainly runs zero times."""
    start, end = (constant_of(rw.use(v)) for v in op.operands[:2])
    return start is not None and end is not None and bool(end <= start)


def _unchanging(op: Op) -> list[tuple[int, Value]]:
    """Carried values that a `for` hands on as they are, with their numbers."""
    if op.name != "for":
        return []
    args, ends = op.regions[0].args[1:], op.regions[0].terminator.operands
    return [(i, a) for i, (a, y) in enumerate(zip(args, ends, strict=True)) if y is a]


def hoist(block: Block) -> list[Op]:
    """Moves pure scalar ops whose operands do not change in a loop before it, innermost loops first. In place; gives those that moved."""
    ops: list[Op] = []
    moved: list[Op] = []
    for op in block.ops:
        for region in op.regions:
            moved += hoist(region)
        if op.name in ("for", "while"):
            inside = _defined(op)
            for region in op.regions:
                kept: list[Op] = []
                for inner in region.ops:
                    if _is_movable(inner) and not any(v in inside for v in inner.operands):
                        inside.difference_update(inner.results)
                        ops.append(inner)
                        moved.append(inner)
                    else:
                        kept.append(inner)
                region.ops = kept
        ops.append(op)
    block.ops = ops
    return moved


def _is_movable(op: Op) -> bool:
    return (
        get(op.name).is_pure
        and not op.regions
        and op.name != "yield"
        and bool(op.results)
        and all(isinstance(v.type, TileType) and v.type.is_scalar for v in op.results)
        and all(not isinstance(v.type, TileType) or v.type.is_scalar for v in op.operands)
    )


def _defined(op: Op) -> set[Value]:
    """Every value defined inside an op."""
    found: set[Value] = set()
    for inner in op.walk():
        for region in inner.regions:
            found.update(region.args)
        if inner is not op:
            found.update(inner.results)
    return found


PASS = Pass("simplify", _run, summary="folds, removes duplicates and dead code, moves invariants out of loops")
