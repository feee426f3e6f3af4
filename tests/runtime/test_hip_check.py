"""A code object that a GPU cannot run is refused before the driver's loader sees it, with the reason."""

from __future__ import annotations

import struct

import pytest

from tileir.codeobject import CodeObject
from tileir.runtime import DeviceError
from tileir.runtime.hip_check import Isa, check_loadable
from tileir.runtime.hip_device import HipDevice

from .conftest import Standin
from .test_hip_device import scale

_FLAGS = 48  # e_flags of an ELF64 header
_ABI = 8  # EI_ABIVERSION


def changed(data: bytes, *, xnack: int = 1, sramecc: int = 1, abi: int = 3) -> bytes:
    """The code object with other modes (0 unsupported, 1 any, 2 off, 3 on) and another version of its format."""
    out = bytearray(data)
    (flags,) = struct.unpack_from("<I", out, _FLAGS)
    struct.pack_into("<I", out, _FLAGS, flags & 0xFF | xnack << 8 | sramecc << 10)
    out[_ABI] = abi
    return bytes(out)


def loadable(
    data: bytes, isa: str = "gfx950:sramecc+:xnack-", rocm: tuple[int, int] = (6, 4), lds: int = 163840
) -> None:
    check_loadable(data, "hip:0", Isa.parse(isa), rocm, lds)


def refused(data: bytes, **where: object) -> str:
    with pytest.raises(DeviceError) as caught:
        loadable(data, **where)  # type: ignore[arg-type]
    return str(caught.value)


def test_names_of_gpus() -> None:
    assert Isa.parse("gfx942:sramecc+:xnack-") == Isa("gfx942", xnack=False, sramecc=True)
    assert Isa.parse("gfx90a") == Isa("gfx90a")
    assert str(Isa.parse("gfx950:xnack+:sramecc-")) == "gfx950:sramecc-:xnack+"
    for text in ("", "sm_90", "gfx950:", "gfx950:xnack", "gfx950 "):
        with pytest.raises(DeviceError, match="no name of an AMD GPU architecture"):
            Isa.parse(text)


def test_the_right_one_is_loadable() -> None:
    data = scale("gfx950").hsaco
    loadable(data)
    for xnack, sramecc in ((0, 0), (1, 1), (2, 3), (2, 1)):
        loadable(changed(data, xnack=xnack, sramecc=sramecc))
    loadable(changed(data, xnack=3), isa="gfx950:sramecc+:xnack+")
    loadable(changed(data, abi=2), rocm=(5, 0))
    loadable(changed(data, abi=4), rocm=(7, 0))


def test_another_chip() -> None:
    assert refused(scale("gfx942").hsaco) == (
        "the code object is for gfx942, but hip:0 is a gfx950; compile it with --target gfx950, or run this one on "
        "'simulator:gfx942'"
    )


def test_modes() -> None:
    data = scale("gfx950").hsaco
    text = refused(changed(data, xnack=3))
    assert text.startswith("the code object was compiled for xnack on, but hip:0 runs with xnack off; HSA_XNACK=1 or 0")
    assert "or compile without xnack in the target, which suits both" in text
    assert "compiled for xnack off, but hip:0 runs with xnack on" in refused(
        changed(data, xnack=2), isa="gfx950:sramecc+:xnack+"
    )
    text = refused(changed(data, sramecc=2))
    assert "compiled for sramecc off, but hip:0 runs with sramecc on; the mode of the device is fixed" in text
    assert "compiled for xnack on, but hip:0 does not have it" in refused(changed(data, xnack=3), isa="gfx950:sramecc+")


def test_versions_of_the_format() -> None:
    data = scale("gfx950").hsaco
    assert (
        "the code object has format version 6, which ROCm reads from 6.2 on; the runtime of hip:0 is ROCm 6.0"
        in refused(changed(data, abi=4), rocm=(6, 0))
    )
    assert "code object ABI version 1; versions 4 to 6 are supported" in refused(changed(data, abi=1))


def test_what_is_no_loadable_code_object() -> None:
    assert "hip:0 cannot load this: not a usable code object" in refused(b"\x7fELF")
    obj = scale("gfx950").obj
    if obj is not None:
        assert "the object is not linked" in refused(obj)
    data = bytearray(scale("gfx950").hsaco)
    (flags,) = struct.unpack_from("<I", data, _FLAGS)
    struct.pack_into("<I", data, _FLAGS, flags & ~0xFF | 0x3F)
    assert "code object for gfx90a; supported: gfx942, gfx950" in refused(bytes(data))


def test_lds() -> None:
    data = bytearray(scale("gfx950").hsaco)
    code = CodeObject.from_bytes(bytes(data))
    symbol = next(s for s in code.symbols if s.name == "scale.kd")
    at = code.elf.file_offset(symbol.value, 64)
    assert at is not None
    struct.pack_into("<I", data, at, 70000)  # group_segment_fixed_size, the first word of the descriptor
    loadable(bytes(data))
    text = refused(bytes(data), lds=65536)
    assert text == "kernel 'scale' needs 70000 bytes of LDS, but hip:0 has 65536 for a workgroup"


def test_the_loader_is_not_asked(standin: Standin) -> None:
    for index, chip in ((0, "gfx942"), (1, "gfx950")):
        device = HipDevice(index)
        before = standin.counts().calls
        with pytest.raises(DeviceError, match=f"the code object is for {chip}, but hip:{index} is a {device.isa.chip}"):
            device.function(scale(chip))
        assert standin.counts().calls - before == 3  # selecting the device, and back
        device.close()


def test_dynamic_lds_has_a_limit(standin: Standin) -> None:
    device = HipDevice(0)
    standin.fail("hipFuncSetAttribute:1")
    with pytest.raises(DeviceError, match="allowing 'scale' 70000 bytes of dynamic LDS: an argument of the call"):
        device.function(scale("gfx950"), dynamic_lds=70000)
    standin.fail()
    device.function(scale("gfx950"), dynamic_lds=70000)
    with pytest.raises(DeviceError, match="'scale' asks for 200000 bytes of LDS; hip:0 has 163840 for a workgroup"):
        device.function(scale("gfx950"), dynamic_lds=200000)
    standin.fail("hipFuncSetAttribute:98")  # a runtime that has limits only for functions of the program
    device.function(scale("gfx950"), dynamic_lds=80000)
    device.close()
