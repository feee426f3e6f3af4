"""`mma`: the matrix instructions of a tile product, in the order of the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from tileir.ir.core import Op, Value
from tileir.ir.diagnostics import error
from tileir.ir.types import Elem
from tileir.layout.mfma import elements_per_lane
from tileir.layout.mma import MmaPlan, MmaStep, mma_plan, scale_registers
from tileir.lowering.amdgpu.emit.coords import masks
from tileir.lowering.amdgpu.emit.shared import hole_test
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import Tile, at_pin, tied
from tileir.lowering.amdgpu.emit.writer import scalar_type, vector_type
from tileir.target import Mfma

FILES = ("file_a", "file_b")
SCALES_TOGETHER = 4  # in one register


def place_lasting_operands(s: State, loop: Op) -> None:
    """Operands of products in a loop that are there before it: those in the accumulation file are tied to it before the loop, as they
    would be moved there at each use otherwise; narrow elements are put together, as they would be kept in a register each."""
    for op in loop.walk():
        for i, v in enumerate(op.operands[:2]) if op.name == "mma" else ():
            tile = s.values.get(v)
            if isinstance(tile, Tile) and not tile.splat and v.tile.elem.bits < 32:
                plan = plan_of(op)
                n = (plan.a_registers, plan.b_registers)[i]
                if tile.chunk < n and not _must_be_cleared(v, 1 - i):
                    s.values[v] = Tile(v.tile, n, tile.get(s.w, n))
        for v, name in zip(op.operands, FILES, strict=False) if op.name == "mma" else ():
            tile = s.values.get(v)
            if op.attrs.get(name) == "accumulation" and isinstance(tile, Tile) and not tile.file:
                plan = plan_of(op)
                n = plan.a_registers if name == FILES[0] else plan.b_registers
                t = vector_type(tile.element, n)
                placed = Tile(v.tile, n, [tied(s.w, piece, t, "a", ordered=False) for piece in tile.get(s.w, n)])
                placed.file = "a"
                s.values[v] = placed


def plan_of(op: Op) -> MmaPlan:
    """The steps of an `mma`."""
    a, b, c = op.operands[0].tile, op.operands[1].tile, op.result.tile
    assert a.layout is not None and b.layout is not None and c.layout is not None
    swapped = bool(op.attrs.get("swapped", False))
    return mma_plan(
        a.layout, b.layout, c.layout, instr=_triple(op), operand_bits=(a.elem.bits, b.elem.bits), swapped=swapped
    )


def matrix_instruction(s: State, op: Op, elems: tuple[Elem, Elem], acc: Elem) -> Mfma:
    """The instruction of the op's shape for its first and second operand; E0701 if the chip has none, since LLVM would abort."""
    a, b = elems
    m, n, k = _triple(op)
    fitting = [i for i in s.target.mfmas_for(a.name, b.name, acc.name) if i.blocks == 1]
    for i in fitting:
        if (i.m, i.n, i.k) == (m, n, k):
            return i
    shapes = ", ".join(f"{i.m}x{i.n}x{i.k}" for i in fitting) or "none for these types"
    raise error("E0701", f"{s.target.name} has no {m}x{n}x{k} matrix instruction for {a} x {b}", op.loc, legal=shapes)


def _triple(op: Op) -> tuple[int, int, int]:
    instr = op.attrs["instr"]
    assert isinstance(instr, tuple)
    return instr[0], instr[1], instr[2]


def mma(s: State, op: Op) -> None:
    w = s.w
    a, b = op.operands[0].tile, op.operands[1].tile
    c = op.result.tile
    swapped = bool(op.attrs.get("swapped", False))
    elems = (b.elem, a.elem) if swapped else (a.elem, b.elem)
    chosen = matrix_instruction(s, op, elems, c.elem)
    assert c.layout is not None
    plan = _streamed(plan_of(op), c.layout.num_registers)
    operands = _Operands(s, op, plan)
    acc_type = vector_type(scalar_type(c.elem), plan.c_registers)
    if len(op.operands) > 2:
        acc = list(s.tile(op.operands[2]).get(w, plan.c_registers))
    else:
        zero = s.splat_literal(0 if c.elem.is_int else 0.0, c.elem, plan.c_registers)
        acc = [zero] * (c.layout.num_registers // plan.c_registers)
    one = emit_product(s, chosen, elems, acc_type)
    scales = _scales(s, op, plan) if len(op.operands) == 5 else None
    registers, summed = plan.c_registers * max(1, c.elem.bits // 32), set[int]()
    for number, step in enumerate(plan.steps):
        i = step.c // plan.c_registers
        a_piece, b_piece = operands.of(number)
        x, y = (b_piece, a_piece) if swapped else (a_piece, b_piece)
        old = at_pin(w, op, i, acc[i], acc_type, registers, first=i not in summed)
        summed.add(i)
        acc[i] = one(x, y, old, scales[number] if scales else None)
    s.values[op.result] = Tile(c, plan.c_registers, acc)


def _streamed(plan: MmaPlan, registers: int) -> MmaPlan:
    """The plan in an order in which the operand with more pieces passes by: each of its pieces is used for all pieces of the other
    one, which stay, and is done with. (A fragment of the accumulator still sums in the same order of k.)"""
    size = registers // plan.c_registers  # steps of one slice of k
    steps: list[MmaStep] = []
    for first in range(0, len(plan.steps), size):
        part = plan.steps[first : first + size]
        rows, columns = ({step.a for step in part}, {step.b for step in part})
        if len(rows) != len(columns):
            few_last = (lambda x: (x.b, x.a)) if len(rows) < len(columns) else (lambda x: (x.a, x.b))
            part = tuple(sorted(part, key=few_last))
        steps += part
    return replace(plan, steps=tuple(steps))


Scales = tuple[tuple[str, int], tuple[str, int]]
"""For the first and the second operand of an instruction a register of four scales (i32), and which of its bytes counts."""


class Product(Protocol):
    """Emits one instruction from its first and second operand, the accumulator, and the scales of the operands if they have some."""

    def __call__(self, x: str, y: str, c: str, scales: Scales | None = None, /) -> str: ...


def emit_product(s: State, mfma: Mfma, elems: tuple[Elem, Elem], acc_type: str) -> Product:
    """Emits instructions of one kind."""
    w = s.w
    sizes = [elements_per_lane(mfma.m, mfma.k)] * 2
    types = [vector_type(scalar_type(e), n) for e, n in zip(elems, sizes, strict=True)]
    taken = [operand_type(mfma, e, n) for e, n in zip(elems, sizes, strict=True)]
    kinds: list[str] = []
    if mfma.formats:
        codes = s.target.fact("matrix_formats").value
        assert isinstance(codes, Mapping)
        kinds = [w.const(codes[e.name]) for e in elems]
    count = 3 if not kinds else 6
    signature = f"({', '.join([*taken, acc_type, *['i32'] * count])}) -> {acc_type}"

    def product(x: str, y: str, c: str, scales: Scales | None = None) -> str:
        values = [s.cast_once(v, t, to) for v, t, to in zip((x, y), types, taken, strict=True)]
        zero = w.const(0)
        tail = [zero] * 3
        if kinds:  # scales of 0 stand for none
            given = [(zero, 0)] * 2 if scales is None else scales
            tail = [*kinds, *(part for register, byte in given for part in (w.const(byte), register))]
        return w.op(f"{mfma.rocdl} {', '.join([*values, c, *tail])} : {signature}")

    return product


def operand_type(mfma: Mfma, elem: Elem, n: int) -> str:
    """Type in which an instruction takes `n` elements: as they are, whole words for elements of 8 bits and less, and for bf16 i16 where the
    intrinsic is older than LLVM's type."""
    if elem.bits <= 8:
        return words_type(elem, n)
    return vector_type("i16" if mfma.intrinsic.endswith(".1k") else scalar_type(elem), n)


def _scales(s: State, op: Op, plan: MmaPlan) -> list[Scales]:
    """The scales of every step: four registers of a lane lie in one of the machine's, of which the instruction picks a byte."""
    layouts = [v.tile.layout for v in op.operands]
    a, b, _, sa, sb = layouts
    assert a is not None and b is not None and sa is not None and sb is not None
    bits = op.operands[0].tile.elem.bits, op.operands[1].tile.elem.bits
    registers = [_scale_registers(s, op, number) for number in (3, 4)]
    found: list[Scales] = []
    for places in scale_registers(plan, (a, b), (sa, sb), _triple(op), bits):
        x, y = ((registers[i][r // SCALES_TOGETHER], r % SCALES_TOGETHER) for i, r in enumerate(places))
        found.append((y, x) if op.attrs.get("swapped", False) else (x, y))
    return found


def _scale_registers(s: State, op: Op, number: int) -> list[str]:
    """The scales of an operand, four to an i32. Beyond k the operand is zero, where the scale must not be NaN."""
    w, v = s.w, op.operands[number]
    layout = v.tile.layout
    assert layout is not None
    scalars = list(s.tile(v).scalars(w))
    for r, value in enumerate(scalars):
        inside = hole_test(s, layout, r)
        if inside:
            scalars[r] = w.select(inside, value, s.splat_literal(1.0, v.tile.elem, 1), "i8")
    if len(scalars) == 1:
        return [w.op(f"llvm.zext {scalars[0]} : i8 to i32")]
    scalars += [scalars[0]] * (-len(scalars) % SCALES_TOGETHER)
    four = vector_type("i8", SCALES_TOGETHER)
    return [
        w.bitcast(w.pack(scalars[i : i + SCALES_TOGETHER], "i8"), four, "i32")
        for i in range(0, len(scalars), SCALES_TOGETHER)
    ]


def words_type(elem: Elem, n: int) -> str:
    """Type of `n` elements of at most 8 bits as one i64, or as i32 words."""
    bits = n * elem.bits
    return "i64" if bits == 64 else vector_type("i32", bits // 32)


class _Operands:
    """The operands of the steps of a product, in pieces of one instruction. Pieces that are still in LDS are read in the order
    of their use, so many ahead as `State.ahead_of_products` says."""

    def __init__(self, s: State, op: Op, plan: MmaPlan):
        self.plan = plan
        make = (_operand(s, op, 0, plan.a_registers), _operand(s, op, 1, plan.b_registers))
        sizes = [
            _in_flight(s.tile(v), n, v.tile.elem.bits)
            for v, n in zip(op.operands, (plan.a_registers, plan.b_registers), strict=False)
        ]
        self.ahead = -(-s.ahead_of_products // max(sizes)) if s.ahead_of_products else 0
        order: dict[tuple[int, int], int] = {}
        for step in plan.steps:
            for key in ((0, step.a // plan.a_registers), (1, step.b // plan.b_registers)):
                order.setdefault(key, len(order))
        self.place, self.order, self.make = order, list(order), make
        self.made: dict[tuple[int, int], str] = {}

    def of(self, number: int) -> tuple[str, str]:
        """Pieces of a and b for step `number`."""
        step, plan = self.plan.steps[number], self.plan
        a, b = (0, step.a // plan.a_registers), (1, step.b // plan.b_registers)
        last = max(self.place[a], self.place[b]) + self.ahead
        while len(self.made) <= min(last, len(self.order) - 1):
            operand, i = key = self.order[len(self.made)]
            self.made[key] = self.make[operand](i)
        return self.made[a], self.made[b]


def _in_flight(tile: Tile, n: int, bits: int) -> int:
    """Registers that a piece of `n` elements occupies while it is read: narrow reads take a register each."""
    return max(1, n * bits // 32, n // tile.chunk)


def _operand(s: State, op: Op, number: int, n: int) -> Callable[[int], str]:
    """Pieces of an operand by number, in the register file that the text states. Where k does not fill the last instruction, what
    lies beyond it must be zero: it takes part in the products. Tiles read from LDS or loaded past it are zero there already."""
    v = op.operands[number]
    tile, layout = s.tile(v), v.tile.layout
    assert layout is not None
    element = scalar_type(v.tile.elem)
    constraint = s.operand_constraint(str(op.attrs.get(FILES[number], "")))
    if tile.file == constraint:
        constraint = ""

    def placed(piece: str) -> str:
        return tied(s.w, piece, vector_type(element, n), constraint, ordered=False) if constraint else piece

    if not _must_be_cleared(v, 1 - number):
        return lambda i: placed(tile.part(s.w, i, n))
    zero = s.splat_literal(0, v.tile.elem, 1)
    scalars = list(tile.scalars(s.w))
    for r, value in enumerate(scalars):
        inside = hole_test(s, layout, r)
        if inside:
            scalars[r] = s.w.select(inside, value, zero, vector_type(element, 1))
    pieces = [s.w.pack(scalars[i : i + n], element) for i in range(0, len(scalars), n)]
    return lambda i: placed(pieces[i])


def _must_be_cleared(v: Value, axis: int) -> bool:
    """Whether what an operand holds beyond k is not zero."""
    assert v.tile.layout is not None
    return bool(masks(v.tile.layout, axis)) and not _has_zeros(v)


def _has_zeros(v: Value) -> bool:
    """Whether an operand holds zeros beyond its tile: read from LDS, or from memory with zeros outside."""
    owner = v.owner
    while owner is not None and owner.name == "transpose":
        owner = owner.operands[0].owner
    if owner is None:
        return False
    from_memory = owner.name == "load" and owner.attrs.get("stage") == "none" and owner.attrs.get("pad", 0) == 0
    return from_memory or owner.name in ("shared_load", "shared_load_transposed")
