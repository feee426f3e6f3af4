"""Gives every tile a register layout.

Values that must agree form classes (`layout_classes`). The matrix products of the kernel get instructions, wave grids, operand
orders and k orders that are cheapest together (`choose_mapping`); classes with an `mma` take its lane maps (by the closed form),
the others follow them through reductions, broadcasts and transpositions, or a load, whose layout is coalesced. Where the
layouts of two classes meet, a `convert_layout` is put.

    %d = mma(%a, %b, %c) : tile<f32[64, 64]>

becomes

    %d = mma<instr = [16, 16, 32], waves = [2, 2], swapped = true>(%a, %b, %c) : tile<f32[64, 64], linear(reg = …)>
"""

from __future__ import annotations

from tileir.ir.core import AttrValue, Kernel, Op, Value
from tileir.ir.diagnostics import error
from tileir.ir.ops.assemble import grains
from tileir.ir.ops.atomic import is_atomic
from tileir.ir.ops.memory import tile_dims
from tileir.ir.ops.packing import elements_per_word
from tileir.ir.ops.shape import reshapes_in_place
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter, rewrite, uses
from tileir.ir.types import GlobalType, TileType
from tileir.layout import Layout, LayoutError, broadcast_source
from tileir.layout.regroup import together
from tileir.passes.base import Context, Pass
from tileir.passes.choose_mapping import Decision, decide
from tileir.passes.grain_layouts import grain_layout, is_too_fine
from tileir.passes.held_operands import place
from tileir.passes.layout_classes import (
    Classes,
    Layouts,
    axis_of,
    coalesced,
    finish,
    index_layout,
    is_free,
    is_tile,
    memory_axis,
    picks,
    picks_rows,
    stated,
    yield_targets,
)
from tileir.passes.legality import is_scaled
from tileir.passes.mfma_choice import scale_layouts, workgroup_waves
from tileir.passes.mma_cost import CostModel
from tileir.passes.pressure import budget
from tileir.passes.price_mapping import exchange_room, mixes, store_route
from tileir.passes.scan_layouts import scan_layout
from tileir.passes.settle_guards import remark, take_apart
from tileir.target import Target


def _attributes(decision: Decision | None) -> dict[Op, dict[str, AttrValue]]:
    """What the text of each `mma` says from here on."""
    found: dict[Op, dict[str, AttrValue]] = {}
    if decision is None:
        return found
    for op, mapping in decision.mapping_of().items():
        found[op] = {**op.attrs, "instr": mapping.instr, "waves": mapping.grid, "swapped": mapping.swapped}
    return found


def scales_of(decision: Decision | None) -> dict[Op, tuple[Layout, Layout]]:
    """The layouts of scales of the products that have some."""
    found = decision.mapping_of().items() if decision is not None else ()
    return {op: scale_layouts(_shape(op), mapping) for op, mapping in found if is_scaled(op)}


def _shape(op: Op) -> tuple[int, int, int]:
    (m, k), (_, n) = op.operands[0].tile.shape, op.operands[1].tile.shape
    return m, n, k


def _rows_first(layout: Layout, axis: int) -> Layout:
    """The same layout with the register bits along `axis` lowest: a renaming of registers that makes runs along it."""

    def along(v: tuple[int, ...]) -> tuple[int, int]:
        alone = v[axis] and not any(x for d, x in enumerate(v) if d != axis)
        return (0, v[axis]) if alone else (1, 0)

    return Layout.from_bases(layout.shape, sorted(layout.reg, key=along), layout.lane, layout.wave, layout.reps)


class _Apply:
    """The rewriting: every op with its operands in the layouts that it needs."""

    def __init__(self, kernel: Kernel, layouts: Layouts, decision: Decision | None, waves: int, ctx: Context):
        target = ctx.target
        self.layouts, self.waves, self.log = layouts, waves, ctx.log
        self.demands = decision.demands() if decision else {}
        self.mma = _attributes(decision)
        self.scales = scales_of(decision)
        self.yield_targets = yield_targets(kernel)
        self.model = CostModel(target, waves)
        self.room = exchange_room(kernel, target)

    def of(self, v: Value) -> Layout:
        layout = self.layouts.get(v)
        assert layout is not None, v
        return layout

    def convert(self, rw: Rewriter, old: Value, layout: Layout) -> Value:
        """The new value of an old tile, in `layout`."""
        new = rw.use(old)
        if new.tile.layout == layout:
            return new
        want = new.tile.with_layout(layout)
        owner = old.owner
        if is_free(old) and owner is not None:
            operands = [rw.use(v) for v in owner.operands]
            return rw.value(owner.name, operands, owner.attrs, types=[want], loc=owner.loc, hint=old.name)
        return rw.value("convert_layout", [new], types=[want], hint=old.name)

    def rule(self, rw: Rewriter, op: Op) -> bool:
        definition = get(op.name)
        if op.results and all(is_free(v) for v in op.results) and is_tile(op.result):
            if op.name == "broadcast":
                value = rw.value(
                    "fill", [rw.use(op.operands[0])], types=[op.result.tile], names=[op.result.name], loc=op.loc
                )
                rw.replace(op, [value])
                return True
            return False  # copied without a layout; each use makes its own
        if op.name == "yield" or op.regions:
            self._control(rw, op)
            return True
        operands = [rw.use(v) for v in op.operands]
        types: list[TileType] = [v.tile for v in op.results if isinstance(v.type, TileType)]
        types = [t if t.is_scalar else t.with_layout(self.of(v)) for t, v in zip(types, op.results, strict=False)]
        attrs = dict(op.attrs)
        if definition.elementwise or op.name == "broadcast":
            result = types[0].layout
            for i, v in enumerate(op.operands):
                if is_tile(v) and result is not None:
                    same = v.tile.shape == types[0].shape
                    operands[i] = self.convert(rw, v, result if same else broadcast_source(result, v.tile.shape))
        elif op.name == "mma":
            self._product(rw, op)
            return True
        elif definition.category in ("reduce", "shape", "scan"):
            self._derived(rw, op)
            return True
        elif definition.category == "assemble":
            self._assembled(rw, op)
            return True
        elif op.name in ("store", "shared_store"):
            operands[0] = self._stored(rw, op)
            if picks_rows(op):
                self._index(rw, op, operands, operands[0].tile.layout)
        elif is_atomic(op):
            self._atomic(rw, op, operands)
            types = [t.with_layout(operands[0].tile.layout) for t in types]
        elif op.name == "load" and is_tile(op.result):
            self._loaded(rw, op, operands)
            return True
        elif op.name in ("print", "assert"):
            bound = [self.of(v) for v in op.operands if is_tile(v) and not is_free(v)]
            for i, v in enumerate(op.operands):
                if is_tile(v):
                    alone = is_free(v) and (op.name == "print" or not bound)
                    wanted = coalesced(v.tile, None, None, self.waves) if alone else None
                    operands[i] = self.convert(rw, v, wanted or (self.of(v) if op.name == "print" else bound[0]))
        else:
            operands = [self.convert(rw, v, self.of(v)) if is_tile(v) else rw.use(v) for v in op.operands]
        new = rw.op(
            op.name, operands, attrs, spans=op.spans, types=types or [v.type for v in op.results],
            names=[v.name for v in op.results], loc=op.loc, operand_locs=op.operand_locs, num_results=len(op.results),
        )  # fmt: skip
        rw.replace(op, new.results)
        return True

    def _atomic(self, rw: Rewriter, op: Op, operands: list[Value]) -> None:
        """Operands of an atomic update in one layout: that of their class, or one that suits the view."""
        at = get(op.name).access_position
        assert at is not None
        classes = [self.of(v) for v in [*op.results, *op.operands[:at]] if is_tile(v) and not is_free(v)]
        if not is_tile(op.operands[0]):
            return
        view = op.operands[at].type
        assert isinstance(view, GlobalType)
        layout = classes[0] if classes else coalesced(op.operands[0].tile, view, tile_dims(op), self.waves)
        for i, v in enumerate(op.operands[:at]):
            operands[i] = self.convert(rw, v, layout)
        if picks_rows(op):
            self._index(rw, op, operands, layout)

    def _index(self, rw: Rewriter, op: Op, operands: list[Value], tile: Layout | None) -> None:
        """The tile of indices of an access in the layout that suits the accessed tile."""
        assert tile is not None
        for i, v in enumerate(op.operands):
            if v is picks(op)[1]:
                operands[i] = self.convert(rw, v, index_layout(op, tile))

    def _product(self, rw: Rewriter, op: Op) -> None:
        """An `mma`: its operands and result as its instructions have them, then the result as its class has it."""
        demand = self.demands[op]
        wanted_by = (*demand, *self.scales.get(op, ()))
        operands = [self.convert(rw, v, layout) for v, layout in zip(op.operands, wanted_by, strict=False)]
        wanted = op.result.tile.with_layout(self.of(op.result))
        own = op.result.tile.with_layout(demand[2])
        name = op.result.name if own == wanted else rw.names.fresh(op.result.name)
        value = rw.op(
            "mma", operands, self.mma[op], types=[own], names=[name], loc=op.loc, operand_locs=op.operand_locs
        ).result
        if own != wanted:
            value = rw.value("convert_layout", [value], types=[wanted], names=[op.result.name])
        rw.replace(op, [value])

    def _assembled(self, rw: Rewriter, op: Op) -> None:
        """Tiles that are taken apart or put together, in layouts where that only renames registers; then convert."""
        t = op.result.tile
        if is_too_fine(op, self.waves):
            steps = ", ".join(str(n) for n in grains(op).values())
            raise error(
                "E0863",
                f"'{op.name}' of pieces of {steps} elements needs too many registers per lane",
                op.loc,
                legal="places and sizes that are multiples of a larger power of two, or a smaller tile",
            )
        operands = [self.convert(rw, v, grain_layout(op, v.tile.shape, self.waves, t.elem.bytes)) for v in op.operands]
        own = t.with_layout(grain_layout(op, t.shape, self.waves, t.elem.bytes))
        wanted = t.with_layout(self.of(op.result))
        names = [op.result.name] if own == wanted else []
        value = rw.value(op.name, operands, op.attrs, types=[own], names=names, loc=op.loc, hint=op.result.name)
        if own != wanted:
            value = rw.value("convert_layout", [value], types=[wanted], names=[op.result.name])
        rw.replace(op, [value])

    def _derived(self, rw: Rewriter, op: Op) -> None:
        """Reductions, transpositions, reshapes: the result's layout follows from the operand's; then convert."""
        x = op.operands[0]
        source = self.of(x) if not is_free(x) else coalesced(x.tile, None, None, self.waves)
        wanted = self.of(op.result) if is_tile(op.result) else None
        if op.name == "reshape" and wanted is not None and is_tile(x):
            if not reshapes_in_place(x.tile.with_layout(source), op.result.tile.with_layout(wanted)):
                operand, want = self.convert(rw, x, source), op.result.tile.with_layout(wanted)
                value = rw.value("reshape", [operand], op.attrs, types=[want], loc=op.loc, names=[op.result.name])
                rw.replace(op, [value])
                return
        elif op.name == "pack":
            try:
                together(source, elements_per_word(op.name, x.tile.elem, op.result.tile.elem))
            except LayoutError:
                source = coalesced(x.tile, None, None, self.waves, op.result.tile.elem.bits // x.tile.elem.bits)
        elif get(op.name).category == "reduce":
            if mixes(source, axis_of(op)):
                source = coalesced(x.tile, None, None, self.waves)
        elif get(op.name).category == "scan":
            source = scan_layout(source, axis_of(op))
        operand = self.convert(rw, x, source)
        value = rw.value(op.name, [operand], op.attrs, loc=op.loc, names=[op.result.name])
        if wanted is not None and value.tile.layout != wanted:
            plain, value.name = value, rw.names.fresh(op.result.name)
            value = rw.value("convert_layout", [plain], types=[plain.tile.with_layout(wanted)], names=[op.result.name])
        rw.replace(op, [value])

    def _stored(self, rw: Rewriter, op: Op) -> Value:
        v = op.operands[0]
        if not is_tile(v):
            return rw.use(v)
        view = op.operands[1].type if op.name == "store" else None
        if is_free(v):
            best = coalesced(v.tile, view, tile_dims(op), self.waves) if isinstance(view, GlobalType) else None
            return self.convert(rw, v, best or coalesced(v.tile, None, None, self.waves))
        layout = self.of(v)
        if op.name == "shared_store":
            runs = _rows_first(layout, v.tile.rank - 1)
            if runs.contiguous(v.tile.rank - 1) > layout.contiguous(v.tile.rank - 1):
                layout = runs
        elif isinstance(view, GlobalType):
            layout = store_route(self.model, op, layout, self.room)[0]
        return self.convert(rw, v, self._whole_bytes(op, v, layout))

    def _loaded(self, rw: Rewriter, op: Op, operands: list[Value]) -> None:
        """A tile from memory: whole bytes for each lane, then as its class has it."""
        wanted = self.of(op.result)
        own = self._whole_bytes(op, op.result, wanted)
        if picks_rows(op):
            self._index(rw, op, operands, own)
        name = op.result.name if own == wanted else rw.names.fresh(op.result.name)
        value = rw.op(
            op.name, operands, op.attrs, spans=op.spans, types=[op.result.tile.with_layout(own)], names=[name],
            loc=op.loc, operand_locs=op.operand_locs,
        ).result  # fmt: skip
        if own != wanted:
            types = [op.result.tile.with_layout(wanted)]
            value = rw.value("convert_layout", [value], types=types, names=[op.result.name])
        rw.replace(op, [value])

    def _whole_bytes(self, op: Op, v: Value, layout: Layout) -> Layout:
        """The layout itself, unless lanes hold parts of bytes in it."""
        at = get(op.name).access_position
        target, together = op.operands[at].type if at is not None else None, v.tile.elem.unit[0]
        view = target if isinstance(target, GlobalType) else None
        dims = tile_dims(op) if view is not None else None
        axis = memory_axis(view, dims) if view is not None and dims is not None else v.tile.rank - 1
        if together == 1 or axis is None or layout.contiguous(axis) >= together:
            return layout
        return coalesced(v.tile, view, dims, self.waves)

    def _control(self, rw: Rewriter, op: Op) -> None:
        """Carried values keep the layout of their class everywhere."""
        if op.name == "guard" and not self._stays(rw, op):
            return
        operands = [
            self.convert(rw, v, self._class_of_use(op, i)) if is_tile(v) else rw.use(v)
            for i, v in enumerate(op.operands)
        ]
        regions = [rw.region(r, [Value(a.name, self._typed(a), a.loc) for a in r.args]) for r in op.regions]
        if op.name == "yield":
            rw.op("yield", operands, loc=op.loc, operand_locs=op.operand_locs)
            return
        new = rw.op(
            op.name, operands, op.attrs, regions=regions, names=[v.name for v in op.results], loc=op.loc,
            operand_locs=op.operand_locs,
        )  # fmt: skip
        rw.replace(op, new.results)

    def _stays(self, rw: Rewriter, op: Op) -> bool:
        """Whether a guard stays a region. It goes if it carries nothing, and is taken apart if the rows of what it carries do
        not all lie in the same waves and lanes, where its mask is looked at."""
        need, args = op.operands[0], op.regions[0].args
        rows = [broadcast_source(self.of(a), need.tile.shape) for a in args]
        if rows and any(r != rows[0] for r in rows):
            remark(self.log, op, "the rows of the tiles that it carries do not lie in the same lanes")
            inits = [self.convert(rw, v, self.of(a)) for v, a in zip(op.operands[1:], args, strict=True)]
            take_apart(rw, op, inits, [self.convert(rw, need, r) for r in rows])
            return False
        return bool(args)

    def _typed(self, v: Value) -> TileType:
        return v.tile.with_layout(self.of(v)) if is_tile(v) else v.tile

    def _class_of_use(self, op: Op, i: int) -> Layout:
        """Layout in which operand `i` of a control-flow op or yield must arrive: that of the value it becomes."""
        v = op.operands[i]
        if op.name == "yield":
            return self.of(self.yield_targets[op][i])
        skip = {"for": 3, "if": 1, "guard": 1, "while": 0}[op.name]
        if op.name == "guard" and i == 0:
            return broadcast_source(self.of(op.regions[0].args[0]), v.tile.shape)
        if i < skip:
            return self.of(v)
        region = op.regions[-1]
        args = region.args[1:] if op.name == "for" else region.args
        return self.of(args[i - skip])


def _check_sizes(kernel: Kernel, waves: int, target: Target) -> None:
    """E0863 for a tile that alone needs more registers than a wave has: the code generator would take minutes to find
    out. Raises CompileError."""
    lanes = waves * target.wave_size
    most = budget(kernel, target, waves)
    for op in kernel.walk():
        for v in op.results:
            if not is_tile(v) or is_free(v):
                continue
            registers = -(-v.tile.size * v.tile.elem.bytes // (lanes * target.register_bytes))
            if registers > most:
                raise error(
                    "E0863",
                    f"a {v.tile} takes {registers} registers per lane of {waves} waves, of which there are {most}",
                    op.loc,
                    legal=f"tiles of at most {most * lanes * target.register_bytes // v.tile.elem.bytes} elements of "
                    f"{v.tile.elem}, far fewer where several are in use at one time",
                )


def _remarks(decision: Decision, ctx: Context) -> None:
    """R0804 for every product: what was chosen, what it costs, and what would have come next."""
    for i, (product, mapping) in enumerate(zip(decision.products, decision.best.mappings, strict=True)):
        mine = decision.best.clocks
        trips = product.trips / product.alike
        text = f"'mma' of {' x '.join(map(str, product.shape))} by {mapping}: about {mine.total / trips:.0f} clocks"
        text += " per pass of the loop around it" if trips > 1 else ""
        text += f" ({mine.per(trips)})"
        text += f", with {product.alike - 1} alike" if product.alike > 1 else ""
        other = decision.others[i]
        if other is not None:
            text += f"; next {other.mappings[i]}: {other.clocks.total / trips:.0f}"
        ctx.log.remark("R0804", text, product.op.loc)


def _waves_remark(decision: Decision, kernel: Kernel, ctx: Context) -> None:
    """R0818: how many waves a workgroup has, and what the model of the loops says of each number."""
    if decision.numbers:
        best, *others = decision.numbers
        text = f"chosen by the clocks of an iteration: {best}"
        text += "".join(f"; {p}" for p in others)
        ctx.log.remark("R0818", text, kernel.loc)


def _held_remarks(decision: Decision, ctx: Context) -> None:
    """R0812 for every operand that is loaded before a loop of its products: its way to the registers, and what that costs."""
    for held, chosen, clocks in zip(decision.held, decision.best.ways, decision.best.held, strict=True):
        text = f"%{held.tile.name}, loaded before the loop of its products: {chosen[0]}; about {clocks.total:.0f} clocks a workgroup"
        ctx.log.remark("R0812", f"{text} ({clocks})", held.loads[0].loc)


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    _check_sizes(kernel, workgroup_waves(kernel), ctx.target)
    classes = Classes(kernel)
    decision = decide(kernel, ctx.target, classes)
    if decision and decision.held:
        _held_remarks(decision, ctx)
        placed = place(kernel, decision.way_of(), ctx.target)
        kernel, decision, classes = placed, decision.moved(kernel, placed), Classes(placed)
    waves = decision.waves if decision else workgroup_waves(kernel)
    layouts = Layouts(classes, stated(kernel, classes))
    if decision:
        layouts.put_products(decision.demands())
        for op, scales in scales_of(decision).items():
            for v, layout in zip(op.operands[3:], scales, strict=True):
                layouts.put(v, layout)
        layouts.propagate(classes.relations)
        _remarks(decision, ctx)
        _waves_remark(decision, kernel, ctx)
    finish(layouts, kernel, waves, uses(kernel))
    new = rewrite(kernel, _Apply(kernel, layouts, decision, waves, ctx).rule)
    new.attrs["waves"] = waves
    return new


PASS = Pass(
    "assign-layouts",
    _run,
    requires=frozenset({"placed"}),
    establishes=frozenset({"laid_out"}),
    summary="gives every tile a register layout",
)
