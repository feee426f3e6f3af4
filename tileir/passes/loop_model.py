"""About how many clocks an iteration of a loop takes: the model by which waves, patterns and stages are chosen, and the tuner ranks.

An iteration keeps these busy, of the compute unit (CU) or one of its SIMDs:

* matrix: fragments of the wave with the most, padding included, times the issue interval of the instruction, times waves on the SIMD;
* vector: elements that the vector unit computes, and the issue of memory and LDS instructions;
* issue: memory instructions, which occupy their SIMD for as long as their lanes' data take;
* lds: bytes written and read – every wave reads its operands – over what the LDS delivers in a clock, and what a SIMD can take;
* memory: bytes over the share of the L2 (or of the CU's path to it) that one CU has.

They overlap, but not fully: together they take the 4-norm of their times, and the plain sum where nothing is under way ahead (`plain`). An
iteration is no shorter than the latency of memory divided by the tiles that are under way; of tiles that come through registers one is, and
the next is asked for when it has come, transfer included. At the turns where buffers change hands waves lose
time to each other. A wave that loads into registers does not compute meanwhile, but other waves of its SIMD do. In `ping_pong` half of the
waves move data while the others multiply: an iteration takes the longer of both, twice. Workgroups that share a CU add up what they keep
busy and share the waiting.

Rates and latencies are those of the chip's description and of the simulator's model (`tileir/target`). What is assumed here is named below.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tileir.ir.core import Op
from tileir.passes.loop_stages import MOST_DEPTH
from tileir.passes.mfma_choice import Mapping, fragments_of, instruction_of
from tileir.records import dataclass
from tileir.target import Target, timing_model

NORM = 4
"""How well work of different units overlaps: 1 not at all, infinity fully (assumed)."""
RESERVE = 48
"""Registers of a lane for addresses and temporaries: what the library's GEMMs take besides tiles, rounded up (assumed)."""
TURN_CLOCKS = 100
"""What waves lose to each other where the buffers of an iteration change hands (assumed)."""
WIDEST = 16  # bytes of a lane in one access
ALONE = 0.25
"""How much a workgroup that has a CU to itself counts besides those of a full chip: sizes, and so the grid, are not known (assumed)."""
TYPICAL_TRIPS = 32
"""Iterations over which the start of a loop is spread (assumed)."""
PATTERNS = ("interleave", "ping_pong", "plain")


@dataclass
class Trip:
    """What one iteration of a workgroup keeps busy, in clocks: of one wave on its SIMD, and of the workgroup on the CU."""

    matrix: float = 0.0  # of a wave
    vector: float = 0.0
    issue: float = 0.0
    returned: float = 0.0  # what a SIMD takes from the LDS
    lds: float = 0.0  # of the workgroup
    memory: float = 0.0
    waiting: float = 0.0  # latencies inside of an iteration that nothing hides
    stage_bytes: float = 0.0
    accumulators: float = 0.0  # 32-bit registers of a lane
    fragments: float = 0.0
    waiting_registers: float = 0.0  # what is loaded and not yet in LDS
    direct: bool = True  # whether staged tiles come into LDS past the registers

    @property
    def registers(self) -> float:
        """Registers of a lane that the iteration takes."""
        return self.accumulators + self.fragments + self.waiting_registers + RESERVE

    def buffers(self, depth: int) -> int:
        """LDS buffers of so many stages: what goes through registers has one of its stages there."""
        return depth if self.direct else max(1, depth - 1)

    def busy(self, workgroups: int, waves: int) -> float:
        """Clocks for which units are occupied when so many workgroups take turns and the fullest SIMD has so many waves."""
        return sum(p**NORM for p in self.parts(workgroups, waves)) ** (1 / NORM)

    def parts(self, workgroups: int, waves: int) -> tuple[float, ...]:
        """Clocks of matrix pipe, vector unit, issue of memory instructions, LDS, and memory."""
        lds = max(workgroups * self.lds, waves * self.returned)
        return waves * self.matrix, waves * self.vector, waves * self.issue, lds, workgroups * self.memory

    def add(self, other: Trip) -> None:
        """Adds a product to what stands in the same iteration; its fragments take turns with others."""
        for name in ("matrix", "vector", "returned", "lds", "accumulators"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.fragments = max(self.fragments, other.fragments)


@dataclass(frozen=True)
class Way:
    """How a loop may run. clocks: of an iteration of one workgroup, where the chip is full and `resident` workgroups share each CU;
    alone: where it has a CU to itself."""

    pattern: str
    depth: int
    clocks: float
    alone: float
    resident: int

    @property
    def score(self) -> float:
        """What ways are compared by."""
        return (self.clocks + ALONE * self.alone) / (1 + ALONE)

    def __str__(self) -> str:
        stages = f", {self.depth} stages" if self.depth > 1 else ""
        return f"{self.pattern}{stages}: {self.clocks:.0f} clocks ({self.alone:.0f} alone)"


class LoopModel:
    """The model of one chip."""

    def __init__(self, target: Target):
        self.target = target
        self.timing = timing_model(target.name)
        self.hbm_latency = self.timing.number("hbm_latency_ns") * 1e-9 * target.clock_hz
        self.loaded_latency = float(str(target.fact("loaded_latency_ns").value)) * 1e-9 * target.clock_hz
        self.l2 = self.timing.number("l2_bytes_per_clock") * target.num_xcds
        self.lds_latency = self.timing.number("lds_latency")
        self.valu_clocks = self.timing.number("valu_clocks")
        self.issue_clocks = self.timing.number("vmem_issue_clocks_per_dword") / (target.wave_size * 4)  # for a byte
        self.direct = max(target.direct_to_lds_bytes) >= WIDEST

    def nearest(self, active: int) -> float:
        """Clocks of a CU for a byte, at the level of memory next to it, when so many CUs want some."""
        return max(1 / self.timing.number("l1_bytes_per_clock"), active / self.l2)

    # -- what an iteration does --------------------------------------------------------------------------------------

    def product(self, op: Op, shape: tuple[int, int, int], mappings: Iterable[Mapping], waves: int) -> Trip:
        """A product in the mapping that keeps units busy for the shortest time. Raises CompileError for an instruction that the chip
        does not have."""
        per_simd = self.target.waves_per_simd(waves)
        bits = [v.tile.elem.bits for v in op.operands[:2]]
        lane_bytes = self.target.wave_size * self.target.register_bytes
        best: tuple[float, Trip] | None = None
        for mapping in mappings:
            m, n, k = mapping.instr
            clocks = instruction_of(op, (m, n, k), self.target)[1]
            rows, cols, depth = fragments_of(shape, mapping)
            across = (rows * m * bits[0] + cols * n * bits[1]) / 8
            read = across * depth * k
            made = Trip(
                matrix=rows * cols * depth * clocks,
                vector=read / (WIDEST * self.target.wave_size) * self.valu_clocks,
                returned=read / self.timing.number("lds_return_bytes_per_clock"),
                lds=waves * read / self.target.lds_read_bytes_per_clock,
                accumulators=rows * m * cols * n * op.result.tile.elem.bits / 8 / lane_bytes,
                fragments=across * k / lane_bytes,
            )
            clocks_of = made.busy(1, per_simd)
            if best is None or clocks_of < best[0]:
                best = clocks_of, made
        assert best is not None
        return best[1]

    def stage(self, trip: Trip, staged: float, moved: float, waves: int) -> None:
        """Adds tiles that come into LDS, of so many bytes, and all that a workgroup loads and stores, to an iteration."""
        lanes = self.target.wave_size * waves
        trip.stage_bytes = staged
        trip.waiting_registers = 0.0 if trip.direct else staged / (lanes * self.target.register_bytes)
        trip.lds += staged / self.target.lds_write_bytes_per_clock
        trip.issue += moved * self.issue_clocks / waves
        writes = 0 if trip.direct else staged / (lanes * WIDEST)
        trip.vector += self.valu_clocks * (writes + 2 * moved / (lanes * WIDEST))

    # -- clocks ------------------------------------------------------------------------------------------------------

    def steady(
        self, trip: Trip, pattern: str, depth: int, count: int, waves: int, latency: float, *, queues: bool = False
    ) -> float:
        """Clocks of an iteration of each of `count` workgroups that share a CU, once the loop runs. queues: loads wait for each other the
        more, the nearer the units are to their limits; for a latency that is not one under load."""
        fullest = -(-count * waves // self.target.simds_per_cu)
        busy = trip.busy(count, fullest)
        if pattern == "plain" or depth == 1:  # one thing after the other, but for tiles that are under way
            alone = sum(trip.parts(1, self.target.waves_per_simd(waves))) + 2 * self.lds_latency + trip.waiting
            return max(busy, alone + latency / depth)
        if pattern == "ping_pong":
            multiply, *moves = trip.parts(count, fullest)
            half = max(multiply, sum(m**NORM for m in moves) ** (1 / NORM) + self.lds_latency) / 2
            busy = max(busy, 2 * half)
        if trip.direct:  # tiles under way: those beyond the one being computed
            ahead = (latency + math.hypot(fullest * trip.issue, trip.memory)) / (depth - 1)
            least = (busy**NORM + ahead**NORM) ** (1 / NORM) if queues else max(busy, ahead)
        else:  # one, and while a wave issues memory instructions it does not compute
            ahead = math.hypot(latency + trip.memory, trip.matrix + trip.vector + trip.issue)
            least = max(busy, ahead)
        # One buffer for what goes through registers changes hands twice; the turn of several is hidden behind the one load under way.
        turns = TURN_CLOCKS if trip.direct or depth == 2 else 0.0
        if pattern == "ping_pong":  # halves of the waves meet twice as often
            turns += 2 * TURN_CLOCKS
        return least + (turns + trip.waiting) / count

    def start(self, trip: Trip, depth: int, count: int, waves: int, latency: float) -> float:
        """Clocks until a loop with stages runs."""
        fullest = -(-count * waves // self.target.simds_per_cu)
        # What goes through registers is loaded one tile after the other.
        latencies = 1 if trip.direct else max(1, depth - 1)
        return latencies * latency + (depth - 1) * fullest * trip.issue

    def resident(self, lds_bytes: float, registers: float, waves: int) -> int:
        """Workgroups on a CU at a time, at least one."""
        granule = self.target.vgpr_granule
        registers = math.ceil(registers / granule) * granule
        slots = min(self.target.max_waves_per_simd, int(self.target.registers_per_lane // registers))
        by_lds = int(self.target.lds_bytes // max(lds_bytes, 1))
        return max(1, min(by_lds, slots * self.target.simds_per_cu // waves))

    # -- choosing ----------------------------------------------------------------------------------------------------

    def way(self, trip: Trip, pattern: str, depth: int, waves: int) -> Way:
        """A loop of which neither the number of trips nor the grid is known. On a full chip loads take longer than on one that is not."""
        resident = self.resident(trip.buffers(depth) * trip.stage_bytes, trip.registers, waves)

        def each(count: int, latency: float) -> float:
            steady = self.steady(trip, pattern, depth, count, waves, latency)
            start = self.start(trip, depth, count, waves, latency) if depth > 1 else 0.0
            return (steady + start / TYPICAL_TRIPS) / count

        full, alone = each(resident, self.loaded_latency), each(1, self.hbm_latency)
        return Way(pattern, depth, full, alone, resident)

    def ways(self, trip: Trip, waves: int, depths: Sequence[int] = (), patterns: Sequence[str] = PATTERNS) -> list[Way]:
        """All ways that LDS has room for and the chip can run, the best first; of equals the first pattern, the fewest stages."""
        found: list[Way] = []
        for pattern in patterns:
            if pattern == "ping_pong" and waves % (2 * self.target.simds_per_cu):
                continue
            for depth in depths or ((1,) if pattern == "plain" else range(2, MOST_DEPTH + 1)):
                if trip.buffers(depth) * trip.stage_bytes <= self.target.lds_bytes:
                    found.append(self.way(trip, pattern, depth, waves))
        return sorted(found, key=lambda w: (round(w.score), patterns.index(w.pattern), w.depth))
