"""LLVM 22 as an oracle for the decoder: disassembles and assembles AMDGPU code in bulk (development only).

The disassembler is called inside the library that llvm-mc-22 uses, through its C interface: LLVM aborts on some bit
patterns (a literal where none is allowed), so the work runs in a forked child and such a pattern counts as invalid.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

LLVM_MC = "llvm-mc-22"
_COMPLAINTS = re.compile(r"; Warning|/\*|\bnull\b|src_flat_scratch_base|src_lds_direct")
"""What LLVM prints when it shows an operand that gfx9 does not have."""
_ODD_TUPLE = re.compile(r"\b[va]\[(\d*[13579]):")
_PAST_END = re.compile(r"\b[va]\[\d+:(25[6-9]|2[6-9]\d)\]")
_MISSING_SGPR = re.compile(r"\bs(10[2-9]\b|\[\d+:10[2-9]\])")


def available() -> bool:
    """Whether the tools are installed."""
    return shutil.which(LLVM_MC) is not None and _library_path() is not None


def _library_path() -> Path | None:
    tool = shutil.which(LLVM_MC)
    if tool is None:
        return None
    found = sorted((Path(tool).resolve().parent.parent / "lib").glob("libLLVM*.so*"))
    return found[0] if found else None


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(_library_path()))
    for part in ("TargetInfo", "Target", "TargetMC", "Disassembler"):
        getattr(library, f"LLVMInitializeAMDGPU{part}")()
    create = library.LLVMCreateDisasmCPUFeatures
    create.restype = ctypes.c_void_p
    create.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    run = library.LLVMDisasmInstruction
    run.restype = ctypes.c_size_t
    run.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    return library


@cache
def _context(chip: str) -> int:
    return _library().LLVMCreateDisasmCPUFeatures(b"amdgcn-amd-amdhsa", chip.encode(), b"", None, 0, None, None)


_LONGEST = 400
"""Bytes to reserve for one line of text, on average over a call far more than enough."""


def raw_disassemble(chip: str, items: Sequence[bytes]) -> list[tuple[int, str]]:
    """(size, text) of the first instruction of every item; size 0 and no text where LLVM finds none or aborts."""
    context, run = _context(chip), _library().LLVMDisasmInstruction
    results: list[tuple[int, str]] = []
    while len(results) < len(items):
        rest = items[len(results) :]
        # Shared memory outlives the child when LLVM aborts.
        with mmap.mmap(-1, 8 + _LONGEST * len(rest)) as shared:
            child = os.fork()
            if child == 0:
                _child(context, run, rest, shared)
            os.waitpid(child, 0)
            written = int.from_bytes(shared[:8], "little")
            lines = shared[8 : 8 + written].decode().splitlines()
        for line in lines:
            size, _, text = line.partition(" ")
            results.append((int(size), text))
        if len(lines) < len(rest):
            results.append((0, ""))
    return results


def _child(context: int, run: Callable[..., int], items: Sequence[bytes], shared: mmap.mmap) -> None:
    faulthandler.disable()  # an abort is an answer here, not a failure to report
    buffer = ctypes.create_string_buffer(1024)
    end = 8
    try:
        for item in items:
            size = run(context, item, len(item), 0, buffer, len(buffer))
            text = buffer.value.decode().strip().replace("\n", " ").replace("\t", " ") if size else ""
            line = f"{size} {text}\n".encode()
            shared[end : end + len(line)] = line
            end += len(line)
            shared[:8] = (end - 8).to_bytes(8, "little")
    finally:
        os._exit(0)


def clean(text: str) -> bool:
    """Whether LLVM's text names only operands that the chip has."""
    return not any(found.search(text) for found in (_COMPLAINTS, _ODD_TUPLE, _PAST_END, _MISSING_SGPR))


def disassemble(chip: str, items: Sequence[bytes]) -> list[tuple[int, str]]:
    """As raw_disassemble, but instructions with operands that the chip does not have count as invalid."""
    return [(size, text) if clean(text) else (0, "") for size, text in raw_disassemble(chip, items)]


def assemble(chip: str, lines: Sequence[str]) -> list[bytes | str]:
    """Bytes of every line of assembly, or the assembler's message."""
    if not lines:
        return []
    process = subprocess.run(
        [LLVM_MC, "-arch=amdgcn", f"-mcpu={chip}", "-show-encoding"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    errors: dict[int, str] = {}
    for match in re.finditer(r"^<stdin>:(\d+):\d+: error: (.*)$", process.stderr, re.MULTILINE):
        errors.setdefault(int(match.group(1)) - 1, match.group(2))
    encodings = re.findall(r"encoding: \[([^\]]*)\]", process.stdout)
    if len(encodings) + len(errors) != len(lines):
        raise RuntimeError(f"llvm-mc answered {len(encodings)} + {len(errors)} of {len(lines)} lines")
    found = iter(encodings)
    return [errors[number] if number in errors else _parse_bytes(next(found)) for number in range(len(lines))]


def _parse_bytes(text: str) -> bytes:
    """Bytes of an encoding comment; those that a relocation fills (shown as letters) count as zero."""
    return bytes(int(byte, 16) if byte.startswith("0x") else 0 for byte in text.split(","))
