"""Guards that move a reference: which carried values are the reference, and which are multiplied to follow it.

    %mn, %lr = guard %need carry(%mo = %mi, %lo = %li) {
      %r = exp2((%mo - %top) * %c)
      yield %top, %lo * %r
    }

Here %lo is *rescaled*: what it yields is itself times a power. The exponent falls as %top rises, and what is yielded for %mo rises
with it: %mo is a *reference*, and rescaled values are proportional to 2 to the power of minus the reference. That sign, the weight of
the reference, is found by following both back through sums, differences, roundings, extrema and choices to values that they share.
Scalars and constants that multiply an exponent count as positive unless a constant says otherwise.
"""

from __future__ import annotations

from tileir.ir.core import Op, Value
from tileir.ir.types import TileType
from tileir.records import dataclass

POWERS = ("exp", "exp2")
# Ops that hand on their first operand: its sign, its scale, whatever shape it is brought to.
HANDED_ON = frozenset(
    {
        "broadcast",
        "transpose",
        "reshape",
        "convert",
        "convert_layout",
        "fill",
        "slice",
        "split_registers",
        "slice_fragment",
        "swap_lanes",
        "shuffle_lanes",
    }
)
# Ops that grow with their first operand.
RISING = HANDED_ON | {"ceil", "floor", "round", "reduce_max", "reduce_min"}
Slopes = dict[Value, int]
"""Values that another depends on, and whether it rises (1) or falls (-1) with each; 0 where that is not known."""


@dataclass(frozen=True)
class Rescaling:
    """A guard that moves a reference. weights: by number of a carried value that is a reference, 1 where rescaled values grow with it
    as a power does, -1 where they shrink so. factors: by number of a rescaled value, the op that multiplies it."""

    weights: dict[int, int]
    factors: dict[int, Op]


def constant_of(v: Value) -> float | int | None:
    """The number that a scalar, or every element of a tile, is; None if it is no constant."""
    op = v.owner
    while op is not None and op.name in ("fill", "broadcast", "convert", "convert_layout"):
        op = op.operands[0].owner
    if op is None or op.name != "constant":
        return None
    value = op.attrs["value"]
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def rescaling_of(guard: Op) -> Rescaling | None:
    """What a guard rescales, and with what reference; None if it is no such guard, or does not show how the two go together."""
    region = guard.regions[0]
    yielded = region.terminator.operands
    factors: dict[int, Op] = {}
    exponent: Slopes = {}
    for i, (arg, v) in enumerate(zip(region.args, yielded, strict=True)):
        found = _factor(_changed(v, arg), arg)
        if found is not None:
            factors[i], slopes = found
            exponent = _merged(exponent, slopes) if exponent else slopes
    if not any(exponent.values()):
        return None
    weights: dict[int, int] = {}
    for i, (arg, v) in enumerate(zip(region.args, yielded, strict=True)):
        if i in factors or v is arg:
            continue
        shared = {
            s * exponent[source]
            for source, s in slopes_of(_changed(v, arg)).items()
            if source in exponent and source is not arg
        }
        if len(shared) == 1 and 0 not in shared:
            weights[i] = shared.pop()
    return Rescaling(weights, factors) if weights else None


def _changed(v: Value, arg: Value) -> Value:
    """What rows get that need the region, where a `where` chooses between that and the carried value."""
    op = v.owner
    if op is not None and op.name == "where" and op.operands[2] is arg:
        return op.operands[1]
    return v


def _factor(v: Value, arg: Value) -> tuple[Op, Slopes] | None:
    """The op by which a value is `arg` times a power, and the slopes of the exponent; None if it is not."""
    op = v.owner
    if op is None or op.name not in ("mul", "div"):
        return None
    pairs = [(op.operands[0], op.operands[1])] + ([(op.operands[1], op.operands[0])] if op.name == "mul" else [])
    for x, by in pairs:
        if _handed(x) is arg and (slopes := _exponent(by)) is not None:
            return op, slopes if op.name == "mul" else _negative(slopes)
    return None


def _handed(v: Value) -> Value:
    while v.owner is not None and v.owner.name in HANDED_ON:
        v = v.owner.operands[0]
    return v


def _exponent(v: Value) -> Slopes | None:
    """The slopes of the exponent if a value is a power, or a power or constant by a condition."""
    v = _handed(v)
    op = v.owner
    if op is None:
        return None
    if op.name in POWERS:
        return slopes_of(op.operands[0])
    if op.name == "where":
        for x, other in (op.operands[1:], reversed(op.operands[1:])):
            if constant_of(other) is not None:
                return _exponent(x)
    return None


def slopes_of(v: Value) -> Slopes:
    """How a value depends on those it is made of by sums, differences, multiples, roundings, extrema and choices; scalars do not count."""
    return _slopes(v, {}, _DEPTH)


def _slopes(v: Value, known: dict[Value, Slopes], depth: int) -> Slopes:
    if v not in known:
        known[v] = _found(v, known, depth)
    return known[v]


def _found(v: Value, known: dict[Value, Slopes], depth: int) -> Slopes:
    if (isinstance(v.type, TileType) and v.type.is_scalar) or constant_of(v) is not None:
        return {}
    op = v.owner
    if op is None or not depth or not (op.name in RISING or op.name in _COMBINING):
        return {v: 1}
    if op.name in RISING:
        return _slopes(op.operands[0], known, depth - 1)
    parts = [_slopes(x, known, depth - 1) for x in op.operands]
    match op.name:
        case "neg":
            return _negative(parts[0])
        case "sub":
            return _merged(parts[0], _negative(parts[1]))
        case "where":
            return _merged(*parts[1:])
        case "mul" | "div":
            return _multiple(op, parts)
        case _:
            return _merged(*parts)


_DEPTH = 64  # ops followed back, one behind the other
_COMBINING = ("neg", "add", "max", "min", "sub", "where", "mul", "div")


def _multiple(op: Op, parts: list[Slopes]) -> Slopes:
    """A product or quotient of which one factor is a constant or scalar."""
    if op.name == "div" and not parts[1]:
        return _signed(parts[0], constant_of(op.operands[1]))
    if op.name == "mul" and not all(parts):
        i = 0 if parts[0] else 1
        return _signed(parts[i], constant_of(op.operands[1 - i]))
    return {v: 0 for part in parts for v in part}


def _signed(slopes: Slopes, factor: float | int | None) -> Slopes:
    return _negative(slopes) if factor is not None and factor < 0 else slopes


def _negative(slopes: Slopes) -> Slopes:
    return {v: -s for v, s in slopes.items()}


def _merged(*parts: Slopes) -> Slopes:
    found: Slopes = {}
    for part in parts:
        for v, s in part.items():
            found[v] = s if found.get(v, s) == s else 0
    return found
