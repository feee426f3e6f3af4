"""`tileir-inspect`: a static report of a code object, whoever compiled it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tileir.tools.common import EXIT_ERROR, EXIT_OK, Parser, UsageError, run_tool, write_output

DESCRIPTION = """\
Reports what a code object for gfx942 or gfx950 needs and what its loops consist of: registers, LDS, scratch, spills,
occupancy, and per loop the instructions by class. It reads the bytes alone, so it works for any compiler's output."""

EPILOG = """\
figures:
  n            instructions that are no MFMA (waits, barriers and nops too) per 1024 MFMA clocks of one wave
  VALU/MFMA    issue clocks of VALU (4) and transcendental (8) instructions over those of MFMA
  hot loop     the innermost loop with MFMAs that has the most MFMA clocks, without any the longest; among
               equals the one with the fewest other instructions
  exposed      LDS reads with less MFMA work before the wait that completes them than an LDS access takes

examples:
  tileir-opt gemm.tile --target gfx950 -o gemm.hsaco
  tileir-inspect gemm.hsaco
  tileir-inspect gemm.hsaco --listing
  tileir-inspect gemm.hsaco --json - --html gemm.html

exit status: 0 success, 1 the file is no code object that can be read, 2 wrong usage, 3 a fault of TileIR."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = Parser(prog="tileir-inspect", description=DESCRIPTION, epilog=EPILOG)
    p.add_argument("file", help="a code object (.hsaco, or an unlinked object); - is standard input")
    p.add_argument("-k", "--kernel", metavar="NAME", help="only this kernel (default: all)")
    p.add_argument("--lds", type=_size, default=0, metavar="BYTES", help="LDS given at launch besides the static LDS")
    p.add_argument("--listing", action="store_true", help="print the code with its loops and source lines")
    p.add_argument("--json", metavar="FILE", help="write the report as JSON (- is standard output)")
    p.add_argument("--html", metavar="FILE", help="write the report and the coloured listing as one page")
    return p


def _size(text: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of bytes")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `tileir-inspect`; returns the exit status."""
    return run_tool("tileir-inspect", _main, argv)


def _main(argv: Sequence[str]) -> int:
    args = parser().parse_args(argv)
    from tileir.simulator.inspect import InspectError, as_html, as_json, as_listing, as_table, inspect

    name = "<stdin>" if args.file == "-" else args.file
    if [args.json, args.html].count("-") + args.listing > 1:
        raise UsageError("only one of --json -, --html - and --listing can go to standard output")
    try:
        data = sys.stdin.buffer.read() if args.file == "-" else Path(args.file).read_bytes()
    except OSError as e:
        raise UsageError(f"cannot read '{args.file}': {e.strerror or e}") from None
    try:
        report = inspect(data, args.kernel, dynamic_lds=args.lds)
    except InspectError as e:
        print(f"{_place(name, e)}: error: {e.message}", file=sys.stderr)
        return EXIT_ERROR
    if args.html:
        write_output(args.html, as_html(report, Path(name).name))
    if args.json:
        write_output(args.json, as_json(report))
    if args.listing:
        write_output(None, as_listing(report))
    elif "-" not in (args.json, args.html):
        write_output(None, as_table(report))
    return EXIT_OK


def _place(name: str, error: Exception) -> str:
    """`file:byte` with the address of the code, as far as they are known."""
    offset, address = getattr(error, "offset", None), getattr(error, "address", None)
    place = name if offset is None else f"{name}: byte {offset:#x}"
    return place if address is None else f"{place} (address {address:#x})"


if __name__ == "__main__":
    sys.exit(main())
