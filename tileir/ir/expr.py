"""Integer expressions over dimension symbols: grid sizes and other values that a launcher must compute."""

from __future__ import annotations

from collections.abc import Mapping

from tileir.records import dataclass

_INFIX = {"add": ("+", 1), "sub": ("-", 1), "mul": ("*", 2), "div": ("/", 2)}


@dataclass(frozen=True)
class Expr:
    """`op` is "int", "symbol", or one of add sub mul div (truncating) cdiv mod min max with two `args`."""

    op: str
    value: int = 0
    symbol: str = ""
    args: tuple[Expr, ...] = ()

    def evaluate(self, symbols: Mapping[str, int]) -> int:
        """The value under an assignment of the symbols. Raises KeyError for a missing symbol, ZeroDivisionError."""
        if self.op == "int":
            return self.value
        if self.op == "symbol":
            return symbols[self.symbol]
        a, b = (x.evaluate(symbols) for x in self.args)
        return apply(self.op, a, b)

    def symbols(self) -> tuple[str, ...]:
        """The symbols that occur, in order of first appearance."""
        if self.op == "symbol":
            return (self.symbol,)
        return tuple(dict.fromkeys(s for a in self.args for s in a.symbols()))

    def __str__(self) -> str:
        return self._text(0)

    def _text(self, outer: int) -> str:
        if self.op == "int":
            return str(self.value)
        if self.op == "symbol":
            return self.symbol
        if self.op in _INFIX:
            sign, level = _INFIX[self.op]
            text = f"{self.args[0]._text(level)} {sign} {self.args[1]._text(level + 1)}"
            return f"({text})" if level < outer else text
        return f"{self.op}({', '.join(a._text(0) for a in self.args)})"


def integer(value: int) -> Expr:
    return Expr("int", value=value)


def symbol(name: str) -> Expr:
    return Expr("symbol", symbol=name)


def binary(op: str, a: Expr, b: Expr) -> Expr:
    """A folded binary expression."""
    if a.op == "int" and b.op == "int" and not (op in ("div", "cdiv", "mod") and b.value == 0):
        return integer(apply(op, a.value, b.value))
    return Expr(op, args=(a, b))


def apply(op: str, a: int, b: int) -> int:
    """Integer arithmetic of the language: `div` truncates toward zero, `mod` has the sign of the dividend, `cdiv`
    rounds toward positive infinity."""
    match op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "div":
            return truncated_div(a, b)
        case "mod":
            return a - b * truncated_div(a, b)
        case "cdiv":
            return -((-a) // b)
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
    raise ValueError(f"no such integer operation: {op}")


def truncated_div(a: int, b: int) -> int:
    """Integer quotient rounded toward zero; ZeroDivisionError for b = 0."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q
