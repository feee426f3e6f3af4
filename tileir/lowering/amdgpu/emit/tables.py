"""Tables of constants: arrays in the code object, of which every lane loads its elements."""

from __future__ import annotations

import numpy as np

from tileir.ir.core import Op
from tileir.ir.ops.create import table_values
from tileir.lowering.amdgpu.emit.coords import coordinate
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import Tile
from tileir.lowering.amdgpu.emit.views import from_memory, memory_type

WIDEST = 16  # bytes of one load, and the alignment of a table


def table(s: State, op: Op) -> None:
    w, t = s.w, op.result.tile
    layout = t.layout
    assert layout is not None
    values = table_values(op)
    padded = np.zeros(layout.padded_shape, values.dtype)  # lanes without an element read, too
    padded[: len(values)] = values
    name = s.table(padded.tobytes())
    base = w.hoist(("table", name), lambda: w.op(f"llvm.mlir.addressof @{name} : !llvm.ptr<1>"))
    size = t.elem.bytes
    n = max(1, min(layout.contiguous(0), WIDEST // size))
    pieces: list[str] = []
    for r in range(0, layout.num_registers, n):
        c = coordinate(w, layout, r, 0)
        offset = w.mul(w.add(c.base, c.offset), size)
        pointer = w.op(f"llvm.getelementptr {base}[{offset}] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8")
        raw = w.op(f"llvm.load {pointer} {{alignment = {n * size} : i64}} : !llvm.ptr<1> -> {memory_type(n * size)}")
        pieces.append(from_memory(w, raw, t, n))
    s.values[op.result] = Tile(t, n, pieces)
