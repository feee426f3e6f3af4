"""Checks that no read of LDS comes before everything that could have written what it reads.

Waits and barriers order a read behind the writes that there are; whether there is one is another question. A copy that is missing before a
loop whose body copies again is ordered perfectly, and the first iteration reads what LDS happened to hold.

A read is rejected only if it is certain: along every path to the first time that it runs there is an element that it reads and nothing
has written. The writes that may have come before it are followed through the text; those behind it in a loop count only where
the first time may be in a later iteration, that is, in a branch or an inner loop that depends on what the loop changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.diagnostics import CompileError, Diagnostic, Note
from tileir.ir.ops.fragments import part_mask, put_registers
from tileir.ir.registry import get
from tileir.ir.types import FragmentType, SharedType
from tileir.passes.outstanding import LANES, rounds
from tileir.records import dataclass

Mask = np.ndarray[Any, np.dtype[np.bool_]]
_REGIONS = {"for": 3, "if": 1}
"""Ops with regions whose first operands say whether these run, and how many operands that are."""


def check_written(kernel: Kernel) -> None:
    """Raises CompileError (E1037, one diagnostic for each buffer) if LDS is read that nothing can have written."""
    follower = _Follower(kernel)
    follower.block(kernel.body, frozenset(), ())
    if follower.found:
        raise CompileError(list(follower.found.values()))


@dataclass(frozen=True)
class _Loop:
    """A loop around an op: the writes in it, and what it defines."""

    writes: frozenset[Op]
    values: frozenset[Value]


class _Follower:
    def __init__(self, kernel: Kernel):
        waves = kernel.attrs.get("waves")
        self.waves = waves if isinstance(waves, int) else 1
        self.found: dict[Op, Diagnostic] = {}
        # Writes of each allocation. What is written through another buffer in the same bytes is not there to be read.
        self.into: dict[Op, list[Op]] = {}
        self.writes = frozenset(op for op in kernel.walk() if _buffers(op)[1])
        allocations = [op for op in kernel.walk() if op.name == "shared_alloc"]
        for op in kernel.walk():
            for v in _buffers(op)[1]:
                for allocation in allocations:
                    if v.owner is None or v.owner.regions or v.owner is allocation:  # carried: it may be any
                        self.into.setdefault(allocation, []).append(op)

    def block(self, block: Block, before: frozenset[Op], loops: tuple[_Loop, ...]) -> frozenset[Op]:
        """Follows a block. before: writes that may have come; the result: those that may have come behind it."""
        for op in block.ops:
            reads, writes = _buffers(op)
            for v in reads:
                if v.owner is not None and v.owner.name == "shared_alloc" and v.owner not in self.found:
                    self._look(op, v.owner, before)
            if writes:
                before |= {op}
            if not op.regions:
                continue
            inside = before
            if loops and not _settled(op, loops[0].values):
                inside |= loops[0].writes
            around = loops
            if op.name in ("for", "while"):
                around = (*loops, _Loop(self.writes.intersection(op.walk()), frozenset(_defined(op))))
            ends = [inside]
            for region in op.regions:
                start = ends[-1] if op.name == "while" else inside
                ends.append(self.block(region, start, around))
            before = before.union(*ends[1:])
        return before

    def _look(self, read: Op, allocation: Op, before: frozenset[Op]) -> None:
        all_writes = self.into.get(allocation, [])
        writes = [op for op in all_writes if op in before]
        if self._complete(writes, allocation):
            return
        if writes and read.name == "shared_load_transposed_fragment":  # of which elements, only code generation knows
            return
        type = allocation.result.type
        assert isinstance(type, SharedType)
        missing = self._read_by(read, type)
        for op in writes:
            missing = missing & ~self._written_by(op, type)
        if not missing.any():
            return
        later = next(
            (op for op in all_writes if op not in before and (self._written_by(op, type) & missing).any()), None
        )
        what = f"%{allocation.result.name}" if not writes else f"{int(missing.sum())} elements of what it reads"
        notes = (Note("a write of it, which comes later or on another path", later.loc),) if later is not None else ()
        self.found[allocation] = Diagnostic(
            "E1037",
            f"the first time that this '{read.name}' of %{allocation.result.name} runs, nothing has written {what}",
            read.loc,
            "error",
            (*notes, Note("the buffer", allocation.loc)),
            "a write of all that is read before this, on the way from the start of the kernel",
        )

    def _complete(self, writes: list[Op], allocation: Op) -> bool:
        """Whether these writes fill the buffer for sure, without a look at elements."""
        parts: set[object] = set()
        stored: dict[Value, set[object]] = {}
        for op in writes:
            if op.name == "copy_async_part" and op.operands[-1].owner is allocation:
                parts.add(op.attrs["part"])
                if len(parts) >= rounds(op, self.waves)[1]:
                    return True
            elif op.name == "shared_store_fragment" and op.operands[1].owner is allocation:
                fragment, layout = op.operands[0].type, op.operands[2].tile.layout
                assert isinstance(fragment, FragmentType) and layout is not None
                places = stored.setdefault(op.operands[2], set())
                places.add(op.attrs.get("at", 0))
                if len(places) * fragment.count >= layout.num_registers:
                    return True
            else:
                return True
        return False

    def _read_by(self, op: Op, type: SharedType) -> Mask:
        if op.name != "shared_load_fragment":
            return np.ones(type.shape, bool)
        layout, result = op.operands[1].tile.layout, op.results[0].type
        assert layout is not None and isinstance(result, FragmentType)
        return _registers(op, layout, result, type)

    def _written_by(self, op: Op, type: SharedType) -> Mask:
        into = op.operands[-1 if op.name == "copy_async_part" else 1].type if op.operands[1:] else None
        if op.name == "copy_async_part" and into == type:
            return part_mask(op, self.waves * LANES)
        if op.name == "shared_store_fragment" and into == type:
            layout, stored = op.operands[2].tile.layout, op.operands[0].type
            assert layout is not None and isinstance(stored, FragmentType)
            return _registers(op, layout, stored, type)
        return np.ones(type.shape, bool)


def _registers(op: Op, layout: Any, fragment: FragmentType, type: SharedType) -> Mask:
    """The elements that the registers of a fragment hold."""
    at = op.attrs.get("at", 0)
    assert isinstance(at, int)
    ones = np.ones((layout.num_waves, LANES, fragment.count), bool)
    return put_registers(layout, np.zeros(type.shape, bool), at, ones)


def _buffers(op: Op) -> tuple[list[Value], list[Value]]:
    """The LDS buffers that an op reads, and those that it writes."""
    effects = get(op.name).effects
    if not effects or op.regions:
        return [], []
    buffers = [v for v in op.operands if isinstance(v.type, SharedType)]
    if not buffers:
        return [], []
    fills = get(op.name).access_position is not None or "write" in effects or "atomic" in effects
    return ([], buffers) if fills else (buffers, [])


def _defined(loop: Op) -> list[Value]:
    """What has a value for each iteration of a loop."""
    inner = [op for op in loop.walk() if op is not loop]
    arguments = [v for op in (loop, *inner) for region in op.regions for v in region.args]
    return arguments + [v for op in inner for v in op.results]


def _settled(op: Op, changing: frozenset[Value]) -> bool:
    """Whether the regions of an op run in the first iteration of a loop if they do so in any: what decides it does not change."""
    count = _REGIONS.get(op.name)
    return count is not None and all(_constant(v, changing) for v in op.operands[:count])


def _constant(v: Value, changing: frozenset[Value]) -> bool:
    if v not in changing:
        return True
    return (
        v.owner is not None
        and not v.owner.regions
        and get(v.owner.name).is_pure
        and all(_constant(x, changing) for x in v.owner.operands)
    )
