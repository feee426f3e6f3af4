"""The simulator's side of the stand-in: answers the requests of `wire.c`, one after the other, until the client has gone."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from tileir.codeobject import CodeObject, CodeObjectError
from tileir.records import dataclass
from tileir.simulator import Allocation, Module, Simulator, SimulatorError, SimulatorFault
from tileir.target import Target

REQUEST = struct.Struct("<II8QQ")
ANSWER = struct.Struct("<iIQQ")
DEVICE = struct.Struct("<256s256sQiiii")
DEFAULT_DEVICES = "gfx950:sramecc+:xnack-"
INVALID_VALUE, OUT_OF_MEMORY, INVALID_IMAGE, NO_BINARY, NOT_FOUND, LAUNCH_FAILURE = 1, 2, 200, 209, 500, 719
_SPACE = 1 << 44  # bytes of addresses for each device


class Refused(Exception):
    """A request that ends with an error of HIP."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code


@dataclass
class Gpu:
    """One simulated GPU and what is loaded on it."""

    isa: str
    simulator: Simulator
    modules: dict[int, Module] = field(default_factory=dict[int, Module])
    translated: dict[bytes, Module] = field(default_factory=dict[bytes, Module])  # stay: translating takes long
    allocations: dict[int, Allocation] = field(default_factory=dict[int, Allocation])

    def find(self, address: int, nbytes: int) -> tuple[Allocation, int]:
        """The buffer with these bytes, and where in it they begin."""
        found = self.simulator.memory.find(address)
        if found is None or address + nbytes > found.end:
            raise Refused(INVALID_VALUE, f"{nbytes} bytes at {address:#x} are not in one buffer")
        return found, address - found.address


class Server:
    """The GPUs that the environment names: `TILEIR_STANDIN_DEVICES`, separated by commas; empty for none."""

    def __init__(self, isas: str):
        self.gpus: list[Gpu] = []
        for isa in filter(None, isas.split(",")):
            self.gpus.append(Gpu(isa, Simulator(isa.partition(":")[0], first_address=_SPACE * (1 + len(self.gpus)))))
        self.next = 1
        self.requests: tuple[Callable[[tuple[int, ...], bytes], tuple[int, bytes]], ...] = (
            self.devices,
            self.alloc,
            self.free,
            self.write,
            self.read,
            self.copy,
            self.fill,
            self.load,
            self.unload,
            self.function,
            self.launch,
        )

    def answer(self, what: int, arguments: tuple[int, ...], data: bytes) -> tuple[int, int, bytes]:
        """Error code, value and bytes."""
        try:
            return 0, *self.requests[what - 1](arguments, data)
        except Refused as e:
            return e.code, 0, str(e).encode()
        except SimulatorFault as e:
            return LAUNCH_FAILURE, 0, str(e).encode()
        except SimulatorError as e:
            return INVALID_VALUE, 0, str(e).encode()

    def devices(self, arguments: tuple[int, ...], data: bytes) -> tuple[int, bytes]:
        return len(self.gpus), b"".join(_described(g.isa, g.simulator.target) for g in self.gpus)

    def alloc(self, arguments: tuple[int, ...], data: bytes) -> tuple[int, bytes]:
        gpu = self.gpus[arguments[0]]
        try:
            allocation = gpu.simulator.memory.allocate(arguments[1])
        except SimulatorError as e:
            raise Refused(OUT_OF_MEMORY, str(e)) from None
        gpu.allocations[allocation.address] = allocation
        return allocation.address, b""

    def free(self, arguments: tuple[int, ...], data: bytes) -> tuple[int, bytes]:
        gpu = self.gpus[arguments[0]]
        gpu.simulator.memory.free(gpu.allocations.pop(arguments[1]))
        return 0, b""

    def write(self, arguments: tuple[int, ...], data: bytes) -> tuple[int, bytes]:
        buffer, at = self.gpus[arguments[0]].find(arguments[1], len(data))
        buffer.write(data, at)
        return 0, b""

    def read(self, arguments: tuple[int, ...], data: bytes) -> tuple[int, bytes]:
        buffer, at = self.gpus[arguments[0]].find(arguments[2], arguments[3])
        return 0, buffer.read(np.uint8, arguments[3], at).tobytes()

    def copy(self, arguments: tuple[int, ...], data: bytes) -> tuple[int, bytes]:
        gpu = self.gpus[arguments[0]]
        source, of = gpu.find(arguments[2], arguments[3])
        target, to = gpu.find(arguments[1], arguments[3])
        target.write(source.read(np.uint8, arguments[3], of), to)
        return 0, b""

    def fill(self, arguments: tuple[int, ...], data: bytes) -> tuple[int, bytes]:
        buffer, at = self.gpus[arguments[0]].find(arguments[1], arguments[3])
        buffer.write(np.full(arguments[3], arguments[4] & 0xFF, np.uint8), at)
        return 0, b""

    def load(self, arguments: tuple[int, ...], data: bytes) -> tuple[int, bytes]:
        gpu = self.gpus[arguments[0]]
        try:
            code = CodeObject.from_bytes(data)
        except CodeObjectError as e:
            raise Refused(INVALID_IMAGE, str(e)) from None
        modes = {part[:-1]: part[-1] for part in gpu.isa.split(":")[1:]}
        for name, wanted in (("xnack", code.xnack), ("sramecc", code.sramecc)):
            if wanted in ("on", "off") and modes.get(name) != ("+" if wanted == "on" else "-"):
                raise Refused(NO_BINARY, f"the code object wants {name} {wanted}, the GPU is {gpu.isa}")
        if code.chip != gpu.simulator.chip:
            raise Refused(NO_BINARY, f"the code object is for {code.chip}, the GPU is {gpu.isa}")
        number, self.next = self.next, self.next + 1
        if data not in gpu.translated:
            gpu.translated[data] = gpu.simulator.load(data)
        gpu.modules[number] = gpu.translated[data]
        return number, b""

    def unload(self, arguments: tuple[int, ...], data: bytes) -> tuple[int, bytes]:
        del self.gpus[arguments[0]].modules[arguments[1]]
        return 0, b""

    def function(self, arguments: tuple[int, ...], data: bytes) -> tuple[int, bytes]:
        module = self.gpus[arguments[0]].modules[arguments[1]]
        name = data.decode("utf-8", "replace")
        if name not in module.kernels:
            raise Refused(NOT_FOUND, f"no kernel '{name}'; the code object has: {', '.join(module.kernels)}")
        metadata = module.program(name).kernel.metadata
        explicit = metadata.explicit_args if metadata else ()
        size = max((a.offset + a.size for a in explicit), default=0)
        table = b"".join(struct.pack("<II", a.offset, a.size) for a in explicit)
        return module.kernels.index(name) << 48 | len(explicit) << 32 | size, table

    def launch(self, arguments: tuple[int, ...], data: bytes) -> tuple[int, bytes]:
        device, lds = arguments[7] & 0xFFFFFFFF, arguments[7] >> 32
        module = self.gpus[device].modules[arguments[0] >> 16]
        name = module.kernels[arguments[0] & 0xFFFF]
        gx, gy, gz, bx, by, bz = arguments[1:7]
        module.launch(name, (gx, gy, gz), (bx, by, bz), data, lds_dynamic=lds)
        return 0, b""


def _described(isa: str, target: Target) -> bytes:
    product = target.products[0]
    return DEVICE.pack(
        isa.encode(),
        f"{product.name} (simulated)".encode(),
        product.hbm_bytes,
        target.num_xcds * target.cus_per_xcd,
        target.lds_bytes,
        target.l2_bytes_per_xcd,
        target.clock_hz // 1000,
    )


def _receive(channel: socket.socket, count: int) -> bytes | None:
    """So many bytes, None when the client has gone."""
    parts: list[bytes] = []
    while count:
        part = channel.recv(min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def main(descriptor: int) -> None:
    """Serves the client at the other end of a socket."""
    channel: Any = socket.socket(fileno=descriptor)
    server = Server(os.environ.get("TILEIR_STANDIN_DEVICES", DEFAULT_DEVICES))
    while (head := _receive(channel, REQUEST.size)) is not None:
        what, _, *arguments, count = REQUEST.unpack(head)
        data = _receive(channel, count)
        if data is None:
            return
        code, value, out = server.answer(what, tuple(arguments), data)
        channel.sendall(ANSWER.pack(code, 0, value, len(out)) + out)
