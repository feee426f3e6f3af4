"""A small typed builder of LLVM IR text for the op library.

Values carry their LLVM type, so that an op can be written as an expression (``x + (y << 2)``). Lane-wise ops are
written for a *chunk* of :data:`LANES` lanes, as vectors, and repeated over the 64 lanes of a wave by
:meth:`Builder.chunks`; the host back end maps a chunk to whatever vector width the machine has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from contextlib import contextmanager

from .. import state

LANES = 16
"""Lanes per chunk; a wave has 64 = 4 chunks."""

_FLOAT = {"half", "float", "double", "bfloat"}
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}


def scalar(ty: str) -> str:
    """Element type of a vector type, or the type itself."""
    return ty[ty.index("x ") + 2 : -1] if ty.startswith("<") else ty


def count(ty: str) -> int:
    """Number of elements of a vector type; 0 for a scalar type."""
    return int(ty[1 : ty.index(" ")]) if ty.startswith("<") else 0


def vec(ty: str, n: int) -> str:
    """Vector of ``n`` elements of a scalar type; the scalar itself for ``n == 0``."""
    return f"<{n} x {ty}>" if n else ty


def bits(ty: str) -> int:
    """Width of the element type in bits."""
    element = scalar(ty)
    return _BITS[element] if element in _BITS else int(element[1:])


def is_float(ty: str) -> bool:
    return scalar(ty) in _FLOAT


class Value:
    """An SSA value or constant with its LLVM type."""

    __slots__ = ("b", "name", "ty")

    def __init__(self, b: Builder, name: str, ty: str) -> None:
        self.b, self.name, self.ty = b, name, ty

    def __str__(self) -> str:
        return f"{self.ty} {self.name}"

    def _arith(self, integer: str, floating: str, other: Value | int | float) -> Value:
        right = self.b.like(self, other)
        return self.b.emit(f"{floating if is_float(self.ty) else integer} {self}, {right.name}", self.ty)

    def __add__(self, other: Value | int | float) -> Value:
        return self._arith("add", "fadd", other)

    def __sub__(self, other: Value | int | float) -> Value:
        return self._arith("sub", "fsub", other)

    def __mul__(self, other: Value | int | float) -> Value:
        return self._arith("mul", "fmul", other)

    def __truediv__(self, other: Value | int | float) -> Value:
        return self._arith("udiv", "fdiv", other)

    def __and__(self, other: Value | int) -> Value:
        return self._arith("and", "", other)

    def __or__(self, other: Value | int) -> Value:
        return self._arith("or", "", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._arith("xor", "", other)

    def __lshift__(self, other: Value | int) -> Value:
        return self._arith("shl", "", other)

    def __rshift__(self, other: Value | int) -> Value:
        """Logical shift right; the shift count must be below the width."""
        return self._arith("lshr", "", other)

    def __invert__(self) -> Value:
        return self ^ -1

    def __neg__(self) -> Value:
        if is_float(self.ty):
            return self.b.emit(f"fneg {self}", self.ty)
        return self.b.emit(f"sub {self.ty} {self.b.const(self.ty, 0).name}, {self.name}", self.ty)

    def ashr(self, other: Value | int) -> Value:
        return self._arith("ashr", "", other)

    def cmp(self, predicate: str, other: Value | int | float) -> Value:
        """Comparison with an LLVM predicate (``eq``, ``ult``, ``slt``, ``oeq``, ``uno``, …)."""
        right = self.b.like(self, other)
        op = "fcmp" if is_float(self.ty) else "icmp"
        return self.b.emit(f"{op} {predicate} {self}, {right.name}", vec("i1", count(self.ty)))

    def select(self, yes: Value | int | float, no: Value | int | float) -> Value:
        """``self ? yes : no``; one of the two must be a :class:`Value`."""
        if isinstance(yes, Value):
            no = self.b.like(yes, no)
        elif isinstance(no, Value):
            yes = self.b.like(no, yes)
        else:
            raise TypeError("select needs one typed operand")
        return self.b.emit(f"select {self}, {yes}, {no}", yes.ty)

    def cast(self, op: str, element: str) -> Value:
        ty = vec(element, count(self.ty))
        return self if ty == self.ty else self.b.emit(f"{op} {self} to {ty}", ty)

    def zext(self, element: str) -> Value:
        return self.cast("zext", element)

    def sext(self, element: str) -> Value:
        return self.cast("sext", element)

    def trunc(self, element: str) -> Value:
        return self.cast("trunc", element)

    def bitcast(self, ty: str) -> Value:
        """Reinterprets as the *whole* type ``ty``, or element-wise when ``ty`` is an equally wide scalar type."""
        if count(self.ty) and not ty.startswith("<") and bits(ty) == bits(self.ty):
            ty = vec(ty, count(self.ty))
        return self if ty == self.ty else self.b.emit(f"bitcast {self} to {ty}", ty)

    def extract(self, index: int | Value) -> Value:
        where = f"i32 {index}" if isinstance(index, int) else str(index)
        return self.b.emit(f"extractelement {self}, {where}", scalar(self.ty))

    def shuffle(self, lanes: list[int], other: Value | None = None) -> Value:
        """``shufflevector``; an index of -1 gives poison."""
        mask = ", ".join("i32 poison" if i < 0 else f"i32 {i}" for i in lanes)
        second = other.name if other else "poison"
        text = f"shufflevector {self}, {self.ty} {second}, <{len(lanes)} x i32> <{mask}>"
        return self.b.emit(text, vec(scalar(self.ty), len(lanes)))


class Variable:
    """A mutable local, an ``alloca`` that the optimiser promotes."""

    def __init__(self, b: Builder, ty: str, initial: Value | int | float | None = None) -> None:
        self.b, self.ty = b, ty
        self.pointer = b.alloca(ty)
        if initial is not None:
            self.set(initial)

    def get(self) -> Value:
        return self.b.emit(f"load {self.ty}, {self.pointer}", self.ty)

    def set(self, value: Value | int | float) -> None:
        if not isinstance(value, Value):
            value = self.b.const(self.ty, value)
        self.b.line(f"store {value}, {self.pointer}")


def _float_bits(element: str, value: float) -> str:
    if element == "double":
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if element == "float":  # LLVM writes a float constant as the double of the same value
        return f"0x{struct.unpack('<Q', struct.pack('<d', struct.unpack('<f', struct.pack('<f', value))[0]))[0]:016X}"
    return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"


def rounded(symbol: str, make: Callable[[str], str], shift: int) -> str:
    """The op that ``make`` gives, run under the rounding mode that MODE asks for at bit ``shift``.

    The body is a function of its own, so that nothing of it moves across the change of the host's rounding mode; it
    must hold no operation whose result depends on the mode where that of the simulated machine does not. MODE: 0 to
    nearest even, 1 up, 2 down, 3 toward zero; LLVM: 1, 2, 3, 0. [CDNA3 ISA, "MODE"; LLVM, llvm.set.rounding]
    """
    b = Builder(symbol)
    mode = (b.load("i32", b.w, state.MODE) >> shift) & 3
    with b.if_(mode.cmp("eq", 0)):
        b.ret(b.emit(f"call ptr @{symbol}_body({b.w}, {b.r})", "ptr"))
    b.call("llvm.set.rounding", "void", (mode + 1) & 3)
    after = b.emit(f"call ptr @{symbol}_body({b.w}, {b.r})", "ptr")
    b.call("llvm.set.rounding", "void", b.const("i32", 1))
    b.ret(after)
    body = make(symbol + "_body").replace(" nounwind {", " nounwind noinline {", 1)
    return b.text() + body


class Builder:
    """Text of one function ``ptr name(ptr wave, ptr record)`` that returns the next record, or null to stop."""

    def __init__(self, name: str, parameters: str = "ptr %w, ptr %r", result: str = "ptr") -> None:
        self.name, self.parameters, self.result = name, parameters, result
        self._lines: list[str] = []
        self._allocas: list[str] = []
        self._declares: dict[str, None] = {}
        self._n = 0
        self._log: tuple[Value, Variable] | None = None
        self.terminated = False
        self.ieee = True
        """The IEEE mode of the kernel, for the ops whose treatment of signalling NaNs depends on it."""
        self.w = Value(self, "%w", "ptr")
        self.r = Value(self, "%r", "ptr")

    # ---- text
    def line(self, text: str) -> None:
        if not self.terminated:
            self._lines.append("  " + text)

    def fresh(self, prefix: str = "x") -> str:
        self._n += 1
        return f"{prefix}{self._n}"

    def emit(self, text: str, ty: str) -> Value:
        name = "%" + self.fresh()
        self.line(f"{name} = {text}")
        return Value(self, name, ty)

    def label(self, name: str) -> None:
        self._lines.append(f"{name}:")
        self.terminated = False

    def terminate(self, text: str) -> None:
        self.line(text)
        self.terminated = True

    def text(self) -> str:
        """The module text: declarations and the function."""
        if not self.terminated:
            raise ValueError(f"{self.name}: the function does not end in a terminator")
        body = "\n".join(["entry:", *self._allocas, *self._lines])
        head = f"define {self.result} @{self.name}({self.parameters}) nounwind {{\n{body}\n}}\n"
        return "\n".join([*self._declares, head])

    # ---- values
    def const(self, ty: str, value: int | float) -> Value:
        element, n = scalar(ty), count(ty)
        if element in _FLOAT:
            text = _float_bits(element, float(value))
        elif element == "i1":
            text = "true" if value else "false"
        elif element == "ptr":
            text = "null"
        else:
            text = str(int(value))
        return Value(self, f"splat ({element} {text})" if n else text, ty)

    def vector_const(self, element: str, values: list[int]) -> Value:
        return Value(self, "<" + ", ".join(f"{element} {v}" for v in values) + ">", vec(element, len(values)))

    def like(self, model: Value, value: Value | int | float) -> Value:
        """``value`` with the type of ``model``; scalars are splatted over vectors."""
        if not isinstance(value, Value):
            return self.const(model.ty, value)
        if count(model.ty) and not count(value.ty):
            return self.splat(value, count(model.ty))
        return value

    def splat(self, value: Value, n: int = LANES) -> Value:
        if not value.name.startswith("%"):
            return Value(self, f"splat ({value.ty} {value.name})", vec(value.ty, n))
        ty = vec(value.ty, n)
        one = self.emit(f"insertelement {ty} poison, {value}, i32 0", ty)
        return one.shuffle([0] * n)

    def alloca(self, ty: str, align: int = 64) -> Value:
        name = "%" + self.fresh("a")
        self._allocas.append(f"  {name} = alloca {ty}, align {align}")
        return Value(self, name, "ptr")

    def access_log(self) -> tuple[Value, Variable]:
        """The block of the checks and the number of entries in its log, read once at the start of the function."""
        if self._log is None:
            count, workgroup, check = Variable(self, "i64"), "%log_workgroup", "%log_check"
            lines = [f"store i64 0, {count.pointer}"]
            for name, base, offset in ((workgroup, "%w", state.WORKGROUP), (check, workgroup, state.WG_CHECK)):
                lines.append(f"{name}_at = getelementptr i8, ptr {base}, i64 {offset}")
                lines.append(f"{name} = load ptr, ptr {name}_at, align 8")
            self._allocas += ["  " + line for line in lines]
            self._log = Value(self, check, "ptr"), count
        return self._log

    def var(self, ty: str, initial: Value | int | float | None = None) -> Variable:
        return Variable(self, ty, initial)

    def ptr(self, base: Value, offset: Value | int) -> Value:
        where = f"i64 {offset}" if isinstance(offset, int) else str(offset)
        if where == "i64 0":
            return base
        return self.emit(f"getelementptr i8, {base}, {where}", "ptr")

    def load(self, ty: str, base: Value, offset: Value | int = 0, align: int = 4) -> Value:
        return self.emit(f"load {ty}, {self.ptr(base, offset)}, align {align}", ty)

    def store(self, value: Value, base: Value, offset: Value | int = 0, align: int = 4) -> None:
        self.line(f"store {value}, {self.ptr(base, offset)}, align {align}")

    def call(self, name: str, ty: str, *arguments: Value, attributes: str = "") -> Value:
        """Calls an intrinsic or external function, declaring it."""
        signature = ", ".join(a.ty for a in arguments)
        self._declares[f"declare {ty} @{name}({signature})"] = None
        text = f"call {ty} @{name}({', '.join(map(str, arguments))}){attributes}"
        if ty == "void":
            self.line(text)
            return Value(self, "undef", "void")
        return self.emit(text, ty)

    def intrinsic(self, name: str, *arguments: Value, ty: str | None = None) -> Value:
        """``llvm.<name>`` overloaded on the type of the first argument, which is also the result by default."""
        first = arguments[0].ty
        suffix = f"v{count(first)}" if count(first) else ""
        element = scalar(first)
        suffix += {"half": "f16", "float": "f32", "double": "f64", "bfloat": "bf16"}.get(element, element)
        return self.call(f"llvm.{name}.{suffix}", ty or first, *arguments)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return self.intrinsic("fma", a, b, c)

    def call_pointer(self, pointer: Value, ty: str, *arguments: Value) -> Value:
        text = f"call {ty} {pointer.name}({', '.join(map(str, arguments))})"
        if ty == "void":
            self.line(text)
            return pointer
        return self.emit(text, ty)

    def helper(self, index: int, ty: str, *arguments: Value) -> Value:
        """Calls helper function ``index`` of the runtime through the table that the wave points to."""
        table = self.load("ptr", self.w, state.HELPERS, 8)
        return self.call_pointer(self.load("ptr", table, 8 * index, 8), ty, *arguments)

    def table(self, name: str, words: list[int]) -> Value:
        """A constant array of i64 in the module; the pointer to it."""
        values = ", ".join(f"i64 {w}" for w in words)
        self._declares[f"@{name} = private unnamed_addr constant [{len(words)} x i64] [{values}]"] = None
        return Value(self, f"@{name}", "ptr")

    # ---- control flow
    def branch(self, target: str) -> None:
        self.terminate(f"br label %{target}")

    @contextmanager
    def if_(self, condition: Value) -> Generator[None, None, None]:
        then, end = self.fresh("then"), self.fresh("end")
        self.terminate(f"br {condition}, label %{then}, label %{end}")
        self.label(then)
        yield
        self.branch(end)
        self.label(end)

    def if_else(self, condition: Value, yes: Callable[[], None], no: Callable[[], None]) -> None:
        then, other, end = self.fresh("then"), self.fresh("else"), self.fresh("end")
        self.terminate(f"br {condition}, label %{then}, label %{other}")
        for name, body in ((then, yes), (other, no)):
            self.label(name)
            body()
            self.branch(end)
        self.label(end)

    @contextmanager
    def while_(self, condition: Callable[[], Value]) -> Generator[None, None, None]:
        head, body, end = self.fresh("while"), self.fresh("body"), self.fresh("done")
        self.branch(head)
        self.label(head)
        self.terminate(f"br {condition()}, label %{body}, label %{end}")
        self.label(body)
        yield
        self.branch(head)
        self.label(end)

    @contextmanager
    def loop(self, n: int | Value, ty: str = "i64") -> Generator[Value, None, None]:
        """Counts 0 … n-1 (no iteration for n = 0)."""
        variable = self.var(ty, 0)
        bound = n if isinstance(n, Value) else self.const(ty, n)
        with self.while_(lambda: variable.get().cmp("ult", bound)):
            index = variable.get()
            yield index
            variable.set(index + 1)

    # ---- the machine
    def ret(self, value: Value | None = None) -> None:
        self.terminate(f"ret {value}" if value else "ret void")

    def next(self) -> None:
        """Falls through to the next record."""
        self.ret(self.ptr(self.r, state.RECORD_SIZE))

    def slot(self, index: int, ty: str = "i64") -> Value:
        """Operand slot of the record: a byte offset into the wave, or the constant itself."""
        return self.load(ty, self.r, state.REC_SLOTS + 8 * index, 8)

    def row(self, index: int, register: int = 0) -> Value:
        """Pointer to row ``register`` (64 dwords, one per lane) of the vector operand in a slot."""
        return self.ptr(self.ptr(self.w, self.slot(index)), 256 * register)

    def exec_mask(self) -> Value:
        return self.load("i64", self.w, state.EXEC, 8)

    def fault(self, code: int, lanes: Value | None = None, address: Value | None = None) -> None:
        """Stops the wave with a fault code; the dispatcher notes the record."""
        self.store(self.const("i32", code), self.w, state.STATUS)
        if lanes is not None:
            self.store(lanes, self.w, state.FAULT_LANES, align=8)
        if address is not None:
            self.store(address, self.w, state.FAULT_ADDRESS, align=8)
        self.ret(self.const("ptr", 0))

    @contextmanager
    def chunks(self) -> Generator[Value, None, None]:
        """Loops over the four chunks of 16 lanes; yields the chunk number as i64."""
        with self.loop(64 // LANES) as chunk:
            yield chunk

    def chunk_mask(self, mask: Value, chunk: Value) -> Value:
        """Bits of a 64-bit lane mask that belong to a chunk, as a vector of i1."""
        part = (mask >> (chunk * LANES)).trunc(f"i{LANES}")
        return part.bitcast(f"<{LANES} x i1>")

    def lane_numbers(self, chunk: Value) -> Value:
        base = self.splat((chunk * LANES).trunc("i32"))
        return base + self.vector_const("i32", list(range(LANES)))
