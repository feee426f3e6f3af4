"""The decoder against vectors that LLVM 22 produced; needs no LLVM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tileir.simulator.decoder import DecodeError, decode
from tileir.simulator.decoder.table import CHIPS, load

HERE = Path(__file__).resolve().parent


def golden(chip: str) -> dict[str, list]:
    return json.loads((HERE / f"golden_{chip}.json").read_text("utf-8"))


@pytest.mark.parametrize("chip", CHIPS)
def test_text_is_what_llvm_prints(chip: str) -> None:
    wrong: list[str] = []
    for encoding, text in golden(chip)["valid"]:
        code = bytes.fromhex(encoding)
        instruction = decode(chip, code)
        if instruction.size != len(code) or instruction.raw != code or instruction.text != text:
            wrong.append(f"{encoding}: {instruction.text!r}, LLVM: {text!r}")
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:20])


@pytest.mark.parametrize("chip", CHIPS)
def test_what_llvm_refuses_is_refused(chip: str) -> None:
    accepted: list[str] = []
    for encoding in golden(chip)["invalid"]:
        try:
            accepted.append(decode(chip, bytes.fromhex(encoding)).text)
        except DecodeError as error:
            assert error.encoding == bytes.fromhex(encoding)
            assert error.offset == 0
    assert not accepted


@pytest.mark.parametrize("chip", CHIPS)
def test_vectors_cover_the_table(chip: str) -> None:
    """Nearly every mnemonic of the table has a vector, so a lost or swapped line of the table is noticed."""
    table = load(chip)
    mnemonics = {line[0] for lines in table.lines.values() for line in lines.values()}
    seen = {text.split(" ")[0] for _, text in golden(chip)["valid"]}
    assert len(mnemonics & seen) >= 0.97 * len(mnemonics), sorted(mnemonics - seen)


def test_table_sizes() -> None:
    """At least the numbers of encodings that LLVM 22 knows; DPP and SDWA forms come on top."""
    sizes = {
        chip: sum(len(lines) for name, lines in load(chip).lines.items() if not name.endswith(("dpp", "sdwa")))
        for chip in CHIPS
    }
    assert sizes["gfx942"] >= 1557
    assert sizes["gfx950"] >= 1661
