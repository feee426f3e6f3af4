"""What every mapping of the matrix products of a kernel would cost: the table behind the choice of `assign-layouts`."""

from __future__ import annotations

from dataclasses import fields, replace

from tileir.ir.core import Kernel, Value
from tileir.layout import Layout, LayoutError
from tileir.passes.choose_mapping import Choice, Decision, Problem, decide
from tileir.passes.held_operands import Held, Way, ways
from tileir.passes.layout_classes import Classes, transposed
from tileir.passes.mma_cost import Clocks
from tileir.passes.price_mapping import Demand
from tileir.passes.priced_ops import Product, through_transposes
from tileir.target import Target

PARTS = tuple(f.name for f in fields(Clocks) if f.name != "registers")


def explain(kernel: Kernel, target: Target) -> str:
    """The table for a kernel as `assign-layouts` gets it (after `place-memory`).

    For each product every mapping, with the mappings of the other products as they were chosen (but for their k order where that
    no longer fits): clocks for each run of the
    product (a pass of the loop around it), the rest of the kernel included, by what causes them, and the registers of the fullest
    point. The chosen one is marked, the cheapest are first. For each operand that is loaded before a loop of its products, the ways
    that LDS has room for.

    Raises:
        CompileError: a product has no mapping.
    """
    classes = Classes(kernel)
    decision = decide(kernel, target, classes)
    if decision is None:
        return f"kernel {kernel.name} on {target.name}: no 'mma', nothing to choose\n"
    problem = Problem(kernel, target, classes)
    lines = [f"kernel {kernel.name} on {target.name}, {decision.waves} waves"]
    for i in range(len(decision.products)):
        lines += ["", *_table(problem, decision, i)]
    for held, chosen in zip(decision.held, decision.best.ways, strict=True):
        lines += ["", *_ways(problem, decision, held, chosen[0])]
    return "\n".join(lines) + "\n"


def _table(problem: Problem, decision: Decision, number: int) -> list[str]:
    product = decision.products[number]
    per = "pass of the loop around it" if product.trips > 1 else "workgroup"
    m, n, k = product.shape
    lines = [
        f"line {product.op.loc.line}: 'mma' of {m} x {n} x {k}, {product.op.operands[0].tile.elem}; clocks per {per}",
        "     total" + "".join(f"{part:>8}" for part in PARTS) + "  registers  mapping",
    ]
    choices: list[Choice] = []
    chosen = decision.best.mappings
    plain = tuple(m if m.k_of == "blocks" else replace(m, k_of="wide") for m in chosen)
    for _, _, mapping in problem.candidates(product, decision.waves):
        found: list[Choice] = []
        for others in (chosen, plain):
            try:
                found.append(problem.evaluate(decision.waves, (*others[:number], mapping, *others[number + 1 :])))
            except LayoutError:  # an accumulator so spread is no operand as it lies
                continue
        if found:
            choices.append(min(found, key=lambda c: c.clocks.total))
    for choice in sorted(choices, key=lambda c: c.clocks.total):
        each = choice.clocks.per(product.trips)
        mapping = choice.mappings[number]
        mark = "*" if mapping == decision.best.mappings[number] else " "
        total = each.total - each.registers
        over = "  too many" if each.registers else ""
        parts = "".join(f"{getattr(each, part):8.0f}" for part in PARTS)
        lines.append(f"{mark} {total:8.0f}{parts}  {choice.registers:9}  {mapping}{over}")
    return lines


def _ways(problem: Problem, decision: Decision, held: Held, chosen: Way) -> list[str]:
    op = held.loads[0]
    layouts = {v: layout for p in decision.products for v, layout in _operands(p, decision.demands()[p.op])}
    layout = layouts[held.tile]
    lines = [f"line {op.loc.line}: %{op.result.name}, loaded before the loop of its products; clocks per workgroup"]
    lines.append("     total" + "".join(f"{part:>8}" for part in PARTS) + "  way")
    found = [x for again in (False, True) for x in ways(held, layout, problem.model(decision.waves), again)]
    for clocks, way in sorted(found, key=lambda x: x[0].total):
        parts = "".join(f"{getattr(clocks, part):8.0f}" for part in PARTS)
        lines.append(f"{'*' if way == chosen else ' '} {clocks.total:8.0f}{parts}  {way}")
    return lines


def _operands(product: Product, demand: Demand) -> list[tuple[Value, Layout]]:
    """The loaded tiles behind the operands of a product, with the layouts that it wants."""
    found: list[tuple[Value, Layout]] = []
    for v, layout in zip(product.op.operands[:2], demand, strict=False):
        source, turned = through_transposes(v)
        found.append((source, transposed(layout, (1, 0)) if turned else layout))
    return found
