"""A report as one HTML page without references to anything outside it: facts, loops, and the coloured listing."""

from __future__ import annotations

from html import escape

from tileir.simulator.inspect import classify
from tileir.simulator.inspect.counts import Counts, class_of
from tileir.simulator.inspect.report import KernelReport, Loop, Report
from tileir.simulator.inspect.text_form import class_lines, facts, figures, loop_paths, read_summary, source_of

_COLOURS = {
    classify.MFMA: "#1b7f3b",
    classify.LDS_READ: "#1f5fbf",
    classify.LDS_TRANSPOSE_READ: "#1f5fbf",
    classify.LDS_WRITE: "#3f7fdf",
    classify.LDS_OTHER: "#3f7fdf",
    classify.TO_LDS: "#7a3fbf",
    classify.LOAD: "#9a3f9f",
    classify.STORE: "#9a3f9f",
    classify.ATOMIC: "#9a3f9f",
    classify.SCRATCH_LOAD: "#d01010",
    classify.SCRATCH_STORE: "#d01010",
    classify.CACHE: "#777777",
    classify.SMEM: "#0f7f8f",
    classify.TRANSCENDENTAL: "#b0520b",
    classify.VALU: "#8a6a00",
    classify.SALU: "#5f6f7f",
    classify.WAIT: "#c02f5f",
    classify.BARRIER: "#c02f5f",
    classify.NOP: "#999999",
    classify.PRIORITY: "#777777",
    classify.BRANCH: "#333333",
    classify.OTHER: "#777777",
}
_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5em; color: #222; background: #fff; }
table { border-collapse: collapse; margin: .5em 0 1em; }
th, td { padding: .1em .7em; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.code { font: 12px/1.35 ui-monospace, monospace; white-space: pre; overflow-x: auto; }
.loop { border-left: 3px solid #bbb; padding-left: .6em; margin: .3em 0; }
.loop.hot { border-left-color: #e08a00; background: #fffaf0; }
.loop > .head { font: bold 13px system-ui, sans-serif; white-space: normal; }
.a { color: #999; } .s { color: #888; font-style: italic; } .dead { opacity: .45; }
summary { cursor: pointer; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1a1a1a; } th, td { border-color: #444; } .loop.hot { background: #2a2418; }
  .code span { filter: brightness(1.6); }
}
"""


def as_html(report: Report, title: str) -> str:
    """The page; `title` is shown, such as the name of the file."""
    colours = "\n".join(f".k-{kind} {{ color: {colour}; }}" for kind, colour in _COLOURS.items())
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}{colours}\n</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(report.chip)}, code object v{report.code_object_version}, {report.file_bytes} bytes</p>",
    ]
    for number, kernel in enumerate(report.kernels):
        parts += _kernel(kernel, f"k{number}")
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _kernel(kernel: KernelReport, anchor: str) -> list[str]:
    parts = [f"<h2>kernel {escape(kernel.name)}</h2>", "<table>"]
    parts += [f"<tr><th>{escape(label)}</th><td>{escape(text)}</td></tr>" for label, text in facts(kernel)]
    parts += [f"<tr><th>note</th><td>{escape(note)}</td></tr>" for note in kernel.notes]
    parts.append("</table>")
    if kernel.loops:
        parts += ["<h3>Loops</h3>", *_loops(kernel, anchor)]
    parts += ["<h3>Code</h3>", _legend(kernel.counts), f'<div class="code">{_code(kernel, anchor)}</div>']
    return parts


def _legend(counts: Counts) -> str:
    shown = (f'<span class="k-{kind}">{kind}</span>' for kind in classify.CLASSES if counts.classes[kind])
    return f'<p class="code">{"  ".join(shown)}   <span class="dead">cannot be reached</span></p>'


def _loops(kernel: KernelReport, anchor: str) -> list[str]:
    heads = (
        "instructions",
        "MFMA",
        "MFMA clocks",
        "n",
        "VALU/MFMA",
        "waits",
        "vmcnt(0)",
        "nop clocks",
        "accumulator moves",
    )
    cells = "".join(f'<th class="n">{escape(head)}</th>' for head in heads)
    parts = [f"<table><tr><th>loop</th><th>source</th>{cells}</tr>"]
    for loop in kernel.loops:
        name = f"{'&nbsp;&nbsp;' * (loop.depth - 1)}{loop.number}{' hot' if loop.number == kernel.hot else ''}"
        link = f'<a href="#{anchor}-loop{loop.number}">{name}</a>'
        parts.append(f"<tr><td>{link}</td><td>{escape(source_of(loop))}</td>{_cells(loop.counts)}</tr>")
    parts.append("</table>")
    for loop in kernel.loops:
        hot = loop.number == kernel.hot
        parts += [
            f"<details{' open' if hot else ''}><summary>loop {loop.number}{' (hot)' if hot else ''}: "
            f"{escape(figures(loop.counts))}</summary>",
            _details(kernel, loop),
            "</details>",
        ]
    return parts


def _cells(counts: Counts) -> str:
    values = (
        counts.instructions,
        counts.mfma_count,
        counts.mfma_clocks,
        "" if counts.n is None else f"{counts.n:.1f}",
        "" if counts.valu_ratio is None else f"{counts.valu_ratio:.2f}",
        counts.classes[classify.WAIT],
        counts.vmcnt_drains,
        counts.nop_clocks,
        counts.accumulator_moves,
    )
    return "".join(f'<td class="n">{value}</td>' for value in values)


def _details(kernel: KernelReport, loop: Loop) -> str:
    counts = loop.counts
    rows = [(name, f"{opcode.count} ({opcode.clocks} clocks)") for name, opcode in counts.mfma.items()]
    rows += class_lines(counts)
    rows.append(("waits that drain", f"{counts.vmcnt_drains} vmcnt(0), {counts.lgkmcnt_drains} lgkmcnt(0)"))
    summary = read_summary(loop, kernel)
    if summary:
        rows.append(("LDS read to wait", summary))
    exits = ", ".join(
        f"{start:#x} to {'an unknown place' if end is None else f'{end:#x}'}" for start, end in loop.exits
    )
    rows.append(("exits", exits or "none"))
    body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text.strip())}</td></tr>" for name, text in rows)
    return f"<table>{body}</table>"


def _code(kernel: KernelReport, anchor: str) -> str:
    """The listing: a division per loop around its consecutive blocks, and again where a loop goes on behind others."""
    paths = loop_paths(kernel)
    parts: list[str] = []
    opened: list[int] = []
    seen: set[int] = set()
    place = ""
    for block in kernel.flow.blocks:
        path = paths[block.number]
        common = 0
        while common < min(len(path), len(opened)) and path[common] == opened[common]:
            common += 1
        while len(opened) > common:
            opened.pop()
            parts.append("</div>")
        for number in path[common:]:
            opened.append(number)
            parts.append(_loop_head(kernel, number, anchor, number not in seen))
            seen.add(number)
        for i in range(block.first, block.last):
            item, line = kernel.flow.items[i], kernel.lines[i]
            here = f"{line.file}:{line.line}" if line else ""
            shown = f'   <span class="s">{escape(here)}</span>' if here and here != place else ""
            place = here or place
            dead = "" if block.reachable else " dead"
            parts.append(
                f'<span class="a">{item.address:6x}</span>  '
                f'<span class="k-{class_of(item)}{dead}">{escape(item.text)}</span>{shown}\n'
            )
    parts += ["</div>"] * len(opened)
    return "".join(parts)


def _loop_head(kernel: KernelReport, number: int, anchor: str, first: bool) -> str:
    loop = kernel.loops[number]
    hot = number == kernel.hot
    name = f' id="{anchor}-loop{number}"' if first else ""
    text = f"loop {number}{' (hot)' if hot else ''}" + (f": {figures(loop.counts)}" if first else ", continued")
    return f'<div class="loop{" hot" if hot else ""}"{name}><div class="head">{escape(text)}</div>'
