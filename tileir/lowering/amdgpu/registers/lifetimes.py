"""Lifetimes of a kernel whose passes are done: what is in registers while each op runs, and where most is.

    found = lifetimes(kernel, target)
    found.rows[n].vector        # registers alive at most while op n of the program order runs
    found.peaks[0].held         # what they hold at the worst place of the kernel: largest first

It is the prediction of `predict`, told in terms of the text: every register belongs to the op whose code makes it, and is
a piece of the op's result, an address, a descriptor, a mask of lanes, a constant or something temporary.
"""

from __future__ import annotations

import re
from collections import Counter

from tileir.ir.core import Kernel, Op
from tileir.ir.location import Loc
from tileir.ir.registry import get
from tileir.ir.types import FragmentType, TileType
from tileir.lowering.amdgpu.emit.kernel import emit_module
from tileir.lowering.amdgpu.registers.liveness import profile
from tileir.lowering.amdgpu.registers.predict import Prediction, predict
from tileir.lowering.amdgpu.registers.select import MATERIALISED, SCALAR_CONSTANT
from tileir.lowering.amdgpu.registers.text import Instruction
from tileir.lowering.amdgpu.registers.values import ACCUMULATION, MASK, SCALAR, VECTOR
from tileir.records import dataclass
from tileir.target import Target

VALUE, ADDRESS, DESCRIPTOR, LANES, LITERAL, ARGUMENT, TEMPORARY = (
    "value", "address", "descriptor", "mask", "constant", "argument", "temporary",
)  # fmt: skip
ROLES = (VALUE, ADDRESS, DESCRIPTOR, LANES, LITERAL, ARGUMENT, TEMPORARY)
_NUMBER = re.compile(r"_\d+$")
_LDS_ACCESSES = (
    "shared_load", "shared_load_transposed", "shared_store", "shared_load_fragment", "shared_load_transposed_fragment",
    "shared_store_fragment",
)  # fmt: skip
_FILE = "program-order"  # stands for the file while ops have their numbers in place of their lines


@dataclass(frozen=True)
class Held:
    """What some registers hold: `name` of the tile value or of what it belongs to, in which file, made at `line` of the
    author's text (0: unknown)."""

    name: str
    role: str
    file: str
    registers: int
    line: int


@dataclass(frozen=True)
class Row:
    """An op, with the most registers of each file that are alive while its code runs, and how many hold what."""

    op: Op
    vector: int
    accumulation: int
    scalar: int
    roles: tuple[int, ...]
    """Registers of the vector file by role, at the point with most of them, in the order of `ROLES`."""


@dataclass(frozen=True)
class Peak:
    """The worst point of a kernel (`loop` None) or of a loop: the op whose code runs, what is alive, and what it holds."""

    loop: Op | None
    op: Op
    vector: int
    accumulation: int
    scalar: int
    held: tuple[Held, ...]

    @property
    def registers(self) -> int:
        return self.vector + self.accumulation


@dataclass(frozen=True)
class Lifetimes:
    """The rows of all ops in program order, and the peaks: of the kernel, then of each loop."""

    kernel: Kernel
    target: Target
    prediction: Prediction
    rows: tuple[Row, ...]
    peaks: tuple[Peak, ...]
    scalars: Peak
    """The point of the kernel with the most scalar registers."""
    spans: tuple[tuple[Held, int, int], ...]
    """What vectors and accumulators hold, with the numbers of the first and last op while it does, largest first."""


def lifetimes(kernel: Kernel, target: Target, *, sparing: bool = False) -> Lifetimes:
    """Lifetimes of a kernel in the form that the pipeline ends with. Raises CompileError for an op that has no lowering."""
    ops = list(kernel.walk())
    prediction = predict(_numbered(kernel, ops, target, sparing), target)
    return _Reader(kernel, target, prediction, ops).read()


def _numbered(kernel: Kernel, ops: list[Op], target: Target, sparing: bool) -> str:
    """The emitted text with the number of the op, from 1, as the line of every statement."""
    places, own = [op.loc for op in ops], kernel.loc
    try:
        kernel.loc = Loc(_FILE, 0, 0, 0, 0)
        for n, op in enumerate(ops, 1):
            op.loc = Loc(_FILE, n, 1, n, 2)
        return emit_module(kernel, target, sparing=sparing)
    finally:
        kernel.loc = own
        for op, loc in zip(ops, places, strict=True):
            op.loc = loc


class _Reader:
    def __init__(self, kernel: Kernel, target: Target, prediction: Prediction, ops: list[Op]) -> None:
        self.kernel, self.target, self.prediction, self.ops = kernel, target, prediction, ops
        self.function, self.registers, self.live = prediction.function, prediction.registers, prediction.live
        self.addresses = self._addresses()
        self.data = self._data()
        self.arguments = {name for name, _ in self.function.params}
        self.carried = {name: (b.label, k) for b in self.function.blocks for k, (name, _) in enumerate(b.args)}
        self._what: dict[str, tuple[str, str, int]] = {}

    def read(self) -> Lifetimes:
        files = (VECTOR, ACCUMULATION, SCALAR)
        counts = {file: profile(self.live, self.registers, file) for file in files}
        total = [v + a for v, a in zip(counts[VECTOR], counts[ACCUMULATION], strict=True)]
        worst: dict[int, int] = {}  # op → its point with most vectors
        narrow: dict[int, int] = {}  # and with most scalars
        most: dict[int, list[int]] = {}
        for p in self.live.points:
            n = p.instruction.line - 1
            if not 0 <= n < len(self.ops):
                continue
            for at in (p.read, p.write):
                if n not in worst or total[at] > total[worst[n]]:
                    worst[n] = at
                if n not in narrow or counts[SCALAR][at] > counts[SCALAR][narrow[n]]:
                    narrow[n] = at
                row = most.setdefault(n, [0, 0, 0])
                for i, file in enumerate(files):
                    row[i] = max(row[i], counts[file][at])
        rows: list[Row] = []
        before = [0, 0, 0], (0,) * len(ROLES)
        roles = self._roles([at for _, at in sorted(worst.items())])
        for n, op in enumerate(self.ops):
            if n in worst:
                before = most[n], roles[worst[n]]
            shown, by_role = before if n in worst or not op.regions else ([0, 0, 0], before[1])
            rows.append(Row(op, shown[0], shown[1], shown[2], by_role))
        peaks = [self._peak(None, worst, total, counts)]
        for op in self.ops:
            if op.name in ("for", "while"):
                inside = {id(x) for region in op.regions for x in region.walk()}
                here = {n: at for n, at in worst.items() if id(self.ops[n]) in inside}
                if here:
                    peaks.append(self._peak(op, here, total, counts))
        scalars = self._peak(None, narrow, counts[SCALAR], counts)
        return Lifetimes(self.kernel, self.target, self.prediction, tuple(rows), tuple(peaks), scalars, self._spans())

    def _peak(self, loop: Op | None, worst: dict[int, int], total: list[int], counts: dict[str, list[int]]) -> Peak:
        n = max(worst, key=lambda n: (total[worst[n]], -n)) if worst else 0
        at = worst.get(n, 0)
        numbers = Counter[tuple[str, str, str, int]]()
        for d, bits in self.live.bits.items():
            if bits >> at & 1:
                name, role, line = self._holds(self.registers.owner[d])
                numbers[name, role, self.registers.file[d], line] += 1
        held = [Held(name, role, file, count, line) for (name, role, file, line), count in numbers.items()]
        held.sort(key=lambda h: (h.file == SCALAR, -h.registers, h.name, h.role, h.line))
        return Peak(loop, self.ops[n], counts[VECTOR][at], counts[ACCUMULATION][at], counts[SCALAR][at], tuple(held))

    def _roles(self, points: list[int]) -> dict[int, tuple[int, ...]]:
        found = {at: [0] * len(ROLES) for at in points}
        for d, bits in self.live.bits.items():
            if self.registers.file[d] != VECTOR:
                continue
            role = ROLES.index(self._holds(self.registers.owner[d])[1])
            for at in points:
                if bits >> at & 1:
                    found[at][role] += 1
        return {at: tuple(row) for at, row in found.items()}

    def _spans(self) -> tuple[tuple[Held, int, int], ...]:
        """From which op to which each name holds registers, of vectors and accumulators."""
        number = [0] * (self.live.count + 1)
        last = 0
        for p in self.live.points:
            last = p.instruction.line - 1 if p.instruction.line else last
            number[p.read] = number[p.write] = last
        found: dict[tuple[str, str, str, int], list[int]] = {}
        for d, bits in self.live.bits.items():
            file = self.registers.file[d]
            if file == SCALAR:
                continue
            name, role, line = self._holds(self.registers.owner[d])
            first = number[(bits & -bits).bit_length() - 1]
            end = number[bits.bit_length() - 1]
            span = found.setdefault((name, role, file, line), [0, first, end])
            span[0] += 1
            span[1], span[2] = min(span[1], first), max(span[2], end)
        rows = [(Held(name, role, file, n, line), first, end) for (name, role, file, line), (n, first, end) in found.items()]  # fmt: skip
        return tuple(sorted(rows, key=lambda x: (-x[0].registers, x[1], x[0].name, x[0].role)))

    def _holds(self, owner: str) -> tuple[str, str, int]:
        """Name, role and line of what a register of the value `owner` holds."""
        if owner not in self._what:
            self._what[owner] = self._find(owner, set())
        return self._what[owner]

    def _find(self, owner: str, seen: set[str]) -> tuple[str, str, int]:
        if owner in self.arguments:
            return owner.removeprefix("%").partition("_")[2], ARGUMENT, self.kernel.loc.line
        i = self.function.definitions.get(owner)
        if (
            i is None and owner in self.carried and owner not in seen
        ):  # what a jump hands on is what was computed for it
            label, k = self.carried[owner]
            for values in reversed(self.function.incoming.get(label, [])):
                found = self._find(values[k], {*seen, owner})
                if found[1] not in (TEMPORARY, LITERAL):
                    return found
            return "carried", TEMPORARY, 0
        if i is None or not 0 < i.line <= len(self.ops):
            return "the kernel", TEMPORARY, 0
        op = self.ops[i.line - 1]
        role = self._role(i, op)
        return _name(op), role, op.loc.line

    def _role(self, i: Instruction, op: Op) -> str:
        if i.op in (MATERIALISED, SCALAR_CONSTANT, "llvm.mlir.constant"):
            return LITERAL
        kind = self.registers.kinds.get(i.result)
        if kind == MASK:
            return LANES
        if i.result in self.addresses:
            return DESCRIPTOR if kind == SCALAR and self.addresses[i.result] == DESCRIPTOR else ADDRESS
        if kind not in (VECTOR, ACCUMULATION):
            return TEMPORARY
        if get(op.name).access_position is not None or op.name in _LDS_ACCESSES:
            return VALUE if i.result in self.data else ADDRESS
        tile = any(isinstance(v.type, TileType | FragmentType) for v in op.results)
        return VALUE if tile else TEMPORARY

    def _data(self) -> set[str]:
        """Values that come from memory or a matrix instruction, or are computed from such; the others are made of numbers of lanes,
        arguments and constants."""
        found: set[str] = set()
        for i in self.function.instructions():
            reads = i.is_product or _place(i, 0) in (ADDRESS, DESCRIPTOR)
            if i.result and (reads or any(v in found for v in i.operands)):
                found.add(i.result)
        return found

    def _addresses(self) -> dict[str, str]:
        """Values that serve only to say where memory is accessed."""
        users: dict[str, list[tuple[Instruction, int]]] = {}
        for i in self.function.instructions():
            for at, v in enumerate(i.operands):
                users.setdefault(v, []).append((i, at))
        handed = {v for b in self.function.blocks for _, values in b.targets for v in values}
        found: dict[str, str] = {}
        for i in reversed(list(self.function.instructions())):
            if not i.result or i.result in handed:
                continue
            uses = [_place(u, at) or found.get(u.result, "") for u, at in users.get(i.result, [])]
            if uses and all(uses):
                found[i.result] = DESCRIPTOR if DESCRIPTOR in uses else ADDRESS
        return found


def _name(op: Op) -> str:
    """What the op makes, or its name; fragments that are numbered pieces of one value go together."""
    if not op.results:
        return op.name
    name = op.results[0].name
    if isinstance(op.results[0].type, FragmentType):
        return f"%{_NUMBER.sub('', name)}_*"
    return f"%{name}"


def _place(i: Instruction, at: int) -> str:
    """What an operand of a memory access is for, "" if it is data or the instruction is none."""
    if i.op.startswith("rocdl.raw.ptr.buffer."):
        first = 1 if "store" in i.op or "atomic" in i.op else 0
        return "" if at < first else DESCRIPTOR if at == first else ADDRESS
    if i.op == "llvm.load" or i.op.startswith(("rocdl.ds.read", "rocdl.ds.load")):
        return ADDRESS
    return ADDRESS if i.op == "llvm.store" and at == 1 else ""
