"""`tileir-opt`: compiles a `.tile` file, whole or part of the way."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileir.ir.diagnostics import CompileError, Diagnostic, Log, catalogue
from tileir.tools import backend
from tileir.tools.common import (
    EXIT_ERROR,
    EXIT_OK,
    Parser,
    UsageError,
    parameters,
    read_text,
    report,
    run_tool,
    write_output,
)

if TYPE_CHECKING:
    from tileir.cache.outcome import Outcome
    from tileir.ir.core import Kernel, Module
    from tileir.passes.manager import Result

LATER_STAGES = ("mlir", "llvm", "asm")
SUFFIXES = {".tile": "tile", ".mlir": "mlir", ".ll": "llvm", ".s": "asm", ".o": "obj", ".json": "stats"}

DESCRIPTION = """\
Compiles a .tile file to an AMD code object, or stops on the way and prints what it has. Every stage is text that can be
edited and resumed."""

EPILOG = """\
examples:
  the code object of a kernel for MI355X, and its registers, spills and times:
    tileir-opt gemm.tile --target gfx950 -o gemm.hsaco
    tileir-opt gemm.tile --target gfx950 --emit stats
  with other tile sizes and element type:
    tileir-opt gemm.tile --target gfx942 -D BM=128 -D T=f16 --emit asm
  put the spaces of a file in order:
    tileir-opt gemm.tile --format -o gemm.tile
  with the tile sizes that suit some sizes of the problem:
    tileir-opt gemm.tile --target gfx950 --shape M=16,N=4096,K=4096 -o skinny.hsaco
  look at the IR after one pass, after all, or only check a file and print its canonical form:
    tileir-opt gemm.tile --target gfx950 --stop-after assign-layouts
    tileir-opt gemm.tile --target gfx950 --print-after-all --emit tile
    tileir-opt gemm.tile --stop-after parse
  stop, edit, resume:
    tileir-opt gemm.tile --target gfx950 --stop-after place-memory -o staged.tile
    tileir-opt staged.tile --start-from assign-layouts -o gemm.hsaco
    tileir-opt gemm.tile --target gfx950 -o gemm.s
    tileir-opt gemm.s --target gfx950 --start-from asm -o gemm.hsaco
  code objects for two chips and two tile sizes in one file (docs/bundles.md):
    tileir-opt gemm.tile --bundle gemm.tileb --target gfx942 --target gfx950 --set BM=128,BN=128 --set BM=64,BN=64
  find the pass that breaks a kernel (runs the interpreter before and after each):
    tileir-opt gemm.tile --target gfx950 --verify-each run --emit tile

exit status: 0 success, 1 the file was rejected (messages on standard error), 2 wrong usage, 3 a fault of TileIR."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = Parser(prog="tileir-opt", description=DESCRIPTION, epilog=EPILOG)
    p.add_argument("file", nargs="?", help="the input; - is standard input")
    p.add_argument("-k", "--kernel", default="", metavar="NAME", help="which kernel (default: the only one)")
    p.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="CHIP",
        help="gfx942 or gfx950 (default: what the text is bound to); several times for --bundle",
    )
    p.add_argument(
        "-D", dest="define", action="append", default=[], metavar="NAME=VALUE", help="a compile-time parameter"
    )
    p.add_argument(
        "--schedule", default="", metavar="NAME", help="a schedule by name (default: the first that applies)"
    )
    p.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="M=512,N=512",
        help="choose tile sizes that -D leaves open for these sizes, by a quick model (docs/tuning.md); the kernel takes any sizes",
    )
    p.add_argument(
        "--emit",
        choices=("tile", *LATER_STAGES, "obj", "hsaco", "stats"),
        help="what to write (default: tile when stopping after a pass or without -o, else what the suffix of OUT says: "
        ".tile .mlir .ll .s .o .json (stats) .hsaco)",
    )
    p.add_argument(
        "-o", dest="output", metavar="OUT", help="output file, written whole or not at all (default: stdout)"
    )
    p.add_argument(
        "--bundle",
        metavar="OUT",
        help="write one file with code objects for every --target and every --set, of the kernel that -k names or all",
    )
    p.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="NAME=VALUE,…",
        help="with --bundle: one set of compile-time parameters, besides those of -D; several times, the preferred one first",
    )
    p.add_argument(
        "--format",
        action="store_true",
        help="instead of compiling, put spaces, indentation and line ends in order; comments stay",
    )
    where = p.add_argument_group("stages")
    where.add_argument(
        "--explain", metavar="CODE", help="say what a diagnostic such as E0311 means, and exit; 'all' lists every code"
    )
    where.add_argument("--list-passes", action="store_true", help="list the passes in order and exit")
    where.add_argument("--stop-after", metavar="PASS", help="run no further than this pass; 'parse' runs none")
    where.add_argument(
        "--start-from",
        metavar="STAGE",
        help="the input is the text before this pass, or of a later stage: mlir, llvm, asm",
    )
    where.add_argument(
        "--print-after", action="append", default=[], metavar="PASS", help="print the IR after it (stderr)"
    )
    where.add_argument("--print-after-all", action="store_true", help="print the IR after every pass (stderr)")
    where.add_argument("--locations", action="store_true", help="printed IR carries loc(…) trailers")
    check = p.add_argument_group("checks")
    check.add_argument(
        "--verify-each",
        nargs="?",
        const="verify",
        default="off",
        choices=("verify", "run"),
        help="verify the IR after each pass; 'run' also interprets it before and after on small inputs",
    )
    check.add_argument(
        "--verify-diagnostics", action="store_true", help="check messages against '// error: …' comments of the input"
    )
    check.add_argument(
        "--explain-lds",
        nargs="?",
        const="short",
        choices=("short", "full"),
        metavar="full",
        help="instead of code, say how every LDS buffer lies in the banks and what each access costs; '=full' prints the "
        "proofs: the enumeration over lane groups and the rank argument",
    )
    check.add_argument(
        "--explain-layouts",
        action="store_true",
        help="instead of code, list the ways to map every matrix product onto waves and instructions, with estimated clocks",
    )
    check.add_argument(
        "--print-lifetimes",
        action="store_true",
        help="instead of code, print the final text with the registers in use beside it, and what they hold where most are",
    )
    check.add_argument(
        "--lifetimes-html", metavar="FILE", help="the same as a chart over the program order, as one page"
    )
    check.add_argument(
        "--print-schedule",
        action="store_true",
        help="instead of code, print for every loop what a wave does in which order: clocks, LDS bytes, what is under way",
    )
    check.add_argument("--schedule-json", metavar="FILE", help="the same as data (- is standard output)")
    check.add_argument("--remarks", action="store_true", help="show remarks of the passes")
    code = p.add_argument_group("code generation")
    code.add_argument("--code-object-version", type=int, choices=(5, 6), default=5)
    code.add_argument("--allow-spills", action="store_true", help="accept a kernel whose registers do not suffice")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `tileir-opt`; returns the exit status."""
    return run_tool("tileir-opt", _main, argv)


def _main(argv: Sequence[str]) -> int:
    args = parser().parse_args(argv)
    if args.list_passes:
        from tileir.passes.manager import step_names

        print("\n".join(step_names()))
        return EXIT_OK
    if args.explain:
        print(_meaning(args.explain))
        return EXIT_OK
    if args.file is None:
        raise UsageError("give a file to compile, or - for standard input")
    _check(args)
    text, name = read_text(args.file)
    if args.format:
        from tileir.frontend.formatter import format_text

        write_output(args.output, format_text(text, name))
        return EXIT_OK
    log = Log()
    if args.shape:
        _choose(args, text, name)
    if args.bundle:
        return _bundle(args, text, name, log)
    if args.verify_diagnostics:
        return _verify_diagnostics(args, text, name, log)
    try:
        data = _compile(args, text, name, log)
    except CompileError as e:
        report(log.diagnostics, e.sources or {name: text}, remarks=args.remarks)
        raise
    report(log.diagnostics, {name: text}, remarks=args.remarks)
    write_output(args.output, data)
    return EXIT_OK


def _choose(args: argparse.Namespace, text: str, name: str) -> None:
    """Sets parameters that are left open to what suits the sizes, and says so."""
    from tileir.tools.inputs import settings
    from tileir.tuning import choose

    given = settings(args.shape, "--shape")
    if not all(v.isdecimal() and int(v) for v in given.values()):
        raise UsageError(f"--shape {','.join(args.shape)}: a size is an integer from 1 on")
    shape = {n: int(v) for n, v in given.items()}
    choice = choose(text, args.target, shape, kernel=args.kernel, params=args.parameters, filename=name)
    for n, value in choice.params.items():
        args.parameters[n] = str(value)
        print(f"{name}: chosen for these sizes: -D {n}={value}", file=sys.stderr)


def _bundle(args: argparse.Namespace, text: str, name: str, log: Log) -> int:
    from tileir.tools.bundling import compile_bundle

    try:
        data = compile_bundle(args, text, name, log)
    except CompileError as e:
        report(log.diagnostics, e.sources or {name: text}, remarks=args.remarks)
        raise
    report(log.diagnostics, {name: text}, remarks=args.remarks)
    write_output(args.bundle, data)
    return EXIT_OK


def _meaning(code: str) -> str:
    """What `--explain` prints."""
    known = catalogue()
    if code == "all":
        return "\n".join(f"{c}  {text}" for c, text in known.items())
    wanted = code.upper()
    if wanted not in known:
        near = [c for c in known if c[:3] == wanted[:3]] or list(known)
        raise UsageError(f"there is no diagnostic '{code}'; codes near it: {', '.join(near[:12])}")
    return f"{wanted}  {known[wanted]}"


def _check(args: argparse.Namespace) -> None:
    """Settles what to emit and rejects options that contradict each other."""
    targets: list[str] = args.target
    if args.bundle:
        _check_bundle(args)
    elif args.sets:
        raise UsageError("--set is for --bundle; -D sets a parameter otherwise")
    elif len(targets) > 1:
        raise UsageError(f"one --target, not {len(targets)}; --bundle OUT compiles for several")
    args.targets, args.target = targets, "".join(targets[:1])
    if args.format and (
        args.emit or args.stop_after or args.start_from or args.explain_lds or args.explain_layouts or args.define
    ):
        raise UsageError("--format only formats: leave the options of compilation away")
    if args.shape and (args.bundle or args.format or args.start_from):
        raise UsageError(
            "--shape chooses parameters of a text from its beginning; leave --bundle, --format, --start-from away"
        )
    if args.explain_layouts and (args.emit or args.stop_after or args.explain_lds or args.start_from in LATER_STAGES):
        raise UsageError(
            "--explain-layouts reports on what assign-layouts chooses; leave other outputs and stages away"
        )
    if args.explain_lds and (args.emit or args.stop_after or args.start_from in LATER_STAGES):
        raise UsageError("--explain-lds reports on the final tile IR; leave --emit, --stop-after and later stages away")
    args.lifetimes = args.print_lifetimes or args.lifetimes_html
    args.schedules = args.print_schedule or args.schedule_json
    for what, wanted in (("lifetimes", args.lifetimes), ("schedules", args.schedules)):
        others = args.emit or args.stop_after or args.explain_lds or args.explain_layouts
        if wanted and (others or args.start_from in LATER_STAGES or (args.lifetimes and args.schedules)):
            raise UsageError(f"{what} are those of the final tile IR; leave other outputs and stages away")
    if args.emit is None:
        by_name = SUFFIXES.get(Path(args.output or "").suffix, "hsaco")
        args.emit = "tile" if args.stop_after or args.output in (None, "-") else by_name
    if args.start_from in LATER_STAGES and args.emit == "tile":
        args.emit = "stats" if args.output in (None, "-") else "hsaco"
    if args.stop_after and args.emit != "tile":
        raise UsageError(f"--stop-after {args.stop_after} leaves tile IR; --emit {args.emit} needs the whole way")
    if args.stop_after == "parse" and args.start_from:
        raise UsageError("--stop-after parse runs no pass, so --start-from has no meaning")
    if args.start_from in LATER_STAGES:
        if not args.target:
            raise UsageError(
                f"--start-from {args.start_from} needs --target: the text does not say for which chip it is"
            )
        if args.define or args.schedule or args.kernel:
            raise UsageError("-D, -k and --schedule belong to tile IR; edit the text instead")
        order = (*LATER_STAGES, "obj", "hsaco", "stats")
        if order.index(args.emit) < order.index(args.start_from):
            raise UsageError(f"--emit {args.emit} comes before --start-from {args.start_from}")
    for wanted in args.print_after:
        from tileir.passes.manager import step_names

        labels = step_names()
        if wanted not in labels:
            raise UsageError(f"--print-after: there is no pass '{wanted}'; passes: {', '.join(labels)}")
    args.parameters = parameters(args.define)


def _check_bundle(args: argparse.Namespace) -> None:
    """A bundle is compiled from the text, whole, and nothing else is written."""
    others = {
        "-o": args.output,
        "--emit": args.emit,
        "--format": args.format,
        "--stop-after": args.stop_after,
        "--start-from": args.start_from,
        "--print-after": args.print_after or args.print_after_all,
        "--verify-each": args.verify_each != "off",
        "--verify-diagnostics": args.verify_diagnostics,
        "--explain-lds": args.explain_lds,
        "--explain-layouts": args.explain_layouts,
        "--print-lifetimes": args.print_lifetimes,
        "--lifetimes-html": args.lifetimes_html,
        "--print-schedule": args.print_schedule,
        "--schedule-json": args.schedule_json,
    }
    given = [name for name, value in others.items() if value]
    if given:
        raise UsageError(f"--bundle writes code objects to its file; leave {', '.join(given)} away")
    if not args.target:
        raise UsageError("--bundle needs at least one --target")
    twice = [t for i, t in enumerate(args.target) if t in args.target[:i]]
    if twice:
        raise UsageError(f"--target {twice[0]} is given twice")


def _compile(args: argparse.Namespace, text: str, name: str, log: Log) -> str | bytes:
    """What is to be written."""
    if args.start_from in LATER_STAGES:
        compiled = backend.resume_text(
            args.start_from,
            text,
            args.target,
            log=log,
            file=name,
            emit=_stages(args),
            code_object_version=args.code_object_version,
            allow_spills=args.allow_spills,
        )
        return _result(compiled, args)
    from tileir.cache.compiling import Text

    source = Text(text, name, args.parameters, args.kernel)
    if args.emit == "tile" or args.explain_lds or args.explain_layouts or args.lifetimes or args.schedules:
        try:
            module = source.module()
        finally:
            log.diagnostics += source.said.diagnostics
        return _without_code(args, module, log)
    compiled = backend.compile_source(
        source,
        args.target,
        log=log,
        emit=_stages(args),
        schedule=args.schedule,
        start_from=args.start_from,
        verify_each=args.verify_each,
        print_after=_printer(args),
        code_object_version=args.code_object_version,
        allow_spills=args.allow_spills,
    )
    return _result(compiled, args)


def _without_code(args: argparse.Namespace, module: Module, log: Log) -> str:
    """What is printed of the IR alone."""
    from tileir.ir.printer import print_module

    if args.stop_after == "parse":
        return print_module(module, locations=args.locations)
    if args.explain_lds:
        return _explanation(args, module, log)
    if args.explain_layouts:
        return _mappings(args, module, log)
    if args.lifetimes:
        return _lifetimes(args, module, log)
    if args.schedules:
        return _schedules(args, module, log)
    return _passes(args, module, log)


def _stages(args: argparse.Namespace) -> tuple[str, ...]:
    return () if args.emit in ("hsaco", "stats") else (args.emit,)


def _passes(args: argparse.Namespace, module: Module, log: Log) -> str:
    """The kernel asked for, or all of them, after the passes."""
    from tileir.ir.core import Module
    from tileir.ir.printer import print_module

    return print_module(Module([r.kernel for r in _results(args, module, log)]), locations=args.locations)


def _explanation(args: argparse.Namespace, module: Module, log: Log) -> str:
    """What `--explain-lds` prints."""
    from tileir.passes.explain_lds import explain

    found = [explain(r.kernel, r.context.target, full=args.explain_lds == "full") for r in _results(args, module, log)]
    return "\n".join(found)


def _mappings(args: argparse.Namespace, module: Module, log: Log) -> str:
    """What `--explain-layouts` prints."""
    from tileir.passes.explain_layouts import explain

    args.stop_after = "place-memory"
    return "\n".join(explain(r.kernel, r.context.target) for r in _results(args, module, log))


def _lifetimes(args: argparse.Namespace, module: Module, log: Log) -> str:
    """What `--print-lifetimes` prints; writes the page of `--lifetimes-html`."""
    from tileir.tools import lifetimes_view

    found = lifetimes_view.of(_results(args, module, log), module.sources)
    if args.lifetimes_html:
        write_output(args.lifetimes_html, lifetimes_view.page(found))
    return "\n".join(lifetimes_view.text(f) for f in found) if args.print_lifetimes else ""


def _schedules(args: argparse.Namespace, module: Module, log: Log) -> str:
    """What `--print-schedule` prints; writes the data of `--schedule-json`."""
    from tileir.tools import schedule_view

    found = schedule_view.of(_results(args, module, log))
    if args.schedule_json:
        write_output(args.schedule_json, schedule_view.as_json(found))
    return "\n".join(schedule_view.text(s) for s in found) if args.print_schedule else ""


def _results(args: argparse.Namespace, module: Module, log: Log) -> list[Result]:
    from tileir.passes.manager import run_pipeline

    names = [args.kernel] if args.kernel or len(module.kernels) < 2 else [k.name for k in module.kernels]
    return [
        run_pipeline(
            module,
            name,
            args.target,
            schedule=args.schedule,
            stop_after=args.stop_after,
            start_from=args.start_from,
            print_after=_printer(args),
            verify_each=args.verify_each,
            log=log,
        )
        for name in names
    ]


def _printer(args: argparse.Namespace) -> Any:
    """What shows the IR after passes; None if nobody wants to see it."""
    if not args.print_after_all and not args.print_after:
        return None
    from tileir.ir.printer import print_kernel
    from tileir.passes.manager import step_names

    wanted = set(step_names()) if args.print_after_all else set(args.print_after)

    def show(label: str, kernel: Kernel) -> None:
        if label in wanted:
            print(f"// ---- after {label}", file=sys.stderr)
            print(print_kernel(kernel, locations=args.locations), file=sys.stderr)

    return show


def _result(compiled: Outcome, args: argparse.Namespace) -> str | bytes:
    if args.emit == "stats":
        return json.dumps(backend.statistics(compiled), indent=2) + "\n"
    if args.emit == "hsaco":
        return compiled.hsaco
    if args.emit == "obj":
        assert compiled.obj is not None
        return compiled.obj
    return compiled.texts[args.emit]


def _verify_diagnostics(args: argparse.Namespace, text: str, name: str, log: Log) -> int:
    found: list[Diagnostic] = []
    try:
        _compile(args, text, name, log)
    except CompileError as e:
        found += e.diagnostics
    from tileir.tools.expectations import mismatches

    problems = mismatches(text, name, [*log.diagnostics, *found])
    for line in problems:
        print(line, file=sys.stderr)
    return EXIT_ERROR if problems else EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
