"""Findings of one launch: each pair of instructions once, up to a limit."""

from __future__ import annotations

from collections.abc import Callable

from tileir.simulator.faults import Finding

Key = tuple[str, int, int]


class Collector:
    """strict: the first finding is raised as a :class:`SimulatorFault`. limit: most findings that are kept."""

    def __init__(self, strict: bool, limit: int) -> None:
        self.strict, self.limit = strict, limit
        self.findings: list[Finding] = []
        self.keys: dict[Key, None] = {}
        """Of the findings, in their order."""

    def known(self, key: Key) -> bool:
        return key in self.keys or len(self.findings) >= self.limit

    def add(self, key: Key, make: Callable[[], Finding]) -> None:
        """Keeps a finding unless there is one with its key: kind and the records of both parties."""
        if self.known(key):
            return
        self.keys[key] = None
        finding = make()
        self.findings.append(finding)
        if self.strict:
            raise finding.fault()
