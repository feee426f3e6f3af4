"""What a register layout costs: estimated clocks of the work that depends on where the elements of a tile are.

All figures are clocks of one workgroup that has a compute unit (CU) to itself, for one execution of an op. The parts add up,
for a loop that loads, waits and computes in this order: nothing of one part hides behind another.

* matrix: the MFMAs of the wave with the most, times the waves that share a SIMD. Padding counts: 80 columns cut for two waves
  of 16-column fragments are 96.
* vector: instructions of the SIMD's vector unit and the issue of memory instructions, each `valu_clocks`, per wave and SIMD;
  also those that move masks out of the scalar registers and back where tiles of truth values have too many.
* lds: LDS service, one clock per lane group of each access of all waves (the groups are those of the bank model), without
  conflicts.
* memory: global accesses; a request for every `store_request_bytes` that an access touches, one per clock. (Operands that
  stay in registers, or are loaded again in each pass of a loop, also pay the way through LDS or the latency of the cache.)
* sync: latencies that every wave waits out: an exchange through LDS is a write, a barrier, a read and another barrier.
* registers: a prohibitive price for each register over what a wave has, and each KiB of LDS.

The hardware numbers are facts of the target; those of class "assumed" only order alternatives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields

from tileir.ir.types import Elem, TileType
from tileir.layout import Layout, conversion
from tileir.layout.gf2 import Span
from tileir.layout.linear import Vector
from tileir.passes.lane_code import can_swap
from tileir.passes.layout_lds import lds_instruction
from tileir.passes.split_access import WIDEST
from tileir.passes.transposing_reads import READS, addressed_layout, has_transposing_read
from tileir.records import dataclass
from tileir.target import Target

REGISTER_BITS = 32
OVER_BUDGET = 10_000.0  # clocks for each register too many: more than any choice can save
TRANSPOSED_BYTES = 8  # of a lane by one transposing read
# Ops that take one instruction of the transcendental unit for each element; `tanh` and the like take more, which does not
# depend on the layout.
TRANSCENDENTAL = frozenset({"exp", "exp2", "log", "log2", "sqrt", "rsqrt", "rcp", "tanh", "sigmoid", "div"})


@dataclass
class Clocks:
    """Clocks by what causes them; see the module for the meaning of each part."""

    matrix: float = 0.0
    vector: float = 0.0
    lds: float = 0.0
    memory: float = 0.0
    sync: float = 0.0
    registers: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return self.matrix + self.vector + self.lds + self.memory + self.sync + self.registers

    def add(self, other: Clocks, times: float = 1.0) -> None:
        """Adds `times` executions of something."""
        self.matrix += times * other.matrix
        self.vector += times * other.vector
        self.lds += times * other.lds
        self.memory += times * other.memory
        self.sync += times * other.sync
        self.registers += times * other.registers

    def per(self, times: float) -> Clocks:
        """The share of one of `times` executions."""
        share = Clocks()
        share.add(self, 1 / times)
        return share

    def __str__(self) -> str:
        parts = [f"{f.name} {getattr(self, f.name):.0f}" for f in fields(self) if round(getattr(self, f.name))]
        return ", ".join(parts) or "nothing"


def movement(src: Layout, dst: Layout) -> str:
    """What brings a tile from one layout to another: "registers" (a renaming), "lanes" (inside each wave) or "waves".

    The same question as `tileir.layout.conversion`, answered by ranks instead of tables where both layouts have one block.
    """
    if src == dst:
        return "registers"
    if src.block != dst.block or src.reps != dst.reps:
        kind = conversion(src, dst).kind
        return "registers" if kind == "none" else kind
    inside = _span(src, (*src.reg, *src.lane))
    moved = (_xor(a, b) for a, b in zip(src.wave, dst.wave, strict=True))
    if not all(_pack(src, v) in inside for v in (*dst.reg, *dst.lane, *moved)):
        return "waves"
    own = _span(src, src.reg)
    moved = (_xor(a, b) for a, b in zip((*src.lane, *src.wave), (*dst.lane, *dst.wave), strict=True))
    fixed = all(v == (0,) * src.rank for v in moved)
    return "registers" if fixed and all(_pack(src, v) in own for v in dst.reg) else "lanes"


def _xor(a: Vector, b: Vector) -> Vector:
    return tuple(x ^ y for x, y in zip(a, b, strict=True))


def _pack(layout: Layout, vector: Vector) -> int:
    out = shift = 0
    for x, extent in zip(vector, layout.block, strict=True):
        out |= x << shift
        shift += (extent - 1).bit_length()
    return out


def _span(layout: Layout, vectors: tuple[Vector, ...]) -> Span:
    return Span(_pack(layout, v) for v in vectors)


class CostModel:
    """Costs of ops over layouts on one chip, for workgroups of `waves` waves. Answers are remembered."""

    def __init__(self, target: Target, waves: int) -> None:
        self.target = target
        self.waves = waves
        self.per_simd = target.waves_per_simd(waves)
        self.issue = _number(target, "valu_clocks")
        self.transcendental = _number(target, "transcendental_clocks")
        self.lds_latency = _number(target, "lds_latency")
        self.request_bytes = _number(target, "store_request_bytes")
        self.barrier = _number(target, "barrier_clocks")
        self.l2_latency = _number(target, "l2_latency")
        self.lane_exchange = _number(target, "lane_exchange_clocks")
        self._movements: dict[tuple[Layout, Layout], str] = {}
        self._known: dict[tuple[object, ...], Clocks] = {}

    # -- single instructions ---------------------------------------------------------------------------------------

    def instructions(self, count: float, clocks: float | None = None) -> float:
        """Clocks of a SIMD for `count` instructions of each wave."""
        return count * (self.issue if clocks is None else clocks) * self.per_simd

    def lds_access(self, count: float, op: str) -> Clocks:
        """`count` accesses of each wave by the LDS instruction `op`."""
        groups = len(self.target.lds_access(op).lane_groups)
        return Clocks(vector=self.instructions(count), lds=count * groups * self.waves)

    # -- ops -------------------------------------------------------------------------------------------------------

    def products(self, count: int, clocks: int) -> Clocks:
        """`count` MFMAs of the wave with the most, of an issue interval of `clocks`."""
        return Clocks(matrix=count * clocks * self.per_simd)

    def elementwise(self, name: str, registers: float, elem: Elem) -> Clocks:
        """An elementwise op on `registers` elements of each lane."""
        each = self.transcendental if name in TRANSCENDENTAL else self.issue
        return Clocks(vector=self.instructions(registers * max(1, elem.bits // REGISTER_BITS), each))

    def lds_read(self, layout: Layout, elem: Elem, turnable: bool = True) -> Clocks:
        """A tile read from a buffer whose last dimension is contiguous; by transposing reads where they fit."""
        key = ("read", layout, elem.bits, turnable)
        if key not in self._known:
            run = layout.contiguous(layout.rank - 1)
            transposing = turnable and run == 1 and self._transposing(layout, elem)
            width = TRANSPOSED_BYTES if transposing else min(WIDEST, run * elem.bytes)
            op = READS[elem.bits] if transposing else lds_instruction("read", width)
            self._known[key] = self.lds_access(layout.num_registers * elem.bytes / width, op)
        return self._known[key]

    def _transposing(self, layout: Layout, elem: Elem) -> bool:
        if not has_transposing_read(elem.bits, layout.shape, self.target):
            return False
        return addressed_layout(TileType(elem, layout.shape, layout)) is not None

    def lds_write(self, layout: Layout, elem: Elem) -> Clocks:
        """A tile written to a buffer whose last dimension is contiguous. Registers are renamed so that runs are long."""
        key = ("write", layout, elem.bits)
        if key not in self._known:
            axis = layout.rank - 1
            run = 1
            while run < WIDEST and any(_along(v, axis) == run for v in layout.reg):
                run *= 2
            width = min(WIDEST, run * elem.bytes)
            count = self._distinct(layout) * elem.bytes / width
            self._known[key] = self.lds_access(count, lds_instruction("write", width))
        return self._known[key]

    def _distinct(self, layout: Layout) -> int:
        """Registers of a lane without copies within the lane."""
        return layout.num_registers >> layout.free.reg.bit_count()

    def movement(self, src: Layout, dst: Layout) -> str:
        """`movement`, remembered."""
        key = (src, dst)
        if key not in self._movements:
            self._movements[key] = movement(src, dst)
        return self._movements[key]

    def conversion(self, src: Layout, dst: Layout, elem: Elem) -> Clocks:
        """Bringing a tile into another layout: nothing, an exchange between lanes, or through LDS."""
        key = ("convert", src, dst, elem.bits)
        if key not in self._known:
            kind = self.movement(src, dst)
            if kind == "registers":
                self._known[key] = Clocks()
            elif kind == "lanes":
                count = dst.num_registers * max(1.0, elem.bits / REGISTER_BITS)
                by_lanes = Clocks(vector=self.instructions(count, self.lane_exchange))
                if swaps := self._swaps(src, dst, elem):
                    each = _number(self.target, "permlane_swap_issue_clocks")
                    by_lanes = Clocks(vector=self.instructions(swaps, each))
                by_lds = self.through_lds(src, dst, elem, waves=False)
                self._known[key] = min(by_lanes, by_lds, key=lambda c: c.total)
            else:
                self._known[key] = self.through_lds(src, dst, elem)
        return self._known[key]

    def _swaps(self, src: Layout, dst: Layout, elem: Elem) -> int:
        """Instructions that bring one layout to the other where swaps of rows of lanes between two registers do, 0 where they do not:
        they exchange a lane bit with the bit of a register."""
        moved = [j for j, (a, b) in enumerate(zip(src.lane, dst.lane, strict=True)) if a != b]
        packed = max(1, REGISTER_BITS // elem.bits)
        whole = _span(src, src.reg[packed.bit_length() - 1 :])  # elements of one register stay together
        fits = all(can_swap("permlane_swap", j, self.target) and _pack(src, dst.lane[j]) in whole for j in moved)
        return len(moved) * dst.num_registers * elem.bits // (2 * REGISTER_BITS) if fits else 0

    def least_exchange(self, accesses: float) -> Clocks:
        """What an exchange between waves costs at least, of tiles that a lane writes by so many accesses."""
        cost = Clocks(sync=2 * self.lds_latency + 2 * self.barrier)
        cost.add(self.lds_access(accesses, "ds_write_b128"))
        cost.add(self.lds_access(accesses, "ds_read_b128"))
        return cost

    def through_lds(self, src: Layout, dst: Layout, elem: Elem, waves: bool = True) -> Clocks:
        """Writing in one layout and reading in another; between waves with a barrier before and after the read."""
        cost = Clocks(sync=2 * self.lds_latency + (2 * self.barrier if waves and self.waves > 1 else 0))
        cost.add(self.lds_write(src, elem))
        cost.add(self.lds_read(dst, elem, turnable=False))
        return cost

    def reduction(self, layout: Layout, axis: int, elem: Elem, result: Layout) -> Clocks:
        """Registers of a lane first, then lanes by exchange, then waves through LDS."""
        key = ("reduce", layout, axis, elem.bits)
        if key not in self._known:
            words = max(1, elem.bits // REGISTER_BITS)
            kept = result.num_registers
            steps = sum(1 for v in layout.lane if v[axis])
            cost = Clocks(vector=self.instructions(words * max(0, layout.num_registers - kept)))
            cost.vector += self.instructions(words * kept * steps) + self.instructions(
                words * kept * steps, self.lane_exchange
            )
            across = sum(1 for v in layout.wave if v[axis])
            if across:
                parts = 1 << across
                cost.add(self.lds_access(words * kept, "ds_write_b32"))
                cost.add(self.lds_access(words * kept * parts, "ds_read_b32"))
                cost.vector += self.instructions(words * kept * (parts - 1))
                cost.sync += 2 * self.lds_latency + 2 * self.barrier
            self._known[key] = cost
        return self._known[key]

    def memory(self, layout: Layout, elem: Elem, axis: int | None, access_bytes: int) -> Clocks:
        """A tile loaded from or stored to global memory as it lies, contiguous along `axis` of the tile."""
        key = ("memory", layout, elem.bits, axis, access_bytes)
        if key not in self._known:
            run, reach = (1, 1) if axis is None else (layout.contiguous(axis), run_of_wave(layout, axis))
            width = max(elem.bytes, min(run * elem.bytes, access_bytes))
            count = self._distinct(layout) * elem.bytes / width
            lanes = self.target.wave_size >> layout.free.lane.bit_count()
            copies = 1 << layout.free.wave.bit_count()
            piece = max(width, reach * elem.bytes)  # bytes without a gap that an access covers
            requests = lanes * width / piece * math.ceil(piece / self.request_bytes)
            # one instruction for the address, one for the access
            cost = Clocks(vector=self.instructions(2 * count))
            cost.memory = count * max(requests, self.issue) * self.waves / copies
            self._known[key] = cost
        return self._known[key]

    def operand_load(self, layout: Layout, elem: Elem, axis: int | None, access_bytes: int) -> Clocks:
        """An operand loaded from global memory as the product wants it, its lines coming from the caches after the first time:
        waves that share elements ask for them each on their own. An access touches whole runs of its lanes, however
        little of them it takes."""
        run, reach = (1, 1) if axis is None else (layout.contiguous(axis), run_of_wave(layout, axis))
        width = max(elem.bytes, min(run * elem.bytes, access_bytes))
        count = self._distinct(layout) * elem.bytes / width
        lanes = self.target.wave_size >> layout.free.lane.bit_count()
        requests = lanes * run / reach * math.ceil(reach * elem.bytes / self.request_bytes)
        cost = Clocks(vector=self.instructions(2 * count))
        cost.memory = count * max(requests, self.issue) * self.waves
        return cost

    def staging(self, t: TileType, coalesced: Layout, axis: int | None, access_bytes: int) -> Clocks:
        """A tile brought to LDS, coalesced in memory, for all waves: the accesses, the writes, and a wait and barrier before it
        can be read and another before its place can be used anew."""
        cost = Clocks(sync=2 * self.lds_latency + (2 * self.barrier if self.waves > 1 else 0))
        if access_bytes <= t.elem.bytes:  # element by element, neighbours in neighbouring lanes
            count = t.size / (self.waves * self.target.wave_size)
            requests = self.target.wave_size * t.elem.bytes / self.request_bytes
            cost.vector += self.instructions(2 * count)
            cost.memory += count * max(requests, self.issue) * self.waves
            cost.add(self.lds_access(count, lds_instruction("write", max(1, int(t.elem.bytes)))))
            return cost
        cost.add(self.operand_load(coalesced, t.elem, axis, access_bytes))
        cost.add(self.lds_write(coalesced, t.elem))
        return cost

    def masks(self, layouts: Sequence[Layout]) -> Clocks:
        """Tiles of truth values, each register of which is a mask over the lanes in scalar registers: those that do not fit go
        to lanes of a vector register and come back. Not all tiles are alive at once, which makes up for other scalars."""
        size = self.target.wave_size // REGISTER_BITS
        over = size * sum(x.num_registers for x in layouts) - self.target.sgprs_addressable
        return Clocks(vector=self.instructions(2 * max(0, over)))

    def over_budget(self, registers: int, budget: int) -> Clocks:
        """The price of needing more registers than there are."""
        return Clocks(registers=OVER_BUDGET * max(0, registers - budget))

    def over_lds(self, size: int) -> Clocks:
        """The price of needing more bytes of LDS than there are, with the registers' price for each KiB."""
        return Clocks(registers=OVER_BUDGET * max(0, -(-(size - self.target.lds_bytes) // 1024)))


def _along(vector: Vector, axis: int) -> int:
    """Coordinate along `axis` of a vector that moves along nothing else; 0 for others."""
    return vector[axis] if not any(x for d, x in enumerate(vector) if d != axis) else 0


def run_of_wave(layout: Layout, axis: int) -> int:
    """Elements along `axis` that one access of a wave covers without a gap: a lane's run and the lanes beside it."""
    reach = layout.contiguous(axis)
    steps = sorted(_along(v, axis) for v in layout.lane)
    for x in steps:
        if x and x == reach:
            reach *= 2
    return reach


def registers_of(layout: Layout, elem: Elem) -> int:
    """32-bit registers per lane of a tile; none for masks, which live in scalar registers."""
    return 0 if elem.is_bool else -(-layout.num_registers * elem.bits // REGISTER_BITS)


def _number(target: Target, name: str) -> float:
    """A timing fact; of a range the upper end, so that waiting is not underrated."""
    value = target.fact(name).value
    if isinstance(value, tuple):
        return float(max(value))
    assert isinstance(value, int | float) and not isinstance(value, Mapping)
    return float(value)
