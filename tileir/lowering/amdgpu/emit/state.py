"""What the emitters of a kernel share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.diagnostics import CompileError, error
from tileir.ir.location import Loc
from tileir.ir.registry import get
from tileir.ir.rewriter import uses
from tileir.ir.types import Elem
from tileir.lowering.amdgpu.emit.tiles import Tile
from tileir.lowering.amdgpu.emit.writer import Writer, scalar_type
from tileir.target import Target


@dataclass
class State:
    """The function being written and what its IR values have become: MLIR names for scalars, `Tile`s for tiles."""

    kernel: Kernel
    target: Target
    w: Writer
    values: dict[Value, str | Tile] = field(default_factory=dict[Value, "str | Tile"])
    symbols: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    sparing: bool = False  # keep few registers in use, at the price of waiting for LDS
    needs_zeros: bool = False
    deferrable: set[Op] = field(default_factory=set[Op])
    late_reads: set[Op] = field(default_factory=set[Op])  # LDS reads whose pieces are read when an `mma` needs them

    def __post_init__(self) -> None:
        users = uses(self.kernel)
        self.deferrable = _deferrable(self.kernel.body, users)
        if self.sparing:
            self.late_reads = _late_reads(self.kernel.body, users)

    def at(self, loc: Loc, make: Callable[[int], str]) -> Callable[[int], str]:
        """`make` under the source location of the op that it belongs to, whenever it is called."""

        def made(i: int) -> str:
            outer, self.w.loc = self.w.loc, loc
            piece = make(i)
            self.w.loc = outer
            return piece

        return made

    def is_deferrable(self, op: Op) -> bool:
        """Whether the pieces of an elementwise result may be computed where they are used: by the only op that uses it, in
        the same block, which takes it piece by piece."""
        return op in self.deferrable

    def scalar(self, v: Value) -> str:
        x = self.values[v]
        assert isinstance(x, str), v
        return x

    def tile(self, v: Value) -> Tile:
        x = self.values[v]
        assert isinstance(x, Tile), v
        return x

    def pointer(self, view: Value) -> str:
        """The base pointer of a view."""
        return f"%arg_{view.name}"

    def zeros(self) -> str:
        """Address of a block of zero bytes, always readable."""
        self.needs_zeros = True
        return self.w.hoist("zeros", lambda: self.w.op("llvm.mlir.addressof @tileir_zeros : !llvm.ptr<1>"))

    def literal(self, value: int | float | bool, elem: Elem) -> str:
        """MLIR attribute text of a constant (without its type)."""
        if elem.is_bool:
            return "true" if value else "false"
        if elem.is_int:
            wrapped = int(value) & ((1 << elem.bits) - 1)
            return str(wrapped - (1 << elem.bits) if wrapped >> (elem.bits - 1) else wrapped)
        import numpy as np

        with np.errstate(over="ignore"):  # an f64 beyond the range of the type is infinite there
            bits = np.asarray(value, np.float64).astype(elem.np).view(f"u{elem.bytes}")
        if elem.bits == 8:
            return str(int(bits))
        return f"0x{int(bits):0{elem.bits // 4}X}"

    def splat_literal(self, value: int | float | bool, elem: Elem, n: int) -> str:
        return self.w.splat_const(self.literal(value, elem), scalar_type(elem), n)

    def unsupported(self, what: str, loc: Loc, legal: str) -> CompileError:
        """The diagnostic for something that has no lowering yet."""
        return error("E0903", f"{what} cannot be compiled for {self.target.name} yet", loc, legal=legal)


def _deferrable(block: Block, users: dict[Value, list[tuple[Op, int]]]) -> set[Op]:
    here = set(block.ops)
    found: set[Op] = set()
    for op in block.ops:
        for region in op.regions:
            found |= _deferrable(region, users)
        if not get(op.name).elementwise or op.result.tile.is_scalar:
            continue
        used = users.get(op.result, [])
        if len(used) != 1 or used[0][0] not in here:
            continue
        user = used[0][0]
        same = get(user.name).elementwise and user.result.tile.shape == op.result.tile.shape
        # A mask takes two scalar registers per vector register of its operands: never keep a whole tile of them.
        light = op.result.tile.elem.is_bool or sum(v.tile.rank > 0 for v in op.operands) <= 1
        if user.name in ("store", "shared_store") or (same and (light or user in _only_stored(users, user, here))):
            found.add(op)
    return found


def _only_stored(users: dict[Value, list[tuple[Op, int]]], op: Op, here: set[Op]) -> set[Op]:
    """The ops from `op` down a chain of elementwise ops with one use each, if the chain ends in a store of this block."""
    chain: set[Op] = set()
    while True:
        chain.add(op)
        used = users.get(op.result, [])
        if len(used) != 1 or used[0][0] not in here:
            return set()
        op = used[0][0]
        if op.name in ("store", "shared_store"):
            return chain
        if not get(op.name).elementwise:
            return set()


def _late_reads(block: Block, users: dict[Value, list[tuple[Op, int]]]) -> set[Op]:
    """LDS reads of operands of an `mma` that can be done piece by piece as the products need them: nothing happens to LDS
    between the read and the `mma`."""
    found: set[Op] = set()
    for op in block.ops:
        for region in op.regions:
            found |= _late_reads(region, users)
    for position, op in enumerate(block.ops):
        if op.name != "mma":
            continue
        for v in op.operands[:2]:
            read = v.owner
            while read is not None and read.name == "transpose" and len(users[read.operands[0]]) == 1:
                read = read.operands[0].owner
            if (
                read is not None
                and read.name in ("shared_load", "shared_load_transposed")
                and read in block.ops[:position]
                and len(users[read.result]) == 1
                and len(users[v]) == 1
                and not any(_touches_lds(x) for x in block.ops[block.ops.index(read) + 1 : position])
            ):
                found.add(read)
    return found


def _touches_lds(op: Op) -> bool:
    effects = get(op.name).effects
    return bool(op.regions or effects & {"write", "sync", "async", "control"})
