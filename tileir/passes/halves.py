"""Halves of a workgroup that are apart: how many barriers each half has counted more than the text shows.

`barrier_of` makes one half of the waves count a barrier that the other half does not. From there on the waves of that half stand one
barrier behind in the text when all meet. Let an access be complete in its wave at a point where the halves have counted o extra
barriers, and n barriers follow in the text until another point with extra barriers p: the waves of one half have passed at least
n + min(p) - max(o) barriers that those of the other half only passed after the access was complete. One is needed. (Behind a region in which both halves
counted as many, the count goes on as before it: then more barriers are asked for than needed, never fewer.)
"""

from __future__ import annotations

from tileir.ir.core import Block, Kernel, Op
from tileir.ir.diagnostics import CompileError, Diagnostic, Note

Extra = tuple[int, int]
"""Barriers that the first and the second half have counted beyond those that both count."""
_POINTS = ("wait", "barrier", "barrier_of")


def extra_barriers(kernel: Kernel) -> dict[Op, Extra]:
    """For every wait and barrier the extra barriers before it, and for a `barrier_of` those behind it. Raises CompileError (E1034)
    where paths differ in them, or the halves do not meet again."""
    found: dict[Op, Extra] = {}
    end = _block(kernel.body, (0, 0), found)
    if end[0] != end[1]:
        last = [op for op in kernel.walk() if op.name == "barrier_of"][-1]
        text = f"the halves of the workgroup count {end[0]} and {end[1]} barriers more: the kernel would not end"
        raise CompileError(
            [Diagnostic("E1034", text, last.loc, legal="as many 'barrier_of' of one half as of the other")]
        )
    return found


def _block(block: Block, extra: Extra, found: dict[Op, Extra]) -> Extra:
    for op in block.ops:
        if op.name == "barrier_of":
            half = op.attrs["half"]
            extra = (extra[0] + (half == 0), extra[1] + (half == 1))
        if op.name in _POINTS:
            found[op] = extra
        for region in op.regions:
            end = _block(region, extra, found)
            if end[0] - extra[0] != end[1] - extra[1]:
                inner = next(o for o in region.walk() if o.name == "barrier_of")
                text = (
                    f"one half of the workgroup counts another number of barriers on the way through this '{op.name}'"
                )
                notes = (Note("the region", op.loc),)
                legal = "'barrier_of' of both halves in the region, or outside of it"
                raise CompileError([Diagnostic("E1034", text, inner.loc, "error", notes, legal)])
    return extra


def enough(passed: int, complete: Extra, now: Extra) -> bool:
    """Whether `passed` barriers of the text separate accesses of any two waves, see above."""
    return passed + min(now) - max(complete) >= 1
