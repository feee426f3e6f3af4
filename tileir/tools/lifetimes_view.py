"""What `tileir-opt --print-lifetimes` and `--lifetimes-html` write: registers in use beside the final text, and as a chart."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from tileir.ir.core import Kernel, Op
from tileir.ir.diagnostics import CompileError
from tileir.ir.printer import print_kernel
from tileir.lowering.amdgpu.registers.lifetimes import ROLES, Held, Lifetimes, Peak, lifetimes
from tileir.lowering.amdgpu.registers.values import ACCUMULATION, SCALAR
from tileir.passes.manager import Result
from tileir.passes.pressure import budget

SHOWN = 12
"""Holders of registers that a peak lists; the rest is summed up."""
BARS = 60
"""Holders that the chart draws, the largest."""
_WIDTH, _HEIGHT, _LEFT, _BAR = 1100, 260, 60, 14
_COLOURS = ("#4477aa", "#ee8866", "#bb5566", "#aa4499", "#999933", "#777777", "#bbbbbb")
_ACCUMULATION = "#228833"
_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222 } pre { font-family: monospace; overflow-x: auto }
h2 { font-size: 1.1em; margin: 2em 0 .3em } svg { display: block; max-width: 100% } svg text { font: 11px system-ui, sans-serif }
.key { display: inline-block; width: 1em; height: 1em; margin: 0 .3em 0 1em; vertical-align: -2px }
"""


def of(results: Sequence[Result], sources: Mapping[str, str]) -> list[Lifetimes]:
    """Lifetimes of kernels behind all passes. Raises CompileError for an op that has no lowering."""
    try:
        return [lifetimes(r.kernel, r.context.target) for r in results]
    except CompileError as e:
        raise CompileError(e.diagnostics, e.sources or dict(sources)) from e


def text(found: Lifetimes) -> str:
    """The final text with registers in use on the left, then the peaks with what they hold."""
    lines = [_head(found), "", " vector  accu. scalar"]
    rows = iter(found.rows)
    for line in print_kernel(found.kernel).splitlines():
        if _is_op(line):
            row = next(rows)
            lines.append(f"{row.vector:7}{row.accumulation:7}{row.scalar:7} | {line}")
        else:
            lines.append(f"{'':21} | {line}")
    for peak in found.peaks:
        lines += ["", *_peak(peak)]
    return "\n".join(lines) + "\n"


def _is_op(line: str) -> bool:
    """Whether a printed line holds an op: the kernel's head and closing braces do not."""
    s = line.strip()
    return bool(s) and line.startswith("  ") and not s.startswith("}")


def _head(found: Lifetimes) -> str:
    p = found.prediction
    return (
        f"kernel {found.kernel.name} on {found.target.name}: about {p.vector} registers of the vector file, {p.accumulation} of "
        f"the accumulation file and {p.scalar} scalar ones; {found.kernel.attrs['waves']} waves have {budget(found.kernel, found.target)} each"
    )


def _peak(peak: Peak) -> list[str]:
    where = f"the loop at line {peak.loop.loc.line}" if peak.loop is not None else "the kernel"
    head = f"most alive in {where}: {peak.vector} vector, {peak.accumulation} accumulation, {peak.scalar} scalar"
    lines = [f"{head}, at {_place(peak.op)}"]
    vectors, scalars = ([h for h in peak.held if (h.file == SCALAR) == is_scalar] for is_scalar in (False, True))
    for name, held in (("vector and accumulation", vectors), ("scalar", scalars)):
        if held:
            lines.append(f"  {name}:")
            lines += [f"    {h.registers:4}  {describe(h)}" for h in held[:SHOWN]]
        if len(held) > SHOWN:
            lines.append(f"    {sum(h.registers for h in held[SHOWN:]):4}  {len(held) - SHOWN} more")
    return lines


def describe(held: Held) -> str:
    """What registers hold, in words."""
    words = {"value": held.name, "argument": f"argument {held.name}", "address": f"addresses of {held.name}"}
    words |= {"descriptor": f"descriptors of {held.name}", "mask": f"masks of {held.name}"}
    words |= {"constant": f"constants of {held.name}", "temporary": f"temporaries of {held.name}"}
    file = " (accumulation file)" if held.file == ACCUMULATION else ""
    return f"{words[held.role]}{file}" + (f", line {held.line}" if held.line else "")


def _place(op: Op) -> str:
    return f"line {op.loc.line} ({op.name})" if op.loc.line else op.name


def page(all_found: Sequence[Lifetimes]) -> str:
    """A self-contained HTML page: for each kernel registers in use over the program order, and who holds them."""
    names = ", ".join(f.kernel.name for f in all_found)
    title = html.escape(f"Lifetimes of {names}")
    head = f'<html lang="en"><head><meta charset="utf-8"/><title>{title}</title><style>{_STYLE}</style></head><body>'
    lines = ["<!DOCTYPE html>", head, f"<h1>{title}</h1>"]
    for found in all_found:
        lines += [
            f"<p>{html.escape(_head(found))}</p>",
            _keys(),
            _chart(found),
            "<h2>Who holds them</h2>",
            _bars(found),
        ]
        lines += [f"<h2>Beside the text</h2><pre>{html.escape(text(found))}</pre>"]
    return "\n".join([*lines, "</body></html>"]) + "\n"


def _keys() -> str:
    pairs = [("accumulators", _ACCUMULATION), *zip(ROLES, _COLOURS, strict=True)]
    return "<p>" + "".join(f'<span class="key" style="background:{c}"></span>{name}' for name, c in pairs) + "</p>"


def _chart(found: Lifetimes) -> str:
    """Registers of both files over the ops in program order, by what they hold; the line is the wave's budget."""
    rows, limit = found.rows, budget(found.kernel, found.target)
    highest = max([limit, *(r.vector + r.accumulation for r in rows)])
    step = (_WIDTH - _LEFT) / max(1, len(rows))

    def y(n: float) -> float:
        return _HEIGHT - 20 - n / highest * (_HEIGHT - 30)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" xmlns="http://www.w3.org/2000/svg">']
    layers = [("accumulators", _ACCUMULATION, [r.accumulation for r in rows])]
    layers += [(role, c, [r.roles[i] for r in rows]) for i, (role, c) in enumerate(zip(ROLES, _COLOURS, strict=True))]
    base = [0] * len(rows)
    for name, colour, counts in layers:
        top = [b + n for b, n in zip(base, counts, strict=True)]
        if any(counts):
            upper = [(x, t) for n, t in enumerate(top) for x in (n, n + 1)]
            lower = [(x, b) for n, b in enumerate(base) for x in (n, n + 1)]
            points = " ".join(f"{_LEFT + x * step:.1f},{y(v):.1f}" for x, v in (*upper, *reversed(lower)))
            parts.append(f'<polygon points="{points}" fill="{colour}"><title>{name}</title></polygon>')
        base = top
    for n, label in ((limit, f"{limit}"), (0, "0"), (highest / 2, f"{highest // 2}")):
        parts.append(f'<text x="{_LEFT - 6}" y="{y(n) + 4:.1f}" text-anchor="end">{label}</text>')
    parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y(limit):.1f}" y2="{y(limit):.1f}" stroke="#222" stroke-dasharray="4 3"/>')  # fmt: skip
    parts += _loops(found.kernel, [r.op for r in rows], step)
    return "\n".join([*parts, "</svg>"])


def _loops(kernel: Kernel, ops: list[Op], step: float) -> list[str]:
    """A mark below the chart for every loop, with its line."""
    numbers = {id(op): n for n, op in enumerate(ops)}
    parts: list[str] = []
    for op in kernel.walk():
        if op.name in ("for", "while"):
            inside = [numbers[id(x)] for region in op.regions for x in region.walk()]
            first, last = _LEFT + min(inside, default=0) * step, _LEFT + (max(inside, default=0) + 1) * step
            parts.append(f'<line x1="{first:.1f}" x2="{last:.1f}" y1="{_HEIGHT - 14}" y2="{_HEIGHT - 14}" stroke="#222" stroke-width="3"/>')  # fmt: skip
            parts.append(f'<text x="{first:.1f}" y="{_HEIGHT - 2}">{op.name}, line {op.loc.line}</text>')
    return parts


def _bars(found: Lifetimes) -> str:
    """A bar for each of the largest holders, from the first to the last op while it holds registers."""
    spans = sorted(found.spans[:BARS], key=lambda s: (s[1], s[2], s[0].name))
    step = (_WIDTH - _LEFT) / max(1, len(found.rows))
    parts = [f'<svg viewBox="0 0 {_WIDTH} {len(spans) * _BAR + 4}" xmlns="http://www.w3.org/2000/svg">']
    for row, (held, first, last) in enumerate(spans):
        colour = _ACCUMULATION if held.file == ACCUMULATION else _COLOURS[ROLES.index(held.role)]
        x, width, y = _LEFT + first * step, max(2.0, (last - first + 1) * step), row * _BAR
        words = html.escape(describe(held))
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 11}" text-anchor="end">{held.registers}</text>')
        parts.append(f'<rect x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="{_BAR - 4}" fill="{colour}"><title>{words}</title></rect>')  # fmt: skip
        at = f'x="{x + width - 4:.1f}" text-anchor="end"' if x > _WIDTH / 2 else f'x="{x + 4:.1f}"'
        parts.append(f'<text {at} y="{y + 11}">{words}</text>')
    return "\n".join([*parts, "</svg>"])
