"""From a parsed module to a code object: passes, MLIR text, the code generation worker, and what came out.

compiled = compile_kernel(parse(text, "gemm.tile"), "gemm", "gfx950")
compiled.hsaco            # the code object
compiled.stats["vgprs"]   # read back from the code object, not predicted
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from tileir.collector import collect_young, collector_paused

with collector_paused():  # modules are full of objects, and none of them is garbage
    from tileir.codeobject import CodeObject, CodeObjectError
    from tileir.ir.core import Kernel, Module
    from tileir.ir.diagnostics import CompileError, Diagnostic, Log, Note
    from tileir.ir.location import UNKNOWN, Loc
    from tileir.ir.printer import print_module
    from tileir.lowering.amdgpu.accumulation_file import Moves, moves
    from tileir.lowering.amdgpu.attempts import (
        BUDGET,
        FAR,
        FEW,
        MFMA_ATTEMPTS,
        MOVES,
        NEAR,
        OTHER_ATTEMPTS,
        SCALARS,
        SPILLS,
        TEXT,
        WOVEN_SPILLS,
        Attempt,
    )
    from tileir.lowering.amdgpu.emit.kernel import emit_module
    from tileir.lowering.amdgpu.failure import CodegenDiagnostic, CodegenError
    from tileir.lowering.amdgpu.refusal import (
        MOVED,
        PINNED,
        SPILLED,
        Hopeless,
        Refused,
        check_pressure,
        over_budget,
        refused,
    )
    from tileir.lowering.amdgpu.worker import CompileOutput, worker_for
    from tileir.passes.manager import PrintAfter, find_kernel, find_target, run_pipeline
    from tileir.records import dataclass

if TYPE_CHECKING:
    from tileir.lowering.amdgpu.contract_waits import Deviation

SPARE = 48  # registers that loops leave free where code generation found that those of the estimate do not suffice
OTHER_WAVES = (4, 8, 2, 16)  # numbers of waves to try, the likelier first
# Deviations of `contract` that `--allow-spills` accepts.
SPILL_CODE, MOVE_CODE = "W0902", "W0903"
RAN_OUT = ("ran out of registers during register allocation", "no registers from class available to allocate")
"""What LLVM says where an instruction needs more registers at once than there are, or registers of a file of which it may take none."""
META_SECTION = ".tileir.meta"


@dataclass
class Options:
    """How to compile. `emit` names the texts and binaries wanted besides the code object: mlir, llvm, asm, obj. `spare` are
    registers that loops of single instructions leave free beyond the estimate; `whole_tiles` writes no loop so."""

    schedule: str = ""
    code_object_version: int = 5
    emit: Sequence[str] = ()
    verify_each: str = "off"
    print_after: PrintAfter | None = None
    start_from: str | None = None
    allow_spills: bool = False
    whole_tiles: bool = False
    spare: int = 0


@dataclass
class Compiled:
    """A compiled kernel. `kernel` is the tile-level kernel that went in, `final` the one that was lowered (None when
    compilation resumed from a later text). `block` are the threads of a workgroup in x, y, z."""

    kernel: Kernel | None
    final: Kernel | None
    target: str
    hsaco: bytes
    interface: dict[str, object]
    block: tuple[int, int, int]
    texts: dict[str, str]
    obj: bytes | None
    stats: dict[str, object]
    log: Log
    timings: dict[str, float] = field(default_factory=dict[str, float])


def compile_kernel(
    module: Module, kernel: str, target: str, options: Options | None = None, log: Log | None = None
) -> Compiled:
    """Compiles one kernel of a module ("" for the only one) for a chip. Raises CompileError.

    Where registers do not suffice – scalar ones that wait in lanes of a vector register included –, loops read their operands later; if
    that is not enough they are compiled as whole tiles, which needs still fewer; then, where nobody said how many waves a workgroup has, with
    other numbers of waves. A remark says which it became.
    """
    options = options or Options()
    log = log if log is not None else Log()
    first = Log()
    try:
        with collector_paused():
            compiled = _compile_once(module, kernel, target, options, first)
    except CompileError as e:
        other = None
        if e.diagnostics[0].code in (SPILLED, MOVED) and options.start_from is None:
            failed, spilled = (e.final, e.spilled) if isinstance(e, Refused) else (None, 0)
            hopeless = isinstance(e, Hopeless)
            if not hopeless and spilled <= SPARE:
                other = _of_less_at_once(module, kernel, target, options, failed)
            other = other or _of_whole_tiles(module, kernel, target, options, failed, sparing=spilled > NEAR)
            other = other or _of_other_waves(module, kernel, target, options, hopeless=hopeless)
        if other is None:
            log.diagnostics += first.diagnostics
            raise _advised(e, module, kernel, target, options) from e
        compiled = other
    else:
        if compiled.stats["sgpr_spills"] and options.start_from is None:
            other = _of_whole_tiles(module, kernel, target, options)
            if other is not None and not other.stats["sgpr_spills"]:
                compiled = other
    log.diagnostics += compiled.log.diagnostics
    compiled.log = log
    return compiled


def _advised(e: CompileError, module: Module, kernel: str, target: str, options: Options) -> CompileError:
    """The error for registers that do not suffice, with what would help; any other as it is."""
    if e.diagnostics[0].code != SPILLED or options.start_from is not None:
        return e
    # Not at the top: few kernels need it.
    from tileir.lowering.amdgpu.registers.advice import advice

    source = find_kernel(module, kernel)
    notes = advice(module, source, find_target(source, target), options.schedule)
    head = replace(e.diagnostics[0], notes=(*e.diagnostics[0].notes, *notes))
    return CompileError([head, *e.diagnostics[1:]], e.sources)


def _of_less_at_once(
    module: Module, kernel: str, target: str, options: Options, failed: Kernel | None
) -> Compiled | None:
    """The kernel with loops that read fragments from LDS later, so that fewer registers hold them; None if that is an error, makes no loop of
    single instructions, or was tried already and has `failed`."""
    if options.whole_tiles or options.spare or failed is None:
        return None
    source, attempt = find_kernel(module, kernel), Log()
    try:
        compiled = _compile_once(module, kernel, target, replace(options, spare=SPARE), attempt, failed)
    except CompileError:
        return None
    if compiled.final is None or not any(op.name == "mfma" for op in compiled.final.walk()):
        return None
    if compiled.stats["sgpr_spills"]:
        return None
    text = f"loops read from LDS later, so that {SPARE} registers fewer are in use: those of the usual order do not suffice"
    attempt.remark("R0814", text, source.loc)
    return compiled


def _of_whole_tiles(
    module: Module,
    kernel: str,
    target: str,
    options: Options,
    failed: Kernel | None = None,
    *,
    sparing: bool = False,
) -> Compiled | None:
    """The kernel with loops of whole tiles, None if that is an error, or what was tried already and has `failed`. `sparing` leaves out the ways
    of generating code that are not."""
    if options.whole_tiles:
        return None
    source, attempt = find_kernel(module, kernel), Log()
    try:
        whole = replace(options, whole_tiles=True)
        compiled = _compile_once(module, kernel, target, whole, attempt, failed, sparing=sparing)
    except CompileError:
        return None
    text = "loops are compiled as whole tiles, with as many stages as are asked for: registers do not suffice for more"
    attempt.remark("R0807", text, source.loc)
    return compiled


def _of_other_waves(module: Module, kernel: str, target: str, options: Options, *, hopeless: bool) -> Compiled | None:
    """The kernel with another number of waves, where nobody stated one; None if none compiles. All registers of a compute unit are in
    use from one wave per SIMD on, where more waves share the same: then the `hopeless` stays so."""
    source = find_kernel(module, kernel)
    try:
        default = _open_waves(module, source, target, options)
    except CompileError:  # not even layouts
        return None
    if not default or (hopeless and default >= find_target(source, target).simds_per_cu):
        return None
    for waves in OTHER_WAVES:
        if waves == default:
            continue
        fixed = replace(source, attrs={**source.attrs, "waves": waves})
        others = replace(module, kernels=[fixed if k is source else k for k in module.kernels])
        attempt = Log()
        try:
            compiled = _compile_once(others, source.name, target, options, attempt)
        except CompileError:
            continue
        text = f"{waves} waves a workgroup: the registers do not suffice for the usual {default}"
        attempt.remark("R0803", text, source.loc)
        compiled.kernel = source
        return compiled
    return None


def _open_waves(module: Module, source: Kernel, target: str, options: Options) -> int:
    """The number of waves that the layouts were made for, 0 if the text or its schedule states one."""

    def after(step: str) -> Kernel:
        return run_pipeline(module, source.name, target, schedule=options.schedule, stop_after=step, log=Log()).kernel

    bound = after("specialise")
    if "waves" in bound.attrs or any(op.attrs.get("waves") for op in bound.walk()):
        return 0
    chosen = after("assign-layouts").attrs["waves"]
    assert isinstance(chosen, int)
    return chosen


def _compile_once(
    module: Module,
    kernel: str,
    target: str,
    options: Options,
    log: Log,
    failed: Kernel | None = None,
    *,
    sparing: bool = False,
) -> Compiled:
    """One run through everything, or only in ways that are `sparing` of registers. Raises CompileError, also where the passes end with the
    text of `failed`."""
    timings: dict[str, float] = {}
    source = find_kernel(module, kernel)
    worker = worker_for(worker_options(source))
    worker.start()
    checks: list[Callable[[], None]] = []
    result = run_pipeline(
        module,
        kernel,
        target,
        later=checks,
        schedule=options.schedule,
        whole_tiles=options.whole_tiles,
        spare=options.spare,
        start_from=options.start_from,
        print_after=options.print_after,
        verify_each=options.verify_each,
        log=log,
    )
    timings["passes"] = sum(t for _, t in result.timings)
    if failed is not None and print_module(Module([failed])) == print_module(Module([result.kernel])):
        raise CompileError([Diagnostic(SPILLED, "this text has been tried", source.loc)], module.sources)
    if not options.allow_spills:
        check_pressure(result.kernel, result.context.target, module)
    chip = result.context.target.name
    timings["emit"] = 0.0

    def text(attempt: Attempt) -> str:
        start = time.perf_counter()
        try:
            return emit_module(result.kernel, result.context.target, sparing=attempt.sparing, pinned=attempt.pinned)
        except CompileError as e:
            raise CompileError(e.diagnostics, module.sources) from e
        finally:
            timings["emit"] += time.perf_counter() - start
            meanwhile.begin()

    printed: list[str] = []
    meanwhile = _Meanwhile(
        (
            *checks,
            lambda: printed.append(print_module(Module([result.kernel]))),
            lambda: _prepare_check(chip),
            collect_young,
        )
    )
    try:
        attempts = tuple(a for a in _attempts(source) if a.sparing or not sparing)
        compiled = _generate("mlir", text, chip, attempts, options, log, module, source.loc, result.kernel)
    finally:
        meanwhile.finish()  # what it finds wrong in the text is the cause of whatever was found in the code
    compiled.kernel, compiled.final = source, result.kernel
    compiled.texts["tile"] = printed[0]
    compiled.timings = {**timings, **compiled.timings}
    compiled.stats["passes"] = {name: round(t * 1e3, 3) for name, t in result.timings}
    return compiled


class _Meanwhile:
    """Work on the text that nobody waits for while the worker makes code of it: its last checks, its printed form."""

    def __init__(self, work: Sequence[Callable[[], object]]) -> None:
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Starts the work, once."""
        if self._thread.ident is None:
            self._thread.start()

    def finish(self) -> None:
        """Waits until all is done; raises what went wrong in it."""
        self.begin()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            for action in self._work:
                action()
        except BaseException as error:
            self._error = error


class _NoRegisters(CompileError):
    """LLVM found no register for a value that an instruction needs at once."""


def resume(
    stage: str, text: str, target: str, options: Options | None = None, log: Log | None = None, file: str = "<text>"
) -> Compiled:
    """Compiles from edited MLIR, LLVM IR or assembly. `stage` is mlir, llvm or asm. Raises CompileError."""
    options = options or Options()
    log = log if log is not None else Log()
    module = Module([], sources={file: text})
    attempts = MFMA_ATTEMPTS if "mfma" in text else OTHER_ATTEMPTS
    attempts = tuple(a for i, a in enumerate(attempts) if a.options not in [b.options for b in attempts[:i]])
    return _generate(stage, lambda _: text, target, attempts, options, log, module, Loc(file, 1, 1, 1, 2))


def worker_options(kernel: Kernel) -> tuple[str, ...]:
    """LLVM options for a kernel: those of matrix loops where there is an `mma`, else LLVM's own scheduling."""
    return _attempts(kernel)[0].options


def _attempts(kernel: Kernel) -> tuple[Attempt, ...]:
    return MFMA_ATTEMPTS if any(op.name in ("mma", "mma_scaled", "mfma") for op in kernel.walk()) else OTHER_ATTEMPTS


def _generate(
    stage: str,
    text: Callable[[Attempt], str],
    target: str,
    attempts: tuple[Attempt, ...],
    options: Options,
    log: Log,
    module: Module,
    loc: Loc,
    kernel: Kernel | None = None,
) -> Compiled:
    """Code with the first of `attempts` that keeps what `kernel`, its text, says; else the one that comes closest. Registers
    spilled to memory and accumulators moved in loops are then an error unless the options allow them, other deviations
    are warnings. Without a kernel only spills are looked at. Attempts that cannot mend what is wrong with the best are left out."""
    best: tuple[tuple[int, ...], Compiled, list[Deviation], Log] | None = None
    tried = attempts[:1] if stage == "asm" else attempts
    seconds = 0.0
    moved = moves(kernel) if kernel is not None else ()
    woven = kernel is not None and any(op.name == "mfma" for op in kernel.walk())
    made, spared = 0, False  # code, and whether some of it was sparing
    for attempt in tried:
        if best is not None and not _may_mend(attempt, best[0], woven=woven, spared=spared):
            continue
        made, spared = made + 1, spared or attempt.sparing
        messages = Log()
        try:
            compiled = _generate_once(
                stage, text(attempt), target, attempt.options, options, messages, module, loc, moved
            )
        except _NoRegisters:
            continue
        start = time.perf_counter()
        deviations = _deviations(compiled, kernel, loc)
        seconds += time.perf_counter() - start
        compiled.stats["llvm_options"] = list(attempt.options)
        compiled.stats["sparing"], compiled.stats["pinned"] = attempt.sparing, attempt.pinned
        score = _score(compiled, kernel, deviations)
        if best is None or score < best[0]:
            best = score, compiled, deviations, messages
        best[1].stats["attempts"] = made
        if not any(best[0]):
            break
    if best is None:
        text_of = "registers do not suffice: there are none for a value that an instruction needs"
        note = Note(f"in none of {made} ways of generating code")
        raise refused(SPILLED, text_of, loc, kernel, note, module)
    _, compiled, deviations, messages = best
    compiled.timings["contract"] = seconds
    log.diagnostics += messages.diagnostics
    compiled.log = log
    compiled.stats["spills_allowed"] = options.allow_spills
    compiled.stats["deviations"] = [f"{d.code}: {d.message}" for d in deviations]
    note = Note(f"the best of {compiled.stats['attempts']} ways of generating code")
    in_memory, vector, _ = _spills(compiled)
    if (in_memory or vector) and not options.allow_spills:
        what = (
            f"registers do not suffice: {vector} vector registers spill, {in_memory} bytes of scratch memory per lane"
        )
        raise refused(SPILLED, what, loc, kernel, note, module, spilled=vector)
    over = over_budget(compiled.stats, kernel)
    if over and not options.allow_spills:
        what = f"registers do not suffice: the code takes {over} more than the budget"
        raise refused(SPILLED, what, loc, kernel, note, module)
    for d in deviations:
        if d.code == PINNED:
            raise refused(PINNED, d.message, d.loc, kernel, note, module)
        if d.code == MOVE_CODE and not options.allow_spills:
            raise refused(MOVED, d.message, d.loc, kernel, note, module)
        if d.code not in (SPILL_CODE, MOVE_CODE) or not options.allow_spills:
            place, notes = _scalars(d, kernel, compiled)
            log.warning(d.code, d.message, place, legal=d.legal, notes=notes)
    return compiled


def _scalars(d: Deviation, kernel: Kernel | None, compiled: Compiled) -> tuple[Loc, tuple[Note, ...]]:
    """The place of a deviation; of scalar registers that spill the one where most are wanted, with what holds them."""
    if d.code != SPILL_CODE or kernel is None:
        return d.loc, ()
    from tileir.lowering.amdgpu.registers.advice import scalars_of

    return scalars_of(kernel, compiled.target)


def _deviations(compiled: Compiled, kernel: Kernel | None, loc: Loc) -> list[Deviation]:
    """In what the code differs from the text `kernel`; spills alone when there is none."""
    # Not at the top: it loads the decoder.
    from tileir.lowering.amdgpu.contract import check, spills

    return check(compiled.hsaco, kernel) if kernel is not None else spills(compiled.stats, loc)


def _score(compiled: Compiled, kernel: Kernel | None, deviations: list[Deviation]) -> tuple[int, ...]:
    """How bad code is, the worst kind first: memory, vector registers spilled, registers over the budget, moves of accumulators,
    what the text says otherwise and is not so, scalar registers spilled to lanes."""
    in_memory, vector, scalar = _spills(compiled)
    moves = sum(d.weight for d in deviations if d.code == MOVE_CODE)
    others = sum(d.weight for d in deviations if d.code not in (SPILL_CODE, MOVE_CODE))
    return in_memory, vector, over_budget(compiled.stats, kernel), moves, others, scalar


def _may_mend(attempt: Attempt, score: tuple[int, ...], *, woven: bool, spared: bool) -> bool:
    """Whether another attempt may give better code than what has the `score`: of a `woven` text, one of single instructions, or another; `spared`
    if one was sparing of registers already."""
    _, spilled, *_ = score
    if spilled > (NEAR if woven else FAR) and (woven or spared):
        return False
    kinds = (SPILLS, SPILLS, BUDGET, MOVES, TEXT, SCALARS)
    worst = next(kind for kind, n in zip(kinds, score, strict=True) if n)
    return (WOVEN_SPILLS if woven and worst == SPILLS and spilled > FEW else worst) in attempt.mends


def _spills(compiled: Compiled) -> tuple[int, int, int]:
    """Scratch bytes, spilled vector registers, spilled scalar registers (which go to lanes of vector registers)."""
    values = [compiled.stats[k] for k in ("scratch_bytes", "vgpr_spills", "sgpr_spills")]
    scratch, vector, scalar = (v if isinstance(v, int) else 0 for v in values)
    return scratch, vector, scalar


def _generate_once(
    stage: str,
    text: str,
    target: str,
    llvm: tuple[str, ...],
    options: Options,
    log: Log,
    module: Module,
    loc: Loc,
    moved: Moves,
) -> Compiled:
    wanted = tuple(dict.fromkeys(("hsaco", *(e for e in options.emit if e in ("mlir", "llvm", "asm", "obj")))))
    order = ("mlir", "llvm", "asm", "obj", "hsaco")
    wanted = tuple(e for e in wanted if order.index(e) >= order.index(stage))
    try:
        out = worker_for(llvm).compile(
            stage,
            text,
            target,
            code_object_version=options.code_object_version if stage != "asm" else None,
            emit=wanted,
            moved=moved,
        )
    except CodegenError as e:
        found = _diagnose(e, module, loc)
        if any(said in m for m in (e.message, *map(str, e.diagnostics)) for said in RAN_OUT):
            raise _NoRegisters(found.diagnostics, found.sources) from e
        raise found from e
    for d in out.diagnostics:
        log.warning("W0901", d.message, _locate(d, module, loc))
    return _compiled(out, target, out.timings, log, module, loc)


def _compiled(
    out: CompileOutput, target: str, timings: dict[str, float], log: Log, module: Module, loc: Loc
) -> Compiled:
    assert out.hsaco is not None
    try:
        code = CodeObject.from_bytes(out.hsaco)
        section = code.section(META_SECTION)
        interface = json.loads(section) if section is not None else {}
    except (CodeObjectError, ValueError) as e:
        text = f"the code object cannot be read back: {e}"
        raise CompileError(
            [Diagnostic("E0904", text, loc, legal="text that keeps the section .tileir.meta")], module.sources
        ) from e
    name = next(iter(code.kernels))
    texts = {k: v for k, v in (("mlir", out.mlir), ("llvm", out.llvm), ("asm", out.asm)) if v is not None}
    metadata = code.kernels[name].metadata
    block = interface.get("block") or [metadata.max_flat_workgroup_size if metadata else 64, 1, 1]
    return Compiled(
        kernel=None,
        final=None,
        target=target,
        hsaco=out.hsaco,
        interface=interface,
        block=(block[0], block[1], block[2]),
        texts=texts,
        obj=out.obj,
        stats=_stats(code, name, timings, len(out.hsaco)),
        log=log,
        timings=timings,
    )


def _stats(code: CodeObject, name: str, timings: dict[str, float], size: int) -> dict[str, object]:
    kernel = code.kernels[name]
    m, d = kernel.metadata, kernel.descriptor
    return {
        "kernel": name,
        "target": code.chip,
        "code_object_version": code.code_object_version,
        "vgprs": m.vgpr_count if m else None,
        "agprs": m.agpr_count if m else None,
        "sgprs": m.sgpr_count if m else None,
        "vgpr_spills": m.vgpr_spill_count if m else None,
        "sgpr_spills": m.sgpr_spill_count if m else None,
        "scratch_bytes": d.private_segment_fixed_size,
        "lds_bytes": d.group_segment_fixed_size,
        "code_bytes": len(kernel.code),
        "file_bytes": size,
        "milliseconds": {k: round(v * 1e3, 3) for k, v in timings.items()},
    }


def _prepare_check(chip: str) -> None:
    from tileir.lowering.amdgpu.contract import prepare

    prepare(chip)


def _locate(d: CodegenDiagnostic, module: Module, fallback: Loc) -> Loc:
    for name in module.sources:
        if d.line and name.rsplit("/", 1)[-1] == d.file:
            return Loc(name, d.line, max(d.column, 1), d.line, max(d.column, 1) + 1)
    if d.line and not d.file and module.sources and not module.kernels:
        return Loc(next(iter(module.sources)), d.line, max(d.column, 1), d.line, max(d.column, 1) + 1)
    return fallback


def _diagnose(e: CodegenError, module: Module, loc: Loc) -> CompileError:
    """A failure of the worker as a located diagnostic."""
    place = next((_locate(d, module, UNKNOWN) for d in e.diagnostics if _locate(d, module, UNKNOWN).line), loc)
    notes = [Note(str(d)) for d in e.diagnostics[:5] if d.message != e.message]
    if e.stderr:
        notes.append(Note("the code generator's last words: " + e.stderr.strip()[-400:]))
    code = "E0905" if e.crashed else "E0906"
    legal = "edit the text that was handed in; if it came from TileIR unchanged, please report it"
    return CompileError(
        [Diagnostic(code, f"code generation failed: {e.message}", place, notes=tuple(notes), legal=legal)],
        module.sources,
    )
