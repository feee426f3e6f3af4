"""`tileir-sim`: runs a kernel of any code object on the simulator, whoever compiled it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileir.tools.common import EXIT_ERROR, EXIT_OK, Parser, UsageError, run_tool, write_output

if TYPE_CHECKING:
    from tileir.codeobject import CodeObject, Kernel
    from tileir.simulator import Allocation, Module, SimulatorFault, Statistics, Timing
    from tileir.simulator.faults import Finding, Party
    from tileir.tools.sim_arguments import Buffer

DESCRIPTION = """\
Runs a kernel of a code object for gfx942 or gfx950 on the simulator. No GPU is needed, nor the compiler that made the file.
Missing waits, accesses outside of buffers, divergent barriers and illegal instructions stop the kernel with a message."""

EPILOG = """\
examples:
  what is in the file, and which arguments a kernel takes:
    tileir-sim k.hsaco --list
  a product whose result is kept:
    tileir-sim gemm.hsaco --grid 4,4 --block 256 --arg A=random:f16:512x512 --arg B=b.npy --arg C=zeros:f32:512x512 \\
        --arg M=512 --arg N=512 --arg K=512 --out C=c.npy
  a kernel whose metadata has no names: arguments by position, in the order of --list
    tileir-sim axpy.hsaco --grid 8 --block 256 --arg 0=random:f32:2048 --arg 1=zeros:f32:2048 --arg 2=1.5:f32 --arg 3=2048

arguments:
  pointers     random, zeros, ones, iota with :TYPE:SHAPE; FILE.npy, FILE.npy:TYPE; null.
               random floats are N(0, 1), random integers -8 to 7; they depend on --seed and the argument's name alone
  by value     7, 0x7 (integers), 1.5 (a float of the argument's size), 1:f32 (a type), FILE.npy (the bytes)
  types        f16 bf16 f32 f64 f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 i8 i16 i32 i64 u8 u16 u32 u64

exit status: 0 success, 1 a fault or finding of a check, or a file that cannot be run, 2 wrong usage, 3 a fault of TileIR."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = Parser(prog="tileir-sim", description=DESCRIPTION, epilog=EPILOG)
    p.add_argument("file", help="a linked code object (.hsaco); - is standard input")
    p.add_argument("-k", "--kernel", default="", metavar="NAME", help="which kernel (default: the only one)")
    p.add_argument("--list", action="store_true", help="print the kernels and their arguments, run nothing")
    p.add_argument("--grid", type=_sizes, metavar="X,Y,Z", help="workgroups (what is not given is 1)")
    p.add_argument(
        "--block", type=_sizes, metavar="X,Y,Z", help="work-items of a workgroup (default: what the kernel requires)"
    )
    p.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="an argument, by name or position")
    p.add_argument("--out", action="append", default=[], metavar="NAME=FILE.npy", help="save a buffer after the run")
    p.add_argument("--lds", type=_count, default=0, metavar="BYTES", help="LDS given at launch besides the static LDS")
    p.add_argument(
        "--stack",
        type=_count,
        metavar="BYTES",
        help="scratch per lane where calls are indirect or recurse (default 1024)",
    )
    p.add_argument(
        "--check",
        default="",
        metavar="LIST",
        help="also look for race, uninit, barrier, hazard (commas), or all; wait and bounds are always on",
    )
    p.add_argument(
        "--time",
        action="store_true",
        help="also estimate how long the launch takes on the hardware, and what it waits for",
    )
    p.add_argument(
        "--time-sample",
        action="store_true",
        help="estimate the time, and execute only the workgroups that this needs: results are not complete",
    )
    p.add_argument(
        "--trace",
        metavar="FILE.json",
        help="estimate the time, and write what each wave does as a trace for ui.perfetto.dev",
    )
    p.add_argument("--report", metavar="FILE.html", help="estimate the time, and write a page by line, loop and cause")
    p.add_argument("--product", default="", metavar="NAME", help="for --time: MI300X (default), MI325X, MI355X")
    p.add_argument("--max-instructions", type=_count, metavar="N", help="limit for one workgroup (default 100 million)")
    p.add_argument("--seed", type=_count, default=0, help="of random arguments (default 0)")
    p.add_argument("--json", metavar="FILE", help="write the summary as JSON (- is standard output)")
    return p


def _count(text: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no integer from 0 on")
    return value


def _sizes(text: str) -> tuple[int, int, int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not one to three positive integers such as 8,4,1")
    x, y, z = [*sizes, 1, 1][:3]
    return x, y, z


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `tileir-sim`; returns the exit status."""
    return run_tool("tileir-sim", _main, argv)


def _main(argv: Sequence[str]) -> int:
    args = parser().parse_args(argv)
    from tileir.codeobject import CodeObject, CodeObjectError

    name = "<stdin>" if args.file == "-" else args.file
    try:
        data = sys.stdin.buffer.read() if args.file == "-" else Path(args.file).read_bytes()
    except OSError as e:
        raise UsageError(f"cannot read '{args.file}': {e.strerror or e}") from None
    try:
        code = CodeObject.from_bytes(data)
        if args.list:
            write_output(None, _listing(code, args.kernel))
            return EXIT_OK
        kernel = code.kernel(_chosen(code, args.kernel))
    except CodeObjectError as e:
        print(f"{name}: error: {e}", file=sys.stderr)
        return EXIT_ERROR
    return _Run(args, name, data, code.chip, kernel).run()


def _chosen(code: CodeObject, wanted: str) -> str:
    """The kernel to run. Raises UsageError."""
    names = list(code.kernels)
    if not names:
        raise UsageError("the code object has no kernels")
    if wanted and wanted not in names:
        raise UsageError(f"there is no kernel '{wanted}'; the code object has {', '.join(names)}")
    if not wanted and len(names) > 1:
        raise UsageError(f"the code object has several kernels: choose with --kernel: {', '.join(names)}")
    return wanted or names[0]


def _listing(code: CodeObject, wanted: str) -> str:
    from tileir.tools.sim_arguments import describe

    if wanted:
        _chosen(code, wanted)
    lines = [code.chip]
    for kernel in code.kernels.values():
        if wanted not in ("", kernel.name):
            continue
        d, metadata = kernel.descriptor, kernel.metadata
        lines.append(f"\nkernel {kernel.name}")
        facts = f"{d.group_segment_fixed_size} bytes of LDS, {d.private_segment_fixed_size} bytes of scratch per lane"
        facts += " and a dynamic stack" if d.uses_dynamic_stack else ""
        if metadata:
            facts += f", at most {metadata.max_flat_workgroup_size} work-items"
            if metadata.reqd_workgroup_size:
                facts += f", block {','.join(map(str, metadata.reqd_workgroup_size))}"
        lines.append(f"  {facts}")
        if metadata is None:
            lines.append("  no metadata: its arguments are not known")
            continue
        lines += ["  " + describe(a, i) for i, a in enumerate(metadata.explicit_args)] or ["  no arguments"]
    return "\n".join(lines) + "\n"


class _Run:
    """One launch and what is told about it."""

    def __init__(self, args: argparse.Namespace, file: str, data: bytes, chip: str, kernel: Kernel) -> None:
        from tileir.simulator import SimulatorError
        from tileir.simulator.checks import parse
        from tileir.tools import sim_arguments

        self.args, self.file, self.data, self.chip, self.kernel = args, file, data, chip, kernel
        if kernel.metadata is None:
            raise UsageError(f"kernel '{kernel.name}' has no metadata, so its arguments are not known")
        if args.grid is None:
            raise UsageError("how many workgroups? --grid X,Y,Z")
        required = kernel.metadata.reqd_workgroup_size
        block = args.block or (required if len(required) == 3 else None)
        if block is None:
            most = kernel.metadata.max_flat_workgroup_size
            raise UsageError(f"how many work-items per workgroup? --block X,Y,Z; the kernel allows {most}")
        self.block: tuple[int, int, int] = block
        try:
            parse(args.check)
        except SimulatorError as e:
            raise UsageError(f"--check {args.check}: {e}") from None
        self.timed = bool(args.time or args.time_sample or args.trace or args.report)
        if self.timed and args.check:
            raise UsageError("--time and --check are two runs: give one of them")
        if args.product and not self.timed:
            raise UsageError("--product is for --time")
        self.timing: Timing | None = None
        self.arguments = kernel.metadata.explicit_args
        self.values = sim_arguments.values(args.arg, self.arguments, args.seed)
        self.outputs = sim_arguments.settings(args.out, self.arguments, "--out")
        for position in self.outputs:
            if not isinstance(self.values[position], sim_arguments.Buffer):
                what = sim_arguments.label(self.arguments[position], position)
                raise UsageError(f"--out {what}: this argument is not a buffer")

    def run(self) -> int:
        """Launches, saves, reports."""
        from tileir.simulator import Simulator, SimulatorError, SimulatorFault
        from tileir.tools.sim_arguments import Buffer, npy

        fault: SimulatorFault | None = None
        statistics: Statistics | None = None
        started = time.perf_counter()
        try:
            simulator = Simulator(self.chip)
            module = simulator.load(self.data)
            buffers: dict[int, tuple[Buffer, Allocation]] = {}
            values: list[bytes | Allocation] = []
            for position, value in enumerate(self.values):
                if isinstance(value, Buffer):
                    allocation = simulator.memory.allocate(value.given.nbytes, f"argument {value.label}")
                    allocation.write(value.given.tobytes())
                    buffers[position] = value, allocation
                    values.append(allocation)
                else:
                    values.append(value)
            module.program(self.kernel.name)
            translated = time.perf_counter()
            try:
                statistics = self._launch(module, values)
            except SimulatorFault as e:
                fault = e
            ended = time.perf_counter()
        except SimulatorError as e:
            print(f"{self.file}: error: {e}", file=sys.stderr)
            return EXIT_ERROR
        after = {
            i: allocation.bytes.view(b.given.dtype).reshape(b.given.shape) for i, (b, allocation) in buffers.items()
        }
        for position, path in self.outputs.items():
            write_output(path, npy(after[position]))
        summary = self._summary(module, statistics, fault, translated - started, ended - translated)
        summary["buffers"] = [_buffer(b, after[i]) for i, (b, _) in buffers.items()]
        if self.timing is not None:
            summary["timing"] = self.timing.json()
            self._write_forms(module, self.timing)
        if self.args.json:
            write_output(self.args.json, json.dumps(summary, indent=2) + "\n")
        if self.args.json != "-":
            write_output(None, _table(summary))
            if self.timing is not None:
                write_output(None, "\n" + self.timing.text())
        found = fault.findings if fault is not None else statistics.findings if statistics is not None else ()
        for finding in found:
            print(f"{self.file}: {finding}", file=sys.stderr)
        if fault is not None:
            print(f"{self.file}: fault: {fault}", file=sys.stderr)
        return EXIT_ERROR if found or fault is not None else EXIT_OK

    def _launch(self, module: Module, values: Sequence[bytes | Allocation]) -> Statistics:
        """Runs the kernel, with an estimate of its time when one is wanted."""
        limits = {"max_instructions": self.args.max_instructions, "stack": self.args.stack}
        given = {name: value for name, value in limits.items() if value is not None}
        where = (self.kernel.name, self.args.grid, self.block, values)
        if not self.timed:
            check = {"check": self.args.check} if self.args.check else {}
            return module.launch(*where, lds_dynamic=self.args.lds, **check, **given)
        from tileir.simulator import TimeOptions, estimate

        options = TimeOptions(product=self.args.product, sample_only=self.args.time_sample)
        self.timing = estimate(module, *where, options=options, lds_dynamic=self.args.lds, **given)
        return self.timing.statistics

    def _write_forms(self, module: Module, timing: Timing) -> None:
        """The trace and the page, where they are wanted."""
        from tileir.simulator.timing.html_report import as_html
        from tileir.simulator.timing.perfetto import trace_json

        program = module.program(self.kernel.name)
        places = [program.location(i) for i in range(len(program.instructions))]
        if self.args.trace:
            title = f"{self.kernel.name} on {self.chip}: one compute unit (estimated)"
            texts, lines = [p.disassembly for p in places], [p.source for p in places]
            write_output(self.args.trace, trace_json(timing.cu, texts, lines, title=title, notes=timing.notes))
        if self.args.report:
            listing = [(p.pc, p.disassembly, p.source) for p in places]
            write_output(self.args.report, as_html(timing, listing, Path(self.file).name))

    def _summary(
        self,
        module: Module,
        statistics: Statistics | None,
        fault: SimulatorFault | None,
        translation: float,
        execution: float,
    ) -> dict[str, Any]:
        summary: dict[str, Any] = {
            "file": self.file,
            "chip": self.chip,
            "kernel": self.kernel.name,
            "grid": list(self.args.grid),
            "block": list(self.block),
            "host_seconds": {"translate": round(translation, 6), "execute": round(execution, 6)},
            "fault": None if fault is None else _fault(fault),
        }
        if statistics is not None:
            by_class, by_name = _mix(module, self.kernel.name, statistics)
            summary |= {
                "workgroups": statistics.workgroups,
                "waves": statistics.waves,
                "instructions": statistics.instructions,
                "by_class": by_class,
                "by_opcode": by_name,
            }
        findings = fault.findings if fault is not None else statistics.findings if statistics is not None else ()
        summary["findings"] = [_finding(f) for f in findings]
        return summary


def _mix(module: Module, kernel: str, statistics: Statistics) -> tuple[dict[str, int], dict[str, int]]:
    """Executed instructions by class and by mnemonic, most frequent mnemonics first."""
    from tileir.simulator.inspect.classify import CLASSES, classify

    program = module.program(kernel)
    at = dict(zip(program.addresses, program.instructions, strict=True))
    classes: Counter[str] = Counter()
    names: Counter[str] = Counter()
    for address, times in statistics.executions.items():
        inst = at[address]
        assert inst is not None  # what cannot be decoded faults
        to_lds = bool(inst.modifiers.get("lds")) or "_load_lds_" in inst.name
        classes[classify(inst.name, inst.encoding, to_lds)] += times
        names[inst.name] += times
    ordered = sorted(names.items(), key=lambda item: (-item[1], item[0]))
    return {c: classes[c] for c in CLASSES if classes[c]}, dict(ordered)


def _fault(fault: SimulatorFault) -> dict[str, Any]:
    return {
        "kind": fault.kind,
        "message": fault.message,
        "workgroup": list(fault.workgroup),
        "wave": fault.wave,
        "lanes": list(fault.lanes),
        "pc": fault.pc,
        "disassembly": fault.disassembly,
        "source": fault.source,
        "notes": list(fault.notes),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    other = finding.other
    return {
        "kind": finding.kind,
        "message": finding.message,
        **_party(finding.party),
        "other": None if other is None else _party(other),
        "notes": list(finding.notes),
        "text": str(finding),
    }


def _party(party: Party) -> dict[str, Any]:
    return {
        "workgroup": list(party.workgroup),
        "wave": party.wave,
        "lanes": list(party.lanes),
        "pc": party.location.pc,
        "disassembly": party.location.disassembly,
        "source": party.location.source,
    }


def _buffer(buffer: Buffer, after: Any) -> dict[str, Any]:
    """What became of a buffer. Elements count as changed when their bytes are."""
    import numpy as np

    size = buffer.given.dtype.itemsize
    before = np.ascontiguousarray(buffer.given).reshape(-1).view(np.uint8).reshape(-1, size)
    changed = int((before != after.reshape(-1).view(np.uint8).reshape(-1, size)).any(1).sum())
    nans = 0 if buffer.dtype[0] in "iu" else int(np.isnan(after.astype(np.float64)).sum())
    return {"name": buffer.label, "type": buffer.type, "elements": int(after.size), "changed": changed, "nan": nans}


def _table(summary: dict[str, Any]) -> str:
    grid, block = ("x".join(map(str, summary[key])) for key in ("grid", "block"))
    lines = [f"{summary['kernel']} on {summary['chip']}: grid {grid}, block {block}"]
    seconds = summary["host_seconds"]
    if summary["fault"] is None:
        total, execute = summary["instructions"], seconds["execute"]
        rate = f", {total / execute / 1e6:.1f} million instructions per second" if execute > 0 else ""
        lines.append(f"{summary['workgroups']} workgroups, {summary['waves']} waves, {total} instructions")
        lines.append(f"host time: {seconds['translate']:.3f} s to load and translate, {execute:.3f} s to execute{rate}")
        lines.append("")
        for name, times in summary["by_class"].items():
            lines.append(f"  {name:<20} {times:>14}  {100 * times / total:5.1f} %")
    else:
        lines.append("stopped by a fault")
    if summary["buffers"]:
        lines.append("")
    for b in summary["buffers"]:
        nan = f", {b['nan']} NaN" if b["nan"] else ""
        lines.append(f"  {b['name']}: {b['type']}, {b['changed']} of {b['elements']} elements changed{nan}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
