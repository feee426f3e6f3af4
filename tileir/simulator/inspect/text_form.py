"""A report for the terminal: a summary at most 100 columns wide, and the listing."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tileir.simulator.inspect import classify
from tileir.simulator.inspect.counts import Counts, class_of
from tileir.simulator.inspect.reads import lds_latency
from tileir.simulator.inspect.report import KernelReport, Loop, Report

WIDTH = 100
_LABEL = 14
_FEW = 3  # entries of an irreducible loop that are shown
_FIXED = "\N{NO-BREAK SPACE}"  # where lines are not to be broken; printed as a plain space

_NAMES = {
    classify.LDS_READ: "LDS reads",
    classify.LDS_TRANSPOSE_READ: "LDS transposing reads",
    classify.LDS_WRITE: "LDS writes",
    classify.LDS_OTHER: "LDS other (atomics, permutes)",
    classify.TO_LDS: "loads direct to LDS",
    classify.LOAD: "global and buffer loads",
    classify.STORE: "global and buffer stores",
    classify.ATOMIC: "global atomics",
    classify.SCRATCH_LOAD: "scratch loads",
    classify.SCRATCH_STORE: "scratch stores",
    classify.CACHE: "cache control",
    classify.SMEM: "scalar memory",
    classify.TRANSCENDENTAL: "transcendental",
    classify.VALU: "VALU",
    classify.SALU: "SALU",
    classify.WAIT: "waits",
    classify.BARRIER: "barriers",
    classify.NOP: "nops",
    classify.PRIORITY: "priorities",
    classify.BRANCH: "branches",
    classify.OTHER: "other",
}


def as_table(report: Report) -> str:
    """The report as text of at most 100 columns."""
    lines = [f"{report.chip}, code object v{report.code_object_version}, {report.file_bytes} bytes"]
    for kernel in report.kernels:
        lines += ["", *_kernel(kernel)]
    return "\n".join(lines).replace(_FIXED, " ") + "\n"


def printable(name: str) -> str:
    """A name of the file with everything escaped that could steer a terminal."""
    return name if name.isprintable() else name.encode("unicode_escape").decode("ascii")


def source_of(loop: Loop) -> str:
    """`file:line` or `file:first-last` of a loop, "" if not known."""
    if not loop.file:
        return ""
    file = printable(loop.file)
    lines = f"{loop.first_line}" if loop.first_line == loop.last_line else f"{loop.first_line}-{loop.last_line}"
    return f"{file}:{lines}"


def class_lines(counts: Counts) -> list[tuple[str, str]]:
    """(class, what there is of it) for every class that occurs, but MFMA."""
    rows: list[tuple[str, str]] = []
    for kind in classify.CLASSES:
        number = counts.classes[kind]
        if not number or kind == classify.MFMA:
            continue
        details: list[str] = []
        if kind in counts.widths:
            details = [f"{n}{_FIXED}x{_FIXED}{width}{_FIXED}B" for width, n in counts.widths[kind].items()]
        elif kind == classify.WAIT:
            details = [f"{n} x {text}".replace(" ", _FIXED) for text, n in counts.waits.items()]
        elif kind == classify.NOP:
            details = [f"{counts.nop_states} wait states, {counts.nop_clocks} clocks"]
        elif kind == classify.VALU:
            details = _moves(counts)
        rows.append((_NAMES[kind], _number(number) + ", ".join(details)))
    return rows


def _number(value: int) -> str:
    return f"{value:5d}   ".replace(" ", _FIXED)


def _moves(counts: Counts) -> list[str]:
    found: list[str] = []
    if counts.vector_moves:
        found.append(f"{counts.vector_moves} v_mov ({counts.vector_copies} copy a register)")
    if counts.accumulator_moves:
        found.append(
            f"{counts.accumulator_moves} accumulator moves ({counts.accumulator_reads} read, "
            f"{counts.accumulator_writes} write, {counts.accumulator_copies} copy)"
        )
    return found


def figures(counts: Counts) -> str:
    """n and the VALU ratio in words."""
    if counts.n is None or counts.valu_ratio is None:
        return f"{counts.instructions} instructions, no MFMA"
    return f"n {counts.n:.1f}, VALU/MFMA {counts.valu_ratio:.2f}"


def read_summary(loop: Loop, kernel: KernelReport) -> str:
    """How far the LDS reads of a loop stand before their waits and uses, "" without reads."""
    if not loop.reads:
        return ""
    parts = [
        f"{loop.exposed_reads(kernel.target)} of {len(loop.reads)} exposed "
        f"(under {lds_latency(kernel.target)} MFMA clocks before the wait)"
    ]
    for what, found in (("use", [r.use for r in loop.reads]), ("wait", [r.wait for r in loop.reads])):
        known = sorted(d.instructions for d in found if d is not None)
        if known:
            parts.append(f"{what} after {known[0]} to {known[-1]} instructions, median {known[len(known) // 2]}")
    return "; ".join(parts)


def facts(kernel: KernelReport) -> list[tuple[str, str]]:
    """(label, text) of everything about a kernel but its loops."""
    r, s, o = kernel.registers, kernel.spills, kernel.occupancy

    def stated(value: int | None) -> str:
        return "" if value is None else f", metadata {value}"

    moves = f"{s.accumulator_moves} accumulator moves, {s.loop_accumulator_moves} of them in innermost loops"
    limits = ", ".join(f"{name} {n}" for name, n in o.limits.items())
    dynamic = f" + {kernel.dynamic_lds_bytes} at launch" if kernel.dynamic_lds_bytes else ""
    size = kernel.max_workgroup_size
    groups = f"{o.workgroups_per_cu} workgroup{'s' if o.workgroups_per_cu > 1 else ''} of"
    fits = f"{o.waves_per_simd:g} of {kernel.target.max_waves_per_simd} waves per SIMD ({groups}"
    if not o.workgroups_per_cu:
        fits = "not even one workgroup fits a CU (one has"
    spilled = (
        "no metadata"
        if s.vgprs_stated is None
        else f"{s.vgprs_stated} VGPRs, {s.sgprs_stated} SGPRs spilled by the metadata"
    )
    return [
        ("workgroup", "size not stated" if size is None else f"at most {size} work-items, {o.waves_per_workgroup} waves"),
        (
            "vector file",
            f"{r.vector_allocated} allocated, accum_offset {r.accum_offset}; used {r.vgprs_used} v + {r.agprs_used} a"
            f"{stated(r.vgprs_stated)}" + (f" of which {r.agprs_stated} a" if r.agprs_stated else ""),
        ),
        ("scalar file", f"{r.sgprs_allocated} allocated; used {r.sgprs_used}{stated(r.sgprs_stated)}"),
        ("LDS", f"{kernel.lds_bytes}{dynamic} of {kernel.target.lds_bytes} bytes"),
        ("scratch", f"{s.scratch_bytes} bytes per work-item; {s.scratch_loads} loads, {s.scratch_stores} stores"
                    f", {s.loop_scratch} of them in loops"),
        ("spills", f"{spilled}; {moves}"),
        ("occupancy", f"{fits} {o.waves_per_workgroup} waves per CU), limited by {' and '.join(o.limited_by)}"),
        ("", f"workgroups per CU by resource: {limits}"),
        ("code", f"{kernel.counts.instructions} instructions, {kernel.counts.code_bytes} bytes, {len(kernel.loops)} loop{'' if len(kernel.loops) == 1 else 's'}"
                 f"; {kernel.unreachable_instructions} instructions cannot be reached"),
    ]  # fmt: skip


def _kernel(kernel: KernelReport) -> list[str]:
    lines = textwrap.wrap(f"kernel {printable(kernel.name)}", WIDTH, subsequent_indent="  ")
    for label, text in facts(kernel):
        lines += _row(label, text)
    for note in kernel.notes:
        lines += _row("note", note)
    if kernel.loops:
        lines += ["", *_loops(kernel)]
    hot = kernel.hot_loop
    if hot is not None:
        lines += ["", *_hot(kernel, hot)]
    return lines


def _row(label: str, text: str) -> list[str]:
    rows = textwrap.wrap(text, WIDTH - _LABEL - 2, break_on_hyphens=False) or [""]
    return [f"  {label if i == 0 else '':<{_LABEL}}{row}"[:WIDTH] for i, row in enumerate(rows)]


_COLUMNS = ("insts", "MFMA", "clocks", "n", "LDS r/w", "toLDS", "ld/st", "VALU", "SALU", "wait", "bar", "nop", "accmov")


def _loops(kernel: KernelReport) -> list[str]:
    rows: list[tuple[str, ...]] = [("loop", *_COLUMNS, "source")]
    for loop in kernel.loops:
        c = loop.counts
        k = c.classes
        name = f"{'  ' * min(loop.depth - 1, 4)}{loop.number}{'*' if loop.number == kernel.hot else ''}"
        rows.append(
            (
                name + ("!" if loop.irreducible else ""),
                str(c.instructions),
                str(c.mfma_count),
                str(c.mfma_clocks),
                "-" if c.n is None else f"{c.n:.1f}",
                f"{k[classify.LDS_READ] + k[classify.LDS_TRANSPOSE_READ]}/{k[classify.LDS_WRITE]}",
                str(k[classify.TO_LDS]),
                f"{k[classify.LOAD]}/{k[classify.STORE]}",
                str(k[classify.VALU] + k[classify.TRANSCENDENTAL]),
                str(k[classify.SALU]),
                str(k[classify.WAIT]),
                str(k[classify.BARRIER]),
                str(k[classify.NOP]),
                str(c.accumulator_moves),
                source_of(loop),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    lines: list[str] = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:-1], widths[1:], strict=True))]
        left = "  " + " ".join(cells)
        lines.append(f"{left} {_shortened(row[-1], WIDTH - len(left) - 1)}".rstrip())
    if any(loop.irreducible for loop in kernel.loops):
        lines.append("  ! irreducible: entered in several places")
    return lines


def _shortened(text: str, room: int) -> str:
    return text if len(text) <= room else "" if room < 8 else "..." + text[3 - room :]


def _hot(kernel: KernelReport, loop: Loop) -> list[str]:
    c = loop.counts
    heads = ", ".join(f"{h:#x}" for h in loop.headers[:_FEW]) + (", ..." if len(loop.headers) > _FEW else "")
    head, tail = f"  * hot loop {loop.number} at {heads}", f": {figures(c)}"
    where = _shortened(source_of(loop), WIDTH - len(head) - len(tail) - 2)
    lines = [head + (f", {where}" if where else "") + tail]
    for name, opcode in c.mfma.items():
        lines += _wide_row(name, f"{_number(opcode.count)}{opcode.clocks} clocks")
    for name, text in class_lines(c):
        lines += _wide_row(name, text)
    lines += _wide_row("waits that drain", f"{_number(c.vmcnt_drains)}vmcnt(0), {c.lgkmcnt_drains} lgkmcnt(0)")
    summary = read_summary(loop, kernel)
    if summary:
        lines += _wide_row("LDS read to wait", summary)
    return lines


def _wide_row(label: str, text: str) -> list[str]:
    indent = 34
    rows = textwrap.wrap(text, WIDTH - indent, break_on_hyphens=False) or [""]
    return [f"    {label if i == 0 else '':<{indent - 4}}{row}".rstrip()[:WIDTH] for i, row in enumerate(rows)]


def as_listing(report: Report) -> str:
    """The code of every kernel: a bar per loop around it, address, class, assembly, and the source line where it
    changes. Code that cannot be reached is marked with `~`."""
    lines: list[str] = []
    for kernel in report.kernels:
        lines += [f"kernel {printable(kernel.name)}", *_listing(kernel), ""]
    return "\n".join(lines)


def loop_paths(kernel: KernelReport) -> list[tuple[int, ...]]:
    """For every block the loops around it, outermost first."""
    paths: list[list[int]] = [[] for _ in kernel.flow.blocks]
    for loop in kernel.loops:  # outer loops come before inner ones
        for block in loop.blocks:
            paths[block].append(loop.number)
    return [tuple(path) for path in paths]


def _listing(kernel: KernelReport) -> Sequence[str]:
    paths = loop_paths(kernel)
    deepest = max((len(path) for path in paths), default=0)
    lines: list[str] = []
    previous: tuple[int, ...] = ()
    place = ""
    for block in kernel.flow.blocks:
        path = paths[block.number]
        for number in path:
            if number not in previous:
                loop = kernel.loops[number]
                mark = " (hot)" if number == kernel.hot else ""
                lines.append(f"{'| ' * (loop.depth - 1)}+ loop {number}{mark}: {figures(loop.counts)}")
        previous = path
        bars = ("| " * len(path)).ljust(2 * deepest)
        for i in range(block.first, block.last):
            item, line = kernel.flow.items[i], kernel.lines[i]
            here = f"{printable(line.file)}:{line.line}" if line else ""
            shown = f"  ; {here}" if here and here != place else ""
            place = here or place
            reach = " " if block.reachable else "~"
            lines.append(f"{bars}{reach}{item.address:6x}  {class_of(item):<18} {item.text}{shown}")
    return lines
