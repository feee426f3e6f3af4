"""What a pass is: a function from kernel to kernel with a name, the normal forms it needs and those it creates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from tileir.ir.core import Directive, Kernel, Module
from tileir.ir.diagnostics import Log
from tileir.records import dataclass
from tileir.target import Target


@dataclass
class Context:
    """What a pass may look at besides the kernel. `module` gives schedules and sources; `log` takes remarks.

    `schedule` is the name of a schedule chosen by the user, "" for the first one that applies. `spare` are registers that loops of
    single instructions leave free beyond what is estimated, and `whole_tiles` leaves loops as they are whose text does not ask for
    stages: what to try where registers turn out not to suffice, and the last resort.
    """

    target: Target
    module: Module
    log: Log = field(default_factory=Log)
    schedule: str = ""
    whole_tiles: bool = False
    spare: int = 0

    def directives(self, kernel: Kernel) -> list[Directive]:
        """The directives of the schedule that the kernel is under, once `specialise` has chosen it."""
        name = kernel.attrs.get("schedule")
        return [d for s in self.module.schedules if s.name == name and s.kernel == kernel.name for d in s.directives]


@dataclass(frozen=True)
class Pass:
    """A pass of the pipeline. `requires` and `establishes` name normal forms of `tileir.passes.forms`."""

    name: str
    run: Callable[[Kernel, Context], Kernel]
    requires: frozenset[str] = frozenset()
    establishes: frozenset[str] = frozenset()
    summary: str = ""
