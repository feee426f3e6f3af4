"""Finding `libamdhip64`, and calling it: the functions that are needed, every return code checked and explained."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from tileir.runtime.device import DeviceError

_log = logging.getLogger("tileir")
VARIABLE = "TILEIR_HIP_LIBRARY"
SONAMES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so")
"""ROCm 7, 6 and 5; the last one only where development files are installed."""
_FOLDERS = ("lib", "lib64", "hip/lib")

NON_BLOCKING_STREAM = 1  # hipStreamNonBlocking
MAX_DYNAMIC_LDS = 8  # hipFuncAttributeMaxDynamicSharedMemorySize
LAUNCH_BUFFER, LAUNCH_SIZE, LAUNCH_END = 1, 2, 3  # HIP_LAUNCH_PARAM_BUFFER_POINTER, …_BUFFER_SIZE, …_END
TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3  # hipMemcpyHostToDevice, …DeviceToHost, …DeviceToDevice
INVALID_VALUE = 1  # hipErrorInvalidValue
NO_DEVICE = 100  # hipErrorNoDevice
NOT_READY = 600  # hipErrorNotReady

_OUT = POINTER(c_void_p)
_INT = POINTER(c_int)
PROTOTYPES: Mapping[str, tuple[Any, ...]] = {
    "hipGetDeviceCount": (_INT,),
    "hipGetDevice": (_INT,),
    "hipSetDevice": (c_int,),
    "hipDeviceGetName": (c_char_p, c_int, c_int),
    "hipDeviceTotalMem": (POINTER(c_size_t), c_int),
    "hipDeviceGetAttribute": (_INT, c_int, c_int),
    "hipGetDeviceProperties": (c_void_p, c_int),
    "hipRuntimeGetVersion": (_INT,),
    "hipDeviceSynchronize": (),
    "hipMalloc": (_OUT, c_size_t),
    "hipFree": (c_void_p,),
    "hipMemcpy": (c_void_p, c_void_p, c_size_t, c_int),
    "hipMemcpyAsync": (c_void_p, c_void_p, c_size_t, c_int, c_void_p),
    "hipMemsetAsync": (c_void_p, c_int, c_size_t, c_void_p),
    "hipPointerGetAttributes": (c_void_p, c_void_p),
    "hipModuleLoadData": (_OUT, c_char_p),
    "hipModuleUnload": (c_void_p,),
    "hipModuleGetFunction": (_OUT, c_void_p, c_char_p),
    "hipFuncSetAttribute": (c_void_p, c_int, c_int),
    "hipModuleLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p),
    "hipStreamCreateWithFlags": (_OUT, c_uint),
    "hipStreamDestroy": (c_void_p,),
    "hipStreamSynchronize": (c_void_p,),
    "hipStreamQuery": (c_void_p,),
    "hipStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "hipEventCreateWithFlags": (_OUT, c_uint),
    "hipEventDestroy": (c_void_p,),
    "hipEventRecord": (c_void_p, c_void_p),
    "hipEventSynchronize": (c_void_p,),
    "hipEventQuery": (c_void_p,),
    "hipEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "hipGetLastError": (),
}
"""Parameter types of the functions that the runtime calls; all of them return hipError_t. [HIP runtime API, ROCm 5 to 7]"""
_SINCE_6: Mapping[str, str] = {"hipGetDeviceProperties": "hipGetDevicePropertiesR0600"}
"""Functions whose structure changed with ROCm 6; there the old name keeps the old structure."""


class HipError(DeviceError):
    """A call of the HIP runtime that failed. function: which one; code: the hipError_t."""

    def __init__(self, function: str, code: int, what: str):
        name, words, advice = _explanation(code)
        doing = f"{what}: " if what else ""
        super().__init__(f"{doing}{words} ({function} gave {name}, {code}); {advice}")
        self.function = function
        self.code = code
        self._arguments = (function, code, what)

    def __reduce__(self) -> tuple[type[HipError], tuple[str, int, str]]:
        return type(self), self._arguments


@cache
def _errors() -> Mapping[str, Sequence[str]]:
    return json.loads(Path(__file__).with_name("hip_errors.json").read_text("utf-8"))["errors"]


def _explanation(code: int) -> Sequence[str]:
    unknown = (
        "an unknown error",
        "the runtime reports an error that TileIR does not know",
        "see the HIP documentation",
    )
    return _errors().get(str(code), unknown)


class HipLibrary:
    """The functions of one `libamdhip64`. path: where it was found."""

    def __init__(self, library: ctypes.CDLL, path: str):
        self.path = path
        self._functions: dict[str, Any] = {}
        for name, parameters in PROTOTYPES.items():
            symbol = _SINCE_6.get(name, name)
            if not hasattr(library, symbol):
                symbol = name
            try:
                function = getattr(library, symbol)
            except AttributeError:
                raise DeviceError(f"'{path}' has no function {name}: it is not HIP of ROCm 5 or later") from None
            function.argtypes = parameters
            function.restype = c_int
            self._functions[name] = function

    def call(self, name: str, *arguments: Any, what: str = "") -> None:
        """Calls a function. what: what it is called for, in words. Raises HipError."""
        code = self._functions[name](*arguments)
        if code:
            self.fail(name, code, what)

    def fail(self, name: str, code: int, what: str = "") -> None:
        """Raises the error of a call. The runtime forgets it first, so that nobody else in the process finds it."""
        self._functions["hipGetLastError"]()
        raise HipError(name, code, what)

    def release(self, name: str, handle: int) -> None:
        """Gives something back that nobody refers to any more. What goes wrong is logged: there is nobody to raise it to."""
        code = self._functions[name](handle)
        if code:
            self._functions["hipGetLastError"]()
            _log.warning("%s", HipError(name, code, "giving back what is not used any more"))

    def ready(self, name: str, handle: int | None) -> bool:
        """The answer of a query (hipStreamQuery, hipEventQuery). Raises HipError."""
        code = self._functions[name](handle)
        if code == NOT_READY:
            self._functions["hipGetLastError"]()
            return False
        if code:
            self.fail(name, code)
        return True

    def function(self, name: str) -> Any:
        """A function as it is, for callers that look at its code themselves."""
        return self._functions[name]

    def handle(self, name: str, *arguments: Any, what: str = "") -> int:
        """Calls a function whose first parameter takes a new handle or address, and gives that."""
        out = c_void_p()
        self.call(name, ctypes.byref(out), *arguments, what=what)
        return out.value or 0

    def integer(self, name: str, *arguments: Any, what: str = "") -> int:
        """Calls a function whose first parameter takes an int, and gives that."""
        out = c_int()
        self.call(name, ctypes.byref(out), *arguments, what=what)
        return out.value


def candidates() -> list[str]:
    """Names to try in order: what the variable says, and nothing else, if it is set; else the one that the process has loaded
    already (PyTorch brings its own, and only one may be in use), the folders of ROCm, and what the system's loader knows."""
    named = os.environ.get(VARIABLE)
    if named:
        return [named]
    roots = [os.environ.get("ROCM_PATH"), os.environ.get("HIP_PATH"), "/opt/rocm"]
    folders = [Path(root) / folder for root in roots if root for folder in _FOLDERS]
    folders += [Path(entry) / "_rocm_sdk_core" / "lib" for entry in sys.path if entry]  # ROCm as a Python package
    found = [str(folder / name) for folder in folders for name in SONAMES if (folder / name).exists()]
    return list(dict.fromkeys([*_mapped(), *found, *SONAMES]))


def _mapped() -> list[str]:
    """Paths of HIP libraries in this process."""
    try:
        maps = Path("/proc/self/maps").read_text("utf-8", "replace")
    except OSError:  # not Linux
        return []
    paths = (line.split(None, 5)[5] for line in maps.splitlines() if "/libamdhip64.so" in line)
    return list(dict.fromkeys(paths))


@cache
def _open(*environment: str | None) -> HipLibrary:
    """The library for these values of the variables that `candidates` looks at."""
    reasons: list[str] = []
    for name in candidates():
        try:
            return HipLibrary(ctypes.CDLL(name), name)
        except (OSError, DeviceError) as e:
            reasons.append(f"  {name}: {_reason(str(e), name)}")
    where = f"as {VARIABLE} says" if environment[0] else "in ROCM_PATH, HIP_PATH, /opt/rocm and the loader's folders"
    raise DeviceError(
        f"the HIP runtime cannot be loaded; it was looked for {where}:\n"
        + "\n".join(reasons)
        + f"\ninstall ROCm 5 or later, or set {VARIABLE} to its libamdhip64.so; without a GPU, 'simulator:gfx942' and "
        "'simulator:gfx950' run the same code objects"
    )


def _reason(text: str, name: str) -> str:
    return text.removeprefix(f"{name}: ").removeprefix(f"'{name}' ")


def load_library() -> HipLibrary:
    """The HIP runtime of this process, loaded once for each setting of the environment. Raises DeviceError that says what was
    looked for."""
    return _open(*(os.environ.get(name) for name in (VARIABLE, "ROCM_PATH", "HIP_PATH")))


def gpu_is_possible() -> bool:
    """Whether looking for a GPU makes sense at all, without loading anything: the driver's device file, or a library that
    somebody named."""
    return bool(os.environ.get(VARIABLE)) or any(Path(p).exists() for p in ("/dev/kfd", "/dev/dxg"))
