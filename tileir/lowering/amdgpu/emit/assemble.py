"""Taking tiles apart and putting them together: registers get new names (see `tileir.passes.grain_layouts`)."""

from __future__ import annotations

from tileir.ir.core import Op
from tileir.ir.ops.assemble import places
from tileir.ir.types import TileType
from tileir.lowering.amdgpu.emit.coords import register_table
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import Tile

Place = tuple[int, ...]


def _places(t: TileType) -> list[Place]:
    """What each register adds to the coordinates of its lane."""
    assert t.layout is not None
    return [tuple(sum(c) for c in place) for place in register_table(t.layout)]


def _moved(place: Place, by: Place, sign: int) -> Place:
    return tuple(a + sign * b for a, b in zip(place, by, strict=True))


def assemble(s: State, op: Op) -> None:
    w, t = s.w, op.result.tile
    held: dict[Place, str] = {}
    if op.name in ("slice", "insert"):
        held.update(zip(_places(op.operands[0].tile), s.tile(op.operands[0]).scalars(w), strict=True))
    if op.name == "slice":
        ((_, at),) = places(op)
        held = {_moved(place, at, -1): value for place, value in held.items()}
    else:
        parts = [op.operands[1]] if op.name == "insert" else op.operands
        for v, (_, at) in zip(parts, places(op), strict=True):
            values = s.tile(v).scalars(w)
            held.update((_moved(p, at, 1), x) for p, x in zip(_places(v.tile), values, strict=True))
    wanted = _places(t)
    if any(place not in held for place in wanted):
        raise s.unsupported(f"'{op.name}' in these layouts", op.loc, "layouts as the pass assign-layouts makes them")
    s.values[op.result] = Tile(t, 1, [held[place] for place in wanted])
