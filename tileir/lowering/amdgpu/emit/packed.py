"""Elements of 6 and 4 bits in registers: side by side in words of 32 bits, the first in the lowest bits.

A piece of one element is an i8 that holds it in its low bits. A longer one is an i8 or i16 if it fits there, else whole words; bits
beyond the last element may be anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tileir.lowering.amdgpu.emit.writer import Writer

WIDTHS = {"u4": 4, "u6": 6}
"""Element types of this kind, as the writer names them, and their bits."""
WORD = 32


def piece_type(element: str, n: int) -> str:
    """MLIR type of `n` elements."""
    bits = n * WIDTHS[element]
    if n == 1 or bits <= 8:
        return "i8"
    if bits <= 16:
        return "i16"
    count = -(-bits // WORD)
    return "i32" if count == 1 else f"vector<{count}xi32>"


def words(w: Writer, piece: str, element: str, n: int) -> list[str]:
    """A piece as i32 words."""
    t = piece_type(element, n)
    if t in ("i8", "i16"):
        return [w.op(f"llvm.zext {piece} : {t} to i32")]
    if t == "i32":
        return [piece]
    return [w.extract(piece, i, t) for i in range(-(-n * WIDTHS[element] // WORD))]


def from_words(w: Writer, found: Sequence[str], element: str, n: int) -> str:
    """A piece of words."""
    t = piece_type(element, n)
    if t in ("i8", "i16"):
        return w.op(f"llvm.trunc {found[0]} : i32 to {t}")
    return w.pack(found, "i32")


def codes(w: Writer, piece: str, element: str, n: int) -> list[str]:
    """The elements as i32."""
    bits = WIDTHS[element]
    held = words(w, piece, element, n)
    mask = w.const((1 << bits) - 1)
    out: list[str] = []
    for i in range(n):
        at, shift = divmod(i * bits, WORD)
        low = w.binary("lshr", held[at], w.const(shift)) if shift else held[at]
        if shift + bits > WORD:
            low = w.binary("or", low, w.binary("shl", held[at + 1], w.const(WORD - shift)))
        out.append(w.binary("and", low, mask))
    return out


def from_codes(w: Writer, values: Sequence[str], element: str) -> str:
    """A piece of elements given as i32, whose higher bits are zero."""
    bits = WIDTHS[element]
    found = [""] * -(-len(values) * bits // WORD)

    def put(at: int, value: str) -> None:
        found[at] = w.binary("or", found[at], value) if found[at] else value

    for i, value in enumerate(values):
        at, shift = divmod(i * bits, WORD)
        put(at, w.binary("shl", value, w.const(shift)) if shift else value)
        if shift + bits > WORD:
            put(at + 1, w.binary("lshr", value, w.const(WORD - shift)))
    return from_words(w, found, element, len(values))


def element_of(w: Writer, piece: str, element: str, n: int, i: int) -> str:
    """One element of a piece, as a piece of its own."""
    bits = WIDTHS[element]
    held = words(w, piece, element, n)
    at, shift = divmod(i * bits, WORD)
    low = w.binary("lshr", held[at], w.const(shift)) if shift else held[at]
    if shift + bits > WORD:
        low = w.binary("or", low, w.binary("shl", held[at + 1], w.const(WORD - shift)))
    return w.op(f"llvm.trunc {w.binary('and', low, w.const((1 << bits) - 1))} : i32 to i8")


def part(w: Writer, piece: str, element: str, n: int, first: int, count: int) -> str:
    """`count` elements of a piece of `n`, from `first` on."""
    if count == n:
        return piece
    if count == 1:
        return element_of(w, piece, element, n, first)
    bits = WIDTHS[element]
    if first * bits % WORD == 0 and count * bits % WORD == 0:
        start = first * bits // WORD
        return from_words(w, words(w, piece, element, n)[start : start + count * bits // WORD], element, count)
    return from_codes(w, codes(w, piece, element, n)[first : first + count], element)


def joined(w: Writer, pieces: Sequence[str], element: str, n: int) -> str:
    """Pieces of `n` elements each as one."""
    if len(pieces) == 1:
        return pieces[0]
    total = n * len(pieces)
    if n * WIDTHS[element] % WORD == 0:
        return from_words(w, [x for p in pieces for x in words(w, p, element, n)], element, total)
    return from_codes(w, [x for p in pieces for x in codes(w, p, element, n)], element)


def select(w: Writer, condition: str, a: str, b: str, element: str, n: int) -> str:
    """Of every element that of a piece where the condition (a vector of i1) holds, else that of another."""
    if n == 1:
        return w.select(condition, a, b, "i8")
    masks = [w.extract(condition, i, f"vector<{n}xi1>") for i in range(n)]
    pairs = zip(masks, codes(w, a, element, n), codes(w, b, element, n), strict=True)
    return from_codes(w, [w.select(m, x, y, "i32") for m, x, y in pairs], element)
