"""Loading code objects and launching kernels: the state that the AMDHSA ABI promises, workgroup by workgroup."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tileir.codeobject import CodeObject, CodeObjectError, Kernel, KernelArg
from tileir.target import UnknownTarget
from tileir.target import get as get_target

from . import checks, report, state
from .checks.monitor import Monitor
from .engine import engine
from .faults import SimulatorError, Statistics
from .memory import FIRST_ADDRESS, Allocation, Memory, reserve
from .native.global_memory import PRIVATE_APERTURE, SHARED_APERTURE
from .program import Program

Dim3 = tuple[int, int, int]
Argument = int | float | bytes | Allocation | np.generic
GARBAGE = 0x7FBADBAD
"""Initial content of registers and LDS: a NaN in every float format, a huge number as an integer or address."""
DEFAULT_MAX_INSTRUCTIONS = 100_000_000
DEFAULT_STACK = 1024
"""Bytes of scratch per lane for kernels that call through pointers or recurse. [HIP, hipLimitStackSize]"""
_MAX_STACK = 131056
_TIME_SLICE = 1 << 16
_MAX_KERNARG = 1 << 16
_ALIGN = 64


def _aligned(size: int) -> NDArray[np.uint8]:
    raw = np.zeros(size + _ALIGN, np.uint8)
    start = -raw.ctypes.data % _ALIGN
    return raw[start : start + size]


class Simulator:
    """A GPU of one chip ("gfx942" or "gfx950") with its memory, which begins at ``first_address``."""

    def __init__(self, chip: str, first_address: int = FIRST_ADDRESS) -> None:
        try:
            self.target = get_target(chip)
        except UnknownTarget as error:
            raise SimulatorError(str(error)) from None
        self.chip = chip
        self.memory = Memory(first_address)
        self.engine = engine()

    def load(self, data: bytes) -> Module:
        """Loads a linked code object; ``SimulatorError`` when it is malformed or for another chip."""
        try:
            code = CodeObject.from_bytes(data)
        except CodeObjectError as error:
            raise SimulatorError(f"not a usable code object: {error}") from None
        if code.chip != self.chip:
            raise SimulatorError(f"the code object is for {code.chip}, the simulated chip is {self.chip}")
        if not code.linked:
            raise SimulatorError("the code object is not linked; link it with lld (-shared) first")
        return Module(self, code)


class Module:
    """A code object in simulated memory. Relocations beyond a load at a page-aligned base do not exist in it."""

    def __init__(self, simulator: Simulator, code: CodeObject) -> None:
        self.simulator, self.code = simulator, code
        end = max((s.vaddr + s.memsize for s in code.segments), default=0)
        self.image = simulator.memory.allocate(
            end, "code object", align=4096, read_only=not any(s.writable for s in code.segments)
        )
        for segment in code.segments:
            self.image.write(segment.data, segment.vaddr)
        self._programs: dict[str, Program] = {}

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(self.code.kernels)

    def program(self, name: str) -> Program:
        """The translated kernel."""
        if name not in self._programs:
            try:
                kernel = self.code.kernel(name)
                self._programs[name] = Program(self.code, kernel, self.image.address, self.simulator.engine)
            except CodeObjectError as error:
                raise SimulatorError(str(error)) from None
        return self._programs[name]

    def launch(
        self,
        kernel: str,
        grid: Dim3,
        block: Dim3,
        args: bytes | Sequence[Argument] = (),
        *,
        lds_dynamic: int = 0,
        workgroups: Iterable[Dim3] | None = None,
        max_instructions: int = DEFAULT_MAX_INSTRUCTIONS,
        strict_barriers: bool = True,
        stack: int = DEFAULT_STACK,
        check: str = "",
        strict: bool = False,
        max_findings: int = 100,
    ) -> Statistics:
        """Runs a kernel to its end.

        grid: workgroups in x, y, z. block: work-items of a workgroup. args: the explicit part of the kernarg segment,
        or one value per explicit argument (an allocation stands for its address); hidden arguments are filled in.
        lds_dynamic: bytes of LDS behind the static ones. workgroups: subset to run, in this order; default all, x
        fastest. max_instructions: limit for one workgroup. strict_barriers: a wave that ends while others wait at a
        barrier is a fault (the hardware would let them go on). stack: bytes of scratch per lane, at least, for a kernel
        whose descriptor says that its stack is dynamic (indirect calls, recursion); no other kernel is given more than
        it asks for. check: checks to make, names of ``tileir.simulator.checks`` such as ``"race,uninit"``, or ``"all"``;
        what they find is in ``Statistics.findings`` (``SimulatorFault.findings`` when a fault ends the kernel), at most
        max_findings, each pair of instructions once. strict: the first finding is raised as a fault instead.

        Raises :class:`SimulatorFault` at the first fault, :class:`SimulatorError` for an impossible launch.
        """
        program = self.program(kernel)
        launch = _Launch(self.simulator, self, program, grid, block, args, lds_dynamic, stack)
        try:
            chosen = checks.parse(check)
            if chosen:
                launch.watch(Monitor(launch, chosen, strict, max_findings))
            launch.prepare(max_instructions, strict_barriers)
            return launch.run(workgroups)
        finally:
            launch.close()


def _check_dim(what: str, value: Dim3, limit: int) -> None:
    if len(value) != 3 or any(not 1 <= v <= limit for v in value):
        raise SimulatorError(f"{what} {value!r}: three integers from 1 to {limit} are needed")


class _Launch:
    def __init__(
        self,
        simulator: Simulator,
        module: Module,
        program: Program,
        grid: Dim3,
        block: Dim3,
        args: bytes | Sequence[Argument],
        lds_dynamic: int,
        stack: int,
    ) -> None:
        target = simulator.target
        _check_dim("grid", grid, (1 << 32) - 1)
        _check_dim("block", block, 1024)
        self.items = block[0] * block[1] * block[2]
        metadata = program.kernel.metadata
        limit = min(target.max_workgroup_size, metadata.max_flat_workgroup_size if metadata else 1024)
        if self.items > limit:
            raise SimulatorError(f"block {block} has {self.items} work-items; the kernel allows {limit}")
        if metadata and metadata.reqd_workgroup_size and tuple(metadata.reqd_workgroup_size) != tuple(block):
            raise SimulatorError(f"block {block}: the kernel requires {tuple(metadata.reqd_workgroup_size)}")
        self.simulator, self.module, self.program = simulator, module, program
        self.kernel: Kernel = program.kernel
        self.grid, self.block = grid, block
        self.wave_count = (self.items + 63) // 64
        d = self.kernel.descriptor
        self.lds_bytes = d.group_segment_fixed_size + lds_dynamic
        if lds_dynamic < 0 or self.lds_bytes > target.lds_bytes:
            raise SimulatorError(
                f"{self.lds_bytes} bytes of LDS are needed, {target.name} has {target.lds_bytes} for a workgroup"
            )
        self.lds_dynamic = lds_dynamic
        self.records = program.records
        self.monitor: Monitor | None = None
        if not 0 <= stack <= _MAX_STACK:
            raise SimulatorError(f"a stack of {stack} bytes; 0 to {_MAX_STACK} are possible")
        fixed = d.private_segment_fixed_size
        # a lane's scratch is whole dwords, here quads so that 16-byte accesses do not pass the end
        self.scratch_bytes = max(fixed, (stack + 15) // 16 * 16) if d.uses_dynamic_stack else fixed
        self._temporary: list[Allocation] = []
        self.kernarg = self._kernarg(args)

    # ---- memory of the launch
    def _temporary_allocation(self, size: int, name: str) -> Allocation:
        allocation = self.simulator.memory.allocate(size, name, read_only=True)
        self._temporary.append(allocation)
        return allocation

    def close(self) -> None:
        """Frees what the launch allocated."""
        for allocation in self._temporary:
            self.simulator.memory.free(allocation)
        self._temporary.clear()

    def _kernarg(self, args: bytes | Sequence[Argument]) -> bytes:
        metadata = self.kernel.metadata
        size = self.kernel.descriptor.kernarg_size
        if metadata:
            size = max(size, metadata.kernarg_segment_size)
        if size > _MAX_KERNARG:
            raise SimulatorError(f"a kernarg segment of {size} bytes; at most {_MAX_KERNARG} are allowed")
        if isinstance(args, (bytes, bytearray)):
            if len(args) > size and size:
                raise SimulatorError(f"{len(args)} bytes of arguments; the kernarg segment has {size}")
            segment = bytearray(args) + bytes(max(0, size - len(args)))
        else:
            if metadata is None:
                raise SimulatorError("the kernel has no metadata: give the arguments as bytes of the kernarg segment")
            explicit = metadata.explicit_args
            if len(args) != len(explicit):
                names = ", ".join(a.name or a.value_kind for a in explicit)
                raise SimulatorError(f"{len(args)} arguments; the kernel takes {len(explicit)}: {names}")
            segment = bytearray(size)
            for value, argument in zip(args, explicit, strict=True):
                data = _pack(value, argument)
                segment[argument.offset : argument.offset + argument.size] = data
        if metadata:
            for argument in metadata.args:
                value = self._hidden(argument.value_kind) if argument.hidden else None
                if value is not None:
                    data = value.to_bytes(8, "little")[: argument.size]
                    segment[argument.offset : argument.offset + argument.size] = data
        return bytes(segment)

    def _hidden(self, kind: str) -> int | None:
        """Value of a hidden argument; ``None`` for those that stay zero. [LLVM AMDGPUUsage, "Kernel Argument Metadata"]"""
        axis = {"x": 0, "y": 1, "z": 2}.get(kind[-1], 0)
        name = kind.removeprefix("hidden_")
        if name.startswith("block_count_"):
            return self.grid[axis]
        if name.startswith("group_size_"):
            return self.block[axis]
        values = {
            "grid_dims": max((i + 1 for i in range(3) if self.grid[i] * self.block[i] > 1), default=1),
            "dynamic_lds_size": self.lds_dynamic,
            "shared_base": SHARED_APERTURE,
            "private_base": PRIVATE_APERTURE,
        }
        return values.get(name)

    def watch(self, monitor: Monitor) -> None:
        """Runs under checks, on the records that were made for them."""
        self.monitor, self.records = monitor, monitor.records

    # ---- state
    def prepare(self, max_instructions: int, strict_barriers: bool) -> None:
        """Builds the memory image of the workgroup and its waves."""
        d = self.kernel.descriptor
        engine_ = self.simulator.engine
        size = self.scratch_bytes
        self.waves = _aligned(self.wave_count * state.WAVE_BYTES).reshape(self.wave_count, state.WAVE_BYTES)
        self.workgroup = _aligned(state.WG_BYTES)
        self.lds = _aligned(-(-max(self.lds_bytes, 1) // 4) * 4 + 64)  # whole dwords
        self.poison = np.zeros(self.lds_bytes // 4 + 64, np.uint8)
        self.scratch = reserve(self.wave_count * 64 * size)
        # Compilers load arguments in pieces of up to 16 bytes, which may reach past the last one; the segment that a
        # runtime provides is therefore at least a whole number of them (LLVM AMDGPUUsage, kernarg segment alignment 16).
        kernarg = self._temporary_allocation(-(-len(self.kernarg) // 16) * 16, "kernel arguments")
        kernarg.write(self.kernarg)
        packet = self._temporary_allocation(64, "dispatch packet")
        packet.write(self._packet(kernarg.address))
        queue = self._temporary_allocation(256, "queue")
        self.table = self.simulator.memory.table()
        entry = self.kernel.preloaded_entry_address
        if entry not in self.program.starts:
            raise SimulatorError(
                f"the entry {entry:#x} of kernel '{self.kernel.name}' is not the start of an instruction"
            )

        head = bytearray(state.VGPR)
        struct.pack_into("<128I", head, 0, *[GARBAGE] * 128)
        struct.pack_into("<IIQ", head, state.M0, GARBAGE, GARBAGE, 0)

        fields = {
            "private_segment_buffer": bytes(16),
            "dispatch_ptr": struct.pack("<Q", packet.address),
            "queue_ptr": struct.pack("<Q", queue.address),
            "kernarg_segment_ptr": struct.pack("<Q", kernarg.address),
            "dispatch_id": bytes(8),
            "flat_scratch_init": bytes(8),
            "private_segment_size": struct.pack("<I", size),
        }
        for name, first, count in d.user_sgprs():
            if name == "kernarg_preload":
                start = 4 * d.kernarg_preload_offset
                fields[name] = self.kernarg[start : start + 4 * count].ljust(4 * count, b"\0")
            head[4 * first : 4 * (first + count)] = fields[name]
        mode = (d.rsrc1 >> 12 & 0xFF) | d.dx10_clamp << 8 | d.ieee_mode << 9 | d.fp16_overflow << 23
        struct.pack_into("<I", head, state.MODE, mode)
        struct.pack_into(
            "<Q", head, state.CURRENT, self.records.pointer(self.records.numbers[self.program.base + entry])
        )
        struct.pack_into("<Q", head, state.WORKGROUP, self.workgroup.ctypes.data)
        struct.pack_into("<Q", head, state.HELPERS, engine_.helper_table)
        struct.pack_into("<Q", head, state.SHARED_BASE, SHARED_APERTURE << 32)
        struct.pack_into("<Q", head, state.SHARED_LIMIT, SHARED_APERTURE << 32 | 0xFFFFFFFF)
        struct.pack_into("<Q", head, state.PRIVATE_BASE, PRIVATE_APERTURE << 32)
        struct.pack_into("<Q", head, state.PRIVATE_LIMIT, PRIVATE_APERTURE << 32 | 0xFFFFFFFF)
        struct.pack_into("<Q", head, state.SCRATCH_BYTES, size)
        self.head = np.frombuffer(bytes(head), np.uint8)

        program = self.program
        values = {
            state.WG_LDS: self.lds.ctypes.data,
            state.WG_LDS_SIZE: self.lds_bytes,
            state.WG_LDS_POISON: self.poison.ctypes.data,
            state.WG_WAVES: self.waves.ctypes.data,
            state.WG_WAVE_COUNT: self.wave_count,
            state.WG_ALLOCATIONS: self.table.ctypes.data,
            state.WG_ALLOCATION_COUNT: len(self.table),
            state.WG_CODE_BASE: program.base + program.code_start,
            state.WG_CODE_BYTES: program.code_bytes,
            state.WG_CODE_MAP: program.code_map.ctypes.data,
            state.WG_RECORDS: self.records.first,
            state.WG_SLICE: _TIME_SLICE,
            state.WG_STRICT_BARRIERS: int(strict_barriers),
        }
        for offset, value in values.items():
            self.workgroup[offset : offset + 8] = np.array([value], np.uint64).view(np.uint8)
        self.max_instructions, self.strict_barriers = max_instructions, strict_barriers
        self._work_items()

    def _packet(self, kernarg: int) -> bytes:
        """The AQL kernel dispatch packet. [HSA runtime specification, hsa_kernel_dispatch_packet_t]"""
        x, y, z = self.block
        gx, gy, gz = (g * b & 0xFFFFFFFF for g, b in zip(self.grid, self.block, strict=True))
        entry = self.module.image.address + self.kernel.entry_address
        sizes = (self.scratch_bytes, self.lds_bytes)
        return struct.pack("<6H3I2I4Q", 2, 3, x, y, z, 0, gx, gy, gz, *sizes, entry, kernarg, 0, 0)

    def _work_items(self) -> None:
        """VGPR0 of all waves, x | y << 10 | z << 20, and the masks of existing lanes."""
        d = self.kernel.descriptor
        x, y, _ = self.block
        item = np.arange(self.wave_count * 64, dtype=np.uint32)
        ids = item % x
        if d.workitem_id >= 1:
            ids |= item // x % y << 10
        if d.workitem_id >= 2:
            ids |= item // (x * y) << 20
        self.ids = ids.reshape(self.wave_count, 64)
        full, rest = divmod(self.items, 64)
        masks = [(1 << 64) - 1] * full + ([(1 << rest) - 1] if rest else [])
        self.exec_masks = np.array(masks, np.uint64)

    def _reset(self, workgroup: Dim3) -> None:
        d = self.kernel.descriptor
        waves = self.waves
        waves[:, : state.VGPR] = self.head
        words = waves.view(np.uint32)
        words[:, state.VGPR // 4 : state.VGPR // 4 + 64 * d.accum_offset] = GARBAGE
        accumulators = d.vgpr_count - d.accum_offset
        words[:, state.AGPR // 4 : state.AGPR // 4 + 64 * accumulators] = GARBAGE
        words[:, state.VGPR // 4 : state.VGPR // 4 + 64] = self.ids
        quads = waves.view(np.uint64)
        quads[:, state.EXEC // 8] = self.exec_masks
        quads[:, state.SCRATCH // 8] = self.scratch.ctypes.data + np.arange(self.wave_count, dtype=np.uint64) * (
            64 * self.scratch_bytes
        )
        words[:, state.HW_ID // 4] = np.arange(self.wave_count)
        sgpr = d.user_sgpr_count
        enabled = (d.enable_sgpr_workgroup_id_x, d.enable_sgpr_workgroup_id_y, d.enable_sgpr_workgroup_id_z)
        for on, value in zip(enabled, workgroup, strict=True):
            if on:
                words[:, sgpr] = value
                sgpr += 1
        self.lds.view(np.uint32)[:] = GARBAGE
        self.poison[:] = 0
        self.workgroup.view(np.uint32)[state.WG_LDS_PENDING // 4] = 0
        self.workgroup.view(np.uint64)[state.WG_BUDGET // 8] = self.max_instructions

    def run(self, workgroups: Iterable[Dim3] | None) -> Statistics:
        statistics = Statistics()
        before = self.records.counts().copy()
        run_workgroup = self.simulator.engine.run_workgroup
        address = self.workgroup.ctypes.data
        gx, gy, gz = self.grid
        chosen = (
            workgroups
            if workgroups is not None
            else ((x, y, z) for z in range(gz) for y in range(gy) for x in range(gx))
        )
        monitor = self.monitor
        if monitor:
            if workgroups is not None:
                chosen = list(workgroups)
                monitor.attach(len(chosen))
            else:
                monitor.attach(gx * gy * gz)
        for workgroup in chosen:
            if len(workgroup) != 3 or any(not 0 <= w < g for w, g in zip(workgroup, self.grid, strict=True)):
                raise SimulatorError(f"workgroup {workgroup} is outside the grid {self.grid}")
            self._reset(workgroup)
            result = monitor.run(workgroup) if monitor else run_workgroup(address)
            if result:
                fault = report.fault(self, result & 0xFF, result >> 8, workgroup)
                fault.findings = monitor.finish() if monitor else []
                raise fault
            statistics.workgroups += 1
            statistics.waves += self.wave_count
            left = int(self.workgroup.view(np.uint64)[state.WG_BUDGET // 8])
            statistics.instructions += self.max_instructions - left
        counts = self.records.counts() - before
        addresses = self.program.addresses
        statistics.executions = {addresses[i]: int(counts[i]) for i in np.flatnonzero(counts[: len(addresses)])}
        if monitor:
            statistics.findings = monitor.finish()
        return statistics


def _pack(value: Argument, argument: KernelArg) -> bytes:
    """An argument as bytes of the kernarg segment."""
    name, size = argument.name or argument.value_kind, argument.size
    if isinstance(value, Allocation):
        value = value.address
    if isinstance(value, np.generic):
        value = value.tobytes()
    if isinstance(value, bytes):
        if len(value) != size:
            raise SimulatorError(f"argument '{name}' has {size} bytes, {len(value)} were given")
        return value
    if isinstance(value, float):
        if size not in (2, 4, 8):
            raise SimulatorError(f"argument '{name}' of {size} bytes cannot be a float")
        return struct.pack({2: "<e", 4: "<f", 8: "<d"}[size], value)
    if not -(1 << (8 * size - 1)) <= value < 1 << 8 * size:
        raise SimulatorError(f"argument '{name}': {value} does not fit into {size} bytes")
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
