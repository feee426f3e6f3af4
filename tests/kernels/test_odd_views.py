"""Views and tiles at the edge of what there is: dimensions of size 0, strides of 0, rank 3 with batches, single elements, tall and flat
tiles. The simulator computes what the interpreter computes, and nothing outside the views is touched."""

from __future__ import annotations

import numpy as np
import pytest

from tileir.runtime import launch

from .harness import CHIPS, compiled, device, integers
from .test_shapes import TYPES, agree, span


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("m", "n", "k"), [(0, 40, 33), (40, 0, 33), (40, 33, 0), (0, 0, 0)])
def test_products_with_a_dimension_of_size_0(m: int, n: int, k: int, chip: str) -> None:
    """No rows, no columns, nothing to sum: the rest is 0, and no access faults."""
    text = """tileir 1
kernel @k(%A: global<bf16[M, K]>, %B: global<bf16[N, K]>, %C: global<f32[M, N]>) grid(max(cdiv(M, 32), 1), max(cdiv(N, 32), 1)) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[32, 32]>
  %c = for %k = 0 to K step 32 carry(%x = %zero) {
    yield mma(load(%A[%i * 32 +: 32, %k +: 32]), transpose(load(%B[%j * 32 +: 32, %k +: 32])), %x)
  }
  store(%c, %C[%i * 32 +: 32, %j * 32 +: 32])
}
"""
    rng = np.random.default_rng(1)
    c = np.full((m, n), 7, np.float32)
    arrays = {"A": integers(rng, (m, k), TYPES["bf16"]), "B": integers(rng, (n, k), TYPES["bf16"]), "C": c}
    launch(compiled(text, chip), arrays, device(f"simulator:{chip}"))
    assert np.all(c == 0)


@pytest.mark.parametrize("chip", CHIPS)
def test_accesses_to_views_without_elements(chip: str) -> None:
    """Loads give the pad, stores and updates go nowhere: spans, scalars, picked rows, a dimension of size 0 in front or behind."""
    text = """tileir 1
kernel @k(%A: global<f32[M, N]>, %B: global<f32[N, M]>, %C: global<i32[M]>, %O: global<f32[4, 8, 8]>) grid(1) {
  %rows = iota<[8]>()
  %x = load(%A[0 +: 8, 0 +: 8], pad = 1.0)
  store(%x, %O[0, 0 +: 8, 0 +: 8])
  store(load(%B[0 +: 8, 0 +: 8]), %O[1, 0 +: 8, 0 +: 8])
  store(load(%A[%rows, 0 +: 8], pad = 2.0), %O[2, 0 +: 8, 0 +: 8])
  %s = fill(load(%B[0, 0], pad = 3.0)) : tile<f32[8, 8]>
  store(%s, %O[3, 0 +: 8, 0 +: 8])
  store(%x, %A[0 +: 8, 0 +: 8])
  store(%x, %B[0 +: 8, %rows])
  store(5.0, %A[0, 0])
  atomic_add(1, %C[%rows])
  %n = atomic_add(1, %C[0])
}
"""
    for m, n in ((0, 6), (6, 0), (0, 0)):
        arrays = {
            "A": np.zeros((m, n), np.float32),
            "B": np.zeros((n, m), np.float32),
            "C": np.zeros(m, np.int32),
            "O": np.full((4, 8, 8), 9, np.float32),
        }
        launch(compiled(text, chip), arrays, device(f"simulator:{chip}"))
        assert [np.unique(o).tolist() for o in arrays["O"]] == [[1], [0], [2], [3]]
        assert arrays["C"].tolist() == [2, 1, 1, 1, 1, 1][:m]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("waves", "elem"), [(1, "f32"), (4, "bf16"), (2, "i8")])
def test_strides_of_0_repeat_rows_columns_and_batches(waves: int, elem: str, chip: str) -> None:
    text = f"""tileir 1
kernel @k(%R: global<{elem}[M, N], strides = [0, 1]>, %C: global<{elem}[M, N], strides = [1, 0]>,
    %B: global<{elem}[3, M, N], strides = [0, S, 1]>, %O: global<{elem}[3, M, N]>) grid(cdiv(M, 16), cdiv(N, 32))
    with(waves = {waves}) {{
  %i, %j = program_id()
  %x = load(%R[%i * 16 +: 16, %j * 32 +: 32]) + load(%C[%i * 16 +: 16, %j * 32 +: 32])
  %b = load(%B[0 +: 3, %i * 16 +: 16, %j * 32 +: 32])
  store(%b + reshape<[1, 16, 32]>(%x), %O[0 +: 3, %i * 16 +: 16, %j * 32 +: 32])
}}
"""
    rng = np.random.default_rng(2)
    m, n, t = 21, 70, TYPES[elem]
    size = np.dtype(t).itemsize
    r, c, b = integers(rng, (n,), t), integers(rng, (m,), t), integers(rng, (m, n), t)
    strided = np.lib.stride_tricks.as_strided
    arrays = {
        "R": strided(r, (m, n), (0, size)),
        "C": strided(c, (m, n), (size, 0)),
        "B": strided(b, (3, m, n), (0, n * size, size)),
        "O": np.zeros((3, m, n), t),
    }
    launch(compiled(text, chip), arrays, device(f"simulator:{chip}"))
    np.testing.assert_array_equal(arrays["O"], np.broadcast_to(r + c[:, None] + b, (3, m, n)))


@pytest.mark.parametrize(
    ("shape", "waves"),
    [
        ((1,), 4),
        ((1, 1), 1),
        ((1, 1, 1), 8),
        ((4096, 1), 4),
        ((1, 4096), 4),
        ((1000, 3), 2),
        ((3, 1000), 8),
        ((2, 1, 513), 1),
        ((5, 33, 2), 4),
        ((64, 2, 1), 16),
    ],
)
def test_tiles_of_any_proportions(shape: tuple[int, ...], waves: int) -> None:
    """Loaded over an edge, turned, broadcast along every dimension, reduced, and stored over an edge."""
    dims = ", ".join(str(max(1, n - 1)) for n in shape)
    ones = [[1 if d == e else n for d, n in enumerate(shape)] for e in range(len(shape))]
    terms = " + ".join(f"broadcast<{list(shape)}>(reduce_max(%a, axis = {e}))" for e in range(len(ones)))
    turned = "transpose(transpose(%a))" if len(shape) > 1 else "%a"
    text = f"""tileir 1
kernel @k(%A: global<f32[{dims}]>, %O: global<f32[{dims}]>) grid(1) with(waves = {waves}) {{
  %a = load(%A[{span(shape)}], pad = -9.0)
  store({terms} + {turned}, %O[{span(shape)}])
}}
"""
    inner = tuple(max(1, n - 1) for n in shape)
    a = integers(np.random.default_rng(3), inner, np.float32)
    agree(text, CHIPS[shape[0] % 2], {"A": a, "O": np.zeros(inner, np.float32)}, "O")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("batches", "rows", "cols"), [(4, 16, 32), (3, 7, 5), (1, 64, 64)])
def test_batches_of_rank_3(batches: int, rows: int, cols: int, chip: str) -> None:
    """A normalisation over the last dimension of each batch, dimensions exchanged, batches summed."""
    text = f"""tileir 1
kernel @k(%A: global<f32[B, M, N]>, %T: global<f32[M, B, N]>, %S: global<f32[1, M, N]>) grid(1) {{
  %a = load(%A[0 +: {batches}, 0 +: {rows}, 0 +: {cols}])
  %c = %a - reduce_max(%a, axis = 2)
  store(transpose<[1, 0, 2]>(%c), %T[0 +: {rows}, 0 +: {batches}, 0 +: {cols}])
  store(reduce_add(%a, axis = 0), %S[0 +: 1, 0 +: {rows}, 0 +: {cols}])
}}
"""
    a = integers(np.random.default_rng(4), (batches, rows, cols), np.float32)
    arrays = {"A": a, "T": np.zeros((rows, batches, cols), np.float32), "S": np.zeros((1, rows, cols), np.float32)}
    launch(compiled(text, chip), arrays, device(f"simulator:{chip}"))
    np.testing.assert_array_equal(arrays["T"], (a - a.max(2, keepdims=True)).transpose(1, 0, 2))
    np.testing.assert_array_equal(arrays["S"], a.sum(0, keepdims=True))
