"""What the semantics of ops see of the interpreter: the `ctx` of `OpDef.semantics`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tileir.interpreter import memory
from tileir.interpreter.errors import Fault
from tileir.interpreter.shared import SharedBuffer, SharedMemory
from tileir.ir import reports
from tileir.ir.core import Op
from tileir.ir.diagnostics import Note
from tileir.ir.ops.fragments import part_mask, put_registers, registers
from tileir.ir.ops.numeric import convert_array
from tileir.ir.types import F64, Elem, FragmentType, GlobalType, SharedType

Array = np.ndarray[Any, Any]

WAVE_LANES = 64
"""Lanes of a wave on CDNA (AMD Instinct MI300 ISA, section 3.1)."""


class Context:
    """The state of one program (workgroup): where it is, the symbols, its LDS."""

    def __init__(self, grid: tuple[int, ...], symbols: Mapping[str, int], waves: int):
        self._grid = grid
        self._symbols = symbols
        self._waves = waves
        self.program: tuple[int, ...] = ()
        self._shared = SharedMemory()

    def start(self, program: tuple[int, ...]) -> None:
        """Begins another program, with fresh LDS."""
        self.program = program
        self._shared = SharedMemory()

    def constant(self, value: float | bool, elem: Elem) -> Array:
        """A 0-d array: integers wrap to the type, floats are rounded to nearest even."""
        if elem.is_bool:
            return np.asarray(bool(value))
        if elem.is_int:
            if value != value or value in (float("inf"), float("-inf")):
                raise Fault("E1704", f"{value} is not a value of {elem}", f"an integer of {elem.bits} bits")
            return np.asarray(int(value) & ((1 << 64) - 1), np.uint64).astype(elem.np)
        return convert_array(np.float64(value), F64, elem)

    def program_id(self, count: int) -> tuple[Array, ...]:
        return self._ids(self.program, count)

    def num_programs(self, count: int) -> tuple[Array, ...]:
        return self._ids(self._grid, count)

    def _ids(self, values: Sequence[int], count: int) -> tuple[Array, ...]:
        if count > len(values):
            dims = "dimension" if len(values) == 1 else "dimensions"
            raise Fault("E1705", f"{count} values of a grid of {len(values)} {dims}", f"at most {len(values)} names")
        return tuple(np.asarray(v, np.int32) for v in values[:count])

    def symbol(self, name: str, elem: Elem) -> Array:
        return np.asarray(self._symbols[name]).astype(elem.np)

    def assume(self, op: Op, condition: Array) -> None:
        if not condition:
            raise Fault("E1701", f"the assumption %{op.operands[0].name} does not hold", "arguments that satisfy it")

    def print(self, op: Op, args: Sequence[Array]) -> None:
        site = reports.site_of(op)
        values = [dict(enumerate(np.ravel(a)[: site.shown(i)])) for i, a in enumerate(args[: len(site.values)])]
        print(reports.printed(site, self.program, values))

    def check(self, op: Op, args: Sequence[Array]) -> None:
        condition, *others = args[: len(reports.shown_operands(op))]
        wrong = np.flatnonzero(~np.asarray(condition))
        if wrong.size:
            shape = np.shape(condition)
            failures = [
                (self.program, int(i), [np.broadcast_to(v, shape).ravel()[i] for v in others])
                for i in wrong[: reports.SHOWN_FAILURES]
            ]
            message, notes = reports.failed(reports.site_of(op), failures, wrong.size)
            raise Fault("E1708", message, "a condition that holds", tuple(Note(n) for n in notes), located=True)

    def load(self, op: Op, view: Array, indices: Sequence[Array]) -> Array:
        return self._padded(op, view, indices, op.results[0].tile.shape)

    def _padded(self, op: Op, view: Array, indices: Sequence[Array], shape: tuple[int, ...]) -> Array:
        type = op.operands[0].type
        assert isinstance(type, GlobalType) and op.spans is not None
        pad = op.attrs.get("pad", 0)
        assert isinstance(pad, int | float)
        self._shared.issue(op.loc)
        # 0 stands for zero bits, which f8E8M0FNU has no zero for
        outside = self.constant(pad, type.elem) if pad != 0 else np.zeros((), type.elem.np)
        return memory.load(view, indices, op.spans, shape, outside)

    def store(self, op: Op, value: Array, view: Array, indices: Sequence[Array]) -> None:
        assert op.spans is not None
        self._shared.issue(op.loc)
        memory.store(view, indices, op.spans, value)

    def update(
        self, op: Op, change: Callable[..., Any], operands: Sequence[Array], view: Array, indices: Sequence[Array]
    ) -> Array:
        """The elements of an access before an atomic update makes `change(old, *operands)` of each."""
        assert op.spans is not None
        self._shared.issue(op.loc)
        return memory.update(view, indices, op.spans, change, operands)

    def shared_alloc(self, op: Op) -> SharedBuffer:
        type = op.results[0].type
        offset = op.attrs.get("offset", -1)
        assert isinstance(type, SharedType) and isinstance(offset, int)
        return self._shared.alloc(type, offset, op.loc)

    def shared_load(self, op: Op, buffer: SharedBuffer) -> Array:
        return self._shared.load(buffer).reshape(op.result.tile.shape)

    def shared_store(self, op: Op, value: Array, buffer: SharedBuffer) -> None:
        self._shared.store(buffer, value, op.loc)

    def copy(self, op: Op, view: Array, indices: Sequence[Array], buffer: SharedBuffer) -> None:
        self._shared.store(buffer, self._padded(op, view, indices, buffer.type.shape), op.loc)

    def copy_async(self, op: Op, view: Array, indices: Sequence[Array], buffer: SharedBuffer) -> None:
        elem, width = buffer.type.elem, op.attrs["bytes"]
        assert op.spans is not None and isinstance(width, int)
        value = memory.load(view, indices, op.spans, buffer.type.shape, np.zeros((), elem.np))
        per_instruction = max(1, width) * WAVE_LANES * self._waves
        self._shared.copy(buffer, value, max(1, value.size * elem.bytes // per_instruction), op.loc)

    def copy_async_part(self, op: Op, view: Array, indices: Sequence[Array], buffer: SharedBuffer) -> None:
        assert op.spans is not None
        value = memory.load(view, indices, op.spans, buffer.type.shape, np.zeros((), buffer.type.elem.np))
        mask = part_mask(op, WAVE_LANES * self._waves)
        self._shared.copy(buffer, value, 1, op.loc, mask)

    def shared_load_fragment(self, op: Op, buffer: SharedBuffer) -> Array:
        layout, at, count = op.operands[1].tile.layout, op.attrs.get("at", 0), op.results[0].type
        assert layout is not None and isinstance(at, int) and isinstance(count, FragmentType)
        mask = put_registers(
            layout, np.zeros(buffer.type.shape, bool), at, np.ones((layout.num_waves, WAVE_LANES, count.count), bool)
        )
        return registers(layout, self._shared.load(buffer, mask), at, count.count)

    def shared_store_fragment(self, op: Op, value: Array, buffer: SharedBuffer) -> None:
        layout, at = op.operands[2].tile.layout, op.attrs.get("at", 0)
        assert layout is not None and isinstance(at, int)
        tile = np.zeros(buffer.type.shape, buffer.type.elem.np)
        mask = put_registers(layout, tile, at, value)
        self._shared.store(buffer, tile, op.loc, mask)

    def load_fragment(self, op: Op, view: Array, indices: Sequence[Array]) -> Array:
        t, at, result = op.operands[-1].tile, op.attrs.get("at", 0), op.results[0].type
        assert (
            t.layout is not None and isinstance(at, int) and isinstance(result, FragmentType) and op.spans is not None
        )
        self._shared.issue(op.loc)
        tile = memory.load(view, indices, op.spans, t.shape, np.zeros((), t.elem.np))
        return registers(t.layout, tile, at, result.count)

    def wait(self, op: Op) -> None:
        outstanding = op.attrs.get("vm", -1)
        assert isinstance(outstanding, int)
        if outstanding >= 0:
            self._shared.wait(outstanding)
