"""`tileir-bundle`: says what a bundle holds."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tileir.tools.common import EXIT_ERROR, EXIT_OK, Parser, UsageError, run_tool

DESCRIPTION = """\
Says what a bundle holds: the kernels, chips and parameters that tileir-opt --bundle has put into one file."""

EPILOG = """\
examples:
  what is in a file, and all that a launcher must know:
    tileir-bundle gemm.tileb
    tileir-bundle gemm.tileb --manifest
  take one code object out:
    tileir-bundle gemm.tileb --extract 0 -o gemm.hsaco
  compile a program in C that reads bundles:
    cc -I$(tileir-bundle --include) …

exit status: 0 success, 1 the file is no sound bundle, 2 wrong usage, 3 a fault of TileIR."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = Parser(prog="tileir-bundle", description=DESCRIPTION, epilog=EPILOG)
    p.add_argument("file", nargs="?", help="the bundle")
    p.add_argument("--manifest", action="store_true", help="print the manifest")
    p.add_argument("--extract", type=int, metavar="NUMBER", help="write the code object of a variant to -o")
    p.add_argument("-o", dest="output", metavar="OUT", help="output file (default: stdout)")
    p.add_argument("--include", action="store_true", help="print the directory of tileir_bundle.h and exit")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `tileir-bundle`; returns the exit status."""
    return run_tool("tileir-bundle", _main, argv)


def _main(argv: Sequence[str]) -> int:
    from tileir import bundle
    from tileir.bundle.container import unpack
    from tileir.bundle.manifest import check_readable, describe
    from tileir.tools.common import write_output

    args = parser().parse_args(argv)
    if args.include:
        print(Path(bundle.__file__).parent)
        return EXIT_OK
    if args.file is None:
        raise UsageError("give a bundle, or --include")
    if args.extract is None and args.output:
        raise UsageError("-o belongs to --extract")
    try:
        manifest, codes = unpack(Path(args.file).read_bytes())
        check_readable(manifest)
    except OSError as e:
        raise UsageError(f"cannot read '{args.file}': {e.strerror or e}") from None
    except bundle.BundleError as e:
        print(f"tileir-bundle: {args.file}: {e}", file=sys.stderr)
        return EXIT_ERROR
    if args.extract is not None:
        if not 0 <= args.extract < len(codes):
            raise UsageError(f"--extract {args.extract}: the bundle has variants 0 to {len(codes) - 1}")
        write_output(args.output, codes[args.extract])
    elif args.manifest:
        print(json.dumps(manifest, indent=2))
    else:
        for number, variant in enumerate(manifest["variants"]):
            print(f"{number}  {describe(variant)}, {variant['size']} bytes")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
