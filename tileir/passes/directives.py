"""Schedules: which one applies, and what each of its directives says about which op.

Every directive is checked against the kernel and the chip at its own line; several faults are reported in one run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from tileir.ir.core import AttrValue, Directive, Kernel, Op, Schedule, Value
from tileir.ir.diagnostics import CompileError, Diagnostic, Note, error
from tileir.ir.location import Loc
from tileir.ir.printer import print_directive
from tileir.ir.registry import get
from tileir.passes.base import Context
from tileir.passes.legality import WIDE_DIRECT_BYTES, is_power_of_two, mfma_diagnostics, most_waves
from tileir.records import dataclass

PATTERNS = ("plain", "ping_pong", "interleave")
PATHS = ("direct", "via_registers")


@dataclass
class Decisions:
    """What a schedule adds: attributes per op and of the kernel, and the directive that each kernel attribute is from."""

    ops: dict[Op, dict[str, AttrValue]] = field(default_factory=dict[Op, dict[str, AttrValue]])
    kernel: dict[str, AttrValue] = field(default_factory=dict[str, AttrValue])
    places: dict[str, Loc] = field(default_factory=dict[str, Loc])


def choose_schedule(kernel: Kernel, ctx: Context) -> Schedule | None:
    """The schedule named by the user, else the one the text names, else the first whose chip and condition hold.

    Raises CompileError, at the schedule, if the named one is for another chip or kernel or its condition is false.
    """
    own = [s for s in ctx.module.schedules if s.kernel == kernel.name]
    name = ctx.schedule
    if not name:
        return next((s for s in own if s.target == ctx.target.name and s.applies), None)
    named = next((s for s in own if s.name == name), None)
    if named is None:
        other = next((s for s in ctx.module.schedules if s.name == name), None)
        legal = ", ".join(s.name for s in own if s.target == ctx.target.name)
        legal = legal or f"none: the file has no schedule of @{kernel.name} for {ctx.target.name}"
        if other is not None:
            raise error(
                "E0651", f"schedule @{name} is for kernel @{other.kernel}, not @{kernel.name}", other.loc, legal=legal
            )
        raise error("E0650", f"kernel @{kernel.name} has no schedule @{name}", kernel.loc, legal=legal)
    if named.target != ctx.target.name:
        raise error(
            "E0652",
            f"schedule @{name} is for {named.target}, but the kernel is compiled for {ctx.target.name}",
            named.loc,
            legal=f"--target {named.target}, or a schedule for {ctx.target.name}",
        )
    if not named.applies:
        raise error(
            "E0653",
            f"schedule @{name} does not apply: its condition '{named.when}' is false",
            named.loc,
            legal="parameters (-D) that make the condition true, or another schedule",
        )
    return named


def apply_schedule(kernel: Kernel, ctx: Context, found: list[Diagnostic]) -> Decisions:
    """Works out what the schedule says; faults of single directives are appended to `found`."""
    decisions = Decisions()
    try:
        schedule = choose_schedule(kernel, ctx)
    except CompileError as e:
        found += e.diagnostics
        return decisions
    if schedule is None:
        return decisions
    decisions.kernel["schedule"] = schedule.name
    reader = _Reader(kernel, ctx, decisions)
    for directive in schedule.directives:
        try:
            reader.read(directive)
        except CompileError as e:
            found += e.diagnostics
    return decisions


class _Reader:
    def __init__(self, kernel: Kernel, ctx: Context, decisions: Decisions):
        self.kernel = kernel
        self.ctx = ctx
        self.out = decisions
        self.values: dict[str, Value] = {a.name: a for a in kernel.args}
        self.holder: dict[Value, tuple[Op, int, int]] = {}  # region argument -> (op, region, index)
        for op in kernel.walk():
            self.values.update((v.name, v) for v in op.results)
            for r, region in enumerate(op.regions):
                self.values.update((v.name, v) for v in region.args)
                self.holder.update((v, (op, r, i)) for i, v in enumerate(region.args))
        self.said: dict[tuple[Any, str], Directive] = {}
        self.pins: list[tuple[Directive, frozenset[Op]]] = []

    def read(self, d: Directive) -> None:
        readers: dict[str, Callable[[Directive], None]] = {
            "waves": self._waves,
            "mma": self._mma,
            "stage": self._stage,
            "loop": self._loop,
            "order": self._order,
            "registers": self._registers,
            "pin": self._pin,
        }
        if d.kind not in readers:
            raise error("E0654", f"there is no directive '{d.kind}'", d.loc, legal=" | ".join(readers))
        readers[d.kind](d)

    # -- helpers -------------------------------------------------------------------------------------------------

    def _value(self, d: Directive, i: int) -> Value:
        name = d.values[i]
        if name not in self.values:
            raise error(
                "E0655",
                f"the schedule speaks of %{name}, but kernel @{self.kernel.name} has no such value",
                _at(d, i),
                legal="the name of a value of the kernel",
                notes=[Note("the kernel is here", self.kernel.loc)],
            )
        return self.values[name]

    def _set(self, d: Directive, op: Op, name: str, value: AttrValue) -> None:
        """Puts an attribute on an op unless the text or another directive says otherwise."""
        spec = get(op.name).attr(name)
        assert spec is not None, name
        self._once(d, op, name, value)
        written = op.attrs.get(name, spec.default)
        if written not in (spec.default, value):
            raise error(
                "E0657",
                f"'{print_directive(d)}' contradicts the kernel, which says {name} = {_text(written)} here",
                d.loc,
                legal="say it in one place",
                notes=[Note("said here", op.loc)],
            )
        self.out.ops.setdefault(op, {})[name] = value

    def _set_kernel(self, d: Directive, name: str, value: AttrValue) -> None:
        self._once(d, self.kernel.name, name, value)
        written = self.kernel.attrs.get(name)
        if written not in (None, value):
            raise error(
                "E0657",
                f"'{print_directive(d)}' needs {name} = {_text(value)}, but the kernel says {name} = {_text(written)}",
                d.loc,
                legal="say it in one place",
                notes=[Note("the kernel is here", self.kernel.loc)],
            )
        self.out.kernel[name] = value
        self.out.places[name] = d.loc

    def _once(self, d: Directive, subject: Any, name: str, value: AttrValue) -> None:
        """The same thing may be said twice, but not differently."""
        key = (subject, name)
        first = self.said.setdefault(key, d)
        if first is d:
            return
        earlier = self.out.ops.get(subject, {}).get(name) if isinstance(subject, Op) else self.out.kernel.get(name)
        if earlier is not None and earlier != value:
            raise error(
                "E0658",
                f"'{print_directive(d)}' asks for {name} = {_text(value)}, an earlier directive for {_text(earlier)}",
                d.loc,
                legal="directives that agree: the whole workgroup has one number of waves and each op one setting",
                notes=[Note("the earlier directive", first.loc)],
            )

    # -- directives ----------------------------------------------------------------------------------------------

    def _waves(self, d: Directive) -> None:
        grid = tuple(d.get("grid"))
        value = self._value(d, 0)
        if len(grid) != 2 or not all(is_power_of_two(g) for g in grid):
            raise error(
                "E0660",
                f"a grid of {' x '.join(map(str, grid))} waves",
                d.loc,
                legal="two powers of two: waves over rows x waves over columns",
            )
        count, most = grid[0] * grid[1], most_waves(self.ctx.target)
        if count > most:
            raise error(
                "E0705",
                f"{grid[0]} x {grid[1]} waves are {count * self.ctx.target.wave_size} threads; a workgroup of "
                f"{self.ctx.target.name} has at most {self.ctx.target.max_workgroup_size}",
                d.loc,
                legal=f"at most {most} waves",
            )
        products = self._summands(d, value, "so no grid of waves can be laid over it")
        self._set_kernel(d, "waves", count)
        for op in products:
            self._set(d, op, "waves", grid)

    def _mma(self, d: Directive) -> None:
        value = self._value(d, 0)
        op = value.owner
        if op is None or op.name != "mma":
            raise error(
                "E0656",
                f"%{value.name} is not the result of an 'mma'",
                _at(d, 0),
                legal=self._names("results of 'mma'", lambda o: o.name == "mma"),
                notes=[Note("defined here", value.loc)],
            )
        shape = tuple(d.get("shape"))
        problems = mfma_diagnostics(op, shape, d.loc, self.ctx.target)
        if problems:
            raise CompileError(problems)
        self._set(d, op, "instr", shape)
        if d.get("swapped"):
            self._set(d, op, "swapped", True)

    def _stage(self, d: Directive) -> None:
        path, depth = d.get("path"), d.get("depth")
        if path == "direct" and WIDE_DIRECT_BYTES not in self.ctx.target.direct_to_lds_bytes:
            sizes = ", ".join(map(str, self.ctx.target.direct_to_lds_bytes))
            raise error(
                "E0706",
                f"{self.ctx.target.name} has no direct-to-LDS loads of {WIDE_DIRECT_BYTES} bytes per lane (only {sizes})",
                d.loc,
                legal=f"stage {', '.join(f'%{v}' for v in d.values)} in shared … via_registers",
            )
        if depth is not None and depth < 1:
            raise error("E0661", f"a depth of {depth} stages", d.loc, legal="a depth of at least 1")
        for i in range(len(d.values)):
            value = self._value(d, i)
            op = value.owner
            if op is None or op.name != "load":
                raise error(
                    "E0656",
                    f"%{value.name} is not the result of a 'load', so it cannot be staged",
                    _at(d, i),
                    legal=self._names("results of 'load'", lambda o: o.name == "load"),
                    notes=[Note("defined here", value.loc)],
                )
            if path:
                self._set(d, op, "stage", path)
            if depth is not None:
                self._set(d, op, "depth", depth)

    def _loop(self, d: Directive) -> None:
        settings = {name: value for name in ("pattern", "masks", "slices") if (value := d.get(name))}
        if any(n < 1 for n in settings.get("slices", ())):
            sizes = " x ".join(map(str, settings["slices"]))
            raise error("E0661", f"slices {sizes}", d.loc, legal="sizes of at least 1")
        for i in range(len(d.values)):
            value = self._value(d, i)
            holder = self.holder.get(value)
            if holder is None or holder[0].name != "for" or holder[2] != 0:
                raise error(
                    "E0656",
                    f"%{value.name} is not the variable of a loop",
                    _at(d, i),
                    legal=self._loop_names(),
                    notes=[Note("defined here", value.loc)],
                )
            for name, setting in settings.items():
                self._set(d, holder[0], name, tuple(setting) if name == "slices" else setting)

    def _order(self, d: Directive) -> None:
        kind = d.get("kind")
        if kind not in ("xcd", "linear"):
            raise error("E0662", f"there is no workgroup order '{kind}'", d.loc, legal="xcd(chunk = …, window = …)")
        settings = {k: v for k, v in d.settings if k != "kind"}
        for name, v in settings.items():
            if name not in ("chunk", "window") or kind == "linear":
                raise error(
                    "E0662", f"order {kind} has no setting '{name}'", d.loc, legal="chunk, window (of order xcd)"
                )
            if not isinstance(v, int) or isinstance(v, bool) or v < 1 or v > _LARGEST_SETTING:
                raise error(
                    "E0662", f"order {kind} with {name} = {_text(v)}", d.loc, legal=f"{name} = 1 to {_LARGEST_SETTING}"
                )
        if len(self.kernel.grid) < 2 and kind == "xcd" and "window" in settings:
            raise error(
                "E0662",
                "a window of block rows needs a grid of at least two dimensions",
                d.loc,
                legal="order xcd(chunk = …)",
                notes=[Note("the grid is here", self.kernel.loc)],
            )
        self._set_kernel(d, "order", kind)
        for name, v in settings.items():
            self._set_kernel(d, f"order_{name}", v)

    def _registers(self, d: Directive) -> None:
        self._set_kernel(d, "registers", d.get("count"))

    def _pin(self, d: Directive) -> None:
        """`file` and `pin` of the products that sum to a value. Ranges of different sums must not meet: their lives do, in general."""
        value = self._value(d, 0)
        products = self._summands(d, value, "and only the registers of products can be pinned")
        first, last = int(d.get("first")), int(d.get("last"))
        for other, theirs in self.pins:
            apart = last < other.get("first") or other.get("last") < first or other.get("file") != d.get("file")
            if not apart and theirs.isdisjoint(products):
                raise error(
                    "E0664",
                    f"the registers of '{print_directive(d)}' are pinned for another value already",
                    d.loc,
                    legal="ranges that do not meet",
                    notes=[Note("the other value", other.loc)],
                )
        self.pins.append((d, frozenset(products)))
        for op in products:
            self._set(d, op, "file", "accumulation" if d.get("file") == "a" else "vector")
            self._set(d, op, "pin", (first, last))

    # -- which ops make a value ----------------------------------------------------------------------------------

    def _summands(self, d: Directive, value: Value, consequence: str) -> list[Op]:
        """The products that sum to what a directive names. Raises E0656 where there are none, with the consequence for it."""
        products = self._products(value)
        if not products:
            raise error(
                "E0656",
                f"no 'mma' contributes to %{value.name}, {consequence}",
                _at(d, 0),
                legal=self._names("results of 'mma'", lambda op: op.name == "mma"),
                notes=[Note("defined here", value.loc)],
            )
        return products

    def _products(self, value: Value) -> list[Op]:
        """The `mma` ops whose result reaches a value: through accumulation, loops, branches and elementwise ops of the
        same shape. In program order."""
        seen: set[Value] = set()
        found: set[Op] = set()
        pending = [value]
        shape = getattr(value.type, "shape", None)
        while pending:
            v = pending.pop()
            if v in seen or getattr(v.type, "shape", None) != shape:
                continue
            seen.add(v)
            if v in self.holder:
                pending += _sources_of_argument(*self.holder[v])
            op = v.owner
            if op is None:
                continue
            if op.name == "mma":
                found.add(op)
                pending += op.operands[2:3]
            elif op.regions:
                pending += _sources_of_result(op, op.results.index(v))
            elif get(op.name).elementwise:
                pending += op.operands
        return [op for op in self.kernel.walk() if op in found]

    def _names(self, what: str, fits: Callable[[Op], bool]) -> str:
        names = [f"%{op.results[0].name}" for op in self.kernel.walk() if fits(op)]
        return f"{what}: {', '.join(names)}" if names else f"{what}, of which the kernel has none"

    def _loop_names(self) -> str:
        names = [f"%{op.regions[0].args[0].name}" for op in self.kernel.walk() if op.name == "for"]
        return f"loop variables: {', '.join(names)}" if names else "a loop variable, of which the kernel has none"


_LARGEST_SETTING = (1 << 16) - 1  # products of settings and grid sizes stay far from 2^31


def _sources_of_argument(op: Op, region: int, index: int) -> list[Value]:
    """Values that flow into a region argument."""
    if op.name == "for":
        return [] if index == 0 else [op.operands[2 + index], op.regions[0].terminator.operands[index - 1]]
    if op.name == "while":
        return [op.operands[index], op.regions[1].terminator.operands[index]]
    return [op.operands[1 + index]]  # if, guard


def _sources_of_result(op: Op, index: int) -> list[Value]:
    """Values that flow into a result of an op with regions."""
    if op.name == "for":
        return [op.operands[3 + index], op.regions[0].terminator.operands[index]]
    if op.name == "while":
        return [op.operands[index], op.regions[1].terminator.operands[index]]
    ends = [r.terminator.operands[index] for r in op.regions]
    return ends if len(op.regions) == 2 else [*ends, op.operands[1 + index]]


def _at(d: Directive, i: int) -> Loc:
    return d.value_locs[i] if i < len(d.value_locs) else d.loc


def _text(value: AttrValue) -> str:
    return " x ".join(map(str, value)) if isinstance(value, tuple) else str(value)
