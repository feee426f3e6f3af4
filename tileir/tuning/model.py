"""The quick model: about how many clocks a kernel takes under a schedule, from its text and the numbers of the chip alone.

It only has to put candidates into a good order; times that are shown come from the simulator's timing model. A workgroup runs through a
launch, the straight code, and the trips of its loops, each priced by the model of the compiler (`tileir.passes.loop_model`), with what is known
here: sizes, and so the grid and the trips. Beyond the compute unit (CU), the bytes of all workgroups must come through the last-level cache and from HBM:
tiles that workgroups of one chiplet have in common come once for those that run at a time.

Rates and latencies are those of the chip's description and of the simulator's model (`tileir/target`). What is assumed here is named below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from tileir.ir.core import Op
from tileir.ir.diagnostics import CompileError
from tileir.passes.loop_model import LoopModel, Trip
from tileir.passes.mfma_choice import Mapping, instructions, usual_waves
from tileir.records import dataclass
from tileir.target import Target, timing_model
from tileir.tuning.schedules import Directives
from tileir.tuning.work import Phase, Transfer, Work, product_shape

ATOMIC_CLOCKS = 125
"""What one atomic instruction of a wave takes with its branch and address: by the simulator's model, on `gemm_split_k`."""
ROUNDING_STEPS = 5
"""Further instructions of rounding an f32 to bf16 without an instruction for it: as `tileir-inspect` counts them on `gemm`."""
ATOMIC_BYTES = 4  # of a lane in one update


@dataclass(frozen=True)
class Estimate:
    """What the model says. clocks: of the whole grid. limit: what decides them. resident: workgroups on one CU. why_not: empty where the
    candidate can be expected to compile."""

    clocks: float
    limit: str
    resident: int
    waves: int
    why_not: str = ""


class Model:
    """The model of one chip; `product` is what carries it, for the bandwidth of its memory ("" for the first that the target names)."""

    def __init__(self, target: Target, product: str = ""):
        self.target = target
        timing = timing_model(target.name)
        self.timing = timing
        found = [p for p in target.products if p.name == product] or list(target.products[:1])
        self.hbm = found[0].hbm_bytes_per_second * timing.number("hbm_efficiency") / target.clock_hz
        self.llc = timing.number("llc_bytes_per_second") / target.clock_hz
        self.loops = LoopModel(target)
        self.hbm_latency = self.loops.hbm_latency

    def estimate(self, work: Work, choice: Directives) -> Estimate:
        """Clocks of a kernel under the directives. Nothing is raised: what cannot be says so in `why_not`."""
        if not work.workgroups:
            return Estimate(0.0, "empty grid", 1, 1)
        waves = math.prod(choice.waves) if choice.waves else usual_waves(work.kernel)
        per_simd = -(-waves // self.target.simds_per_cu)
        iterations: list[Trip] = []
        rates = self._rates(work)
        depths: list[int] = []
        direct = self.loops.direct and choice.path != "via_registers"
        for phase in work.phases:
            try:
                made = self._iteration(phase, choice, waves, rates, direct)
            except CompileError as e:
                return Estimate(math.inf, "", 0, waves, e.diagnostics[0].code)
            iterations.append(made)
            depths.append(self._depth(phase, made, choice, waves))
        why = self._impossible(iterations, depths, per_simd)
        if why:
            return Estimate(math.inf, "", 0, waves, why)
        resident = self._resident(iterations, depths, waves)
        on_cu = -(-work.workgroups // self.target.num_cus)
        rounds, rest = divmod(on_cu, resident)
        clocks = rounds * self._workgroups(work, iterations, depths, resident, waves, choice.pattern)
        if rest:
            clocks += self._workgroups(work, iterations, depths, rest, waves, choice.pattern)
        alone = self._workgroups(work, iterations, depths, 1, waves, choice.pattern)
        clocks = max(clocks * work.share, alone)  # where workgroups differ, CUs that have several even out
        clocks += self.hbm_latency  # of the arguments, which nobody has read before
        return self._limited(work, clocks, resident, waves)

    # -- one workgroup -----------------------------------------------------------------------------------------------

    def _rates(self, work: Work) -> Callable[[Transfer], float]:
        """Clocks of a CU for a byte of a transfer: at the level of memory that serves such bytes slowest. Of the L2 every workgroup
        wants all it reads, of the last-level cache the workgroups of a chiplet want what they have in common once, of HBM all
        workgroups together."""
        active = min(self.target.num_cus, work.workgroups)
        at_once = max(1.0, active / self.target.num_xcds)
        nearest = self.loops.nearest(active)

        def clocks(t: Transfer) -> float:
            if not t.bytes:
                return 0.0
            different = math.prod(work.grid[d] for d in t.dims)
            return max(
                nearest,
                _distinct(t, work.grid, at_once) / at_once * active / self.llc,
                different / work.workgroups * active / self.hbm,
            )

        return clocks

    def _latency(self, work: Work, phase: Phase) -> float:
        """Clocks until what a phase loads has come: until the last of its tiles has, which all wait for. Of the tiles that workgroups of a
        chiplet have in common one comes from beyond the L2, and of those that chiplets have in common one from HBM, and a tile takes the
        average over them."""
        active = min(self.target.num_cus, work.workgroups)
        chiplets = min(self.target.num_xcds, active)
        at_once = max(1.0, active / self.target.num_xcds)
        l2, llc = self.timing.number("l2_latency"), self.timing.number("llc_latency_ns") * 1e-9 * self.target.clock_hz
        longest = 0.0
        for t in phase.loads:
            own = min(1.0, _distinct(t, work.grid, at_once) / at_once)
            first = min(1.0, _distinct(t, work.grid, active) / (own * at_once * chiplets))
            if t.bytes:
                longest = max(longest, l2 + own * (llc + first * (self.hbm_latency - llc) - l2))
        return longest

    def _iteration(
        self, phase: Phase, choice: Directives, waves: int, rates: Callable[[Transfer], float], direct: bool
    ) -> Trip:
        it = Trip(direct=direct)
        lanes = self.target.wave_size * waves
        clocks = self.timing.number("valu_clocks")
        for op in phase.products:
            self._product(it, op, choice, waves)
        moved = [*phase.loads, *phase.stores]
        staged = sum(t.tile_bytes for t in phase.loads if t.staged)
        self.loops.stage(it, staged, sum(t.tile_bytes for t in moved), waves)
        it.memory += sum(t.bytes * rates(t) for t in moved)
        rounding = 0 if self.target.supports("bf16_packed_convert") else ROUNDING_STEPS * phase.rounded
        it.vector += clocks * (phase.vector + rounding) / lanes
        it.vector += self.timing.number("transcendental_clocks") * phase.transcendental / lanes
        it.vector += ATOMIC_CLOCKS * sum(t.tile_bytes for t in phase.atomics) / (lanes * ATOMIC_BYTES)
        it.waiting += 2 * phase.exchanges * self.loops.lds_latency
        return it

    def _product(self, it: Trip, op: Op, choice: Directives, waves: int) -> None:
        """Adds one product in its cheapest mapping."""
        fixed = choice.instr or op.attrs.get("instr")
        kinds = [fixed] if isinstance(fixed, tuple) else [(i.m, i.n, i.k) for i in instructions(op, self.target)]
        written = op.attrs.get("waves") or choice.waves
        grids = [written] if isinstance(written, tuple) else [(r, waves // r) for r in _powers(waves)]
        mappings = [Mapping((m, n, k), (r, c), False) for m, n, k in kinds for r, c in grids]
        it.add(self.loops.product(op, product_shape(op), mappings, waves))

    # -- stages and room ---------------------------------------------------------------------------------------------

    def _depth(self, phase: Phase, it: Trip, choice: Directives, waves: int) -> int:
        """Stages of a loop: what is asked for, else what the compiler chooses; 1 for straight code."""
        if not phase.loop or not it.stage_bytes:
            return 1
        if choice.pattern == "plain":
            return 1
        if choice.depth is not None:
            return choice.depth
        if phase.only_products:
            ways = self.loops.ways(it, waves, patterns=("interleave",))
            return ways[0].depth if ways else 1
        most = 2 if it.direct else 1
        return most if it.buffers(most) * it.stage_bytes <= self.target.lds_bytes else 1

    def _lds(self, iterations: Iterable[Trip], depths: Iterable[int]) -> float:
        return max(it.buffers(d) * it.stage_bytes for it, d in zip(iterations, depths, strict=True))

    def _registers(self, iterations: Iterable[Trip]) -> float:
        return max(it.registers for it in iterations)

    def _impossible(self, iterations: list[Trip], depths: list[int], per_simd: int) -> str:
        """Why the candidate will not compile, if that can be seen from here; the codes of the compiler's diagnostics."""
        if self._lds(iterations, depths) > self.target.lds_bytes:
            return "E0861"
        return "E0863" if self._registers(iterations) > self.target.registers_per_lane / per_simd else ""

    def _resident(self, iterations: list[Trip], depths: list[int], waves: int) -> int:
        """Workgroups on a CU at a time."""
        return self.loops.resident(self._lds(iterations, depths), self._registers(iterations), waves)

    # -- one CU and the chip -----------------------------------------------------------------------------------------

    def _workgroups(
        self, work: Work, iterations: list[Trip], depths: list[int], count: int, waves: int, pattern: str
    ) -> float:
        """Clocks of `count` workgroups that share a CU."""
        latencies = [self._latency(work, phase) for phase in work.phases]
        clocks = self.timing.number("workgroup_launch_clocks") + self.timing.number("wave_launch_clocks") * waves
        fullest = -(-count * waves // self.target.simds_per_cu)
        for phase, it, depth, latency in zip(work.phases, iterations, depths, latencies, strict=True):
            if not phase.trips:
                continue
            if not phase.loop:
                clocks += latency + it.busy(count, fullest) + it.waiting
                continue
            of_loop = pattern if phase.only_products else ""
            ahead = 0.0  # iterations whose tiles are fetched before the loop runs
            if depth > 1:
                ahead = min(phase.trips, depth - 1 if it.direct else 1)
                clocks += self.loops.start(it, 1 + math.ceil(ahead), count, waves, latency)
                clocks += ahead * self.loops.steady(it, of_loop, depth, count, waves, 0.0, queues=True)
            clocks += (phase.trips - ahead) * self.loops.steady(it, of_loop, depth, count, waves, latency, queues=True)
        return clocks

    def _limited(self, work: Work, clocks: float, resident: int, waves: int) -> Estimate:
        """The clocks of the CU, or those of the bytes that the chip must move."""
        at_once = max(1.0, min(work.workgroups, resident * self.target.num_cus) / self.target.num_xcds)
        turns = max(1.0, work.workgroups / (at_once * self.target.num_xcds))
        llc = hbm = 0.0
        for phase in work.phases:
            for t in (*phase.loads, *phase.stores, *phase.atomics):
                total = t.bytes * phase.trips * work.share
                copies = min(_distinct(t, work.grid, at_once), at_once)
                llc += total * copies * turns * min(self.target.num_xcds, work.workgroups)
                all_copies = math.prod(work.grid[d] for d in t.dims) if t.dims else 1
                hbm += min(total * all_copies, t.view_bytes or math.inf)
        start = 2 * self.hbm_latency  # arguments and the first tile
        limits = {"compute units": clocks, "last-level cache": start + llc / self.llc, "HBM": start + hbm / self.hbm}
        name = max(limits, key=lambda n: limits[n])
        return Estimate(limits[name], name, resident, waves)


def _distinct(t: Transfer, grid: tuple[int, ...], at_once: float) -> float:
    """Different tiles among those of the workgroups that run on a chiplet at a time, if these are about a square of the grid."""
    sides = _square(grid, at_once)
    return math.prod(sides[d] for d in t.dims)


def _square(grid: tuple[int, ...], count: float) -> list[float]:
    """Sides of a part of the grid with so many workgroups, as even as the grid allows."""
    sides = [1.0] * len(grid)
    left = sorted(range(len(grid)), key=lambda d: grid[d])
    for i, d in enumerate(left):
        sides[d] = max(1.0, min(float(grid[d]), count ** (1 / (len(left) - i))))
        count /= sides[d]
    return sides


def _powers(waves: int) -> Iterable[int]:
    r = 1
    while r <= waves:
        yield r
        r *= 2
