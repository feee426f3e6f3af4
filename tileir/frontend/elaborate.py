"""A whole file: constants, type aliases, kernels and schedules."""

from __future__ import annotations

from tileir.frontend.constants import Evaluator
from tileir.frontend.kernels import Given, KernelText
from tileir.frontend.parser import Node
from tileir.frontend.schedules import ScheduleText
from tileir.frontend.scope import Faults, Scope, did_you_mean
from tileir.frontend.source import Source
from tileir.frontend.types import Types
from tileir.ir.core import Kernel, Module, Schedule
from tileir.ir.diagnostics import Log, Note
from tileir.ir.location import Loc


class FileText:
    """The tree of one file."""

    def __init__(self, source: Source, tree: Node, given: Given, only: str | None, log: Log | None):
        self.source = source
        self.items: list[Node] = tree.children[1:]
        self.given = given
        self.only = only.removeprefix("@") if only is not None else None
        self.faults = Faults()
        self.scope = Scope(source, self.faults, log)

    def elaborate(self) -> Module:
        """The module. Raises one CompileError with every error found."""
        self._aliases()
        texts = [KernelText(n, self.scope, self.given) for n in self.items if n.kind == "kernel"]
        self._unique([t.symbol for t in texts], "kernel")
        if self.only is not None and self.only not in [t.name for t in texts]:
            self._no_kernel([t.name for t in texts])
        chosen = [t for t in texts if self.only in (None, t.name)]
        self._unknown_params(chosen)
        kernels: list[Kernel] = []
        done: dict[str, tuple[KernelText, Kernel]] = {}
        for text in chosen:
            kernel = text.elaborate()
            if kernel is not None:
                kernels.append(kernel)
                done.setdefault(text.name, (text, kernel))
        schedules = self._schedules([t.name for t in texts], done)
        self.faults.raise_if_any(self.source)
        return Module(kernels, schedules, {self.source.filename: self.source.text})

    def _aliases(self) -> None:
        """`const` and `type` hold for everything that follows them; kernels see all of them."""
        scope = self.scope
        for node in self.items:
            if node.kind not in ("const", "type_alias"):
                continue
            name, meaning = node.children
            if name.text in scope.locs:
                self.faults.attempt(lambda n=name: self._twice(n, scope.locs[n.text]))
                continue
            scope.locs[name.text] = scope.loc(name)
            if node.kind == "const":
                scope.values[name.text] = self.faults.attempt(lambda m=meaning: Evaluator(scope).expr(m))
            else:
                scope.types[name.text] = self.faults.attempt(lambda m=meaning: Types(scope).type(m))

    def _twice(self, node: Node, first: Loc) -> None:
        self.scope.fail(
            "E0207",
            f"{node.text} is declared twice",
            node,
            legal="a name of its own",
            notes=[Note("first declared here", first)],
        )

    def _unique(self, symbols: list[Node], what: str) -> None:
        seen: dict[str, Node] = {}
        for s in symbols:
            first = seen.setdefault(s.text, s)
            if first is not s:
                self.faults.attempt(
                    lambda s=s, first=first: self.scope.fail(
                        "E0206",
                        f"there are two {what}s {s.text}",
                        s,
                        legal="names that are unique in the file",
                        notes=[Note("the first one is here", self.scope.loc(first))],
                    )
                )

    def _no_kernel(self, known: list[str]) -> None:
        listed = ", ".join(f"@{k}" for k in known) or "none in this file"
        self.faults.attempt(
            lambda: self.scope.fail_at(
                "E0210",
                f"there is no kernel @{self.only}",
                Loc(self.source.filename, 1, 1, 1, 1),
                legal=did_you_mean(str(self.only), known, "@") or f"one of: {listed}",
            )
        )

    def _unknown_params(self, texts: list[KernelText]) -> None:
        """A value given from outside must be for a parameter of some kernel that is elaborated."""
        known = list(dict.fromkeys(n for t in texts for n in t.param_names()))
        if not texts:
            return
        for name in self.given:
            if name not in known:
                listed = ", ".join(known) or "none"
                hint = did_you_mean(name, known)
                self.faults.attempt(
                    lambda name=name, hint=hint, listed=listed: self.scope.fail(
                        "E0209",
                        f"no kernel has a parameter {name}",
                        texts[0].symbol,
                        legal=f"{hint + '; ' if hint else ''}parameters: {listed}",
                    )
                )

    def _schedules(self, kernels: list[str], done: dict[str, tuple[KernelText, Kernel]]) -> list[Schedule]:
        nodes = [n for n in self.items if n.kind == "schedule"]
        self._unique([n.children[0] for n in nodes], "schedule")
        out: list[Schedule] = []
        for node in nodes:
            of = node.children[1]
            name = of.text[1:]
            if name in done:
                schedule = ScheduleText(node, *done[name]).elaborate()
                if schedule is not None:
                    out.append(schedule)
            elif name not in kernels:
                self.faults.attempt(
                    lambda of=of, name=name: self.scope.fail(
                        "E0620",
                        f"a schedule of {of.text}, but there is no such kernel",
                        of,
                        legal=did_you_mean(name, kernels, "@")
                        or f"one of: {', '.join(kernels) or 'none in this file'}",
                    )
                )
        return out
