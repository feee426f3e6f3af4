"""Gives every tile a register layout.

Values that must agree – operands and results of elementwise ops, values carried by loops – form classes. Classes with an
`mma` take its lane maps (by the closed form), the others follow them through reductions, broadcasts and transpositions,
or a load, whose layout is coalesced. Where the layouts of two classes meet, a `convert_layout` is put.

    %d = mma(%a, %b, %c) : tile<f32[64, 64]>

becomes

    %d = mma<instr = [16, 16, 32], waves = [2, 2], swapped = true>(%a, %b, %c) : tile<f32[64, 64], linear(reg = …)>
"""

from __future__ import annotations

from collections.abc import Iterator

from tileir.ir.core import AttrValue, Block, Kernel, Op, Value
from tileir.ir.diagnostics import error
from tileir.ir.ops.shape import permutation, reshapes_in_place
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter, rewrite, uses
from tileir.ir.types import GlobalType, TileType
from tileir.layout import Layout, LayoutError, blocked, broadcast_source, mma_layouts, wide_k_order
from tileir.passes.base import Context, Pass
from tileir.passes.mfma_choice import choose_instruction, choose_waves, workgroup_waves
from tileir.passes.split_access import contiguous_dim
from tileir.target import Target

# Results of these can be made anew in any layout at no cost, so they belong to no class.
FREE = frozenset({"fill", "iota"})
LANE_BYTES = 16  # preferred bytes of a lane's run in a coalesced layout
COALESCED_BYTES = 32  # a store whose runs are at least this long goes out as it is


def is_tile(v: Value) -> bool:
    """A value with registers to lay out."""
    return isinstance(v.type, TileType) and not v.type.is_scalar


def is_free(v: Value) -> bool:
    return v.owner is not None and (
        v.owner.name in FREE or (v.owner.name == "broadcast" and v.owner.operands[0].tile.is_scalar)
    )


class _Classes:
    """Union-find over tile values, with the layout of each class once it is known."""

    def __init__(self) -> None:
        self.parent: dict[Value, Value] = {}
        self.layout: dict[Value, Layout] = {}

    def root(self, v: Value) -> Value:
        while self.parent.setdefault(v, v) is not v:
            self.parent[v] = self.parent[self.parent[v]]
            v = self.parent[v]
        return v

    def join(self, a: Value, b: Value) -> None:
        if is_tile(a) and is_tile(b) and not is_free(a) and not is_free(b) and a.tile.shape == b.tile.shape:
            self.parent[self.root(a)] = self.root(b)

    def get(self, v: Value) -> Layout | None:
        return self.layout.get(self.root(v))

    def put(self, v: Value, layout: Layout) -> bool:
        """Sets the layout of a class unless it has one; true if it was set."""
        if not is_tile(v) or is_free(v) or self.root(v) in self.layout:
            return False
        self.layout[self.root(v)] = layout
        return True


def _join(kernel: Kernel, classes: _Classes) -> None:
    for op in kernel.walk():
        if get(op.name).elementwise:
            for v in op.operands:
                classes.join(v, op.result)
        elif op.name == "mma" and len(op.operands) == 3:
            classes.join(op.operands[2], op.result)
        for init, arg, out in carried(op):
            classes.join(init, arg)
            classes.join(arg, out)
        for i, region in enumerate(op.regions):
            if (op.name == "while" and i == 0) or not region.ops:
                continue
            for v, r in zip(region.terminator.operands, op.results, strict=True):
                classes.join(v, r)


def carried(op: Op) -> Iterator[tuple[Value, Value, Value]]:
    """(initial value, block argument, result) of everything that a control-flow op carries."""
    skip = {"for": 3, "if": 1, "guard": 1, "while": 0}.get(op.name)
    if skip is None:
        return
    inits = op.operands[skip:]
    for region in op.regions:
        args = region.args[1:] if op.name == "for" else region.args
        yield from zip(inits, args, op.results if inits else [], strict=False)


def _mma_attrs(op: Op, waves: int, ctx: Context) -> dict[str, AttrValue]:
    attrs = dict(op.attrs)
    m, n = op.result.tile.shape
    instr = attrs.get("instr") or choose_instruction(op, ctx.target)
    assert isinstance(instr, tuple)
    grid = attrs.get("waves") or choose_waves(m, n, (instr[0], instr[1], instr[2]), waves)
    assert isinstance(grid, tuple)
    if grid[0] * grid[1] != waves:
        raise error(
            "E0603",
            f"this 'mma' is split over {grid[0]} x {grid[1]} waves, but the workgroup has {waves}",
            op.loc,
            legal=f"a grid of {waves} waves for every 'mma' of the kernel",
        )
    attrs.update(instr=instr, waves=grid, swapped=attrs.get("swapped", True))
    return attrs


def _register_file(op: Op, layout: Layout, waves: int, target: Target) -> str:
    """The vector file while the accumulator leaves half of it for operands and addresses. One wave per SIMD has the
    accumulation file for itself and uses it from there on; with more the two files come out of one budget, and the
    accumulator stays in the vector file as long as it fits."""
    registers = layout.num_registers * op.result.tile.elem.bytes // target.register_bytes
    half = target.max_arch_vgprs // 2
    fits = registers < half or (registers == half and waves > target.simds_per_cu)
    return "vector" if fits else "accumulation"


def _mma_layouts(op: Op, attrs: dict[str, AttrValue]) -> tuple[Layout, Layout, Layout]:
    (m, k), (_, n) = op.operands[0].tile.shape, op.operands[1].tile.shape
    instr, grid = attrs["instr"], attrs["waves"]
    assert isinstance(instr, tuple) and isinstance(grid, tuple)
    shape = (instr[0], instr[1], instr[2])
    bits = op.operands[0].tile.elem.bits
    try:
        return mma_layouts(
            m,
            n,
            k,
            wave_grid=(grid[0], grid[1]),
            instr=shape,
            operand_bits=bits,
            swapped=bool(attrs["swapped"]),
            k_order=wide_k_order(k, shape, bits),
        )
    except LayoutError as e:
        raise error("E0337", f"no layout for this 'mma': {e}", op.loc, legal="a tile that the wave grid divides") from e


def _coalesced(t: TileType, view: GlobalType | None, spans: tuple[int | None, ...] | None, waves: int) -> Layout:
    """Lanes along the dimension that is contiguous in memory, up to 16 bytes each, but never more than share it out."""
    axis = t.rank - 1
    if view is not None and spans is not None:
        d = contiguous_dim(view)
        kept = [i for i, s in enumerate(spans) if s is not None]
        axis = kept.index(d) if d in kept and len(kept) == t.rank else axis
    per_lane = max(1, t.size // (64 * waves))
    vector = min(max(1, LANE_BYTES // t.elem.bytes), 1 << (per_lane.bit_length() - 1))
    order = [axis, *(d for d in reversed(range(t.rank)) if d != axis)]
    return blocked(t.shape, waves, axis_order=order, vector=vector)


def _turned(t: TileType, waves: int) -> Layout:
    """Layout of a loaded tile [k, n] that goes to LDS as [n, k]: a lane holds a small block, so that it reads runs of
    columns from memory and writes runs of rows, of up to 16 bytes each, to LDS."""
    rows, cols = t.shape
    per_lane = max(1, t.size // (64 * waves))
    run = LANE_BYTES // t.elem.bytes
    k_run = min(run, 1 << (rows.bit_length() - 1), 1 << (per_lane.bit_length() - 1))
    n_run = min(run, 1 << (cols.bit_length() - 1), 1 << (max(1, per_lane // k_run).bit_length() - 1))
    if rows % k_run or cols % n_run:
        return blocked(t.shape, waves, axis_order=[1, 0], vector=1)
    outer = blocked((rows // k_run, cols // n_run), waves, axis_order=[1, 0], vector=1)

    def widen(vectors: tuple[tuple[int, ...], ...]) -> list[tuple[int, int]]:
        return [(v[0] * k_run, v[1] * n_run) for v in vectors]

    block = [(0, 1 << i) for i in range(n_run.bit_length() - 1)] + [(1 << i, 0) for i in range(k_run.bit_length() - 1)]
    return Layout.from_bases(t.shape, [*block, *widen(outer.reg)], widen(outer.lane), widen(outer.wave), outer.reps)


def _goes_turned_to_lds(op: Op, users: dict[Value, list[tuple[Op, int]]]) -> bool:
    return any(
        user.name == "transpose" and any(last.name == "shared_store" for last, _ in users.get(user.result, []))
        for user, _ in users.get(op.result, [])
    )


def _rows_first(layout: Layout, axis: int) -> Layout:
    """The same layout with the register bits along `axis` lowest: a renaming of registers that makes runs along it."""

    def along(v: tuple[int, ...]) -> tuple[int, int]:
        alone = v[axis] and not any(x for d, x in enumerate(v) if d != axis)
        return (0, v[axis]) if alone else (1, 0)

    return Layout.from_bases(layout.shape, sorted(layout.reg, key=along), layout.lane, layout.wave, layout.reps)


def _propagate(kernel: Kernel, classes: _Classes) -> None:
    """Carries known layouts across ops that relate two classes, until nothing changes."""
    changed = True
    while changed:
        changed = False
        for op in kernel.walk():
            definition = get(op.name)
            if definition.category == "reduce":
                source = classes.get(op.operands[0])
                if source is not None:
                    changed |= classes.put(op.result, source.reduce(_int(op, "axis")))
            elif op.name == "transpose":
                x, r = op.operands[0], op.result
                perm = permutation(op.attrs, x.tile.rank)
                known = classes.get(x)
                if known is not None:
                    changed |= classes.put(r, known.transpose(perm))
                known = classes.get(r)
                if known is not None:
                    changed |= classes.put(x, known.transpose([perm.index(d) for d in range(len(perm))]))
            elif op.name == "reshape" and is_tile(op.operands[0]) and is_tile(op.result):
                for a, b in ((op.operands[0], op.result), (op.result, op.operands[0])):
                    known = classes.get(a)
                    if known is not None and classes.get(b) is None:
                        try:
                            changed |= classes.put(b, known.reshape(b.tile.shape))
                        except LayoutError:
                            continue
            elif definition.elementwise or op.name == "broadcast":
                known = classes.get(op.result)
                for v in op.operands:
                    if known is not None and is_tile(v) and v.tile.shape != op.result.tile.shape:
                        changed |= classes.put(v, broadcast_source(known, v.tile.shape))


def _int(op: Op, name: str) -> int:
    value = op.attrs[name]
    assert isinstance(value, int)
    return value


def _classify(kernel: Kernel, waves: int, ctx: Context) -> tuple[_Classes, dict[Op, dict[str, AttrValue]]]:
    classes = _Classes()
    _join(kernel, classes)
    mma: dict[Op, dict[str, AttrValue]] = {}
    for op in kernel.walk():  # what the text already states comes first
        for v in [*op.results, *(a for r in op.regions for a in r.args)]:
            if is_tile(v) and v.tile.layout is not None:
                classes.put(v, v.tile.layout)
    for op in kernel.walk():
        if op.name == "mma":
            mma[op] = _mma_attrs(op, waves, ctx)
            layout = _mma_layouts(op, mma[op])[2]
            mma[op].setdefault("file", _register_file(op, layout, waves, ctx.target))
            classes.put(op.result, layout)
    for op, attrs in mma.items():
        for v, layout in zip(op.operands[:2], _mma_layouts(op, attrs), strict=False):
            classes.put(v, layout)
    _propagate(kernel, classes)
    users = uses(kernel)
    for op in kernel.walk():
        if op.name == "load" and is_tile(op.result):
            view = op.operands[0].type
            assert isinstance(view, GlobalType)
            turned = op.result.tile.rank == 2 and _goes_turned_to_lds(op, users)
            layout = _turned(op.result.tile, waves) if turned else _coalesced(op.result.tile, view, op.spans, waves)
            if classes.put(op.result, layout):
                _propagate(kernel, classes)
    for op in kernel.walk():
        for v in [*op.results, *(a for r in op.regions for a in r.args)]:
            if is_tile(v) and classes.put(v, _coalesced(v.tile, None, None, waves)):
                _propagate(kernel, classes)
    return classes, mma


def _run_bytes(layout: Layout, axis: int, size: int) -> int:
    """Bytes along `axis` that one wave covers without a gap."""
    reach, unit = 1, 1
    vectors = [
        v[axis] for v in (*layout.reg, *layout.lane) if v[axis] and not any(x for d, x in enumerate(v) if d != axis)
    ]
    for x in sorted(vectors):
        if x == unit:
            reach, unit = 2 * reach, 2 * unit
    return reach * size


class _Apply:
    """The rewriting: every op with its operands in the layouts that it needs."""

    def __init__(self, kernel: Kernel, classes: _Classes, mma: dict[Op, dict[str, AttrValue]], waves: int):
        self.classes, self.mma, self.waves = classes, mma, waves
        self.users = uses(kernel)

    def of(self, v: Value) -> Layout:
        layout = self.classes.get(v)
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
            attrs = self.mma[op]
            for i, layout in enumerate(_mma_layouts(op, attrs)[: len(operands)]):
                operands[i] = self.convert(rw, op.operands[i], layout)
        elif definition.category in ("reduce", "shape"):
            self._derived(rw, op)
            return True
        elif op.name in ("store", "shared_store"):
            operands[0] = self._stored(rw, op)
        else:
            operands = [self.convert(rw, v, self.of(v)) if is_tile(v) else rw.use(v) for v in op.operands]
        new = rw.op(
            op.name, operands, attrs, spans=op.spans, types=types or [v.type for v in op.results],
            names=[v.name for v in op.results], loc=op.loc, operand_locs=op.operand_locs, num_results=len(op.results),
        )  # fmt: skip
        rw.replace(op, new.results)
        return True

    def _derived(self, rw: Rewriter, op: Op) -> None:
        """Reductions, transpositions, reshapes: the result's layout follows from the operand's; then convert."""
        x = op.operands[0]
        source = self.of(x) if not is_free(x) else _coalesced(x.tile, None, None, self.waves)
        wanted = self.of(op.result) if is_tile(op.result) else None
        if op.name == "reshape" and wanted is not None and is_tile(x):
            if not reshapes_in_place(x.tile.with_layout(source), op.result.tile.with_layout(wanted)):
                operand, want = self.convert(rw, x, source), op.result.tile.with_layout(wanted)
                value = rw.value("reshape", [operand], op.attrs, types=[want], loc=op.loc, names=[op.result.name])
                rw.replace(op, [value])
                return
        elif get(op.name).category == "reduce":
            axis = _int(op, "axis")
            vectors = (*source.reg, *source.lane, *source.wave)
            if any(v[axis] and any(c for d, c in enumerate(v) if d != axis) for v in vectors):
                source = _coalesced(x.tile, None, None, self.waves)
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
        spans = op.spans if isinstance(view, GlobalType) else None
        best = _coalesced(v.tile, view if isinstance(view, GlobalType) else None, spans, self.waves)
        if is_free(v):
            return self.convert(rw, v, best)
        layout = self.of(v)
        if op.name == "shared_store":
            runs = _rows_first(layout, v.tile.rank - 1)
            if runs.contiguous(v.tile.rank - 1) > layout.contiguous(v.tile.rank - 1):
                layout = runs
        if isinstance(view, GlobalType) and spans is not None and len([s for s in spans if s]) == v.tile.rank:
            d = contiguous_dim(view)
            kept = [i for i, s in enumerate(spans) if s is not None]
            if d in kept:
                axis = kept.index(d)
                size = v.tile.elem.bytes
                enough = min(COALESCED_BYTES, v.tile.shape[axis] * size)
                if _run_bytes(layout, axis, size) < min(enough, _run_bytes(best, axis, size)):
                    layout = best
        return self.convert(rw, v, layout)

    def _control(self, rw: Rewriter, op: Op) -> None:
        """Carried values keep the layout of their class everywhere."""
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

    def _typed(self, v: Value) -> TileType:
        return v.tile.with_layout(self.of(v)) if is_tile(v) else v.tile

    def _class_of_use(self, op: Op, i: int) -> Layout:
        """Layout in which operand `i` of a control-flow op or yield must arrive: that of the value it becomes."""
        v = op.operands[i]
        if op.name == "yield":
            return self.of(self.yield_targets[op][i])
        skip = {"for": 3, "if": 1, "guard": 1, "while": 0}[op.name]
        if i < skip:
            return self.of(v)
        region = op.regions[-1]
        args = region.args[1:] if op.name == "for" else region.args
        return self.of(args[i - skip])

    yield_targets: dict[Op, list[Value]]


def _yield_targets(kernel: Kernel) -> dict[Op, list[Value]]:
    """For every yield the values that its operands become."""
    found: dict[Op, list[Value]] = {}

    def visit(block: Block) -> None:
        for op in block.ops:
            for i, region in enumerate(op.regions):
                visit(region)
                if region.ops and region.terminator.name == "yield":
                    condition = op.name == "while" and i == 0
                    found[region.terminator] = list(region.terminator.operands if condition else op.results)

    visit(kernel.body)
    return found


def _check_sizes(kernel: Kernel, waves: int, target: Target) -> None:
    """E0863 for a tile that alone needs more registers than a wave has: the code generator would take minutes to find
    out. Raises CompileError."""
    lanes = waves * target.wave_size
    most = target.registers_per_wave(-(-waves // target.simds_per_cu))
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


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    waves = workgroup_waves(kernel)
    _check_sizes(kernel, waves, ctx.target)
    classes, mma = _classify(kernel, waves, ctx)
    apply = _Apply(kernel, classes, mma, waves)
    apply.yield_targets = _yield_targets(kernel)
    new = rewrite(kernel, apply.rule)
    new.attrs["waves"] = waves
    return new


PASS = Pass(
    "assign-layouts",
    _run,
    requires=frozenset({"placed"}),
    establishes=frozenset({"laid_out"}),
    summary="gives every tile a register layout",
)
