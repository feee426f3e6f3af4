"""Normal forms: what a pass may rely on, as checkers that read nothing but the text.

A checker raises CompileError at the first op that does not have the form, so that a text resumed in the middle of the
pipeline is rejected with the place and not misread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.diagnostics import CompileError, error
from tileir.ir.ops.atomic import is_atomic
from tileir.ir.ops.lanes import SHUFFLE_MEANS, SWAP_MEANS
from tileir.ir.ops.shape import reshapes_in_place
from tileir.ir.rewriter import uses
from tileir.ir.types import MAX_ELEMENTS, SharedType, TileType
from tileir.layout.conversion import conversion
from tileir.layout.linear import LayoutError
from tileir.layout.motion import shuffle_motion
from tileir.passes.lane_code import can_shuffle, can_swap, reduced_waves
from tileir.passes.legality import check_copies, check_layouts, check_workgroup
from tileir.passes.place_memory import held_loads, is_staged
from tileir.records import dataclass
from tileir.target import Target

Checker = Callable[[Kernel, Target], None]

# Ops that pass a tile on without computing: what stands behind them still comes "straight from memory".
_TRANSPARENT = frozenset({"transpose", "reshape", "broadcast", "convert_layout"})


@dataclass(frozen=True)
class Form:
    """A normal form by name, one line on what it means, and its checker."""

    name: str
    summary: str
    check: Checker


def check(name: str, kernel: Kernel, target: Target) -> None:
    """Raises CompileError unless the kernel has that form; KeyError for an unknown form."""
    FORMS[name].check(kernel, target)


def summary(name: str) -> str:
    """One line on what a form means."""
    return FORMS[name].summary


def source_of(v: Value) -> Op | None:
    """The op that a tile comes from, looking through changes of shape and layout; None for arguments."""
    op = v.owner
    while op is not None and op.name in _TRANSPARENT:
        op = op.operands[0].owner
    return op


def values(kernel: Kernel) -> Iterator[tuple[Value, Op | None]]:
    """Every value that is defined, with the op that holds it (results, region arguments)."""
    for a in kernel.args:
        yield a, None
    for op in kernel.walk():
        for r in op.results:
            yield r, op
        for region in op.regions:
            for a in region.args:
                yield a, op


def _bound(kernel: Kernel, target: Target) -> None:
    bound = kernel.attrs.get("target")
    if bound is None:
        raise error("E1010", f"kernel '{kernel.name}' is not bound to a chip", kernel.loc, legal="with(target = …)")
    if bound != target.name:
        raise error("E1010", f"kernel '{kernel.name}' is bound to {bound}, not to {target.name}", kernel.loc)


def _accesses_chosen(kernel: Kernel, target: Target) -> None:
    for op in kernel.walk():
        if (op.name in ("load", "store") or is_atomic(op)) and not (op.attrs.get("bytes") and op.attrs.get("via")):
            raise error(
                "E1018",
                f"this '{op.name}' does not say how lanes access memory",
                op.loc,
                legal=f"{op.name}<bytes = 16, via = buffer>, or another width and kind",
            )


def _placed(kernel: Kernel, target: Target) -> None:
    found = check_copies(kernel, target)
    if found:
        raise CompileError(found)
    held = held_loads(kernel)
    for op in kernel.walk():
        if op.name != "mma":
            continue
        for i in (0, 1):
            source = source_of(op.operands[i])
            if source is not None and source.name == "load" and is_staged(source) and source not in held:
                raise error(
                    "E1011",
                    f"operand %{op.operands[i].name} of 'mma' comes straight from global memory",
                    op.loc_of(i),
                    legal="an operand that is read from an LDS buffer, or a load with stage = none",
                )


def _laid_out(kernel: Kernel, target: Target) -> None:
    used = uses(kernel)
    for v, op in values(kernel):
        if isinstance(v.type, TileType) and v.type.rank and v.type.layout is None and v in used:
            raise error(
                "E1012",
                f"%{v.name} has no register layout",
                v.loc if v.loc.line or op is None else op.loc,
                legal="tile<…, linear(…)>",
            )
    if not isinstance(kernel.attrs.get("waves"), int):
        raise error(
            "E1012", f"kernel '{kernel.name}' does not say how many waves it has", kernel.loc, legal="with(waves = …)"
        )
    found = check_workgroup(kernel, target, {}) + check_layouts(kernel, target, MAX_ELEMENTS)
    if found:
        raise CompileError(found)


def _converted(kernel: Kernel, target: Target) -> None:
    for op in kernel.walk():
        if op.name == "convert_layout":
            src, dst = op.operands[0].tile.layout, op.result.tile.layout
            if src is None or dst is None:
                raise error("E1012", "'convert_layout' without layouts", op.loc, legal="tile<…, linear(…)>")
            try:
                kind = conversion(src, dst).kind
            except LayoutError as e:
                raise error("E1013", f"this conversion of layouts is not possible: {e}", op.loc) from None
            if kind in ("lanes", "waves"):
                legal = "swap_lanes, shuffle_lanes, select_registers, " if kind == "lanes" else ""
                raise error(
                    "E1013",
                    f"'convert_layout' of %{op.operands[0].name} moves data between {kind}",
                    op.loc,
                    legal=f"{legal}shared_store and shared_load, or a layout that only renames registers",
                )
        elif op.name in ("swap_lanes", "shuffle_lanes"):
            _check_means(op, target)
        elif op.name == "reshape" and op.operands[0].tile.rank and op.result.tile.rank:
            if not reshapes_in_place(op.operands[0].tile, op.result.tile):
                raise error(
                    "E1013",
                    f"'reshape' of %{op.operands[0].name} moves data",
                    op.loc,
                    legal="shared_store, shared_load, or a layout that the reshape keeps in place",
                )
        elif op.name.startswith("reduce_") and op.attrs.get("parts", 1) == 1:
            layout, axis = op.operands[0].tile.layout, op.attrs["axis"]
            assert isinstance(axis, int)
            if layout is not None and reduced_waves(layout, axis):
                raise error(
                    "E1014",
                    f"'{op.name}' of %{op.operands[0].name} reduces across waves",
                    op.loc,
                    legal="a partial reduction, an exchange through LDS, and a second reduction",
                )


def _check_means(op: Op, target: Target) -> None:
    """The chip must have the instructions that exchange these lanes."""
    via = str(op.attrs["via"])
    if op.name == "swap_lanes":
        lane = op.attrs["lane"]
        assert isinstance(lane, int)
        legal = [m for m in SWAP_MEANS if can_swap(m, lane, target)]
        what = f"bit {lane} of the lane number"
    else:
        src, dst = op.operands[0].tile.layout, op.result.tile.layout
        assert src is not None and dst is not None
        motion = shuffle_motion(src, dst)
        assert motion is not None, "checked by the type rule"
        legal = [m for m in SHUFFLE_MEANS if can_shuffle(m, motion, target)]
        what = "these lanes"
    if via not in legal:
        raise error(
            "E1020", f"{target.name} cannot exchange registers over {what} by {via}", op.loc, legal=" | ".join(legal)
        )


def _guards_settled(kernel: Kernel, target: Target) -> None:
    from tileir.passes.settle_guards import check_guards

    check_guards(kernel)


def _shared_values(kernel: Kernel) -> Iterator[tuple[Value, Op]]:
    for op in kernel.walk():
        if op.name == "shared_alloc":
            yield op.result, op


def _lds_laid_out(kernel: Kernel, target: Target) -> None:
    for v, op in _shared_values(kernel):
        assert isinstance(v.type, SharedType)
        if v.type.layout is None:
            raise error("E1015", f"LDS buffer %{v.name} has no layout", op.loc, legal=f"{v.type}, e.g. `, rows`")


def _pipelined(kernel: Kernel, target: Target) -> None:
    for op in kernel.walk():
        if op.name == "shared_alloc" and op.attrs.get("depth", 0) not in (0, 1):
            raise error(
                "E1023", f"LDS buffer %{op.result.name} still wants stages", op.loc, legal="one buffer per stage"
            )


def _lds_allocated(kernel: Kernel, target: Target) -> None:
    from tileir.passes.allocate_lds import check_allocation

    check_allocation(kernel, target)


def _grid_ordered(kernel: Kernel, target: Target) -> None:
    if kernel.attrs.get("ordered") is not True:
        raise error(
            "E1017",
            f"the workgroup order of kernel '{kernel.name}' is not settled",
            kernel.loc,
            legal="with(ordered = true) where the body uses program_id as it shall be",
        )


def _synchronised(kernel: Kernel, target: Target) -> None:
    from tileir.passes.check_sync import check_synchronised

    check_synchronised(kernel)


def _lds_written(kernel: Kernel, target: Target) -> None:
    from tileir.passes.check_written import check_written

    check_written(kernel)


def _priorities_restored(kernel: Kernel, target: Target) -> None:
    from tileir.passes.priorities import check_priorities

    check_priorities(kernel)


def _references_kept(kernel: Kernel, target: Target) -> None:
    from tileir.passes.references import check_references

    check_references(kernel)


FORMS: dict[str, Form] = {
    f.name: f
    for f in (
        Form("bound", "the kernel names its chip", _bound),
        Form("accesses_chosen", "every load and store states its width and kind of instruction", _accesses_chosen),
        Form("placed", "every mma operand that a loop loads passes through LDS", _placed),
        Form("laid_out", "every tile that is used has a register layout for the waves of the workgroup", _laid_out),
        Form("converted", "no conversion or reduction moves data between waves", _converted),
        Form("guards_settled", "no guard exchanges data between waves", _guards_settled),
        Form("lds_laid_out", "every LDS buffer has a layout", _lds_laid_out),
        Form("pipelined", "every stage of a pipelined loop has a buffer of its own", _pipelined),
        Form("lds_allocated", "every LDS buffer has an offset that fits the chip", _lds_allocated),
        Form("grid_ordered", "the order of workgroups is settled", _grid_ordered),
        Form("references_kept", "what carries the reference that a guard moves is rescaled in it", _references_kept),
        Form("priorities_restored", "every region ends at the priority at which it begins", _priorities_restored),
        Form("lds_written", "no read of LDS comes before everything that writes what it reads", _lds_written),
        Form("synchronised", "waits and barriers cover every access to LDS and memory", _synchronised),
    )
}
