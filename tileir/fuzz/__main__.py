"""`python -m tileir.fuzz`: random programs through interpreter, pass boundaries and simulator."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tileir.fuzz.campaign import KINDS, Result, Summary, campaign, keep

EPILOG = """\
examples:
  a thousand programs of all kinds on two processes:
    python -m tileir.fuzz --programs 1000 --jobs 2
  one program again, to look at:
    python -m tileir.fuzz --kind product --first 4711 --programs 1

exit status: 0 all right, 1 failures (each is a reduced .tile file in the folder), 2 wrong usage."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    p = argparse.ArgumentParser(
        prog="python -m tileir.fuzz",
        description="Makes random well-typed kernels and compares every execution of them bit by bit.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--programs", type=int, default=100, metavar="N", help="how many (default 100)")
    p.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed (default 0)")
    p.add_argument("--kind", choices=KINDS, action="append", help="only this kind (may be repeated; default all)")
    p.add_argument("--chips", default="gfx942,gfx950", metavar="LIST", help="which chips (default both)")
    p.add_argument(
        "--no-code", action="store_true", help="stop behind the passes: no machine code, a quarter of the time"
    )
    p.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default 1)")
    p.add_argument("--out", type=Path, default=Path("fuzz-failures"), metavar="DIR", help="where failures are kept")
    p.add_argument("--json", type=Path, metavar="FILE", help="write the summary")
    args = p.parse_args(argv)
    chips = tuple(args.chips.split(","))
    kinds = args.kind or list(KINDS)
    jobs = list(
        zip(
            itertools.islice(itertools.cycle(kinds), args.programs),
            range(args.first, args.first + args.programs),
            strict=True,
        )
    )
    started = time.monotonic()
    terminal = sys.stderr.isatty()

    def progress(r: Result, s: Summary) -> None:
        done = sum(s.outcomes.values())
        if r.failure is not None:
            path, start = keep(r.failure, args.out), "\r" if terminal else ""
            print(
                f"{start}{path}: {r.outcome.stage}: {r.outcome.message.splitlines()[0]}",
                file=sys.stderr,
            )
        if terminal or done % 100 == 0 or done == len(jobs):
            rate = done / max(time.monotonic() - started, 1e-9)
            line = f"{done} of {len(jobs)} programs, {s.outcomes['wrong']} wrong, {s.outcomes['rejected']} rejected, {rate:.1f}/s"
            print(line, end="\r" if terminal else "\n", file=sys.stderr)
            if args.json:  # what is known if the rest never comes
                args.json.write_text(s.json() + "\n", encoding="utf-8")

    if args.jobs > 1:
        with ProcessPoolExecutor(args.jobs) as pool:
            summary = Summary.of(campaign(jobs, chips, pool, code=not args.no_code), progress)
    else:
        summary = Summary.of(campaign(jobs, chips, code=not args.no_code), progress)
    if terminal:
        print(file=sys.stderr)
    if args.json:
        args.json.write_text(summary.json() + "\n", encoding="utf-8")
    print(summary.json())
    return 1 if summary.failures else 0


if __name__ == "__main__":
    sys.exit(main())
