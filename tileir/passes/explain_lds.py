"""Says of every LDS buffer how it lies in the banks and what each access of it costs, with the proof.

    explain(kernel, target)            # a line per buffer and access
    explain(kernel, target, full=True) # and the enumeration and rank argument of each

The kernel is one whose buffers have layouts, usually the final text. The accesses are taken from that text as it is lowered:
with the width that the chosen layout allows, and with the address 0 that lanes without an element read. Nothing is
remembered from the choice of the layouts, so layouts that an author wrote are judged alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tileir.ir.core import Kernel, Op
from tileir.ir.diagnostics import error
from tileir.ir.rewriter import uses
from tileir.ir.types import SharedType, TileType
from tileir.layout import Layout, LayoutError, SharedLayout
from tileir.layout.banks import Access, AccessProof, Proof, matrix_places, prove
from tileir.layout.linear import WAVE
from tileir.passes.layout_lds import DIRECT_SUFFIX, TRANSPOSING_READ, access_bytes, lds_instruction, over_buffer
from tileir.passes.transposing_reads import addressed_layout
from tileir.target import Target
from tileir.target.model import LdsAccess


@dataclass(frozen=True, eq=False)
class BufferReport:
    """One LDS buffer: its allocation, its offset in bytes (None before allocation), and the proof of its accesses.

    `ops` are the accessing ops, in the order of `proof.accesses`.
    """

    alloc: Op
    offset: int | None
    proof: Proof
    ops: tuple[Op, ...]

    @property
    def name(self) -> str:
        return self.alloc.result.name


def clocks(p: AccessProof) -> tuple[int, int]:
    """(LDS clocks of all instructions of the access, clocks without any conflict): the sum of degrees over instructions
    and lane groups, and the number of groups with an active lane."""
    return int(p.degrees.sum()), int(np.count_nonzero(p.degrees))


def analyse(kernel: Kernel, target: Target) -> tuple[BufferReport, ...]:
    """Every buffer in program order with the proof of all its accesses.

    Raises CompileError for a buffer without a layout, and for accesses that its layout does not allow.
    """
    users = uses(kernel)
    waves = kernel.attrs.get("waves")
    threads = WAVE * (waves if isinstance(waves, int) else 1)
    reports: list[BufferReport] = []
    known: dict[object, Proof] = {}  # the two versions of a kernel have the same buffers
    for op in kernel.walk():
        if op.name != "shared_alloc":
            continue
        shared = op.result.type
        assert isinstance(shared, SharedType)
        if shared.layout is None:
            raise error(
                "E0802", f"%{op.result.name} has no LDS layout yet", op.loc, legal="the text after the pass layout-lds"
            )
        found = [user for user, _ in users.get(op.result, [])]
        try:
            accesses = [_access(user, shared, threads, target) for user in found if user.name != "copy_async"]
            direct = _direct(found, target)
            key = (shared, direct, tuple((a.name, a.rule.op, a.rows.tobytes(), a.cols.tobytes()) for a in accesses))
            if key not in known:
                known[key] = prove(shared.layout, accesses, direct=direct)
        except LayoutError as e:
            raise error(
                "E0802",
                f"%{op.result.name} cannot be accessed in its layout: {e}",
                op.loc,
                legal="a layout that keeps the bytes of every lane together",
            ) from e
        offset = op.attrs.get("offset", -1)
        ordered = [u for u in found if u.name != "copy_async"] + [u for u in found if u.name == "copy_async"][:1]
        reports.append(
            BufferReport(op, offset if isinstance(offset, int) and offset >= 0 else None, known[key], tuple(ordered))
        )
    return tuple(reports)


def _direct(found: list[Op], target: Target) -> LdsAccess | None:
    for op in found:
        if op.name == "copy_async":
            width = op.attrs["bytes"]
            assert isinstance(width, int)
            return target.lds_access(f"buffer_load_dword{DIRECT_SUFFIX[width]}_lds")
    return None


def _access(op: Op, shared: SharedType, threads: int, target: Target) -> Access:
    """The addresses of an op that reads or writes a buffer from registers."""
    if op.name == "copy":
        return _copied(op, shared, threads, target)
    name = f"{'write' if op.name == 'shared_store' else 'read'} at line {op.loc.line}"
    t = (op.operands[0] if op.name == "shared_store" else op.result).tile
    if op.name == "shared_load_transposed":
        source = addressed_layout(t)
        assert source is not None, "the op is only made where such a read exists"
        return Access.of_layout(name, target.lds_access(TRANSPOSING_READ), source, shared.elem.bits)
    assert t.layout is not None and shared.layout is not None
    view = shared
    if t.shape != shared.shape:  # the same bytes as rows of another shape
        view = SharedType(t.elem, t.shape)
        view = replace(view, layout=SharedLayout.from_spec(view.matrix, t.elem.bits))
    layout = over_buffer(t.layout, view)
    width = access_bytes(TileType(t.elem, layout.shape, layout), view.layout)
    direction = "write" if op.name == "shared_store" else "read"
    found = _with_holes(name, direction, width, layout, shared, target)
    if view is shared:
        return found
    place = found.rows * view.matrix[1] + found.cols
    row, col = np.divmod(place, shared.matrix[1])
    return Access(name, found.rule, np.where(found.rows < 0, -1, row), np.where(found.rows < 0, 0, col))


def _with_holes(name: str, direction: str, width: int, layout: Layout, shared: SharedType, target: Target) -> Access:
    """As `Access.of_layout`, but lanes without an element read the start of the buffer; when writing they are inactive."""
    rule = target.lds_access(lds_instruction(direction, width))
    step = width * 8 // shared.elem.bits
    table = layout.owner_table()[:, :, ::step, :]
    hole = np.any(table >= np.array(layout.shape), axis=-1)
    if not hole.any() or direction == "write":
        return Access.of_layout(name, rule, layout, shared.elem.bits)
    places = matrix_places(table, layout.shape)
    rows, cols = (np.where(hole, 0, x).transpose(0, 2, 1).reshape(-1, WAVE) for x in places)
    return Access(name, rule, rows, cols)


def _copied(op: Op, shared: SharedType, threads: int, target: Target) -> Access:
    """Element-wise copies: the threads of the workgroup take consecutive elements in turn."""
    rows, cols = shared.matrix
    index = np.arange(-(-rows * cols // threads) * threads, dtype=np.int64).reshape(-1, WAVE)
    inside = index < rows * cols
    rule = target.lds_access(lds_instruction("write", shared.elem.bytes))
    active = inside.any(axis=1)
    row, col = np.where(inside, index // cols, -1)[active], np.where(inside, index % cols, 0)[active]
    return Access(f"element-wise write at line {op.loc.line}", rule, row, col)


# -- text ------------------------------------------------------------------------------------------------------------


def explain(kernel: Kernel, target: Target, *, full: bool = False) -> str:
    """The report on all LDS buffers of a kernel; with `full`, every access with its enumeration and rank argument.

    Raises CompileError as `analyse`.
    """
    reports = analyse(kernel, target)
    paying = [(r, p) for r in reports for p in r.proof.accesses if p.degree > 1]
    lines = [_headline(kernel, target, reports, len(paying))]
    for r in reports:
        lines += _buffer(r, full)
    return "\n".join(lines) + "\n"


def _headline(kernel: Kernel, target: Target, reports: tuple[BufferReport, ...], paying: int) -> str:
    count = sum(len(r.proof.accesses) for r in reports)
    if not reports:
        return f"kernel {kernel.name} on {target.name} uses no LDS"
    total = kernel.attrs.get("lds")
    size = f", {total} of {target.lds_bytes} bytes" if isinstance(total, int) else ""
    verdict = "none conflicts" if not paying else f"{paying} conflict{'s' * (paying == 1)}"
    buffers = f"{len(reports)} LDS buffer{'s' * (len(reports) != 1)}"
    return f"kernel {kernel.name} on {target.name}: {buffers}{size}; of {count} accesses {verdict}"


def _buffer(r: BufferReport, full: bool) -> list[str]:
    shared = r.alloc.result.type
    assert isinstance(shared, SharedType) and shared.layout is not None
    place = f" at offset {r.offset}" if r.offset is not None else ""
    dims = ", ".join(str(n) for n in shared.shape)
    lines = [
        "",
        f"%{r.name}, line {r.alloc.loc.line}: {shared.elem}[{dims}] as {shared.layout}, "
        f"{shared.layout.size_bytes} bytes{place}",
    ]
    for op, p in zip(r.ops, r.proof.accesses, strict=True):
        rule = p.access.rule
        spent, free = clocks(p)
        cost = f" – {spent} clocks instead of {free}" if p.degree > 1 else ""
        what = p.access.name if op.name != "copy_async" else f"direct write at line {op.loc.line}"
        lines.append(f"  {what}: {rule.op}, degree {p.degree}{cost}; {rule.banks} banks, lane groups {rule.evidence}")
        if full:
            lines += [f"    {line}" for line in p.report().split("\n")[1:]]
    if not r.ops:
        lines.append("  never accessed")
    return lines
