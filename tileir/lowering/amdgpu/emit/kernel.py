"""The whole kernel: function signature, attributes, dispatch over ops, and the module around it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from tileir.collector import collector_paused
from tileir.ir import reports
from tileir.ir.binding import written_views
from tileir.ir.core import Block, Kernel, Op, names_in_metadata
from tileir.ir.expr import Expr
from tileir.ir.ops.atomic import UPDATES
from tileir.ir.registry import get
from tileir.ir.types import GlobalType
from tileir.lowering.amdgpu.accumulation_file import from_zero, moves, top
from tileir.lowering.amdgpu.emit import (
    assemble,
    atomics,
    clipped,
    copies,
    fragments,
    functions,
    lanes,
    matrix,
    reduce,
    registers,
    report,
    scan,
    shared,
    stores,
    streams,
    tables,
    views,
)
from tileir.lowering.amdgpu.emit.control import Control
from tileir.lowering.amdgpu.emit.elementwise import elementwise
from tileir.lowering.amdgpu.emit.random import philox
from tileir.lowering.amdgpu.emit.settle import settler
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.writer import Writer, file_name, scalar_type
from tileir.passes.outstanding import instructions
from tileir.passes.pressure import budget, peak, pinned, wave_count
from tileir.target import Target

WAVE = 64
# The accumulation file begins at a vector register number that is a multiple of this (CDNA3 ISA, accum_offset).
ACCUM_OFFSET_GRANULE = 4
_NO_HIDDEN = (
    "dispatch-ptr", "queue-ptr", "implicitarg-ptr", "dispatch-id", "heap-ptr", "hostcall-ptr", "lds-kernel-id",
    "multigrid-sync-arg", "default-queue", "completion-action", "flat-scratch-init", "workitem-id-y", "workitem-id-z",
)  # fmt: skip


def emit_module(kernel: Kernel, target: Target, *, sparing: bool = False, pinned: bool = False) -> str:
    """MLIR text of a `gpu.module` with the kernel. The kernel must be in the form that the pipeline ends with.

    `sparing` reads operands from LDS only as the products need them: fewer registers, more waiting. `pinned` ties every
    operand of a product to its register file.

    Raises CompileError for an op that has no lowering.
    """
    # The text of a later pass has the author's places on its ops, but its own on the kernel.
    start = next((op.loc for op in kernel.walk() if op.loc.line and op.loc.file != kernel.loc.file), kernel.loc)
    w = Writer(file_name(start.file) or "kernel.tile")
    w.loc = start
    moved = moves(kernel)
    if moved:
        kernel = from_zero(kernel, moved)
    s = State(kernel, target, w, sparing=sparing, pinned=pinned, last_accumulation=top(moved) if moved else 0)
    for a in kernel.abi():
        if a.kind == "symbol":
            s.symbols[a.name] = (f"%sym_{a.name}", scalar_type(a.type.elem))
    s.report_sites = {op: i for i, op in enumerate(op for op in kernel.walk() if op.name in reports.OPS)}
    for arg in kernel.args:
        if not isinstance(arg.type, GlobalType):
            s.values[arg] = f"%arg_{arg.name}"
    s.fragment_ties, s.fragment_pins = fragments.accumulator_ties(kernel), fragments.accumulator_pins(kernel)
    with collector_paused(), w.scope():
        if moved:  # LLVM counts the registers that the code will have when they are renamed
            w.line(f'llvm.inline_asm has_side_effects asm_dialect = att "", "~{{a{s.last_accumulation}}}" : () -> ()')
        _Ops(s).block(s, kernel.body)
    w.loc = start
    w.line("llvm.return")
    return _module(s)


class _Ops:
    """Dispatch from op names to emitters."""

    def __init__(self, s: State):
        control = Control(s, self.block)
        self.settle = settler(s)
        # Whether waits leave vector-memory instructions under way, so that their order counts.
        self.counts = any(op.name == "wait" and op.attrs.get("vm") for op in s.kernel.walk())
        self.table: dict[str, Callable[[State, Op], None]] = {
            "constant": registers.constant,
            "fill": registers.fill,
            "iota": registers.iota,
            "table": tables.table,
            "transpose": registers.transpose,
            "reshape": registers.reshape,
            "pack": registers.regroup,
            "unpack": registers.regroup,
            "broadcast": registers.broadcast,
            "convert_layout": registers.convert_layout,
            "swap_lanes": lanes.swap,
            "shuffle_lanes": lanes.shuffle,
            "select_registers": lanes.select,
            "mma": matrix.mma,
            "load": views.load,
            "store": stores.store,
            "accessible": lambda s, op: views.accessible(s, op, [*streams.reaches(s, op), *clipped.reaches(s, op)]),
            "shared_load": shared.load,
            "shared_load_transposed": shared.load_transposed,
            "shared_store": shared.store,
            "copy_async": shared.copy_direct,
            "copy": copies.copy_elements,
            "register_map": _nothing,
            "split_registers": fragments.split,
            "join_registers": fragments.join,
            "slice_fragment": fragments.slice_fragment,
            "join_fragments": fragments.join_fragments,
            "shared_load_fragment": fragments.shared_load,
            "shared_load_transposed_fragment": fragments.shared_load_transposed,
            "shared_store_fragment": fragments.shared_store,
            "copy_async_part": fragments.copy_part,
            "load_fragment": fragments.load_global,
            "fold_fragment": reduce.fold,
            "swap_fragments": lanes.swap_fragments,
            "mfma": fragments.mfma,
            "schedule_fence": fragments.fence,
            "barrier_of": fragments.barrier_of,
            "priority": fragments.priority,
            **dict.fromkeys(UPDATES, atomics.atomic),
            "fence": atomics.fence,
            "wait": shared.wait,
            "barrier": shared.barrier,
            "shared_alloc": _nothing,
            "assume": _nothing,
            "prefetch": _nothing,
            "program_id": _program_id,
            "num_programs": _num_programs,
            "dim": _dim,
            "for": lambda s, op: control.loop(op),
            "if": lambda s, op: control.branch(op),
            "guard": lambda s, op: control.guard(op),
            "while": lambda s, op: control.repeat(op),
            "print": report.print_values,
            "assert": report.assertion,
            **dict.fromkeys(functions.TURNS, functions.turn),
            "philox_bits": lambda s, op: elementwise(s, op, philox),
            "philox_uniform": lambda s, op: elementwise(s, op, philox),
        }

    def block(self, s: State, block: Block) -> None:
        before = ""
        for op in block.ops:
            if op.name == "yield":
                continue
            s.w.loc = op.loc
            if self.counts and instructions(op, s.kernel):
                # LLVM schedules loads across direct copies, which they do not depend on: then a wait would count others than in the text.
                if before not in ("", op.name):
                    s.w.line("rocdl.sched.barrier 0")
                before = op.name
            definition = get(op.name)
            if op.name in self.table:
                self.table[op.name](s, op)
            elif op.name in functions.FUNCTIONS or op.name in functions.WIDE_FUNCTIONS:
                elementwise(s, op, functions.function)
            elif definition.elementwise:
                elementwise(s, op)
            elif definition.category == "reduce":
                reduce.reduce(s, op)
            elif definition.category == "assemble":
                assemble.assemble(s, op)
            elif definition.category == "scan":
                scan.scan(s, op)
            else:
                raise s.unsupported(f"'{op.name}'", op.loc, "the ops that docs/language.md marks as compiled")
            self.settle(op)


def _nothing(s: State, op: Op) -> None:
    """An op without code of its own."""


def _program_id(s: State, op: Op) -> None:
    for axis, v in zip("xyz", op.results, strict=False):
        s.values[v] = s.w.hoist(
            ("workgroup", axis), lambda axis=axis: s.w.op(f"rocdl.workgroup.id.{axis} : i32"), entry=True
        )


def _num_programs(s: State, op: Op) -> None:
    for e, v in zip(s.kernel.grid, op.results, strict=False):
        s.values[v] = s.w.hoist(("grid", e), lambda e=e: _expression(s, e), entry=True)


def _expression(s: State, e: Expr) -> str:
    """A grid expression as an i32."""
    w = s.w
    if e.op == "int":
        return w.const(e.value)
    if e.op == "symbol":
        name, t = s.symbols[e.symbol]
        return name if t == "i32" else w.op(f"llvm.trunc {name} : i64 to i32")
    a, b = (_expression(s, x) for x in e.args)
    match e.op:
        case "cdiv":  # grids are not negative, so rounding up is adding the divisor less one
            return w.binary("sdiv", w.binary("add", a, w.binary("sub", b, w.const(1))), b)
        case "min" | "max":
            return w.op(f"llvm.intr.s{e.op}({a}, {b}) : (i32, i32) -> i32")
        case _:
            return w.binary({"add": "add", "sub": "sub", "mul": "mul", "div": "sdiv", "mod": "srem"}[e.op], a, b)


def _dim(s: State, op: Op) -> None:
    name, t = s.symbols[str(op.attrs["symbol"])]
    want = scalar_type(op.result.tile.elem)
    if t == want:
        s.values[op.result] = name
    else:
        s.values[op.result] = s.w.op(f"llvm.{'sext' if want == 'i64' else 'trunc'} {name} : {t} to {want}")


def interface(kernel: Kernel) -> dict[str, object]:
    """What a launcher needs, as JSON data: arguments in order with their types, grid expressions, threads."""
    waves = kernel.attrs["waves"]
    assert isinstance(waves, int)
    written = written_views(kernel)
    args: list[dict[str, object]] = []
    for a in kernel.abi():
        entry: dict[str, object] = {"name": a.name, "kind": a.kind}
        if a.kind == "reports":
            args.append(entry)
            continue
        if isinstance(a.type, GlobalType):
            entry.update(type=a.type.elem.name, dims=list(a.type.dims), written=a.name in written)
            if a.type.strides is not None:
                entry["strides"] = list(a.type.strides)
        else:
            entry["type"] = str(a.type)
        args.append(entry)
    return {
        "kernel": kernel.name,
        "target": kernel.attrs["target"],
        "args": args,
        "grid": [str(e) for e in kernel.grid],
        "block": [waves * WAVE, 1, 1],
        "alias": [list(pair) for pair in kernel.aliases],
        **({"reports": [site.data() for site in found]} if (found := reports.sites(kernel)) else {}),
        "params": {k: v if isinstance(v, int | float | bool) else str(v) for k, v in kernel.params.items()},
    }


def register_attributes(kernel: Kernel, target: Target, last: int = 0) -> list[str]:
    """How many registers of which file LLVM may use; the accumulation file goes up to register `last` at least. Written, never left to LLVM: what
    it infers costs spills."""
    waves = wave_count(kernel)
    has, most = target.registers_per_wave(target.waves_per_simd(waves)), budget(kernel, target)
    # LLVM counts the registers of one file and doubles them where a wave has two (GCNSubtarget::getBaseMaxNumVGPRs).
    limit = [f'["amdgpu-num-vgpr", "{max(1, most // 2)}"]'] if most < has else []
    products = [op for op in kernel.walk() if op.name in ("mma", "mfma")]
    # LLVM takes the form that accumulates in the accumulation file for matrix instructions whose result has at most as many registers as
    # the least number stated: all of them, unless some of more registers are to stay in the vector file.
    if not any(op.attrs.get("file") == "accumulation" for op in products):
        return ['["amdgpu-agpr-alloc", "0"]', *limit]
    per_simd = target.waves_per_simd(waves)
    accumulation = target.max_acc_vgprs
    if per_simd > 1 or limit:  # one budget for both files: what the accumulators take, the rest are vector registers
        needed = max(peak(kernel).most_accumulation, pinned(kernel, "accumulation"), last + 1)
        needed = -(-needed // ACCUM_OFFSET_GRANULE) * ACCUM_OFFSET_GRANULE
        accumulation = min(accumulation, max(needed, most - target.max_arch_vgprs))
    least = accumulation_form(products)
    span = f"{least},{accumulation}" if least else str(accumulation)
    return [f'["amdgpu-agpr-alloc", "{span}"]', f'["amdgpu-waves-per-eu", "{per_simd},{per_simd}"]', *limit]


def accumulation_form(products: Sequence[Op]) -> int:
    """Registers of the largest result of a matrix instruction that stays in the accumulation file, if all those of the others, in the vector
    file, are larger; 0 if the text has no such two kinds."""
    registers = {
        file: {op.attrs["instr"][0] * op.attrs["instr"][1] // WAVE for op in products if (op.attrs.get("file") == file)}  # type: ignore[index]
        for file in ("accumulation", "vector")
    }
    here, others = registers["accumulation"], registers["vector"]
    return max(here) if here and others and max(here) < min(others) else 0


def _module(s: State) -> str:
    k, w = s.kernel, s.w
    waves = k.attrs["waves"]
    assert isinstance(waves, int)
    threads = waves * WAVE
    args: list[str] = []
    stored = written_views(k)
    written = {v for v in k.args if v.name in stored}
    aliased = {name for pair in k.aliases for name in pair}
    for a in k.abi():
        if a.kind == "view":
            view = next(v for v in k.args if v.name == a.name)
            attrs = ["llvm.nonnull"] + ([] if a.name in aliased else ["llvm.noalias"])
            attrs += [] if view in written else ["llvm.readonly"]
            args.append(f"%arg_{a.name}: !llvm.ptr<1> {{{', '.join(attrs)}}}")
        elif a.kind == "reports":
            args.append(f"%arg_{a.name}: !llvm.ptr<1> {{llvm.nonnull, llvm.noalias}}")
        else:
            t = a.type
            assert not isinstance(t, GlobalType)
            args.append(f"%{'sym' if a.kind == 'symbol' else 'arg'}_{a.name}: {scalar_type(t.elem)}")
    names = ", ".join(json.dumps(name) for name in names_in_metadata(k.abi()))
    passthrough = [f'["amdgpu-flat-work-group-size", "{threads},{threads}"]', '["uniform-work-group-size", "true"]']
    # `min` and `max` prefer a number to any NaN. In IEEE mode the hardware gives a quiet NaN for a signalling one, so LLVM would
    # quiet both operands first: three instructions for one.
    passthrough.append('["amdgpu-ieee", "false"]')
    passthrough += register_attributes(k, s.target, s.last_accumulation)
    passthrough += [f'"amdgpu-no-{x}"' for x in _NO_HIDDEN]
    passthrough += [f'"amdgpu-no-workgroup-id-{x}"' for x in "yz" if not w.has(("workgroup", x))]
    lds = k.attrs.get("lds", 0)
    assert isinstance(lds, int)
    loc = w.loc_text()
    meta = json.dumps(interface(k), separators=(",", ":"))
    lines = [
        '#domain = #llvm.alias_scope_domain<id = distinct[0]<>, description = "lds">',
        '#copies = #llvm.alias_scope<id = distinct[1]<>, domain = #domain, description = "direct copies">',
        '#accesses = #llvm.alias_scope<id = distinct[2]<>, domain = #domain, description = "register accesses">',
        "module attributes {gpu.container_module} {",
        f"  gpu.module @{k.name}_module {{",
    ]
    if lds:
        array = f"!llvm.array<{lds} x i8>"
        lines.append(
            f"    llvm.mlir.global internal @lds() {{addr_space = 3 : i32, alignment = 1024 : i64, dso_local}} : {array} {loc}"
        )
    for i, data in enumerate(s.tables):
        text = "".join(f"\\{b:02X}" for b in data)
        lines.append(
            f'    llvm.mlir.global internal constant @tileir_table_{i}("{text}") {{addr_space = 1 : i32, alignment = 16 : i64, dso_local}} : '
            f"!llvm.array<{len(data)} x i8> {loc}"
        )
    if s.needs_zeros:
        zeros = "dense<0> : tensor<16xi8>"
        lines.append(
            f"    llvm.mlir.global internal constant @tileir_zeros({zeros}) {{addr_space = 1 : i32, alignment = 16 : i64, dso_local}} : "
            f"!llvm.array<{views.ZERO_BYTES} x i8> {loc}"
        )
    lines += [
        f'    llvm.mlir.global external hidden constant @tileir_meta("{_escape(meta)}") {{addr_space = 4 : i32, section = ".tileir.meta", '
        f"alignment = 4 : i64}} {loc}",
        f"    llvm.func @{k.name}({', '.join(args)}) attributes {{rocdl.kernel, argument_names = [{names}], "
        f"rocdl.reqd_work_group_size = array<i32: {threads}, 1, 1>, passthrough = [{', '.join(passthrough)}]}} {{",
        *w.lines(),
        f"    }} {loc}",
        f"  }} {loc}",
        f"}} {loc}",
        *w.loc_aliases(),
    ]
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\5C").replace('"', "\\22")
