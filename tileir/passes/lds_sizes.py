"""Bytes and alignment of LDS buffers, and the part of the program in which each must keep its place."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import accumulate

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.diagnostics import Diagnostic, Note
from tileir.ir.types import SharedType, Type
from tileir.records import dataclass
from tileir.target import Target

ALIGNMENT = 16
"""Bytes: the widest LDS access of a lane (CDNA3 ISA, ds_read_b128) must be aligned to its size."""
BANK_ROW = 128
"""Bytes after which the banks repeat (32 banks of 4 bytes; on chips with 64 banks a multiple keeps rows apart alike)."""
DIRECT_SLAB = 1024
"""Bytes that one direct-to-LDS instruction writes: 64 lanes of 16 bytes (CDNA4 ISA, buffer_load … lds)."""


def buffer_bytes(type: Type) -> int:
    """Bytes of an LDS buffer in its layout; densely packed while it has none."""
    assert isinstance(type, SharedType)
    if type.layout is None:
        return -(-math.prod(type.shape) * type.elem.bits // 8)
    return type.layout.size_bytes  # of all leading dimensions: they are rows of `type.matrix`


@dataclass(frozen=True)
class Buffer:
    """An allocation: its op, its size and alignment in bytes, and the first and last position in program order at
    which its contents matter."""

    op: Op
    size: int
    alignment: int
    first: int
    last: int

    def meets(self, other: Buffer) -> bool:
        """Whether both are in use at one time."""
        return self.first <= other.last and other.first <= self.last


def buffers(kernel: Kernel) -> list[Buffer]:
    """Every allocation in program order, with the interval from its first to its last use.

    A use inside a loop counts for the whole loop if the buffer was allocated before it: what one iteration wrote, the next
    one may read. The two branches of an `if` have disjoint positions, so their buffers may share.
    """
    walk = _Walk()
    walk.block(kernel.body, [])
    found: list[Buffer] = []
    for op in walk.allocations:
        first, last = walk.ranges.get(op, (walk.position[op], walk.position[op]))
        found.append(Buffer(op, buffer_bytes(op.result.type), _alignment(op, walk.direct), first, last))
    return found


def least_bytes(found: list[Buffer]) -> int:
    """Bytes that the buffers in use at one time take, wherever they lie: no allocation needs less."""
    # A buffer is in use from its first to its last position, both included: at one position some begin before others end.
    changes = sorted([(b.first, 0, b.size) for b in found] + [(b.last, 1, -b.size) for b in found])
    return max(accumulate(size for _, _, size in changes), default=0)


class InUse:
    """Bytes of LDS that the buffers of a kernel take at one time, by place."""

    def __init__(self, kernel: Kernel) -> None:
        walk = _Walk()
        walk.block(kernel.body, [])
        self._position = walk.position
        self._found = [
            (*walk.ranges.get(op, (walk.position[op],) * 2), buffer_bytes(op.result.type)) for op in walk.allocations
        ]

    def around(self, op: Op, loops: Iterable[Op] = ()) -> tuple[int, int]:
        """At an op, and at most at one time from there to the end of the last of some `loops` behind it."""
        at = self._position[op]
        last = max((self._position[inner] for loop in loops for inner in loop.walk()), default=at)
        here = later = 0
        for start in sorted({at, *(first for first, _, _ in self._found if at <= first <= last)}):
            held = sum(size for first, end, size in self._found if first <= start <= end)
            here, later = (held if start == at else here), max(later, held)
        return here, later


def over_budget(kernel: Kernel, found: list[Buffer], total: int, target: Target) -> Diagnostic:
    """E0861 for buffers that need more LDS than there is: all of them, at the largest."""
    largest = max(found, key=lambda b: b.size)
    notes = [Note(f"%{b.op.result.name} : {b.op.result.type} takes {b.size} bytes", b.op.loc) for b in found]
    return Diagnostic(
        "E0861",
        f"kernel '{kernel.name}' needs {total} bytes of LDS; a workgroup of {target.name} has {target.lds_bytes}",
        largest.op.loc if largest.op.loc.line else kernel.loc,
        notes=tuple(notes),
        legal=f"smaller tiles, so that the buffers in use at one time take at most {target.lds_bytes} bytes",
    )


def _alignment(op: Op, direct: set[Op]) -> int:
    if op in direct:
        return DIRECT_SLAB
    type = op.result.type
    assert isinstance(type, SharedType)
    if type.layout is not None and type.layout.kind in ("swizzle", "xor", "blocks"):
        return BANK_ROW
    return ALIGNMENT


class _Walk:
    """Numbers the ops and collects for every allocation the positions of its uses."""

    def __init__(self) -> None:
        self.allocations: list[Op] = []
        self.position: dict[Op, int] = {}
        self.ranges: dict[Op, tuple[int, int]] = {}
        self.direct: set[Op] = set()
        self._count = 0
        self._loops_at: dict[Op, int] = {}  # how many loops enclose an allocation
        self._stands_for: dict[Value, set[Op]] = {}

    def block(self, block: Block, loops: list[tuple[Op, int, list[Op]]]) -> None:
        for op in block.ops:
            self._count += 1
            self.position[op] = self._count
            if op.name == "shared_alloc":
                self.allocations.append(op)
                self._loops_at[op] = len(loops)
                self._stands_for[op.result] = {op}
            for v in op.operands:
                for alloc in self._stands_for.get(v, ()):
                    self._use(alloc, loops)
                    if op.name in ("copy_async", "copy_async_part") and v is op.operands[-1]:
                        self.direct.add(alloc)
            if op.regions:
                self._structured(op, loops)

    def _use(self, alloc: Op, loops: list[tuple[Op, int, list[Op]]]) -> None:
        self._extend(alloc, self._count)
        for _, start, pending in loops[self._loops_at[alloc] :]:
            self._extend(alloc, start)
            pending.append(alloc)  # also in use until the loop ends, whose position is not known yet

    def _extend(self, alloc: Op, position: int) -> None:
        first, last = self.ranges.get(alloc, (position, position))
        self.ranges[alloc] = min(first, position), max(last, position)

    def _structured(self, op: Op, loops: list[tuple[Op, int, list[Op]]]) -> None:
        """Buffers handed on through arguments and results stand for the same allocations; a loop may rotate them, so
        all that it carries are taken together."""
        carried = {alloc for v in op.operands for alloc in self._stands_for.get(v, ())}
        for region in op.regions:
            for arg in region.args:
                if isinstance(arg.type, SharedType):
                    self._stands_for[arg] = carried
        pending: list[Op] = []
        is_loop = op.name in ("for", "while")
        inner = [*loops, (op, self._count, pending)] if is_loop else loops
        for region in op.regions:
            self.block(region, inner)
        yielded = {alloc for r in op.regions for v in r.terminator.operands for alloc in self._stands_for.get(v, ())}
        for result in op.results:
            if isinstance(result.type, SharedType):
                self._stands_for[result] = carried | yielded
        self._count += 1
        for alloc in pending:
            self._extend(alloc, self._count)
