"""How many vector registers a lane needs: tile values that are alive at the same time, from the final text, by register file.

Pieces that are made late (see `tileir.passes.late`) count as what the lowering keeps of them: operands of a product are read
slice by slice of k, with some registers ahead; loads on their way to LDS are in flight a few at a time; what is computed
where it is used takes nothing, but keeps alive what it is computed from.

What tiles need is a lower bound, good for rejecting the hopeless quickly. `bound` adds what measurements show that addresses
and temporaries take: an upper bound, with which the code is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from tileir.ir.core import AttrValue, Block, Kernel, Op, Value
from tileir.ir.types import FragmentType, TileType
from tileir.passes.chains import accumulators, carried_links, reached
from tileir.passes.late import LOAD_AHEAD, READ_AHEAD, Late, late_ops
from tileir.passes.layout_classes import is_free
from tileir.passes.uniform import uniform_axes
from tileir.records import dataclass
from tileir.target import Target

REGISTER_BYTES = 4
# A 16-byte read of each of the four groups of lanes of a matrix instruction spans so many bytes of k: what is read at once.
SLICE_BYTES = 4 * 16
ACCUMULATION = "accumulation"
ACCUMULATOR_REGISTERS = 16  # of a lane in the largest accumulator of one matrix instruction


def registers_of(v: Value) -> int:
    """Vector registers per lane of a tile value; masks and values that are made anew at each use take none."""
    t = v.type
    if isinstance(t, FragmentType):
        return t.registers
    if not isinstance(t, TileType) or t.layout is None or t.elem.is_bool or is_free(v):
        return 0
    if v.owner is not None and v.owner.name == "register_map":
        return 0
    return -(-t.layout.num_registers * t.elem.bits // (8 * REGISTER_BYTES))


def budget(kernel: Kernel, target: Target, waves: int = 0) -> int:
    """Registers of both files that a wave of the kernel may take: those that `waves` waves (0: what the kernel says) have, or
    fewer where a schedule says so."""
    stated = kernel.attrs.get("budget", kernel.attrs.get("registers"))
    waves = waves or wave_count(kernel)
    has = target.registers_per_wave(target.waves_per_simd(waves))
    return min(has, stated) if isinstance(stated, int) else has


def wave_count(kernel: Kernel) -> int:
    """Waves of a workgroup of a kernel for which they are chosen."""
    waves = kernel.attrs["waves"]
    assert isinstance(waves, int)
    return waves


def part_of_pin(op: Op, number: int, registers: int) -> dict[str, AttrValue]:
    """The attribute `pin` of the fragment with a number, of so many registers, of an accumulator that may be pinned."""
    pin = op.attrs.get("pin")
    if not isinstance(pin, tuple):
        return {}
    first = int(pin[0]) + number * registers
    return {"pin": (first, first + registers - 1)}


def pinned(kernel: Kernel, file: str) -> int:
    """One more than the last register of a file to which the text pins an accumulator, 0 if it pins none."""
    pins = [
        op.attrs["pin"]
        for op in kernel.walk()
        if op.name in ("mma", "mfma") and op.attrs.get("file") == file and op.attrs.get("pin")
    ]
    return max((int(p[1]) + 1 for p in pins if isinstance(p, tuple)), default=0)


@dataclass(frozen=True)
class Peak:
    """The op with the most registers alive and how many there are in the two files."""

    vector: int
    accumulation: int
    op: Op | None
    most_vector: int
    """The most registers of the vector file at any point, which may be another one; likewise `most_accumulation`."""
    most_accumulation: int
    accumulators: int
    """Registers of the largest accumulator."""
    together: int
    """The most registers of accumulators that are alive at one product: carried round a loop or products themselves, so that none is
    there twice."""
    listing: Callable[[], tuple[tuple[Value, int], ...]]

    @cached_property
    def values(self) -> tuple[tuple[Value, int], ...]:
        """The values that take the registers at the worst point, largest first, each with its registers."""
        return self.listing()

    @property
    def registers(self) -> int:
        """Registers of both files."""
        return self.vector + self.accumulation


def peak(kernel: Kernel) -> Peak:
    """The worst point of a kernel whose tiles have layouts."""
    return _Walk(kernel).find()


def accumulator_files(kernel: Kernel) -> dict[Value, str]:
    """Every value that is an accumulator at some time, with the `file` of its `mma` ("" if that is still open)."""
    links = carried_links(kernel)
    found: dict[Value, str] = {}
    for op in kernel.walk():
        if op.name == "mma":
            found.update(dict.fromkeys(reached(links, accumulators(op)), str(op.attrs.get("file", ""))))
    by_file: dict[str, list[Value]] = {}
    for op in kernel.walk():
        if op.name == "mfma":
            by_file.setdefault(str(op.attrs.get("file", "")), []).extend((op.result, op.operands[2]))
    for file, values in by_file.items():
        found.update(dict.fromkeys(reached(links, values), file))
    return found


class _Walk:
    """Liveness backwards through the kernel; what is alive at each op is weighed."""

    def __init__(self, kernel: Kernel) -> None:
        self.late: Late = late_ops(kernel)
        self.files = accumulator_files(kernel)
        self.uniform = uniform_axes(kernel)
        self.weights: dict[Value, int] = {}
        self.worst: tuple[int, int, Op | None] = (0, 0, None)  # registers of both files at the worst point, and its op
        self.most_vector = self.most_accumulation = self.accumulators = self.together = 0
        self._values: list[tuple[Value, int]] = []
        self._noted = 0  # points that were weighed
        self._worst = -1  # the number of the worst of them
        self._listed = -1  # the number of the point whose values are listed
        for op in kernel.walk():
            if op.name == "mma":
                for i, name in enumerate(("file_a", "file_b")):
                    self._slice(op, i)
                    if op.attrs.get(name) == ACCUMULATION:
                        self.files.update(dict.fromkeys(self.used([op.operands[i]]), ACCUMULATION))
        self._body = kernel.body

    def find(self) -> Peak:
        """The worst point."""
        self.block(self._body, set())
        most = self.most_vector, self.most_accumulation, self.accumulators, self.together
        return Peak(*self.worst, *most, self._list)

    def _list(self) -> tuple[tuple[Value, int], ...]:
        """The values alive at the worst point, by a second walk: the first meets ever worse points, with ever more values."""
        if self._worst >= 0:
            self._noted, self._listed = 0, self._worst
            self.block(self._body, set())
        return tuple(sorted(self._values, key=lambda x: (-x[1], x[0].name)))

    def _slice(self, op: Op, i: int) -> None:
        """The weight of an operand that is read late: one slice of k and what is read ahead."""
        v, instr = op.operands[i], op.attrs.get("instr")
        k = v.tile.shape[1 - i]
        step = instr[2] if isinstance(instr, tuple) and len(instr) == 3 else k
        while v.owner is not None and v.owner in self.late.deferred:
            v = v.owner.operands[0]
        if v.owner in self.late.reads:
            share = min(1.0, max(step, SLICE_BYTES // v.tile.elem.bytes) / k)
            whole = registers_of(v)
            self.weights[v] = min(whole, -int(-whole * share // 1) + READ_AHEAD)

    def weight(self, v: Value) -> int:
        """Registers that a value takes while it is alive."""
        if v not in self.weights:
            late = v.owner is not None and v.owner in self.late.loads
            self.weights[v] = min(registers_of(v), LOAD_AHEAD) if late else registers_of(v) // self._copies(v)
        return self.weights[v]

    def _copies(self, v: Value) -> int:
        """Registers of a carried tile that hold the same, as rows of an accumulator's initial value do: one fragment travels for all."""
        axes = self.uniform.get(v)
        if not axes or v.tile.layout is None or v not in self.files:
            return 1
        held = v.tile.layout.num_registers
        distinct = v.tile.layout
        for axis in axes:
            distinct = distinct.reduce(axis)
        return max(1, held // (distinct.num_registers * ACCUMULATOR_REGISTERS))

    def used(self, values: Iterable[Value]) -> set[Value]:
        """The values, and for those computed where they are used the ones that they are computed from."""
        found: set[Value] = set()
        for v in values:
            if v.owner is not None and v.owner in self.late.deferred:
                found |= self.used(v.owner.operands)
            else:
                found.add(v)
        return found

    def block(self, block: Block, after: set[Value]) -> set[Value]:
        """Values alive before the block, given those alive after it."""
        live = _Live(self, after)
        for op in reversed(block.ops):
            if op in self.late.deferred:
                continue
            live.remove(op.results)
            if op.regions:
                # what a region takes over as its argument is alive there under that name
                handed = {"for": 3, "while": 0, "if": 1, "guard": 1}.get(op.name, len(op.operands))
                inside = live.values | self.used(op.operands[:handed])
                for region in op.regions:
                    # what a loop uses from outside is alive all through it
                    outside = inside | (_used(region) - _defined(region)) if op.name in ("for", "while") else inside
                    if op.name == "guard":  # rows that are not chosen keep what was handed over
                        outside = outside | set(region.args)
                    live.add(self.block(region, outside) - set(region.args))
            after_op: Sequence[Value] = () if op.regions else op.results
            if op.name in ("mma", "mfma") and len(op.operands) > 2 and op.operands[2] not in live.values:
                after_op = ()  # the accumulator is overwritten in place
            live.add(self.used(op.operands))
            self._note(op, live, after_op)
        return live.values

    def _note(self, op: Op, live: _Live, results: Sequence[Value]) -> None:
        """Weighs what is alive, and the results, which are not in it."""
        vector, accumulation = live.vector, live.accumulation
        for v in results:
            if self.files.get(v) == ACCUMULATION:
                accumulation += self.weight(v)
            else:
                vector += self.weight(v)
        if vector + accumulation > self.worst[0] + self.worst[1]:
            self.worst = vector, accumulation, op
            self._worst = self._noted
        if self._noted == self._listed:
            self._values = [(v, n) for v in (*live.values, *results) if (n := self.weight(v))]
        self.most_vector = max(self.most_vector, vector)
        self.most_accumulation = max(self.most_accumulation, accumulation)
        if op.name == "mma":
            self.accumulators = max(self.accumulators, registers_of(op.result))
            sums = [v for v in live.values if v in self.files and (v.owner is None or v.owner.name == "mma")]
            self.together = max(self.together, sum(map(self.weight, sums)))
        self._noted += 1


class _Live:
    """Values that are alive and take registers, with how many in both files. So they are never many."""

    def __init__(self, walk: _Walk, values: Iterable[Value]) -> None:
        self.walk = walk
        self.values: set[Value] = set()
        self.vector = self.accumulation = 0
        self.add(values)

    def add(self, values: Iterable[Value]) -> None:
        new = [v for v in values if v not in self.values and self.walk.weight(v)]
        self.values.update(new)
        self._count(new, 1)

    def remove(self, values: Iterable[Value]) -> None:
        gone = [v for v in values if v in self.values]
        self.values.difference_update(gone)
        self._count(gone, -1)

    def _count(self, values: Iterable[Value], sign: int) -> None:
        for v in values:
            if self.walk.files.get(v) == ACCUMULATION:
                self.accumulation += sign * self.walk.weight(v)
            else:
                self.vector += sign * self.walk.weight(v)


def _used(block: Block) -> set[Value]:
    return {v for op in block.walk() for v in op.operands}


def _defined(block: Block) -> set[Value]:
    found = set(block.args)
    for op in block.walk():
        found.update(op.results)
        for region in op.regions:
            found.update(region.args)
    return found
