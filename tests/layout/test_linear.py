"""Distributed layouts: the map, its inverse, and derived layouts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tileir.layout import Layout, LayoutError, broadcast_source, transpose_sources
from tileir.layout.linear import WAVE

from .strategies import layouts

ROWS = [[1, 0], [2, 0], [4, 0], [8, 0], [0, 8], [0, 16]]  # lanes of a 16x16x32 A operand


def worked() -> Layout:
    """48 x 32 over one wave: 16 x 32 block (lane row l % 16, columns 8 * (l // 16) + r), three times along rows."""
    return Layout.from_bases([48, 32], [[0, 1], [0, 2], [0, 4]], ROWS, [], [3, 1])


def test_coords_of_a_worked_layout() -> None:
    row, col = worked().coords(13, 37, 0)
    # register 13 = repetition 1, element 5; lane 37 = row 5, column group 2
    assert (row, col) == (16 + 5, 16 + 5)
    assert worked().num_registers == 24
    assert worked().block == (16, 32)
    assert str(worked()) == (
        "linear(reg = [[0, 1], [0, 2], [0, 4]], lane = [[1, 0], [2, 0], [4, 0], [8, 0], [0, 8], [0, 16]], wave = [], "
        "reps = [3, 1])"
    )


def test_even_innermost_repetitions_become_register_bits() -> None:
    a = Layout.from_bases([192], [], [[1], [2], [4], [8], [16], [32]], [], [3])
    b = Layout.from_bases([384], [], [[1], [2], [4], [8], [16], [32]], [], [6])
    assert a.reps == (3,) and a.reg == ()
    assert b.reps == (3,) and b.reg == ((64,),)
    assert b == Layout.from_bases([384], [[64]], [[1], [2], [4], [8], [16], [32]], [], [3])
    # outer repetitions in front of an odd inner one stay: a register bit cannot express their order
    c = Layout.from_bases([32, 3], [], [[1, 0], [2, 0], [4, 0], [8, 0], [0, 0], [0, 0]], [], [2, 3])
    assert c.reps == (2, 3)


@given(layouts())
def test_registers_are_row_major_over_repetitions(layout: Layout) -> None:
    """Independent evaluation of the definition, element by element."""
    table = layout.owner_table()
    rng = np.random.default_rng(0)
    for _ in range(20):
        w, l, r = (int(rng.integers(n)) for n in table.shape[:3])
        inner, rep = r % (1 << len(layout.reg)), r // (1 << len(layout.reg))
        want = [0] * layout.rank
        for bits, vectors in ((inner, layout.reg), (l, layout.lane), (w, layout.wave)):
            for i, v in enumerate(vectors):
                if bits >> i & 1:
                    want = [a ^ b for a, b in zip(want, v, strict=True)]
        for d in reversed(range(layout.rank)):
            want[d] += rep % layout.reps[d] * layout.block[d]
            rep //= layout.reps[d]
        assert table[w, l, r].tolist() == want


@given(layouts())
def test_every_element_has_its_canonical_owner_exactly_once(layout: Layout) -> None:
    free = layout.free
    w, l, r = np.meshgrid(np.arange(layout.num_waves), np.arange(WAVE), np.arange(layout.num_registers), indexing="ij")
    inner = r % (1 << len(layout.reg))
    canonical = ((inner & free.reg) == 0) & ((l & free.lane) == 0) & ((w & free.wave) == 0)
    held = layout.owner_table()[canonical]
    assert len(held) == math.prod(layout.padded_shape)
    assert len(np.unique(held, axis=0)) == len(held)
    assert layout.is_injective == bool(canonical.all())


@given(layouts())
def test_owner_inverts_coords(layout: Layout) -> None:
    grid = np.meshgrid(*(np.arange(n) for n in layout.padded_shape), indexing="ij")
    reg, lane, wave = layout.owner(*grid)
    for got, want in zip(layout.coords(reg, lane, wave), grid, strict=True):
        assert np.array_equal(got, want)
    free = layout.free
    assert not np.any(lane & free.lane) and not np.any(wave & free.wave)


@given(layouts(), st.data())
def test_transpose_keeps_every_element_in_its_lane(layout: Layout, data: st.DataObject) -> None:
    perm = tuple(data.draw(st.permutations(range(layout.rank))))
    turned = layout.transpose(perm)
    assert turned.shape == tuple(layout.shape[p] for p in perm)
    sources = transpose_sources(layout, perm)
    assert sorted(set(sources)) == list(range(layout.num_registers)) or not layout.is_injective
    table, new = layout.owner_table(), turned.owner_table()
    assert np.array_equal(new, table[:, :, list(sources)][..., list(perm)])
    inverse = [perm.index(d) for d in range(layout.rank)]
    assert turned.transpose(inverse) == layout


@given(layouts(), st.data())
def test_reduce_leaves_the_result_where_its_elements_were(layout: Layout, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, layout.rank - 1))
    reduced = layout.reduce(axis)
    assert reduced.shape == tuple(1 if d == axis else n for d, n in enumerate(layout.shape))
    groups = layout.reduce_sources(axis)
    assert len(groups) == reduced.num_registers
    assert sorted(r for g in groups for r in g) == list(range(layout.num_registers))
    table, small = layout.owner_table(), reduced.owner_table()
    for target, group in enumerate(groups):
        for r in group:
            want = table[:, :, r, :].copy()
            want[..., axis] = 0
            assert np.array_equal(small[:, :, target, :], want)


@given(layouts())
def test_text_and_constructor_agree(layout: Layout) -> None:
    namespace = {"linear": lambda **k: Layout.from_bases(layout.shape, **k)}
    assert eval(str(layout), namespace) == layout
    assert Layout(layout.shape, layout.reg, layout.lane, layout.wave, layout.reps) == layout


def check_reshape(layout: Layout, shape: tuple[int, ...]) -> None:
    new = layout.reshape(shape)
    old_table = layout.owner_table()
    old_hole = np.any(old_table >= np.array(layout.shape), axis=-1)
    new_table = new.owner_table()
    new_hole = np.any(new_table >= np.array(shape), axis=-1)
    assert np.array_equal(old_hole, new_hole)
    flat = np.ravel_multi_index(tuple(old_table[~old_hole].T), layout.shape)
    assert np.array_equal(flat, np.ravel_multi_index(tuple(new_table[~new_hole].T), shape))


@given(layouts(), st.data())
@settings(max_examples=200)
def test_reshape_is_row_major(layout: Layout, data: st.DataObject) -> None:
    count = math.prod(layout.shape)
    first = data.draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
    rest = count // first
    second = data.draw(st.sampled_from([n for n in range(1, rest + 1) if rest % n == 0]))
    shape = (first, second, rest // second)
    try:
        layout.reshape(shape)
    except LayoutError:
        assume(False)
    check_reshape(layout, shape)


def test_reshapes_that_must_be_possible() -> None:
    check_reshape(worked(), (1, 48, 32))
    check_reshape(worked(), (3, 16, 32))
    check_reshape(worked(), (48, 4, 8))
    check_reshape(worked(), (1536,))
    check_reshape(worked(), (6, 256))
    check_reshape(Layout.from_bases([1, 64], [], [[0, 1 << i] for i in range(6)], []), (64,))
    check_reshape(Layout.from_bases([1, 24], [], [[0, 1], [0, 2], [0, 4], [0, 0], [0, 0], [0, 0]], [], [1, 3]), (6, 4))
    scalar = Layout.from_bases([], [], [[]] * 6, [])
    assert scalar.reshape((1, 1)) == Layout.from_bases([1, 1], [], [[0, 0]] * 6, [])
    assert scalar.reshape((1, 1)).reshape(()) == scalar
    # 100 rows in a block of 128: the holes stay at the outer end
    holes = Layout.from_bases([100, 4], [[0, 1], [0, 2], [64, 0]], [[1 << i, 0] for i in range(6)], [])
    check_reshape(holes, (400,))


@pytest.mark.parametrize(
    ("shape", "message"),
    [((48, 33), "cannot be reshaped"), ((512, 3), "power of two"), ((2, 768), "power of two")],
)
def test_reshapes_that_must_be_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        worked().reshape(shape)


def test_contiguous() -> None:
    assert worked().contiguous(1) == 8
    assert worked().contiguous(0) == 1
    # another bit that flips the low column bits breaks the run: lane bit 0 XORs column bit 1
    crossed = Layout.from_bases([64, 4], [[0, 1], [0, 2]], [[1, 2], *([2 << i, 0] for i in range(5))], [])
    assert crossed.contiguous(1) == 2


@given(layouts())
def test_contiguous_runs_are_contiguous_and_aligned(layout: Layout) -> None:
    table = layout.owner_table()
    for axis in range(layout.rank):
        n = layout.contiguous(axis)
        assert layout.num_registers % n == 0
        runs = table.reshape(*table.shape[:2], -1, n, layout.rank)
        assert not np.any(runs[..., 0, axis] % n)
        offset = runs - runs[..., :1, :]
        want = np.zeros((n, layout.rank), dtype=np.int64)
        want[:, axis] = np.arange(n)
        assert np.array_equal(offset, np.broadcast_to(want, offset.shape))


def test_broadcast_source_is_where_a_reduction_leaves_its_result() -> None:
    layout = worked()
    assert broadcast_source(layout, (48, 1)) == layout.reduce(1)
    assert broadcast_source(layout, (1, 32)) == layout.reduce(0)
    assert broadcast_source(layout, (1, 1)) == layout.reduce(0).reduce(1)
    assert broadcast_source(layout, (48, 32)) == layout
    with pytest.raises(LayoutError, match="does not broadcast"):
        broadcast_source(layout, (48, 2))
    with pytest.raises(LayoutError, match="does not broadcast"):
        broadcast_source(layout, (48,))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([16, 32], [], ROWS[:5], []), "exactly 6"),
        (([16, 32], [[0, 1, 0]], ROWS, []), r"must have 2 coordinates"),
        (([16, 32], [[0, -1]], ROWS, []), "must not be negative"),
        (([16, 32], [[0, 1], [0, 2]], ROWS, []), r"holds element \[0, 4\]"),
        (([48, 32], [[0, 1], [0, 2], [0, 4]], ROWS, []), r"needs reps = \[3, 1\], not \[1, 1\]"),
        (([48, 32], [[0, 1], [0, 2], [0, 4]], ROWS, [], [3]), "must have 2 entries"),
        (([0, 32], [[0, 1], [0, 2], [0, 4]], ROWS, []), "at least 1"),
    ],
)
def test_bad_layouts_say_what_would_be_legal(arguments: tuple[list[int]], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        Layout.from_bases(*arguments)  # pyright: ignore[reportCallIssue]


def test_owner_and_axes_are_checked() -> None:
    with pytest.raises(LayoutError, match="2 coordinates"):
        worked().owner(1)
    with pytest.raises(LayoutError, match=r"0 \.\. 47"):
        worked().owner(48, 0)
    with pytest.raises(LayoutError, match="axis 2"):
        worked().reduce(2)
    with pytest.raises(LayoutError, match="permutation"):
        worked().transpose([0, 0])
