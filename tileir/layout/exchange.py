"""Conversions inside a wave: plans of steps that bring a tile from one register layout to another without leaving it.

Where a register finds its element is given by the matrices A, B, C, E, F and G over GF(2) of `motion`. Four kinds of steps make
up every such motion; each is fixed by the layouts before and after it:

* *rename*: the registers of a lane change their numbers, in all lanes alike. Nothing moves.
* *select*: every lane keeps its elements but takes each register from one of several, depending on its number (B, F).
* *shuffle*: register r of a lane comes from register r of another lane (C, E, G).
* *swap*: one bit of the register number changes places with one bit of the lane number.

Whatever can be done inside a wave is select · shuffle · select: with the lanes' map E + C·X invertible for some X, the last
select undoes X and the first does the rest (a block factorisation of the matrix above). If the motion only permutes
bits, a sequence of swaps does it as well: lane positions are filled one by one with what a register bit holds, so a cycle of n
bits takes n - 1 swaps if a register takes part.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal

from tileir.records import dataclass

from . import gf2
from .conversion import conversion
from .linear import LANE_BITS, Layout, LayoutError, Vector, ceil_log2
from .motion import Packed, pick, swapped

StepKind = Literal["rename", "swap", "shuffle", "select"]
_MAX_CANDIDATES = 1 << 10  # combinations of register bits tried for one lane bit


@dataclass(frozen=True)
class Step:
    """One step of a plan; ``layout`` is what the tile has afterwards, ``register`` and ``lane`` the bits of a swap."""

    kind: StepKind
    layout: Layout
    register: int = 0
    lane: int = 0


@functools.lru_cache(maxsize=512)
def plans(src: Layout, dst: Layout) -> tuple[tuple[Step, ...], ...]:
    """Ways from ``src`` to ``dst`` inside every wave, each ending in ``dst``; none if data must cross waves (or the layouts
    have no common linear form). A plan of a single rename, or of nothing, is the only one if it exists.

    Raises:
        LayoutError: different tile shapes or numbers of waves.
    """
    known = conversion(src, dst)
    if known.sources is not None:
        return ((),) if src == dst else ((Step("rename", dst),),)
    if known.kind == "waves":
        return ()
    start, end = _common_form(src, dst)
    found: list[tuple[Step, ...]] = []
    for make in (_by_swaps, _by_swaps_in_order, _by_factors):
        for middle in make(start, end):
            plan = _joined(src, (Step("rename", start), *middle, Step("rename", dst)))
            if plan is not None and plan not in found:
                found.append(plan)
    return tuple(found)


def _joined(src: Layout, steps: Sequence[Step]) -> tuple[Step, ...] | None:
    """The steps with renames merged and those that change nothing left out; None if a rename does not only rename."""
    out: list[Step] = []
    for step in steps:
        if step.kind == "rename" and out and out[-1].kind == "rename":
            out.pop()
        before = out[-1].layout if out else src
        if step.layout == before:
            continue
        if step.kind == "rename" and conversion(before, step.layout).sources is None:
            return None
        out.append(step)
    return tuple(out)


def _common_form(src: Layout, dst: Layout) -> tuple[Layout, Layout]:
    """Both layouts without register bits that only copy, in one frame: with the same repetitions if they have them, else with
    repetitions as register bits and the destination's holes beyond the tile folded onto elements."""
    if src.reps == dst.reps and src.block == dst.block:
        return _without_copies(src), _without_copies(dst)
    flat_src, flat_dst = _flat(src), _flat(dst)
    limits = [(1 << ceil_log2(n)) - 1 for n in dst.shape]

    def folded(vectors: tuple[Vector, ...]) -> tuple[Vector, ...]:
        return tuple(tuple(x & m for x, m in zip(v, limits, strict=True)) for v in vectors)

    flat_dst = Layout(dst.shape, folded(flat_dst.reg), folded(flat_dst.lane), folded(flat_dst.wave), flat_dst.reps)
    return _without_copies(flat_src), _without_copies(flat_dst)


def _flat(layout: Layout) -> Layout:
    reg = list(layout.reg)
    for d in reversed(range(layout.rank)):
        for bit in range(ceil_log2(layout.reps[d])):
            reg.append(tuple(layout.block[d] << bit if e == d else 0 for e in range(layout.rank)))
    return Layout(layout.shape, tuple(reg), layout.lane, layout.wave, (1,) * layout.rank)


def _without_copies(layout: Layout) -> Layout:
    reg = tuple(v for i, v in enumerate(layout.reg) if not layout.free.reg >> i & 1)
    return Layout(layout.shape, reg, layout.lane, layout.wave, layout.reps)


def _with_reg(layout: Layout, reg: Sequence[Vector]) -> Layout:
    return Layout(layout.shape, tuple(reg), layout.lane, layout.wave, layout.reps)


# -- swaps ---------------------------------------------------------------------------------------------------------------


def _padded(src: Layout, dst: Layout) -> tuple[Layout, Layout]:
    """Both with as many register bits, the missing ones copies."""
    n = max(len(src.reg), len(dst.reg))
    zero = (0,) * src.rank
    return tuple(_with_reg(x, (*x.reg, *[zero] * (n - len(x.reg)))) for x in (src, dst))  # type: ignore[return-value]


def _by_swaps_in_order(src: Layout, dst: Layout) -> list[tuple[Step, ...]]:
    """Swaps after the register bits that stay have been put where they will be, so that few swaps touch the bits that number
    elements inside a dword."""
    src, dst = _padded(src, dst)
    left = list(src.reg)
    order: list[Vector | None] = []
    for v in dst.reg:
        order.append(v if v in left else None)
        if v in left:
            left.remove(v)
    placed = [v if v is not None else left.pop(0) for v in order]
    turned = _with_reg(src, placed)
    return [(Step("rename", turned), *plan) for plan in _by_swaps(turned, dst)]


def _by_swaps(src: Layout, dst: Layout) -> list[tuple[Step, ...]]:
    """Plans of swaps, if the motion permutes bits: cycles among lane bits alone go through a register bit in one, through a
    shuffle in the other plan."""
    if src.wave != dst.wave:
        return []
    start, end = _padded(src, dst)
    if sorted((*start.reg, *start.lane)) != sorted((*end.reg, *end.lane)):
        return []
    found: list[tuple[Step, ...]] = []
    for through_registers in (False, True):
        plan = _swap_plan(start, end, through_registers)
        if plan is not None:
            found.append((Step("rename", start), *plan))
    return found


def _swap_plan(start: Layout, end: Layout, through_registers: bool) -> list[Step] | None:
    steps: list[Step] = []
    current = start

    def swap(register: int, lane: int) -> None:
        nonlocal current
        current = swapped(current, register, lane)
        steps.append(Step("swap", current, register, lane))

    while True:
        wrong = [j for j in reversed(range(LANE_BITS)) if current.lane[j] != end.lane[j]]
        if not wrong:
            return steps
        ready = [j for j in wrong if end.lane[j] in current.reg]
        if ready:
            swap(current.reg.index(end.lane[ready[0]]), ready[0])
        elif not through_registers:
            current = Layout(current.shape, current.reg, end.lane, current.wave, current.reps)
            steps.append(Step("shuffle", current))
        elif current.reg:
            swap(len(current.reg) - 1, wrong[0])
        else:
            return None


# -- select, shuffle, select ---------------------------------------------------------------------------------------------


def _by_factors(src: Layout, dst: Layout) -> list[tuple[Step, ...]]:
    p = Packed.of(src, dst)
    if p is None:
        return []
    columns = _columns(p)
    if columns is None:
        return []
    n, lanes = len(p.src_reg), columns[len(p.dst_reg) : len(p.dst_reg) + LANE_BITS]
    registers, waves = columns[: len(p.dst_reg)], columns[len(p.dst_reg) + LANE_BITS :]
    plan = _factored(src, p, n, registers, lanes, waves)
    if plan is None:  # fewer registers than the lanes must send: give the exchange more
        span = gf2.Span([*registers, *lanes])
        extra = [1 << i for i in range(n + LANE_BITS) if span.add(1 << i)]
        plan = _factored(src, p, n, [*registers, *extra], lanes, waves)
    if plan is None or plan[-1].layout != dst:
        return []
    return [plan]


def _columns(p: Packed) -> list[int] | None:
    """For every bit of the destination the source bits (register low, lane above) that hold its vector, as close as possible
    to where it is wanted: the same bit, else registers alone, else whatever does it."""
    n = len(p.src_reg)
    everything, registers = gf2.Span([*p.src_reg, *p.src_lane]), gf2.Span(p.src_reg)
    known = {v: i for i, v in reversed(list(enumerate([*p.src_reg, *p.src_lane])))}
    out: list[int] = []
    for i, v in enumerate(p.dst_reg):
        own = i < n and p.src_reg[i] == v
        found = 1 << i if own else registers.combination(v)
        if found is None:
            found = 1 << known[v] if v in known else everything.combination(v)
        if found is None:
            return None
        out.append(found)
    for j, v in enumerate(p.dst_lane):
        rest = registers.combination(v ^ p.src_lane[j])
        if rest is not None and (rest == 0 or v not in known):
            found = 1 << (n + j) | rest
        else:
            found = 1 << known[v] if v in known else everything.combination(v)
        if found is None:
            return None
        out.append(found)
    for v, own in zip(p.dst_wave, p.src_wave, strict=True):
        found = registers.combination(v ^ own)
        if found is None:
            found = everything.combination(v ^ own)
        if found is None:
            return None
        out.append(found)
    return out


def _factored(
    src: Layout, p: Packed, n: int, registers: Sequence[int], lanes: Sequence[int], waves: Sequence[int]
) -> tuple[Step, ...] | None:
    """Select · shuffle · select for the motion with these columns (source register bits low, lane bits above); None if no
    choice of X (see the module) makes the lanes' map injective enough."""
    mask = (1 << n) - 1
    a, c = [x & mask for x in registers], [x >> n for x in registers]
    x, e2, value = _lane_map(a, c, [y & mask for y in lanes], [y >> n for y in lanes])
    if x is None:
        return None
    # B2 with B2·e2[j] = value[j]: what the lane that is asked has to select, as a function of its own number
    basis: list[int] = []
    images: list[int] = []
    span = gf2.Span()
    for vector, image in [*zip(e2, value, strict=True), *((1 << i, 0) for i in range(LANE_BITS))]:
        if vector not in span:
            span.add(vector)
            basis.append(vector)
            images.append(image)
    b2: list[int] = []
    for i in range(LANE_BITS):
        combination = span.combination(1 << i)
        assert combination is not None, "the basis was completed with unit vectors"
        b2.append(pick(images, combination))
    held = functools.partial(pick, p.src_reg)
    reg1 = [held(ai ^ pick(b2, ci)) for ai, ci in zip(a, c, strict=True)]
    lane1 = [s ^ held(b) for s, b in zip(p.src_lane, b2, strict=True)]
    wave1 = [s ^ held((w & mask) ^ pick(b2, w >> n)) for s, w in zip(p.src_wave, waves, strict=True)]
    reg2 = [r ^ pick(lane1, ci) for r, ci in zip(reg1, c, strict=True)]
    lane2 = [pick(lane1, e) for e in e2]
    wave2 = [v ^ pick(lane1, w >> n) for v, w in zip(wave1, waves, strict=True)]
    count = len(p.dst_reg)
    lane3 = [v ^ pick(reg2, xj) for v, xj in zip(lane2, x, strict=True)]

    def layout(reg: Sequence[int], lane: Sequence[int], wave: Sequence[int]) -> Layout:
        unpacked = (tuple(map(p.packing.unpack, group)) for group in (reg, lane, wave))
        return Layout(src.shape, next(unpacked), next(unpacked), next(unpacked), src.reps)

    try:
        first, second = layout(reg1, lane1, wave1), layout(reg2, lane2, wave2)
        third = layout(reg2[:count], lane3, wave2)
    except LayoutError:
        return None
    steps: list[Step] = []
    before = src
    for kind, after in (("select", first), ("shuffle", second), ("select", third)):
        if after != before:
            renames = kind == "select" and conversion(before, after).sources is not None
            steps.append(Step("rename" if renames else kind, after))  # type: ignore[arg-type]
            before = after
    return tuple(steps)


def _lane_map(
    a: Sequence[int], c: Sequence[int], b: Sequence[int], e: Sequence[int]
) -> tuple[list[int] | None, list[int], list[int]]:
    """X, E + C·X and B + A·X, so that lanes that are asked for the same number are asked for the same register. Lane bits are
    taken in turn; X is 0 where that does it, else the first combination of register bits that does."""
    span = gf2.Span()
    x: list[int] = []
    e2: list[int] = []
    value: list[int] = []
    count = min(1 << len(c), _MAX_CANDIDATES)
    order = sorted(range(count), key=lambda k: (k.bit_count(), k))

    def fits(vector: int, image: int) -> bool:
        combination = span.combination(vector)
        return combination is None or pick(value, combination) == image

    for bj, ej in zip(b, e, strict=True):
        for k in order:
            vector, image = ej ^ pick(c, k), bj ^ pick(a, k)
            if fits(vector, image):
                break
        else:
            return None, [], []
        span.add(vector)
        x.append(k)
        e2.append(vector)
        value.append(image)
    return x, e2, value
