"""Chooses the layout of every LDS buffer from all its accesses, free of bank conflicts where one exists.

    %s = shared_alloc() : shared<bf16[256, 64]>

becomes, for reads of 16 bytes along rows on gfx942,

    %s = shared_alloc() : shared<bf16[256, 64], swizzle(3, 4, 3)>

The rows layout stays where it is already free. Buffers whose text states a layout keep it. Where 16-byte accesses cannot
be free – a transposition that reads rows and writes columns – narrower ones may be: a layout that keeps only 8 or 4 bytes
together makes the accesses as narrow, and is taken if it costs fewer LDS clocks.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import lru_cache

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.diagnostics import CompileError, error
from tileir.ir.rewriter import Rewriter, rewrite, uses
from tileir.ir.types import SharedType, TileType
from tileir.layout import Layout, LayoutError
from tileir.layout.banks import Access, Proof, prove
from tileir.layout.choose import choose, choose_free
from tileir.layout.shared import SharedLayout
from tileir.passes.base import Context, Pass
from tileir.passes.lds_accesses import (
    DIRECT,
    DIRECT_SUFFIX,
    RegisterAccess,
    access_bytes,
    access_of,
    as_matrix,
    copied,
    copies_by_place,
    direct_rule,
    lds_instruction,
    over_buffer,
    threads_of,
)
from tileir.passes.lds_sizes import buffers, least_bytes, over_budget
from tileir.passes.transposing_reads import READS, addressed_layout, has_transposing_read
from tileir.records import dataclass
from tileir.target import Target


@dataclass(frozen=True)
class _Use:
    """One way in which a buffer is accessed by registers: what decides its bank conflicts, and where it stands."""

    direction: str  # "read", "write", "transposed" for a transposing read, "copy" for an element-wise copy
    width: int  # bytes per lane
    layout: Layout | None  # None for a copy
    line: int = field(compare=False)

    def access(self, widest: int, shared: SharedType, threads: int, target: Target) -> Access:
        """The addresses, with accesses of at most `widest` bytes a lane."""
        elem_bits = shared.elem.bits
        if self.layout is None:
            return copied(f"element-wise write at line {self.line}", shared, threads, target)
        if self.direction == "transposed":
            instruction = READS[elem_bits]
        else:
            instruction = lds_instruction(self.direction, min(self.width, max(widest, shared.elem.unit[1])))
        name = f"{instruction} at line {self.line}"
        return Access.of_layout(name, target.lds_access(instruction), self.layout, elem_bits)


def uses_of(buffer: Value, users: list[Op]) -> tuple[tuple[_Use, ...], int | None]:
    """All register accesses of a buffer, and the bytes per lane of the direct copies into it (None if there are none)."""
    shared = buffer.type
    assert isinstance(shared, SharedType)
    found: list[_Use] = []
    direct: int | None = None
    for op in users:
        if op.name == "copy":
            if not copies_by_place(shared.elem):
                found.append(_Use("copy", shared.elem.bytes, None, op.loc.line))
            continue
        if op.name in DIRECT:
            width = op.attrs["bytes"]
            assert isinstance(width, int)
            direct = width
            continue
        access = RegisterAccess.of(op)
        t = access.tile
        if access.name == "shared_load_transposed":
            source = addressed_layout(t)
            assert source is not None, "the op is only made where such a read exists"
            found.append(_Use("transposed", 8, source, op.loc.line))
            continue
        assert t.layout is not None
        layout = over_buffer(t.layout, shared)
        width = min(access.widest, access_bytes(TileType(t.elem, layout.shape, layout)))
        found.append(_Use("write" if access.name == "shared_store" else "read", width, layout, op.loc.line))
    return tuple(dict.fromkeys(found)), direct


@dataclass(frozen=True)
class _Asked:
    """What a buffer is and how it is used: what decides its layout."""

    matrix: tuple[int, int]
    elem_bits: int
    uses: tuple[_Use, ...]
    direct: int | None

    def is_served_by(self, other: _Asked, layout: SharedLayout) -> bool:
        """Whether a layout that is free for another such buffer is free for this one, too, and as good: where the other has all its
        accesses, as wide as they can be. So the version for views that are not aligned needs no search of its own."""
        return (
            (self.matrix, self.elem_bits) == (other.matrix, other.elem_bits)
            and set(self.uses) <= set(other.uses)
            and self.direct in (None, other.direct)
            and all(u.width <= layout.granule for u in self.uses)
        )


@lru_cache(maxsize=256)  # the schedules that tuning tries have many buffers in common
def _choose(
    shared: SharedType, found: tuple[_Use, ...], direct: int | None, threads: int, target: Target
) -> tuple[SharedLayout, Proof]:
    rule = target.lds_access(f"buffer_load_dword{DIRECT_SUFFIX[direct]}_lds") if direct is not None else None
    ways: dict[int, list[Access]] = {}
    for widest in (16, 8, 4):
        if widest < (direct or 0) or (widest < 8 and any(u.direction == "transposed" for u in found)):
            break
        if ways and all(u.width <= widest for u in found):
            continue
        ways[widest] = [u.access(widest, shared, threads, target) for u in found]
        # from 8 bytes a lane on, the LDS moves as many bytes per clock whatever the width; narrower accesses are a last resort
        if widest >= 8 or len(ways) == 1:
            granule = widest if len(ways) > 1 else None
            free = choose_free(shared.matrix, shared.elem.bits, ways[widest], direct=rule, granule=granule)
            if free is not None:
                return free
    best: tuple[SharedLayout, Proof] | None = None
    for widest, accesses in ways.items():
        layout, proof = choose(shared.matrix, shared.elem.bits, accesses, direct=rule)
        if best is None or (layout.granule <= widest and proof.clocks < best[1].clocks):
            best = layout, proof
        if best[1].conflict_free:
            break
    assert best is not None
    return best


def _proved(shared: SharedType, layout: SharedLayout, users: list[Op], threads: int, target: Target) -> Proof:
    """What all accesses cost in a layout that is given."""
    t = replace(shared, layout=layout)
    accesses = [access_of(u, t, threads, target) for u in users if u.name not in DIRECT]
    return prove(layout, accesses, direct=direct_rule(users, target))


def _note_narrow(op: Op, shared: SharedType, users: dict[Value, list[tuple[Op, int]]], ctx: Context) -> None:
    """R0802 where an operand of `mma` is read in pieces of less than 8 bytes, or a written layout tears what could be
    read at once."""
    t = op.result.tile
    layout = as_matrix(t.layout, shared.matrix) if t.layout is not None else None
    if layout is None or not _feeds_mma(op.result, users):
        return
    tile = TileType(t.elem, layout.shape, layout)
    possible, width = access_bytes(tile), access_bytes(tile, shared.layout)
    instruction = lds_instruction("read", width)
    if width < min(8, possible):
        why = f"{shared.layout} keeps no more together, the registers could take {possible}"
    elif width < 8:
        why = "what a lane needs together does not lie together"
        if any(user.name == "copy" for user, _ in users.get(op.operands[0], [])):
            why += "; this is the version for views that are not aligned"
    else:
        return
    ctx.log.remark("R0802", f"%{op.result.name} is read from LDS {width} bytes a lane by {instruction}: {why}", op.loc)


def _feeds_mma(v: Value, users: dict[Value, list[tuple[Op, int]]]) -> bool:
    """Whether a tile becomes operand a or b of an `mma`, possibly transposed."""
    return any(
        (op.name == "mma" and i < 2) or (op.name == "transpose" and _feeds_mma(op.result, users))
        for op, i in users.get(v, [])
    )


def _check_transposing(kernel: Kernel, target: Target) -> None:
    """Transposing reads that an author writes must be those of the chip. Raises CompileError."""
    for op in kernel.walk():
        if op.name == "shared_load_transposed":
            t = op.result.tile
            if not has_transposing_read(t.elem.bits, t.shape, target) or addressed_layout(t) is None:
                raise error(
                    "E0709", f"{target.name} has no transposing reads that deliver {t}", op.loc, legal="shared_load(…)"
                )


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    found_buffers = buffers(kernel)
    least = least_bytes(found_buffers)
    if least > ctx.target.lds_bytes:  # no layout makes a buffer smaller, and to look for layouts would take long
        raise CompileError([over_budget(kernel, found_buffers, least, ctx.target)])
    _check_transposing(kernel, ctx.target)
    users = uses(kernel)
    threads = threads_of(kernel)
    chosen: dict[Value, SharedType] = {}
    known: dict[_Asked, tuple[SharedLayout, Proof]] = {}  # versions of a kernel have the same buffers
    having: dict[_Use | None, list[_Asked]] = {}  # those known by use; under None all
    for op in kernel.walk():
        if op.name != "shared_alloc":
            continue
        shared = op.result.type
        assert isinstance(shared, SharedType)
        using = [user for user, _ in users.get(op.result, [])]
        given = shared.layout
        if given is None and any(u.name == "shared_load" and u.result.tile.shape != shared.shape for u in using):
            given = SharedLayout.from_spec(shared.matrix, shared.elem.bits)  # under another shape: the order is given
        try:
            if given is not None:
                layout, proof = given, _proved(shared, given, using, threads, ctx.target)
            else:
                found, direct = uses_of(op.result, using)
                asked = _Asked(shared.matrix, shared.elem.bits, found, direct)
                if asked not in known:
                    like = having.get(found[0] if found else None, ())
                    free = next(
                        (k for k in like if known[k][1].conflict_free and asked.is_served_by(k, known[k][0])), None
                    )
                    for use in (None, *found):
                        having.setdefault(use, []).append(asked)
                    known[asked] = known[free] if free else _choose(shared, found, direct, threads, ctx.target)
                layout, proof = known[asked]
        except LayoutError as e:
            raise error(
                "E0802",
                f"no LDS layout for %{op.result.name}: {e}",
                op.loc,
                legal="a tile of whole bytes per row"
                if given is None
                else "a layout that keeps the bytes of an access together, or none",
            ) from e
        if not proof.conflict_free:
            why = "the best found" if given is None else "given"
            message = f"LDS accesses of %{op.result.name} conflict: {proof.conflicts()}; {layout} is {why}"
            ctx.log.remark("R0801", message, op.loc)
        if shared.layout is None:
            chosen[op.result] = replace(shared, layout=layout)
    for op in kernel.walk():
        if op.name == "shared_load" and isinstance(buffer := op.operands[0].type, SharedType):
            if op.result.tile.shape != buffer.shape:
                continue
            _note_narrow(op, chosen.get(op.operands[0], buffer), users, ctx)

    def rule(rw: Rewriter, op: Op) -> bool:
        if op.name != "shared_alloc" or op.result not in chosen:
            return False
        value = rw.value("shared_alloc", [], op.attrs, types=[chosen[op.result]], names=[op.result.name], loc=op.loc)
        rw.replace(op, [value])
        return True

    return rewrite(kernel, rule)


PASS = Pass(
    "layout-lds",
    _run,
    requires=frozenset({"converted"}),
    establishes=frozenset({"lds_laid_out"}),
    summary="chooses the layout of every LDS buffer",
)
