"""Gives every LDS buffer its place; buffers that are never in use at one time may share bytes.

    kernel @gemm(…) … with(target = gfx950, waves = 4) {
      %sa = shared_alloc() : shared<bf16[64, 64], rows>
      %sb = shared_alloc() : shared<bf16[64, 64], rows>

becomes

    kernel @gemm(…) … with(target = gfx950, waves = 4, lds = 16384) {
      %sa = shared_alloc<offset = 0>() : shared<bf16[64, 64], rows>
      %sb = shared_alloc<offset = 8192>() : shared<bf16[64, 64], rows>

Offsets that the text already has are kept. Buffers are placed from the largest to the smallest, each in the smallest gap
that holds it between those in use at the same time. `synchronise` comes later and sees the shared bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tileir.ir.core import Kernel, Op
from tileir.ir.diagnostics import CompileError, Diagnostic, Note, error
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.passes.base import Context, Pass
from tileir.passes.lds_sizes import ALIGNMENT, Buffer, buffers, over_budget
from tileir.target import Target


def allocate(found: list[Buffer]) -> dict[Op, int]:
    """Offsets in bytes for all buffers."""
    offsets = {b.op: offset for b in found if (offset := written_offset(b.op)) >= 0}
    order = sorted((b for b in found if b.op not in offsets), key=lambda b: -b.size)
    placed = _Lifetimes(found)
    for b in found:
        if b.op in offsets:
            placed.add(b)
    for b in order:
        offsets[b.op] = _best_fit(b, placed.meeting(b), offsets)
        placed.add(b)
    return offsets


class _Lifetimes:
    """Buffers by when they are in use. Only few are at one time, as they share the LDS."""

    def __init__(self, every: Sequence[Buffer]) -> None:
        """`every` are the buffers that will be added."""
        self._width = 1 + max((b.last for b in every), default=0) // max(1, len(every))
        self._buffers: list[Buffer] = []
        self._at: dict[int, list[int]] = {}  # numbers of the buffers in use in each stretch of the program

    def _stretches(self, b: Buffer) -> range:
        return range(b.first // self._width, b.last // self._width + 1)

    def add(self, b: Buffer) -> None:
        """Adds a buffer."""
        for at in self._stretches(b):
            self._at.setdefault(at, []).append(len(self._buffers))
        self._buffers.append(b)

    def meeting(self, b: Buffer) -> list[Buffer]:
        """Those in use at the same time as `b`, in the order in which they were added."""
        near = sorted({i for at in self._stretches(b) for i in self._at.get(at, ())})
        return [other for i in near if (other := self._buffers[i]).meets(b)]


def written_offset(op: Op) -> int:
    """The offset that the text states, -1 if none."""
    offset = op.attrs.get("offset", -1)
    assert isinstance(offset, int)
    return offset


def _best_fit(b: Buffer, busy: list[Buffer], offsets: dict[Op, int]) -> int:
    """The start of the smallest gap that holds the buffer; after all others if there is none."""
    at, best, best_gap = 0, -1, 0
    for other in sorted(busy, key=lambda p: offsets[p.op]):
        gap = offsets[other.op] - at
        if gap >= b.size and (best < 0 or gap < best_gap):
            best, best_gap = at, gap
        at = max(at, _round_up(offsets[other.op] + other.size, b.alignment))
    return best if best >= 0 else at


def _round_up(n: int, to: int) -> int:
    return -(-n // to) * to


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    found = buffers(kernel)
    offsets = allocate(found)
    total = max((offsets[b.op] + b.size for b in found), default=0)
    if total > ctx.target.lds_bytes:
        raise CompileError([over_budget(kernel, found, total, ctx.target)])

    def rule(rw: Rewriter, op: Op) -> bool:
        if op not in offsets:
            return False
        rw.copy(op, attrs={**op.attrs, "offset": offsets[op]})
        return True

    new = rewrite(kernel, rule)
    new.attrs["lds"] = total
    return new


def check_allocation(kernel: Kernel, target: Target) -> None:
    """The normal form `lds_allocated`. Raises CompileError at the first buffer that is misplaced."""
    found = buffers(kernel)
    lds = kernel.attrs.get("lds")
    if not isinstance(lds, int):
        raise error(
            "E1016", f"kernel '{kernel.name}' does not state its bytes of LDS", kernel.loc, legal="with(lds = …)"
        )
    if lds > target.lds_bytes:
        raise CompileError([over_budget(kernel, found, lds, target)] if found else [_too_large(kernel, lds, target)])
    earlier = _Lifetimes(found)
    for b in found:
        name, offset = b.op.result.name, written_offset(b.op)
        if offset < 0:
            raise error("E1016", f"LDS buffer %{name} has no offset", b.op.loc, legal="shared_alloc<offset = …>")
        if offset % ALIGNMENT or offset + b.size > lds:
            raise error(
                "E1016",
                f"LDS buffer %{name} at {offset} with {b.size} bytes does not fit into lds = {lds}",
                b.op.loc,
                legal=f"a multiple of {ALIGNMENT} from 0 to {lds - b.size}",
            )
        for other in earlier.meeting(b):
            start = written_offset(other.op)
            if offset < start + other.size and start < offset + b.size:
                raise error(
                    "E1019",
                    f"LDS buffers %{name} and %{other.op.result.name} share bytes, but are in use at one time",
                    b.op.loc,
                    legal="offsets whose ranges do not overlap",
                    notes=[Note("the other buffer", other.op.loc)],
                )
        earlier.add(b)


def _too_large(kernel: Kernel, lds: int, target: Target) -> Diagnostic:
    message = f"kernel '{kernel.name}' states lds = {lds}; a workgroup of {target.name} has {target.lds_bytes} bytes"
    return Diagnostic("E0861", message, kernel.loc, legal=f"at most {target.lds_bytes}")


PASS = Pass(
    "allocate-lds",
    _run,
    requires=frozenset({"bound", "lds_laid_out", "pipelined"}),
    establishes=frozenset({"lds_allocated"}),
    summary="gives every LDS buffer its place",
)
