"""Random pairs of layouts of one tile: related by a permutation or a sum of bits, or by nothing at all."""

from __future__ import annotations

from hypothesis import strategies as st

from tileir.layout import Layout

SHAPES = ((64,), (16, 16), (32, 16), (16, 64), (48, 16), (3, 64), (33, 5), (128, 4), (96, 24), (8, 8, 8))


@st.composite
def layouts_of(draw: st.DrawFn, shape: tuple[int, ...], wave_bits: int) -> Layout:
    """Any layout of a tile: blocks as large as the tile or repeated, replication, sums of unit vectors."""
    rank = len(shape)
    units: list[tuple[int, ...]] = []
    reps: list[int] = []
    for d, n in enumerate(shape):
        whole = (n - 1).bit_length()
        bits = draw(st.sampled_from([whole, max(0, whole - 1), max(0, whole - 2)]))
        reps.append(-(-n // (1 << bits)))
        units += [tuple(1 << k if e == d else 0 for e in range(rank)) for k in range(bits)]
    count = max(len(units), 6 + wave_bits) + draw(st.integers(0, 1))
    vectors = draw(st.permutations([*units, *[(0,) * rank] * (count - len(units))]))
    vectors = _mixed(draw, vectors)
    lane, wave, reg = vectors[:6], vectors[6 : 6 + wave_bits], vectors[6 + wave_bits :]
    return Layout.from_bases(shape, reg, lane, wave, reps)


def _mixed(draw: st.DrawFn, vectors: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Some vectors added to others, which keeps their span."""
    out = list(vectors)
    last = len(out) - 1
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        i, j = draw(st.integers(0, last)), draw(st.integers(0, last))
        if i != j:
            out[i] = tuple(a ^ b for a, b in zip(out[i], out[j], strict=True))
    return out


@st.composite
def related(draw: st.DrawFn, src: Layout) -> Layout:
    """A layout with the same waves: registers and lanes permuted, perhaps with copies, perhaps mixed."""
    vectors = [*src.reg, *src.lane]
    if draw(st.booleans()):
        vectors.append((0,) * src.rank)
    vectors = _mixed(draw, draw(st.permutations(vectors)))
    return Layout(src.shape, tuple(vectors[6:]), tuple(vectors[:6]), src.wave, src.reps)


@st.composite
def pairs(draw: st.DrawFn, wave_bits: int | None = None) -> tuple[Layout, Layout]:
    """Two layouts of one tile in as many waves."""
    shape = draw(st.sampled_from(SHAPES))
    waves = draw(st.integers(0, 2)) if wave_bits is None else wave_bits
    src = draw(layouts_of(shape, waves))
    other = draw(related(src)) if draw(st.integers(0, 3)) else draw(layouts_of(shape, waves))
    return src, other
