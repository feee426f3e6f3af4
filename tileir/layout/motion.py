"""Movements of registers inside a wave: found from the layouts before and after, and carried out with NumPy.

Who holds an element is linear over GF(2), so where register r of lane l in wave w finds its element is linear too:

    source register = A·r ^ B·l ^ F·w        source lane = C·r ^ E·l ^ G·w
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tileir.records import dataclass

from . import gf2
from .linear import LANE_BITS, WAVE, Layout, LayoutError, Vector, ceil_log2

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Motion:
    """Where each register of the result comes from, as XOR masks per bit of the result's register, lane and wave number.

    ``register`` masks are over the source's register number inside the block (repetitions keep theirs), ``lane`` masks over
    its lane number; the wave never changes. The first ``registers`` entries belong to register bits, the next 6 to
    lane bits, the rest to wave bits.
    """

    registers: int
    register: tuple[int, ...]
    lane: tuple[int, ...]

    def of_register(self, r: int) -> tuple[int, int]:
        """(register mask, lane mask) that the bits of a register number inside the block contribute."""
        return pick(self.register[: self.registers], r), pick(self.lane[: self.registers], r)

    def source_lanes(self, r: int, wave: int = 0) -> tuple[int, ...]:
        """The lane from which each of the 64 lanes takes register ``r`` (a number inside the block)."""
        n = self.registers
        start = pick(self.lane[:n], r) ^ pick(self.lane[n + LANE_BITS :], wave)
        return tuple(start ^ pick(self.lane[n : n + LANE_BITS], l) for l in range(WAVE))

    @property
    def depends_on_wave(self) -> bool:
        """Whether waves take elements from different lanes."""
        return any(self.lane[self.registers + LANE_BITS :])


def pick(masks: Sequence[int], number: int) -> int:
    """XOR of the masks that the bits of a number choose."""
    out = 0
    for i, mask in enumerate(masks):
        if number >> i & 1:
            out ^= mask
    return out


class Packing:
    """Coordinates inside a block as bit vectors."""

    def __init__(self, layout: Layout):
        self.bits = [ceil_log2(b) for b in layout.block]

    def pack(self, vector: Vector) -> int | None:
        """None for coordinates beyond the block."""
        out = shift = 0
        for x, bits in zip(vector, self.bits, strict=True):
            if x >> bits:
                return None
            out |= x << shift
            shift += bits
        return out

    def unpack(self, value: int) -> Vector:
        """The inverse of `pack`."""
        out: list[int] = []
        for bits in self.bits:
            out.append(value & (1 << bits) - 1)
            value >>= bits
        return tuple(out)

    def all(self, vectors: Sequence[Vector]) -> list[int] | None:
        """`pack` of each vector, None if one is beyond the block."""
        out: list[int] = []
        for v in vectors:
            x = self.pack(v)
            if x is None:
                return None
            out.append(x)
        return out


@dataclass(frozen=True)
class Packed:
    """The basis vectors of two layouts in the coordinates of the first."""

    packing: Packing
    src_reg: list[int]
    src_lane: list[int]
    src_wave: list[int]
    dst_reg: list[int]
    dst_lane: list[int]
    dst_wave: list[int]

    @staticmethod
    def of(src: Layout, dst: Layout) -> Packed | None:
        """None if the destination's vectors reach beyond the source's block."""
        p = Packing(src)
        groups = [p.all(v) for v in (src.reg, src.lane, src.wave, dst.reg, dst.lane, dst.wave)]
        found = [g for g in groups if g is not None]
        return Packed(p, *found) if len(found) == len(groups) else None


def _same_frame(src: Layout, dst: Layout) -> bool:
    return src.shape == dst.shape and src.reps == dst.reps and len(src.wave) == len(dst.wave)


def select_motion(src: Layout, dst: Layout) -> Motion | None:
    """The motion if every lane already holds all elements that it needs, else None."""
    p = Packed.of(src, dst) if _same_frame(src, dst) else None
    if p is None:
        return None
    span = gf2.Span(p.src_reg)
    register: list[int] = []
    wanted = [*p.dst_reg, *(d ^ s for d, s in zip(p.dst_lane, p.src_lane, strict=True))]
    wanted += [d ^ s for d, s in zip(p.dst_wave, p.src_wave, strict=True)]
    for i, v in enumerate(wanted):
        own = i < len(p.dst_reg) and i < len(p.src_reg) and p.src_reg[i] == v
        found = 1 << i if own else span.combination(v)
        if found is None:
            return None
        register.append(found)
    n = len(p.dst_reg)
    lane = [0] * n + [1 << j for j in range(LANE_BITS)] + [0] * len(p.dst_wave)
    return Motion(n, tuple(register), tuple(lane))


def shuffle_motion(src: Layout, dst: Layout) -> Motion | None:
    """The motion if every register comes from the register of the same number in lanes of the same wave, else None."""
    p = Packed.of(src, dst) if _same_frame(src, dst) else None
    if p is None or len(p.src_reg) != len(p.dst_reg):
        return None
    span = gf2.Span(p.src_lane)
    lane: list[int] = []
    wanted = [d ^ s for d, s in zip(p.dst_reg, p.src_reg, strict=True)]
    wanted += p.dst_lane
    wanted += [d ^ s for d, s in zip(p.dst_wave, p.src_wave, strict=True)]
    n = len(p.dst_reg)
    for i, v in enumerate(wanted):
        j = i - n
        own = 0 <= j < LANE_BITS and p.src_lane[j] == v
        found = 1 << j if own else span.combination(v)
        if found is None:
            return None
        lane.append(found)
    register = [1 << i for i in range(n)] + [0] * (LANE_BITS + len(p.dst_wave))
    return Motion(n, tuple(register), tuple(lane))


def swapped(layout: Layout, register: int, lane: int) -> Layout:
    """The layout after a register bit and a lane bit have changed places.

    Raises:
        LayoutError: no such bits.
    """
    if not 0 <= register < len(layout.reg) or not 0 <= lane < LANE_BITS:
        raise LayoutError(
            f"register bit {register} and lane bit {lane}: the layout has register bits 0 .. {len(layout.reg) - 1} "
            f"and lane bits 0 .. {LANE_BITS - 1}"
        )
    reg, lanes = list(layout.reg), list(layout.lane)
    reg[register], lanes[lane] = lanes[lane], reg[register]
    return Layout(layout.shape, tuple(reg), tuple(lanes), layout.wave, layout.reps)


# -- what a step does to registers, for checking plans by execution ----------------------------------------------------


def distribute(tile: Array, layout: Layout) -> Array:
    """The registers [waves, 64, registers] of a tile; holes are zero."""
    table = layout.owner_table()
    index = tuple(np.minimum(table[..., d], n - 1) for d, n in enumerate(layout.shape))
    held = np.asarray(tile)[index] if layout.rank else np.broadcast_to(tile, table.shape[:3]).copy()
    return np.where(layout.holes(), np.zeros((), held.dtype), held)


def collect(registers: Array, layout: Layout) -> Array:
    """The tile that registers [waves, 64, registers] hold.

    Raises:
        LayoutError: copies of an element differ.
    """
    table, real = layout.owner_table(), ~layout.holes()
    tile = np.zeros(layout.shape, registers.dtype)
    index = tuple(table[..., d][real] for d in range(layout.rank))
    tile[index] = registers[real]
    raw = np.dtype(f"V{registers.dtype.itemsize}")
    if not np.array_equal(np.ascontiguousarray(tile[index]).view(raw), np.ascontiguousarray(registers[real]).view(raw)):
        raise LayoutError("copies of one element differ")
    return tile


def moved(registers: Array, motion: Motion, dst: Layout) -> Array:
    """Registers [waves, 64, registers] after a select or shuffle whose result has the layout ``dst``."""
    waves, inner = np.arange(dst.num_waves)[:, None, None], (1 << motion.registers) - 1
    lanes, r = np.arange(WAVE)[None, :, None], np.arange(dst.num_registers)[None, None, :]
    n = motion.registers
    masks = (r & inner, 0, n), (lanes, n, LANE_BITS), (waves, n + LANE_BITS, len(dst.wave))
    full = (dst.num_waves, WAVE, dst.num_registers)
    source_r, source_l = np.zeros(full, np.int64), np.zeros(full, np.int64)
    for number, first, count in masks:
        for i in range(count):
            source_r ^= (number >> i & 1) * motion.register[first + i]
            source_l ^= (number >> i & 1) * motion.lane[first + i]
    per_block = registers.shape[2] // math.prod(dst.reps)
    source_r += (r >> n) * per_block
    return registers[waves, source_l, source_r]


def bits_swapped(registers: Array, register: int, lane: int) -> Array:
    """Registers [waves, 64, registers] after a register bit and a lane bit have changed places."""
    l, r = np.arange(WAVE)[:, None], np.arange(registers.shape[2])[None, :]
    differ = (l >> lane ^ r >> register) & 1
    return registers[:, l ^ differ << lane, r ^ differ << register]
