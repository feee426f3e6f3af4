"""A code object: the chip it is for, its kernels, its loadable image, its line numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType

from tileir import target
from tileir.codeobject.descriptor import DESCRIPTOR_SIZE, KernelDescriptor, decode_descriptor
from tileir.codeobject.dwarf import LineTable, read_line_table
from tileir.codeobject.elf import ET_REL, SHF_ALLOC, SHN_LORESERVE, SHN_UNDEF, STT_FUNC, Elf, Section, Segment, Symbol
from tileir.codeobject.errors import CodeObjectError
from tileir.codeobject.metadata import NOTE_OWNER, NT_AMDGPU_METADATA, KernelMetadata, parse_kernels
from tileir.codeobject.msgpack import Value, decode
from tileir.codeobject.reader import Reader
from tileir.records import dataclass

_VERSION_OF_ABI = {1: 3, 2: 4, 3: 5, 4: 6}  # EI_ABIVERSION to code object version (LLVM AMDGPUUsage)
_OLDEST_VERSION = 4  # the xnack and sramecc fields of the flags are as below from version 4 on
_MODES = ("unsupported", "any", "off", "on")  # of the two-bit xnack and sramecc fields
_DESCRIPTOR_SUFFIX = ".kd"
_PRELOAD_PROLOGUE_BYTES = 256  # code before the entry that preloading hardware takes (LLVM AMDGPUUsage)


@dataclass(frozen=True)
class Kernel:
    """A kernel of a code object.

    `entry_address` is the memory address of the first instruction (in an unlinked object: the offset in its section).
    `metadata` is None for an object without an `amdhsa` note (hand assembly).
    """

    name: str
    descriptor: KernelDescriptor
    metadata: KernelMetadata | None
    entry_address: int
    code_size: int
    file: bytes
    code_offset: int

    @property
    def preloaded_entry_address(self) -> int:
        """Where a kernel starts when its kernarg preload registers are filled on launch.

        A kernel that uses the preload begins with 256 bytes that load these registers from memory, for firmware that
        does not preload; firmware that does starts behind them. Equal to `entry_address` without preload.
        """
        skipped = _PRELOAD_PROLOGUE_BYTES if self.descriptor.kernarg_preload_length else 0
        return self.entry_address + skipped

    @property
    def code(self) -> bytes:
        """The instruction bytes from the entry to the end of the kernel's symbol."""
        return self.file[self.code_offset : self.code_offset + self.code_size]


@cache
def _machine_names() -> Mapping[int, str]:
    table = json.loads(Path(__file__).with_name("machines.json").read_text("utf-8"))
    return MappingProxyType({int(number, 16): str(name) for number, name in table["machines"].items()})


class CodeObject:
    """A parsed AMDGPU code object; use `CodeObject.from_bytes`."""

    def __init__(self, elf: Elf) -> None:
        self.elf = elf
        self.data = elf.data
        version = _VERSION_OF_ABI.get(elf.abi_version)
        if version is None or version < _OLDEST_VERSION:
            raise CodeObjectError(f"code object ABI version {elf.abi_version}; versions 4 to 6 are supported", 8)
        self.code_object_version: int = version
        self.target = self._find_target()
        self.xnack: str = _MODES[elf.flags >> 8 & 3]
        self.sramecc: str = _MODES[elf.flags >> 10 & 3]
        self.segments: tuple[Segment, ...] = elf.segments
        self.symbols: tuple[Symbol, ...] = elf.symbols
        self.metadata: Value = self._read_metadata()
        self.kernels: Mapping[str, Kernel] = MappingProxyType(self._find_kernels())

    @classmethod
    def from_bytes(cls, data: bytes) -> CodeObject:
        """Parse `data`; raises `CodeObjectError` (message and byte offset) for anything that is not well formed."""
        return cls(Elf(bytes(data)))

    @property
    def chip(self) -> str:
        """Name of the chip, such as `gfx950`."""
        return self.target.name

    @property
    def linked(self) -> bool:
        """Whether this is a loadable (shared) object rather than a relocatable one."""
        return self.elf.type != ET_REL

    def _find_target(self) -> target.Target:
        machine = self.elf.flags & 0xFF
        for name in target.names():
            if target.get(name).elf_mach == machine:
                return target.get(name)
        found = _machine_names().get(machine, f"an unknown machine {machine:#x}")
        raise CodeObjectError(f"code object for {found}; supported: {', '.join(target.names())}", self.elf.flags_offset)

    def _read_metadata(self) -> Value:
        notes = [n for n in self.elf.notes if n.name == NOTE_OWNER and n.type == NT_AMDGPU_METADATA]
        if len(notes) > 1:
            raise CodeObjectError("more than one amdhsa metadata note", notes[1].offset)
        self._metadata_offset = notes[0].offset if notes else 0
        return decode(self.data, notes[0].offset, notes[0].offset + notes[0].size) if notes else None

    def _section_of(self, symbol: Symbol) -> Section:
        if symbol.section == SHN_UNDEF or symbol.section >= min(SHN_LORESERVE, len(self.elf.sections)):
            raise CodeObjectError(f"symbol '{symbol.name}' lies in no section of the file")
        return self.elf.sections[symbol.section]

    def _locate(self, symbol: Symbol, size: int) -> int:
        """File offset of `size` bytes at `symbol`."""
        if self.linked:
            at = self.elf.file_offset(symbol.value, size)
        else:
            section = self._section_of(symbol)
            at = section.offset + symbol.value if symbol.value + size <= section.size else None
        if at is None:
            raise CodeObjectError(f"symbol '{symbol.name}' ({size} bytes) lies outside the loaded file contents")
        return at

    def _find_kernels(self) -> dict[str, Kernel]:
        ordered = sorted(self.symbols, key=lambda s: s.binding)  # a global symbol wins over a local of the same name
        by_name = {s.name: s for s in ordered if s.section != SHN_UNDEF}
        described: dict[str, KernelMetadata | None] = {}
        if self.metadata is not None:
            for kernel in parse_kernels(self.metadata, self._metadata_offset):
                if kernel.symbol not in by_name:
                    raise CodeObjectError(
                        f"no symbol '{kernel.symbol}' for kernel '{kernel.name}'", self._metadata_offset
                    )
                described[kernel.symbol] = kernel
        else:
            names = [n for n in by_name if n.endswith(_DESCRIPTOR_SUFFIX) and by_name[n].size == DESCRIPTOR_SIZE]
            described = dict.fromkeys(names)
        functions = {s.value: s for s in by_name.values() if s.type == STT_FUNC and s.size}
        kernels: dict[str, Kernel] = {}
        for symbol_name, metadata in described.items():
            name = metadata.name if metadata else symbol_name.removesuffix(_DESCRIPTOR_SUFFIX)
            kernels[name] = self._kernel(name, by_name[symbol_name], metadata, by_name, functions)
        return kernels

    def _kernel(
        self,
        name: str,
        symbol: Symbol,
        metadata: KernelMetadata | None,
        by_name: Mapping[str, Symbol],
        functions: Mapping[int, Symbol],
    ) -> Kernel:
        at = self._locate(symbol, DESCRIPTOR_SIZE)
        descriptor = decode_descriptor(self.data, at, self.target)
        own = by_name.get(symbol.name.removesuffix(_DESCRIPTOR_SUFFIX))
        if self.linked:
            entry = symbol.value + descriptor.entry_byte_offset
            code = own if own is not None and own.value == entry else functions.get(entry)
            if code is None or code.size == 0:
                code = self._code_without_size(name, entry, at)
        else:  # the entry offset waits for the linker; the function symbol says where the code is
            if own is None or own.size == 0:
                raise CodeObjectError(f"no symbol with a size for the code of kernel '{name}'", at)
            entry, code = own.value, own
        offset = self._locate(code, code.size)
        if self.linked and not any(s.executable and s.vaddr <= entry < s.vaddr + s.filesize for s in self.segments):
            raise CodeObjectError(f"kernel '{name}' starts at {entry:#x}, which is not executable", at + 16)
        return Kernel(name, descriptor, metadata, entry, code.size, self.data, offset)

    def _code_without_size(self, name: str, entry: int, descriptor_at: int) -> Symbol:
        """Stand-in for the missing symbol (or size) of hand-written assembly: up to the end of the section."""
        for index, section in enumerate(self.elf.sections):
            if section.flags & SHF_ALLOC and section.address <= entry < section.address + section.size:
                return Symbol(name, entry, section.address + section.size - entry, STT_FUNC, 0, 0, index)
        raise CodeObjectError(f"kernel '{name}' starts at {entry:#x}, where the file has no code", descriptor_at + 16)

    def section(self, name: str) -> bytes | None:
        """Contents of section `name`, or None if there is no such section."""
        return self.elf.section_bytes(name)

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes of the loaded image at `address`, zero-filled beyond the file; `CodeObjectError` outside it."""
        for segment in self.segments:
            if segment.vaddr <= address and size >= 0 and address + size <= segment.vaddr + segment.memsize:
                start = address - segment.vaddr
                held = segment.data[start : start + size]
                return held + b"\0" * (size - len(held))
        raise CodeObjectError(f"no {size} bytes are loaded at {address:#x}")

    @cached_property
    def line_table(self) -> LineTable:
        """Line numbers from `.debug_line`, empty without that section; `CodeObjectError` when it is malformed."""
        section = self.elf.section(".debug_line")
        if section is None or self.section(".debug_line") is None:
            return LineTable([])
        if not self.linked:
            raise CodeObjectError("the line table of an unlinked object has no addresses yet; link it first")
        cached: dict[tuple[str, int], str] = {}

        def string(table: str, offset: int) -> str:
            if (table, offset) not in cached:
                holder = self.elf.section(table)
                if holder is None or self.section(table) is None or offset >= holder.size:
                    raise CodeObjectError(f"line table refers to byte {offset} of '{table}', which is not there")
                end = holder.offset + holder.size
                cached[table, offset] = Reader(self.data, holder.offset + offset, end, table).text(self.elf.budget)
            return cached[table, offset]

        return read_line_table(self.data, (section.offset, section.size), string, self.elf.budget)

    def kernel(self, name: str) -> Kernel:
        """Kernel `name`; `CodeObjectError` that lists the kernels there are."""
        if name not in self.kernels:
            known = ", ".join(self.kernels) or "none"
            raise CodeObjectError(f"no kernel '{name}'; the code object has: {known}")
        return self.kernels[name]
