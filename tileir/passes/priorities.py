"""Checks that priorities are restored: on every path, a wave leaves a region at the priority at which it entered, and the kernel at 0.

A wave that is raised and forgotten issues before all others of its SIMD from then on, also where it moves data and they multiply: right,
but slow, and no run shows why. So the rule is one of structure. Every region – an iteration of a loop, a branch, a guard – ends at the level
at which it begins, and no level is raised to what is in force already, since between two raises a restore is missing.
"""

from __future__ import annotations

from tileir.ir.core import Block, Kernel, Op
from tileir.ir.diagnostics import CompileError, Diagnostic, Note

Raised = tuple[int, Op | None]
"""A level, and the op that set it; None at the start of the kernel."""


def check_priorities(kernel: Kernel) -> None:
    """Raises CompileError (E1036, one for each place) if a wave may be left at another priority."""
    found: list[Diagnostic] = []
    level, by = _block(kernel.body, (0, None), found)
    if level and by is not None:
        found.append(_left(by, 0, "at the end of the kernel", None))
    if found:
        raise CompileError(found)


def _block(block: Block, now: Raised, found: list[Diagnostic]) -> Raised:
    """Follows a block; the level behind it."""
    for op in block.ops:
        if op.name == "priority":
            level = op.attrs["level"]
            assert isinstance(level, int)
            if level and level == now[0] and now[1] is not None:
                found.append(_again(op, now[1]))
            now = level, op
        for region in op.regions:
            level, by = _block(region, now, found)
            if level != now[0] and by is not None:
                what = "an iteration of" if op.name in ("for", "while") else "a way through"
                found.append(_left(by, now[0], f"at the end of {what} this '{op.name}'", op))
    return now


def _left(by: Op, level: int, where: str, region: Op | None) -> Diagnostic:
    text = f"'priority<{by.attrs['level']}>' is still in force {where}, which began at {level}"
    notes = (Note(f"the '{region.name}'", region.loc),) if region is not None else ()
    return Diagnostic("E1036", text, by.loc, "error", notes, f"priority<{level}>() behind it, on every path")


def _again(op: Op, by: Op) -> Diagnostic:
    text = f"'priority<{op.attrs['level']}>' raises a wave that is at this level: nothing has lowered it in between"
    return Diagnostic(
        "E1036",
        text,
        op.loc,
        "error",
        (Note("raised here", by.loc),),
        "priority<0>() between the two, or only one of them",
    )
