"""The errors for registers that do not suffice, and what is rejected before code is generated."""

from __future__ import annotations

from collections.abc import Mapping

from tileir.ir.core import Kernel, Module
from tileir.ir.diagnostics import CompileError, Diagnostic, Note
from tileir.ir.location import Loc
from tileir.passes.pressure import Peak, budget, peak, wave_count
from tileir.target import Target

SPILLED, MOVED, PINNED = "E0863", "E0865", "E0866"
HOPELESS = 1.5
"""Registers alive over the budget from which on compiling is not tried."""
BESIDES = 32
"""Registers that a product needs besides its accumulator: a fragment of each operand, read ahead, and addresses."""


class Refused(CompileError):
    """Code whose registers do not suffice; `final` is the text that it was made of, `spilled` are its vector registers in memory."""

    def __init__(self, diagnostic: Diagnostic, sources: dict[str, str], final: Kernel | None, spilled: int) -> None:
        super().__init__([diagnostic], sources)
        self.final, self.spilled = final, spilled


class Hopeless(CompileError):
    """Tiles that are alive together need far more registers than there are."""


def check_pressure(kernel: Kernel, target: Target, module: Module) -> None:
    """Rejects at once what cannot fit: LLVM would work on it for minutes, to spill in the end."""
    waves, room = wave_count(kernel), budget(kernel, target)
    worst = peak(kernel)
    held, most = worst.registers, HOPELESS * room
    less = room < target.registers_per_wave(target.waves_per_simd(waves))
    # Without products the whole lives of tiles are known. 576 registers of 512 take LLVM minutes.
    if not any(op.name in ("mma", "mfma") for op in kernel.walk()) and not less:
        most = room
    place, limit = "alive here", f"the budget is {room}" if less else f"{waves} waves have {room} each"
    # A product cannot keep a part of its accumulator elsewhere, and needs registers besides where it shares their budget.
    beside = min(target.max_acc_vgprs, room - (0 if less else BESIDES))
    if worst.accumulators > beside:
        held, most = worst.accumulators, beside
        place = "accumulators of one product"
        limit = limit if less else f"{waves} waves have room for {beside}"
    elif worst.together > room - (
        0 if less else BESIDES
    ):  # nor can several products theirs: what spills in a loop is an error
        held, most = worst.together, room - (0 if less else BESIDES)
        place = "accumulators that live at the same time"
        limit = limit if less else f"{waves} waves have room for {most}"
    if held <= most or worst.op is None:
        return
    text = f"registers do not suffice: about {held} per lane are {place}; {limit}"
    legal = "smaller tiles, more waves, or --allow-spills to accept it"
    notes = (*_stated_budget(kernel, module), *_live_set(worst))
    raise Hopeless([Diagnostic(SPILLED, text, worst.op.loc, legal=legal, notes=notes)], module.sources)


def refused(
    code: str, text: str, loc: Loc, kernel: Kernel | None, note: Note, module: Module, *, spilled: int = 0
) -> Refused:
    """The error for code that does not keep its registers, with the values that are alive where most are."""
    legal = "smaller tiles, more waves, or --allow-spills to accept it"
    worst = peak(kernel) if kernel is not None else None
    notes = (note, *_stated_budget(kernel, module), *(_live_set(worst) if worst is not None else ()))
    if code == SPILLED and worst is not None and worst.op is not None and worst.op.loc.line:
        loc = worst.op.loc
        text += f"; about {worst.registers} per lane hold tiles here"
    return Refused(Diagnostic(code, text, loc, legal=legal, notes=notes), module.sources, kernel, spilled)


def _stated_budget(kernel: Kernel | None, module: Module) -> tuple[Note, ...]:
    """A note that says where the budget of registers is stated, if it is."""
    if kernel is None or not isinstance(kernel.attrs.get("budget"), int):
        return ()
    name = kernel.attrs.get("schedule")
    own = [s for s in module.schedules if s.name == name and s.kernel == kernel.name]
    loc = next((d.loc for s in own for d in s.directives if d.kind == "registers"), None)
    return (Note(f"the budget of {kernel.attrs['budget']} registers per lane is stated here", loc),)


def over_budget(stats: Mapping[str, object], kernel: Kernel | None) -> int:
    """Registers of both files that the code takes beyond the budget that the text states."""
    stated, taken = kernel.attrs.get("budget") if kernel is not None else None, stats["vgprs"]
    return max(0, taken - stated) if isinstance(stated, int) and isinstance(taken, int) else 0


def _live_set(worst: Peak) -> tuple[Note, ...]:
    """Notes that name the values alive at the worst point, the largest first."""
    notes = [Note(f"%{v.name} takes {n}", v.loc) for v, n in worst.values[:8] if v.loc.line]
    if len(worst.values) > len(notes):
        notes.append(Note(f"and {len(worst.values) - len(notes)} more values"))
    return tuple(notes)
