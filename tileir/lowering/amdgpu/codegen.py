"""MLIR or LLVM IR or assembly to a code object, inside the worker process.

This module imports MLIR and LLVM, both of which can end the process; nothing but `worker_main` imports it.

What runs is decided by the text: MLIR conversions only for the dialects it uses (text in the `llvm` and `rocdl`
dialects passes unchanged), LLVM IR passes only when asked for. Everything is deterministic: fresh context per
compile, one thread, no paths or times in any output.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import field
from typing import Any

import llvmlite.binding as llvm
from mlir import ir as mlir_ir

# The function itself: the module mlir.dialects.llvm around it costs 14 ms for op classes that nothing here uses.
from mlir._mlir_libs._mlirDialectsLLVM import translate_module_to_llvmir  # pyright: ignore[reportMissingModuleSource]
from mlir.passmanager import PassManager

from tileir.lowering.amdgpu import external
from tileir.lowering.amdgpu.accumulation_file import Moves, renamed
from tileir.lowering.amdgpu.failure import MESSAGE_MARK
from tileir.lowering.amdgpu.llvm_options import KNOWN
from tileir.records import dataclass

ir: Any = mlir_ir  # its type stubs lag behind it
TRIPLE = "amdgcn-amd-amdhsa"
INPUT_DIALECTS = ("llvm", "rocdl", "amdgpu", "vector", "arith")
INPUT_OPERATIONS = ("builtin.module", "gpu.module")
OUTPUT_DIALECTS = ("llvm", "rocdl")
# Without these passes the text stays exactly as written. `convert-gpu-to-rocdl` is left out on purpose: it turns
# llvm.frem and the llvm.intr mathematics into calls of a device library that is not linked.
CONVERSIONS = (
    ("vector", "convert-vector-to-llvm"),
    ("arith", "convert-arith-to-llvm"),
    ("amdgpu", "convert-amdgpu-to-rocdl{{chipset={chip}}}"),
)
LINE_TABLES = "ensure-debug-info-scope-on-llvm-func{emission-kind=LineTablesOnly}"
MINIMAL_PASSES = ("instruction_combine", "new_gvn", "loop_rotate", "instruction_combine", "simplify_cfg")
PIPELINES = ("none", "minimal", "O1", "O2", "O3")
# The attribute with which MLIR text names kernel arguments; MLIR itself forgets the names of values.
ARGUMENT_NAMES = "argument_names"
VERSION_FLAG = "amdhsa_code_object_version"

# Patterns for long texts begin with literal characters, which are found ten times as fast as the start of a line or word is. In LLVM IR a quote
# within quotes is written as \22, so what has one is no string constant.
_ASSEMBLY_IN_IR = re.compile(r'asm (?:(?:sideeffect|alignstack|inteldialect|unwind) )*"[^"]')
_TRIPLE = re.compile(r'\ntarget triple = "([^"]*)"')
_METADATA_NUMBER = re.compile(r"\n!(\d+) = ")
_FLAG_IN_IR = re.compile(rf'!"{VERSION_FLAG}", i32 (\d+)')
_FLAG_IN_ASSEMBLY = re.compile(rf"^\s*\.{VERSION_FLAG}\s+(\d+)", re.MULTILINE)
_LLVM_PARSE_ERROR = re.compile(r"<string>:(\d+):(\d+): error: (.*)")


@dataclass(frozen=True)
class Located:
    """One message of MLIR, LLVM or the assembler. Line and column count from 1, 0 means unknown."""

    severity: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0


class Rejected(Exception):
    """The input cannot be compiled; the process is sound and goes on."""

    def __init__(self, message: str, located: tuple[Located, ...] = ()) -> None:
        super().__init__(message)
        self.located = located


@dataclass(frozen=True)
class Request:
    """One compilation; see `worker.Worker.compile` for the meaning of the fields."""

    stage: str
    text: str
    target: str
    code_object_version: int | None
    opt: int
    passes: str
    emit: tuple[str, ...]
    moved: Moves = ()


@dataclass
class Result:
    """What a compilation produced: texts and bytes by kind, and seconds by step. `spent` are modules that take a while to be freed, which
    whoever waits for the rest need not wait for."""

    outputs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    timings: dict[str, float] = field(default_factory=dict[str, float])
    spent: list[Any] = field(default_factory=list[Any])

    @contextmanager
    def step(self, name: str) -> Generator[None, None, None]:
        """Measures a step."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.timings[name] = self.timings.get(name, 0.0) + time.perf_counter() - start


class Contexts:
    """MLIR contexts, each used once. The next one is made while the worker waits."""

    def __init__(self) -> None:
        self._next: Any = None

    def prepare(self) -> None:
        """Makes the next context."""
        if self._next is None:
            context = ir.Context(load_on_create_dialects=[])
            context.enable_multithreading(False)
            # Not `context.dialects`: that imports Python classes of all operations of a dialect, 40 ms for these.
            for name in ("builtin", "gpu", *OUTPUT_DIALECTS):
                context.get_dialect_descriptor(name)
            self._next = context

    def take(self) -> Any:
        """A fresh context."""
        self.prepare()
        context, self._next = self._next, None
        assert context is not None
        return context


def initialise(options: tuple[str, ...]) -> Contexts:
    """Prepares LLVM with process-wide options such as `-enable-misched=0`; raises `Rejected` for a wrong option."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    _put(tuple(option for option in options if option in KNOWN))
    if others := tuple(option for option in options if option not in KNOWN):
        _set_options(others)
    contexts = Contexts()
    contexts.prepare()
    return contexts


def _set_options(options: tuple[str, ...]) -> None:
    """Sets options of LLVM, which by itself ignores unknown names silently and wrong values after a message."""
    known = _printed(lambda: llvm.set_option("tileir", "-help-hidden"), 1)
    names = set(re.findall(r"^ +--?([\w-]+)", known, re.MULTILINE))
    for option in options:
        if option.lstrip("-").partition("=")[0] not in names:
            raise Rejected(f"LLVM does not know the option '{option}'")
    # All at once, as each child process costs milliseconds; one by one only to say which it was.
    if _printed(lambda: _put(options), 2):
        for option in options:
            complaint = _printed(lambda option=option: _put((option,)), 2)
            if complaint:
                raise Rejected(f"LLVM rejects the option '{option}': {complaint.strip()}")
        raise Rejected(f"LLVM rejects these options together: {' '.join(options)}")
    _put(options)


def _put(options: tuple[str, ...]) -> None:
    for option in options:
        llvm.set_option("tileir", option)


def _printed(action: Callable[[], None], descriptor: int) -> str:
    """What `action` prints on a file descriptor. It runs in a child process, since it may also exit."""
    with os.fdopen(os.memfd_create("tileir-options"), "r+b") as file:
        child = os.fork()
        if child == 0:
            os.dup2(file.fileno(), descriptor)
            action()
            os._exit(0)
        os.waitpid(child, 0)
        file.seek(0)
        return file.read().decode(errors="replace")


def compile_request(request: Request, contexts: Contexts) -> Result:
    """Runs one compilation; raises `Rejected`, or ends the process where LLVM or MLIR do."""
    result = Result()
    if request.stage == "asm":
        _finish(_assemble(request.text, request, result), request, result)
        return result
    names: dict[str, list[str]] = {}
    text = request.text
    if request.stage == "mlir":
        text, names = _translate(request, contexts.take(), result)
    if {"llvm", "asm", "obj", "hsaco"} & set(request.emit):
        _generate(text, names, request, result)
    return result


# MLIR


def _translate(request: Request, context: Any, result: Result) -> tuple[str, dict[str, list[str]]]:
    """MLIR text to LLVM IR text and the argument names of its functions."""
    messages: list[Located] = []

    def collect(diagnostic: Any) -> bool:
        message = _located(diagnostic)
        messages.append(message)
        # A failed translation ends the process: what is known must be out before.
        print(MESSAGE_MARK + json.dumps(list(vars(message).values())), file=sys.stderr, flush=True)
        return True

    with context, _mlir_errors("the MLIR text is not valid"):
        handler = context.attach_diagnostic_handler(collect)
        try:
            with result.step("parse"):
                module = ir.Module.parse(request.text)
            result.spent += (module, context)
            with result.step("check"):
                kernels, dialects, names = _check_input(module)
            with result.step("convert"):
                _convert(module, dialects, request.target)
            if "mlir" in request.emit:
                with result.step("print"):
                    text = module.operation.get_asm(enable_debug_info=True)
                    result.outputs["mlir"] = text.encode()
            if request.emit == ("mlir",):
                return "", {}
            with result.step("translate"):
                _run_passes(module, f"builtin.module({LINE_TABLES})")
                try:
                    text = translate_module_to_llvmir(kernels)
                except RuntimeError as error:
                    raise Rejected("MLIR could not be translated to LLVM IR", tuple(messages)) from error
        finally:
            handler.detach()
    if any(m.severity == "error" for m in messages):
        raise Rejected("MLIR could not be translated to LLVM IR", tuple(messages))
    return text, names


def _check_input(module: Any) -> tuple[Any, set[str], dict[str, list[str]]]:
    """The `gpu.module`, the dialects in use and the argument names of functions; rejects operations outside the accepted dialects.

    Operations are walked, not read from their blocks: that would import Python classes of all operations of their dialects, 130 ms.
    """
    top: list[Any] = []

    def collect(op: Any) -> Any:
        top.append(op)
        return ir.WalkResult.SKIP if op.name == "gpu.module" else ir.WalkResult.ADVANCE

    module.operation.walk(collect, ir.WalkOrder.PRE_ORDER)
    if [op.name for op in top] != ["builtin.module", "gpu.module"]:
        raise Rejected("the MLIR text must hold exactly one gpu.module, and nothing beside it")
    found = _operations(module)
    if wrong := {n for n in found if n.partition(".")[0] not in INPUT_DIALECTS and n not in INPUT_OPERATIONS}:
        legal = ", ".join(INPUT_DIALECTS)
        located = _places(module, wrong, "operation '{}' is not accepted")
        raise Rejected(f"operations of these dialects are accepted inside gpu.module: {legal}", located)
    functions: list[Any] = []

    def collect_functions(op: Any) -> Any:
        if op.name != "llvm.func":
            return ir.WalkResult.ADVANCE
        functions.append(op)
        return ir.WalkResult.SKIP

    top[1].walk(collect_functions, ir.WalkOrder.PRE_ORDER)
    names: dict[str, list[str]] = {}
    for function in functions:  # here, since what a walk's callback raises loses its details
        names.update(_argument_names(function))
    return top[1], {name.partition(".")[0] for name in found}, names


def _operations(module: Any) -> set[str]:
    """The names of all operations. A walk calls back for each, so this is kept short."""
    names: set[str] = set()
    add, go_on = names.add, ir.WalkResult.ADVANCE

    def visit(op: Any) -> Any:
        add(op.name)
        return go_on

    module.operation.walk(visit)
    return names


def _places(module: Any, names: set[str], message: str) -> tuple[Located, ...]:
    """The operations with these names, each with a message about its name."""
    found: list[Located] = []

    def visit(op: Any) -> Any:
        if op.name in names:
            found.append(_at(op.location, message.format(op.name)))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return tuple(found)


def _convert(module: Any, dialects: set[str], chip: str) -> None:
    passes = [name.format(chip=chip) for dialect, name in CONVERSIONS if dialect in dialects]
    if not passes:
        return
    pipeline = ",".join([*passes, "reconcile-unrealized-casts"])
    _run_passes(module, f"builtin.module(gpu.module({pipeline}))")
    left = {n for n in _operations(module) if n.partition(".")[0] not in OUTPUT_DIALECTS and n not in INPUT_OPERATIONS}
    if left:
        located = _places(module, left, f"operation '{{}}' has no lowering for {chip}")
        raise Rejected("operations remained that cannot be translated to LLVM IR", located)


def _run_passes(module: Any, pipeline: str) -> None:
    """Without MLIR's verifier after each pass: parsing has verified the text, and the LLVM IR that it becomes is verified again."""
    manager = PassManager.parse(pipeline)
    manager.enable_verifier(False)
    manager.run(module.operation)


def _argument_names(function: Any) -> dict[str, list[str]]:
    """The names by the symbol of the function; empty if it states none."""
    if ARGUMENT_NAMES not in function.attributes:
        return {}
    symbol = ir.StringAttr(function.attributes["sym_name"]).value
    try:
        return {symbol: [ir.StringAttr(name).value for name in ir.ArrayAttr(function.attributes[ARGUMENT_NAMES])]}
    except ValueError:
        where = (_at(function.location, f"function '{symbol}'"),)
        raise Rejected(f"'{ARGUMENT_NAMES}' must be an array of strings", where) from None


@contextmanager
def _mlir_errors(message: str) -> Generator[None, None, None]:
    try:
        yield
    except ir.MLIRError as error:
        raise Rejected(message, tuple(_located(d) for d in error.error_diagnostics)) from error


def _located(diagnostic: Any) -> Located:
    severity = str(diagnostic.severity).rpartition(".")[2].lower()
    useless = ("see current operation", "Available dialects")
    notes = "".join(f"; {n.message.strip()}" for n in diagnostic.notes if not n.message.startswith(useless))
    return _at(diagnostic.location, diagnostic.message.strip() + notes, severity)


def _at(location: Any, message: str, severity: str = "error") -> Located:
    while not location.is_a_file():
        if location.is_a_name():
            location = location.child_loc
        elif location.is_a_fused() and location.locations:
            location = location.locations[0]
        elif location.is_a_callsite():
            location = location.callee
        else:
            return Located(severity, message)
    name = "" if location.filename == "-" else location.filename
    return Located(severity, message, name, location.start_line, location.start_col)


# LLVM


def _generate(text: str, names: Mapping[str, list[str]], request: Request, result: Result) -> None:
    """LLVM IR text to the outputs that are asked for. Code generation changes a module, so each run parses anew."""
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=request.target, opt=request.opt)
    header, text = _with_flags(text, str(machine.target_data), request.code_object_version)
    with result.step("llvm-parse"):
        module = _parse(header + text, header.count("\n"))
        _name_arguments(module, names)
    result.spent += (module, machine)
    if request.passes != "none":
        with result.step("optimise"):
            _optimise(module, machine, request.passes)
    wants_object = bool({"obj", "hsaco"} & set(request.emit))
    # LLVM as built for llvmlite has no AMDGPU assembler: with assembly in the IR the way goes through text, and with registers to be renamed.
    through_text = (wants_object and _ASSEMBLY_IN_IR.search(text) is not None) or bool(request.moved)
    final = ""
    if {"llvm", "asm"} & set(request.emit):
        with result.step("print"):
            final = str(module)
        if "llvm" in request.emit:
            result.outputs["llvm"] = final.encode()
    if through_text:
        with result.step("codegen"):
            assembly = renamed(machine.emit_assembly(module), request.moved)
        if "asm" in request.emit:
            result.outputs["asm"] = assembly.encode()
        _finish(_assemble(assembly, request, result), request, result)
        return
    if "asm" in request.emit:
        with result.step("codegen-listing"):
            machine.set_asm_verbosity(True)
            result.outputs["asm"] = machine.emit_assembly(_parse(final)).encode()
    if wants_object:
        with _tool_errors(), external.Linker() if "hsaco" in request.emit else nullcontext() as linker:
            with result.step("codegen"):
                obj = machine.emit_object(module)
            _finish(obj, request, result, linker)


def _with_flags(text: str, data_layout: str, version: int | None) -> tuple[str, str]:
    """A header and the text, with target and code object version where it does not state them itself.

    A contradiction between the text and what is asked for is rejected.
    """
    lines: list[str] = []
    searched = f"\n{text}"
    triple = _TRIPLE.search(searched)
    if triple is not None and not triple[1].startswith("amdgcn"):
        raise Rejected(f"the LLVM IR is for '{triple[1]}', not for {TRIPLE}")
    if triple is None:
        lines.append(f'target triple = "{TRIPLE}"\n')
    if "\ntarget datalayout = " not in searched:
        lines.append(f'target datalayout = "{data_layout}"\n')
    stated = _FLAG_IN_IR.search(text)
    _check_version(int(stated[1]) // 100 if stated else None, version, "the LLVM IR")
    if stated is None:
        # Metadata numbers need not be dense; the largest in the text is unknown without parsing it.
        number = max(map(int, _METADATA_NUMBER.findall(searched)), default=-1) + 1
        text += f"\n!llvm.module.flags = !{{!{number}}}\n"
        text += f'!{number} = !{{i32 1, !"{VERSION_FLAG}", i32 {100 * (version or 5)}}}\n'
    return "".join(lines), text


def _check_version(stated: int | None, asked: int | None, what: str) -> None:
    if stated is not None and asked is not None and stated != asked:
        raise Rejected(f"{what} states code object version {stated}, but version {asked} was asked for")


def _parse(text: str, header_lines: int = 0) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        found = _LLVM_PARSE_ERROR.search(str(error))
        located = (Located("error", found[3], "", int(found[1]) - header_lines, int(found[2])),) if found else ()
        detail = "" if found else f": {str(error).strip()}"
        raise Rejected(f"the LLVM IR is not valid{detail}", located) from error
    return module


def _name_arguments(module: llvm.ModuleRef, names: Mapping[str, list[str]]) -> None:
    for function, arguments in names.items():
        values = list(module.get_function(function).arguments)
        if len(values) != len(arguments):
            raise Rejected(f"'{ARGUMENT_NAMES}' of '{function}' names {len(arguments)} of {len(values)} arguments")
        for value, name in zip(values, arguments, strict=True):
            value.name = name


def _optimise(module: llvm.ModuleRef, machine: llvm.TargetMachine, passes: str) -> None:
    speed = 0 if passes == "minimal" else PIPELINES.index(passes) - PIPELINES.index("O1") + 1
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=speed))
    if passes == "minimal":
        manager = llvm.create_new_function_pass_manager()
        for name in MINIMAL_PASSES:
            getattr(manager, f"add_{name}_pass")()
        for function in module.functions:
            if not function.is_declaration:
                manager.run(function, builder)
    else:
        builder.getModulePassManager().run(module, builder)


# Objects


def _assemble(text: str, request: Request, result: Result) -> bytes:
    stated = _FLAG_IN_ASSEMBLY.search(text)
    _check_version(int(stated[1]) if stated else None, request.code_object_version, "the assembly")
    if request.stage == "asm" and "asm" in request.emit:
        result.outputs["asm"] = text.encode()
    with result.step("assemble"), _tool_errors():
        return external.assemble(text, request.target, request.code_object_version or 5)


def _finish(obj: bytes, request: Request, result: Result, linker: external.Linker | None = None) -> None:
    """The object and what it is linked to, by a linker that may have been started before."""
    if "obj" in request.emit:
        result.outputs["obj"] = obj
    if "hsaco" in request.emit:
        with result.step("link"), _tool_errors():
            result.outputs["hsaco"] = linker.link(obj) if linker is not None else external.link(obj)


@contextmanager
def _tool_errors() -> Generator[None, None, None]:
    try:
        yield
    except external.ToolError as error:
        located = tuple(Located(s, m, "", line, column) for s, m, line, column in error.located)
        raise Rejected(str(error), located) from error


WARM_UP = """module { gpu.module @warm_up { llvm.func @k(%0: !llvm.ptr<1>) attributes {rocdl.kernel} {
  %1 = rocdl.workitem.id.x : i32
  llvm.store %1, %0 : i32, !llvm.ptr<1>
  llvm.return
} } }"""


def warm_up(contexts: Contexts, chip: str, announced: Callable[[], bool]) -> None:
    """Pays first-use costs of every step but linking (about 15 ms) while the front end is still at work.

    `announced` tells that a request has arrived: then these costs are left to the request itself.
    """
    if not announced():
        compile_request(Request("mlir", WARM_UP, chip, None, 2, "none", ("obj",)), contexts)
    contexts.prepare()
