"""`tileir-run`: runs a kernel on a device and compares with the interpreter."""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from tileir.ir.binding import written_views
from tileir.ir.core import Kernel
from tileir.ir.diagnostics import CompileError, Log
from tileir.records import dataclass
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
from tileir.tools.inputs import FILLS, Inputs, make_inputs, settings

if TYPE_CHECKING:
    from tileir.cache.compiling import Text
    from tileir.runtime import Device, Measurement
    from tileir.simulator import Statistics

Array = np.ndarray[Any, Any]

DESCRIPTION = """\
Runs a kernel of a .tile file: compiles it, launches the code object on a GPU of the target or, where there is none, on the
simulator (or interprets the IR), and with --verify compares the result with the reference interpreter. No GPU is needed."""

EPILOG = f"""\
examples:
  a GEMM on the simulated MI355X, checked:
    tileir-run gemm.tile -k gemm --target gfx950 --shape M=512,N=512,K=512 --verify
  with other tiles and wave counts, on inputs whose sums are exact (then every bit must agree):
    tileir-run gemm.tile --target gfx942 -D BM=128 -D BN=128 --shape M=300,N=129,K=100 --small --verify
  own data in, result out (sizes follow from the arrays):
    tileir-run gemm.tile --target gfx950 --arg A=a.npy --arg B=b.npy --shape N=64 --out C=c.npy
  how long it takes: measured on a GPU, estimated on the simulator:
    tileir-run gemm.tile --target gfx950 --shape M=1024,N=1024,K=1024 --bench
  only the meaning of the program, without compiling:
    tileir-run softmax.tile --device interpreter --shape M=4,N=1000 --arg X=iota

arguments: a view is a .npy file or one of {", ".join(FILLS)} (default random, N(0, 1)); a scalar is a number. What is random
depends on --seed and the argument's name alone.

exit status: 0 success, 1 a rejected file, a fault of the kernel or a mismatch, 2 wrong usage, 3 a fault of TileIR."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = Parser(prog="tileir-run", description=DESCRIPTION, epilog=EPILOG)
    p.add_argument("file", help="the .tile file; - is standard input")
    p.add_argument("-k", "--kernel", default="", metavar="NAME", help="which kernel (default: the only one)")
    p.add_argument("--target", default="", metavar="CHIP", help="compile for gfx942 or gfx950")
    p.add_argument(
        "--device",
        metavar="DEVICE",
        help="hip:N, simulator:CHIP or interpreter (default: a GPU of the target, else its simulator)",
    )
    p.add_argument(
        "-D", dest="define", action="append", default=[], metavar="NAME=VALUE", help="a compile-time parameter"
    )
    p.add_argument(
        "--schedule", default="", metavar="NAME", help="a schedule by name (default: the first that applies)"
    )
    p.add_argument("--shape", action="append", default=[], metavar="M=512,N=512", help="sizes of dimensions, strides")
    p.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="an argument; see below")
    p.add_argument("--npz", metavar="FILE", help="views by name from a .npz file")
    p.add_argument("--seed", type=int, default=0, help="of random inputs (default 0)")
    p.add_argument("--small", action="store_true", help="random floats are integers from -3 to 3")
    p.add_argument("--verify", action="store_true", help="compare with the interpreter; exit 1 if it differs")
    p.add_argument(
        "--check",
        default="",
        metavar="LIST",
        help="checks of the simulator: race, uninit, barrier, hazard (commas), or all; wait and bounds are always on",
    )
    p.add_argument("--bench", action="store_true", help="also say how long the kernel takes (simulator: an estimate)")
    p.add_argument("--cold", action="store_true", help="--bench with empty caches before each launch")
    p.add_argument("--out", action="append", default=[], metavar="C=c.npy", help="save a view after the run")
    p.add_argument("--stats", action="store_true", help="print registers, LDS, spills and compile times as JSON")
    p.add_argument("--remarks", action="store_true", help="show remarks of the passes")
    p.add_argument("--allow-spills", action="store_true", help="accept a kernel whose registers do not suffice")
    return p


@dataclass
class _Launched:
    """A kernel with its code, or with none for the interpreter."""

    kernel: Kernel
    target: str = ""
    hsaco: bytes = b""
    interface: Mapping[str, object] = field(default_factory=dict[str, object])
    block: tuple[int, int, int] = (64, 1, 1)
    stats: dict[str, object] = field(default_factory=dict[str, object])


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `tileir-run`; returns the exit status."""
    return run_tool("tileir-run", _main, argv)


def _main(argv: Sequence[str]) -> int:
    args = parser().parse_args(argv)
    device = _device_name(args)
    defined = parameters(args.define)
    text, name = read_text(args.file)
    from tileir.cache.compiling import Text

    source = Text(text, name, defined, args.kernel)
    if device != "interpreter":
        backend.start_early(source, args.target, schedule=args.schedule, allow_spills=args.allow_spills)
    log = Log()
    try:
        return _run(args, source, device, log)
    except CompileError as e:
        raise CompileError(e.diagnostics, {name: text, **e.sources}) from e
    finally:
        report(log.diagnostics, {name: text}, remarks=args.remarks)


def _device_name(args: argparse.Namespace) -> str:
    """The device, consistent with the target. Raises UsageError."""
    from tileir.runtime import devices

    known = {d.name: d for d in devices()}
    if args.device is None:
        gpu = next((d.name for d in known.values() if d.kind == "hip" and args.target in ("", d.chip)), None)
        if gpu is None and not args.target:
            raise UsageError("say --target gfx942 or gfx950 to compile and simulate, or --device interpreter")
        args.device = gpu or f"simulator:{args.target}"
    device: str = args.device
    if device not in known:
        raise UsageError(_unknown(device))
    kind, chip = known[device].kind, known[device].chip
    if chip and not args.target:
        args.target = chip
    if args.check:
        if kind != "simulator":
            which = "the interpreter" if kind == "interpreter" else device
            raise UsageError(f"--check is for the simulator; {which} makes no checks")
        _check_names(args.check)
    if args.bench and kind == "interpreter":
        raise UsageError("--bench needs a GPU or a simulator; the interpreter says nothing about time")
    if args.cold and not args.bench:
        raise UsageError("--cold is for --bench")
    if chip and args.target != chip:
        raise UsageError(f"--target {args.target} does not run on --device {device}")
    return device


def _unknown(device: str) -> str:
    """Why there is no such device."""
    from tileir.runtime import DeviceError, get_device

    try:
        get_device(device)
    except DeviceError as e:
        return str(e)
    return f"{device} cannot be used"


def _check_names(text: str) -> None:
    from tileir.simulator import SimulatorError
    from tileir.simulator.checks import parse

    try:
        parse(text)
    except SimulatorError as e:
        raise UsageError(f"--check {text}: {e}") from None


def _findings(device: Device) -> bool:
    """Prints what the checks of the last launch found; whether there was anything."""
    statistics: Statistics | None = getattr(device, "statistics", None)
    found = statistics.findings if statistics is not None else []
    for finding in found:
        print(f"tileir-run: {device.name}: {finding}", file=sys.stderr)
    return bool(found)


def _run(args: argparse.Namespace, source: Text, device_name: str, log: Log) -> int:
    from tileir.passes.manager import find_kernel
    from tileir.runtime import DeviceError, get_device, launch

    try:
        kernel = find_kernel(source.module(), args.kernel)
    finally:
        log.diagnostics += source.said.diagnostics
    inputs = make_inputs(kernel, args.shape, args.arg, args.npz, args.seed, small=args.small)
    outputs = _outputs(args, kernel)
    before = {k: _copy(v) for k, v in inputs.values.items()} if args.verify else {}
    compiled, compile_seconds = _compile(args, source, kernel, device_name, log)
    device = get_device(device_name, check=args.check)
    start = time.perf_counter()
    try:
        binding = launch(compiled, inputs.values, device, symbols=inputs.symbols)
    except DeviceError as e:
        for finding in getattr(e.__cause__, "findings", ()):
            print(f"tileir-run: {device_name}: {finding}", file=sys.stderr)
        print(f"tileir-run: {device_name}: {e}", file=sys.stderr)
        return EXIT_ERROR
    seconds = time.perf_counter() - start
    sizes = ", ".join(f"{k} = {v}" for k, v in binding.symbols.items())
    print(f"{kernel.name} on {device_name}, grid {' x '.join(map(str, binding.grid))}{', ' if sizes else ''}{sizes}")
    for remark in inputs.remarks:
        print(f"  note: {remark}")
    compiling = f"compile {compile_seconds:.3f} s, " if device_name != "interpreter" else ""
    print(f"  {compiling}run {seconds:.3f} s")
    ok = not _findings(device)
    if args.verify:
        ok = _verify(kernel, before, inputs) and ok
    for view, path in outputs.items():
        write_output(path, _npy(inputs.values[view]))
    if args.bench:
        print(f"  {_bench(args, compiled, inputs, device)}")
    if args.stats:
        print(json.dumps(compiled.stats, indent=2))
    return EXIT_OK if ok else EXIT_ERROR


def _bench(args: argparse.Namespace, compiled: Any, inputs: Inputs, device: Device) -> Measurement:
    """Raises UsageError for what cannot be measured."""
    from tileir.runtime import DeviceError, benchmark

    try:
        return benchmark(compiled, inputs.values, device, symbols=inputs.symbols, cold=args.cold)
    except DeviceError as e:
        raise UsageError(f"--bench: {e}") from None


def _outputs(args: argparse.Namespace, kernel: Kernel) -> dict[str, str]:
    outputs = settings(args.out, "--out")
    written = written_views(kernel)
    for view in outputs:
        if view not in written:
            raise UsageError(f"--out {view}: the kernel writes {', '.join(written) or 'nothing'}")
    return outputs


def _compile(args: argparse.Namespace, source: Text, kernel: Kernel, device: str, log: Log) -> tuple[_Launched, float]:
    if device == "interpreter":
        return _Launched(kernel), 0.0
    start = time.perf_counter()
    said = Log()
    try:
        compiled = backend.compile_source(
            source, args.target, log=said, schedule=args.schedule, allow_spills=args.allow_spills
        )
    finally:  # what the parser said has been in the log since it was parsed
        log.diagnostics += said.diagnostics[len(source.said.diagnostics) :]
    seconds = time.perf_counter() - start
    stats = backend.statistics(compiled)
    return _Launched(kernel, args.target, compiled.hsaco, compiled.interface, compiled.block, stats), seconds


def _copy(value: Any) -> Any:
    from tileir.tools.tolerance import clone

    return clone(value) if isinstance(value, np.ndarray) else value


def _verify(kernel: Kernel, before: dict[str, Any], inputs: Inputs) -> bool:
    """Prints a line per view that the kernel writes; whether all of them agree with the interpreter."""
    from tileir.interpreter import run
    from tileir.runtime import compare
    from tileir.tools.tolerance import bounds

    start = time.perf_counter()
    expected = {k: _copy(v) for k, v in before.items()}
    run(kernel, expected, symbols=inputs.symbols)
    reference = {name: expected[name] for name in written_views(kernel)}
    limits = bounds(kernel, before, inputs.symbols, reference)
    print(f"  reference {time.perf_counter() - start:.3f} s")
    ok = True
    for name, want in reference.items():
        result = compare(inputs.values[name], want, limits[name].values)
        ok = ok and result.ok
        print(f"  %{name}: {'ok' if result.ok else 'MISMATCH'}, {result}")
        print(f"    bound: {limits[name].text}")
    return ok


def _npy(array: Array) -> bytes:
    """A .npy file; types that NumPy does not know are saved as f32, which holds each of their values."""
    buffer = io.BytesIO()
    known = array.dtype.kind in "iub" or array.dtype in (np.float16, np.float32, np.float64)
    np.save(buffer, np.ascontiguousarray(array if known else array.astype(np.float32)))
    return buffer.getvalue()


if __name__ == "__main__":
    sys.exit(main())
