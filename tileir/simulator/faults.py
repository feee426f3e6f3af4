"""Faults: what a simulated kernel did wrong, located in the code, the wave and the lanes."""

from __future__ import annotations

from dataclasses import dataclass, field


class SimulatorError(ValueError):
    """The simulator was asked for something impossible: a wrong chip, a missing kernel, illegal launch sizes."""


@dataclass(frozen=True)
class Location:
    """Where in the code: address in the code object, disassembly, and ``file:line`` when there is a line table."""

    pc: int
    disassembly: str
    source: str | None = None

    def __str__(self) -> str:
        place = f" ({self.source})" if self.source else ""
        return f"{self.pc:#x}: {self.disassembly}{place}"


class SimulatorFault(Exception):
    """A kernel was stopped.

    kind: short identifier such as ``"memory-bounds"``. message: one sentence. workgroup: its x, y, z. wave: number in
    the workgroup. lanes: lanes concerned (empty for a scalar instruction). pc: address inside the code object.
    disassembly, source: the instruction and its source line. notes: further facts, one line each.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        workgroup: tuple[int, int, int] = (0, 0, 0),
        wave: int = 0,
        lanes: tuple[int, ...] = (),
        location: Location | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.kind = kind
        self.message = message
        self.workgroup = workgroup
        self.wave = wave
        self.lanes = lanes
        self.pc = location.pc if location else None
        self.disassembly = location.disassembly if location else None
        self.source = location.source if location else None
        self.notes = notes
        super().__init__(str(self))

    def __str__(self) -> str:
        x, y, z = self.workgroup
        lines = [f"{self.kind}: {self.message}"]
        if self.pc is not None:
            lines.append(f"  at {Location(self.pc, self.disassembly or '', self.source)}")
        where = f"  in workgroup ({x}, {y}, {z}), wave {self.wave}"
        if self.lanes:
            where += f", lane{'s' if len(self.lanes) > 1 else ''} {format_lanes(self.lanes)}"
        lines.append(where)
        lines.extend(f"  {note}" for note in self.notes)
        return "\n".join(lines)


def format_lanes(lanes: tuple[int, ...]) -> str:
    """``0-15, 20``."""
    runs: list[list[int]] = []
    for lane in lanes:
        if runs and runs[-1][1] == lane - 1:
            runs[-1][1] = lane
        else:
            runs.append([lane, lane])
    return ", ".join(str(a) if a == z else f"{a}-{z}" for a, z in runs)


def lanes_of(mask: int) -> tuple[int, ...]:
    return tuple(lane for lane in range(64) if mask >> lane & 1)


@dataclass
class Statistics:
    """What a launch did. executions: how often each instruction ran, by address in the code object."""

    workgroups: int = 0
    waves: int = 0
    instructions: int = 0
    executions: dict[int, int] = field(default_factory=dict[int, int])
