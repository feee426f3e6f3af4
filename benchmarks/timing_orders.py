"""Hit rates of the L2s and the last-level cache for a matrix product in different orders of its workgroups."""

from __future__ import annotations

import numpy as np

from tileir.passes.order_grid import Numbers, remap
from tileir.simulator.timing.cache_sim import FETCH, Geometry, Stream, Traffic, simulate

CHIP = Geometry(line=128, l2_bytes=4 << 20, l2_ways=16, llc_bytes=256 << 20, llc_ways=16, lockstep=64)
"""L2 and last-level cache of MI300X and MI355X."""
XCDS, CUS = 8, 32
TILE, ELEMENT = (192, 256), 2
"""The published chunks 216 and 542 are an eighth of the grids for this tile at 9216 and 14592."""


def product_traffic(size: int, order: tuple[int, int] | None, accesses: int) -> Traffic:
    """Lines of a bf16 product of square matrices in tiles of 192 x 256 x 64, k contiguous in both operands, one workgroup on
    each of the 256 CUs of MI355X; stores are left out. order: window and chunk of the directive `order xcd`; None is row by
    row. accesses: see `simulate`."""
    m, n = TILE
    rows, columns, lines_per_row = -(-size // m), -(-size // n), size * ELEMENT // CHIP.line
    number = np.arange(rows * columns)
    row, column = number // columns, number % columns
    if order:
        row, column = remap(Numbers(), number, rows, columns, xcds=XCDS, chunk=order[1], window=order[0])
    step = np.arange(lines_per_row)[:, None]  # a line is 64 elements: one k step
    lines = np.concatenate([np.arange(t) * lines_per_row + step for t in TILE], axis=1).reshape(-1)
    regions = np.tile(np.repeat([0, 1], TILE), lines_per_row)
    stream = Stream(lines, np.full(len(lines), FETCH, np.uint8), regions.astype(np.uint8))
    shifts = np.stack([row * m * lines_per_row, (1 << 32) + column * n * lines_per_row], axis=1)
    return simulate(
        [stream], np.zeros(len(number), np.int64), shifts, CHIP, xcds=XCDS, slots_per_xcd=CUS, accesses=accesses
    )
