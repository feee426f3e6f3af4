"""Generates the decoder's opcode tables by asking LLVM 22 about every opcode of every format.

For each opcode a base encoding is searched that LLVM accepts. Then every field takes all its values (a sample where it
is wider than ten bits) and every other bit is flipped alone; from what changes in LLVM's text follow the operand
codings, the modifiers, the fixed and the ignored bits. A field whose texts no coding of the decoder reproduces exactly
is an error. Source: LLVM 22.1's AMDGPU disassembler, see ``tools/llvm_oracle.py``.

    python tools/gen_decoder_tables.py [gfx942 gfx950]
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

import decoder_golden  # noqa: E402
import llvm_oracle  # noqa: E402
from field_codings import SYMBOLS, GeneratorError  # noqa: E402
from llvm_text import split_text  # noqa: E402
from opcode_prober import Prober  # noqa: E402
from opcode_spaces import OPCODES, Probe, find_bases, to_bytes  # noqa: E402

from tileir.simulator.decoder.formats import FORMATS  # noqa: E402

TABLES = ROOT / "tileir" / "simulator" / "decoder"


def read_symbols(chip: str) -> dict[str, dict[str, str]]:
    """Names of hardware registers, messages and buffer formats."""

    def ask(words: list[int]) -> list[str]:
        return [text for _, text in llvm_oracle.disassemble(chip, [word.to_bytes(8, "little") for word in words])]

    symbols: dict[str, dict[str, str]] = {"hwreg": {}, "sendmsg": {}, "dfmt": {}, "nfmt": {}}
    for number, text in enumerate(ask([0xB884F800 | number for number in range(64)])):
        name = text.partition("hwreg(")[2].rstrip(")")
        if name != str(number):
            symbols["hwreg"][str(number)] = name
    for number, text in enumerate(ask([0xBF900000 | number for number in range(128)])):
        name = text.partition("sendmsg(")[2].rstrip(")")
        if name.startswith("MSG"):
            symbols["sendmsg"][str(number)] = name
    base = 0xE8000000 | 0x80020804 << 32
    for number, text in enumerate(ask([base | number << 19 for number in range(16)])):
        symbols["dfmt"][str(number)] = text.partition("format:[")[2].partition("]")[0]
    for number, text in enumerate(ask([base | 1 << 19 | number << 23 for number in range(8)])):
        symbols["nfmt"][str(number)] = text.partition("format:[")[2].partition("]")[0]
    return symbols


def variant(chip: str, probe: Probe) -> str:
    """The format that shares the opcode space with the probe's and fits its opcode."""
    if probe.format_name == "vop3":
        size, text = llvm_oracle.disassemble(chip, [to_bytes(FORMATS["vop3"], probe.base ^ 2 << 8)])[0]
        slots = split_text(text, False)[1] if size else []
        return "vop3sd" if len(slots) > 1 and slots[1] == "s[2:3]" else "vop3"
    if probe.format_name == "vop3p" and "f8f6f4" in probe.text:
        return "maif8f6f4"
    if probe.format_name == "vop3p" and re.match(r"v_s?mf(?!ma_ld)", probe.text):
        return "mai"
    return probe.format_name


def generate(chip: str, only: Sequence[str] = ()) -> tuple[dict[str, dict[int, list[str]]], list[str]]:
    """Table lines by format and opcode, and the errors."""
    SYMBOLS.clear()
    SYMBOLS.update(read_symbols(chip))
    formats: dict[str, dict[int, list[str]]] = {name: {} for name in FORMATS}
    errors: list[str] = []
    for name in OPCODES:
        if only and name not in only:
            continue
        probers: dict[str, Prober] = {}
        done: list[Probe] = []
        for probe in find_bases(chip, name):
            probe.format_name = variant(chip, probe)
            prober = probers.setdefault(probe.format_name, Prober(chip, probe.format_name))
            try:
                prober.examine(probe)
                done.append(probe)
            except GeneratorError as error:
                errors.append(f"{name} {probe.opcode}: {error}")
        for prober in probers.values():
            prober.settle()
        for probe in done:
            formats[probe.format_name][probe.opcode] = probers[probe.format_name].line(probe)
        for opcode in [opcode for opcode in formats[name] if name in ("flat", "global") and opcode >= 128]:
            plain, returning = formats[name].get(opcode - 128), formats[name][opcode]
            if plain is not None and plain[1] == returning[1]:
                plain[2] = returning[2].replace("=sc0", "sc0:16")
                del formats[name][opcode]
        print(chip, name, sum(map(len, formats.values())), len(errors), file=sys.stderr)
    return formats, errors


def write(chip: str, formats: Mapping[str, Mapping[int, list[str]]]) -> None:
    """One opcode a line, so that differences are readable."""
    parts = ["{", f' "chip": "{chip}",', ' "formats": {']
    for number, (name, lines) in enumerate(formats.items()):
        parts.append(f'  "{name}": {{')
        body = [f'   "{opcode}": {json.dumps(line)}' for opcode, line in sorted(lines.items())]
        parts.append(",\n".join(body))
        parts.append("  }" + ("," if number + 1 < len(formats) else ""))
    parts.append(" },")
    parts.append(' "symbols": ' + json.dumps(SYMBOLS, indent=1).replace("\n", "\n "))
    parts.append("}")
    (TABLES / f"{chip}.json").write_text("\n".join(parts) + "\n", "utf-8")


def main(arguments: Sequence[str]) -> int:
    """Writes the tables of the chips named, or of both; names of formats restrict the work to these."""
    failed = False
    only = [name for name in arguments if name in OPCODES]
    for chip in [name for name in arguments if name not in OPCODES] or ("gfx942", "gfx950"):
        formats, errors = generate(chip, only)
        if only:
            old = json.loads((TABLES / f"{chip}.json").read_text("utf-8"))["formats"]
            kept = {name: {int(opcode): line for opcode, line in lines.items()} for name, lines in old.items()}
            formats = {name: formats[name] or kept.get(name, {}) for name in FORMATS}
        write(chip, formats)
        decoder_golden.write(chip)
        for error in errors:
            print(error, file=sys.stderr)
        failed = failed or bool(errors)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
