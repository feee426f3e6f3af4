"""The verifier: everything that must hold of any kernel at any stage, independent of which pass made it."""

from __future__ import annotations

from tileir.ir import registry
from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.diagnostics import Note, error


def verify(kernel: Kernel) -> None:
    """Raises CompileError unless every op satisfies its declaration, each use is dominated by its definition, names
    are unique and regions end in `yield`."""
    names: dict[str, Value] = {}
    scope: set[Value] = set()
    for arg in kernel.args:
        _define(arg, names, scope)
    _block(kernel.body, scope, names, kernel, is_region=False)


def _define(v: Value, names: dict[str, Value], scope: set[Value]) -> None:
    if v.name in names:
        first = names[v.name]
        raise error(
            "E0202",
            f"%{v.name} is defined twice",
            v.loc,
            legal="a name that is unique in the kernel",
            notes=[Note("first defined here", first.loc)],
        )
    names[v.name] = v
    scope.add(v)


def _block(block: Block, scope: set[Value], names: dict[str, Value], kernel: Kernel, *, is_region: bool) -> None:
    inner = set(scope)
    for arg in block.args:
        _define(arg, names, inner)
    for i, op in enumerate(block.ops):
        last = i == len(block.ops) - 1
        if op.name == "yield" and not (is_region and last):
            raise error("E0501", "'yield' must be the last operation of a region", op.loc, legal="move it to the end")
        _op(op, inner, names, kernel)
    if is_region and (not block.ops or block.ops[-1].name != "yield"):
        loc = block.ops[-1].loc if block.ops else kernel.loc
        raise error("E0502", "a region must end in 'yield'", loc, legal="yield the values of the region")


def _check_program(op: Op, kernel: Kernel) -> None:
    """What only the kernel knows about an op: the rank of the grid, the symbols of the arguments."""
    if op.name in ("program_id", "num_programs") and len(op.results) != len(kernel.grid):
        raise error(
            "E0511",
            f"'{op.name}' gives one value per grid dimension: {len(kernel.grid)}, not {len(op.results)}",
            op.loc,
            legal=f"{len(kernel.grid)} results",
        )
    if op.name == "dim" and op.attrs.get("symbol") not in kernel.symbols():
        known = ", ".join(kernel.symbols()) or "none: no argument has one"
        raise error(
            "E0205",
            f"{op.attrs.get('symbol')} is not a dimension of an argument",
            op.loc,
            legal=f"one of: {known}",
        )


def _op(op: Op, scope: set[Value], names: dict[str, Value], kernel: Kernel) -> None:
    definition = registry.lookup(op.name)
    if definition is None:
        raise error("E0201", f"there is no op '{op.name}'", op.loc, legal="see docs/language.md for the list of ops")
    for i, v in enumerate(op.operands):
        if v not in scope:
            raise error("E0203", f"%{v.name} is not defined here", op.loc_of(i), legal="a value defined before its use")
    _check_program(op, kernel)
    for region in op.regions:
        _block(region, scope, names, kernel, is_region=True)
    types = registry.infer(
        op.name,
        [v.type for v in op.operands],
        op.attrs,
        spans=op.spans,
        regions=op.regions,
        expected=[v.type for v in op.results],
        loc=op.loc,
        operand_locs=op.operand_locs,
        num_results=len(op.results),
    )
    for v, t in zip(op.results, types, strict=True):
        if v.type != t:
            raise error("E0304", f"%{v.name} has type {v.type}, but '{op.name}' gives {t}", op.loc, legal=f": {t}")
        _define(v, names, scope)
