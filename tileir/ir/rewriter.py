"""Rewriting kernels: a pass rebuilds a kernel op by op and says what becomes of those that concern it.

    def rule(rw: Rewriter, op: Op) -> bool:
        if op.name != "div" or not is_one(op.operands[1]):
            return False                            # copied as it is
        rw.replace(op, [rw.use(op.operands[0])])    # every later use sees this value
        return True

    new = rewrite(kernel, rule)

The old kernel is left untouched; values keep their names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tileir.ir.builder import Builder, Names
from tileir.ir.core import AttrValue, Block, Kernel, Op, Value
from tileir.ir.registry import without_defaults

Rule = Callable[["Rewriter", Op], bool]


class Rewriter(Builder):
    """A builder for the new kernel that knows what each old value has become."""

    def __init__(self, block: Block, names: Names, rule: Rule, mapping: dict[Value, Value] | None = None):
        super().__init__(block, names)
        self.rule = rule
        self.mapping: dict[Value, Value] = {} if mapping is None else mapping

    def use(self, old: Value) -> Value:
        """The new value that stands for an old one."""
        return self.mapping.get(old, old)

    def replace(self, op: Op, values: Sequence[Value]) -> None:
        """Declares what the results of an old op have become."""
        for old, new in zip(op.results, values, strict=True):
            self.mapping[old] = new

    def copy(self, op: Op, *, attrs: dict[str, AttrValue] | None = None) -> Op:
        """Appends the op with its operands mapped, its regions rewritten and its result types kept."""
        self.loc = op.loc
        mapping = self.mapping
        operands = [mapping.get(v, v) for v in op.operands]
        regions = [self.region(r) for r in op.regions] if op.regions else []
        attrs = without_defaults(op.name, op.attrs if attrs is None else attrs)
        results = [Value(v.name, v.type, v.loc) for v in op.results]
        new = self.insert(Op(op.name, operands, attrs, results, regions, op.spans, op.loc, op.operand_locs))
        for old, result in zip(op.results, results, strict=True):
            mapping[old] = result
        return new

    def region(self, block: Block, args: Sequence[Value] | None = None) -> Block:
        """Rewrites a nested block; `args` are new block arguments if their types change."""
        new_args = [_clone(v) for v in block.args] if args is None else list(args)
        for old, new in zip(block.args, new_args, strict=True):
            self.mapping[old] = new
        inner = Block(new_args)
        outer, self.block = self.block, inner
        self.ops(block)
        self.block = outer
        return inner

    def ops(self, block: Block) -> None:
        """Rewrites all ops of an old block into the current one."""
        for op in block.ops:
            self.loc = op.loc
            if not self.rule(self, op):
                self.copy(op)


def _clone(v: Value) -> Value:
    return Value(v.name, v.type, v.loc)


def all_names(kernel: Kernel) -> set[str]:
    """Every value name in use."""
    names = {a.name for a in kernel.args}
    for op in kernel.walk():
        names.update(v.name for v in op.results)
        for r in op.regions:
            names.update(v.name for v in r.args)
    return names


def rewrite(kernel: Kernel, rule: Rule, **changes: object) -> Kernel:
    """A new kernel in which `rule` was offered every op in program order; `changes` replace fields of the kernel."""
    args = [_clone(a) for a in kernel.args]
    body = Block()
    rw = Rewriter(body, Names(lambda: all_names(kernel)), rule, dict(zip(kernel.args, args, strict=True)))
    rw.ops(kernel.body)
    return replace(kernel, args=args, body=body, attrs=dict(kernel.attrs), **changes)  # type: ignore[arg-type]


def uses(kernel: Kernel) -> dict[Value, list[tuple[Op, int]]]:
    """For every value the ops (and operand numbers) that use it, in program order."""
    found: dict[Value, list[tuple[Op, int]]] = {}
    for op in kernel.walk():
        for i, v in enumerate(op.operands):
            found.setdefault(v, []).append((op, i))
    return found
