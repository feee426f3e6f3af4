"""Finds out from LLVM what an opcode makes of its fields and bits (development only)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import llvm_oracle  # noqa: E402
from field_codings import (  # noqa: E402
    CARRIED,
    FIELD_TOKENS,
    HALF_PATTERNS,
    ORDER,
    SUFFIX_FIELDS,
    SYMBOLS,
    GeneratorError,
    candidate_texts,
    source_flags,
    value_type,
)
from llvm_text import ARRAYS, register_count, split_text, token_values  # noqa: E402
from opcode_spaces import LITERAL_PROBE, Probe, field_mask, sample_values, to_bytes  # noqa: E402

from tileir.simulator.decoder.formats import FORMATS, Chunks, extract, insert, width  # noqa: E402
from tileir.simulator.decoder.immediates import SLOTS, SUFFIXES  # noqa: E402
from tileir.simulator.decoder.operands import Undecodable, coding  # noqa: E402
from tileir.simulator.decoder.printer import operand_text  # noqa: E402


@dataclass
class Question:
    """Lines for the assembler; asked together for many opcodes, because every start of llvm-mc takes its time."""

    lines: list[str]
    apply: Callable[[list[bytes | str]], None]


class Prober:
    """Examines all opcodes of one format on one chip."""

    def __init__(self, chip: str, format_name: str) -> None:
        self.chip = chip
        self.name = format_name
        self.layout = FORMATS[format_name]
        self.known = self.layout.mask | field_mask(self.layout.opcode)
        self.questions: list[Question] = []

    def ask(self, words: Sequence[int], literal: int = LITERAL_PROBE) -> list[tuple[int, str]]:
        """LLVM's answers."""
        answers = llvm_oracle.disassemble(self.chip, [to_bytes(self.layout, word, literal) for word in words])
        return [answer if answer[0] >= self.layout.size else (0, "") for answer in answers]

    def examine(self, probe: Probe) -> None:
        """Find out everything but what :meth:`settle` asks the assembler."""
        probe.mnemonic, probe.slots, probe.suffixes = split_text(probe.text, probe.whole)
        self.examine_fields(probe)
        self.examine_bits(probe)
        self.finish(probe)

    def settle(self) -> None:
        """Put the questions that have gathered to the assembler."""
        answers = llvm_oracle.assemble(self.chip, [line for question in self.questions for line in question.lines])
        for question in self.questions:
            question.apply(answers[: len(question.lines)])
            del answers[: len(question.lines)]
        self.questions.clear()

    def examine_fields(self, probe: Probe) -> None:
        plan: list[tuple[str, list[int]]] = []
        words: list[int] = []
        for name, chunks in self.layout.fields.items():
            if name == "imm32" and (
                probe.size == self.layout.size or ("src0" in self.layout.fields and probe.size == 4)
            ):
                continue
            values = sample_values(width(chunks), name, self.name)
            plan.append((name, values))
            words += [probe.base & ~field_mask(chunks) | insert(chunks, value) for value in values]
        answers = (
            iter(self.ask(words))
            if "imm32" not in [name for name, _ in plan]
            else iter(self._with_literals(probe, plan))
        )
        for name, values in plan:
            self.classify_field(probe, name, values, [next(answers) for _ in values])

    def _with_literals(self, probe: Probe, plan: list[tuple[str, list[int]]]) -> list[tuple[int, str]]:
        items: list[bytes] = []
        for name, values in plan:
            chunks = self.layout.fields[name]
            for value in values:
                if name == "imm32":
                    items.append(to_bytes(self.layout, probe.base, value))
                else:
                    items.append(to_bytes(self.layout, probe.base & ~field_mask(chunks) | insert(chunks, value)))
        return llvm_oracle.disassemble(self.chip, items)

    def classify_field(self, probe: Probe, name: str, values: list[int], answers: list[tuple[int, str]]) -> None:
        chunks = self.layout.fields[name]
        if self.layout.size == 4 and name == "src0":
            answers = [(0, "") if value in (249, 250) else got for value, got in zip(values, answers, strict=True)]
        valid = [text for size, text in answers if size]
        if all(text == probe.text for text in valid):
            if len(valid) < len(values):
                probe.fixed |= self.fixed_bits(probe, chunks)
            return
        split = [split_text(text, probe.whole) if size else None for size, text in answers]
        changed = {
            number
            for parts in split
            if parts is not None and len(parts[1]) == len(probe.slots)
            for number in range(len(probe.slots))
            if parts[1][number] != probe.slots[number]
        }
        changed -= set(probe.codings)
        if changed and (len(chunks) > 1 and name != "offset"):
            changed = self.own_slot(probe, name, changed)
        if probe.mnemonic != "" and any(parts and parts[0] != probe.mnemonic for parts in split):
            raise GeneratorError(f"{probe.text}: field {name} changes the mnemonic")
        if not changed and name not in SUFFIX_FIELDS:
            # The field is not used; its accumulation bit may belong to another operand.
            probe.fixed |= self.fixed_bits(probe, chunks[:1])
            return
        if len(changed) > 1:
            raise GeneratorError(f"{probe.text}: field {name} changes operands {sorted(changed)}")
        if changed:
            number = changed.pop()
            texts = [parts[1][number] if parts is not None else None for parts in split]
            coded = self.slot_coding(probe, name, number, values, texts)
            probe.codings[number] = f"{name}={coded}"
            if coded not in SLOTS and coding(coded).kind in ("src", "sdwa"):
                self.ask_kinds(probe, name, number, coded)
                self.ask_type(probe, name, number, coded)
        if name in SUFFIX_FIELDS:
            self.suffix_coding(probe, name, values, split)

    def line_with(self, probe: Probe, number: int, text: str) -> str:
        """The base's text with another operand."""
        slots = [*probe.slots]
        slots[number] = text
        return " ".join([probe.mnemonic, ", ".join(slots), *probe.suffixes])

    def ask_kinds(self, probe: Probe, name: str, number: int, coded: str) -> None:
        """Drop the kinds of operands that LLVM's assembler refuses in this place."""
        values = {"v": 256, "s": 0, "m": 124, "e": 126, "h": 235, "c": 253, "k": 129}
        parsed = coding(coded)
        asked = [flag for flag in parsed.flags if flag in values]
        scalar = 256 if parsed.kind == "sdwa" else 0
        operands = [parsed.decode(values[flag] | scalar, 0) for flag in asked]
        lines = [self.line_with(probe, number, operand_text(operand, parsed.type)) for operand in operands]

        def apply(answers: list[bytes | str]) -> None:
            # A second scalar operand is a matter of the whole instruction, not of this operand.
            refused = {
                flag
                for flag, code in zip(asked, answers, strict=True)
                if isinstance(code, str) and "constant bus" not in code
            }
            head, _, flags = probe.codings[number].partition(":")
            probe.codings[number] = f"{head}:{''.join(flag for flag in flags if flag not in refused)}"

        self.questions.append(Question(lines, apply))

    def ask_type(self, probe: Probe, name: str, number: int, coded: str) -> None:
        """Find the width and format of an operand's float constants.

        The disassembler prints 0.5 for all of them; the assembler takes the bit pattern of 0.5 in the operand's own
        format for the inline constant, and any other number for a literal or an error.
        """
        match = re.match(r"(?:src|sdwa)\d+(?:\.(\w+))?:\w*k\w*$", coded)
        if match is None or match.group(1) in ("i16", "b64", "f64", "i64"):
            return

        def apply(answers: list[bytes | str]) -> None:
            kinds = [
                kind
                for kind, code in zip(HALF_PATTERNS, answers, strict=True)
                if isinstance(code, bytes)
                and extract(int.from_bytes(code[: self.layout.size], "little"), self.layout.fields[name]) & 255 == 240
            ]
            if len(kinds) > 1 or (not kinds and match.group(1)):
                raise GeneratorError(f"{probe.text}: operand {number} has the constant types {kinds}")
            if not kinds:
                print(f"no constant type for operand {number} of {probe.text}", file=sys.stderr)
            kind = kinds[0] if kinds else "b32"
            if self.name in ("vop3p", "mai") and kind != "b32":
                kind = {"f16": "pk16", "bf16": "pkbf16"}[kind]
            head, _, flags = probe.codings[number].partition(":")
            head = head.partition(".")[0]
            probe.codings[number] = f"{head}{'' if kind == 'b32' else '.' + kind}:{flags}"

        self.questions.append(Question([self.line_with(probe, number, text) for text in HALF_PATTERNS.values()], apply))

    def ask_offset(self, probe: Probe, chunks: Chunks) -> None:
        """Fix offset bits that the disassembler prints and the assembler refuses: the hardware has no such offsets."""
        low, count = chunks[0]
        bits = [bit for bit in range(low, low + count) if not probe.base >> bit & 1]
        answers = self.ask([probe.base | 1 << bit for bit in bits])

        def apply(codes: list[bytes | str]) -> None:
            for bit, code in zip(bits, codes, strict=True):
                if isinstance(code, str):
                    probe.fixed |= 1 << bit

        self.questions.append(Question([text for _, text in answers], apply))

    def own_slot(self, probe: Probe, name: str, changed: set[int]) -> set[int]:
        """The slot that changes without the accumulation bit, which several operands share."""
        (low, _), *_ = self.layout.fields[name]
        found: set[int] = set()
        answers = self.ask([probe.base ^ 1 << low + bit for bit in range(7)])
        for size, text in answers:
            if size:
                slots = split_text(text, probe.whole)[1]
                found |= {number for number in changed if slots[number] != probe.slots[number]}
        return found

    def fixed_bits(self, probe: Probe, chunks: Chunks) -> int:
        bits = [bit for low, count in chunks for bit in range(low, low + count)]
        answers = self.ask([probe.base ^ 1 << bit for bit in bits])
        return sum(1 << bit for bit, (size, _) in zip(bits, answers, strict=True) if not size)

    def slot_coding(self, probe: Probe, name: str, number: int, values: list[int], texts: list[str | None]) -> str:
        count = register_count(texts)
        candidates: list[str] = []
        if count is not None:
            sdwa = self.name.endswith("sdwa") and name in ("src0", "vsrc1")
            flags = source_flags(values, texts, sdwa)
            literals: list[str] = []
            if "l" in flags:
                word = probe.base & ~field_mask(self.layout.fields[name]) | insert(self.layout.fields[name], 255)
                for literal in (1, LITERAL_PROBE | 0x12340000):
                    literals.append(split_text(self.ask([word], literal)[0][1], probe.whole)[1][number])
            shift = 256 if sdwa else 0
            kind = value_type([value - shift for value in values], texts, flags, probe, literals)
            candidates += [f"vgpr{count}", f"agpr{count}", f"avgpr{count}"]
            if flags:
                candidates.append(f"src{count}:{flags}" if kind == "b32" else f"src{count}.{kind}:{flags}")
            candidates += [f"{kind}{count}{some}" for kind in ("sbase", "srsrc") for some in ("", ":me", ":m", ":e")]
            candidates += [
                f"sdwa{count}.{kind}:{flags}" if kind != "b32" else f"sdwa{count}:{flags}",
                f"sdwadst{count}",
            ]
        if name == "simm16" and self.takes_label(probe, number):
            candidates.append("label")
        candidates += [slot for slot in SLOTS if slot != "label"]
        inexact: list[tuple[int, str, list[str | None]]] = []
        for candidate in candidates:
            try:
                predicted = candidate_texts(candidate, values, LITERAL_PROBE)
            except (KeyError, IndexError, ValueError):
                continue
            if predicted == texts:
                return candidate
            inexact.append((sum(p != t for p, t in zip(predicted, texts, strict=True)), candidate, predicted))
        inexact.sort(key=lambda row: row[0])
        for _, candidate, predicted in inexact[:3]:
            if self.better(probe, name, number, values, predicted, texts):
                return candidate
        count, candidate, predicted = inexact[0]
        wrong = [row for row in zip(values, predicted, texts, strict=True) if row[1] != row[2]]
        raise GeneratorError(
            f"{probe.text}: no coding for field {name}, operand {number}; {candidate} has {count} wrong: {wrong[:4]}"
        )

    def better(
        self, probe: Probe, name: str, number: int, values: list[int], ours: list[str | None], theirs: list[str | None]
    ) -> bool:
        """Whether our texts, where they differ, assemble to the same bytes and LLVM's own do not."""
        chunks = self.layout.fields[name]
        different = [row for row in zip(values, ours, theirs, strict=True) if row[1] != row[2]]
        if len(different) * 10 > len(values) * 9 or any(mine is None for _, mine, _ in different):
            return False
        if name != "imm32" and any(other is None for _, _, other in different):
            return False
        rows = [
            (value, self.line_with(probe, number, str(mine)), self.line_with(probe, number, str(other)))
            for value, mine, other in different
        ]
        return self.ours_is_right(name, probe.base & ~field_mask(chunks), rows)

    def ours_is_right(self, name: str, base: int, rows: Sequence[tuple[int, str, str]]) -> bool:
        """For (field value, our line, LLVM's line): ours assembles to the value, or neither assembles at all."""
        mine = llvm_oracle.assemble(self.chip, [row[1] for row in rows])
        other = llvm_oracle.assemble(self.chip, [row[2] for row in rows])
        for (value, _, _), our_code, their_code in zip(rows, mine, other, strict=True):
            word = base | insert(self.layout.fields[name], value)
            literal = value if name == "imm32" else LITERAL_PROBE
            if isinstance(our_code, str):
                if not isinstance(their_code, str):
                    return False
            elif our_code != self.expected(word, literal, our_code):
                return False
            elif their_code == our_code and name != "imm32":
                return False
        return True

    def expected(self, word: int, literal: int, code: bytes | str) -> bytes:
        """The bytes of the instruction, as many as the assembler gave."""
        return to_bytes(self.layout, word, literal)[: max(len(code), self.layout.size)]

    def takes_label(self, probe: Probe, number: int) -> bool:
        """Whether the assembler accepts a symbol here, that is, whether the operand is a branch target."""
        slots = [*probe.slots]
        slots[number] = "target"
        return not isinstance(llvm_oracle.assemble(self.chip, [f"{probe.mnemonic} {', '.join(slots)}"])[0], str)

    def suffix_coding(
        self, probe: Probe, name: str, values: list[int], split: list[tuple[str, list[str], list[str]] | None]
    ) -> None:
        stable = [token for token in probe.suffixes if all(parts is None or token in parts[2] for parts in split)]
        texts = [" ".join(token for token in parts[2] if token not in stable) if parts else None for parts in split]
        has_slot = any(coded.startswith(f"{name}=") for coded in probe.codings.values())
        inexact: list[tuple[str, list[tuple[int, str | None, str | None]]]] = []
        for candidate, suffix in SUFFIXES.items():
            predicted: list[str | None] = []
            try:
                for value in values:
                    try:
                        predicted.append(suffix.text(suffix.decode(value), SYMBOLS))
                    except Undecodable:
                        predicted.append(None)
            except KeyError:
                continue
            if has_slot:
                predicted = [p if t is not None else None for p, t in zip(predicted, texts, strict=True)]
            always = [token for token in stable if all(p is None or token in p.split() for p in predicted)]
            ours = [p if p is None else " ".join(t for t in p.split() if t not in always) for p in predicted]
            inexact.append((candidate, [row for row in zip(values, ours, texts, strict=True) if row[1] != row[2]]))
        inexact.sort(key=lambda row: len(row[1]))
        for candidate, different in inexact[:2]:
            if not different or self.better_suffix(probe, name, different, stable):
                probe.fields[name] = candidate
                if name == "offset":
                    self.ask_offset(probe, self.layout.fields[name])
                return
        candidate, different = inexact[0]
        raise GeneratorError(
            f"{probe.text}: no coding for field {name}; {candidate} has {len(different)} wrong: {different[:4]}"
        )

    def better_suffix(
        self, probe: Probe, name: str, different: list[tuple[int, str | None, str | None]], stable: list[str]
    ) -> bool:
        """As better, for modifiers; refusing a value is right where LLVM's text means other bytes."""
        chunks = self.layout.fields[name]
        if any(theirs is None for _, _, theirs in different) or len(different) * 2 > 1 << width(chunks):
            return False
        head = f"{probe.mnemonic} {', '.join(probe.slots)}"
        base = probe.base & ~field_mask(chunks)
        lines = [
            (value, " ".join([head, str(mine), *stable]), " ".join([head, str(other), *stable]))
            for value, mine, other in different
        ]
        refused = [
            (value, other) for (value, mine, _), (_, _, other) in zip(different, lines, strict=True) if mine is None
        ]
        for (value, _), code in zip(
            refused, llvm_oracle.assemble(self.chip, [line for _, line in refused]), strict=True
        ):
            if code == self.expected(base | insert(chunks, value), LITERAL_PROBE, code):
                return False
        return self.ours_is_right(name, base, [row for row in lines if row[0] not in {value for value, _ in refused}])

    def examine_bits(self, probe: Probe) -> None:
        covered = self.known
        for name, chunks in self.layout.fields.items():
            used = any(text.startswith(name + "=") for text in probe.codings.values()) or name in probe.fields
            if used or name not in ("sdst",):
                covered |= field_mask(chunks)
        bits = [bit for bit in range(self.layout.size * 8) if not covered >> bit & 1]
        for bit, (size, text) in zip(bits, self.ask([probe.base ^ 1 << bit for bit in bits]), strict=True):
            if not size:
                probe.fixed |= 1 << bit
            elif text != probe.text:
                self.classify_bit(probe, bit, text)

    def classify_bit(self, probe: Probe, bit: int, text: str) -> None:
        mnemonic, slots, suffixes = split_text(text, probe.whole)
        if mnemonic != probe.mnemonic or len(slots) != len(probe.slots):
            raise GeneratorError(f"{probe.text}: bit {bit} gives {text}")
        for number, (old, new) in enumerate(zip(probe.slots, slots, strict=True)):
            if old == new:
                continue
            for kind, form in (("neg", f"-{old}"), ("abs", f"|{old}|"), ("sext", f"sext({old})")):
                if new == form:
                    probe.modifiers.setdefault(number, []).append(f"{kind}{bit}")
                    break
            else:
                raise GeneratorError(f"{probe.text}: bit {bit} gives {text}")
        before, after = token_values(probe.suffixes), token_values(suffixes)
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) == after.get(name):
                continue
            self.classify_modifier(probe, bit, name, before.get(name), after.get(name))

    def classify_modifier(
        self, probe: Probe, bit: int, name: str, old: list[int] | None, new: list[int] | None
    ) -> None:
        set_in_base = probe.base >> bit & 1
        elements = probe.bits.setdefault(name, {})
        if new is None:
            raise GeneratorError(f"{probe.text}: bit {bit} removes {name}")
        if name in ARRAYS:
            # A base with all elements at their default prints nothing.
            before = old or [set_in_base] * len(new)
            changed = [i for i, (a, b) in enumerate(zip(before, new, strict=True)) if a != b]
            if len(changed) != 1:
                raise GeneratorError(f"{probe.text}: bit {bit} changes {changed} of {name}")
            elements[changed[0]] = bit
            probe.lengths[name] = len(new)
            if (old is None) == bool(set_in_base):
                probe.defaults[name] = (1 << len(new)) - 1
        elif set_in_base:
            raise GeneratorError(f"{probe.text}: bit {bit} of {name} is set in the base")
        else:
            value = new[0] - (old[0] if old else 0)
            if value.bit_count() != 1:
                raise GeneratorError(f"{probe.text}: bit {bit} adds {value} to {name}")
            elements[value.bit_length() - 1] = bit

    def finish(self, probe: Probe) -> None:
        named = set(probe.bits) | {entry.split(":")[0] for entry in CARRIED.get(self.name, ())}
        tokens = token_values(probe.suffixes)
        by_fields = {name for coded in probe.fields.values() for name in FIELD_TOKENS.get(coded, (coded,))}
        probe.constants = [name for name in tokens if name not in named and name not in by_fields]
        if probe.slots == [""]:
            probe.slots = []
        for number, text in enumerate(probe.slots):
            if number not in probe.codings:
                if text not in ("vcc", "off"):
                    raise GeneratorError(f"{probe.text}: operand {number} has no field")
                probe.codings[number] = f"={text}"

    def line(self, probe: Probe) -> list[str]:
        """The table line."""
        slots = [
            "|".join([probe.codings[number], *sorted(probe.modifiers.get(number, ()))])
            for number in range(len(probe.slots))
        ]
        entries: dict[str, str] = {}
        for name, coded in probe.fields.items():
            entries[FIELD_TOKENS.get(coded, (coded,))[0]] = f"{name}={coded}"
        for name, elements in probe.bits.items():
            length = probe.lengths.get(name, max(elements) + 1)
            bits = ".".join(str(elements.get(i, "-")) for i in range(length))
            default = probe.defaults.get(name)
            entries[name] = f"{name}:{bits}" + (f":{default}" if default else "")
        for entry in CARRIED.get(self.name, ()):
            entries[entry.split(":")[0]] = entry
        for name in probe.constants:
            entries[name] = f"={name}"
        unknown = set(entries) - set(ORDER)
        if unknown:
            raise GeneratorError(f"{probe.text}: unknown modifiers {sorted(unknown)}")
        suffixes = [entries[name] for name in ORDER if name in entries]
        return [
            probe.spelling or probe.mnemonic,
            " ".join(slots),
            " ".join(suffixes),
            f"{probe.fixed:x}",
            f"{probe.base & probe.fixed:x}",
        ]
