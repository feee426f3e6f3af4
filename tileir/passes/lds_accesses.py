"""The accesses of an LDS buffer by the ops of the text: which machine instruction, at which element each lane begins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tileir.ir.core import Kernel, Op
from tileir.ir.types import Elem, FragmentType, SharedType, TileType
from tileir.layout import Layout, LayoutError, SharedLayout
from tileir.layout.banks import Access, Consecutive
from tileir.layout.linear import WAVE
from tileir.passes.transposing_reads import READS, addressed_layout
from tileir.records import dataclass
from tileir.target import Target
from tileir.target.model import LdsAccess

_SUFFIX = {16: "b128", 8: "b64", 4: "b32"}
DIRECT_SUFFIX = {16: "x4", 12: "x3", 4: ""}
_NARROW = {
    ("read", 2): "ds_read_u16",
    ("read", 1): "ds_read_u8",
    ("write", 2): "ds_write_b16",
    ("write", 1): "ds_write_b8",
}

DIRECT = ("copy_async", "copy_async_part")
FRAGMENTS = {
    "shared_load_fragment": "shared_load",
    "shared_load_transposed_fragment": "shared_load_transposed",
    "shared_store_fragment": "shared_store",
}
"""Ops of single instructions, and those that move a whole tile by the same instructions."""


@dataclass(frozen=True)
class RegisterAccess:
    """An op that moves a tile, or a run of its registers, between registers and LDS: the name of the op that moves the whole, the tile,
    and the most bytes of a lane and instruction."""

    name: str
    tile: TileType
    widest: int

    @classmethod
    def of(cls, op: Op) -> RegisterAccess:
        if op.name in FRAGMENTS:
            fragment = (op.operands[0] if op.name == "shared_store_fragment" else op.result).type
            assert isinstance(fragment, FragmentType)
            return cls(FRAGMENTS[op.name], op.operands[-1].tile, fragment.count * fragment.elem.bits // 8)
        return cls(op.name, (op.operands[0] if op.name == "shared_store" else op.result).tile, 16)


def lds_instruction(direction: str, width: int) -> str:
    """Machine instruction of a "read" or "write" of `width` bytes per lane."""
    return _NARROW.get((direction, width)) or f"ds_{direction}_{_SUFFIX[width]}"


def as_matrix(layout: Layout, matrix: tuple[int, int]) -> Layout | None:
    """The register layout of a tile seen as the matrix of its LDS buffer; None where it cannot be seen so."""
    try:
        return layout if layout.shape == matrix else layout.reshape(matrix)
    except LayoutError:
        return None


def over_buffer(layout: Layout, shared: SharedType) -> Layout:
    """The register layout of a tile over its LDS buffer: as a matrix if it can be seen so, which makes addresses linear in
    bits, else as it is, with the dimensions but the last as rows."""
    return as_matrix(layout, shared.matrix) or layout


def access_bytes(t: TileType, shared: SharedLayout | None = None) -> int:
    """Bytes per lane of one LDS access of a tile whose last dimension is contiguous: at most 16, what the registers
    hold contiguously, and what the buffer's layout keeps whole and aligned."""
    assert t.layout is not None
    axis = t.rank - 1
    run = t.layout.contiguous(axis)
    while t.shape[axis] % run:  # a run must not reach past the row into padding
        run //= 2
    width = min(16, t.elem.run_bytes(run))
    if shared is not None:
        width = min(width, shared.granule)
        pitch = shared.args[0] if shared.kind == "padded" else shared.row_bytes
        if shared.rows > 1:
            width = min(width, pitch & -pitch)
    return max(t.elem.unit[1], width)


def threads_of(kernel: Kernel) -> int:
    """Lanes of a workgroup; one wave while the text does not say."""
    waves = kernel.attrs.get("waves")
    return WAVE * (waves if isinstance(waves, int) else 1)


def direct_rule(found: list[Op], target: Target) -> LdsAccess | None:
    for op in found:
        if op.name in DIRECT:
            width = op.attrs["bytes"]
            assert isinstance(width, int)
            return target.lds_access(f"buffer_load_dword{DIRECT_SUFFIX[width]}_lds")
    return None


def access_of(op: Op, shared: SharedType, threads: int, target: Target) -> Access:
    """The addresses of an op that reads or writes a buffer from registers; of one that moves a run of them, those of all runs."""
    if op.name == "copy":
        return copied(f"element-wise write at line {op.loc.line}", shared, threads, target)
    access = RegisterAccess.of(op)
    t = access.tile
    name = f"{'write' if access.name == 'shared_store' else 'read'} at line {op.loc.line}"
    if access.name == "shared_load_transposed":
        source = addressed_layout(t)
        assert source is not None, "the op is only made where such a read exists"
        return Access.of_layout(name, target.lds_access(READS[shared.elem.bits]), source, shared.elem.bits)
    assert t.layout is not None and shared.layout is not None
    view = shared
    if t.shape != shared.shape:  # the same bytes as rows of another shape
        view = SharedType(t.elem, t.shape)
        view = replace(view, layout=SharedLayout.from_spec(view.matrix, t.elem.bits))
    layout = over_buffer(t.layout, view)
    width = min(access.widest, access_bytes(TileType(t.elem, layout.shape, layout), view.layout))
    direction = "write" if access.name == "shared_store" else "read"
    found = Access.of_layout(name, target.lds_access(lds_instruction(direction, width)), layout, shared.elem.bits)
    if view is shared:
        return found
    place = found.rows * view.matrix[1] + found.cols
    row, col = np.divmod(place, shared.matrix[1])
    return Access(name, found.rule, np.where(found.rows < 0, -1, row), np.where(found.rows < 0, 0, col))


def copies_by_place(elem: Elem) -> bool:
    """Whether an element-wise copy writes the places of a buffer in their order, so that no write conflicts whatever the layout: where
    elements, or the least run of them that is whole bytes, are a power of two of bytes. Else it goes by the order of elements."""
    size = elem.unit[1]
    return size & (size - 1) == 0


def copied(name: str, shared: SharedType, threads: int, target: Target) -> Access:
    """Element-wise copies: the threads of the workgroup take consecutive places, or elements, in turn (see `copies_by_place`)."""
    rows, cols = shared.matrix
    together, size = shared.elem.unit
    rule = target.lds_access(lds_instruction("write", size))
    total = rows * cols // together
    if copies_by_place(shared.elem):
        assert shared.layout is not None
        total = shared.layout.size_bytes // size
    index = np.arange(-(-total // threads) * threads, dtype=np.int64).reshape(-1, WAVE)
    index = np.where(index < total, index, -1)
    index = index[(index >= 0).any(axis=1)]
    if copies_by_place(shared.elem):
        return Consecutive(name, rule, index, 0 * index)
    row, col = np.divmod(index, cols // together)
    return Access(name, rule, np.where(index < 0, -1, row), np.where(index < 0, 0, col * together))
