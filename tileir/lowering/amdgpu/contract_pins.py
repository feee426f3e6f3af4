"""Are accumulators where the text pins them? Compares every matrix loop with the attribute `pin` of its products.

In an innermost loop of matrix instructions those of a pinned product must write the registers of its pin only, and all of them; no
other instruction of the loop may write one. So the value is there all through the loop. Before and behind loops it may be moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tileir.codeobject import CodeObject
from tileir.ir.core import Kernel, Op
from tileir.lowering.amdgpu.contract_waits import Deviation, matrix_regions
from tileir.lowering.amdgpu.refusal import PINNED
from tileir.simulator.decoder import DecodeError
from tileir.simulator.inspect import classify
from tileir.simulator.inspect.counts import class_of
from tileir.simulator.inspect.flow import Flow
from tileir.simulator.inspect.items import Item

_FILE = 256  # registers of one file; those of the accumulation file are numbered behind the vector registers
_SWAPS = ("v_swap_b32", "v_permlane16_swap", "v_permlane32_swap")
# What has a vector register as its first operand and does not write it.
_READS = frozenset(
    (classify.LDS_WRITE, classify.STORE, classify.TO_LDS, classify.SCRATCH_STORE, classify.ATOMIC, classify.LDS_OTHER)
)


def pins(code: CodeObject, kernel: Kernel, flow: Flow) -> list[Deviation]:
    """E0866 for each line of products of which a loop does not keep the pin; nothing where the text has none. Raises nothing."""
    said = _pins(kernel)
    if not said:
        return []
    found: list[Deviation] = []
    for number in matrix_regions(flow):
        products: dict[int, int] = {}
        others = 0
        for item in flow.items_of(flow.loops[number].nodes):
            place = code.line_table.lookup(item.address) if class_of(item) == classify.MFMA else None
            if place is not None and place.line in said:
                products[place.line] = products.get(place.line, 0) | written(item)
            else:
                others |= written(item)
        for line, mask in products.items():
            op, pinned = said[line]
            outside, strangers = (mask & ~pinned).bit_count(), (others & pinned).bit_count()
            missing = (pinned & ~mask).bit_count()
            if not (outside or strangers or missing):
                continue
            text = f"a loop does not keep its sums in {_range(pinned)}: its products write {_range(mask)}"
            if strangers:
                text += f", and others write {strangers} of the pinned registers"
            legal = "another range of registers, or no 'pin'"
            found.append(Deviation(PINNED, text, op.loc, legal, outside + strangers + missing))
    return found


def written(item: Item) -> int:
    """Bit mask of the vector and accumulation registers that an instruction writes; all of them if it is none."""
    try:
        operands = item.instruction.operands
    except DecodeError:
        return (1 << 2 * _FILE) - 1
    if class_of(item) in _READS and not _returns(item):
        return 0
    count = 2 if item.name.startswith(_SWAPS) else 1
    mask = 0
    for o in operands[:count]:
        if o.kind in ("v", "a"):
            mask |= ((1 << o.count) - 1) << (o.index + (_FILE if o.kind == "a" else 0))
    return mask


def _returns(item: Item) -> bool:
    """Whether an atomic or other LDS instruction brings something back to its first operand."""
    if class_of(item) == classify.LDS_OTHER:
        return "_rtn_" in item.name or "permute" in item.name or "swizzle" in item.name
    return class_of(item) == classify.ATOMIC and bool(item.instruction.modifiers.get("sc0"))


def _pins(kernel: Kernel) -> dict[int, tuple[Op, int]]:
    """By line of the text a pinned product of it, and the mask of the registers to which the line's products are pinned."""
    found: dict[int, tuple[Op, int]] = {}
    for op in kernel.walk():
        pin = op.attrs.get("pin")
        if op.name in ("mma", "mfma") and isinstance(pin, tuple):
            first, last = int(pin[0]), int(pin[1])
            offset = _FILE if op.attrs.get("file") == "accumulation" else 0
            mask = ((1 << last - first + 1) - 1) << first + offset
            op_of_line, before = found.get(op.loc.line, (op, 0))
            found[op.loc.line] = op_of_line, before | mask
    return found


def _range(mask: int) -> str:
    """Registers of a mask as the text writes them: v[0:31]."""
    return " and ".join(f"{file}[{a}:{b}]" if a != b else f"{file}{a}" for file, a, b in _runs(mask)) or "none"


def _runs(mask: int) -> Iterator[tuple[str, int, int]]:
    for file, part in (("v", mask & ((1 << _FILE) - 1)), ("a", mask >> _FILE)):
        yield from ((file, a, b) for a, b in _bits(part))


def _bits(mask: int) -> Iterable[tuple[int, int]]:
    at = 0
    while mask >> at:
        at += ((mask >> at) & -(mask >> at)).bit_length() - 1
        run = (~(mask >> at) & ((mask >> at) + 1)).bit_length() - 1
        yield at, at + run - 1
        at += run
