"""Accumulators in any registers of the accumulation file.

LLVM keeps values where empty assembly names registers, but in the accumulation file only from a0 on, where its allocator begins. All registers of
that file are alike, so the code is generated as if the pinned ones began at a0, one behind the other (`from_zero`), and then they are
renamed in the assembly (`renamed`), together with the others that the code uses. Runs of pinned registers go where the text pins them;
of the rest, registers that one instruction takes as a tuple stay together and at an even number, and move to where there is room.
Whether it went well is seen in the code object (E0866, `contract_pins.py`), not here.

Light to import: the code generation worker uses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tileir.ir.core import Kernel, Op

Moves = tuple[tuple[int, int, int], ...]
"""Runs of pinned registers: the first one in the generated code, the first one that the text says, and how many."""

# A register or tuple of the accumulation file in an instruction; not a part of a symbol.
_REGISTER = re.compile(r"(?<![\w.$@])a(?:(\d+)|\[(\d+):(\d+)\])(?![\w.$@])")


def moves(kernel: Kernel) -> Moves:
    """The moves of a kernel's pinned accumulators; none where they begin at a0 and leave no gaps."""
    runs = list(_runs(n for op in kernel.walk() for n in _pinned(op)))
    found: list[tuple[int, int, int]] = []
    below = 0
    for first, count in runs:
        found.append((below, first, count))
        below += count
    return tuple(found) if any(a != b for a, b, _ in found) else ()


def from_zero(kernel: Kernel, moved: Moves) -> Kernel:
    """The kernel with its pins where the generated code has them."""
    from tileir.ir.rewriter import Rewriter, rewrite

    def rule(rw: Rewriter, op: Op) -> bool:
        registers = _pinned(op)
        if not registers:
            return False
        first = next(a + registers[0] - b for a, b, count in moved if b <= registers[0] < b + count)
        rw.copy(op, attrs={**op.attrs, "pin": (first, first + len(registers) - 1)})
        return True

    return rewrite(kernel, rule)


def top(moved: Moves) -> int:
    """The last register to which the text pins."""
    return max(b + count for _, b, count in moved) - 1


def renamed(assembly: str, moved: Moves) -> str:
    """The assembly with the registers of the accumulation file renamed; as it is where that is impossible."""
    if not moved:
        return assembly
    tuples = {(first, last) for line in _instructions(assembly) for first, last in _operands(line)}
    places = _places(tuples, moved)
    if places is None:
        return assembly

    def rename(match: re.Match[str]) -> str:
        first, last = _range(match)
        at = places[first]
        return f"a{at}" if match[1] else f"a[{at}:{at + last - first}]"

    lines = assembly.split("\n")
    for i, line in enumerate(lines):
        if _is_instruction(line):
            code, semicolon, comment = line.partition(";")
            lines[i] = _REGISTER.sub(rename, code) + semicolon + comment
    return "\n".join(lines)


def _pinned(op: Op) -> range:
    """The registers of the accumulation file to which an op is pinned."""
    pin = op.attrs.get("pin")
    if op.name not in ("mma", "mfma") or op.attrs.get("file") != "accumulation" or not isinstance(pin, tuple):
        return range(0)
    return range(int(pin[0]), int(pin[1]) + 1)


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First and count of the runs of consecutive numbers, in order."""
    left = sorted(set(numbers))
    while left:
        count = next((i for i, n in enumerate(left) if n != left[0] + i), len(left))
        yield left[0], count
        left = left[count:]


def _is_instruction(line: str) -> bool:
    return line.startswith("\t") and not line.startswith("\t.")


def _instructions(assembly: str) -> Iterator[str]:
    return (line.partition(";")[0] for line in assembly.split("\n") if _is_instruction(line))


def _operands(line: str) -> Iterator[tuple[int, int]]:
    return map(_range, _REGISTER.finditer(line))


def _range(match: re.Match[str]) -> tuple[int, int]:
    return (int(match[1]), int(match[1])) if match[1] else (int(match[2]), int(match[3]))


def _places(tuples: set[tuple[int, int]], moved: Moves) -> dict[int, int] | None:
    """Where each used register goes; None if a tuple is partly pinned, or the rest finds no room below the last pinned one."""
    places = {a + i: b + i for a, b, count in moved for i in range(count)}
    rest: list[tuple[int, int]] = []
    for first, last in sorted(tuples):
        inside = [n in places for n in range(first, last + 1)]
        if all(inside):
            if any(places[n] != places[first] + n - first for n in range(first, last + 1)):
                return None
        elif any(inside):
            return None
        elif rest and first <= rest[-1][1]:  # shares registers with the one before
            rest[-1] = rest[-1][0], max(rest[-1][1], last)
        else:
            rest.append((first, last))
    free = sorted(set(range(top(moved))) - set(places.values()))
    for first, last in rest:
        at = _room(free, last - first + 1)
        if at is None:
            return None
        places.update((n, at + n - first) for n in range(first, last + 1))
        free = [n for n in free if not at <= n <= at + last - first]
    return places


def _room(free: Sequence[int], count: int) -> int | None:
    """The first of `count` free registers in a row, an even one if there are several: tuples begin there (CDNA3 ISA, "VGPR alignment")."""
    have = set(free)
    return next((n for n in free if (count == 1 or not n % 2) and have.issuperset(range(n, n + count))), None)
