"""ELF64 as AMDGPU uses it: header, sections, segments, symbols, notes, read without external tools.

Sources: the System V ABI (ELF-64 object file format) for the containers, LLVM's AMDGPUUsage for the machine, ABI and
flag values. All reads are bounds checked; work and memory stay proportional to the file size.
"""

from __future__ import annotations

import struct

from tileir.codeobject.errors import CodeObjectError
from tileir.codeobject.reader import Reader, StringBudget
from tileir.records import dataclass

EM_AMDGPU = 224
ELFOSABI_AMDGPU_HSA = 64
ET_REL, ET_DYN = 1, 3
PT_LOAD, PT_NOTE = 1, 4
PF_X, PF_W, PF_R = 1, 2, 4
SHT_SYMTAB, SHT_NOTE, SHT_NOBITS, SHT_DYNSYM = 2, 7, 8, 11
SHN_UNDEF, SHN_LORESERVE = 0, 0xFF00
SHF_ALLOC, SHF_COMPRESSED = 0x2, 0x800
STT_FUNC = 2

MAX_IMAGE_BYTES = 1 << 30  # the loaded image of a code object; a larger one is refused rather than allocated

_IDENT_SIZE = 16
_EHDR = struct.Struct("<HHIQQQIHHHHHH")
_SHDR = struct.Struct("<IIQQQQIIQQ")
_PHDR = struct.Struct("<IIQQQQQQ")
_SYM = struct.Struct("<IBBHQQ")
_NOTE = struct.Struct("<III")
_EHDR_FLAGS_OFFSET = 0x30
_OFFLOAD_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"


@dataclass(frozen=True)
class Section:
    """A section: where it is in the file (`offset`, `size` bytes; none for SHT_NOBITS) and in memory (`address`)."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    entry_size: int


@dataclass(frozen=True)
class Segment:
    """A loadable segment: `data` goes to `vaddr`, and zeros follow up to `memsize` bytes."""

    vaddr: int
    memsize: int
    flags: int
    file: bytes
    offset: int
    filesize: int

    @property
    def data(self) -> bytes:
        """The bytes that the file provides (`filesize` of them)."""
        return self.file[self.offset : self.offset + self.filesize]

    @property
    def executable(self) -> bool:
        """Whether code may run here."""
        return bool(self.flags & PF_X)

    @property
    def writable(self) -> bool:
        """Whether the kernel may write here."""
        return bool(self.flags & PF_W)


@dataclass(frozen=True)
class Symbol:
    """A symbol. In a linked object `value` is an address, in a relocatable one an offset into section `section`."""

    name: str
    value: int
    size: int
    type: int
    binding: int
    visibility: int
    section: int


@dataclass(frozen=True)
class Note:
    """A note: owner name, type, and the file range of its description."""

    name: str
    type: int
    offset: int
    size: int


class Elf:
    """A parsed ELF64 file for AMDGPU; raises `CodeObjectError` from the constructor when it is malformed."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.budget = StringBudget(len(data))
        self._read_header()
        self.sections = self._read_sections()
        self.segments, note_ranges = self._read_segments()
        self.symbols = self._read_symbols()
        self.notes = self._read_notes(note_ranges)

    def _read_header(self) -> None:
        data = self.data
        if data.startswith(_OFFLOAD_BUNDLE_MAGIC):
            raise CodeObjectError("this is an offload bundle; extract the code object of one device from it first", 0)
        if data[:4] != b"\x7fELF":
            raise CodeObjectError("not an ELF file", 0)
        reader = Reader(data, 0, len(data), "ELF header")
        ident = reader.take(_IDENT_SIZE)
        if ident[4] != 2 or ident[5] != 1:
            raise CodeObjectError("not a 64-bit little-endian ELF file", 4)
        (
            self.type,
            machine,
            _version,
            self.entry,
            self._phoff,
            self._shoff,
            self.flags,
            _ehsize,
            self._phentsize,
            self._phnum,
            self._shentsize,
            self._shnum,
            self._shstrndx,
        ) = reader.unpack(_EHDR)
        if machine != EM_AMDGPU:
            raise CodeObjectError(f"ELF machine {machine} is not AMDGPU ({EM_AMDGPU})", 18)
        self.os_abi, self.abi_version = ident[7], ident[8]
        if self.os_abi != ELFOSABI_AMDGPU_HSA:
            raise CodeObjectError(f"OS ABI {self.os_abi} is not AMDGPU HSA ({ELFOSABI_AMDGPU_HSA})", 7)
        if self.type not in (ET_REL, ET_DYN):
            raise CodeObjectError(f"ELF type {self.type} is neither a shared nor a relocatable object", 16)

    @property
    def flags_offset(self) -> int:
        """File offset of the machine flags, for messages about them."""
        return _EHDR_FLAGS_OFFSET

    def _read_sections(self) -> tuple[Section, ...]:
        if self._shoff == 0:
            return ()
        if self._shentsize != _SHDR.size:
            raise CodeObjectError(f"section headers of {self._shentsize} bytes", 0x3A)
        reader = Reader(self.data, self._shoff, len(self.data), "section header table")
        first = reader.unpack(_SHDR)
        # A count or index that does not fit the header stands in section header 0.
        count = self._shnum or first[5]
        names_index = self._shstrndx if self._shstrndx < SHN_LORESERVE else first[6]
        if count == 0:
            return ()
        if (count - 1) * _SHDR.size > reader.remaining:
            raise CodeObjectError(f"{count} section headers do not fit the file", self._shoff)
        raw = [first, *(reader.unpack(_SHDR) for _ in range(count - 1))]
        if names_index >= count:
            raise CodeObjectError(f"section name table index {names_index} of {count} sections", 0x3E)
        names = raw[names_index]
        result: list[Section] = []
        for index, fields in enumerate(raw):
            name, kind, flags, address, offset, size, link, info, _align, entry_size = fields
            at = self._shoff + index * _SHDR.size
            # The fields of section header 0 belong to the extended numbering and describe no bytes.
            if index and kind != SHT_NOBITS and offset + size > len(self.data):
                raise CodeObjectError(f"section {index} lies outside the file", at)
            text = self._string(names, name, "section name") if names_index else ""
            result.append(Section(text, kind, flags, address, offset, size, link, info, entry_size))
        return tuple(result)

    def _string(self, table: tuple[int, ...], index: int, what: str) -> str:
        offset, size = table[4], table[5]
        if table[1] == SHT_NOBITS or index >= max(size, 1):
            raise CodeObjectError(f"{what}: index {index} is outside its string table", offset)
        if size == 0:
            return ""
        return Reader(self.data, offset + index, offset + size, what).text(self.budget)

    def _read_segments(self) -> tuple[tuple[Segment, ...], list[tuple[int, int]]]:
        if self._phnum == 0:
            return (), []
        if self._phentsize != _PHDR.size:
            raise CodeObjectError(f"program headers of {self._phentsize} bytes", 0x36)
        reader = Reader(self.data, self._phoff, len(self.data), "program header table")
        loads: list[Segment] = []
        notes: list[tuple[int, int]] = []
        end_of_last = 0
        for _ in range(self._phnum):
            at = reader.pos
            kind, flags, offset, vaddr, _paddr, filesize, memsize, _align = reader.unpack(_PHDR)
            if kind not in (PT_LOAD, PT_NOTE):
                continue
            if offset + filesize > len(self.data):
                raise CodeObjectError("segment lies outside the file", at)
            if kind == PT_NOTE:
                notes.append((offset, filesize))
                continue
            if memsize < filesize:
                raise CodeObjectError("segment is larger in the file than in memory", at)
            if vaddr < end_of_last:
                raise CodeObjectError("loadable segments overlap or are not in ascending order", at)
            end_of_last = vaddr + memsize
            if end_of_last > MAX_IMAGE_BYTES:
                raise CodeObjectError(f"the loaded image would exceed {MAX_IMAGE_BYTES} bytes", at)
            loads.append(Segment(vaddr, memsize, flags, self.data, offset, filesize))
        return tuple(loads), notes

    def _read_symbols(self) -> tuple[Symbol, ...]:
        result: dict[tuple[str, int, int], Symbol] = {}
        for wanted in (SHT_SYMTAB, SHT_DYNSYM):
            tables = [s for s in self.sections if s.type == wanted]
            if len(tables) > 1:
                raise CodeObjectError("more than one symbol table of a kind", tables[1].offset)
            for table in tables:
                for symbol in self._read_symbol_table(table):
                    result.setdefault((symbol.name, symbol.value, symbol.section), symbol)
        return tuple(result.values())

    def _read_symbol_table(self, table: Section) -> list[Symbol]:
        if table.entry_size != _SYM.size or table.size % _SYM.size:
            raise CodeObjectError(f"symbol table with entries of {table.entry_size} bytes", table.offset)
        if table.link >= len(self.sections):
            raise CodeObjectError(f"symbol table names section {table.link} as its strings", table.offset)
        strings = self.sections[table.link]
        names = (0, strings.type, 0, 0, strings.offset, strings.size)
        reader = Reader(self.data, table.offset, table.offset + table.size, "symbol table")
        result: list[Symbol] = []
        for index in range(table.size // _SYM.size):
            name, info, other, section, value, size = reader.unpack(_SYM)
            if index == 0:
                continue  # the reserved undefined symbol
            text = self._string(names, name, "symbol name")
            result.append(Symbol(text, value, size, info & 0xF, info >> 4, other & 3, section))
        return result

    def _read_notes(self, ranges: list[tuple[int, int]]) -> tuple[Note, ...]:
        by_section = [(s.offset, s.size) for s in self.sections if s.type == SHT_NOTE]
        notes: list[Note] = []
        left = len(self.data)
        for offset, size in dict.fromkeys(by_section or ranges):
            left -= size
            if left < 0:
                raise CodeObjectError("note sections overlap", offset)
            notes += self._read_note_range(offset, size)
        return tuple(notes)

    def _read_note_range(self, offset: int, size: int) -> list[Note]:
        reader = Reader(self.data, offset, offset + size, "note section")
        notes: list[Note] = []
        while reader.remaining:
            name_size, desc_size, kind = reader.unpack(_NOTE)
            name_at = reader.need(name_size)
            reader.need(min(-name_size % 4, reader.remaining))
            desc_at = reader.need(desc_size)
            reader.need(min(-desc_size % 4, reader.remaining))
            raw = self.data[name_at : name_at + name_size].rstrip(b"\0")
            notes.append(Note(raw.decode("utf-8", "replace"), kind, desc_at, desc_size))
        return notes

    def section(self, name: str) -> Section | None:
        """The first section called `name`, if any."""
        return next((s for s in self.sections if s.name == name), None)

    def section_bytes(self, name: str) -> bytes | None:
        """Contents of the first section called `name`; None if there is none, or if it has no bytes in the file."""
        section = self.section(name)
        if section is None or section.type == SHT_NOBITS:
            return None
        if section.flags & SHF_COMPRESSED:
            raise CodeObjectError(f"section '{name}' is compressed", section.offset)
        return self.data[section.offset : section.offset + section.size]

    def file_offset(self, address: int, size: int) -> int | None:
        """File offset of the `size` bytes at memory `address`; None when the file does not hold all of them."""
        for segment in self.segments:
            if segment.vaddr <= address and address + size <= segment.vaddr + segment.filesize:
                return segment.offset + address - segment.vaddr
        return None


def encode_note(name: str, kind: int, description: bytes) -> bytes:
    """One ELF note record (owner `name`, type `kind`), padded to 4 bytes."""
    owner = name.encode("utf-8") + b"\0"
    head = _NOTE.pack(len(owner), len(description), kind)
    return head + owner + b"\0" * (-len(owner) % 4) + description + b"\0" * (-len(description) % 4)
