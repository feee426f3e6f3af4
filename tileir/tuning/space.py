"""What may vary: compile-time parameters that cut the work differently without changing it, and directives of schedules."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache

from tileir.frontend.elaborate import FileText
from tileir.frontend.parser import Node
from tileir.frontend.source import Source
from tileir.frontend.syntax import read
from tileir.ir.core import Kernel, Op
from tileir.ir.diagnostics import CompileError, Note, error
from tileir.ir.location import Loc
from tileir.passes import replay
from tileir.passes.legality import is_power_of_two
from tileir.passes.loop_stages import MOST_DEPTH
from tileir.passes.manager import find_kernel
from tileir.passes.mfma_choice import instructions, usual_waves
from tileir.records import dataclass
from tileir.target import Target
from tileir.tuning.schedules import Directives, Handles, handles, stated
from tileir.tuning.text import kernel_node, parameter_nodes
from tileir.tuning.work import product_shape

Value = int | float | bool | str
Given = Mapping[str, "Value | Sequence[Value]"]
"""Values of parameters from outside: one fixes it, several are the ones to try."""

SMALLEST_TILE = 16
"""Rows or columns of the smallest matrix instruction that is chosen by itself."""
LARGEST_TILE = 256
REACH = 8
"""How many times larger or smaller than its default a parameter becomes by itself."""
MOST_WAVES = 16
WIDEST = 16
"""Bytes of a lane in one access."""
MOST_COMBINATIONS = 600


@dataclass(frozen=True)
class Parameter:
    """An open parameter: its default, the values to try, where it is declared, and whether the values were given."""

    name: str
    default: int
    values: tuple[int, ...]
    loc: Loc
    given: bool = False


@dataclass
class Space:
    """A kernel whose open parameters are bound one way or another. fixed: parameters that are given one value."""

    text: str
    filename: str
    kernel: str
    target: Target
    fixed: dict[str, Value]
    parameters: tuple[Parameter, ...]
    notes: list[str] = field(default_factory=list[str])
    _kernels: dict[tuple[int, ...], Kernel | CompileError] = field(
        default_factory=dict[tuple[int, ...], "Kernel | CompileError"]
    )

    def defaults(self) -> tuple[int, ...]:
        """The values of the open parameters that the text has."""
        return tuple(p.default for p in self.parameters)

    def named(self, values: Sequence[int]) -> dict[str, int]:
        """Values of the open parameters by name."""
        return {p.name: v for p, v in zip(self.parameters, values, strict=True)}

    def bindings(self) -> list[tuple[int, ...]]:
        """All values of the open parameters together; where there are too many only powers of two, then those nearest to the defaults, of
        parameters whose values were not given."""
        lists = [list(p.values) for p in self.parameters]
        if math.prod(map(len, lists)) > MOST_COMBINATIONS:
            pairs = zip(lists, self.parameters, strict=True)
            lists = [[v for v in vs if p.given or is_power_of_two(v) or v == p.default] for vs, p in pairs]
        while (
            math.prod(map(len, lists)) > MOST_COMBINATIONS
        ):  # the values farthest from the default, of the longest list
            own = [i for i, p in enumerate(self.parameters) if not p.given and len(lists[i]) > 1]
            if not own:
                break
            longest = max(own, key=lambda i: len(lists[i]))
            middle = math.log2(max(1, self.parameters[longest].default))
            farthest = max(lists[longest], key=lambda v: abs(math.log2(max(1, v)) - middle))
            lists[longest].remove(farthest)
        return list(itertools.product(*lists))

    def bound(self, values: tuple[int, ...]) -> Kernel:
        """The kernel under these values. Raises CompileError."""
        if values not in self._kernels:
            try:
                self._kernels[values] = bind(
                    self.text, self.filename, self.kernel, {**self.fixed, **self.named(values)}
                )
            except CompileError as e:
                self._kernels[values] = e
        found = self._kernels[values]
        if isinstance(found, CompileError):
            raise found
        return found


@lru_cache(maxsize=4)
def _tree(text: str, filename: str) -> tuple[Source, Node]:
    source = Source(text, filename)
    return source, read(source)


def bind(text: str, filename: str, kernel: str, params: Mapping[str, Value]) -> Kernel:
    """One kernel of a text under values of its parameters. Raises CompileError."""
    source, tree = _tree(text, filename)
    return find_kernel(FileText(source, tree, params, kernel, None).elaborate(), kernel)


# -- parameters ----------------------------------------------------------------------------------------------------------


def space_of(text: str, filename: str, kernel: str, target: Target, given: Given) -> Space:
    """The space of a kernel. A parameter is open if several values are given, or if none is, it is an int with a default, and it
    only cuts the work: it changes the grid or the step of a loop, and on small inputs the kernel computes the same with another
    value. Raises CompileError where the values given make that impossible.
    """
    source, node = kernel_node(text, filename, kernel)
    listed = parameter_nodes(node)
    places = {p.children[0].text: source.loc(p.children[0].start, p.children[0].end) for p in listed}
    kinds = {p.children[0].text: p.children[1].children[0].text for p in listed}
    several = {n: tuple(v) for n, v in given.items() if not isinstance(v, int | float | bool | str)}
    fixed: dict[str, Value] = {n: v for n, v in given.items() if isinstance(v, int | float | bool | str)}
    for name, values in several.items():
        if name in kinds and (kinds[name] != "int" or not values or not all(_is_int(v) for v in values)):
            raise error(
                "E1903",
                f"the values of {name} to try are {', '.join(map(str, values)) or 'none'}, but it is of kind {kinds[name]}",
                places[name],
                legal=f"integers for a parameter of kind int; one value for {name}"
                if kinds[name] != "int"
                else "integers",
            )
    first = {n: v[0] for n, v in several.items()}
    base = bind(text, filename, kernel, {**fixed, **first})
    numbers = {n: tuple(dict.fromkeys(int(v) for v in values)) for n, values in several.items()}
    default = {n: v for n in kinds if isinstance(v := base.params.get(n), int) and not isinstance(v, bool)}
    probe = _Probe(text, filename, kernel, {**fixed, **first}, base)
    space = Space(text, filename, kernel, target, fixed, ())
    found: list[Parameter] = []
    for p in listed:
        name = p.children[0].text
        if name in numbers:
            probe.check(name, numbers[name], places[name])
            default_of = _text_default(text, filename, kernel, fixed, name, numbers[name])
            found.append(Parameter(name, default_of, numbers[name], places[name], given=True))
        elif name not in fixed and name in default and p.children[2] is not None:
            if probe.cuts(name, default[name]):
                values = usual_values(base, probe, name, default[name])
                found.append(Parameter(name, default[name], values, places[name]))
    space.parameters = tuple(found)
    space.notes += probe.notes
    return space


def _is_int(v: Value) -> bool:
    try:
        return not isinstance(v, bool) and int(v) == (float(v) if not isinstance(v, str) else int(v))
    except ValueError:
        return False


def _text_default(
    text: str, filename: str, kernel: str, fixed: Mapping[str, Value], name: str, values: tuple[int, ...]
) -> int:
    """The default of the text where it is one of the values, else the first of these."""
    try:
        default = bind(text, filename, kernel, fixed).params.get(name)
    except CompileError:  # no default, or one that does not go with what is fixed
        return values[0]
    return default if isinstance(default, int) and default in values else values[0]


class _Probe:
    """Tries other values of a parameter and looks at what changes."""

    def __init__(self, text: str, filename: str, kernel: str, params: Mapping[str, Value], base: Kernel):
        self.text, self.filename, self.kernel, self.params, self.base = text, filename, kernel, dict(params), base
        self.sample: replay.Sample | None = None
        self.sampled = False
        self.notes: list[str] = []

    def with_value(self, name: str, value: int) -> Kernel | None:
        try:
            return bind(self.text, self.filename, self.kernel, {**self.params, name: value})
        except CompileError:
            return None

    def cuts(self, name: str, default: int) -> bool:
        """Whether the parameter only says how the work is cut."""
        for value in (2 * default, default // 2):
            other = self.with_value(name, value) if value > 0 else None
            if other is None:
                continue
            if not self.divides(other):
                return False
            difference = self.difference(other)
            if difference is None:
                return True
            if difference:
                self.notes.append(
                    f"{name} stays {default}: with {value} the kernel computes something else ({difference})"
                )
                return False
            self.notes.append(
                f"{name} stays {default}: the kernel runs on none of the small inputs that would show what it does"
            )
            return False
        return False

    def divides(self, other: Kernel) -> bool:
        """Whether the grid or the step of a loop is another one."""
        return other.grid != self.base.grid or _steps(other) != _steps(self.base)

    def check(self, name: str, values: Sequence[int], loc: Loc) -> None:
        """Raises CompileError where one of the values given changes the meaning."""
        for value in values:
            other = self.with_value(name, value)
            difference = self.difference(other) if other is not None else None
            if difference:
                raise error(
                    "E1902",
                    f"with {name} = {value} the kernel computes something else than with {self.base.params[name]}, so these cannot be compared",
                    loc,
                    legal=f"one value for {name}, or values that only cut the work in another way",
                    notes=[Note(difference)],
                )

    def difference(self, other: Kernel) -> str | None:
        """None if both compute the same, "" if nobody knows, else an element that differs."""
        if not self.sampled:
            self.sample, self.sampled = replay.sample(self.base), True
        if self.sample is None:
            return ""
        try:
            outputs = replay.execute(other, self.sample.symbols, self.sample.inputs)
        except CompileError as e:
            return e.diagnostics[0].message
        for name, want in self.sample.outputs.items():
            where = replay.first_difference(outputs[name], want)
            if where is not None:
                return f"%{name}[{', '.join(map(str, where))}] is {outputs[name][where]} instead of {want[where]}"
        return None


def _steps(kernel: Kernel) -> list[object]:
    """Steps of all loops, where they are constants."""
    owners = [op.operands[2].owner for op in kernel.walk() if op.name == "for"]
    return [owner.attrs.get("value") if owner is not None else None for owner in owners]


def usual_values(base: Kernel, probe: _Probe, name: str, default: int) -> tuple[int, ...]:
    """Values that are tried of an open parameter: powers of two around its default; for a side of the tile that a product computes
    the multiples of 16 of the form 2ⁿ or 3 · 2ⁿ up to 256.
    """
    if _is_side(base, probe, name, default):
        sides = [
            s
            for s in range(SMALLEST_TILE, LARGEST_TILE + 1, SMALLEST_TILE)
            if is_power_of_two(s) or (s % 3 == 0 and is_power_of_two(s // 3) and s > 64)
        ]
        return tuple(sorted({default, *sides}))
    powers = [
        1 << n for n in range((REACH * default).bit_length()) if default <= REACH << n and 1 << n <= REACH * default
    ]
    if any(op.name == "mma" for op in base.walk()) and default in _depths(base):
        powers = [p for p in powers if default // 2 <= p <= 2 * default]
    return tuple(sorted({default, *powers}))


def _is_side(base: Kernel, probe: _Probe, name: str, default: int) -> bool:
    other = probe.with_value(name, 2 * default) or probe.with_value(name, max(1, default // 2))
    return other is not None and _sides(other) != _sides(base)


def _sides(kernel: Kernel) -> list[tuple[int, int]]:
    return [product_shape(op)[:2] for op in kernel.walk() if op.name == "mma"]


def _depths(kernel: Kernel) -> list[int]:
    return [product_shape(op)[2] for op in kernel.walk() if op.name == "mma"]


# -- directives ----------------------------------------------------------------------------------------------------------


def wave_grids(kernel: Kernel) -> Iterator[tuple[int, int]]:
    """Grids of waves for all products: numbers around the usual one, each wave with a fragment of its own."""
    products = [op for op in kernel.walk() if op.name == "mma"]
    if not products or any(stated(op, "waves") for op in products) or kernel.attrs.get("waves"):
        return
    usual = usual_waves(kernel)
    rows = min(product_shape(op)[0] for op in products)
    columns = min(product_shape(op)[1] for op in products)
    for count in (usual, usual * 2, usual // 2):
        r = 1
        while r <= count <= MOST_WAVES:
            if r * SMALLEST_TILE <= max(rows, SMALLEST_TILE) and count // r * SMALLEST_TILE <= max(
                columns, SMALLEST_TILE
            ):
                yield r, count // r
            r *= 2


def variants(kernel: Kernel, target: Target) -> Iterator[Directives]:
    """Schedules of a kernel that the model can tell apart; the first leaves everything to the compiler."""
    names = handles(kernel)
    products = [op for op in kernel.walk() if op.name == "mma"]
    for waves in (None, *wave_grids(kernel)):
        count = math.prod(waves) if waves else usual_waves(kernel)
        for instr in (None, *_instructions(products, target)):
            for depth in (None, *_open_depths(kernel, names)):
                for pattern, slices in _patterns(kernel, names, count, target):
                    if pattern != "plain" or depth is None:
                        yield Directives(waves, instr, depth, "", pattern, slices)
    for path in _open_paths(kernel, names, target):
        yield Directives(path=path)


def _instructions(products: Sequence[Op], target: Target) -> list[tuple[int, int, int]]:
    """Matrix instructions that every product can have, where the text leaves them open."""
    if not products or any(stated(op, "instr") for op in products):
        return []
    each = [[(i.m, i.n, i.k) for i in instructions(op, target)] for op in products]
    common = [i for i in each[0] if all(i in e for e in each)]
    return common if len(common) > 1 else []


def _open_depths(kernel: Kernel, names: Handles) -> list[int]:
    if not names.staged or any(op.name == "load" and stated(op, "depth") for op in kernel.walk()):
        return []
    return list(range(2, MOST_DEPTH + 1))


def _open_paths(kernel: Kernel, names: Handles, target: Target) -> list[str]:
    """Ways into LDS other than the compiler's own: through registers, where whole runs of 16 bytes could come directly."""
    if not names.staged or any(op.name == "load" and stated(op, "stage") for op in kernel.walk()):
        return []
    return ["via_registers"] if max(target.direct_to_lds_bytes) >= WIDEST else []


def _patterns(kernel: Kernel, names: Handles, waves: int, target: Target) -> list[tuple[str, tuple[int, int] | None]]:
    """Patterns with slices; the first is the compiler's own choice."""
    found: list[tuple[str, tuple[int, int] | None]] = [("", None)]
    if not names.loops or any(op.name == "for" and stated(op, "pattern") for op in kernel.walk()):
        return found
    found.append(("plain", None))
    if waves % (2 * target.simds_per_cu) == 0:
        found += [("ping_pong", None), ("ping_pong", (2, 2))]
    return found


ORDERS: tuple[tuple[str, int, int] | tuple[str], ...] = (("linear",), ("xcd", 32, 4), ("xcd", 64, 8), ("xcd", 128, 16))


def neighbours(
    space: Space, values: tuple[int, ...], choice: Directives, workgroups: int
) -> Iterator[tuple[tuple[int, ...], Directives]]:
    """Candidates that differ from one in one respect: the next larger or smaller value of a parameter, or one directive."""
    for i, p in enumerate(space.parameters):
        at = p.values.index(values[i]) if values[i] in p.values else -1
        for j in (at - 1, at + 1) if at >= 0 else ():
            if 0 <= j < len(p.values):
                yield (*values[:i], p.values[j], *values[i + 1 :]), choice
    try:
        kernel = space.bound(values)
    except CompileError:
        return
    for other in variants(kernel, space.target):
        changed = sum(getattr(other, f) != getattr(choice, f) for f in ("waves", "instr", "depth", "path")) + (
            (other.pattern, other.slices) != (choice.pattern, choice.slices)
        )
        if changed == 1:
            yield values, replace(other, order=choice.order)
    if len(kernel.grid) >= 2 and workgroups > space.target.num_cus and not kernel.attrs.get("order"):
        for order in ORDERS:
            if order != choice.order:
                yield values, replace(choice, order=order)
