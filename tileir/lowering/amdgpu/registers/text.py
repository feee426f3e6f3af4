"""The emitted function as data: blocks of instructions with names, operands and types.

It reads what `tileir.lowering.amdgpu.emit` writes, one statement a line. Statements are kept in program order; those whose results
nobody needs are dropped, as LLVM does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from functools import lru_cache

from tileir.records import dataclass

_NAME = re.compile(r"%[A-Za-z_]\w*")
_LOC = re.compile(r" loc\((?:#l(\d+)|unknown)\)")
_ALIAS = re.compile(r'^#l(\d+) = loc\("[^"]*":(\d+):', re.MULTILINE)
_BLOCK = re.compile(r"(\^b\d+)(?:\((.*)\))?:")
_BLOCK_ARG = re.compile(r"(%\w+): ((?:[^,<]|<[^>]*>)+)")
_TARGET = re.compile(r"(\^b\d+)(?:\(([^:]*) : [^)]*?\)(?=,|$))?")
_OP = re.compile(r'"?([\w.]+)"?')
_PICKS = re.compile(r"\[([-\d, ]+)\]")
_VECTOR = re.compile(r"vector<(\d+)x(.+)>$")
_WIDTH = re.compile(r"\d+")
_AGPRS = re.compile(r'"amdgpu-agpr-alloc", "(?:(\d+),)?(\d+)"')
_WORKGROUP = re.compile(r'"amdgpu-flat-work-group-size", "(\d+)')
_LDS = re.compile(r"@lds\(\).*!llvm\.array<(\d+) x i8>")

# What must be done whether or not somebody needs a result.
EFFECTS = (
    "llvm.store", "llvm.atomicrmw", "llvm.cmpxchg", "llvm.br", "llvm.cond_br", "llvm.return", "llvm.fence", "rocdl.raw.ptr.buffer.store",
    "rocdl.raw.ptr.buffer.atomic", "rocdl.raw.ptr.buffer.load.lds", "rocdl.s.", "rocdl.sched", "llvm.call_intrinsic",
)  # fmt: skip
DWORD = 32


@dataclass(frozen=True)
class Type:
    """A type as registers see it: `count` elements of `bits`, in `dwords` registers."""

    count: int
    bits: int
    dwords: int
    is_float: bool

    @property
    def is_bool(self) -> bool:
        return self.bits == 1


@lru_cache(maxsize=512)
def type_of(text: str) -> Type:
    """The type that MLIR text names."""
    if text.startswith("!llvm.ptr"):
        dwords = {"3": 1, "8": 4}.get(text[10:11], 2)
        return Type(1, DWORD * dwords, dwords, False)
    if text == "<8>":  # how `make.buffer.rsrc` writes a pointer to a buffer
        return Type(1, 4 * DWORD, 4, False)
    if text.startswith("!llvm.struct"):
        dwords = sum(type_of(t.strip()).dwords for t in text[text.index("(") + 1 : text.rindex(")")].split(","))
        return Type(dwords, DWORD, dwords, False)
    found = _VECTOR.match(text)
    element = found[2] if found else text
    count = int(found[1]) if found else 1
    width = _WIDTH.search(element)
    bits = int(width[0]) if width else DWORD
    dwords = count if bits == 1 else -(-count * bits // DWORD)
    return Type(count, bits, max(1, dwords), "f" in element)


@dataclass(eq=False)
class Instruction:
    """A statement. `line` is the line of its location, 0 where unknown.
    `block` is the block where it is computed, `home` the one where the text has it."""

    op: str
    text: str
    result: str
    operands: list[str]
    type: Type | None
    line: int
    block: int = 0
    home: int = 0

    @property
    def is_product(self) -> bool:
        return "mfma" in self.op


@dataclass(eq=False)
class Block:
    """A basic block; `targets` are the blocks that follow it, each with the values handed over."""

    label: str
    args: list[tuple[str, Type]]
    instructions: list[Instruction] = field(default_factory=list[Instruction])
    targets: list[tuple[str, list[str]]] = field(default_factory=list["tuple[str, list[str]]"])
    number: int = 0


@dataclass(eq=False)
class Function:
    """The function: parameters, blocks in program order, and what its attributes say."""

    params: list[tuple[str, Type]]
    blocks: list[Block]
    agprs: int
    threads: int
    lds: int
    least_agprs: int = (
        0  # larger results of matrix instructions stay in the vector file; 0: none do, if there are any `agprs`
    )
    definitions: dict[str, Instruction] = field(default_factory=dict[str, Instruction])
    needed: set[str] = field(default_factory=set[str])
    incoming: dict[str, list[list[str]]] = field(default_factory=dict[str, "list[list[str]]"])
    dominators: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        self.by_label = {b.label: b for b in self.blocks}
        for number, b in enumerate(self.blocks):
            b.number = number
            for label, values in b.targets:
                self.incoming.setdefault(label, []).append(values)
            for i in b.instructions:
                i.block = i.home = number
                if i.result:
                    self.definitions[i.result] = i
        self._drop_unneeded()

    @property
    def has_products(self) -> bool:
        return any(i.is_product for i in self.instructions())

    def instructions(self) -> Iterator[Instruction]:
        """All instructions in program order."""
        return (i for b in self.blocks for i in b.instructions)

    def constant(self, name: str) -> int | None:
        """The integer that a value is, None if it is none or not known."""
        i = self.definitions.get(name)
        if i is None or i.op != "llvm.mlir.constant":
            return None
        found = re.match(r"llvm\.mlir\.constant\((-?\d+) :", i.text)
        return int(found[1]) if found else None

    def _drop_unneeded(self) -> None:
        places = {name: (b.label, k) for b in self.blocks for k, (name, _) in enumerate(b.args)}
        work = [v for i in self.instructions() if i.op.startswith(EFFECTS) for v in i.operands]
        while work:
            name = work.pop()
            if name in self.needed:
                continue
            self.needed.add(name)
            if name in self.definitions:
                work += self.definitions[name].operands
            elif name in places:
                label, k = places[name]
                work += [values[k] for values in self.incoming.get(label, [])]
        for b in self.blocks:
            b.instructions = [
                i for i in b.instructions if i.op.startswith(EFFECTS) or not i.result or i.result in self.needed
            ]


def read(text: str) -> Function:
    """The function of a module that `emit_module` wrote."""
    lines = {int(n): int(line) for n, line in _ALIAS.findall(text)}
    agprs, threads = _AGPRS.search(text), _WORKGROUP.search(text)
    params: list[tuple[str, Type]] = []
    blocks = [Block("entry", [])]
    rows = iter(text.split("\n"))
    for row in rows:
        if row.lstrip().startswith("llvm.func @"):
            head = row[row.index("(") + 1 : row.index(" attributes")]
            params = [(n, type_of(t)) for n, t in re.findall(r"(%\w+): (!llvm\.ptr<\d>|\w+)", head)]
            break
    for row in rows:
        found = _LOC.search(row)
        line = lines.get(int(found[1]), 0) if found and found[1] else 0
        s = _LOC.sub("", row).strip()
        if s.startswith("}"):
            break
        if s.startswith("^"):
            head = _BLOCK.match(s)
            assert head is not None, s
            args = [(n, type_of(t.strip())) for n, t in _BLOCK_ARG.findall(head[2] or "")]
            blocks.append(Block(head[1], args))
        elif s:
            _statement(blocks[-1], s, line)
    lds = _LDS.search(text)
    return Function(
        params,
        blocks,
        int(agprs[2]) if agprs else 0,
        int(threads[1]) if threads else 64,
        int(lds[1]) if lds else 0,
        int(agprs[1]) if agprs and agprs[1] else 0,
    )


def _statement(block: Block, s: str, line: int) -> None:
    result, _, rest = s.partition(" = ") if s[0] == "%" else ("", "", s)
    found = _OP.match(rest)
    assert found is not None, s
    op = found[1]
    if op in ("llvm.br", "llvm.cond_br"):
        block.targets = [(label, _NAME.findall(values)) for label, values in _TARGET.findall(rest)]
        condition = _NAME.findall(rest.split(",")[0]) if op == "llvm.cond_br" else []
        block.instructions.append(Instruction(op, rest, "", condition, None, line))
        return
    type = type_of(_result_type(op, rest)) if result else None
    block.instructions.append(Instruction(op, rest, result, _NAME.findall(rest), type, line))


def _result_type(op: str, rest: str) -> str:
    if op == "llvm.getelementptr":
        return rest.rsplit("-> ", 1)[1].split(", ")[0]
    if " to " in rest and op != "llvm.inline_asm":
        return rest.rsplit(" to ", 1)[1]
    if "->" in rest:
        return rest.rsplit("-> ", 1)[1]
    last = rest.rsplit(" : ", 1)[1]
    vector = _VECTOR.match(last)
    match op:
        case "llvm.icmp" | "llvm.fcmp":
            return f"vector<{vector[1]}xi1>" if vector else "i1"
        case "llvm.extractelement":
            assert vector is not None
            return vector[2]
        case "llvm.extractvalue":
            return last[last.index("(") + 1 :].split(",")[0].rstrip(")>").strip()
        case "llvm.shufflevector":
            picks = _PICKS.search(rest)
            assert vector is not None and picks is not None
            return f"vector<{picks[1].count(',') + 1}x{vector[2]}>"
        case _:
            return last.rsplit(", ", 1)[-1] if "vector<" not in last or ", vector" in last else last
