"""Where accesses of global memory lie: strides, what is inside of a view, and offsets that are masked by it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

from tileir.ir.core import Value
from tileir.ir.types import Elem, GlobalType
from tileir.lowering.amdgpu.emit.coords import Coordinate
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.writer import Writer
from tileir.records import dataclass

# Word 3 of a raw buffer descriptor: DATA_FORMAT = 32 bits, no swizzle, no type checks (CDNA3 ISA, buffer resource
# descriptor; the value LLVM's AMDGPUUsage and the amdgpu dialect use for gfx9).
BUFFER_FLAGS = 0x27000
# Byte offset that no descriptor of ours reaches: num_records is at most this.
OUTSIDE = 0x80000000


@dataclass
class Access:
    """One access with everything that is uniform over the workgroup worked out."""

    view: Value
    spans: tuple[int | None, ...]
    indices: list[str]  # MLIR values of the start or plain index per view dimension
    index_types: list[str]
    tile_dims: list[int]  # view dimension of each tile dimension
    picked: Picked | None = None
    starts: tuple[int | None, ...] = ()  # the indices that are constants; none known if empty

    @property
    def type(self) -> GlobalType:
        assert isinstance(self.view.type, GlobalType)
        return self.view.type

    @property
    def scalars(self) -> list[tuple[int, str, str]]:
        """View dimension, value and type of each index that is a scalar."""
        all = enumerate(zip(self.indices, self.index_types, strict=True))
        return [(d, x, t) for d, (x, t) in all if self.picked is None or d != self.picked.dim]


@dataclass
class Picked:
    """Rows that a tile of indices picks: for each coordinate along `tile_dim`, which runs along dimension `dim` of the view,
    the lane's row (of MLIR type `type`) and, once computed, its byte offset."""

    dim: int
    tile_dim: int
    type: str
    rows: dict[Coordinate, str]
    offsets: dict[Coordinate, str] = field(default_factory=dict[Coordinate, str])


def dim_value(s: State, dim: int | str) -> str:
    """A dimension or stride as i64."""
    w = s.w
    if isinstance(dim, int):
        return w.const(dim, "i64")
    name, t = s.symbol(dim)
    return w.to_i64(name, t)


def known_stride(view: GlobalType, d: int) -> int | None:
    """Stride of dimension d in elements, None if only the launch says it."""
    if view.strides is not None:
        x = view.strides[d]
        return x if isinstance(x, int) else None
    inner = [n for n in view.dims[d + 1 :] if isinstance(n, int)]
    return math.prod(inner) if len(inner) == view.rank - d - 1 else None


def stride(s: State, view: GlobalType, d: int) -> int | str:
    """Stride of dimension d in elements: a number where it is known, else an i64 value."""
    if view.strides is not None:
        x = view.strides[d]
        return x if isinstance(x, int) else dim_value(s, x)
    known = 1
    factors: list[str] = []
    for n in view.dims[d + 1 :]:
        if isinstance(n, int):
            known *= n
        else:
            factors.append(n)
    if not factors:
        return known

    total = dim_value(s, factors[0])
    for f in factors[1:]:
        total = s.w.binary("mul", total, dim_value(s, f), "i64")
    return s.w.mul(total, known, "i64")


def scaled(s: State, value: str, view: GlobalType, d: int, type: str) -> str:
    """value · stride · element bytes, in `type` (i32 or i64)."""
    w = s.w
    x = stride(s, view, d)
    together, size = view.elem.unit
    if isinstance(x, int):
        if x % together == 0:
            return w.mul(value, x // together * size, type)
        return in_bytes(w, w.mul(value, x, type), view.elem, type)
    if type == "i32":
        x = w.op(f"llvm.trunc {x} : i64 to i32")
    return w.binary("mul", value, in_bytes(w, x, view.elem, type), type)


def in_bytes(w: Writer, elements: str, elem: Elem, type: str) -> str:
    """Bytes of a number of elements, which make whole units."""
    together, size = elem.unit
    if together > 1:  # i32 are sizes without sign
        shift = w.const(together.bit_length() - 1, type)
        elements = w.binary("lshr" if type == "i32" else "ashr", elements, shift, type)
    return w.mul(elements, size, type)


def base_offset(s: State, a: Access) -> str:
    """Byte offset of the tile's first element from the start of the view, i64 (negative for negative starts)."""
    w = s.w
    total = ""
    for d, index, t in a.scalars:
        term = scaled(s, w.to_i64(index, t), a.type, d, "i64")
        total = w.binary("add", total, term, "i64") if total else term
    return total or w.const(0, "i64")


def descriptor(s: State, a: Access, offset: str, reach: str = "") -> str:
    """Buffer resource that begins `offset` bytes (i64) into the view and has `reach` bytes (i64), or reaches as far as offsets can. That says
    nothing of where the view ends: the offsets do, exactly, for every lane and dimension, unless the access is `clipped`."""
    w = s.w
    pointer = w.op(f"llvm.getelementptr {s.pointer(a.view)}[{offset}] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8")
    reach = reach or w.const(OUTSIDE, "i64")
    return w.op(
        f"rocdl.make.buffer.rsrc {pointer}, {w.const(0, 'i16')}, {reach}, {w.const(BUFFER_FLAGS)} : !llvm.ptr<1> to <8>"
    )


class Bounds:
    """Which lanes are inside the view, tested once per distinct coordinate; `holes` says along which dimensions of the
    tile a coordinate may lie beyond `shape`."""

    def __init__(self, s: State, a: Access, shape: Sequence[int], holes: Sequence[bool]):
        self.s, self.a, self.shape, self.holes = s, a, shape, holes
        self._tests: dict[tuple[int, Coordinate], str] = {}
        self._marks: dict[tuple[int, Coordinate], str] = {}
        self.fits = [self._fits(d, n) for d, n in zip(a.tile_dims, shape, strict=False)]
        self.fixed = self._plain()

    def _fits(self, d: int, extent: int) -> bool:
        """Whether the tile is known to lie in the view along view dimension `d`."""
        size, start = self.a.type.dims[d], self.a.starts[d] if self.a.starts else None
        return isinstance(size, int) and start is not None and 0 <= start <= size - extent

    def _plain(self) -> str:
        """Test of the plain (not spanned) indices, "" if there are none to make."""
        result = ""
        for test in self.of_plain():
            result = both(self.s.w, result, test)
        return result

    def of_plain(self) -> list[str]:
        """The tests of which that consists. LLVM computes a conjunction lane by lane; one after the other, they stay scalar."""
        plain = [(d, index, t) for d, index, t in self.a.scalars if self.a.spans[d] is None and not self._fits(d, 1)]
        return [self._inside(index, t, d) for d, index, t in plain]

    def _inside(self, value: str, type: str, d: int) -> str:
        """value < dimension, as unsigned numbers: one test for both ends, right also where start + offset passes 2³¹."""
        size = self.a.type.dims[d]
        w = self.s.w
        if type == "i64":
            return w.icmp("ult", value, dim_value(self.s, size), "i64")
        if isinstance(size, int):
            return w.icmp("ult", value, w.const(size))
        name, t = self.s.symbol(size)
        if t == "i64":
            return w.icmp("ult", w.to_i64(value, type), name, "i64")
        return w.icmp("ult", value, name)

    def along(self, t: int, c: Coordinate) -> str:
        """True where coordinate `c` along tile dimension `t` is in the tile and in the view; "" if always."""
        w = self.s.w
        key = (t, c)
        if key not in self._tests:
            d = self.a.tile_dims[t]
            if self.fits[t] and not self.holes[t]:
                return ""
            local = w.add(c.base, c.offset)
            index, type = self.a.indices[d], self.a.index_types[d]
            if self.a.picked is not None and d == self.a.picked.dim:
                at = self.a.picked.rows[c]
            elif type == "i64":
                at = w.binary("add", index, w.op(f"llvm.zext {local} : i32 to i64"), "i64")
            else:
                at = w.binary("add", index, local)
            test = "" if self.fits[t] else self._inside(at, type, d)
            if self.holes[t]:
                inside = w.icmp("ult", w.add(self.s.in_block(c.base), c.offset), w.const(self.shape[t]))
                test = both(w, test, inside)
            self._tests[key] = test
        return self._tests[key]

    def test(self, coords: Sequence[Coordinate]) -> str:
        """True where the element at these tile coordinates is in the tile and in the view; "" if always."""
        w = self.s.w
        tested = [(t, c) for t, c in enumerate(coords) if self.along(t, c)]
        if len(tested) < 2:
            return both(w, self.fixed, self.along(*tested[0])) if tested else self.fixed
        # One test per coordinate would occupy two scalar registers for as long as it is used: keep numbers in vector
        # registers instead, of which the highest bit says "outside", and test their saturating sum.
        total = self._mark(*tested[0])
        for t, c in tested[1:]:
            total = w.op(f"llvm.intr.uadd.sat({total}, {self._mark(t, c)}) : (i32, i32) -> i32")
        return both(w, self.fixed, w.icmp("sge", total, w.const(0)))

    def _mark(self, t: int, c: Coordinate) -> str:
        """0 where the coordinate is inside, else a number with the highest bit set."""
        key = (t, c)
        if key not in self._marks:
            w = self.s.w
            self._marks[key] = w.select(self.along(t, c), w.const(0), w.const(OUTSIDE - (1 << 32)), "i32")
        return self._marks[key]


def both(w: Writer, a: str, b: str) -> str:
    """Conjunction of two tests, either of which may be "" for true."""
    return w.binary("and", a, b, "i1") if a and b else a or b


class BufferOffsets:
    """Byte offsets of a lane's elements from a tile's descriptor, i32, beyond every descriptor where outside the view.

    One masked offset per distinct coordinate of each dimension in which the tile may leave the view, added with saturation: an
    access costs one addition. What needs no mask is added plainly, constants last: they become part of the instruction.

    `extra` is a test that must hold besides. `near` (far stores) is a uniform test: where it is false, offsets leave out the
    lanes' part, which is then in the descriptor; register parts of dimensions other than `column` always are.
    """

    def __init__(self, s: State, a: Access, bounds: Bounds, extra: str = "", near: str = "", column: int | None = None):
        self.s, self.a, self.bounds, self.near, self.column = s, a, bounds, near, column
        self.extra = both(s.w, bounds.fixed, extra)
        self._parts: dict[tuple[int, Coordinate], str] = {}

    def get(self, coords: Sequence[Coordinate]) -> str:
        w = self.s.w
        if not coords:
            return w.select(self.extra, w.const(0), w.const(OUTSIDE - (1 << 32)), "i32") if self.extra else w.const(0)
        tests = [both(w, self.bounds.along(t, c), "" if t else self.extra) for t, c in enumerate(coords)]
        masked = [self._masked(t, c, test) for t, (c, test) in enumerate(zip(coords, tests, strict=True)) if test]
        plain = [self._plain(t, c) for t, (c, test) in enumerate(zip(coords, tests, strict=True)) if not test]
        # Plain sums first: they cannot pass 2^32, as one masked part and all others are less; a saturated sum could.
        total = masked[0] if masked else ""
        for part, _ in plain:
            total = w.binary("add", total, part) if total else part
        total = w.add(total, sum(constant for _, constant in plain))
        for part in masked[1:]:
            total = w.op(f"llvm.intr.uadd.sat({total}, {part}) : (i32, i32) -> i32")
        return total

    def _masked(self, t: int, c: Coordinate, test: str) -> str:
        key = (t, c)
        if key not in self._parts:
            w = self.s.w
            self._parts[key] = w.select(test, w.add(*self._plain(t, c)), w.const(OUTSIDE - (1 << 32)), "i32")
        return self._parts[key]

    def _plain(self, t: int, c: Coordinate) -> tuple[str, int]:
        """Offset of a coordinate as a value and a constant to add."""
        s, w, view = self.s, self.s.w, self.a.type
        d = self.a.tile_dims[t]
        value = w.hoist(("scaled", c.base, view, d), lambda: scaled(s, c.base, view, d, "i32"))
        if self.near:
            value = w.select(self.near, value, w.const(0), "i32")
            if t != self.column:
                return value, 0
        if not c.offset:
            return value, 0
        x = stride(s, view, d)
        if isinstance(x, int):
            return value, c.offset * x // view.elem.unit[0] * view.elem.unit[1]
        step = scaled(s, w.const(c.offset), view, d, "i32")  # a scalar, cheaper to compute again than to keep
        return w.binary("add", value, step), 0


def lane_offset(s: State, a: Access, coords: Sequence[Coordinate]) -> str:
    """Byte offset of an element from the tile's first, i64."""
    w = s.w
    total = ""
    for c, d in zip(coords, a.tile_dims, strict=True):
        if a.picked is not None and d == a.picked.dim:
            part = _row_offset(s, a, a.picked, c)
        else:
            local = w.op(f"llvm.zext {w.add(c.base, c.offset)} : i32 to i64")
            part = scaled(s, local, a.type, d, "i64")
        total = w.binary("add", total, part, "i64") if total else part
    return total or w.const(0, "i64")


def _row_offset(s: State, a: Access, picked: Picked, c: Coordinate) -> str:
    """Byte offset of a picked row, i64."""
    if c not in picked.offsets:
        row = s.w.to_i64(picked.rows[c], picked.type)
        picked.offsets[c] = scaled(s, row, a.type, picked.dim, "i64")
    return picked.offsets[c]
