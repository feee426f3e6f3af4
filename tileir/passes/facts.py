"""What is known of scalars without running the kernel: by what power of two, or which number, they are divisible."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tileir.ir.core import Kernel, Op, Value
from tileir.passes.affine import multiple_of

UNKNOWN_FACTOR = 1


class Divisibility:
    """For every integer scalar of a kernel a number that certainly divides it (0 stands for "is zero").

    Sources: literals, arithmetic, loop variables (start and step), and `assume(mod(x, n) == 0)` on a symbol or value.
    """

    def __init__(self, kernel: Kernel, stated: Mapping[Value, int] | None = None):
        """`stated`: divisors that are known from elsewhere."""
        self._known: dict[Value, int] = dict(stated or {})
        self._symbols: dict[str, int] = {}
        for op in kernel.walk():
            if op.name == "assume":
                self._assume(op)
        for op in kernel.walk():
            self._visit(op)

    def of(self, value: Value) -> int:
        """A divisor of the value; 0 if the value is zero."""
        return self._known.get(value, UNKNOWN_FACTOR)

    def of_symbol(self, symbol: int | str) -> int:
        """A divisor of a dimension (a literal divides itself)."""
        return abs(symbol) if isinstance(symbol, int) else self._symbols.get(symbol, UNKNOWN_FACTOR)

    def _assume(self, op: Op) -> None:
        """assume(mod(x, n) == 0) and conjunctions of it."""
        pending = [op.operands[0]]
        while pending:
            d = pending.pop().owner
            if d is None:
                continue
            if d.name == "and":
                pending += d.operands
            elif d.name == "eq" and _constant(d.operands[1]) == 0 and d.operands[0].owner is not None:
                rem = d.operands[0].owner
                n = _constant(rem.operands[1]) if rem.name == "mod" else None
                if n:
                    self._learn(rem.operands[0], abs(n))

    def _learn(self, value: Value, n: int) -> None:
        owner = value.owner
        if owner is not None and owner.name == "dim":
            symbol = str(owner.attrs["symbol"])
            self._symbols[symbol] = math.lcm(self._symbols.get(symbol, 1), n)
        else:
            self._known[value] = math.lcm(self._known.get(value, 1), n)

    def _visit(self, op: Op) -> None:
        if op.name == "for":
            iv = op.regions[0].args[0]
            self._known[iv] = math.gcd(self.of(op.operands[0]), self.of(op.operands[2]))
            return
        if len(op.results) != 1:
            return
        a = [self.of(v) for v in op.operands]
        match op.name:
            case "constant" if isinstance(op.attrs["value"], int):
                n = abs(op.attrs["value"])
            case "dim":
                n = self.of_symbol(str(op.attrs["symbol"]))
            case "add" | "sub":
                n = math.lcm(math.gcd(a[0], a[1]), multiple_of(op) or 1)
            case "mul":
                n = a[0] * a[1]
            case "min" | "max":
                n = math.gcd(a[0], a[1])
            case "where":
                n = math.gcd(a[1], a[2])
            case "convert" if op.operands[0].tile.elem.is_int:
                n = a[0]
            case "div" if (by := _constant(op.operands[1])) is not None and by > 0 and a[0] % by == 0:
                n = a[0] // by
            case "shl":
                count = _constant(op.operands[1])
                n = a[0] << count if count is not None and 0 <= count < 32 else a[0]
            case _:
                n = UNKNOWN_FACTOR
        known = self._known.get(op.results[0], 1)
        self._known[op.results[0]] = 0 if n == 0 else math.lcm(known, n)


def _constant(value: Value) -> int | None:
    owner = value.owner
    if owner is not None and owner.name == "constant" and isinstance(owner.attrs["value"], int):
        return owner.attrs["value"]
    return None
