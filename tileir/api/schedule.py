"""Schedules from Python: the directives of the language as methods."""

from __future__ import annotations

from typing import Literal

from tileir.api.locations import caller
from tileir.api.values import Tile
from tileir.ir.core import AttrValue, Directive, Schedule
from tileir.ir.location import Loc


class ScheduleBuilder:
    """`k.schedule("gfx950").waves(acc, 2, 4).mma(d, 16, 16, 32)`. Each method adds one directive and returns the schedule."""

    def __init__(self, name: str, kernel: str, target: str):
        self._name, self._kernel, self._target = name, kernel, target
        self._loc = caller()
        self._directives: list[tuple[str, tuple[Tile, ...], tuple[tuple[str, AttrValue], ...], Loc]] = []

    def build(self) -> Schedule:
        """The schedule, with the names that its values have now."""
        directives = tuple(
            Directive(kind, tuple(v.value.name for v in values), settings, loc, (loc,) * len(values))
            for kind, values, settings, loc in self._directives
        )
        return Schedule(self._name, self._kernel, self._target, "", True, directives, self._loc)

    def _add(self, directive: str, values: tuple[Tile, ...], **settings: AttrValue) -> ScheduleBuilder:
        given = tuple((k, v) for k, v in settings.items() if v not in (None, "", ()))
        self._directives.append((directive, values, given, caller()))
        return self

    def waves(self, value: Tile, rows: int, columns: int) -> ScheduleBuilder:
        """Waves over rows and columns of a value that `mma` ops contribute to."""
        return self._add("waves", (value,), grid=(rows, columns))

    def mma(self, value: Tile, m: int, n: int, k: int, *, swapped: bool = False) -> ScheduleBuilder:
        """The matrix instruction of one `mma`."""
        return self._add("mma", (value,), shape=(m, n, k), swapped=swapped or None)

    def stage(
        self, *values: Tile, depth: int | None = None, path: Literal["", "direct", "via_registers"] = ""
    ) -> ScheduleBuilder:
        """How loaded tiles go through LDS."""
        return self._add("stage", values, depth=depth, path=path)

    def loop(
        self,
        index: Tile,
        *,
        pattern: Literal["", "plain", "ping_pong", "interleave"] = "",
        slices: tuple[int, int] | tuple[()] = (),
        masks: Literal["", "split", "whole"] = "",
    ) -> ScheduleBuilder:
        """How the waves share the work of a loop, named by its variable, and whether it is split into parts with and without
        masks."""
        return self._add("loop", (index,), pattern=pattern, slices=slices, masks=masks)

    def order_xcd(self, *, chunk: int | None = None, window: int | None = None) -> ScheduleBuilder:
        """The order of workgroups over chiplets and block rows."""
        return self._add("order", (), kind="xcd", chunk=chunk, window=window)

    def registers(self, count: int) -> ScheduleBuilder:
        """The budget of registers per lane."""
        return self._add("registers", (), count=count)

    def pin(self, value: Tile, file: Literal["v", "a"], first: int, last: int) -> ScheduleBuilder:
        """The registers of the vector (v) or accumulation file (a) in which a product is summed, the last one included."""
        return self._add("pin", (value,), file=file, first=first, last=last)
