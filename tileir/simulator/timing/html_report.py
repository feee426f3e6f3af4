"""An estimate as one HTML page that refers to nothing outside it: facts, where time goes, loops, source lines, the code.

Every figure on the page is estimated, and the page says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from tileir.simulator.timing.records import Cause, Row
from tileir.simulator.timing.result import CAUSE_TEXTS, Timing

_COLOURS = {
    "issuing": "#4c78a8",
    "issue": "#9ecae9",
    "dependency": "#b279a2",
    "mfma_busy": "#54a24b",
    "valu_busy": "#b79a20",
    "lds_busy": "#439894",
    "vmem_busy": "#83bcb6",
    "wait_vm": "#e45756",
    "wait_lgkm": "#f58518",
    "barrier": "#79706e",
    "sleep": "#bab0ac",
    "branch": "#d67195",
}
_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5em; color: #222; background: #fff; }
table { border-collapse: collapse; margin: .5em 0 1em; }
th, td { padding: .1em .7em; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.code { font: 12px/1.35 ui-monospace, monospace; white-space: pre; }
.bar { display: flex; height: 1.1em; min-width: 12em; background: #eee; }
.bar span { display: block; height: 100%; }
.key span { display: inline-block; margin-right: 1em; }
.key i { display: inline-block; width: .8em; height: .8em; margin-right: .3em; }
.estimated { color: #a33; font-weight: bold; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1a1a1a; } th, td { border-color: #444; } .bar { background: #333; }
}
"""
_LINES = 200
"""Source lines and instructions that are listed, at most."""


def as_html(timing: Timing, instructions: Sequence[tuple[int, str, str | None]], title: str) -> str:
    """The page. instructions: address, disassembly and source line (or None) of each record of the program. title: such as
    the name of the file."""
    heading = f"{timing.kernel}: estimated time"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{escape(title)}: estimated time</title>",
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{escape(heading)}</h1>",
        f"<p>{escape(title)}. <span class='estimated'>Everything on this page is estimated by a model; nothing was "
        "measured.</span></p>",
        *_facts(timing),
        "<h2>Where the time of the waves goes</h2>",
        _key(),
        _table(
            ["", "share", *_ROW_HEADS],
            [_row(timing.total, timing.total)],
        ),
    ]
    if timing.loops:
        parts += ["<h2>Loops</h2>", *_loops(timing)]
    parts += ["<h2>Source lines</h2>", *_lines(timing)]
    parts += ["<h2>Instructions</h2>", *_instructions(timing, instructions)]
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _facts(timing: Timing) -> list[str]:
    memory, cu = timing.memory, timing.cu
    evidence = ", ".join(f"{n} {name}" for name, n in timing.evidence.items())
    facts = [
        (
            "estimated time",
            f"{timing.seconds * 1e6:.2f} µs, {timing.clocks:.0f} clocks at {timing.clock_hz / 1e9:.2f} GHz",
        ),
        ("chip", f"{timing.chip} ({timing.product})"),
        ("launch", f"grid {_sizes(timing.grid)}, block {_sizes(timing.block)}"),
        (
            "occupancy",
            f"at most {timing.occupancy.workgroups_per_cu} workgroups of {timing.dispatch.waves_per_workgroup} waves on a "
            f"compute unit, limited by {', '.join(timing.occupancy.limited_by)}",
        ),
        ("matrix pipes", f"{_percent(timing.mfma_utilisation)} busy on the simulated compute unit"),
        ("LDS", f"{cu.lds_busy_clocks} of {cu.clocks} clocks, {int(cu.conflict_clocks.sum())} by bank conflicts"),
        ("parameters", f"{timing.parameters}: {evidence}"),
    ]
    if timing.matrix_flops:
        facts.insert(1, ("matrix instructions", f"estimated {timing.matrix_tflops:.1f} TFLOPS on the chip"))
    head = _table(["", ""], [[_cell(name), _cell(text)] for name, text in facts])
    levels = [
        [
            _cell(level),
            _number(memory.bytes_by_level[level]),
            _cell(_percent(memory.hit_rates[level]) if level in memory.hit_rates else "–", "n"),
            _number(float(memory.latency[i])),
            _number(timing.bandwidth_clocks[level]),
        ]
        for i, level in enumerate(memory.levels)
    ]
    table = _table(["level", "bytes", "hits", "latency in clocks", "least clocks for the bytes"], levels)
    notes = "".join(f"<li>{escape(note)}</li>" for note in timing.notes)
    return [head, "<h2>Memory (estimated)</h2>", table, f"<ul>{notes}</ul>"]


_ROW_HEADS = (
    "instructions",
    "wave clocks",
    "MFMA use",
    "LDS clocks",
    "by conflicts",
    "bytes",
    "clocks by cause",
    "mix",
)


def _row(row: Row, total: Row) -> list[str]:
    moved = ", ".join(f"{level} {n}" for level, n in row.bytes.items() if n)
    mix = ", ".join(f"{n} {name}" for name, n in row.mix.items())
    return [
        _cell(row.label),
        _cell(_percent(row.clocks / total.clocks) if total.clocks else "", "n"),
        _number(row.issues),
        _number(row.clocks),
        _cell(_percent(row.mfma_utilisation) if row.mfma_clocks else "", "n"),
        _number(row.lds_clocks),
        _number(row.conflict_clocks),
        _cell(moved),
        f"<td>{_bar(row.clocks, row.stalls)}</td>",
        _cell(mix),
    ]


def _bar(clocks: int, stalls: Mapping[str, int]) -> str:
    """Shares of the clocks, as coloured pieces with the figures as their tooltips."""
    if not clocks:
        return ""
    shares = {"issuing": clocks - sum(stalls.values()), **dict(sorted(stalls.items(), key=lambda item: -item[1]))}
    pieces = [
        f'<span style="width:{100 * n / clocks:.2f}%;background:{_COLOURS[cause]}" title="{_name(cause)}: {n} clocks, '
        f'{_percent(n / clocks)}"></span>'
        for cause, n in shares.items()
        if n > 0
    ]
    return f'<div class="bar">{"".join(pieces)}</div>'


def _key() -> str:
    spans = (f'<span><i style="background:{colour}"></i>{_name(cause)}</span>' for cause, colour in _COLOURS.items())
    return f'<p class="key">{"".join(spans)}</p>'


def _name(cause: str) -> str:
    return escape(CAUSE_TEXTS.get(cause, cause))


def _loops(timing: Timing) -> list[str]:
    heads = ["loop", "share", *_ROW_HEADS, "iterations", "clocks per iteration"]
    rows = [
        [*_row(loop.row, timing.total), _number(loop.iterations), _number(loop.clocks_per_iteration)]
        for loop in timing.loops
    ]
    return [_table(heads, rows)]


def _lines(timing: Timing) -> list[str]:
    if not timing.lines:
        return ["<p>The code object has no line table.</p>"]
    parts = [_table(["line", "share", *_ROW_HEADS], [_row(row, timing.total) for row in timing.lines[:_LINES]])]
    if len(timing.lines) > _LINES:
        parts.append(f"<p>{len(timing.lines) - _LINES} lines more took less time.</p>")
    return parts


def _instructions(timing: Timing, instructions: Sequence[tuple[int, str, str | None]]) -> list[str]:
    """All executed instructions in order of address, or those with the most clocks when they are very many."""
    cu = timing.cu
    spent = cu.issue_clocks + cu.stalls.sum(axis=1)
    executed = [i for i in range(len(instructions)) if cu.issues[i]]
    limit = 10 * _LINES
    shown = sorted(sorted(executed, key=lambda i: -int(spent[i]))[:limit])
    rows: list[list[str]] = []
    for i in shown:
        address, text, place = instructions[i]
        stalls = {c.name.lower(): int(cu.stalls[i, c]) for c in Cause if c != Cause.NONE and cu.stalls[i, c]}
        rows.append(
            [
                _cell(f"{address:#x}", "code"),
                _cell(text, "code"),
                _number(int(cu.issues[i])),
                _number(int(spent[i])),
                f"<td>{_bar(int(spent[i]), stalls)}</td>",
                _number(int(cu.conflict_clocks[i])),
                _cell(place or ""),
            ]
        )
    heads = ["address", "instruction", "issued", "wave clocks", "clocks by cause", "conflict clocks", "source"]
    parts = [_table(heads, rows)]
    if len(executed) > limit:
        parts.append(f"<p>{len(executed) - limit} instructions more took less time.</p>")
    return parts


_NUMERIC = frozenset(
    {"share", "instructions", "wave clocks", "MFMA use", "LDS clocks", "by conflicts", "issued", "conflict clocks"}
    | {"iterations", "clocks per iteration", "bytes", "hits", "latency in clocks", "least clocks for the bytes"}
)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    kinds = [' class="n"' if head in _NUMERIC else "" for head in heads]
    top = "".join(f"<th{kind}>{escape(head)}</th>" for head, kind in zip(heads, kinds, strict=True))
    body = "".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return f"<table><tr>{top}</tr>{body}</table>" if any(heads) else f"<table>{body}</table>"


def _cell(text: str, kind: str = "") -> str:
    assert kind in ("", "n", "code")
    return f'<td class="{kind}">{escape(text)}</td>' if kind else f"<td>{escape(text)}</td>"


def _number(value: float) -> str:
    return _cell(f"{value:.0f}", "n")


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"


def _sizes(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))
