"""The quick model: about how many clocks a kernel takes under a schedule, from its text and the numbers of the chip alone.

It only has to put candidates into a good order; times that are shown come from the simulator's timing model. A workgroup runs through a
launch, the straight code, and the trips of its loops. An iteration keeps these busy, of the compute unit (CU) or one of its SIMDs:

* matrix: fragments of the wave with the most, padding included, times the issue interval of the instruction, times waves on the SIMD;
* vector: elements that the vector unit computes, and the issue of memory and LDS instructions;
* lds: bytes written and read – every wave reads its operands – over what the LDS delivers in a clock, and what a SIMD can take;
* issue: memory instructions, which occupy their SIMD for as long as their lanes' data take;
* memory: bytes over the share of the L2 (or of the CU's path to it) that one CU has.

They overlap, but not fully: together they take the 4-norm of their times, and the plain sum where nothing is under way ahead. An iteration is no
shorter than the latency of memory divided by the tiles that are under way. Workgroups that share a CU add up what they keep busy and share the
waiting. Beyond the CU, the bytes of all workgroups must come through the last-level cache and from HBM: tiles that workgroups of one chiplet have in
common come once for those that run at a time.

Rates and latencies are those of the chip's description and of the simulator's model (`tileir/target`). What is assumed here is named below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from tileir.ir.core import Op
from tileir.ir.diagnostics import CompileError
from tileir.passes.loop_stages import MOST_DEPTH
from tileir.passes.mfma_choice import Mapping, fragments_of, instruction_of, instructions, usual_waves
from tileir.records import dataclass
from tileir.target import Target, timing_model
from tileir.tuning.schedules import Directives
from tileir.tuning.work import Phase, Transfer, Work, product_shape

NORM = 4
"""How well work of different units overlaps: 1 not at all, infinity fully (assumed)."""
RESERVE = 48
"""Registers of a lane for addresses and temporaries: what the library's GEMMs take besides tiles, rounded up (assumed)."""
NARROW_BYTES = 64
"""Tiles of k are cut to so many bytes a row where two waves share a SIMD and copies are direct (docs/scheduling.md)."""
ATOMIC_CLOCKS = 125
"""What one atomic instruction of a wave takes with its branch and address: by the simulator's model, on `gemm_split_k`."""
ROUNDING_STEPS = 5
"""Further instructions of rounding an f32 to bf16 without an instruction for it: as `tileir-inspect` counts them on `gemm`."""
ATOMIC_BYTES = 4  # of a lane in one update
TURN_CLOCKS = 100
"""What waves lose to each other where the buffers of an iteration change hands (assumed)."""
WIDEST = 16  # bytes of a lane in one access


@dataclass(frozen=True)
class Estimate:
    """What the model says. clocks: of the whole grid. limit: what decides them. resident: workgroups on one CU. why_not: empty where the
    candidate can be expected to compile."""

    clocks: float
    limit: str
    resident: int
    waves: int
    why_not: str = ""


@dataclass
class _Iteration:
    """Clocks of one iteration of a workgroup by what it keeps busy: of one wave on its SIMD, and of the workgroup on the CU."""

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

    def buffers(self, depth: int) -> int:
        """LDS buffers of so many stages: what goes through registers has one of its stages there."""
        return depth if self.direct else max(1, depth - 1)

    def busy(self, workgroups: int, waves: int) -> float:
        """Clocks for which units are occupied when so many workgroups take turns and the fullest SIMD has so many waves."""
        return sum(p**NORM for p in self.parts(workgroups, waves)) ** (1 / NORM)

    def parts(self, workgroups: int, waves: int) -> tuple[float, ...]:
        lds = max(workgroups * self.lds, waves * self.returned)
        return waves * self.matrix, waves * self.vector, waves * self.issue, lds, workgroups * self.memory


class Model:
    """The model of one chip; `product` is what carries it, for the bandwidth of its memory ("" for the first that the target names)."""

    def __init__(self, target: Target, product: str = ""):
        self.target = target
        timing = timing_model(target.name)
        self.timing = timing
        found = [p for p in target.products if p.name == product] or list(target.products[:1])
        self.hbm = found[0].hbm_bytes_per_second * timing.number("hbm_efficiency") / target.clock_hz
        self.llc = timing.number("llc_bytes_per_second") / target.clock_hz
        self.l2 = timing.number("l2_bytes_per_clock") * target.num_xcds
        self.hbm_latency = timing.number("hbm_latency_ns") * 1e-9 * target.clock_hz
        self.loaded_latency = float(str(target.fact("loaded_latency_ns").value)) * 1e-9 * target.clock_hz
        bytes_issued = self.target.wave_size * 4
        self.issue_clocks = timing.number("vmem_issue_clocks_per_dword") / bytes_issued  # of a SIMD for a byte
        self.lds_latency = timing.number("lds_latency")
        self.direct = max(target.direct_to_lds_bytes) >= WIDEST

    def estimate(self, work: Work, choice: Directives) -> Estimate:
        """Clocks of a kernel under the directives. Nothing is raised: what cannot be says so in `why_not`."""
        if not work.workgroups:
            return Estimate(0.0, "empty grid", 1, 1)
        waves = math.prod(choice.waves) if choice.waves else usual_waves(work.kernel)
        per_simd = -(-waves // self.target.simds_per_cu)
        iterations: list[_Iteration] = []
        rates = self._rates(work)
        depths: list[int] = []
        direct = self.direct and choice.path != "via_registers"
        for phase in work.phases:
            try:
                made = self._iteration(phase, choice, waves, rates, direct)
            except CompileError as e:
                return Estimate(math.inf, "", 0, waves, e.diagnostics[0].code)
            iterations.append(made)
            depths.append(self._depth(phase, made, choice))
        why = self._impossible(iterations, depths, per_simd)
        if why:
            return Estimate(math.inf, "", 0, waves, why)
        resident = self._resident(iterations, depths, waves)
        on_cu = -(-work.workgroups // self.target.num_cus)
        rounds, rest = divmod(on_cu, resident)
        clocks = rounds * self._workgroups(work.phases, iterations, depths, resident, waves)
        if rest:
            clocks += self._workgroups(work.phases, iterations, depths, rest, waves)
        alone = self._workgroups(work.phases, iterations, depths, 1, waves)
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
        nearest = max(1 / self.timing.number("l1_bytes_per_clock"), active / self.l2)

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

    def _iteration(
        self, phase: Phase, choice: Directives, waves: int, rates: Callable[[Transfer], float], direct: bool
    ) -> _Iteration:
        it = _Iteration(direct=direct)
        lanes = self.target.wave_size * waves
        clocks = self.timing.number("valu_clocks")
        for op in phase.products:
            self._product(it, op, choice, waves)
        staged = sum(t.tile_bytes for t in phase.loads if t.staged)
        it.stage_bytes = staged
        it.waiting_registers = 0.0 if direct else staged / (lanes * self.target.register_bytes)
        it.lds += staged / self.target.lds_write_bytes_per_clock
        writes = 0 if direct else staged / (lanes * WIDEST)
        moved = [*phase.loads, *phase.stores]
        total = sum(t.tile_bytes for t in moved)
        it.memory += sum(t.bytes * rates(t) for t in moved)
        it.issue += total * self.issue_clocks / waves
        rounding = 0 if self.target.supports("bf16_packed_convert") else ROUNDING_STEPS * phase.rounded
        it.vector += clocks * (writes + 2 * total / (lanes * WIDEST) + (phase.vector + rounding) / lanes)
        it.vector += self.timing.number("transcendental_clocks") * phase.transcendental / lanes
        it.vector += ATOMIC_CLOCKS * sum(t.tile_bytes for t in phase.atomics) / (lanes * ATOMIC_BYTES)
        it.waiting += 2 * phase.exchanges * self.lds_latency
        return it

    def _product(self, it: _Iteration, op: Op, choice: Directives, waves: int) -> None:
        """Adds one product in its cheapest mapping."""
        shape = product_shape(op)
        per_simd = -(-waves // self.target.simds_per_cu)
        fixed = choice.instr or op.attrs.get("instr")
        kinds = [fixed] if isinstance(fixed, tuple) else [(i.m, i.n, i.k) for i in instructions(op, self.target)]
        written = op.attrs.get("waves") or choice.waves
        grids = [written] if isinstance(written, tuple) else [(r, waves // r) for r in _powers(waves)]
        bits = [v.tile.elem.bits for v in op.operands[:2]]
        lane_bytes = self.target.wave_size * self.target.register_bytes
        best: tuple[float, _Iteration] | None = None
        for m, n, k in kinds:
            clocks = instruction_of(op, (m, n, k), self.target)[1]
            for r, c in grids:
                rows, cols, depth = fragments_of(shape, Mapping((m, n, k), (r, c), False))
                across = (rows * m * bits[0] + cols * n * bits[1]) / 8
                read = across * depth * k
                made = _Iteration(
                    matrix=rows * cols * depth * clocks,
                    vector=read / (WIDEST * self.target.wave_size) * self.timing.number("valu_clocks"),
                    returned=read / self.timing.number("lds_return_bytes_per_clock"),
                    lds=waves * read / self.target.lds_read_bytes_per_clock,
                    accumulators=rows * m * cols * n * op.result.tile.elem.bits / 8 / lane_bytes,
                    fragments=across * k / lane_bytes,
                )
                clocks_of = made.busy(1, per_simd)
                if best is None or clocks_of < best[0]:
                    best = clocks_of, made
        assert best is not None
        for name in ("matrix", "vector", "returned", "lds", "accumulators"):
            setattr(it, name, getattr(it, name) + getattr(best[1], name))
        it.fragments = max(it.fragments, best[1].fragments)

    # -- stages and room ---------------------------------------------------------------------------------------------

    def _depth(self, phase: Phase, it: _Iteration, choice: Directives) -> int:
        """Stages of a loop: what is asked for, else what hides the latency of memory, as far as LDS has room; 1 for straight code."""
        if not phase.loop or not it.stage_bytes:
            return 1
        if choice.pattern == "plain":
            return 1
        if choice.depth is not None:
            return choice.depth
        most = MOST_DEPTH if phase.only_products else 2 if it.direct else 1
        wanted = min(most, max(min(2, most), 1 + math.ceil(self.loaded_latency / max(1.0, it.matrix))))
        while wanted > 2 and it.buffers(wanted) * it.stage_bytes > self.target.lds_bytes:
            wanted -= 1
        if wanted == 2 and it.buffers(2) * it.stage_bytes > self.target.lds_bytes:
            return 1
        return wanted

    def _lds(self, iterations: Iterable[_Iteration], depths: Iterable[int]) -> float:
        return max(it.buffers(d) * it.stage_bytes for it, d in zip(iterations, depths, strict=True))

    def _registers(self, iterations: Iterable[_Iteration]) -> float:
        return max(it.accumulators + it.fragments + it.waiting_registers for it in iterations) + RESERVE

    def _impossible(self, iterations: list[_Iteration], depths: list[int], per_simd: int) -> str:
        """Why the candidate will not compile, if that can be seen from here; the codes of the compiler's diagnostics."""
        if self._lds(iterations, depths) > self.target.lds_bytes:
            return "E0861"
        return "E0863" if self._registers(iterations) > self.target.registers_per_lane / per_simd else ""

    def _resident(self, iterations: list[_Iteration], depths: list[int], waves: int) -> int:
        """Workgroups on a CU at a time."""
        needed = max(self._lds(iterations, depths), 1)
        by_lds = int(self.target.lds_bytes // needed)
        granule = self.target.vgpr_granule
        registers = math.ceil(self._registers(iterations) / granule) * granule
        slots = min(self.target.max_waves_per_simd, self.target.registers_per_lane // registers)
        return max(1, min(by_lds, slots * self.target.simds_per_cu // waves))

    # -- one CU and the chip -----------------------------------------------------------------------------------------

    def _workgroups(
        self, phases: tuple[Phase, ...], iterations: list[_Iteration], depths: list[int], count: int, waves: int
    ) -> float:
        """Clocks of `count` workgroups that share a CU."""
        clocks = self.timing.number("workgroup_launch_clocks") + self.timing.number("wave_launch_clocks") * waves
        fullest = -(-count * waves // self.target.simds_per_cu)
        for phase, it, depth in zip(phases, iterations, depths, strict=True):
            if not phase.trips:
                continue
            latency = self.hbm_latency if phase.loads else 0.0
            busy = it.busy(count, fullest)
            if not phase.loop:
                clocks += latency + busy + it.waiting
                continue
            if depth == 1:
                alone = sum(it.parts(1, -(-waves // self.target.simds_per_cu)))
                steady = max(busy, alone + latency + 2 * self.lds_latency + it.waiting)
            else:
                # tiles under way: those beyond the one being computed, or the one in registers
                arrives = latency + math.hypot(fullest * it.issue, it.memory)
                ahead = arrives / (depth - 1 if it.direct else 1)
                steady = max(busy, ahead) + (TURN_CLOCKS + it.waiting) / count
                clocks += latency + (depth - 1) * fullest * it.issue
            clocks += phase.trips * steady
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
