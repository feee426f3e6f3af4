"""Says of every LDS buffer how it lies in the banks and what each access of it costs, with the proof.

    explain(kernel, target)            # a line per buffer and access
    explain(kernel, target, full=True) # and the enumeration and rank argument of each

The kernel is one whose buffers have layouts, usually the final text. The accesses are taken from that text as it is lowered:
with the width that the chosen layout allows, and with the places that lanes without an element read instead. Nothing is
remembered from the choice of the layouts, so layouts that an author wrote are judged alike.
"""

from __future__ import annotations

from tileir.ir.core import Kernel, Op
from tileir.ir.diagnostics import error
from tileir.ir.rewriter import uses
from tileir.ir.types import SharedType
from tileir.layout import LayoutError
from tileir.layout.banks import Proof, prove
from tileir.passes.lds_accesses import DIRECT, FRAGMENTS, RegisterAccess, access_of, direct_rule, threads_of
from tileir.records import dataclass
from tileir.target import Target


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


def analyse(kernel: Kernel, target: Target) -> tuple[BufferReport, ...]:
    """Every buffer in program order with the proof of all its accesses.

    Raises CompileError for a buffer without a layout, and for accesses that its layout does not allow.
    """
    users = uses(kernel)
    threads = threads_of(kernel)
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
        ordered = _once([u for u in found if u.name not in DIRECT])
        try:
            accesses = [access_of(user, shared, threads, target) for user in ordered]
            direct = direct_rule(found, target)
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
        ordered += [u for u in found if u.name in DIRECT][:1]
        reports.append(
            BufferReport(op, offset if isinstance(offset, int) and offset >= 0 else None, known[key], tuple(ordered))
        )
    return tuple(reports)


def _once(found: list[Op]) -> list[Op]:
    """Of the ops that move runs of registers of one tile, the first: its access is that of all."""
    seen: set[object] = set()
    kept: list[Op] = []
    for op in found:
        key = (RegisterAccess.of(op), op.loc.line) if op.name in FRAGMENTS else op
        if key not in seen:
            seen.add(key)
            kept.append(op)
    return kept


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
        cost = f" – {p.clocks} clocks instead of {p.free_clocks}" if p.degree > 1 else ""
        what = p.access.name if op.name not in DIRECT else f"direct write at line {op.loc.line}"
        lines.append(f"  {what}: {rule.op}, degree {p.degree}{cost}; {rule.banks} banks, lane groups {rule.evidence}")
        if full:
            lines += [f"    {line}" for line in p.report().split("\n")[1:]]
    if not r.ops:
        lines.append("  never accessed")
    return lines
