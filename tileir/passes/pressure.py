"""How many vector registers a lane needs at least: tile values that are alive at the same time, from the final text.

This is a bound for rejecting the hopeless quickly, not a prediction: LLVM may keep less alive by computing pieces late, and needs
more for addresses and temporaries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.types import TileType
from tileir.passes.layout_classes import is_free

REGISTER_BYTES = 4


def registers_of(v: Value) -> int:
    """Vector registers per lane of a tile value; masks and values that are made anew at each use take none."""
    t = v.type
    if not isinstance(t, TileType) or t.layout is None or t.elem.is_bool or is_free(v):
        return 0
    return -(-t.layout.num_registers * t.elem.bits // (8 * REGISTER_BYTES))


@dataclass(frozen=True)
class Peak:
    """The op with the most registers alive, how many, and the values that take them, largest first."""

    registers: int
    op: Op | None
    values: tuple[Value, ...]


def peak(kernel: Kernel) -> Peak:
    """The worst point of a kernel whose tiles have layouts."""
    walk = _Walk()
    walk.block(kernel.body, set())
    values = sorted(walk.live, key=lambda v: (-registers_of(v), v.name))
    return Peak(walk.registers, walk.op, tuple(v for v in values if registers_of(v)))


class _Walk:
    def __init__(self) -> None:
        self.registers = 0
        self.op: Op | None = None
        self.live: set[Value] = set()

    def block(self, block: Block, after: set[Value]) -> set[Value]:
        """Values alive before the block, given those alive after it."""
        live = set(after)
        for op in reversed(block.ops):
            live -= set(op.results)
            inside = live | set(op.operands)
            for region in op.regions:
                # what a loop uses from outside is alive all through it
                outside = inside | (_used(region) - _defined(region)) if op.name in ("for", "while") else inside
                live |= self.block(region, outside) - set(region.args)
            after_op = set(op.results)
            if op.name == "mma" and len(op.operands) == 3 and op.operands[2] not in live:
                after_op.clear()  # the accumulator is overwritten in place
            live |= set(op.operands)
            self._note(op, live if op.regions else live | after_op)
        return live

    def _note(self, op: Op, live: Iterable[Value]) -> None:
        total = sum(registers_of(v) for v in live)
        if total > self.registers:
            self.registers, self.op, self.live = total, op, set(live)


def _used(block: Block) -> set[Value]:
    return {v for op in block.walk() for v in op.operands}


def _defined(block: Block) -> set[Value]:
    found = set(block.args)
    for op in block.walk():
        found.update(op.results)
        for region in op.regions:
            found.update(region.args)
    return found
