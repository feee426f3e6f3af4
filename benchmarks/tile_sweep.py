"""Hot loops of matrix products over many tiles: instructions beside the matrix instructions, against the bar of the square tile.

    python benchmarks/tile_sweep.py [--only TEXT] [--json FILE]

For every row of the table of bars (chip, element type, waves, whether M, not K, is contiguous in A) the product C = A · Bᵀ for any M, N, K is
compiled with tiles of 128 x 256, 192 x 256, 256 x 192 and 256 x 128 at K 32, 64 and 128, and with the square tile of the bar. The schedule
states the waves alone; stages and pattern are the compiler's choice. Printed is n, the instructions of the hot loop that are no matrix
instructions, per 1024 clocks of matrix instructions of one wave, and what ought not to be: spills, accumulator moves, waits that drain. All
of it is read from the code objects. A tile other than the square one may need 15 % more.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from products import Product

import tileir
from tileir.simulator.inspect import inspect

TOLERANCE = 1.15
TILES = ((128, 256), (192, 256), (256, 192), (256, 128))
DEPTHS = (32, 64, 128)
BARS: tuple[tuple[Product, float], ...] = (
    (Product("gfx950", waves=4), 39.0),
    (Product("gfx950", waves=8), 68.0),
    (Product("gfx942", waves=8), 34.0),
    (Product("gfx950", "fp8", (256, 256, 128), 4), 63.0),
    (Product("gfx950", "fp8", (256, 256, 128), 8), 75.0),
    (Product("gfx942", "fp8", (256, 256, 128), 8), 34.0),
    (Product("gfx950", waves=4, a_columns=True), 49.0),
)
"""Square tiles with the n that they may need."""


@dataclass(frozen=True)
class Loop:
    """What the hot loop of a product needs. error: why there is none."""

    n: float = 0.0
    spills: int = 0
    moves: int = 0
    drains: int = 0
    registers: int = 0
    error: str = ""

    def faults(self, bar: float) -> list[str]:
        """What ought not to be, in words."""
        if self.error:
            return [self.error]
        found = [f"n {self.n:.1f} > {bar:.1f}"] if self.n > bar else []
        named = ((self.spills, "spills"), (self.moves, "accumulator moves"), (self.drains, "waits that drain"))
        return found + [f"{count} {name}" for count, name in named if count]


def cells(square: Product, bar: float) -> Iterator[tuple[Product, float]]:
    """The tiles of a row with their bars, the square one first."""
    yield square, bar
    for m, n in TILES:
        for k in DEPTHS:
            yield replace(square, tile=(m, n, k)), bar * TOLERANCE


def measure(product: Product) -> Loop:
    """Compiles a product and reads its hot loop."""
    text = product.tileir_text(staged=False)
    try:
        compiled = tileir.compile(text, product.chip, schedule="chosen")
    except tileir.CompileError as e:
        return Loop(error=f"{e.diagnostics[0].code} {e.diagnostics[0].message}")
    report = inspect(compiled.hsaco).kernel
    hot = report.hot_loop
    if hot is None or hot.counts.n is None:
        return Loop(error="no loop with matrix instructions")
    spills = (report.spills.vgprs_stated or 0) + (report.spills.sgprs_stated or 0)
    counts = hot.counts
    return Loop(counts.n, spills, counts.accumulator_moves, counts.vmcnt_drains, report.registers.vector_allocated)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table; exit status 0 also where bars are missed."""
    about = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about[0], epilog=about[2], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="products whose name contains the text")
    parser.add_argument("--json", metavar="FILE", help="writes all figures as JSON")
    options = parser.parse_args(arguments)
    collected: list[dict[str, object]] = []
    kept = 0
    for square, square_bar in BARS:
        for product, bar in cells(square, square_bar):
            if options.only not in product.name:
                continue
            loop = measure(product)
            faults = loop.faults(bar)
            kept += not faults
            collected.append({"product": asdict(product), "bar": bar, **asdict(loop)})
            verdict = "; ".join(faults) if faults else "kept"
            print(
                f"{product.name:48} n {loop.n:6.1f} of {bar:5.1f}  registers {loop.registers:3}  {verdict}", flush=True
            )
    print(f"{kept} of {len(collected)} within their bars")
    if options.json:
        Path(options.json).write_text(json.dumps(collected, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
