"""Faults: what a simulated kernel did wrong, located in the code, the wave and the lanes."""

from __future__ import annotations

from dataclasses import field

from tileir.records import dataclass


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
    disassembly, source: the instruction and its source line. notes: further facts, one line each. findings: what the
    checks of the launch found before.
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
        self.findings: list[Finding] = []
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


def _where(workgroup: tuple[int, int, int], wave: int, lanes: tuple[int, ...]) -> str:
    text = f"workgroup {workgroup}, wave {wave}"
    return text + (f", lane{'s' if len(lanes) > 1 else ''} {format_lanes(lanes)}" if lanes else "")


@dataclass(frozen=True)
class Party:
    """An instruction that a finding concerns, executed by lanes of a wave. ``lanes`` is empty where they do not matter."""

    location: Location
    workgroup: tuple[int, int, int]
    wave: int
    lanes: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.location}\n    in {_where(self.workgroup, self.wave, self.lanes)}"


@dataclass(frozen=True)
class Finding:
    """Something that a check found in an execution that went on.

    kind: ``"race-lds"``, ``"race-memory"``, ``"uninit-register"``, ``"uninit-lds"``, ``"uninit-memory"``,
    ``"hazard"``, ``"mfma-hazard"`` or ``"barrier-count"``. party: the instruction at fault. other: the other party of a race, the
    producer of a hazard. notes: further facts, one line each.
    """

    kind: str
    message: str
    party: Party
    other: Party | None = None
    notes: tuple[str, ...] = ()

    @property
    def wave(self) -> int:
        return self.party.wave

    @property
    def lanes(self) -> tuple[int, ...]:
        return self.party.lanes

    @property
    def pc(self) -> int:
        return self.party.location.pc

    @property
    def disassembly(self) -> str:
        return self.party.location.disassembly

    @property
    def source(self) -> str | None:
        return self.party.location.source

    def fault(self) -> SimulatorFault:
        """The finding as an exception, for strict runs."""
        notes = self.notes if self.other is None else (f"other party: {self.other}", *self.notes)
        return SimulatorFault(
            self.kind,
            self.message,
            workgroup=self.party.workgroup,
            wave=self.wave,
            lanes=self.lanes,
            location=self.party.location,
            notes=notes,
        )

    def __str__(self) -> str:
        return str(self.fault())


@dataclass
class Statistics:
    """What a launch did. executions: how often each instruction ran, by address in the code object. findings: what the
    checks of the launch found, each pair of instructions once."""

    workgroups: int = 0
    waves: int = 0
    instructions: int = 0
    executions: dict[int, int] = field(default_factory=dict[int, int])
    findings: list[Finding] = field(default_factory=list[Finding])
