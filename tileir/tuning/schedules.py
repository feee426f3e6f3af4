"""Schedules as data: what the tuner may say in a `schedule` block, and the text of one."""

from __future__ import annotations

from dataclasses import fields

from tileir.ir.core import AttrValue, Directive, Kernel, Op, Schedule
from tileir.ir.printer import print_schedule
from tileir.records import dataclass


@dataclass(frozen=True)
class Directives:
    """What a schedule says; None and "" leave a decision to the compiler.

    waves: over rows and columns of every product. instr: m, n, k of the matrix instruction. depth: stages of staged operands. path: how they come
    into LDS, "direct" or "via_registers". pattern: of the loops with products. slices: of ping_pong. order: ("linear",) or ("xcd", chunk, window).
    """

    waves: tuple[int, int] | None = None
    instr: tuple[int, int, int] | None = None
    depth: int | None = None
    path: str = ""
    pattern: str = ""
    slices: tuple[int, int] | None = None
    order: tuple[str, int, int] | tuple[str] | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, f.name) for f in fields(self))

    def __str__(self) -> str:
        parts = [f"waves {self.waves[0]} x {self.waves[1]}"] if self.waves else []
        parts += ["mma " + "x".join(map(str, self.instr))] if self.instr else []
        parts += [f"depth {self.depth}"] if self.depth else []
        parts += [self.path] if self.path else []
        parts += [self.pattern] if self.pattern else []
        parts += [f"slices {self.slices[0]} x {self.slices[1]}"] if self.slices else []
        if self.order:
            parts.append(
                self.order[0] if len(self.order) == 1 else "xcd(chunk = {1}, window = {2})".format(*self.order)
            )
        return ", ".join(parts) or "left to the compiler"


@dataclass(frozen=True)
class Handles:
    """Names of the values of a kernel that directives speak of: products, staged loads, loops with products."""

    products: tuple[str, ...]
    staged: tuple[str, ...]
    loops: tuple[str, ...]


def handles(kernel: Kernel) -> Handles:
    """What directives can be about. Products and operands count where a loop of the kernel computes them."""
    products: list[str] = []
    staged: list[str] = []
    loops: list[str] = []
    for op in kernel.walk():
        if op.name == "mma":
            products.append(op.result.name)
        if op.name != "for" or any(inner.name == "for" for r in op.regions for inner in r.walk()):
            continue
        inside = [inner for r in op.regions for inner in r.walk()]
        made = [inner for inner in inside if inner.name == "mma"]
        if not made:
            continue
        loops.append(op.regions[0].args[0].name)
        for product in made:
            for v in product.operands[:2]:
                owner = v.owner
                while owner is not None and owner.name == "transpose":
                    owner = owner.operands[0].owner
                if owner is not None and owner.name == "load" and owner in inside:
                    staged.append(owner.result.name)
    return Handles(tuple(dict.fromkeys(products)), tuple(dict.fromkeys(staged)), tuple(loops))


def stated(op: Op, name: str) -> bool:
    """Whether the text of the kernel itself says something, so that no schedule may."""
    return bool(op.attrs.get(name))


def schedule_text(name: str, kernel: Kernel, target: str, when: str, choice: Directives, names: Handles) -> str:
    """A `schedule` block in canonical form."""
    directives: list[Directive] = []

    def say(directive: str, values: tuple[str, ...], **settings: AttrValue) -> None:
        given = tuple((k, v) for k, v in settings.items() if v)
        directives.append(Directive(directive, values, given))

    if choice.waves:
        for v in names.products:
            say("waves", (v,), grid=choice.waves)
    if choice.instr:
        for v in names.products:
            say("mma", (v,), shape=choice.instr)
    if (choice.depth or choice.path) and names.staged:
        say("stage", names.staged, depth=choice.depth, path=choice.path)
    if choice.pattern or choice.slices:
        for v in names.loops:
            say("loop", (v,), pattern=choice.pattern, slices=choice.slices)
    if choice.order:
        kind, *numbers = choice.order
        say("order", (), kind=kind, **dict(zip(("chunk", "window"), numbers, strict=False)))
    return print_schedule(Schedule(name, kernel.name, target, when, True, tuple(directives)))
