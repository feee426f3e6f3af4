"""Wave-level ops that bring a tile into another register layout inside every wave, one kind of movement each. The layouts of
operand and result say what moves where; the interpreter carries it out on the registers of all lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tileir.ir.registry import AttrSpec, Check, OpDef, declare
from tileir.ir.types import TileType, Type
from tileir.layout.linear import Layout, LayoutError
from tileir.layout.motion import (
    Motion,
    bits_swapped,
    collect,
    distribute,
    moved,
    select_motion,
    shuffle_motion,
    swapped,
)

SWAP_MEANS = ("permlane_swap", "dpp", "ds_swizzle", "ds_bpermute")
SHUFFLE_MEANS = ("dpp", "ds_swizzle", "ds_bpermute")


def _laid_out(c: Check) -> TileType:
    t = c.tile(0, "a tile")
    if t.layout is None:
        c.fail("E0357", f"'{c.name}' of {t}, which has no register layout", 0, legal="tile<…, linear(…)>")
    return t


def _swap(c: Check) -> Sequence[Type]:
    t = _laid_out(c)
    register, lane = c.attrs["register"], c.attrs["lane"]
    assert t.layout is not None and isinstance(register, int) and isinstance(lane, int)
    try:
        return [t.with_layout(swapped(t.layout, register, lane))]
    except LayoutError as e:
        c.fail("E0357", f"'{c.name}' of {e}", legal="bits that the layout has")


def _swap_value(ctx: Any, op: Any, args: Sequence[Any]) -> Any:
    registers = distribute(args[0], op.operands[0].tile.layout)
    return collect(bits_swapped(registers, op.attrs["register"], op.attrs["lane"]), op.results[0].tile.layout)


declare(
    OpDef(
        "swap_lanes",
        "The same tile after bit `register` of the register number and bit `lane` of the lane number have changed places: lanes "
        "that differ in this bit exchange half of their registers. `via` says by which instructions.",
        ("x",),
        _swap,
        attrs=(
            AttrSpec("register", "int", doc="bit of the register number"),
            AttrSpec("lane", "int", doc="bit of the lane number, 0 to 5"),
            AttrSpec("via", "word", choices=SWAP_MEANS),
        ),
        level="wave",
        category="wave",
        semantics=_swap_value,
        example="%y = swap_lanes<register = 0, lane = 5, via = ds_bpermute>(%held) : tile<f32[2], linear(reg = [[0]], "
        "lane = [[0], [0], [0], [0], [0], [1]], wave = [])>",
    )
)


def _moving(
    find: Callable[[Layout, Layout], Motion | None], what: str, legal: str
) -> Callable[[Check], Sequence[Type]]:
    def rule(c: Check) -> Sequence[Type]:
        t, want = _laid_out(c), c.wanted()
        if not isinstance(want, TileType) or want.layout is None or want.with_layout(None) != t.with_layout(None):
            c.fail(
                "E0342", f"'{c.name}' of {t.with_layout(None)} to {want}", 0, legal="the same tile type with a layout"
            )
        assert t.layout is not None
        if find(t.layout, want.layout) is None:
            c.fail("E0358", f"'{c.name}' from {t.layout} to {want.layout}: {what}", legal=legal)
        return [want]

    return rule


def _moved(find: Callable[[Layout, Layout], Motion | None]) -> Callable[[Any, Any, Sequence[Any]], Any]:
    def semantics(ctx: Any, op: Any, args: Sequence[Any]) -> Any:
        src, dst = op.operands[0].tile.layout, op.results[0].tile.layout
        motion = find(src, dst)
        assert motion is not None, "checked by the type rule"
        return collect(moved(distribute(args[0], src), motion, dst), dst)

    return semantics


declare(
    OpDef(
        "shuffle_lanes",
        "The same tile in another register layout, every register from the register of the same number in other lanes of its wave. "
        "`via` says by which instructions.",
        ("x",),
        _moving(
            shuffle_motion,
            "a register does not come from the same register of lanes of its wave",
            "layouts with equal repetitions whose register and wave vectors differ by sums of lane vectors",
        ),
        attrs=(AttrSpec("via", "word", choices=SHUFFLE_MEANS),),
        level="wave",
        category="wave",
        semantics=_moved(shuffle_motion),
        example="%y = shuffle_lanes<via = dpp>(%spread) : tile<f32[2], linear(reg = [], "
        "lane = [[0], [1], [0], [0], [0], [0]], wave = [])>",
    )
)
declare(
    OpDef(
        "select_registers",
        "The same tile in another register layout in which every lane keeps what it holds, but takes each register from one that "
        "depends on its own number and that of its wave.",
        ("x",),
        _moving(
            select_motion,
            "a lane does not hold all that it needs",
            "layouts with equal repetitions whose lane and wave vectors differ by sums of register vectors",
        ),
        level="wave",
        category="wave",
        semantics=_moved(select_motion),
        example="%y = select_registers(%held) : tile<f32[2], linear(reg = [], "
        "lane = [[1], [0], [0], [0], [0], [0]], wave = [])>",
    )
)
