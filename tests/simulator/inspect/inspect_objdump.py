"""Counting in the text that llvm-objdump prints: an account of the code that shares nothing with our decoder."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(r"^\t(\S+)(.*?)\s*// ([0-9A-F]+): ((?:[0-9A-F]{8} ?)+)(?:<(.+)\+0x([0-9a-f]+)>)?")
_SYMBOL = re.compile(r"^([0-9a-f]+) <(.+)>:$")


@dataclass(frozen=True)
class Line:
    """One line of the listing; `target` is the address of a branch target, if the line names one."""

    address: int
    name: str
    operands: str
    target: int | None


def listing(tool: str, data: bytes, chip: str, folder: Path) -> list[Line]:
    """All instructions of a code object with one kernel."""
    file = folder / "k.hsaco"
    file.write_bytes(data)
    command = [tool, "-d", f"--mcpu={chip}", str(file)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    symbols = {m[2]: int(m[1], 16) for line in out.splitlines() if (m := _SYMBOL.match(line))}
    lines: list[Line] = []
    for text in out.splitlines():
        match = _LINE.match(text)
        if match:
            target = symbols[match[5]] + int(match[6], 16) if match[5] else None
            lines.append(Line(int(match[3], 16), match[1], match[2].strip(), target))
    return lines


def loops(lines: list[Line]) -> dict[int, list[Line]]:
    """Header address to the lines from there to the last branch back to it. (A branch back to an s_endpgm closes none.)"""
    found: dict[int, list[Line]] = {}
    ends = {line.address for line in lines if line.name == "s_endpgm"}
    for line in lines:
        if line.target is not None and line.target <= line.address and line.target not in ends:
            found[line.target] = [other for other in lines if line.target <= other.address <= line.address]
    return found


def number(lines: list[Line], pattern: str) -> int:
    """How many mnemonics match from their beginning."""
    return sum(bool(re.match(pattern, line.name)) for line in lines)
