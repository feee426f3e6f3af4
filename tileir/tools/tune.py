"""`tileir-tune`: searches for the tile sizes and the schedule of a kernel that take the least time, by the simulator's model."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tileir.tools.common import (
    EXIT_OK,
    Parser,
    UsageError,
    parameters,
    read_text,
    run_tool,
    write_output,
)
from tileir.tools.inputs import settings

if TYPE_CHECKING:
    from tileir.tuning import Trial

DESCRIPTION = """\
Searches for the tile sizes and the schedule with which a kernel of a .tile file takes the least time for given sizes. A quick
model ranks all candidates; the best are compiled and timed on the simulator. All times are estimates; no GPU is needed."""

EPILOG = """\
examples:
  what is best for these sizes on MI355X, and the file with it:
    tileir-tune gemm.tile --target gfx950 --shape M=4096,N=4096,K=4096
    tileir-tune gemm.tile --target gfx950 --shape M=4096,N=4096,K=4096 -o tuned.tile
    tileir-run tuned.tile --target gfx950 --shape M=4096,N=4096,K=4096 --bench
  only some tile sizes, one fixed, and another element type; more candidates:
    tileir-tune gemm.tile --target gfx942 --shape M=16,N=4096,K=4096 -D BM=16 -D BN=32,64,128 -D T=f16 --trials 40
  the tile sizes that the quick model chooses, without compiling:
    tileir-tune gemm.tile --target gfx950 --shape M=16,N=4096,K=4096 --quick
  two kernels of one file that are alternatives, each tuned, the faster first:
    tileir-tune products.tile --target gfx950 -k gemm -k gemm_split_k --shape M=16,N=4096,K=4096
  on a cluster (needs the package 'distributed'; TileIR must be installed on its workers):
    tileir-tune gemm.tile --target gfx950 --shape M=4096,N=4096,K=4096 --trials 200 --executor dask:tcp://10.0.0.1:8786

exit status: 0 success, 1 the file was rejected or no candidate can be used, 2 wrong usage, 3 a fault of TileIR."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = Parser(prog="tileir-tune", description=DESCRIPTION, epilog=EPILOG)
    p.add_argument("file", help="the .tile file; - is standard input")
    p.add_argument(
        "-k",
        "--kernel",
        action="append",
        default=[],
        metavar="NAME",
        help="which kernel (default: the only one); several are alternatives for one problem, which are ranked",
    )
    p.add_argument("--target", required=True, metavar="CHIP", help="gfx942 or gfx950")
    p.add_argument("--product", default="", metavar="NAME", help="MI300X (default), MI325X, MI355X")
    p.add_argument("--shape", action="append", default=[], metavar="M=512,N=512", help="sizes of dimensions, strides")
    p.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="an argument, as for tileir-run")
    p.add_argument("--seed", type=int, default=0, help="of random inputs (default 0)")
    p.add_argument(
        "-D",
        dest="define",
        action="append",
        default=[],
        metavar="NAME=VALUE[,VALUE…]",
        help="a compile-time parameter: one value fixes it, several are the ones to try",
    )
    search = p.add_argument_group("search")
    search.add_argument("--trials", type=_positive, default=12, metavar="N", help="candidates to compile (default 12)")
    search.add_argument("--quick", action="store_true", help="compile nothing: say what the quick model chooses")
    search.add_argument(
        "--jobs", type=_positive, metavar="N", help="how many at a time (default: one for each processor)"
    )
    search.add_argument(
        "--executor", default="processes", metavar="KIND", help="processes (default), threads or dask:ADDRESS"
    )
    search.add_argument("--quiet", action="store_true", help="no progress on standard error")
    out = p.add_argument_group("output")
    out.add_argument("-o", dest="output", metavar="OUT", help="write the file with the schedule and the parameters")
    out.add_argument("--in-place", action="store_true", help="write them into FILE")
    out.add_argument(
        "--keep-defaults", action="store_true", help="leave the defaults of the parameters in the written file"
    )
    out.add_argument("--json", metavar="FILE", help="write everything that was tried as JSON (- is standard output)")
    return p


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no integer from 1 on")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `tileir-tune`; returns the exit status."""
    return run_tool("tileir-tune", _main, argv)


def _main(argv: Sequence[str]) -> int:
    args = parser().parse_args(argv)
    _check(args)
    text, name = read_text(args.file)
    given = {n: _value(v) for n, v in parameters(args.define).items()}
    shape = _shape(args.shape)
    if args.quick:
        return _quick(args, text, name, shape, given)
    from tileir.tuning import Compared, compare, tune
    from tileir.tuning.executors import UnknownExecutor, default_jobs, executor_of

    try:
        with executor_of(args.executor, args.jobs or default_jobs()) as executor:
            several = len(args.kernel) > 1
            search = partial(compare, kernels=args.kernel) if several else partial(tune, kernel="".join(args.kernel))
            found = search(
                text,
                args.target,
                shape,
                params=given,
                arguments=args.arg,
                seed=args.seed,
                product=args.product,
                trials=args.trials,
                executor=executor,
                progress=None if args.quiet else _progress(),
                keep_defaults=args.keep_defaults,
                filename=name,
            )
    except UnknownExecutor as e:
        raise UsageError(f"--executor {args.executor}: {e}") from None
    if args.json:
        write_output(args.json, json.dumps(found.json(), indent=2) + "\n")
    if args.json != "-" and args.output != "-":
        write_output(None, found.table())
        best = found.best if isinstance(found, Compared) else found
        if best.schedule and not (args.output or args.in_place):
            write_output(None, f"\n{best.schedule}")
    if args.output or args.in_place:
        write_output(args.file if args.in_place else args.output, found.text)
    return EXIT_OK


def _check(args: argparse.Namespace) -> None:
    if args.in_place and args.output:
        raise UsageError("-o and --in-place: the result goes to one file")
    if args.in_place and args.file == "-":
        raise UsageError("--in-place: standard input cannot be written; -o OUT")
    if [args.json, args.output].count("-") > 1:
        raise UsageError("only one of --json - and -o - can go to standard output")
    if args.keep_defaults and not (args.output or args.in_place):
        raise UsageError("--keep-defaults is about the written file: -o OUT or --in-place")
    if len(set(args.kernel)) < len(args.kernel):
        raise UsageError("--kernel names a kernel twice")
    if args.quick and len(args.kernel) > 1:
        raise UsageError("--quick is about one kernel")
    if args.quick and (args.output or args.in_place or args.json):
        raise UsageError("--quick only says what it would choose; leave -o, --in-place and --json away")
    settings(args.arg, "--arg")
    for option, path in (("-o", args.output), ("--json", args.json)):  # a search takes minutes: not found out behind it
        if path not in (None, "-") and not Path(path).parent.is_dir():
            raise UsageError(f"{option} {path}: there is no directory '{Path(path).parent}'")
    if args.product:
        from tileir.target import UnknownTarget, get

        try:
            products = [p.name for p in get(args.target).products]
        except UnknownTarget:
            return  # said later, at the kernel
        if args.product not in products:
            raise UsageError(f"--product {args.product}: {args.target} is on {', '.join(products)}")


def _shape(texts: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in settings(texts, "--shape").items():
        try:
            found[name] = int(value)
        except ValueError:
            raise UsageError(f"--shape {name}={value}: a size is an integer") from None
        if found[name] < 1:
            raise UsageError(f"--shape {name}={value}: a size is at least 1")
    return found


def _value(text: str) -> str | tuple[str, ...]:
    """One value of a parameter, or several."""
    parts = tuple(p.strip() for p in text.split(","))
    return parts if len(parts) > 1 else text


def _quick(
    args: argparse.Namespace, text: str, name: str, shape: dict[str, int], given: dict[str, str | tuple[str, ...]]
) -> int:
    from tileir.tuning import choose

    choice = choose(text, args.target, shape, kernel="".join(args.kernel), params=given, filename=name)
    lines = [f"-D {n}={v}" for n, v in choice.params.items()] or ["the defaults of the file"]
    gain = choice.default_clocks / choice.model_clocks if choice.model_clocks else 1.0
    lines.append(f"by the quick model {choice.model_clocks:.0f} clocks, {gain:.2f} times as fast as the defaults")
    lines += [f"note: {n}" for n in choice.notes]
    write_output(None, "\n".join(lines) + "\n")
    return EXIT_OK


def _progress() -> Callable[[int, int, Trial], None]:
    def show(done: int, total: int, trial: Trial) -> None:
        seconds = trial.result.estimated_seconds
        said = f"estimated {seconds * 1e6:.2f} µs" if trial.result.usable else trial.code
        print(f"[{done}/{total}] {said}: {trial}", file=sys.stderr, flush=True)

    return show


if __name__ == "__main__":
    sys.exit(main())
