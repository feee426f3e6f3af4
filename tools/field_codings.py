"""What the decoder would print for a field, and what LLVM's texts say about its kind (development only)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from opcode_spaces import Probe  # noqa: E402

from tileir.simulator.decoder.immediates import SLOTS  # noqa: E402
from tileir.simulator.decoder.operands import Undecodable, coding  # noqa: E402
from tileir.simulator.decoder.printer import operand_text  # noqa: E402

SUFFIX_FIELDS = frozenset("offset dpp_ctrl row_mask bank_mask format dst_sel dst_unused src0_sel src1_sel".split())
"""Fields that print behind the operands."""

CARRIED: Mapping[str, tuple[str, ...]] = {
    "mubuf": ("idxen:13", "offen:12"),
    "mtbuf": ("idxen:13", "offen:12"),
    "maif8f6f4": ("cbsz:8.9.10", "blgp:61.62.63"),
    "vop3px2": ("cbsz:72.73.74", "blgp:125.126.127"),
}
"""Modifiers whose bits belong to an operand field too."""

HALF_PATTERNS: Mapping[str, str] = {"b32": "0x3f000000", "f16": "0x3800", "bf16": "0x3f00"}
"""Bit patterns of 0.5 by immediate type."""

ORDER = (
    "dpp row_mask bank_mask bound_ctrl fi bitop3 op_sel op_sel_hi neg_lo neg_hi cbsz abid blgp neg clamp omod "
    "dst_sel dst_unused src0_sel src1_sel format idxen offen offset gds glc sc0 nt sc1 lds"
).split()
"""Order in which LLVM prints modifiers; checked by the comparison of whole texts."""


FIELD_TOKENS: Mapping[str, tuple[str, ...]] = {
    "offset": ("offset",),
    "offsets13": ("offset",),
    "offsetpair": ("offset", "offset0", "offset1"),
    "offsetsmem": ("offset",),
    "swizzle": ("offset",),
    "dpp": ("dpp", "quad_perm", "row_newbcast"),
    "dpp64": ("dpp", "row_newbcast"),
}
"""Names under which the suffix codings print."""


class GeneratorError(Exception):
    """LLVM does something that the decoder cannot express."""


SYMBOLS: dict[str, dict[str, str]] = {}
"""Names of encoded numbers on the chip under examination."""


def candidate_texts(name: str, values: Sequence[int], literal: int) -> list[str | None]:
    """What the decoder would print for a field with the coding ``name``; None where it refuses."""
    texts: list[str | None] = []
    slot = SLOTS.get(name)
    parsed = None if slot else coding(name)
    for value in values:
        try:
            if slot is not None:
                texts.append(slot.text(slot.decode(value), SYMBOLS))
            else:
                assert parsed is not None
                texts.append(operand_text(parsed.decode(value, literal), parsed.type))
        except Undecodable:
            texts.append(None)
    return texts


def source_flags(values: Sequence[int], texts: Sequence[str | None], sdwa: bool) -> str:
    """Which kinds of operands a source field takes."""
    by_value = dict(zip(values, texts, strict=True))
    if sdwa:
        by_value = {value & 255: text for value, text in by_value.items() if value & 256}
    wanted = {"v": 256, "a": 768, "s": 0, "m": 124, "e": 126, "h": 235, "c": 253, "k": 129, "l": 255}
    flags = "".join(flag for flag, value in wanted.items() if by_value.get(value) is not None)
    if (by_value.get(768) or "").startswith("v"):
        flags = flags.replace("a", "x")
    if "v" in flags and (by_value[256] or "").startswith("a"):
        flags = flags.replace("v", "a")
    return flags


def value_type(
    values: Sequence[int], texts: Sequence[str | None], flags: str, probe: Probe, literals: list[str]
) -> str:
    """The immediate type of a source as far as the disassembler shows it; see refine_types for the rest.

    ``literals``: the operand's texts with the literals 1 and 0x12345678.
    """
    by_value = dict(zip(values, texts, strict=True))
    if "k" not in flags:
        return "b32"
    if by_value.get(248) == "0.15915494309189532":
        if "l" not in flags:
            return "b64"
        if literals[0] == "0x1":
            return "f64"
        return "i64" if probe.mnemonic.endswith("_i64") else "b64"
    if (by_value.get(240) or "").startswith("0x"):
        return "i16"
    return "f16" if "l" in flags and literals[1] == "0x5678" else "b32"
