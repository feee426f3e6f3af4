"""How far the orders of the library's loops are from the bound, by the timing model (docs/scheduling.md).

    python benchmarks/orders.py

Each row is a loop of single instructions: how many one iteration – of loops of products, one trip – has, what its order takes and what no
order can go below, in clocks. The figures are of a model and do not depend on the machine.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tileir import kernels
from tileir.frontend import parse
from tileir.ir.diagnostics import Log
from tileir.passes.manager import run_pipeline
from tileir.passes.rate_loops import rate

ATTENTION = (
    ("attention_prescaled", "gfx950", {"D": 128}),
    ("attention_lazy", "gfx950", {"D": 128}),
    ("attention_prescaled", "gfx950", {"D": 64}),
    ("attention_lazy", "gfx950", {"D": 64}),
    ("attention_lazy", "gfx942", {"D": 128, "AWAY": True}),
    ("attention_prescaled", "gfx942", {"D": 128}),
)
GEMM = (
    ("gfx950", "2 x 2", ""),
    ("gfx950", "2 x 4", ""),
    ("gfx942", "2 x 4", ""),
    ("gfx950", "2 x 4", "ping_pong"),
    ("gfx942", "2 x 4", "ping_pong"),
)
TEXT = """tileir 1

kernel @gemm(%A: global<bf16[M, K]>, %B: global<bf16[N, K]>, %C: global<f32[M, N]>) grid(cdiv(M, 256), cdiv(N, 256)) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[256, 256]>
  %acc = for %k = 0 to K step 64 carry(%c = %zero) {
    %a = load(%A[%i * 256 +: 256, %k +: 64])
    %b = load(%B[%j * 256 +: 256, %k +: 64])
    yield mma(%a, transpose(%b), %c)
  }
  store(%acc, %C[%i * 256 +: 256, %j * 256 +: 256])
}
"""


def rows() -> Iterator[tuple[str, str]]:
    """Name of a loop, and what is known of its order."""
    for name, chip, params in ATTENTION:
        log = Log()
        run_pipeline(parse(kernels.source(name), f"{name}.tile", params), "", chip, stop_after="weave-blocks", log=log)
        shown = " ".join([name, chip, *(f"{k} = {v}" for k, v in params.items())])
        found = [d.message for d in log.diagnostics if d.code == "R0813"]
        for message in dict.fromkeys(found):
            words = re.search(r"order of (\d+) instructions .* takes (.*)", message)
            assert words is not None
            yield shown, f"{words[1]:>4}  {words[2]}"
    for chip, waves, pattern in GEMM:
        asked = f"  loop %k pattern {pattern}\n" if pattern else ""
        text = f"{TEXT}\nschedule @s of @gemm for {chip} {{\n  waves %acc {waves}\n{asked}}}\n"
        made = run_pipeline(parse(text, "gemm.tile"), "", chip, stop_after="pipeline-loops")
        for _, solution in rate(made.kernel, made.context.target):
            yield (
                f"gemm {chip}, waves {waves}{pattern and ', ' + pattern}",
                f"{len(solution.order):>4}  {solution.text()}",
            )


def main() -> int:
    """Prints the table."""
    for name, found in rows():
        print(f"{name:42} {found}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
