"""Sums the result of the model up by source line, by loop and for the whole kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tileir.records import dataclass
from tileir.simulator.inspect.classify import CLASSES
from tileir.simulator.inspect.flow import Flow, InspectError, control_flow
from tileir.simulator.program import Program
from tileir.simulator.timing.records import LEVELS, Cause, CuResult, LoopRow, Row
from tileir.simulator.timing.static import StaticTable

Records = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """notes: what could not be told apart."""

    total: Row
    loops: tuple[LoopRow, ...]
    lines: tuple[Row, ...]
    notes: tuple[str, ...]


def summarise(program: Program, table: StaticTable, cu: CuResult) -> Rows:
    """Rows of everything that was executed. Lines are sorted by the time spent in them, loops as they stand in the code."""
    maker = _Maker(program, table, cu)
    executed = np.flatnonzero(cu.issues)
    loops, notes = maker.loops()
    return Rows(maker.row(program.kernel.name, executed), loops, maker.lines(executed), notes)


def waves_per_simd(cu: CuResult) -> float:
    """Waves that a SIMD holds on average."""
    if not cu.clocks:
        return 0.0
    return sum(w.end - w.start for w in cu.waves) / (cu.clocks * len(cu.simd_mfma_clocks))


class _Maker:
    def __init__(self, program: Program, table: StaticTable, cu: CuResult) -> None:
        self.program, self.table, self.cu = program, table, cu
        self.clocks = cu.issue_clocks + cu.stalls.sum(axis=1)
        self.resident = waves_per_simd(cu)
        self.simd_clocks = cu.clocks * len(cu.simd_mfma_clocks)

    def row(self, label: str, records: Records, file: str = "", line: int = 0, *, part: bool = False) -> Row:
        """The row of some records. part: they are not executed for themselves but between others, as a source line is;
        then their use of the matrix pipes is given as part of the whole time."""
        cu = self.cu
        clocks, mfma = int(self.clocks[records].sum()), int(cu.mfma_clocks[records].sum())
        mix: Counter[str] = Counter()
        for record in records.tolist():
            mix[self.table.classes[record]] += int(cu.issues[record])
        stalls, moved = cu.stalls[records].sum(axis=0), cu.bytes[records].sum(axis=0)
        return Row(
            label=label,
            file=file,
            line=line,
            issues=int(cu.issues[records].sum()),
            clocks=clocks,
            mfma_clocks=mfma,
            mfma_utilisation=mfma / (self.simd_clocks if part else clocks / self.resident) if clocks else 0.0,
            lds_clocks=int(cu.lds_clocks[records].sum()),
            conflict_clocks=int(cu.conflict_clocks[records].sum()),
            mix={name: mix[name] for name in CLASSES if mix[name]},
            bytes={level: int(n) for level, n in zip(LEVELS, moved, strict=True)},
            stalls={cause.name.lower(): int(stalls[cause]) for cause in Cause if stalls[cause]},
        )

    def lines(self, executed: Records) -> tuple[Row, ...]:
        """One row per source line; one without a line for everything of which none is known."""
        found: dict[str, list[int]] = {}
        for record in executed.tolist():
            source = self.program.source(self.program.addresses[record])
            found.setdefault(source or "", []).append(record)
        if set(found) == {""}:
            return ()
        rows: list[Row] = []
        for source, records in found.items():
            file, _, number = source.rpartition(":")
            line = int(number) if number.isdigit() else 0
            rows.append(self.row(source or "(no line)", np.array(records), file, line, part=True))
        return tuple(sorted(rows, key=lambda row: (-row.clocks, row.file, row.line)))

    def loops(self) -> tuple[tuple[LoopRow, ...], tuple[str, ...]]:
        try:
            flow = control_flow(self.program.code, self.program.kernel)
        except InspectError as error:
            return (), (f"no loops are shown: {error.message}",)
        record_of = {address: i for i, address in enumerate(self.program.addresses)}
        rows: list[LoopRow] = []
        for number, region in enumerate(flow.loops):
            records = _records(flow, region.nodes, record_of)
            records = records[self.cu.issues[records] > 0]
            if not len(records):
                continue
            headers = [flow.items[flow.blocks[node].first].address for node in region.headers]
            iterations = sum(int(self.cu.issues[record_of[address]]) for address in headers)
            row = self.row(f"loop {number} at {headers[0]:#x}", records)
            rows.append(
                LoopRow(
                    number=number,
                    header=headers[0],
                    depth=_depth(flow, number),
                    iterations=iterations,
                    clocks_per_iteration=row.clocks / iterations if iterations else 0.0,
                    row=row,
                )
            )
        return tuple(rows), ()


def _records(flow: Flow, nodes: Sequence[int], record_of: Mapping[int, int]) -> Records:
    return np.array([record_of[item.address] for item in flow.items_of(nodes) if item.address in record_of], np.int64)


def _depth(flow: Flow, number: int) -> int:
    depth, parent = 1, flow.loops[number].parent
    while parent is not None:
        depth, parent = depth + 1, flow.loops[parent].parent
    return depth
