"""`pack` and `unpack` on both chips, from and to memory and through changes of layout."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, compiled, device
from tileir.ir.types import ELEMS
from tileir.layout import Layout, LayoutError, mma_layouts
from tileir.layout.regroup import apart, together
from tileir.runtime import launch
from tileir.runtime.packing import unpack

PAIRS = [("i8", "f4E2M1FN"), ("i32", "f4E2M1FN"), ("i32", "f8E5M2"), ("i32", "i8"), ("i16", "f8E4M3FN"), ("i64", "f16")]

UNPACK = """tileir 1
kernel @k<W: type, T: type, N: int>(%X: global<W[M, 32]>, %Y: global<T[M, N]>) grid(cdiv(M, 16)) {
  %i = program_id()
  %x = load(%X[%i * 16 +: 16, 0 +: 32])
  store(unpack<T>(%x), %Y[%i * 16 +: 16, 0 +: N])
}
"""
PACK = """tileir 1
kernel @k<W: type, T: type, N: int>(%X: global<W[M, 32]>, %Y: global<T[M, N]>) grid(cdiv(M, 16)) {
  %i = program_id()
  %y = load(%Y[%i * 16 +: 16, 0 +: N])
  store(pack<W>(%y), %X[%i * 16 +: 16, 0 +: 32])
}
"""


@pytest.mark.parametrize(("word", "part"), PAIRS)
@pytest.mark.parametrize("chip", CHIPS)
def test_there_and_back(chip: str, word: str, part: str) -> None:
    w, t = ELEMS[word], ELEMS[part]
    n = 32 * w.bits // t.bits
    x = np.random.default_rng(7).integers(0, 256, (21, 32 * w.bytes)).astype(np.uint8).view(w.np)
    y = np.zeros((21, n), t.np)
    params = (("W", word), ("T", part), ("N", n))
    launch(compiled(UNPACK, chip, params), {"X": x, "Y": y}, device(f"simulator:{chip}"))
    raw = x.view(np.uint8)
    want = np.stack([unpack(row, t, n) for row in raw]) if t.bits < 8 else raw
    assert np.array_equal(y.view(np.uint8), want)
    back = np.zeros_like(x)
    launch(compiled(PACK, chip, params), {"X": back, "Y": y}, device(f"simulator:{chip}"))
    assert np.array_equal(back, x)


@pytest.mark.parametrize("chip", CHIPS)
def test_in_a_chain(chip: str) -> None:
    """Weights that come as bytes: unpacked, widened, multiplied by a column of scales."""
    text = """tileir 1
kernel @k(%W: global<i8[M, 64]>, %S: global<f32[M, 1]>, %Y: global<f32[M, 128]>) grid(cdiv(M, 8)) {
  %i = program_id()
  %w = convert<f32>(unpack<f4E2M1FN>(load(%W[%i * 8 +: 8, 0 +: 64])))
  store(%w * load(%S[%i * 8 +: 8, 0 +: 1]), %Y[%i * 8 +: 8, 0 +: 128])
}
"""
    rng = np.random.default_rng(3)
    w = rng.integers(-128, 128, (13, 64)).astype(np.int8)
    s = rng.random((13, 1)).astype(np.float32)
    y = np.zeros((13, 128), np.float32)
    launch(compiled(text, chip), {"W": w, "S": s, "Y": y}, device(f"simulator:{chip}"))
    values = unpack(w.view(np.uint8).reshape(-1), ELEMS["f4E2M1FN"], w.size * 2).view(ELEMS["f4E2M1FN"].np)
    assert np.array_equal(y, values.reshape(13, 128).astype(np.float32) * s)


def test_layouts() -> None:
    """`together` undoes `apart`, and refuses what does not lie side by side."""
    a, _, _ = mma_layouts(64, 48, 96, wave_grid=(2, 1), instr=(16, 16, 32), operand_bits=8)
    wide = apart(a, 4)
    assert wide.shape == (64, 384) and wide.num_registers == 4 * a.num_registers
    assert np.array_equal(wide.owner_table()[:, :, ::4, 1], a.owner_table()[..., 1] * 4)
    assert np.array_equal(wide.owner_table()[:, :, 3::4, 1], a.owner_table()[..., 1] * 4 + 3)
    assert together(wide, 4) == a
    with pytest.raises(LayoutError, match="does not hold 8 elements"):
        together(Layout.from_bases((64, 8), [(0, 2), (0, 1), (0, 4)], [(1 << i, 0) for i in range(6)], []), 8)
