"""Kernel arguments as bytes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

import tileir
from tileir.codeobject import KernelArg, KernelMetadata
from tileir.ir.core import AbiArgument, Block, Kernel, Value
from tileir.ir.expr import integer
from tileir.ir.types import BF16, F32, F64, I1, I32, I64, GlobalType, TileType
from tileir.runtime.arguments import Slot, metadata_layout, natural_layout, pack
from tileir.runtime.device import Argument, Buffer, BufferView, DeviceError


class Somewhere(Buffer):
    def __init__(self, address: int, nbytes: int):
        self.address = address
        self.nbytes = nbytes


KERNEL = Kernel(
    "k",
    {},
    [
        Value("A", GlobalType(F32, ("M", "K"), ("S", 1))),
        Value("flag", TileType(I1)),
        Value("x", TileType(BF16)),
        Value("y", TileType(F64)),
        Value("B", GlobalType(F32, ("K",))),
        Value("n", TileType(I32)),
    ],
    (integer(1),),
    Block(),
)
NAMES = ["A", "M", "K", "S", "flag", "x", "y", "B", "n"]
OFFSETS = [0, 8, 12, 16, 24, 26, 32, 40, 48]
SIZES = [8, 4, 4, 8, 1, 2, 8, 8, 4]


def test_natural_layout() -> None:
    assert [a.name for a in KERNEL.abi()] == NAMES
    assert natural_layout(KERNEL.abi()) == tuple(map(Slot, OFFSETS, SIZES))


def test_pack() -> None:
    big = Somewhere(1 << 44, 1 << 34)
    values: list[Any] = [
        BufferView(big, F32, (3, 5), (7, 1), offset=(1 << 33) + 4),
        3,
        5,
        7,
        np.array(True),
        np.array(1.0, BF16.np),
        np.array(2.5),
        BufferView(big, F32, (5,)),
        np.array(-2, np.int32),
    ]
    args = [Argument(a, v) for a, v in zip(KERNEL.abi(), values, strict=True)]
    want = struct.pack("<QiiqBxHxxxxdQi", (1 << 44) + (1 << 33) + 4, 3, 5, 7, 1, 0x3F80, 2.5, 1 << 44, -2)
    assert pack(args, natural_layout(KERNEL.abi())) == want


def metadata(names: list[str], offsets: list[int], sizes: list[int]) -> KernelMetadata:
    args = [
        KernelArg(n, "", o, s, "by_value", "", "", "", 0, False, False)
        for n, o, s in zip(names, offsets, sizes, strict=True)
    ]
    hidden = KernelArg("", "", 64, 4, "hidden_block_count_x", "", "", "", 0, False, False)
    return KernelMetadata("k", "k.kd", (*args, hidden), 0, 0, 68, 8, 64, 0, 0, 0, 0, 0, 64, (), False, False, {})


def test_the_code_object_says_where_arguments_lie() -> None:
    moved = [o + 8 for o in OFFSETS]
    assert metadata_layout(KERNEL.abi(), metadata(NAMES, moved, SIZES)) == tuple(map(Slot, moved, SIZES))
    assert metadata_layout(KERNEL.abi(), metadata([""] * 9, OFFSETS, SIZES)) == natural_layout(KERNEL.abi())


def test_a_code_object_of_another_kernel_is_refused() -> None:
    with pytest.raises(DeviceError, match="takes 8 arguments, but the kernel has 9: A, M, K"):
        metadata_layout(KERNEL.abi(), metadata(NAMES[:8], OFFSETS[:8], SIZES[:8]))
    with pytest.raises(DeviceError, match="argument 1 of 'k' is K of 4 bytes in the code object, but M of 4 bytes"):
        metadata_layout(KERNEL.abi(), metadata(["A", "K", "M", *NAMES[3:]], OFFSETS, SIZES))
    with pytest.raises(DeviceError, match="argument 3 of 'k' is S of 4 bytes in the code object, but S of 8 bytes"):
        metadata_layout(KERNEL.abi(), metadata(NAMES, OFFSETS, [8, 4, 4, 4, *SIZES[4:]]))


def test_symbols_may_have_names_of_arguments() -> None:
    text = """tileir 1
kernel @k(%M: global<f32[M], strides = [S]>, %S: f32) grid(1) {
  %x = load(%M[0 +: 16])
  store(%x * %S, %M[0 +: 16])
}
"""
    compiled = tileir.compile(text, "gfx942")
    x = np.arange(5, dtype=np.float32)
    compiled.launch(M=x, S=2.0, device="simulator:gfx942")
    assert x.tolist() == [0, 2, 4, 6, 8]


def test_one_to_sixteen_arguments_of_mixed_sizes() -> None:
    elems = [I1, I64, BF16, F32, F64, I32, I1, I1, I64, F32, BF16, BF16, F64, I1, I32, I64]
    for count in range(1, 17):
        abi = [AbiArgument(f"a{i}", "scalar", TileType(e)) for i, e in enumerate(elems[:count])]
        dtype = np.dtype([(a.name, e.np) for a, e in zip(abi, elems, strict=False)], align=True)
        assert dtype.fields is not None
        assert [s.offset for s in natural_layout(abi)] == [dtype.fields[a.name][1] for a in abi]
