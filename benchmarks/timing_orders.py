"""Hit rates of the L2s and the last-level cache for a matrix product in different orders of its workgroups."""

from __future__ import annotations

import numpy as np

from tileir.passes.order_grid import Numbers, remap
from tileir.simulator.timing.cache_sim import FETCH, Geometry, Stream, Traffic, simulate

CHIP = Geometry(line=128, l2_bytes=4 << 20, l2_ways=16, llc_bytes=256 << 20, llc_ways=16, lockstep=64)
"""L2 and last-level cache of MI300X and MI355X."""
XCDS, CUS = 8, 32
TILE, ELEMENT = 256, 2


def product_traffic(size: int, order: tuple[int, int] | None, accesses: int) -> Traffic:
    """Lines of a bf16 product of square matrices in tiles of 256 x 256 x 64, k contiguous in both operands, one workgroup on
    each of the 256 CUs of MI355X; stores are left out. order: window and chunk of the directive `order xcd`; None is row by
    row. accesses: see `simulate`."""
    tiles, lines_per_row = size // TILE, size * ELEMENT // CHIP.line
    number = np.arange(tiles * tiles)
    row, column = number // tiles, number % tiles
    if order:
        row, column = remap(Numbers(), number, tiles, tiles, xcds=XCDS, chunk=order[1], window=order[0])
    step = np.arange(TILE) * lines_per_row + np.arange(lines_per_row)[:, None]  # a line is 64 elements: one k step
    lines = np.concatenate([step, step], axis=1).reshape(-1)
    regions = np.tile(np.repeat([0, 1], TILE), lines_per_row)
    stream = Stream(lines, np.full(len(lines), FETCH, np.uint8), regions.astype(np.uint8))
    shifts = np.stack([row * TILE * lines_per_row, (1 << 32) + column * TILE * lines_per_row], axis=1)
    return simulate(
        [stream], np.zeros(len(number), np.int64), shifts, CHIP, xcds=XCDS, slots_per_xcd=CUS, accesses=accesses
    )
