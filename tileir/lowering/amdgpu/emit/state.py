"""What the emitters of a kernel share."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.diagnostics import CompileError, error
from tileir.ir.location import Loc
from tileir.ir.types import Elem
from tileir.lowering.amdgpu.emit.coords import thread, wave
from tileir.lowering.amdgpu.emit.tiles import Tile, tied
from tileir.lowering.amdgpu.emit.writer import Scope, Writer, scalar_type
from tileir.passes.affine import Ranges
from tileir.passes.late import LOAD_AHEAD, READ_AHEAD, Late, late_ops
from tileir.passes.uniform import uniform_axes
from tileir.records import dataclass
from tileir.target import Target

if TYPE_CHECKING:
    from tileir.lowering.amdgpu.emit.streams import Moving


@dataclass(frozen=True)
class Stream:
    """Addresses of an access in a loop: its descriptor (`!llvm.ptr<8>`), the byte offset of all lanes in this iteration
    (i32, uniform), and the byte offset of each of the lane's pieces (i32, and a constant to add), which the iterations share."""

    resource: str
    offset: str
    pieces: tuple[tuple[str, int], ...]

    def piece(self, s: State, i: int) -> str:
        """The offset of a piece. A constant becomes part of the instruction, if LLVM does not add it before the loop."""
        value, constant = self.pieces[i]
        return s.w.add(s.in_block(value), constant) if constant else value


@dataclass(frozen=True)
class Anew:
    """A tile that is so cheap that each block makes its own: it would fill registers from one to the other."""

    make: Callable[[], Tile]


@dataclass
class Hidden:
    """Sizes and strides that LLVM knows nothing of, from a place of the text on: those that are used, tied there."""

    place: list[str]
    values: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class State:
    """The function being written and what its IR values have become: MLIR names for scalars, `Tile`s for tiles."""

    kernel: Kernel
    target: Target
    w: Writer
    values: dict[Value, str | Tile | Anew] = field(default_factory=dict[Value, "str | Tile | Anew"])
    symbols: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    opaque: Hidden | None = None
    opaque_bases: dict[str, str] | None = None
    sparing: bool = False  # keep few registers in use, at the price of waiting for memory
    pinned: bool = False  # tie operands in the vector file, too
    last_accumulation: int = (
        0  # register of the accumulation file up to which they will be renamed (`accumulation_file.py`)
    )
    needs_zeros: bool = False
    tables: list[bytes] = field(default_factory=list[bytes])  # arrays of constants of the code object
    report_sites: dict[Op, int] = field(
        default_factory=dict[Op, int]
    )  # `print` and `assert`, numbered in program order
    streams: dict[Op, Stream] = field(default_factory=dict[Op, "Stream"])
    starts: dict[tuple[int, int, int], str] = field(
        default_factory=dict[tuple[int, int, int], str]
    )  # where what direct copies fill begins, by block
    slabs: int | None = None  # the number of places that they fill, by `shared`
    copies: dict[tuple[int, str], str] = field(default_factory=dict[tuple[int, str], str])  # see `in_block`
    rows: dict[tuple[int, Op], Scope] = field(default_factory=dict[tuple[int, Op], Scope])  # by block, see `views`
    moving: dict[Op, list[Moving]] = field(default_factory=dict[Op, "list[Moving]"])  # of loops, found by `streams`
    tested: set[tuple[Value, object]] = field(init=False)  # views and spans that an `accessible` tests
    has_products: bool = field(init=False)
    late: Late = field(init=False)
    ranges: Ranges = field(init=False)  # of integers
    wholly_sparing: bool = field(init=False)  # whether all of the kernel is, because a text that was not took too many
    uniform: dict[Value, frozenset[int]] = field(init=False)  # axes along which carried tiles are equal
    made_anew: dict[tuple[int, Value], Tile] = field(default_factory=dict[tuple[int, Value], Tile])
    fragment_ties: dict[Value, str] = field(default_factory=dict[Value, str])  # by `fragments.accumulator_ties`
    casts: dict[tuple[int, str, str], str] = field(default_factory=dict[tuple[int, str, str], str])  # see `cast_once`
    shadow: tuple[int, str, str, str] | None = None  # see `keep_packed`: block, result, its type and register file
    fragment_pins: dict[Value, str] = field(default_factory=dict[Value, str])  # by `fragments.accumulator_pins`

    def __post_init__(self) -> None:
        self.late = late_ops(self.kernel)
        self.ranges = Ranges(self.kernel)
        self.wholly_sparing = self.sparing
        self.uniform = uniform_axes(self.kernel)
        self.has_products = any(op.name in ("mma", "mfma") for op in self.kernel.walk())
        self.tested = {(op.operands[0], op.spans) for op in self.kernel.walk() if op.name == "accessible"}

    @property
    def ahead_of_products(self) -> int:
        """Registers of operands that are read from LDS before the matrix instruction that needs them is next."""
        return 0 if self.sparing else READ_AHEAD

    @property
    def in_flight(self) -> int:
        """Registers of a load on its way to LDS that are filled before the first is written."""
        return (LOAD_AHEAD // 2) if self.sparing else LOAD_AHEAD

    def operand_constraint(self, file: str) -> str:
        """Constraint of the empty assembly that pins an operand to its register file, "" to leave it to LLVM: it keeps
        operands in the vector file unless something moves them, and a tie for each costs time."""
        if file == "accumulation":
            return "a"
        return "v" if self.pinned else ""

    @contextmanager
    def opaque_symbols(self, loop: bool = True) -> Generator[None, None, None]:
        """Within a loop that begins here, sizes and strides are values that LLVM knows nothing of: what is computed from them
        stays in the loop. It would move all of it before the loop, where it fills the registers. Without `loop` that is a region, whose
        `forget_symbols` ends with it."""
        outer, outer_bases = self.opaque, self.opaque_bases
        if loop:
            self.forget_symbols()
            self.opaque_bases = {}
        yield
        self.opaque, self.opaque_bases = outer, outer_bases

    def forget_symbols(self) -> None:
        """From here to the end of the region, or until this is called again, sizes and strides are values that LLVM knows nothing of: it
        computes what the text asks for again, instead of keeping it in scalar registers from where it was computed before."""
        self.opaque = Hidden(self.w.place())

    def forget(self) -> None:
        """Behind a loop: sizes and strides are hidden anew, and what the lanes compute from their numbers is computed again, instead of filling
        registers while the loop runs. Only in kernels with products: others have registers to spare, and LLVM schedules them, across which
        nothing should stand."""
        w = self.w
        w.mark()
        if not self.has_products:
            return
        if not w.in_loop:
            item, number = thread(w), wave(w)
            w.forget(
                {
                    "thread": lambda: tied(w, item, "i32", "v", ordered=True),
                    "lane": lambda: w.binary("and", thread(w), w.const(self.target.wave_size - 1)),
                    "wave": lambda: tied(w, number, "i32", "s", ordered=True),
                }
            )
        self.forget_symbols()

    def forget_outside(self) -> None:
        """`forget_symbols` where a test or branch outside of loops begins, in kernels with products."""
        if self.has_products and not self.w.in_loop:
            self.forget_symbols()

    @contextmanager
    def spare(self, spared: bool) -> Generator[None, None, None]:
        """Keeps few registers in use in what is emitted within, if `spared`."""
        outer, self.sparing = self.sparing, self.sparing or spared
        yield
        self.sparing = outer

    def opaque_base(self, value: str) -> str:
        """A lane's part (i32) of addresses that take several instructions each, likewise opaque in such a loop."""
        if self.opaque_bases is None or self.w.hoisting:
            return value
        if value not in self.opaque_bases:
            self.opaque_bases[value] = tied(self.w, value, "i32", "v", ordered=True)
        return self.opaque_bases[value]

    def in_block(self, value: str) -> str:
        """A lane's number (i32), opaque in this block. Tests of it stay where they are used: before a loop, each would occupy
        two scalar registers for as long as it runs."""
        key = self.w.block, value
        if key not in self.copies:
            self.copies[key] = tied(self.w, value, "i32", "v", ordered=True)
        return self.copies[key]

    def cast_once(self, value: str, source: str, target: str) -> str:
        """A value under another type of the same bits, once for all uses in a block: operands of products have many."""
        key = self.w.block, value, target
        if source != target and key not in self.casts:
            self.casts[key] = self.w.bitcast(value, source, target)
        return self.casts.get(key, value)

    def spread(self, v: Value, n: int) -> str:
        """`n` times a scalar. In loops with products an f32 that the kernel is launched with becomes pairs in each block that uses them: LLVM would
        keep two registers for each such block, from before the loop."""
        value, element = self.scalar(v), scalar_type(v.tile.elem)
        if n == 1 or v not in self.kernel.args or element != "f32" or not (self.has_products and self.w.in_loop):
            return self.w.pack([value] * n, element)
        key = self.w.block, value, f"{n} times"
        if key not in self.casts:
            self.casts[key] = self.w.pack([tied(self.w, value, element, "s", ordered=True)] * n, element)
        return self.casts[key]

    def keep_packed(self) -> None:
        """To be called before arithmetic on pairs of f32 that follows a matrix instruction. LLVM 22 takes packed instructions apart
        that stand behind one, where both halves could issue beside it as well; but where packed ones can, that is twice as many to
        issue. It stops looking at an instruction that touches the result of the matrix instruction, which an empty piece of
        assembly does as well. The fence keeps it before what follows."""
        if self.shadow is None or self.shadow[0] != self.w.block:
            return
        _, value, type, file = self.shadow
        self.shadow = None
        self.w.line(f'llvm.inline_asm has_side_effects asm_dialect = att "", "{file}" {value} : ({type}) -> ()')
        self.w.line("rocdl.sched.barrier 0")

    def symbol(self, name: str) -> tuple[str, str]:
        """Value and type of a size or stride, here in the text."""
        value, type = self.symbols[name]
        if self.w.hoisting or self.opaque is None:
            return value, type
        hidden = self.opaque
        if name not in hidden.values:
            with self.w.writing(hidden.place):
                hidden.values[name] = tied(self.w, value, type, "s", ordered=True)
        return hidden.values[name], type

    def at(self, loc: Loc, make: Callable[[int], str]) -> Callable[[int], str]:
        """`make` under the source location of the op that it belongs to, whenever it is called."""

        def made(i: int) -> str:
            outer, self.w.loc = self.w.loc, loc
            piece = make(i)
            self.w.loc = outer
            return piece

        return made

    def is_deferrable(self, op: Op) -> bool:
        """Whether the pieces of an elementwise or renamed result may be computed where they are used: by the only op that
        uses it, in the same block, which takes it piece by piece."""
        return op in self.late.deferred

    def scalar(self, v: Value) -> str:
        x = self.values[v]
        assert isinstance(x, str), v
        return x

    def tile(self, v: Value) -> Tile:
        x = self.values[v]
        if isinstance(x, Anew):
            key = self.w.block, v
            if key not in self.made_anew:
                self.made_anew[key] = x.make()
            return self.made_anew[key]
        assert isinstance(x, Tile), v
        return x

    def pointer(self, view: Value) -> str:
        """The base pointer of a view."""
        return f"%arg_{view.name}"

    def table(self, data: bytes) -> str:
        """Name of an array with these bytes in the code object."""
        if data not in self.tables:
            self.tables.append(data)
        return f"tileir_table_{self.tables.index(data)}"

    def zeros(self) -> str:
        """Address of a block of zero bytes, always readable."""
        self.needs_zeros = True
        return self.w.hoist("zeros", lambda: self.w.op("llvm.mlir.addressof @tileir_zeros : !llvm.ptr<1>"))

    def literal(self, value: int | float | bool, elem: Elem) -> str:
        """MLIR attribute text of a constant (without its type)."""
        if elem.is_bool:
            return "true" if value else "false"
        if elem.is_int:
            wrapped = int(value) & ((1 << elem.bits) - 1)
            return str(wrapped - (1 << elem.bits) if wrapped >> (elem.bits - 1) else wrapped)
        import numpy as np

        with np.errstate(over="ignore"):  # an f64 beyond the range of the type is infinite there
            bits = np.asarray(value, np.float64).astype(elem.np).view(f"u{elem.bytes}")
        if elem.bits <= 8:
            return str(int(bits))
        return f"0x{int(bits):0{elem.bits // 4}X}"

    def splat_literal(self, value: int | float | bool, elem: Elem, n: int) -> str:
        return self.w.splat_const(self.literal(value, elem), scalar_type(elem), n)

    def unsupported(self, what: str, loc: Loc, legal: str) -> CompileError:
        """The diagnostic for something that has no lowering yet."""
        return error("E0903", f"{what} cannot be compiled for {self.target.name} yet", loc, legal=legal)
