"""Walking a kernel: ops call the semantics of their declaration, control flow is interpreted here.

A value is a NumPy array of its type's shape and dtype (0-d for scalars, never a Python number), a view is the caller's
array, an LDS buffer a `SharedBuffer`. Layouts change no value and are not looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tileir.interpreter.arrays import array_info, check_writable, share_memory
from tileir.interpreter.context import Context
from tileir.interpreter.errors import Fault
from tileir.ir import registry
from tileir.ir.binding import bind, check_overlap, written_views
from tileir.ir.core import Block, Kernel, Op, Value
from tileir.ir.types import GlobalType, TileType

Array = np.ndarray[Any, Any]
Environment = dict[Value, Any]


def run(
    kernel: Kernel,
    arrays: Mapping[str, Any],
    *,
    symbols: Mapping[str, int] | None = None,
    programs: Iterable[tuple[int, ...]] | None = None,
    progress: Callable[[int, int], None] | None = None,
    max_iterations: int | None = None,
) -> None:
    """Executes the programs of a kernel's grid one after the other, the first grid dimension fastest.

    arrays: for each argument by name (without %) a NumPy array for a view – of the view's dtype, with its dimensions and
        strides – or a number for a scalar. Arrays that the kernel stores to are changed in place.
    symbols: dimension symbols, where they cannot be derived from the arrays, or to check them.
    programs: positions in the grid to execute instead of all, in the given order.
    progress: called after each program with the number done and the number in all.
    max_iterations: limit on the iterations of any one loop, for kernels that may not end.

    Raises LaunchError if the arguments do not fit, InterpreterError if execution goes wrong.
    """
    binding = bind(kernel, {k: array_info(v) if _is_view(kernel, k) else v for k, v in arrays.items()}, symbols)
    views = {a.name: arrays[a.name] for a in kernel.args if isinstance(a.type, GlobalType)}
    written = written_views(kernel)
    check_writable(kernel, written, views)
    check_overlap(kernel, written, lambda a, b: share_memory(views[a], views[b]))
    values: Environment = {a: views[a.name] if a.name in views else binding.scalars[a.name] for a in kernel.args}
    machine = _Machine(kernel, Context(binding.grid, binding.symbols, _waves(kernel)), max_iterations)
    chosen = list(programs) if programs is not None else None
    total = int(np.prod(binding.grid, dtype=object)) if chosen is None else len(chosen)
    with np.errstate(all="ignore"):
        for done, program in enumerate(_programs(binding.grid) if chosen is None else chosen, 1):
            machine.program(tuple(program), dict(values))
            if progress is not None:
                progress(done, total)


def _programs(grid: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
    for position in itertools.product(*(range(n) for n in reversed(grid))):
        yield position[::-1]


def _is_view(kernel: Kernel, name: str) -> bool:
    return any(a.name == name and isinstance(a.type, GlobalType) for a in kernel.args)


def _waves(kernel: Kernel) -> int:
    """Waves of a workgroup, as far as passes have decided; else the most there can be (1024 threads)."""
    waves = kernel.attrs.get("waves")
    return waves if isinstance(waves, int) and waves > 0 else 16


class _Machine:
    def __init__(self, kernel: Kernel, context: Context, max_iterations: int | None):
        self._kernel = kernel
        self._ctx = context
        self._limit = max_iterations
        self._semantics = {name: d.semantics for name, d in registry.all_ops().items() if d.semantics is not None}
        self._control = {"for": self._for, "while": self._while, "if": self._if, "guard": self._guard}

    def program(self, position: tuple[int, ...], env: Environment) -> None:
        self._ctx.start(position)
        self._block(self._kernel.body, env)

    def _block(self, block: Block, env: Environment) -> list[Any]:
        """Runs the ops of a block; the values of its `yield`, none without."""
        for op in block.ops:
            if op.name == "yield":
                return [env[v] for v in op.operands]
            control = self._control.get(op.name)
            try:
                if control is not None:
                    self._define(op, tuple(control(op, env)), env)
                else:
                    result = self._semantics[op.name](self._ctx, op, [env[v] for v in op.operands])
                    self._define(op, result if isinstance(result, tuple) else (result,), env)
            except Fault as fault:
                raise fault.at(op.loc, self._ctx.program) from None
        return []

    def _define(self, op: Op, results: tuple[Any, ...], env: Environment) -> None:
        for value, result in zip(op.results, results, strict=False):
            type = value.type
            if isinstance(type, TileType):
                array = np.asarray(result, type.elem.np) if isinstance(result, bool) else np.asarray(result)
                assert array.shape == type.shape and array.dtype == type.elem.np, (op, array.shape, array.dtype, type)
                result = array
            env[value] = result

    def _region(self, block: Block, args: Iterable[Any], env: Environment) -> list[Any]:
        env.update(zip(block.args, args, strict=True))
        return self._block(block, env)

    def _count(self, done: int) -> None:
        if self._limit is not None and done > self._limit:
            raise Fault("E1706", f"the loop runs more than {self._limit} times", "a condition that becomes false")

    def _for(self, op: Op, env: Environment) -> list[Any]:
        start, end, step = (int(env[v]) for v in op.operands[:3])
        carried = [env[v] for v in op.operands[3:]]
        if step <= 0:
            raise Fault("E1707", f"the step of the loop is {step}", "a step of at least 1")
        dtype = op.operands[0].tile.elem.np
        for done, i in enumerate(range(start, end, step), 1):
            self._count(done)
            carried = self._region(op.regions[0], [np.asarray(i, dtype), *carried], env)
        return carried

    def _while(self, op: Op, env: Environment) -> list[Any]:
        carried = [env[v] for v in op.operands]
        for done in itertools.count(1):
            if not self._region(op.regions[0], carried, env)[0]:
                break
            self._count(done)
            carried = self._region(op.regions[1], carried, env)
        return carried

    def _if(self, op: Op, env: Environment) -> list[Any]:
        condition, *inits = (env[v] for v in op.operands)
        if condition:
            return self._region(op.regions[0], inits, env)
        return self._region(op.regions[1], inits, env) if len(op.regions) == 2 else inits

    def _guard(self, op: Op, env: Environment) -> list[Any]:
        need, *inits = (env[v] for v in op.operands)
        if not np.any(need):
            return inits
        new = self._region(op.regions[0], inits, env)
        if not op.attrs.get("selects", True):
            return new
        return [np.where(need, a, b) for a, b in zip(new, inits, strict=True)]
