"""What every mapping of the matrix products of a kernel would cost: the table behind the choice of `assign-layouts`."""

from __future__ import annotations

from dataclasses import fields, replace

from tileir.ir.core import Kernel
from tileir.layout import LayoutError
from tileir.passes.choose_mapping import Choice, Decision, Problem, decide
from tileir.passes.layout_classes import Classes
from tileir.passes.mma_cost import Clocks
from tileir.target import Target

PARTS = tuple(f.name for f in fields(Clocks) if f.name != "registers")


def explain(kernel: Kernel, target: Target) -> str:
    """The table for a kernel as `assign-layouts` gets it (after `place-memory`).

    For each product every mapping, with the mappings of the other products as they were chosen (but for their k order where that
    no longer fits): clocks for each run of the
    product (a pass of the loop around it), the rest of the kernel included, by what causes them, and the registers of the fullest
    point. The chosen one is marked, the cheapest are first.

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
    plain = tuple(replace(m, k_of="wide") for m in chosen)
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
