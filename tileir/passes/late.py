"""Which tile values need never be whole in registers: their pieces are made when the one op that uses them comes to them.

The lowering makes pieces so, and the prediction of registers counts on it; both ask here. What may be late:

* elementwise results and renamings (`transpose`, `convert_layout` without traffic) that one op of the same block uses
  (or that a guard yields), and broadcasts of masks,
* reads of operands of an `mma` from LDS, if nothing happens to LDS in between,
* loads from global memory that only go to LDS, or past it to an `mma` (`stage = none`), with little in between.
"""

from __future__ import annotations

from dataclasses import field

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.registry import get
from tileir.ir.rewriter import uses
from tileir.ir.types import I32, TileType
from tileir.records import dataclass

# Registers of operands that are read from LDS before the matrix instruction that needs them is next: four 16-byte reads,
# which cover the latency of LDS (about 130 clocks) where a matrix instruction takes 16.
READ_AHEAD = 16
# Registers of a load on its way to LDS that are in flight before the first is written: 32 of 256 lanes are 32 KiB a
# workgroup, more than the 14 KiB that bandwidth times latency of memory ask for (17 bytes a nanosecond and CU, 0.8 us).
LOAD_AHEAD = 32
RENAMES = ("transpose", "convert_layout")
# Ops in a row that may wait for the use of the last one: the lowering makes their pieces by recursion, and nothing is gained by
# waiting for so long.
_MOST_IN_A_ROW = 96
_WHOLE = ("sin", "cos", "tan")  # a branch is taken for the whole tile
# What may stand between a load and the LDS write that its pieces wait for: nothing that computes with tiles or writes to
# global memory, so that a load which was put early on purpose stays early.
_PASSED = ("load", "wait", "barrier", "shared_alloc", "shared_store", "copy_async", "constant", *RENAMES)

Users = dict[Value, list[tuple[Op, int]]]


@dataclass
class Late:
    """Ops whose results are made piece by piece: `deferred` where they are used, `reads` from LDS before a product, `loads`
    from global memory before LDS writes."""

    deferred: set[Op] = field(default_factory=set[Op])
    reads: set[Op] = field(default_factory=set[Op])
    loads: set[Op] = field(default_factory=set[Op])


def late_ops(kernel: Kernel) -> Late:
    """Everything of a kernel that may be late."""
    users = uses(kernel)
    found = Late()
    _collect(kernel.body, users, found, False)
    return found


def _collect(block: Block, users: Users, found: Late, in_guard: bool) -> None:
    for op in block.ops:
        for region in op.regions:
            _collect(region, users, found, op.name == "guard")
    _deferred(block, users, found.deferred, in_guard)
    positions = {op: i for i, op in enumerate(block.ops)}
    for position, op in enumerate(block.ops):
        if op.name == "mma":
            for v in op.operands[:2]:
                read = _origin(v, users)
                between = _between(block, positions.get(read), position) if read is not None else None
                if read is None or between is None:
                    continue
                if read.name in ("shared_load", "shared_load_transposed"):
                    if not any(_touches_lds(x) for x in between):
                        found.reads.add(read)
                elif read.name == "load" and read.attrs.get("stage") == "none":
                    if all(_is_passed(x) for x in between):
                        found.loads.add(read)
        elif op.name == "shared_store":
            load = _origin(op.operands[0], users)
            if load is not None and load.name == "load" and not load.result.tile.is_scalar:
                between = _between(block, positions.get(load), position)
                if between is not None and all(_is_passed(x) for x in between):
                    found.loads.add(load)


def _between(block: Block, first: int | None, position: int) -> list[Op] | None:
    """Ops of a block between two positions; None if the first is of another block or not before the second."""
    return block.ops[first + 1 : position] if first is not None and first < position else None


def _deferred(block: Block, users: Users, found: set[Op], in_guard: bool) -> None:
    here = set(block.ops)
    stored = _only_stored(block, users, here)
    in_a_row: dict[Op, int] = {}

    def defer(op: Op) -> None:
        row = 1 + max((in_a_row.get(v.owner, 0) for v in op.operands if v.owner is not None), default=0)
        if row <= _MOST_IN_A_ROW:
            in_a_row[op] = row
            found.add(op)

    for op in block.ops:
        renames = op.name in RENAMES
        masks = op.name == "broadcast" and op.result.elem.is_bool
        if not (get(op.name).elementwise or renames or masks) or op.name in _WHOLE:
            continue
        if not isinstance(op.result.type, TileType) or op.result.tile.is_scalar:
            continue
        used = users.get(op.result, [])
        if len(used) != 1 or used[0][0] not in here:
            continue
        user = used[0][0]
        if renames:
            if user.name in ("mma", "shared_store", "store", *RENAMES):
                defer(op)
            continue
        # A mask takes two scalar registers per vector register of its operands: never keep a whole tile of them.
        if op.result.elem.is_bool and (user.name == "broadcast" or get(user.name).elementwise):
            defer(op)
            continue
        same = get(user.name).elementwise and isinstance(user.result.type, TileType)
        same = same and user.result.tile.shape == op.result.tile.shape
        light = sum(v.tile.rank > 0 for v in op.operands) <= 1
        # Positions that are compared with others: the elements that share one are compared one after the other.
        compared = light and op.result.elem is I32 and get(user.name).elementwise and user.result.elem.is_bool
        chosen = in_guard and _is_chosen(user, users)  # each piece is chosen or dropped as soon as it is made
        if chosen or compared or user.name in ("store", "shared_store") or (same and (light or user in stored)):
            defer(op)


def _is_chosen(user: Op, users: Users) -> bool:
    """Whether a value of a guard's region goes into its `yield`, or into the choice of rows before it."""
    if user.name == "where" and len(users.get(user.result, [])) == 1:
        user = users[user.result][0][0]
    return user.name == "yield"


def _only_stored(block: Block, users: Users, here: set[Op]) -> set[Op]:
    """The elementwise ops that begin a chain of elementwise ops with one use each which ends in a store of this block."""
    found: set[Op] = set()
    for op in reversed(block.ops):
        if get(op.name).elementwise:
            used = users.get(op.result, [])
            if len(used) == 1 and used[0][0] in here:
                user = used[0][0]
                if user.name in ("store", "shared_store") or user in found:
                    found.add(op)
    return found


def _origin(v: Value, users: Users) -> Op | None:
    """The op that a value comes from through renamings, if each of these values is used once."""
    while len(users[v]) == 1 and v.owner is not None:
        if v.owner.name not in RENAMES:
            return v.owner
        v = v.owner.operands[0]
    return None


def _is_passed(op: Op) -> bool:
    return op.name in _PASSED or (not op.regions and get(op.name).elementwise and op.result.tile.is_scalar)


def _touches_lds(op: Op) -> bool:
    effects = get(op.name).effects
    return bool(op.regions or effects & {"write", "sync", "async", "control"})
