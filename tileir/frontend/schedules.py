"""Schedules: directives, checked against the kernel that they are for."""

from __future__ import annotations

from collections.abc import Callable

from tileir import target
from tileir.frontend.constants import Evaluator, kind_of
from tileir.frontend.kernels import KernelText
from tileir.frontend.parser import Node
from tileir.frontend.scope import did_you_mean
from tileir.frontend.types import Types
from tileir.frontend.unparse import expression_text
from tileir.ir.core import AttrValue, Directive, Kernel, Op, Schedule, Value
from tileir.ir.diagnostics import Note
from tileir.ir.location import Loc
from tileir.ir.types import TileType

MAX_WAVES = 16
"""Waves of one workgroup: 1024 work-items (HIP's limit of work-items per block) of 64 lanes."""
MAX_DEPTH = 4
MAX_REGISTERS = 512
"""Vector registers that a lane of a CDNA3 or CDNA4 wave can have, AGPRs included (CDNA3 ISA, "Vector registers")."""
_ONCE = ("order", "registers")
_PATTERNS = ("plain", "ping_pong", "interleave")
_MASKS = ("split", "whole")
_PATHS = ("direct", "via_registers")
_REGISTER_FILES = ("v", "a")
LAST_REGISTER = 255
"""The last register of each file of vectors (CDNA3 ISA, "Vector registers")."""
_ORDERS: dict[str, tuple[str, ...]] = {"linear": (), "xcd": ("chunk", "window")}


class ScheduleText:
    """One `schedule` of a file, for a kernel that was elaborated without errors."""

    def __init__(self, node: Node, text: KernelText, kernel: Kernel):
        self.node = node
        self.scope = text.scope
        self.text = text
        self.kernel = kernel
        # A kernel with attributes has been transformed by passes: its values need not be those of the schedule any more.
        self.checks_values = not kernel.attrs
        self.values: dict[str, tuple[Value, Op | None]] = {a.name: (a, None) for a in kernel.args}
        for op in kernel.walk():
            self.values.update({r.name: (r, op) for r in op.results})
            for region in op.regions:
                self.values.update({a.name: (a, op) for a in region.args})
        self._seen: dict[tuple[str, str], Loc] = {}

    def elaborate(self) -> Schedule | None:
        """The schedule, or None after its faults were recorded."""
        faults = self.scope.faults
        before = len(faults.diagnostics)
        symbol, _, chip, when, directives = self.node.children
        faults.attempt(lambda: self._target(chip))
        applies = faults.attempt(lambda: self._when(when))
        parts = [faults.attempt(lambda d=d: self._directive(d)) for d in directives.children]
        if len(faults.diagnostics) > before:
            return None
        return Schedule(
            symbol.text[1:],
            self.kernel.name,
            chip.text,
            expression_text(when.children[0]) if when is not None else "",
            bool(applies),
            tuple(d for d in parts if d is not None),
            self.scope.loc(symbol),
        )

    def _target(self, node: Node) -> None:
        if node.text not in target.names():
            hint = did_you_mean(node.text, target.names()) or f"one of: {', '.join(target.names())}"
            self.scope.fail("E0622", f"there is no target '{node.text}'", node, legal=hint)

    def _when(self, node: Node | None) -> bool:
        if node is None:
            return True
        value = Evaluator(self.scope).expr(node.children[0])
        if not isinstance(value, bool):
            self.scope.fail(
                "E0623",
                f"the condition of a schedule is of kind {kind_of(value)}",
                node.children[0],
                legal="a comparison of parameters, such as T == bf16",
            )
        return value

    # -- directives --------------------------------------------------------------------------------------------------

    def _directive(self, node: Node) -> Directive:
        handlers: dict[str, Callable[[Node], tuple[list[Node], list[tuple[str, AttrValue]]]]] = {
            "waves": self._waves,
            "mma": self._mma,
            "stage": self._stage,
            "loop": self._loop,
            "order": self._order,
            "registers": self._registers,
            "pin": self._pin,
        }
        values, settings = handlers[node.kind](node)
        for v in values or [None]:
            key = (node.kind, v.text if v is not None else "")
            if key in self._seen:
                self.scope.fail(
                    "E0624",
                    f"a second '{node.kind}'{f' for {key[1]}' if key[1] else ''}",
                    v if v is not None else node,
                    legal="one such directive",
                    notes=[Note("the first one is here", self._seen[key])],
                )
            self._seen[key] = self.scope.loc(node)
        names = tuple(self.text.actual_name(v.text[1:]) for v in values)
        return Directive(
            node.kind, names, tuple(settings), self.scope.loc(node), tuple(self.scope.loc(v) for v in values)
        )

    def _find(self, node: Node, wanted: str, fits: Callable[[Value, Op | None], bool]) -> None:
        """Checks that a directive names a value of the right sort."""
        if not self.checks_values:
            return
        name = self.text.actual_name(node.text[1:])
        if name not in self.values:
            sort = [n for n, (v, op) in self.values.items() if fits(v, op)]
            hint = did_you_mean(node.text[1:], sort, "%")
            known = ", ".join(f"%{n}" for n in sort[:8])
            self.scope.fail(
                "E0625",
                f"@{self.kernel.name} has no value {node.text}",
                node,
                legal=hint or (f"{wanted}: {known}" if known else wanted),
                notes=[Note("the kernel is here", self.kernel.loc)],
            )
        value, op = self.values[name]
        if not fits(value, op):
            sort = [f"%{n}" for n, (v, o) in self.values.items() if fits(v, o)]
            self.scope.fail(
                "E0626",
                f"{node.text} is not {wanted}",
                node,
                legal=f"{wanted}: {', '.join(sort[:8])}" if sort else wanted,
                notes=[Note("defined here", value.loc)],
            )

    def _counts(self, node: Node, low: int, high: int, what: str) -> tuple[int, ...]:
        """The numbers of `2 x 4` or `2`."""
        return tuple(self._number(part, node, low, high, what) for part in node.text.split("x"))

    def _number(self, text: str, node: Node, low: int, high: int, what: str) -> int:
        digits = text.strip()
        if len(digits) > 9 or not low <= int(digits) <= high:
            self.scope.fail("E0627", f"{what} of {digits[:20]}", node, legal=f"{low} to {high}")
        return int(digits)

    def _waves(self, node: Node) -> tuple[list[Node], list[tuple[str, AttrValue]]]:
        values, counts = node.children
        for v in values.children:
            self._find(v, "a tile of rank 2", lambda v, op: isinstance(v.type, TileType) and v.type.rank == 2)
        grid = self._counts(counts, 1, MAX_WAVES, "a number of waves")
        product = 1
        for n in grid:
            product *= n
        if len(grid) != 2:
            self.scope.fail(
                "E0628", f"a wave grid of {len(grid)} numbers", counts, legal="rows x columns, such as 2 x 4"
            )
        if product > MAX_WAVES or product & (product - 1):
            self.scope.fail(
                "E0628",
                f"a workgroup of {product} waves",
                counts,
                legal=f"a power of two up to {MAX_WAVES} waves in all",
            )
        return values.children, [("grid", grid)]

    def _mma(self, node: Node) -> tuple[list[Node], list[tuple[str, AttrValue]]]:
        values, shape, swapped = node.children
        for v in values.children:
            self._find(v, "the result of an mma", lambda v, op: op is not None and op.name in ("mma", "mma_scaled"))
        numbers = self._counts(shape, 1, 256, "a dimension of an MFMA")
        if len(numbers) != 3:
            self.scope.fail("E0629", f"an MFMA shape of {len(numbers)} numbers", shape, legal="m x n x k: 16x16x32")
        settings: list[tuple[str, AttrValue]] = [("shape", numbers)]
        return values.children, [*settings, ("swapped", True)] if swapped is not None else settings

    def _stage(self, node: Node) -> tuple[list[Node], list[tuple[str, AttrValue]]]:
        values, depth, path = node.children
        for v in values.children:
            self._find(v, "a loaded tile", lambda v, op: op is not None and op.name == "load" and v in op.results)
        settings: list[tuple[str, AttrValue]] = []
        if depth is not None:
            number = depth.children[0]
            settings.append(("depth", self._number(number.text, number, 1, MAX_DEPTH, "a depth")))
        if path is not None:
            settings.append(("path", self._word(path, _PATHS, "way into shared memory")))
        return values.children, settings

    def _loop(self, node: Node) -> tuple[list[Node], list[tuple[str, AttrValue]]]:
        values, pattern, slices, masks = node.children
        for v in values.children:
            self._find(
                v,
                "the variable of a loop",
                lambda v, op: op is not None and op.name == "for" and v is op.regions[0].args[0],
            )
        settings: list[tuple[str, AttrValue]] = []
        if pattern is not None:
            settings.append(("pattern", self._word(pattern.children[0], _PATTERNS, "pattern")))
        if slices is not None:
            settings.append(("slices", self._counts(slices.children[0], 1, 64, "a number of slices")))
        if masks is not None:
            settings.append(("masks", self._word(masks.children[0], _MASKS, "way with masks")))
        return values.children, settings

    def _order(self, node: Node) -> tuple[list[Node], list[tuple[str, AttrValue]]]:
        kind, listed = node.children
        legal = _ORDERS[self._word(kind, tuple(_ORDERS), "order")]
        settings: list[tuple[str, AttrValue]] = [("kind", kind.text)]
        types = Types(self.scope)
        for setting in listed.children if listed is not None else []:
            name, value = setting.children
            if name.text not in legal:
                hint = did_you_mean(name.text, legal) or (", ".join(legal) or f"{kind.text} without settings")
                self.scope.fail("E0631", f"'{kind.text}' has no setting '{name.text}'", setting, legal=hint)
            if any(name.text == n for n, _ in settings):
                self.scope.fail("E0624", f"the setting '{name.text}' is given twice", setting, legal="once")
            number = types.integer(value, f"'{name.text}'")
            if not 1 <= number <= 1 << 16:
                self.scope.fail("E0627", f"'{name.text}' of {number}", value, legal=f"1 to {1 << 16}")
            settings.append((name.text, number))
        return [], settings

    def _registers(self, node: Node) -> tuple[list[Node], list[tuple[str, AttrValue]]]:
        (count,) = node.children
        return [], [("count", self._number(count.text, count, 1, MAX_REGISTERS, "a register budget"))]

    def _pin(self, node: Node) -> tuple[list[Node], list[tuple[str, AttrValue]]]:
        value, file, first, last = node.children
        self._find(value, "the result of an mma", lambda v, op: op is not None and op.name in ("mma", "mma_scaled"))
        numbers = [self._number(n.text, n, 0, LAST_REGISTER, "a register") for n in (first, last)]
        if numbers[0] % 2 or numbers[1] % 2 == 0 or numbers[0] > numbers[1]:
            self.scope.fail(
                "E0632",
                f"registers {numbers[0]} to {numbers[1]} for the parts of a product",
                first,
                legal="from an even number to a larger odd one: v[0:31] are 32 registers",
            )
        settings: list[tuple[str, AttrValue]] = [("file", self._word(file, _REGISTER_FILES, "file of registers"))]
        return [value], [*settings, ("first", numbers[0]), ("last", numbers[1])]

    def _word(self, node: Node, legal: tuple[str, ...], what: str) -> str:
        if node.text not in legal:
            hint = did_you_mean(node.text, legal) or f"one of: {', '.join(legal)}"
            self.scope.fail("E0630", f"there is no {what} '{node.text}'", node, legal=hint)
        return node.text
