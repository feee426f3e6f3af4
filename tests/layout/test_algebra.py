"""The laws of the algebra, on random maps: composition, inverses, product and quotient, text."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileir.frontend import parse
from tileir.ir.types import TileType
from tileir.layout import Layout, LayoutError, LinearMap, conversion, mfma_accumulator, mfma_operand, transfer
from tileir.layout.algebra import Space
from tileir.layout.linear import WAVE

from .strategies import layouts

NAMES = ("reg", "lane", "wave", "row", "k")


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    names = draw(st.permutations(NAMES))[: draw(st.integers(0, 3))]
    return tuple((name, draw(st.integers(0, 3))) for name in names)


@st.composite
def maps(draw: st.DrawFn, inputs: Space | None = None, outputs: Space | None = None) -> LinearMap:
    into = draw(spaces()) if inputs is None else inputs
    out = draw(spaces()) if outputs is None else outputs
    size, bits = sum(b for _, b in into), sum(b for _, b in out)
    column = st.integers(0, (1 << bits) - 1)
    return LinearMap(into, out, tuple(draw(st.lists(column, min_size=size, max_size=size))))


@st.composite
def bijections(draw: st.DrawFn, space: Space) -> LinearMap:
    size = sum(b for _, b in space)
    columns = [1 << i for i in draw(st.permutations(range(size)))]
    for _ in range(draw(st.integers(0, 6)) if size > 1 else 0):
        i, j = draw(st.integers(0, size - 1)), draw(st.integers(0, size - 1))
        columns[i] ^= columns[j] if i != j else 0
    return LinearMap(space, space, tuple(columns))


def table(f: LinearMap) -> list[int]:
    """Every image, bit by bit."""
    out: list[int] = []
    for x in range(1 << len(f.columns)):
        y = 0
        for i, c in enumerate(f.columns):
            y ^= c if x >> i & 1 else 0
        out.append(y)
    return out


def one(space: Space) -> LinearMap:
    return LinearMap(space, space, tuple(1 << i for i in range(sum(b for _, b in space))))


@given(st.data())
def test_composition(data: st.DataObject) -> None:
    """Pointwise the images of images, associative, neutral with the identities."""
    a, b, c, d = (data.draw(spaces()) for _ in range(4))
    f, g, h = data.draw(maps(a, b)), data.draw(maps(b, c)), data.draw(maps(c, d))
    assert table(g @ f) == [table(g)[y] for y in table(f)]
    assert (h @ g) @ f == h @ (g @ f)
    assert f @ one(a) == f == one(b) @ f


def test_composition_needs_equal_spaces() -> None:
    f, g = LinearMap.identity("lane", "row", 2), LinearMap.identity("k", "row", 2)
    with pytest.raises(LayoutError, match="rename or reorder"):
        _ = f @ g


@given(st.data())
def test_inverse_of_a_bijection(data: st.DataObject) -> None:
    f = data.draw(bijections(data.draw(spaces())))
    assert f.is_injective and f.is_surjective
    assert sorted(table(f)) == list(range(1 << len(f.columns)))
    g = f.inverse()
    assert g @ f == one(f.inputs) == f @ g
    assert g.inverse() == f
    other = data.draw(bijections(f.inputs))
    assert (f @ other).inverse() == other.inverse() @ f.inverse()


@given(maps())
def test_bijections_are_recognised(f: LinearMap) -> None:
    images = set(table(f))
    assert f.is_injective == (len(images) == 1 << len(f.columns))
    assert f.is_surjective == (len(images) == 1 << sum(b for _, b in f.outputs))
    zeros = {0}
    for v in f.kernel():
        zeros |= {z ^ v for z in zeros}
    assert zeros == {x for x, y in enumerate(table(f)) if y == 0}
    if not f.is_injective:
        with pytest.raises(LayoutError, match="no inverse"):
            f.inverse()
    if not f.is_surjective:
        with pytest.raises(LayoutError, match="reaches only"):
            f.right_inverse()


@given(maps())
def test_pseudo_inverse(f: LinearMap) -> None:
    g = f.pseudo_inverse()
    assert f @ g @ f == f and g @ f @ g == g
    if f.is_surjective:
        assert f @ f.right_inverse() == one(f.outputs)
    if f.is_injective:
        assert g @ f == one(f.inputs)


@given(maps(), maps(), maps())
def test_product(f: LinearMap, g: LinearMap, h: LinearMap) -> None:
    """Every group splits into low bits that f maps and high bits that g maps."""
    both = f * g
    low, high = dict(f.inputs), dict(g.inputs)
    rng = np.random.default_rng(1)
    for _ in range(10):
        x = {n: int(rng.integers(1 << b)) for n, b in f.inputs}
        y = {n: int(rng.integers(1 << b)) for n, b in g.inputs}
        joined = {n: x.get(n, 0) | y.get(n, 0) << low.get(n, 0) for n in {**low, **high}}
        u, v, w = f(**x), g(**y), both(**joined)
        for n, _ in both.outputs:
            assert w[n] == u.get(n, 0) | v.get(n, 0) << dict(f.outputs).get(n, 0)
    assert (f * g) * h == f * (g * h)
    assert LinearMap.empty() * f == f == f * LinearMap.empty()
    assert both.rank == f.rank + g.rank


@given(maps(), maps())
def test_product_then_quotient(f: LinearMap, g: LinearMap) -> None:
    whole = f * g
    outer = whole.divide(f)
    again = f * outer
    assert again.reorder(inputs=[n for n, _ in whole.inputs], outputs=[n for n, _ in whole.outputs]) == whole
    kept_in, kept_out = (
        [n for n, b in s if b or n not in dict(r)] for s, r in ((g.inputs, f.inputs), (g.outputs, f.outputs))
    )
    assert sorted(n for n, _ in outer.inputs) == sorted(kept_in)
    assert sorted(n for n, _ in outer.outputs) == sorted(kept_out)
    for n in kept_in:
        want = [dict(zip((m for m, _ in g.outputs), v, strict=True)) for v in g.bases(n)]
        got = [dict(zip((m for m, _ in outer.outputs), v, strict=True)) for v in outer.bases(n)]
        assert got == [{m: x for m, x in v.items() if m in kept_out} for v in want]


def test_no_quotient() -> None:
    f = LinearMap.of({"lane": [[1, 0], [1, 1]]}, (("row", 1), ("k", 1)))
    with pytest.raises(LayoutError, match="their bits meet"):
        f.divide(LinearMap.identity("lane", "row", 1))
    with pytest.raises(LayoutError, match="not all the bits"):
        f.divide(LinearMap.identity("lane", "row", 2))


@given(st.data())
def test_transposition_and_reshape_commute_with_everything(data: st.DataObject) -> None:
    """Both only name the bits of the result anew, so they may be done before or after any other operation."""
    a, b = data.draw(spaces()), data.draw(spaces())
    f, g = data.draw(maps(a, b)), data.draw(maps(b))
    order = data.draw(st.permutations([n for n, _ in g.outputs]))
    assert (g @ f).reorder(outputs=order) == g.reorder(outputs=order) @ f
    turned = f.reorder(outputs=list(reversed([n for n, _ in b])))
    assert g.reorder(inputs=list(reversed([n for n, _ in b]))) @ turned == g @ f
    flat = (("flat", sum(bits for _, bits in g.outputs)),)
    assert (g @ f).regroup(outputs=flat) == g.regroup(outputs=flat) @ f
    assert f.reorder(outputs=[n for n, _ in f.outputs]) == f
    assert g.reorder(outputs=order).reorder(outputs=[n for n, _ in g.outputs]) == g
    assert g.reorder(outputs=order).rank == g.rank == g.regroup(outputs=flat).rank
    h = data.draw(maps())
    both = [n for n, _ in (g * h).outputs]
    assert (g.reorder(outputs=order) * h).reorder(outputs=both) == g * h


@given(maps())
def test_text(f: LinearMap) -> None:
    assert LinearMap.parse(str(f)) == f
    assert LinearMap.parse(f"  {f} ".replace(",", " , ")) == f


def test_text_by_hand() -> None:
    f = LinearMap.of({"reg": [[0, 1]], "lane": [[1, 0], [2, 1]]}, (("row", 2), ("col", 1)))
    assert str(f) == "(reg: 1, lane: 2) -> (row: 2, col: 1) [4, 1, 6]"
    for bad, message in (
        ("reg -> col [1]", "is no map"),
        ("(reg) -> (col: 1) [1]", "names no groups"),
        ("(reg: 1) -> (col: 1) [1,,2]", "no list of columns"),
        ("(reg: 1) -> (col: 1) [2]", "must fit the 1 bits"),
        ("(reg: 1) -> (col: 1) []", "as many columns"),
        ("(reg: 1, reg: 1) -> (col: 1) [1, 1]", "distinct"),
    ):
        with pytest.raises(LayoutError, match=message):
            LinearMap.parse(bad)


def test_evaluation_checks_its_arguments() -> None:
    f = LinearMap.identity("lane", "row", 2)
    assert f(lane=[0, 3])["row"].tolist() == [0, 3] and f.apply(2) == 2
    for values in ({"lane": 4}, {"reg": 0}):
        with pytest.raises(LayoutError, match="must be a group"):
            f(**values)
    with pytest.raises(LayoutError, match="must lie in"):
        LinearMap.of({"lane": [[4]]}, (("row", 2),))
    with pytest.raises(LayoutError, match="permutation of the groups"):
        f.reorder(outputs=["k"])
    with pytest.raises(LayoutError, match="has no group k"):
        f.bases("k")


# -- layouts of tiles --------------------------------------------------------------------------------------------------


@given(layouts())
def test_a_layout_is_its_map_repeated(layout: Layout) -> None:
    f = layout.linear_map
    assert f.is_surjective and f.is_injective == layout.is_injective
    assert Layout.of_map(layout.shape, f, layout.reps) == layout
    assert LinearMap.parse(str(f)) == f
    r, l, w = np.meshgrid(
        np.arange(layout.registers_per_block), np.arange(WAVE), np.arange(layout.num_waves), indexing="ij"
    )
    for d, values in enumerate(f(reg=r, lane=l, wave=w).values()):
        assert np.array_equal(values, layout.coords(r, l, w)[d])
    turned = layout.transpose(tuple(reversed(range(layout.rank))))
    if turned.block == tuple(reversed(layout.block)) and turned.reg == tuple(v[::-1] for v in layout.reg):
        names = [f"dim{d}" for d in reversed(range(layout.rank))]
        assert turned.linear_map.columns == f.reorder(outputs=names).columns


@given(layouts(), st.data())
def test_repetition_of_any_length(layout: Layout, data: st.DataObject) -> None:
    """Every copy of the tile is held by the same lanes and waves in the same way."""
    times = tuple(data.draw(st.integers(1, 3)) for _ in range(layout.rank))
    if layout.padded_shape != layout.shape:
        with pytest.raises(LayoutError, match="cannot repeat"):
            layout.repeat(times)
        return
    big = layout.repeat(times)
    assert big.num_registers == layout.num_registers * math.prod(times)
    small_places = layout.owner_table().reshape(layout.num_waves, WAVE, -1, layout.rank)
    big_places = big.owner_table()
    shape = np.array(layout.shape)
    for w in range(layout.num_waves):
        for l in (0, 5, 63):
            for copy in np.ndindex(*times):
                inside = np.all(big_places[w, l] // shape == copy, axis=-1)
                got = sorted(map(tuple, (big_places[w, l][inside] % shape).tolist()))
                assert got == sorted(map(tuple, small_places[w, l].tolist()))


def test_repetition_by_hand() -> None:
    lanes = [[1], [2], [4], [8], [16], [32]]
    tile = Layout.from_bases([64], [], lanes, []).repeat([3])
    assert str(tile).endswith("reps = [3])") and tile.shape == (192,)
    assert Layout.from_bases([64], [], lanes, []).repeat([4]).reg == ((64,), (128,))
    with pytest.raises(LayoutError, match="numbers of at least 1"):
        tile.repeat([0])


@given(layouts(max_rank=2), st.data())
def test_transfer_is_the_conversion(src: Layout, data: st.DataObject) -> None:
    """src⁻¹ ∘ dst names for every place a place of src with the same element, and its form says what kind of conversion it is."""
    f = data.draw(bijections((("reg", len(src.reg)), ("lane", 6), ("wave", len(src.wave)))))
    dst = Layout.of_map(src.shape, src.linear_map @ f, src.reps)
    moved = transfer(src, dst)
    assert moved is not None
    r, l, w = np.meshgrid(np.arange(dst.num_registers), np.arange(WAVE), np.arange(dst.num_waves), indexing="ij")
    rep, inner = np.divmod(r, dst.registers_per_block)
    place = moved(reg=inner, lane=l, wave=w)
    found = src.coords(place["reg"] + rep * src.registers_per_block, place["lane"], place["wave"])
    for got, want in zip(found, dst.coords(r, l, w), strict=True):
        assert np.array_equal(got, want)
    stays = all(
        moved.bases(n)[i][g] == 1 << i for g, n in ((1, "lane"), (2, "wave")) for i in range(len(moved.bases(n)))
    )
    alone = all(v[1] == v[2] == 0 for v in moved.bases("reg")) and all(
        v[0] == 0 and v[1 if n == "wave" else 2] == 0 for n in ("lane", "wave") for v in moved.bases(n)
    )
    if stays and alone and src.shape == src.padded_shape:
        assert conversion(src, dst).sources is not None


def test_transfer_between_blocks_of_other_sizes() -> None:
    lanes = [[1], [2], [4], [8], [16], [32]]
    small = Layout.from_bases([192], [], lanes, [], [3])
    large = Layout.from_bases([192], [[64], [128]], lanes, [])
    assert transfer(small, large) is None
    with pytest.raises(LayoutError, match="keeps the shape"):
        transfer(small, Layout.from_bases([64], [], lanes, []))


@given(layouts())
def test_printed_layouts_are_read_back(layout: Layout) -> None:
    """The text of a layout inside the type of a tile means the same layout."""
    shape = ", ".join(map(str, layout.shape))
    waves = layout.num_waves
    text = (
        f"tileir 1\n\nkernel @k() grid(1) with(waves = {waves}) {{\n"
        f"  %x = fill(0.0) : tile<f32[{shape}], {layout}>\n}}\n"
    )
    (op,) = (op for op in parse(text, "k.tile").kernels[0].body.ops if op.name == "fill")
    assert isinstance(op.result.type, TileType)
    assert op.result.type.layout == layout


def test_a_tile_is_a_product_of_fragments() -> None:
    """A of 16x16x32 with two fragments along k and two waves of rows; the quotient by the fragment is what is around it."""
    fragment = mfma_operand(16, 32, bits=16).linear_map
    around = LinearMap.identity("reg", "dim1", 1) * LinearMap.identity("wave", "dim0", 1)
    tile = Layout.of_map((32, 64), fragment * around)
    assert [int(x) for x in tile.coords(9, 17, 1)] == [16 + 1, 32 + 8 + 1]
    rest = tile.linear_map.divide(fragment)
    assert rest.bases("reg") == ((0, 1),) and rest.bases("wave") == ((1, 0),)
    # the accumulator of the same instruction is no such product with an operand fragment
    with pytest.raises(LayoutError):
        mfma_accumulator(16, 16).linear_map.divide(fragment)
