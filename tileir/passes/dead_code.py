"""Removal of ops, carried values and results that nothing observable depends on."""

from __future__ import annotations

from dataclasses import replace

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.registry import get

# Effects of an op that may be dropped when nobody uses its results: it only looks at memory or reserves it.
_UNOBSERVED = frozenset({"read", "alloc"})


class _Liveness:
    """Which ops and values are needed: a mark phase from the ops with effects.

    Values that an op with regions carries are marked one by one, so a carried value that only feeds itself stays dead.
    """

    def __init__(self, kernel: Kernel):
        self.ops: set[Op] = set()
        self.values: set[Value] = set()
        self.holder: dict[Value, tuple[Op, int]] = {}
        self.parents: dict[Op, Op] = {}
        self._pending: list[Value] = []
        for op in kernel.walk():
            for region in op.regions:
                self.holder.update((v, (op, i)) for i, v in enumerate(region.args))
                self.parents.update((inner, op) for inner in region.ops)
        for op in kernel.walk():
            if op.name != "yield" and (op.name == "while" or _has_effect(op)):
                self._need(op)
        while self._pending:
            self._follow(self._pending.pop())

    def _need(self, op: Op) -> None:
        """The op must run, hence also the ops that hold it."""
        if op in self.ops:
            return
        self.ops.add(op)
        count = {"for": 3, "if": 1, "guard": 1}.get(op.name, len(op.operands))
        self._use(op.operands[:count])
        if op.name == "while":
            self._use([v for r in op.regions for v in r.args])
            self._use([v for r in op.regions for v in r.terminator.operands])
        if op in self.parents:
            self._need(self.parents[op])

    def _use(self, values: list[Value]) -> None:
        for v in values:
            if v not in self.values:
                self.values.add(v)
                self._pending.append(v)

    def _follow(self, v: Value) -> None:
        if v in self.holder:
            op, i = self.holder[v]
            self._need(op)
            self._carried(op, i - 1 if op.name == "for" else i)
        elif v.owner is not None:
            self._need(v.owner)
            if v.owner.regions:
                self._result(v.owner, v.owner.results.index(v))

    def _carried(self, op: Op, i: int) -> None:
        """Region argument number i is used (-1: the variable of a loop)."""
        if op.name == "for" and i >= 0:
            self._use([op.operands[3 + i], op.regions[0].terminator.operands[i]])
        elif op.name in ("if", "guard"):
            self._use([op.operands[1 + i]])
            if len(op.regions) == 1:  # results and carried values are one list
                self._use([op.regions[0].terminator.operands[i]])

    def _result(self, op: Op, i: int) -> None:
        if op.name != "while":
            self._use([r.terminator.operands[i] for r in op.regions])
        if op.name == "for":
            self._use([op.operands[3 + i]])
        elif op.name in ("if", "guard") and len(op.regions) == 1:
            self._use([op.operands[1 + i]])


def _has_effect(op: Op) -> bool:
    """Whether the op itself (not what it holds) can be observed."""
    return bool(get(op.name).effects - _UNOBSERVED) and not op.regions


def remove_dead(kernel: Kernel) -> Kernel:
    """The kernel without what nothing observable needs. Shares no op with the old one that it changes."""
    live = _Liveness(kernel)
    return replace(kernel, body=_block(kernel.body, live), attrs=dict(kernel.attrs))


def _block(block: Block, live: _Liveness, ends: list[int] | None = None) -> Block:
    """Live ops only; `ends` are the numbers of the values that the terminator keeps."""
    ops: list[Op] = []
    for op in block.ops:
        if op.name == "yield":
            if ends is not None:
                locs = [op.loc_of(i) for i in ends]
                op = Op("yield", [op.operands[i] for i in ends], loc=op.loc, operand_locs=locs)
            ops.append(op)
        elif op in live.ops:
            ops.append(_structured(op, live) if op.regions else op)
    return Block(block.args, ops)


def _structured(op: Op, live: _Liveness) -> Op:
    """An op with regions, without the carried values and results that are dead."""
    if op.name == "while":
        regions = [_block(r, live) for r in op.regions]
        return _rebuilt(op, op.operands, op.results, regions)
    first = 3 if op.name == "for" else 1
    inits = op.operands[first:]
    skip = 1 if op.name == "for" else 0
    paired = len(op.regions) == 1
    used = [
        i
        for i in range(len(inits))
        if any(r.args[skip + i] in live.values for r in op.regions) or (paired and op.results[i] in live.values)
    ]
    results = used if paired else [i for i, v in enumerate(op.results) if v in live.values]
    regions: list[Block] = []
    for region in op.regions:
        inner = _block(region, live, results)
        regions.append(Block([*region.args[:skip], *(region.args[skip + i] for i in used)], inner.ops))
    operands = [*op.operands[:first], *(inits[i] for i in used)]
    return _rebuilt(op, operands, [op.results[i] for i in results], regions)


def _rebuilt(op: Op, operands: list[Value], results: list[Value], regions: list[Block]) -> Op:
    # The results of the op move to the new one: the kernel that held it came fresh from a rewrite.
    return Op(op.name, operands, dict(op.attrs), results, regions, op.spans, op.loc)
