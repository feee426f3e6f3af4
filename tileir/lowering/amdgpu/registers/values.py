"""Which registers the values of an emitted function take: file and dwords of each.

Values share registers where the instruction selector makes no instruction: a bit cast, a part of a vector, a vector of parts, an
offset that the memory instruction adds itself. So registers are numbered, and a value is a row of numbers; `None` is a
dword that nobody ever writes.

The file of a value follows from how it is made. What differs between lanes is in vector registers; what does not is in scalar ones,
except for floats, for which gfx9 has no scalar arithmetic (CDNA3 ISA, SOP2). A condition of lanes is 64 bits of scalar registers. With
`amdgpu-agpr-alloc` above 0 matrix instructions take the form that accumulates in the accumulation file.
"""

from __future__ import annotations

import re

from tileir.lowering.amdgpu.registers.text import DWORD, Block, Function, Instruction, Type

VECTOR, ACCUMULATION, SCALAR, MASK, FLAG, CONSTANT = "vector", "accumulation", "scalar", "mask", "flag", "constant"
FILES = (VECTOR, ACCUMULATION, SCALAR)
Dwords = tuple[int | None, ...]

# What an instruction adds to its address by itself: bits of the immediate offset (CDNA3 ISA, MUBUF and DS encodings).
BUFFER_REACH, LDS_REACH = 1 << 12, 1 << 16
_DIVERGENT = ("rocdl.workitem", "rocdl.raw.ptr.buffer.load", "rocdl.ds", "rocdl.update.dpp", "rocdl.permlane", "llvm.atomicrmw", "llvm.cmpxchg")  # fmt: skip
_UNIFORM = ("rocdl.readfirstlane", "rocdl.readlane", "rocdl.ballot", "rocdl.workgroup")
_RENAMES = ("llvm.bitcast", "llvm.inttoptr", "llvm.ptrtoint")
_MOVES = ("llvm.bitcast", "llvm.extractelement", "llvm.insertelement", "llvm.shufflevector", "llvm.select", "llvm.extractvalue")  # fmt: skip
_ASM_FILE = re.compile(r'"=\{?(\w)')
_ASM_FILES = {"a": ACCUMULATION, "v": VECTOR, "s": SCALAR}
_PICKS = re.compile(r"\[([-\d, ]+)\]")
_LITERAL_INDEX = re.compile(r"%\w+\[(\d+)\]")
_INDEX = re.compile(r"\[(\d+)\]")


class Registers:
    """Numbered registers of a function. `of[name]` is the row of a value; `file[n]`, `owner[n]` are the file of a register and the
    value that it was made for."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.kinds = kinds_of(function)
        self.file: list[str] = []
        self.owner: list[str] = []
        self.of: dict[str, Dwords] = {}
        self._distance: dict[str, int] = {}  # constants that are left to the instructions that use an address
        self._users: dict[str, list[Instruction | None]] = {}
        for b in function.blocks:
            for i in b.instructions:
                for v in set(i.operands):
                    self._users.setdefault(v, []).append(i)
            for _, values in b.targets:
                for v in values:
                    self._users.setdefault(v, []).append(None)
        for name, t in function.params:
            self.of[name] = self._new(t.dwords, SCALAR, name)
        for b in function.blocks:
            for name, t in b.args:
                if name in function.needed:
                    self.of[name] = self._fresh(name, t)
        for i in function.instructions():
            if i.result and i.type is not None:
                self.of[i.result] = self._row(i, i.type)

    def _new(self, count: int, file: str, owner: str) -> Dwords:
        first = len(self.file)
        self.file += [file] * count
        self.owner += [owner] * count
        return tuple(range(first, first + count))

    def _fresh(self, name: str, t: Type) -> Dwords:
        kind = self.kinds.get(name, SCALAR)
        if kind == MASK:
            return self._new(2 * t.count, SCALAR, name)
        return self._new(t.dwords, SCALAR if kind == FLAG else kind, name)

    def _row(self, i: Instruction, t: Type) -> Dwords:
        kind = self.kinds[i.result]
        if kind == CONSTANT:
            if i.op == "llvm.getelementptr":
                self._moved(i, LDS_REACH, kind)
            return ()
        if kind == FLAG and all(u is not None and u.block == i.block for u in self._users.get(i.result, [])):
            return ()  # the condition bit of the scalar unit
        if kind in (VECTOR, ACCUMULATION, SCALAR):
            shared = self._shared(i, t, kind)
            if shared is not None:
                return shared
        return self._fresh(i.result, t)

    def _shared(self, i: Instruction, t: Type, kind: str) -> Dwords | None:
        """The registers of operands that are the result, None if it has its own."""
        first = self.of.get(i.operands[0], ()) if i.operands else ()
        same = bool(first) and first[0] is not None and self.file[first[0]] == kind
        match i.op:
            case op if op in _RENAMES:
                self._distance[i.result] = self._distance.get(i.operands[0], 0)
                return first if same and len(first) == t.dwords else None
            case "llvm.trunc":
                return first[: t.dwords] if same and t.bits == DWORD else None
            case "llvm.extractvalue":
                found = _INDEX.search(i.text)
                return first[int(found[1]) : int(found[1]) + t.dwords] if found and first else None
            case "llvm.extractelement":
                at = self.function.constant(i.operands[1])
                return _element(first, at, t) if same and at is not None else None
            case "llvm.insertelement":
                return self._inserted(i, t, kind)
            case "llvm.shufflevector":
                return self._shuffled(i, t, kind)
            case "llvm.getelementptr" if "ptr<3>" in i.text and kind == VECTOR:
                return self._moved(
                    i, LDS_REACH, kind
                )  # a uniform address goes whole to M0, where direct copies look for it
            case "llvm.add" if t.bits == DWORD and t.count == 1 and self._is_offset(i):
                return self._moved(i, BUFFER_REACH, kind)
        return None

    def _inserted(self, i: Instruction, t: Type, kind: str) -> Dwords | None:
        at = self.function.constant(i.operands[2])
        if at is None:
            return None
        row = list(self.of.get(i.operands[1], ()) or (None,) * t.dwords)
        value = self.of.get(i.operands[0], ())
        if t.bits >= DWORD:
            n = t.bits // DWORD
            row[at * n : at * n + n] = value or self._new(n, kind, i.result)
            return tuple(row)
        d = at * t.bits // DWORD
        if row[d] is None and value and at * t.bits % DWORD == 0:
            row[d] = value[0]
        else:
            row[d] = self._new(1, kind, i.result)[0]
        return tuple(row)

    def _shuffled(self, i: Instruction, t: Type, kind: str) -> Dwords | None:
        picks = _PICKS.search(i.text)
        assert picks is not None
        a, b = self.of.get(i.operands[0], ()), self.of.get(i.operands[-1], ())
        if not a and not b:
            return None
        both = (*a, *(b if len(i.operands) > 1 else a))
        numbers = [int(p) for p in picks[1].split(",")]
        per = max(1, DWORD // t.bits)
        wide = max(1, t.bits // DWORD)
        row: list[int | None] = []
        for at in range(0, len(numbers), per):
            run = numbers[at : at + per]
            together = run[0] % per == 0 and all(p == run[0] + j for j, p in enumerate(run))
            d = run[0] // per * wide
            if together and 0 <= d <= len(both) - wide:
                row += both[d : d + wide]
            else:
                row += self._new(wide, kind, i.result)
        return tuple(row) if len(row) == t.dwords else None

    def _moved(self, i: Instruction, reach: int, kind: str) -> Dwords | None:
        """The base of a sum with a constant that the memory instruction adds, or of an LDS address from 0 on."""
        base, index = i.operands[0], i.operands[-1]
        literal = _LITERAL_INDEX.search(i.text) if i.op == "llvm.getelementptr" else None
        number = int(literal[1]) if literal else self.function.constant(index)
        if number is None and i.op == "llvm.add":
            base, index, number = index, base, self.function.constant(base)
        row = self.of.get(base, ())
        if number is None:  # a constant address with a variable distance
            row, number = (() if row else self.of.get(index, ())), 0
        distance = self._distance.get(base, 0) + number
        near = 0 <= distance < reach and len(row) == 1 and row[0] is not None and self.file[row[0]] == kind
        if near or not row:
            self._distance[i.result] = distance
        return row if near else None

    def _is_offset(self, i: Instruction) -> bool:
        """Whether a value serves only as the lanes' offset of buffer accesses of its block, which is as far as selection sees."""
        name = i.result
        for u in self._users.get(name, []):
            if u is None or u.home != i.home or not u.op.startswith("rocdl.raw.ptr.buffer."):
                return False
            place = 2 if "store" in u.op or "lds" in u.op else 1
            if len(u.operands) <= place or u.operands.index(name) != place:
                return False
        return True


def _element(row: Dwords, at: int, t: Type) -> Dwords | None:
    if t.bits >= DWORD:
        return row[at * t.dwords : (at + 1) * t.dwords]
    if at * t.bits % DWORD == 0:
        return (row[at * t.bits // DWORD],)
    return None  # shifted down


def kinds_of(function: Function) -> dict[str, str]:
    """How each value is held: in the vector, accumulation or scalar file, as mask of lanes, as condition, or not at all."""
    return _Kinds(function).found


class _Kinds:
    """The file of every value, by propagation to a fixed point."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.found = dict.fromkeys((name for name, _ in function.params), SCALAR)
        for b in function.blocks:
            self.found.update((name, SCALAR) for name, _ in b.args)
        while self._round():
            pass

    def _round(self) -> bool:
        changed = False
        for b in self.function.blocks:
            for i in b.instructions:
                if i.result and i.type is not None:
                    kind = self._kind(i, i.type)
                    changed |= self.found.get(i.result) != kind
                    self.found[i.result] = kind
            for k, (name, t) in enumerate(b.args):
                kind = self._joined(b, k, t)
                changed |= self.found[name] != kind
                self.found[name] = kind
        return changed

    def _joined(self, block: Block, k: int, t: Type) -> str:
        kinds = {self.found.get(values[k], CONSTANT) for values in self.function.incoming.get(block.label, [])}
        for kind in (ACCUMULATION, VECTOR, MASK):
            if kind in kinds:
                return kind
        return VECTOR if t.is_float else FLAG if t.is_bool else SCALAR

    def _kind(self, i: Instruction, t: Type) -> str:
        op = i.op
        if op.startswith("llvm.mlir."):
            return CONSTANT
        if op.startswith("vector."):
            return VECTOR
        if op.startswith("scalar."):
            return SCALAR
        if op.startswith(_UNIFORM):
            return SCALAR
        if i.is_product:
            small = not self.function.least_agprs or t.dwords <= self.function.least_agprs
            return ACCUMULATION if self.function.agprs and small else VECTOR
        if op == "llvm.inline_asm":
            found = _ASM_FILE.search(i.text)
            return _ASM_FILES[found[1]] if found else VECTOR
        if op.startswith(_DIVERGENT):
            return VECTOR
        kinds = [self.found.get(v, CONSTANT) for v in i.operands]
        if op == "llvm.load":
            return VECTOR if "ptr<3>" in i.text or VECTOR in kinds else SCALAR
        if (
            op in ("llvm.bitcast", "llvm.shufflevector", "llvm.insertelement")
            and ACCUMULATION in kinds
            and VECTOR not in kinds
        ):
            return ACCUMULATION
        if all(k == CONSTANT for k in kinds):
            return CONSTANT
        differs = any(k in (VECTOR, MASK, ACCUMULATION) for k in kinds)
        if t.is_bool:
            return MASK if differs else FLAG
        if op in _MOVES:
            return VECTOR if differs else SCALAR
        return VECTOR if differs or t.is_float else SCALAR
