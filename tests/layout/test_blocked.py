"""Coalesced layouts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileir.layout import Layout, LayoutError, blocked


def test_bf16_tile_of_128_byte_rows() -> None:
    # 64 columns of 2 bytes = 8 lanes of 16 bytes per row; 8 rows per wave and access; 4 waves 32 rows
    layout = blocked((128, 64), 4, axis_order=(1, 0), vector=8)
    assert layout == Layout.from_bases(
        (128, 64),
        [[0, 1], [0, 2], [0, 4], [32, 0], [64, 0]],
        [[0, 8], [0, 16], [0, 32], [1, 0], [2, 0], [4, 0]],
        [[8, 0], [16, 0]],
    )


def test_widths_that_are_no_power_of_two_need_no_padding() -> None:
    layout = blocked((192, 96), 4, axis_order=(1, 0), vector=8)
    assert layout.padded_shape == (192, 96)
    assert layout.num_registers * 64 * 4 == 192 * 96
    assert layout.contiguous(1) == 8


def test_rows_of_a_reduction_stay_inside_a_wave() -> None:
    layout = blocked((64, 1024), 4, axis_order=(1, 0), vector=4)
    assert all(v[1] == 0 for v in layout.wave)


def test_a_long_row_uses_all_waves() -> None:
    layout = blocked((1, 10000), 4, axis_order=(1, 0), vector=4)
    assert layout.num_registers == 40  # 10000 / (64 lanes * 4 waves) = 39.06, in runs of 4
    assert layout.free == (0, 0, 0)


def test_surplus_lanes_and_waves_are_copies() -> None:
    layout = blocked((5,), 8, axis_order=(0,), vector=1)
    assert layout.num_registers == 1
    assert layout.free == (0, 0b111000, 0b111)
    scalar = blocked((), 2, axis_order=(), vector=4)
    assert scalar.num_registers == 1 and scalar.free == (0, 63, 1)


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=3).filter(lambda shape: math.prod(shape) < 40_000),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4, 8]),
    st.data(),
)
def test_any_shape(shape: list[int], waves: int, vector: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    layout = blocked(shape, waves, axis_order=order, vector=vector)
    run = min(vector, 1 << (shape[order[0]] - 1).bit_length())
    assert layout.shape == tuple(shape) and layout.num_waves == waves
    assert layout.contiguous(order[0]) >= run
    grid = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij")
    for got, want in zip(layout.coords(*layout.owner(*grid)), grid, strict=True):
        assert np.array_equal(got, want)
    # No lane has more registers than a plain row-major deal of padded runs would give to the busiest one, rounded up
    # to a power of two per axis
    runs = math.prod(1 << (-(-n // (run if a == order[0] else 1)) - 1).bit_length() for a, n in enumerate(shape))
    assert layout.num_registers <= run * max(1, runs // (64 * waves))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(num_waves=3, axis_order=(1, 0), vector=1), "number of waves"),
        (dict(num_waves=4, axis_order=(1, 0), vector=3), "vector width"),
        (dict(num_waves=4, axis_order=(1, 1), vector=1), "permutation"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        blocked((16, 16), **arguments)  # pyright: ignore[reportArgumentType]
