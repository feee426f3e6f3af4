"""Coordinates of the elements that a lane holds, as SSA values."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import NamedTuple

from tileir.layout import Layout
from tileir.lowering.amdgpu.emit.writer import Writer

WAVE_BITS = 6


def lane(w: Writer) -> str:
    """Lane number in the wave, 0 to 63. Workgroups are one-dimensional, so it is the low bits of the work-item id."""
    return w.hoist("lane", lambda: w.binary("and", thread(w), w.const((1 << WAVE_BITS) - 1)), entry=True)


def thread(w: Writer) -> str:
    """Work-item number in the workgroup."""
    return w.hoist("thread", lambda: w.op("rocdl.workitem.id.x : i32"), entry=True)


def wave(w: Writer) -> str:
    """Wave number in the workgroup, known to be uniform."""

    def emit() -> str:
        number = w.binary("lshr", thread(w), w.const(WAVE_BITS))
        return w.op(f"rocdl.readfirstlane {number} : i32")

    return w.hoist("wave", emit, entry=True)


def linear(w: Writer, bits: list[tuple[str, int, int]]) -> tuple[str, int]:
    """XOR over (source, bit, value) of `value` where the bit of the source (lane or wave number) is set, and the mask of
    bits that can be set. Runs of bits whose values double become one shift and mask."""
    terms: list[tuple[str, int]] = []
    i = 0
    while i < len(bits):
        source, bit, value = bits[i]
        n = 1
        while i + n < len(bits) and bits[i + n] == (source, bit + n, value << n):
            n += 1
        i += n
        if value == 0:
            continue
        x = lane(w) if source == "lane" else wave(w)
        if value & (value - 1):  # several bits: spread one source bit by multiplication
            n, i = 1, i - n + 1
            one = w.binary("and", w.binary("lshr", x, w.const(bit)) if bit else x, w.const(1))
            terms.append((w.mul(one, value), value))
            continue
        shift = value.bit_length() - 1
        mask = (1 << n) - 1
        field = w.binary("and", x, w.const(mask << bit))
        if shift > bit:
            field = w.binary("shl", field, w.const(shift - bit))
        elif shift < bit:
            field = w.binary("lshr", field, w.const(bit - shift))
        terms.append((field, mask << shift))
    if not terms:
        return w.const(0), 0
    total, used = terms[0]
    for term, mask in terms[1:]:
        total = w.binary("xor" if used & mask else "or", total, term)
        used |= mask
    return total, used


def place_bits(layout: Layout, weight: list[int]) -> list[tuple[str, int, int]]:
    """(source, bit, value) of the lanes' and waves' part of a linear combination of the coordinates with `weight`s that
    are powers of two with disjoint images."""
    out: list[tuple[str, int, int]] = []
    for source, vectors in (("lane", layout.lane), ("wave", layout.wave)):
        for bit, v in enumerate(vectors):
            out.append((source, bit, sum(x * weight[d] for d, x in enumerate(v))))
    return out


class Coordinate(NamedTuple):
    """A coordinate as `base + offset`, base an SSA value."""

    base: str
    offset: int


@lru_cache(maxsize=256)
def register_table(layout: Layout) -> tuple[tuple[tuple[int, int], ...], ...]:
    """[register][dimension] → (part XORed inside the block, part added by repetition)."""
    inside = [(0,) * layout.rank]
    for vector in layout.reg:
        inside += [tuple(x ^ y for x, y in zip(v, vector, strict=True)) for v in inside]
    added = product(*(range(0, n * step, step) for n, step in zip(layout.reps, layout.block, strict=True)))
    return tuple(tuple(zip(v, start, strict=True)) for start in added for v in inside)


def coordinate(w: Writer, layout: Layout, register: int, dim: int) -> Coordinate:
    """Coordinate along `dim` of the element in a register of this lane."""

    def part() -> str:
        weight = [1 if d == dim else 0 for d in range(layout.rank)]
        value, mask = linear(w, place_bits(layout, weight))
        w.masks["coord", layout, dim] = mask
        return value

    base = w.hoist(("coord", layout, dim), part)
    mask = w.masks["coord", layout, dim]
    inside, added = register_table(layout)[register][dim]
    clash = inside & mask
    if clash:
        base = w.hoist(("coord", layout, dim, clash), lambda: w.binary("xor", base, w.const(clash)))
    return Coordinate(base, (inside ^ clash) + added)


def masks(layout: Layout, dim: int) -> bool:
    """Whether some lane holds a hole along `dim`."""
    return layout.padded_shape[dim] != layout.shape[dim]
