"""The report of a code object, and how it is made."""

from __future__ import annotations

from collections.abc import Sequence

from tileir.codeobject import CodeObject, CodeObjectError, Kernel, SourceLine
from tileir.records import dataclass
from tileir.simulator.decoder import DecodeError
from tileir.simulator.inspect import classify
from tileir.simulator.inspect.counts import Counts, count
from tileir.simulator.inspect.flow import Block, Flow, InspectError, control_flow, undecodable
from tileir.simulator.inspect.loops import Region
from tileir.simulator.inspect.occupancy import Occupancy, allocated_sgprs, occupancy
from tileir.simulator.inspect.reads import ReadDistance, lds_latency, read_distances, registers_used
from tileir.target import Target


@dataclass(frozen=True)
class Registers:
    """Registers of a wave, per lane where they are vector registers. `*_used` come from the instructions that can be
    reached, `*_stated` from the metadata (None without), `*_allocated` and `accum_offset` from the kernel descriptor."""

    vgprs_used: int
    agprs_used: int
    sgprs_used: int
    vgprs_stated: int | None
    """Vector and accumulation registers together."""
    agprs_stated: int | None
    sgprs_stated: int | None
    vector_allocated: int
    """Vector and accumulation registers together, in whole granules."""
    sgprs_allocated: int
    accum_offset: int


@dataclass(frozen=True)
class Spills:
    """Signs that registers did not suffice: what the metadata state (None without) and what the code does."""

    vgprs_stated: int | None
    sgprs_stated: int | None
    scratch_bytes: int
    """Per work-item."""
    scratch_loads: int
    scratch_stores: int
    loop_scratch: int
    """Scratch instructions inside loops."""
    accumulator_moves: int
    loop_accumulator_moves: int
    """v_accvgpr instructions in loops that hold no smaller loop, or none with MFMAs."""


@dataclass(frozen=True)
class Loop:
    """A loop. `counts` include the loops inside it, once each. `first_line` and `last_line` are the lowest and highest
    source lines of its instructions in the file that most of them come from."""

    number: int
    parent: int | None
    depth: int
    """1 for a loop in no other."""
    innermost: bool
    headers: tuple[int, ...]
    """Addresses of its entries: one, several if the loop is irreducible."""
    blocks: tuple[int, ...]
    exits: tuple[tuple[int, int | None], ...]
    """(address of the last instruction of a block inside, address outside); None where the target is not known."""
    counts: Counts
    reads: tuple[ReadDistance, ...]
    """LDS reads with their distances; of innermost loops only."""
    file: str
    first_line: int
    last_line: int

    @property
    def irreducible(self) -> bool:
        """Whether it can be entered in several places."""
        return len(self.headers) > 1

    def exposed_reads(self, target: Target) -> int:
        """LDS reads with less MFMA work before their wait than an LDS access takes."""
        latency = lds_latency(target)
        return sum(read.exposed(latency) for read in self.reads)


@dataclass(frozen=True)
class KernelReport:
    """Everything about one kernel. `lines` holds the source of each item of `flow`, if known."""

    name: str
    target: Target
    max_workgroup_size: int | None
    lds_bytes: int
    dynamic_lds_bytes: int
    registers: Registers
    spills: Spills
    occupancy: Occupancy
    flow: Flow
    counts: Counts
    """Of all instructions that can be reached."""
    unreachable_instructions: int
    loops: tuple[Loop, ...]
    hot: int | None
    """Number of the hot loop."""
    notes: tuple[str, ...]
    lines: tuple[SourceLine | None, ...]

    @property
    def hot_loop(self) -> Loop | None:
        """Of the loops with MFMAs and no smaller such loop inside the one with the most MFMA clocks; without any MFMA the
        innermost loop with the most instructions. Among equals the one that needs the fewest other instructions, then
        the first: of a fast and a careful version of a loop the fast one."""
        return None if self.hot is None else self.loops[self.hot]


@dataclass(frozen=True)
class Report:
    """What `inspect` found in a code object."""

    chip: str
    code_object_version: int
    file_bytes: int
    kernels: tuple[KernelReport, ...]

    @property
    def kernel(self) -> KernelReport:
        """The only kernel; ValueError when there are several."""
        if len(self.kernels) != 1:
            raise ValueError(f"the report has {len(self.kernels)} kernels")
        return self.kernels[0]


def inspect(data: bytes, kernel: str | None = None, *, dynamic_lds: int = 0) -> Report:
    """Reports on the kernel of that name, or on all, of a code object. `dynamic_lds` bytes of LDS are added at launch.

    Raises InspectError for bytes that are no well-formed code object, that hold no such kernel, or whose reachable code
    has bytes that are no instruction of the chip.
    """
    try:
        code = CodeObject.from_bytes(data)
        wanted = list(code.kernels.values()) if kernel is None else [code.kernel(kernel)]
        if not wanted:
            raise InspectError("the code object has no kernel")
        reports = tuple(_kernel(code, k, dynamic_lds) for k in wanted)
    except CodeObjectError as error:
        raise InspectError(error.message, error.offset) from None
    return Report(code.chip, code.code_object_version, len(data), reports)


def _kernel(code: CodeObject, kernel: Kernel, dynamic_lds: int) -> KernelReport:
    if not kernel.code_size:
        raise InspectError(f"kernel '{kernel.name}' has no code", kernel.code_offset)
    flow = control_flow(code, kernel)
    try:
        return _report(code, kernel, code.target, flow, dynamic_lds)
    except DecodeError as error:
        raise undecodable(kernel, error.offset, error.encoding, error.reason) from None


def _report(code: CodeObject, kernel: Kernel, chip: Target, flow: Flow, dynamic_lds: int) -> KernelReport:
    live = flow.items_of([b.number for b in flow.blocks if b.reachable])
    counts = count(live, chip)
    lines, notes = _lines(code, flow)
    loops = tuple(_loop(i, flow, chip, lines) for i in range(len(flow.loops)))
    metadata, descriptor = kernel.metadata, kernel.descriptor
    used = registers_used(live)
    if descriptor.group_segment_fixed_size + dynamic_lds == 0 and _uses_lds(counts):
        notes.append(
            "the code uses LDS but the descriptor has none: it is given at launch, and occupancy leaves it out"
        )
    return KernelReport(
        name=kernel.name,
        target=chip,
        max_workgroup_size=metadata.max_flat_workgroup_size if metadata else None,
        lds_bytes=descriptor.group_segment_fixed_size,
        dynamic_lds_bytes=dynamic_lds,
        registers=Registers(
            vgprs_used=used["v"],
            agprs_used=used["a"],
            sgprs_used=used["s"],
            vgprs_stated=metadata.vgpr_count if metadata else None,
            agprs_stated=metadata.agpr_count if metadata else None,
            sgprs_stated=metadata.sgpr_count if metadata else None,
            vector_allocated=descriptor.vgpr_count,
            sgprs_allocated=allocated_sgprs(kernel, chip),
            accum_offset=descriptor.accum_offset,
        ),
        spills=Spills(
            vgprs_stated=metadata.vgpr_spill_count if metadata else None,
            sgprs_stated=metadata.sgpr_spill_count if metadata else None,
            scratch_bytes=descriptor.private_segment_fixed_size,
            scratch_loads=counts.classes[classify.SCRATCH_LOAD],
            scratch_stores=counts.classes[classify.SCRATCH_STORE],
            loop_scratch=sum(
                loop.counts.classes[kind]
                for loop in loops
                if loop.parent is None
                for kind in (classify.SCRATCH_LOAD, classify.SCRATCH_STORE)
            ),
            accumulator_moves=counts.accumulator_moves,
            loop_accumulator_moves=_moves_in(loops, flow),
        ),
        occupancy=occupancy(kernel, chip, dynamic_lds),
        flow=flow,
        counts=counts,
        unreachable_instructions=len(flow.items) - len(live),
        loops=loops,
        hot=_hot(loops),
        notes=(*flow.notes, *notes),
        lines=tuple(lines),
    )


def _moves_in(loops: Sequence[Loop], flow: Flow) -> int:
    matrix = {loop.number for loop in matrix_loops(loops)}
    nodes = {b for loop in loops if loop.innermost or loop.number in matrix for b in loop.blocks}
    return sum(classify.is_accumulator_move(item.name) for item in flow.items_of(sorted(nodes)))


def _uses_lds(counts: Counts) -> bool:
    kinds = (classify.LDS_READ, classify.LDS_TRANSPOSE_READ, classify.LDS_WRITE, classify.TO_LDS)
    return any(counts.classes[kind] for kind in kinds)


def _lines(code: CodeObject, flow: Flow) -> tuple[list[SourceLine | None], list[str]]:
    """Source of every item; a note when the object is not linked and its line table has no addresses yet."""
    if not code.linked:
        return [None] * len(flow.items), ["the object is not linked: source lines are not known yet"]
    table = code.line_table
    return [table.lookup(item.address) for item in flow.items], []


def _loop(number: int, flow: Flow, chip: Target, lines: Sequence[SourceLine | None]) -> Loop:
    region = flow.loops[number]
    inside = set(region.nodes)
    depth, parent = 1, region.parent
    while parent is not None:
        depth, parent = depth + 1, flow.loops[parent].parent
    innermost = all(other.parent != number for other in flow.loops)
    file, first, last = _span(flow, region, lines)
    return Loop(
        number=number,
        parent=region.parent,
        depth=depth,
        innermost=innermost,
        headers=tuple(flow.items[flow.blocks[h].first].address for h in region.headers),
        blocks=region.nodes,
        exits=tuple(e for n in region.nodes for e in _exits(flow, flow.blocks[n], inside)),
        counts=count(flow.items_of(region.nodes), chip),
        reads=read_distances(flow, region.nodes, chip) if innermost else (),
        file=file,
        first_line=first,
        last_line=last,
    )


def _exits(flow: Flow, block: Block, inside: set[int]) -> list[tuple[int, int | None]]:
    end = flow.items[block.last - 1].address
    found: list[tuple[int, int | None]] = [
        (end, flow.items[flow.blocks[s].first].address) for s in block.successors if s not in inside
    ]
    return [*found, (end, None)] if block.unknown_successor else found


def _span(flow: Flow, region: Region, lines: Sequence[SourceLine | None]) -> tuple[str, int, int]:
    places = [
        place
        for n in region.nodes
        for place in lines[flow.blocks[n].first : flow.blocks[n].last]
        if place is not None and place.line
    ]
    if not places:
        return "", 0, 0
    by_file: dict[str, list[int]] = {}
    for place in places:
        by_file.setdefault(place.file, []).append(place.line)
    file = max(by_file, key=lambda name: len(by_file[name]))
    return file, min(by_file[file]), max(by_file[file])


def matrix_loops(loops: Sequence[Loop]) -> list[Loop]:
    """Loops with MFMAs that hold no smaller loop with MFMAs."""
    return [
        loop
        for loop in loops
        if loop.counts.mfma_count
        and not any(other.counts.mfma_count and other.parent == loop.number for other in loops)
    ]


def _hot(loops: Sequence[Loop]) -> int | None:
    matrix = matrix_loops(loops)
    if matrix:
        return max(matrix, key=lambda loop: (loop.counts.mfma_clocks, -loop.counts.non_mfma, -loop.number)).number
    inner = [loop for loop in loops if loop.innermost]
    return max(inner, key=lambda loop: (loop.counts.instructions, -loop.number)).number if inner else None
