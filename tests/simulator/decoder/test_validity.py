"""Arbitrary bytes decode or raise DecodeError, and LLVM 22 agrees on which."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

llvm_oracle = pytest.importorskip("llvm_oracle")

from tileir.simulator.decoder import DecodeError, Instruction, decode, disassemble  # noqa: E402
from tileir.simulator.decoder.table import CHIPS  # noqa: E402

TOPS = (0x30, 0x34, 0x34, 0x36, 0x37, 0x38, 0x3A)
"""Top six bits of the 64-bit formats."""


@given(st.sampled_from(CHIPS), st.binary(max_size=40))
def test_any_bytes_decode_or_raise(chip: str, code: bytes) -> None:
    try:
        for _, instruction in disassemble(chip, code):
            assert instruction.text
    except DecodeError as error:
        assert 0 <= error.offset < len(code)
        assert error.encoding == code[error.offset : error.offset + 8]


@given(st.sampled_from(CHIPS), st.integers(0, (1 << 128) - 1), st.sampled_from((*TOPS, 0x1F, 0x2F, None)))
@settings(max_examples=400)
def test_bytes_that_look_like_instructions(chip: str, word: int, top: int | None) -> None:
    if top is not None:
        word = word & ~(63 << 26) | top << 26
    code = word.to_bytes(16, "little")
    try:
        instruction = decode(chip, code)
    except DecodeError as error:
        assert error.offset == 0
        return
    assert instruction.raw == code[: instruction.size]
    assert decode(chip, instruction.raw) == instruction
    assert instruction.text.startswith(instruction.name)


def samples(seed: int, count: int) -> list[bytes]:
    """Random 16-byte windows, mostly with the top bits of a 64-bit format, some sparse."""
    generator = random.Random(seed)
    items: list[bytes] = []
    for _ in range(count):
        word = generator.getrandbits(128)
        kind = generator.random()
        if kind < 0.7:
            word = word & ~(63 << 26) | generator.choice(TOPS) << 26
            if generator.random() < 0.5:
                word &= generator.getrandbits(128) | 0xFFFFFFFF
        elif kind < 0.8:
            word = word & ~(511 << 23) | 0x1A7 << 23
        items.append(word.to_bytes(16, "little"))
    return items


EXPLAINED = (
    (re.compile("a literal cannot stand here"), re.compile(".")),  # LLVM reads a literal behind 64-bit formats
    (re.compile("dst_unused 3|matrix format"), re.compile(".")),  # reserved values that LLVM prints as others
    (re.compile("not an instruction"), re.compile("^v_nop")),  # LLVM ignores the source field of v_nop
)
"""(our reason, LLVM's text): what we refuse although LLVM's disassembler shows something."""
LOSES_SC1 = re.compile(r"_atomic_(add|min|max)_f64 a\[.* sc0 .*sc1")
"""What we accept and LLVM 22 refuses: it has no sc1 bit in the returning double atomics on accumulation registers."""


@pytest.mark.skipif(not llvm_oracle.available(), reason="llvm-mc-22 is not installed")
@pytest.mark.parametrize("chip", CHIPS)
def test_llvm_agrees_on_validity(chip: str) -> None:
    items = samples(7, 20_000)
    found: list[Instruction | DecodeError] = []
    for item in items:
        try:
            found.append(decode(chip, item))
        except DecodeError as error:
            found.append(error)
    answers = llvm_oracle.disassemble(chip, items)
    refused = [
        (item, text, ours)
        for item, (size, text), ours in zip(items, answers, found, strict=True)
        if size and isinstance(ours, DecodeError)
    ]
    # What LLVM shows and cannot assemble is no instruction either.
    again = llvm_oracle.assemble(chip, [text for _, text, _ in refused])
    problems = [
        f"{item.hex()}: we refuse ({ours.reason}) {text!r}"
        for (item, text, ours), code in zip(refused, again, strict=True)
        if isinstance(code, bytes)
        and code == item[: len(code)]
        and not any(mine.search(ours.reason) and their.search(text) for mine, their in EXPLAINED)
    ]
    problems += [
        f"{item.hex()}: we accept {ours.text!r}"
        for item, (size, _), ours in zip(items, answers, found, strict=True)
        if isinstance(ours, Instruction) and not size and not LOSES_SC1.search(ours.text)
    ]
    problems += [
        f"{item.hex()}: {ours.size} bytes, LLVM {size}"
        for item, (size, _), ours in zip(items, answers, found, strict=True)
        if isinstance(ours, Instruction) and size and ours.size != size
    ]
    valid = sum(isinstance(ours, Instruction) for ours in found)
    assert valid > len(items) // 6
    assert not problems, f"{len(problems)} of {len(items)}:\n" + "\n".join(problems[:20])
