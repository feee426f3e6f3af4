"""Random layouts for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from tileir.layout import Layout


@st.composite
def layouts(draw: st.DrawFn, max_rank: int = 3) -> Layout:
    """Any valid layout of a small tile: a random surjective GF(2) map with replication, holes and repetitions."""
    rank = draw(st.integers(1, max_rank))
    block_bits = [draw(st.integers(0, 3)) for _ in range(rank)]
    reps = [draw(st.integers(1, 3)) for _ in range(rank)]
    wave_bits = draw(st.integers(0, 2))
    units = [tuple(1 << b if e == d else 0 for e in range(rank)) for d in range(rank) for b in range(block_bits[d])]
    block = [1 << b for b in block_bits]
    extra = draw(st.integers(0, 2))
    count = max(len(units), 6 + wave_bits) + extra
    vectors = [*units, *([(0,) * rank] * (count - len(units)))]
    vectors = draw(st.permutations(vectors))
    # Adding one vector to another keeps the span, so the map stays surjective.
    for _ in range(draw(st.integers(0, 4))):
        i, j = draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))
        if i != j:
            vectors[i] = tuple(a ^ b for a, b in zip(vectors[i], vectors[j], strict=True))
    lane, wave, reg = vectors[:6], vectors[6 : 6 + wave_bits], vectors[6 + wave_bits :]
    shape = [
        draw(st.integers(b * (r - 1) + 1, b * r)) if draw(st.booleans()) else b * r
        for b, r in zip(block, reps, strict=True)
    ]
    return Layout.from_bases(shape, reg, lane, wave, reps)
