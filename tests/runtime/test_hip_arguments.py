"""Argument blocks as code objects describe them: preloaded and hidden arguments, odd sizes, dynamic LDS, on GPU and simulator."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileir.codeobject import CodeObject
from tileir.ir.core import Block, Kernel, Value
from tileir.ir.expr import integer
from tileir.ir.types import BF16, F32, I32, I64, GlobalType, TileType
from tileir.runtime import BufferView, Device, DeviceError, get_device, launch
from tileir.runtime.device import Argument
from tileir.runtime.hip_device import HipDevice

from .test_launch import Interpreted

sys.path.insert(0, str(Path(__file__).parents[1] / "simulator"))

from simulator_compile import from_ir

WHOLE = """
@lds = external addrspace(3) global [0 x i32], align 16
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
define amdgpu_kernel void @k(ptr addrspace(1) inreg %out, i32 inreg %n, i64 inreg %s, i16 %x, float %f) #0 {
  %hidden = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %groups = load i32, ptr addrspace(4) %hidden
  %at.group = getelementptr i8, ptr addrspace(4) %hidden, i64 12
  %group = load i16, ptr addrspace(4) %at.group
  LDS
  %s32 = trunc i64 %s to i32
  %x32 = zext i16 %x to i32
  %f32 = bitcast float %f to i32
  %g32 = zext i16 %group to i32
  %v0 = insertelement <8 x i32> zeroinitializer, i32 %n, i32 0
  %v1 = insertelement <8 x i32> %v0, i32 %s32, i32 1
  %v2 = insertelement <8 x i32> %v1, i32 %x32, i32 2
  %v3 = insertelement <8 x i32> %v2, i32 %f32, i32 3
  %v4 = insertelement <8 x i32> %v3, i32 %groups, i32 4
  %v5 = insertelement <8 x i32> %v4, i32 %g32, i32 5
  %v6 = insertelement <8 x i32> %v5, i32 %back, i32 6
  store <8 x i32> %v6, ptr addrspace(1) %out
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" "uniform-work-group-size"="true" }
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}
"""
DYNAMIC_LDS = """%far = getelementptr i32, ptr addrspace(3) @lds, i32 1000
  store i32 77, ptr addrspace(3) %far
  %back = load volatile i32, ptr addrspace(3) %far"""
NO_LDS = "%back = add i32 %n, 0"


def compiled(lds: str = NO_LDS) -> Interpreted:
    arguments = {"out": GlobalType(I32, ("n",), ("s",)), "x": TileType(BF16), "f": TileType(F32)}
    kernel = Kernel("k", {}, [Value(n, t) for n, t in arguments.items()], (integer(3),), Block())
    return Interpreted(kernel, hsaco=from_ir(WHOLE.replace("LDS", lds, 1), "gfx950"), block=(64, 1, 1))


def test_the_code_object_is_what_is_meant() -> None:
    kernel = CodeObject.from_bytes(compiled().hsaco).kernel("k")
    assert kernel.descriptor.kernarg_preload_length > 0 and kernel.metadata is not None
    assert {"hidden_block_count_x", "hidden_group_size_x"} <= {a.value_kind for a in kernel.metadata.args}
    assert [(a.offset, a.size) for a in kernel.metadata.explicit_args] == [(0, 8), (8, 4), (16, 8), (24, 2), (28, 4)]


def run(device: Device, dynamic_lds: int) -> list[int]:
    kernel = compiled(DYNAMIC_LDS)
    out = device.array(np.zeros(8, np.int32))
    values: dict[str, Any] = {"out": out, "n": 8, "s": 1, "x": np.array(1.0, BF16.np), "f": np.array(-2.0, np.float32)}
    arguments = [Argument(a, values[a.name]) for a in kernel.kernel.abi()]
    device.launch(kernel, (3,), arguments, dynamic_lds=dynamic_lds)
    device.synchronize()
    return out.numpy().tolist()


WANT = [8, 1, 0x3F80, int(np.float32(-2).view(np.int32)), 3, 64, 77, 0]


def test_on_the_simulator() -> None:
    assert run(get_device("simulator:gfx950"), 4096) == WANT


def test_through_hip(hip: HipDevice) -> None:
    assert run(hip, 4096) == WANT
    # warm launches pack the same way
    kernel = compiled()
    out = hip.array(np.zeros(16, np.int32))
    every_other = BufferView(out.buffer, I32, (8,), (1,))
    for value in (1.5, 1.5, -3.0):
        launch(kernel, {"out": every_other, "x": value, "f": 4}, hip)
        hip_out = out.numpy()
        assert hip_out[2] == int(np.array(value, BF16.np).view(np.uint16)) and hip_out[3] == 0x40800000


def test_lds_that_was_not_asked_for() -> None:
    with pytest.raises(DeviceError, match="LDS"):
        run(get_device("simulator:gfx950"), 1024)


def test_arguments_that_the_code_object_does_not_take(hip: HipDevice) -> None:
    kernel = compiled()
    kernel.kernel.args.append(Value("more", TileType(I64)))
    with pytest.raises(
        DeviceError, match="the code object's 'k' takes 5 arguments, but the kernel has 6: out, n, s, x, f, more"
    ):
        launch(kernel, {"out": hip.array(np.zeros(8, np.int32)), "x": 1.0, "f": 1.0, "more": 1}, hip)


def test_a_kernel_without_arguments(hip: HipDevice) -> None:
    """AMD's runtime refuses argument blocks for those."""
    text = "define amdgpu_kernel void @k() { ret void }\n!llvm.module.flags = !{!0}\n" + WHOLE.splitlines()[-1]
    kernel = Interpreted(Kernel("k", {}, [], (integer(3),), Block()), hsaco=from_ir(text, "gfx950"), block=(64, 1, 1))
    for _ in range(2):
        assert launch(kernel, {}, hip).grid == (3,)
    hip.synchronize()
