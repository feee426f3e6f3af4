"""Formatted buffer accesses: buffer_load_format, tbuffer_load_format and their stores.

The data format says where the components of an element stand, the number format what they mean. MUBUF takes both, and
the selection of components, from the descriptor; MTBUF takes the formats from the instruction and selects nothing.
Components that the format lacks read zero. An element is in range as a whole or not at all. [CDNA3 ISA, "Memory Buffer
Instructions"; order of components in packed formats: as graphics drivers for the same descriptors use them]

Faults, because documents do not say what happens: reserved formats, 8-bit floats, scaled numbers and 10- and 11-bit floats
in stores, stores of fewer components than the format has or with another selection than the natural one.
"""

from __future__ import annotations

from .. import state
from ..decoder import Instruction, Operand
from .access import Faults, Global, check_number, clobber_check, each_lane, enqueue, lane_dword, put_lane_dword
from .buffer import Buffer, Operands
from .builder import Builder, Value
from .op import OFFSET_SLOT, Context, Lower, Op, Unsupported, checks_of, require

LAYOUTS: dict[int, tuple[int, ...]] = {
    1: (8,),
    2: (16,),
    3: (8, 8),
    4: (32,),
    5: (16, 16),
    6: (11, 11, 10),
    7: (10, 11, 11),
    8: (2, 10, 10, 10),
    9: (10, 10, 10, 2),
    10: (8, 8, 8, 8),
    11: (32, 32),
    12: (16, 16, 16, 16),
    13: (32, 32, 32),
    14: (32, 32, 32, 32),
}
"""Widths of the components by data format, lowest bits first. Names list the widths from the top: 6 is 10_11_11."""

UNORM, SNORM, USCALED, SSCALED, UINT, SINT, FLOAT = 0, 1, 2, 3, 4, 5, 7
_FLOATS = (UNORM, SNORM, USCALED, SSCALED, FLOAT)
_SELECT_NATURAL = (4, 5, 6, 7)


def _table(name: str, b: Builder, per_format: dict[int, int]) -> Value:
    return b.table(name, [per_format.get(i, 0) for i in range(16)])


class _Format:
    """Data and number format of the instruction, as run-time values, and what follows from them."""

    def __init__(self, b: Builder, data: Value, number: Value) -> None:
        self.b, self.number = b, number
        index = data.zext("i64") << 3

        def look_up(name: str, values: dict[int, int]) -> Value:
            return b.load("i64", b.ptr(_table(name, b, values), index), 0, 8)

        self.bytes = look_up("bytes", {k: sum(v) // 8 for k, v in LAYOUTS.items()})
        self.components = look_up("components", {k: len(v) for k, v in LAYOUTS.items()})
        self.widths = [
            look_up(f"width{c}", {k: v[c] for k, v in LAYOUTS.items() if c < len(v)}).trunc("i32") for c in range(4)
        ]
        self.shifts = [
            look_up(f"shift{c}", {k: sum(v[:c]) for k, v in LAYOUTS.items() if c < len(v)}) for c in range(4)
        ]

    def refuse_reserved(self, *, stores: bool) -> None:
        """Faults on combinations whose meaning is not documented."""
        b, number = self.b, self.number
        width = self.widths[0]
        bad = self.components.cmp("eq", 0) | number.cmp("eq", 6)
        small = width.cmp("eq", 8) | width.cmp("eq", 2)
        packed = width.cmp("eq", 10) | width.cmp("eq", 11)
        # four components of 10 and 2 bits have no float form
        small = small | (packed & self.components.cmp("eq", 4))
        bad = bad | (number.cmp("eq", FLOAT) & (small | packed if stores else small))
        if stores:
            bad = bad | number.cmp("eq", USCALED) | number.cmp("eq", SSCALED)
        with b.if_(bad):
            b.fault(state.FAULT_DESCRIPTOR)

    def integer(self) -> Value:
        return self.number.cmp("eq", UINT) | self.number.cmp("eq", SINT)

    def maximum(self, c: int) -> tuple[Value, Value]:
        """Largest unsigned and signed number of a component, as f64; 1 for a component that is absent."""
        b, width = self.b, self.widths[c]
        one = b.const("i64", 1)
        unsigned = (one << width.zext("i64")) - 1
        signed = unsigned >> 1
        return tuple(b.intrinsic("umax", v, one).cast("sitofp", "double") for v in (unsigned, signed))  # type: ignore[return-value]

    def decode(self, c: int, raw: Value) -> tuple[Value, Value]:
        """Component of an element (i128) as (f64 value, or dword for integer formats)."""
        b, width = self.b, self.widths[c]
        wide = width.zext("i64")
        field = (raw >> self.shifts[c].zext("i128")).trunc("i64") & ((b.const("i64", 1) << wide) - 1)
        up = b.const("i64", 64) - b.intrinsic("umax", wide, b.const("i64", 1))
        signed = (field << up).ashr(up)
        largest, largest_signed = self.maximum(c)
        u, s = field.cast("sitofp", "double"), signed.cast("sitofp", "double")
        minus_one = b.const("double", -1.0)
        normal = s / largest_signed
        normal = normal.cmp("olt", -1.0).select(minus_one, normal)
        number = self.number
        is_float = self._float(c, field)
        value = number.cmp("eq", UNORM).select(u / largest, number.cmp("eq", SNORM).select(normal, u))
        value = number.cmp("eq", SSCALED).select(s, number.cmp("eq", FLOAT).select(is_float, value))
        dword = number.cmp("eq", SINT).select(signed, field).trunc("i32")
        return value, dword

    def _float(self, c: int, field: Value) -> Value:
        """32-bit and 16-bit floats; 11 and 10 bits are unsigned halves without the lowest 4 and 5 bits."""
        width = self.widths[c]
        dword = field.trunc("i32")
        cut = width.cmp("eq", 11).select(dword << 4, width.cmp("eq", 10).select(dword << 5, dword))
        half = cut.trunc("i16").bitcast("half").cast("fpext", "double")
        return width.cmp("eq", 32).select(dword.bitcast("float").cast("fpext", "double"), half)

    def encode(self, c: int, value: Value, dword: Value) -> Value:
        """The bits of a component, at its place in the element (i128). value: f64; dword: the integer, or the bits of an
        f32."""
        b, width = self.b, self.widths[c]
        largest, largest_signed = self.maximum(c)

        def scaled(low: float, scale: Value) -> Value:
            clean = value.cmp("uno", value).select(b.const("double", 0.0), value)
            clean = clean.cmp("olt", low).select(b.const("double", low), clean)
            clean = clean.cmp("ogt", 1.0).select(b.const("double", 1.0), clean)
            return b.intrinsic("roundeven", clean * scale).cast("fptosi", "i64")

        half = value.cast("fptrunc", "float").cast("fptrunc", "half").bitcast("i16").zext("i64")
        number = self.number
        bits = number.cmp("eq", UNORM).select(scaled(0.0, largest), scaled(-1.0, largest_signed))
        floating = width.cmp("eq", 32).select(dword.zext("i64"), half)
        bits = self.integer().select(dword.zext("i64"), number.cmp("eq", FLOAT).select(floating, bits))
        bits = bits & ((b.const("i64", 1) << width.zext("i64")) - 1)
        return bits.zext("i128") << self.shifts[c].zext("i128")


_FORMAT_SLOT = OFFSET_SLOT - 1
"""Slot of the format that an MTBUF instruction names."""


class _Access:
    """What loads and stores share: operands, formats, and the element in memory."""

    def __init__(self, inst: Instruction) -> None:
        if inst.modifiers.get("lds", 0):
            raise Unsupported(f"{inst.name} to LDS")
        self.o = Operands(inst, 1)
        tail = inst.name.partition("_format_")[2]
        self.half = "hi" if tail.startswith("d16_hi") else "d16" if tail.startswith("d16") else ""
        self.components = len(tail.rpartition("_")[2])
        self.registers = self.components if not self.half else (self.components + 1) // 2
        self.data: Operand = inst.operands[0]
        require(self.data, self.registers, inst.name)
        m = inst.modifiers
        self.static = m.get("dfmt", 0) | m.get("nfmt", 0) << 4 if inst.encoding == "mtbuf" else None
        self.inst = inst

    def op(self, make: object, verb: str, *sources: Operand) -> Op:
        key = f"{verb}|{self.components}{self.half}|{'r' if self.static is None else 'i'}|{self.o.key()}"
        slots = list(self.o.slots(self.inst.operands[:1]))
        slots[_FORMAT_SLOT] = self.static or 0
        return Op(key, make, tuple(slots), checks_of(*sources, *self.o.sources()))  # type: ignore[arg-type]

    def format(self, b: Builder, buffer: Buffer) -> _Format:
        if self.static is not None:
            both = b.slot(_FORMAT_SLOT, "i32")
            return _Format(b, both & 15, both >> 4)
        word = buffer.words[3]
        # with the add-thread-id bit the data format is part of the stride
        with b.if_(buffer.add_tid.cmp("ne", 0)):
            b.fault(state.FAULT_DESCRIPTOR)
        return _Format(b, (word >> 15) & 15, (word >> 12) & 7)


def _pieces(b: Builder, faults: Faults, *, writes: bool) -> dict[int, Global]:
    return {size: Global(b, faults, size, writes=writes) for size in (1, 2, 4)}


def _lower_load(inst: Instruction, context: Context) -> Op:
    access = _Access(inst)

    def make(symbol: str) -> str:
        b = Builder(symbol)
        faults = Faults(b)
        clobber_check(b, "vm", 0, access.registers)
        buffer = Buffer(b, access.o, 1)
        form = access.format(b, buffer)
        form.refuse_reserved(stores=False)
        row = b.row(0)
        memory = _pieces(b, faults, writes=False)
        with each_lane(b, b.exec_mask()) as lane:
            raw = b.var("i128", 0)
            _, inside = buffer.place(lane, 0, form.bytes)
            with b.if_(inside):
                for size in (1, 2):
                    with (
                        b.if_(form.bytes.cmp("eq", size)),
                        memory[size].access(lane, buffer.place(lane, 0, size)[0]) as p,
                    ):
                        raw.set(b.load(f"i{8 * size}", p, 0, 1).zext("i128"))
                for k in range(4):
                    with b.if_(form.bytes.cmp("uge", 4 * k + 4)):
                        with memory[4].access(lane, buffer.place(lane, 4 * k, 4)[0]) as p:
                            raw.set(raw.get() | (b.load("i32", p, 0, 1).zext("i128") << 32 * k))
            values: list[Value] = []
            for c in range(4):
                present = b.const("i64", c).cmp("ult", form.components) & inside
                value, dword = form.decode(c, raw.get())
                if access.half:
                    number = value.cast("fptrunc", "float").cast("fptrunc", "half").bitcast("i16").zext("i32")
                    dword = dword & 0xFFFF
                else:
                    number = value.cast("fptrunc", "float").bitcast("i32")
                values.append(present.select(form.integer().select(dword, number), 0))
            _deliver(b, access, buffer, form, row, lane, values)
        faults.check()
        enqueue(b, state.HELPER_ENQUEUE_VM, check_number(b, 0), access.registers)
        b.next()
        return b.text()

    return access.op(make, "typedload", *([inst.operands[0]] if access.half else []))


def _deliver(
    b: Builder, access: _Access, buffer: Buffer, form: _Format, row: Value, lane: Value, values: list[Value]
) -> None:
    """Selects components and writes the registers of a lane."""
    out = values
    if access.static is None:
        one = form.integer().select(b.const("i32", 1), b.const("i32", 0x3C00 if access.half else 0x3F800000))
        out = []
        for c in range(4):
            select = (buffer.words[3] >> 3 * c) & 7
            chosen = select.cmp("eq", 1).select(one, 0)
            for k, value in enumerate(values):
                chosen = select.cmp("eq", 4 + k).select(value, chosen)
            out.append(chosen)
    if not access.half:
        for c in range(access.components):
            put_lane_dword(b, row, lane, c, out[c])
        return
    if access.half == "hi":
        put_lane_dword(b, row, lane, 0, (lane_dword(b, row, lane) & 0xFFFF) | (out[0] << 16))
        return
    for c in range(0, access.components, 2):
        if c + 1 < access.components:
            high = out[c + 1] << 16
        else:
            high = lane_dword(b, row, lane, c // 2) & -0x10000
        put_lane_dword(b, row, lane, c // 2, out[c] | high)


def _lower_store(inst: Instruction, context: Context) -> Op:
    access = _Access(inst)

    def make(symbol: str) -> str:
        b = Builder(symbol)
        faults = Faults(b)
        buffer = Buffer(b, access.o, 1)
        form = access.format(b, buffer)
        form.refuse_reserved(stores=True)
        bad = form.components.cmp("ugt", access.components)
        if access.static is None:
            for c, natural in enumerate(_SELECT_NATURAL):
                other = ((buffer.words[3] >> 3 * c) & 7).cmp("ne", natural)
                bad = bad | (other & b.const("i64", c).cmp("ult", form.components))
        with b.if_(bad):
            b.fault(state.FAULT_DESCRIPTOR)
        row = b.row(0)
        memory = _pieces(b, faults, writes=True)
        with each_lane(b, b.exec_mask()) as lane:
            _, inside = buffer.place(lane, 0, form.bytes)
            with b.if_(inside):
                raw = b.const("i128", 0)
                for c in range(access.components):
                    value, dword = _component(b, access, form, row, lane, c)
                    present = b.const("i64", c).cmp("ult", form.components)
                    raw = raw | present.select(form.encode(c, value, dword), 0)
                for size in (1, 2):
                    with (
                        b.if_(form.bytes.cmp("eq", size)),
                        memory[size].access(lane, buffer.place(lane, 0, size)[0]) as p,
                    ):
                        b.store(raw.trunc(f"i{8 * size}"), p, 0, 1)
                for k in range(4):
                    with b.if_(form.bytes.cmp("uge", 4 * k + 4)):
                        with memory[4].access(lane, buffer.place(lane, 4 * k, 4)[0]) as p:
                            b.store((raw >> 32 * k if k else raw).trunc("i32"), p, 0, 1)
        faults.check()
        enqueue(b, state.HELPER_ENQUEUE_VM)
        b.next()
        return b.text()

    return access.op(make, "typedstore", inst.operands[0])


def _component(b: Builder, access: _Access, form: _Format, row: Value, lane: Value, c: int) -> tuple[Value, Value]:
    """A component of the data registers: its value as a float, and its dword (16-bit integers extended)."""
    if not access.half:
        dword = lane_dword(b, row, lane, c)
        return dword.bitcast("float").cast("fpext", "double"), dword
    word = lane_dword(b, row, lane, c // 2)
    word = word >> 16 if access.half == "hi" or c % 2 else word
    short = word.trunc("i16")
    half = short.bitcast("half")
    extended = form.number.cmp("eq", SINT).select(short.sext("i32"), short.zext("i32"))
    single = half.cast("fpext", "float").bitcast("i32")
    return half.cast("fpext", "double"), form.integer().select(extended, single)


OPS: dict[str, Lower] = {}
for _way, _lower in (("load", _lower_load), ("store", _lower_store)):
    for _tail in ("x", "xy", "xyz", "xyzw"):
        for _half in ("", "d16_"):
            for _prefix in ("buffer", "tbuffer"):
                OPS[f"{_prefix}_{_way}_format_{_half}{_tail}"] = _lower
    OPS[f"buffer_{_way}_format_d16_hi_x"] = _lower
