"""Tiles in registers: which SSA values hold the registers of a lane, in pieces that suit their users."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tileir.ir.core import Op
from tileir.ir.types import TileType
from tileir.lowering.amdgpu.emit import packed
from tileir.lowering.amdgpu.emit.coords import Coordinate
from tileir.lowering.amdgpu.emit.writer import Writer, scalar_type, vector_type
from tileir.passes.pressure import part_of_pin


class Tile:
    """The registers of one tile: `chunks[i]` holds registers i·chunk … (i+1)·chunk - 1 as a vector (a scalar if chunk is 1).

    A *splat* keeps one scalar for all registers and becomes pieces on demand.
    """

    def __init__(
        self, type: TileType, chunk: int, chunks: Sequence[str], splat: str = "", splat_text: str = "", tie: str = ""
    ):
        assert type.layout is not None
        self.type = type
        self.element = scalar_type(type.elem)
        self.count = type.layout.num_registers
        self.chunk = chunk
        self.chunks = list(chunks)
        self.splat = splat  # the scalar, for a splat
        self.splat_text = splat_text  # its MLIR constant text, if it is a constant
        self.tie = (
            tie  # constraint of the register file that pieces stay in until the moment of their use ("" for none)
        )
        # Ties replace the piece where nothing but the body of one loop reads it.
        self.in_place = False
        self.file = ""  # constraint of the register file in which all pieces are already
        self.places: Sequence[Coordinate] = ()  # see `at_places`
        self.ahead = 0  # deferred pieces that are made before they are asked for, to hide their latency
        self._make: Callable[[int], str] | None = None
        self._parts: dict[tuple[int, int, int], str] = {}
        assert splat or chunk * len(self.chunks) == self.count, (chunk, len(self.chunks), self.count)

    @staticmethod
    def of_scalar(type: TileType, value: str, text: str = "") -> Tile:
        return Tile(type, 1, [], splat=value, splat_text=text)

    @staticmethod
    def deferred(type: TileType, chunk: int, make: Callable[[int], str], ahead: int = 0) -> Tile:
        """A tile whose pieces `make` computes when they are first asked for: for values that one later op of the same
        block takes piece by piece, so that they are not all alive at once. The first `ahead` pieces are made now, and
        so many more than asked for later."""
        assert type.layout is not None
        tile = Tile(type, chunk, [""] * (type.layout.num_registers // chunk))
        tile._make = make
        tile.ahead = ahead
        for i in range(min(ahead, len(tile.chunks))):
            tile.chunks[i] = make(i)
        return tile

    @staticmethod
    def at_places(type: TileType, w: Writer, places: Sequence[Coordinate]) -> Tile:
        """A tile of positions, deferred likewise: values that several elements share, and constants."""
        tile = Tile.deferred(type, 1, lambda i: w.add(*places[i]))
        tile.places = places
        return tile

    @property
    def is_deferred(self) -> bool:
        """Whether there are pieces that are still to be made."""
        return self._make is not None and "" in self.chunks

    def _ready(self) -> None:
        for i in range(len(self.chunks)):
            self._made(i)

    def _made(self, i: int) -> str:
        for j in range(i, min(i + self.ahead + 1, len(self.chunks))):
            if not self.chunks[j]:
                assert self._make is not None
                self.chunks[j] = self._make(j)
        return self.chunks[i]

    def retyped(self, type: TileType) -> Tile:
        """The same registers under another tile type with as many registers."""
        tile = Tile(type, self.chunk, self.chunks, self.splat, self.splat_text, self.tie)
        tile._make = self._made if self._make is not None else None
        return tile

    def part(self, w: Writer, i: int, n: int) -> str:
        """Registers i·n … (i+1)·n - 1 as one piece, put together when first asked for in a block (what one block makes, another
        may not see)."""
        if self.splat:
            return self._splat_piece(w, n)
        if n == self.chunk:
            return self.piece(w, i)
        key = (w.block, i, n)
        if key not in self._parts:
            self._parts[key] = self._part(w, i, n)
        return self._parts[key]

    def _part(self, w: Writer, i: int, n: int) -> str:
        if n < self.chunk:
            whole, first = self.piece(w, i * n // self.chunk), i * n % self.chunk
            if self.element in packed.WIDTHS:
                return packed.part(w, whole, self.element, self.chunk, first, n)
            t = vector_type(self.element, self.chunk)
            if n == 1:
                return w.extract(whole, first, t)
            picks = ", ".join(str(first + j) for j in range(n))
            return w.op(f"llvm.shufflevector {whole}, {whole} [{picks}] : {t}")
        ratio = n // self.chunk
        pieces = [self.piece(w, i * ratio + j) for j in range(ratio)]
        if self.element in packed.WIDTHS:
            return packed.joined(w, pieces, self.element, self.chunk)
        return w.pack(pieces, self.element) if self.chunk == 1 else joined(w, pieces, self.element, self.chunk)[0]

    def piece(self, w: Writer, i: int) -> str:
        """Piece `i` in the tile's own piece size, tied here and now if the tile is."""
        piece = self._made(i)
        if self.tie:
            piece = tied(w, piece, vector_type(self.element, self.chunk), self.tie, ordered=True)
            if self.in_place:
                self.chunks[i] = piece
        return piece

    def pieces(self, w: Writer, chunk: int) -> Callable[[int], str]:
        """The registers in pieces of `chunk` by number: those that are deferred are made when they are asked for."""
        if self.is_deferred:
            return lambda i: self.part(w, i, chunk)
        pieces = self.get(w, chunk)
        return lambda i: pieces[i]

    def get(self, w: Writer, chunk: int) -> list[str]:
        """The registers in pieces of `chunk`, which must divide their number."""
        if self.splat:
            piece = self._splat_piece(w, chunk)
            return [piece] * (self.count // chunk)
        self._ready()
        if self.tie:
            return Tile(self.type, self.chunk, [self.piece(w, i) for i in range(len(self.chunks))]).get(w, chunk)
        if chunk == self.chunk:
            return self.chunks
        if chunk > self.chunk > 1 or self.element in packed.WIDTHS:
            return [self.part(w, i, chunk) for i in range(self.count // chunk)]
        scalars = self.chunks
        if self.chunk > 1:
            if chunk < self.chunk and chunk > 1:
                return self._split(w, chunk)
            t = vector_type(self.element, self.chunk)
            scalars = [w.extract(c, i, t) for c in self.chunks for i in range(self.chunk)]
        return [w.pack(scalars[i : i + chunk], self.element) for i in range(0, self.count, chunk)]

    def _split(self, w: Writer, chunk: int) -> list[str]:
        t = vector_type(self.element, self.chunk)
        out: list[str] = []
        for c in self.chunks:
            for i in range(0, self.chunk, chunk):
                picks = ", ".join(str(i + j) for j in range(chunk))
                out.append(w.op(f"llvm.shufflevector {c}, {c} [{picks}] : {t}"))
        return out

    def _splat_piece(self, w: Writer, chunk: int) -> str:
        if chunk == 1:
            return self.splat
        if self.splat_text:
            return w.splat_const(self.splat_text, self.element, chunk)
        return w.pack([self.splat] * chunk, self.element)

    def register(self, w: Writer, r: int) -> str:
        """One register, taken out of its piece here and now."""
        if self.splat:
            return self.splat
        piece = self.piece(w, r // self.chunk)
        if self.element in packed.WIDTHS:
            return packed.part(w, piece, self.element, self.chunk, r % self.chunk, 1)
        return piece if self.chunk == 1 else w.extract(piece, r % self.chunk, vector_type(self.element, self.chunk))

    def scalars(self, w: Writer) -> list[str]:
        return self.get(w, 1)


def tied(w: Writer, value: str, type: str, constraint: str, *, ordered: bool) -> str:
    """The value passed through an empty piece of assembly, which pins it to a register file ("a": accumulation, "v": vector)
    at this point and hides what is known of it. An `ordered` one stays where it stands among other such pieces."""
    effects = "has_side_effects " if ordered else ""
    as_words = words(type)
    value = w.bitcast(value, type, as_words)
    text = f'llvm.inline_asm {effects}asm_dialect = att "", "={constraint},0" {value} : ({as_words}) -> {as_words}'
    return w.bitcast(w.op(text), as_words, type)


def at_pin(w: Writer, op: Op, number: int, value: str, type: str, registers: int, *, first: bool) -> str:
    """A fragment of an accumulator in the registers to which the text pins it: LLVM puts it there at this point, and nothing else that is
    alive. Elsewhere it may move it, which the comparison of the code with the text finds. `first`: no product has summed it before in
    this block."""
    constraint = pin_constraint(op, number, registers)
    if not constraint:
        return value
    # What meets in a loop is in the accumulation file for LLVM if all its uses name the file, not only registers of it.
    if first and op.attrs.get("file") == "accumulation":
        value = tied(w, value, type, "a", ordered=False)
    return tied(w, value, type, constraint, ordered=False)


def pin_constraint(op: Op, number: int, registers: int) -> str:
    """The constraint of the registers to which a product's fragment with a number is pinned, "" if it is not."""
    pin = part_of_pin(op, number, registers).get("pin")
    if not isinstance(pin, tuple):
        return ""
    return f"{{{'a' if op.attrs.get('file') == 'accumulation' else 'v'}[{pin[0]}:{pin[1]}]}}"


def can_tie(type: str) -> bool:
    """Whether a value of the type is whole registers (16-bit scalars and i1 are not)."""
    type = words(type)
    return not re.search(r"\bi(1|8|16)$|f16$|x(i1|i8|i16|f16|bf16)>$", type)


_NARROW = re.compile(r"vector<(\d+)x(?:i8|i16|f16|bf16)>")


def words(type: str) -> str:
    """The type as whole registers, which assembly wants: vectors of elements below 32 bits become vectors of i32."""
    found = _NARROW.fullmatch(type)
    if found is None:
        return type
    bits = int(found[1]) * (8 if "i8" in type else 16)
    return vector_type("i32", bits // 32) if bits % 32 == 0 else type


def joined(w: Writer, pieces: list[str], element: str, n: int) -> list[str]:
    """Vectors of `n` put together two by two until one is left."""
    while len(pieces) > 1:
        picks = ", ".join(str(i) for i in range(2 * n))
        t = vector_type(element, n)
        pairs = zip(pieces[::2], pieces[1::2], strict=True)
        pieces = [w.op(f"llvm.shufflevector {a}, {b} [{picks}] : {t}") for a, b in pairs]
        n *= 2
    return pieces
