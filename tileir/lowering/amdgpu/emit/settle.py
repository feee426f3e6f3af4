"""Results of long products stay in their registers until they are there.

A result of which some registers are never read may lose them at once: another instruction takes them as its own while the product is still
under way, and the product then writes over what that instruction wrote. LLVM keeps a VALU instruction 11 wait states behind an
f64 product of 16 x 16 that wrote the same register, on either chip (LLVM 22.1, GCNHazardRecognizer, also the unreleased one of 2026).
That is the length of 8 passes on gfx942 and 3 states; on gfx950 the instruction has 16 passes, and LLVM itself keeps a reader 19
states away. So there the missing states are put into the text, between two uses of the whole result.
"""

from __future__ import annotations

from collections.abc import Callable

from tileir.ir.core import Op, Value
from tileir.ir.types import FragmentType, TileType
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import Tile, tied
from tileir.lowering.amdgpu.emit.writer import scalar_type, vector_type
from tileir.passes.chains import carried_links, reached

KEPT = 11
"""Wait states that LLVM keeps between an f64 product of 16 x 16 and a VALU instruction that overwrites its result."""
BEHIND_PASSES = 3
"""Wait states until a result may be overwritten, beyond the passes of the product (CDNA3: 8 and 11; gfx950: 16 and, read, 19)."""
MOST_STATES = 16
"""Wait states of one s_nop."""
_PRODUCTS = ("mma", "mfma")
_ACCUMULATOR = 2


def settler(s: State) -> Callable[[Op], None]:
    """What is to be called behind each op: it keeps the registers of results that LLVM would give away too early."""
    products = [op for op in s.kernel.walk() if op.name in _PRODUCTS and _states(s, op) > KEPT]
    if not products:
        return lambda op: None
    states = max(_states(s, op) for op in products)
    held = set(reached(carried_links(s.kernel), [op.result for op in products]))
    held |= {op.result for op in s.kernel.walk() if op.name == "join_registers" and op.operands[0] in held}
    users: dict[Value, list[tuple[Op, int]]] = {}
    for op in s.kernel.walk():
        for i, v in enumerate(op.operands):
            users.setdefault(v, []).append((op, i))

    def goes_on(op: Op, i: int) -> bool:
        """Whether a use keeps the registers as they are: it adds to them, or hands them on to what is looked at in turn."""
        return op.name == "join_registers" or op.name == "yield" or (op.name in _PRODUCTS and i == _ACCUMULATOR)

    def settle(op: Op) -> None:
        for v in op.results:
            if v in held and not (v in users and all(goes_on(*u) for u in users[v])):
                _wait(s, v, op, states)

    return settle


def _states(s: State, op: Op) -> int:
    """Wait states until the result of a product may be overwritten; 0 where LLVM knows."""
    if not isinstance(op.result.type, (TileType, FragmentType)) or op.result.type.elem.name != "f64":
        return 0
    m, n, k = op.attrs["instr"]  # type: ignore[misc]
    passes = [i.passes for i in s.target.mfmas if i.c == "f64" and (i.m, i.n, i.k) == (m, n, k)]
    return max(passes, default=0) + BEHIND_PASSES


def _wait(s: State, v: Value, op: Op, states: int) -> None:
    w, t = s.w, v.type
    if isinstance(t, FragmentType):
        file, type, pieces = s.fragment_ties.get(v, "v"), vector_type(scalar_type(t.elem), t.count), [s.scalar(v)]
    else:
        tile = s.tile(v)
        if tile.splat:
            return
        file = "a" if tile.tie or op.attrs.get("file") == "accumulation" else "v"
        type, pieces = vector_type(tile.element, tile.chunk), list(tile.get(w, tile.chunk))

    def all_used() -> None:
        made = {piece: tied(w, piece, type, file, ordered=True) for piece in dict.fromkeys(pieces)}
        pieces[:] = [made[piece] for piece in pieces]

    all_used()
    left = states
    while left > 0:
        count = min(left, MOST_STATES)
        w.line(f'llvm.call_intrinsic "llvm.amdgcn.s.nop"({w.const(count - 1, "i16")}) : (i16) -> ()')
        left -= count
    all_used()
    if isinstance(t, FragmentType):
        s.values[v] = pieces[0]
    else:
        old = s.tile(v)
        new = Tile(v.tile, old.chunk, pieces)
        new.tie = old.tie
        s.values[v] = new
