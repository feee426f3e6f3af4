"""Reading `.debug_line` of DWARF 2 to 5: machine address to file, line and column.

Source: the DWARF Debugging Information Format, version 5, section 6.2 (and version 4 for the older header). Every
opcode takes at least one byte and makes at most one row, so work and memory are linear in the section size.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from tileir.codeobject.errors import CodeObjectError
from tileir.codeobject.reader import Reader, StringBudget
from tileir.records import dataclass

_DW_LNCT_PATH, _DW_LNCT_DIRECTORY_INDEX = 1, 2
_FORM_STRING, _FORM_LINE_STRP, _FORM_STRP = 0x08, 0x1F, 0x0E
_FORM_SIZES = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x1E: 16}  # data1, data2, data4, data8, data16
_FORM_UDATA, _FORM_BLOCK = 0x0F, 0x09
_DWARF64_ESCAPE = 0xFFFFFFFF
_ADDRESS_MASK = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True)
class SourceLine:
    """A place in a source file; `line` counts from 1, `column` from 1 with 0 for 'not known'."""

    file: str
    line: int
    column: int


@dataclass(frozen=True)
class LineRow:
    """One row of the line table: the code from `address` up to the next row comes from `source` (None: no source)."""

    address: int
    source: SourceLine | None
    is_statement: bool


class LineTable:
    """Line numbers of a code object: sequences of rows, each covering a half-open address range."""

    def __init__(self, sequences: list[tuple[list[LineRow], int]]) -> None:
        ordered = sorted((s for s in sequences if s[0]), key=lambda s: s[0][0].address)
        self._starts = [rows[0].address for rows, _end in ordered]
        self._ends = [end for _rows, end in ordered]
        self._addresses = [[row.address for row in rows] for rows, _end in ordered]
        self._rows = [rows for rows, _end in ordered]

    @property
    def rows(self) -> tuple[LineRow, ...]:
        """All rows by ascending sequence."""
        return tuple(row for rows in self._rows for row in rows)

    def lookup(self, address: int) -> SourceLine | None:
        """The source of the instruction at `address`; None when no line covers it (or it has no source line)."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address >= self._ends[index]:
            return None
        row = bisect_right(self._addresses[index], address) - 1
        return self._rows[index][row].source

    def __len__(self) -> int:
        return sum(len(rows) for rows in self._rows)


@dataclass
class _Header:
    version: int
    address_size: int
    min_instruction_length: int
    default_is_statement: bool
    line_base: int
    line_range: int
    opcode_base: int
    opcode_lengths: list[int]
    files: list[str]
    first_file: int


class _Unit:
    """One line number program; the string sections of the file are shared by all."""

    def __init__(self, strings: Callable[[str, int], str], budget: StringBudget) -> None:
        self.strings = strings
        self.budget = budget

    def header(self, reader: Reader, offset_size: int) -> _Header:
        at = reader.pos
        version = reader.uint(2)
        if not 2 <= version <= 5:
            raise CodeObjectError(f"line table version {version}; versions 2 to 5 are supported", at)
        address_size = 8
        if version >= 5:
            address_size = reader.uint(1)
            if address_size not in (4, 8):
                raise CodeObjectError(f"line table with addresses of {address_size} bytes", reader.pos - 1)
            reader.uint(1)  # segment selector size
        header_length = reader.uint(offset_size)
        program = reader.pos + header_length
        if header_length > reader.remaining:
            raise CodeObjectError("line table header is longer than its unit", reader.pos)
        min_length = reader.uint(1)
        if version >= 4 and reader.uint(1) != 1:
            raise CodeObjectError("line table for a VLIW machine", reader.pos - 1)
        default_is_statement = bool(reader.uint(1))
        line_base, line_range, opcode_base = reader.sint8(), reader.uint(1), reader.uint(1)
        if line_range == 0 or opcode_base == 0:
            raise CodeObjectError("line table with line range or opcode base 0", reader.pos - 2)
        lengths = list(reader.take(opcode_base - 1))
        files = self._tables_v5(reader, offset_size) if version >= 5 else self._tables_v2(reader)
        reader.skip_to(program)
        first = 0 if version >= 5 else 1
        return _Header(
            version,
            address_size,
            min_length,
            default_is_statement,
            line_base,
            line_range,
            opcode_base,
            lengths,
            files,
            first,
        )

    def _tables_v2(self, reader: Reader) -> list[str]:
        directories = [""]
        while name := reader.text(self.budget):
            directories.append(name)
        files: list[str] = []
        while name := reader.text(self.budget):
            files.append(self._join(directories, reader.uleb128(), name, reader.pos))
            reader.uleb128()  # time of last modification
            reader.uleb128()  # length of the file
        return files

    def _tables_v5(self, reader: Reader, offset_size: int) -> list[str]:
        directories = [path for path, _index in self._entries(reader, offset_size)]
        at = reader.pos
        return [self._join(directories, index, path, at) for path, index in self._entries(reader, offset_size)]

    def _entries(self, reader: Reader, offset_size: int) -> list[tuple[str, int]]:
        formats = [(reader.uleb128(), reader.uleb128()) for _ in range(reader.uint(1))]
        at = reader.pos
        count = reader.uleb128()
        if count > reader.remaining or (count and not formats):
            raise CodeObjectError(f"line table with {count} file or directory entries", at)
        entries: list[tuple[str, int]] = []
        for _ in range(count):
            path, directory = "", 0
            for content, form in formats:
                value = self._form(reader, form, offset_size)
                if content == _DW_LNCT_PATH and isinstance(value, str):
                    path = value
                elif content == _DW_LNCT_DIRECTORY_INDEX and isinstance(value, int):
                    directory = value
            entries.append((path, directory))
        return entries

    def _form(self, reader: Reader, form: int, offset_size: int) -> str | int | None:
        at = reader.pos
        if form == _FORM_STRING:
            return reader.text(self.budget)
        if form in (_FORM_LINE_STRP, _FORM_STRP):
            section = ".debug_line_str" if form == _FORM_LINE_STRP else ".debug_str"
            return self.strings(section, reader.uint(offset_size))
        if form == _FORM_UDATA:
            return reader.uleb128()
        if form == _FORM_BLOCK:
            reader.need(reader.uleb128())
            return None
        if form in _FORM_SIZES:
            return reader.uint(_FORM_SIZES[form])
        raise CodeObjectError(f"line table uses the form {form:#x}", at)

    def _join(self, directories: list[str], index: int, name: str, at: int) -> str:
        if index >= len(directories):
            raise CodeObjectError(f"file '{name}' names directory {index} of {len(directories)}", at)
        directory = directories[index]
        path = name if name.startswith("/") or not directory else f"{directory}/{name}"
        self.budget.spend(len(path), at)
        return path

    def rows(self, reader: Reader, header: _Header) -> list[tuple[list[LineRow], int]]:
        """The sequences of the program that follows `header`, each with its end address."""
        sequences: list[tuple[list[LineRow], int]] = []
        current: list[LineRow] = []
        address, file, line, column, statement = 0, 1, 1, 0, header.default_is_statement
        places: dict[tuple[int, int, int], SourceLine | None] = {}

        def place() -> SourceLine | None:
            key = (file, line, column)
            if key not in places:
                index = file - header.first_file
                known = line > 0 and 0 <= index < len(header.files)
                places[key] = SourceLine(header.files[index], line, column) if known else None
            return places[key]

        def emit(at: int) -> None:
            if current and address < current[-1].address:
                raise CodeObjectError("line table: addresses of a sequence go backwards", at)
            current.append(LineRow(address, place(), statement))

        while reader.remaining:
            at = reader.pos
            opcode = reader.uint(1)
            if opcode >= header.opcode_base:
                adjusted = opcode - header.opcode_base
                address += adjusted // header.line_range * header.min_instruction_length
                line += header.line_base + adjusted % header.line_range
                emit(at)
            elif opcode == 0:
                length = reader.uleb128()
                if length == 0:
                    raise CodeObjectError("line table: empty extended opcode", at)
                stop = reader.pos + length
                extended = reader.uint(1)
                if extended == 1:  # end_sequence
                    if current and address < current[-1].address:
                        raise CodeObjectError("line table: a sequence ends before its last row", at)
                    sequences.append((current, address))
                    current = []
                    address, file, line, column, statement = 0, 1, 1, 0, header.default_is_statement
                elif extended == 2:  # set_address
                    size = stop - reader.pos
                    if size not in (4, 8):
                        raise CodeObjectError(f"line table: address of {size} bytes", at)
                    address = reader.uint(size)
                elif extended == 3:  # define_file (up to version 4)
                    header.files.append(reader.text(self.budget))
                reader.skip_to(stop)
            elif opcode == 1:  # copy
                emit(at)
            elif opcode == 2:  # advance_pc
                address += reader.uleb128() * header.min_instruction_length
            elif opcode == 3:  # advance_line
                line += reader.sleb128()
            elif opcode == 4:  # set_file
                file = reader.uleb128()
            elif opcode == 5:  # set_column
                column = reader.uleb128()
            elif opcode == 6:  # negate_stmt
                statement = not statement
            elif opcode == 8:  # const_add_pc
                address += (255 - header.opcode_base) // header.line_range * header.min_instruction_length
            elif opcode == 9:  # fixed_advance_pc
                address += reader.uint(2)
            elif opcode not in (7, 10, 11):  # basic_block, prologue_end, epilogue_begin: nothing to keep
                for _ in range(header.opcode_lengths[opcode - 1]):
                    reader.uleb128()
            address &= _ADDRESS_MASK
        if current:
            raise CodeObjectError("line table: the last sequence has no end", reader.pos)
        return sequences


def read_line_table(
    data: bytes, section: tuple[int, int], strings: Callable[[str, int], str], budget: StringBudget
) -> LineTable:
    """The line table in the file range `section` = (offset, size) of `data`.

    `strings(section name, offset)` reads a string of a string section. Raises `CodeObjectError` for malformed input.
    """
    offset, size = section
    reader = Reader(data, offset, offset + size, "line table")
    sequences: list[tuple[list[LineRow], int]] = []
    while reader.remaining:
        at = reader.pos
        length, offset_size = reader.uint(4), 4
        if length == _DWARF64_ESCAPE:
            length, offset_size = reader.uint(8), 8
        if length > reader.remaining:
            raise CodeObjectError(f"line table unit of {length} bytes in {reader.remaining}", at)
        inner = Reader(data, reader.pos, reader.pos + length, "line table")
        reader.skip_to(reader.pos + length)
        unit = _Unit(strings, budget)
        sequences += unit.rows(inner, unit.header(inner, offset_size))
    return LineTable(sequences)
