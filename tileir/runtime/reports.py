"""Buffers for what kernels print and assert: made before a launch, read behind it. The protocol is that of `tileir.ir.reports`."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tileir.ir import reports
from tileir.ir.diagnostics import Diagnostic, Note
from tileir.ir.reports import Site
from tileir.ir.types import Elem
from tileir.runtime.compiled import Compiled
from tileir.runtime.device import Buffer, BufferView, Device, DeviceError

Program = tuple[int, ...]


class AssertionFailed(DeviceError):
    """An `assert` of a kernel did not hold. `diagnostics` has one error for each `assert`, at its line, with the workgroups and
    values as notes. What the kernel wrote is in the arrays all the same."""

    def __init__(self, diagnostics: Sequence[Diagnostic]):
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(d.render() for d in diagnostics))


def sites_of(compiled: Compiled) -> list[Site]:
    """The sites that the records of a compiled kernel name by number; none if it neither prints nor asserts."""
    data: Any = compiled.interface.get("reports", ())
    # Code objects know files by their last names; a kernel that is still there knows the whole.
    source = reports.sites(compiled.kernel) if compiled.kernel is not None else []
    places = {(s.kind, s.loc.line, s.loc.column): s.loc for s in source}
    stated = [Site.of_data(d) for d in data]
    return [replace(s, loc=places.get((s.kind, s.loc.line, s.loc.column), s.loc)) for s in stated]


class ReportBuffer:
    """The buffer of one launch. `view` is its argument; `deliver` prints and raises when the kernel is done."""

    def __init__(self, sites: Sequence[Site], device: Device, rank: int):
        self._sites = sites
        self._device, self._rank = device, rank
        self._buffer: Buffer = device.alloc(reports.BUFFER_BYTES)
        device.copy_in(self._buffer, np.zeros(reports.BUFFER_BYTES, np.uint8))
        self.view = BufferView(self._buffer, reports.TYPE.elem, (reports.BUFFER_BYTES // 4,))

    def release(self) -> None:
        self._device.free(self._buffer)

    def deliver(self) -> None:
        """Prints what workgroups printed, in the order of their positions, the first dimension fastest; then raises AssertionFailed if
        an assertion did not hold."""
        head = self._device.copy_out(self._buffer, reports.HEADER_BYTES).view(np.int32)
        claimed = int(head.view(np.uint32)[0])
        count = min(claimed, reports.CAPACITY)
        if not count:
            return
        data = self._device.copy_out(self._buffer, count * reports.RECORD_BYTES, reports.HEADER_BYTES)
        records = data.view(np.int32).reshape(count, reports.RECORD_DWORDS)
        for line in self._lines(records):
            print(line)
        if claimed > count:
            print(f"… and {claimed - count} records that found no room", file=sys.stderr)
        failures = self._failures(records)
        if failures:
            raise AssertionFailed(failures)

    def _lines(self, records: Any) -> list[str]:
        # The records of one element come in the order in which its lane wrote them: the n-th of each is of the n-th line.
        turns: dict[tuple[Any, ...], int] = defaultdict(int)
        lines: dict[tuple[Any, ...], list[dict[int, Any]]] = {}
        first: dict[tuple[Any, ...], int] = {}
        for at, record in enumerate(records):
            site, x, y, z, value, index = (int(n) for n in record[:6])
            known = self._sites[site]
            if known.kind != "print":
                continue
            turn = turns[site, x, y, z, value, index]
            turns[site, x, y, z, value, index] += 1
            key = (z, y, x, site, turn)
            first.setdefault(key, at)
            values = lines.setdefault(key, [{} for _ in known.values])
            if known.values:
                values[value][index] = _element(record[6:], known.values[value][0])
        order = sorted(lines, key=lambda key: (*key[:3], first[key]))
        whole = [key for key in order if all(lines[key])]
        return [reports.printed(self._sites[k[3]], self._program(k[2], k[1], k[0]), lines[k]) for k in whole]

    def _failures(self, records: Any) -> list[Diagnostic]:
        found: dict[int, dict[tuple[Program, int], dict[int, Any]]] = defaultdict(dict)
        counts: dict[int, int] = defaultdict(int)
        for record in records:
            site, x, y, z, value, index = (int(n) for n in record[:6])
            known = self._sites[site]
            if known.kind != "assert":
                continue
            values = found[site].setdefault((self._program(x, y, z), index), {})
            if value == 0:
                counts[site] += int(record[6])  # elements of the lane that fail
            values[value] = _element(record[6:], known.values[value][0])
        out: list[Diagnostic] = []
        for site in sorted(found):
            known = self._sites[site]
            rest = range(1, len(known.values))
            whole = [(at, v) for at, v in found[site].items() if all(i in v for i in rest)]
            whole.sort(key=lambda item: (item[0][0][::-1], item[0][1]))
            failures = [(program, index, [v[i] for i in rest]) for (program, index), v in whole]
            message, notes = reports.failed(known, failures, counts[site])
            legal = "a condition that holds"
            out.append(Diagnostic("E1708", message, known.loc, "error", tuple(Note(n) for n in notes), legal))
        return out

    def _program(self, x: int, y: int, z: int) -> Program:
        return (x, y, z)[: self._rank]


def _element(words: Any, elem: Elem) -> Any:
    size = max(1, elem.bytes)
    return np.ascontiguousarray(words).view(np.uint8)[:size].view(elem.np)[0]
