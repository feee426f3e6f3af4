"""How many vector-memory instructions an op certainly issues in every wave: what counted waits are made of.

`wait<vm = n>` lets the n newest instructions of the wave be under way. To cover an older one, n may be at most the number of
instructions that are newer *for sure*, so every figure here is a lower bound; ops whose instructions some waves may skip
count 0.
"""

from __future__ import annotations

from tileir.ir.core import AttrValue, Kernel, Op
from tileir.ir.types import SharedType
from tileir.target import Target

LANES = 64


def rounds(copy: Op, waves: int) -> tuple[int, int]:
    """Instructions of a wave for a direct copy: those that every wave issues, and with the last round, which may not fill all waves
    and is then skipped by some. (0, 1) while the buffer has no layout."""
    buffer, piece = copy.operands[-1].type, copy.attrs["bytes"]
    assert isinstance(buffer, SharedType) and isinstance(piece, int)
    if buffer.layout is None:
        return 0, 1
    layout = buffer.layout
    size = layout.image_bytes if layout.kind == "slabs" else layout.size_bytes
    each = LANES * piece * waves
    return size // each, -(-size // each)


def together_of(copy: Op, waves: int, target: Target) -> dict[str, AttrValue]:
    """The attribute `together` of the parts of a direct copy: as many as the offset of an instruction reaches and divide the parts, all
    of which every wave issues; nothing where it is 1."""
    certain, all_parts = rounds(copy, waves)
    buffer, piece = copy.operands[-1].type, copy.attrs["bytes"]
    assert isinstance(buffer, SharedType) and isinstance(piece, int)
    if buffer.layout is None or certain != all_parts:
        return {}
    pitch = buffer.layout.args[1] if buffer.layout.kind == "slabs" else LANES * piece
    most = 1 + target.direct_to_lds_offset // pitch
    together = max(n for n in range(1, most + 1) if certain % n == 0)
    return {"together": together} if together > 1 else {}


def instructions(op: Op, kernel: Kernel) -> int:
    """Vector-memory instructions that every wave issues for this op, at least."""
    waves = kernel.attrs.get("waves")
    if op.name == "load_fragment":
        return 1
    if op.name == "atomic_add" and op.attrs.get("via") == "buffer":
        layout = op.operands[0].tile.layout
        return 0 if layout is None else sum(not r & layout.free.reg for r in range(layout.num_registers))
    if op.name not in ("copy_async", "copy_async_part") or not isinstance(waves, int):
        return 0
    certain, _ = rounds(op, waves)
    return certain if op.name == "copy_async" else int(op.attrs["part"] < certain)  # type: ignore[operator]
