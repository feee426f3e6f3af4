"""Draws the layouts of a kernel: who (wave, lane, register) holds which element of a tile, and in which LDS bank the
elements of a buffer lie. The result is one HTML file that needs nothing else.

    python -m tileir.tools.layout_view gemm.tile -k gemm --target gfx950 -o layouts.html
"""

from __future__ import annotations

import argparse
import html
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tileir.ir.core import Kernel, Value
from tileir.ir.diagnostics import CompileError, Log
from tileir.ir.types import SharedType, TileType
from tileir.layout import Layout
from tileir.passes.explain_lds import BufferReport, analyse, explain
from tileir.passes.manager import run_pipeline, step_names
from tileir.target import Target
from tileir.tools.common import EXIT_OK, Parser, UsageError, parameters, read_text, report, run_tool, write_output

NAMES_SHOWN = 8
"""Values with one layout that a heading lists."""

STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222 }
h2 { font-size: 1.1em; margin: 2em 0 .3em } code, pre { font-family: monospace } pre { overflow-x: auto }
.map { overflow: auto; max-height: 70vh; border: 1px solid #ccc; width: fit-content; max-width: 100% }
canvas { display: block } .layout { color: #666; overflow-wrap: anywhere }
#hover { position: fixed; background: #222; color: #fff; padding: 3px 7px; display: none; pointer-events: none }
"""

# Element number i of a picture is row-major. `describe` is what the pointer shows; the tests call it too.
SCRIPT = """
function owner(p, i) {
  const code = p.owner[i], held = Math.floor(code / p.registers);
  return { wave: Math.floor(held / 64), lane: held % 64, register: code % p.registers };
}
function describe(p, i) {
  const where = "element [" + p.index(i).join(", ") + "]: ";
  if (p.kind === "tile") {
    const o = owner(p, i), more = p.copies - 1;
    const copies = more ? ", and " + more + " more cop" + (more === 1 ? "y" : "ies") : "";
    return where + "wave " + o.wave + ", lane " + o.lane + ", register " + o.register + copies;
  }
  const byte = p.offset[i];
  const bank = Math.floor((p.start + byte) / 4) % p.banks;
  return where + "byte " + byte + " of the buffer, bank " + bank + " of " + p.banks;
}
function colour(p, i, by) {
  if (p.kind === "buffer") {
    return "hsl(" + Math.floor((p.start + p.offset[i]) / 4) % p.banks * 360 / p.banks + " 70% 60%)";
  }
  const o = owner(p, i);
  const value = o[by], count = by === "lane" ? 64 : by === "wave" ? p.waves : p.registers;
  const shade = by === "lane" ? 45 + 35 * o.wave / p.waves : 60;
  return "hsl(" + value * 360 / count + " 65% " + shade + "%)";
}
function prepare(p) {
  p.cols = p.shape[p.shape.length - 1];
  p.rows = p.shape.slice(0, -1).reduce((a, b) => a * b, 1);
  p.index = i => p.shape.map((n, d) => Math.floor(i / p.shape.slice(d + 1).reduce((a, b) => a * b, 1)) % n);
  return p;
}
function draw(p, canvas, by) {
  const size = Math.max(4, Math.min(14, Math.floor(960 / p.cols)));
  canvas.width = p.cols * size;
  canvas.height = p.rows * size;
  const context = canvas.getContext("2d");
  Array.from({ length: p.rows * p.cols }, (_, i) => {
    context.fillStyle = colour(p, i, by);
    context.fillRect(i % p.cols * size, Math.floor(i / p.cols) * size, size - 1, size - 1);
  });
  const hover = document.getElementById("hover");
  canvas.onmousemove = e => {
    const x = Math.floor(e.offsetX / size), y = Math.floor(e.offsetY / size);
    const inside = Math.min(x, y, p.cols - 1 - x, p.rows - 1 - y) >= 0;
    hover.style.display = inside ? "block" : "none";
    if (inside) hover.textContent = describe(p, y * p.cols + x);
    hover.style.left = e.clientX + 14 + "px";
    hover.style.top = e.clientY + 14 + "px";
  };
  canvas.onmouseleave = () => { hover.style.display = "none"; };
}
if (typeof document !== "undefined") {
  const pictures = JSON.parse(document.getElementById("data").textContent).map(prepare);
  const by = document.getElementById("by");
  const all = () => pictures.forEach((p, n) => draw(p, document.getElementById("map" + n), by.value));
  by.onchange = all;
  all();
}
"""

DESCRIPTION = "Draws the register and LDS layouts of a kernel as an HTML page that needs nothing else."
EPILOG = """\
examples:
  python -m tileir.tools.layout_view gemm.tile --target gfx950 -o layouts.html
  python -m tileir.tools.layout_view gemm.tile --target gfx942 -D BM=64 --stage assign-layouts -o layouts.html"""


def pictures(kernel: Kernel, target: Target) -> list[dict[str, Any]]:
    """The data of the page: one entry per distinct tile layout, in order of appearance, then one per LDS buffer.

    A tile has `owner`, for every element row-major (wave * 64 + lane) * registers + register of its canonical copy; a buffer
    `offset`, the byte in it, and `start`, its own place in LDS.
    """
    tiles: dict[tuple[Layout, str], list[str]] = {}
    for v in _values(kernel):
        if isinstance(v.type, TileType) and v.type.layout is not None and v.type.shape:
            tiles.setdefault((v.type.layout, v.type.elem.name), []).append(_named(v))
    found = [_tile(layout, elem, names) for (layout, elem), names in tiles.items()]
    if any(op.name == "shared_alloc" and _laid_out(op.result) for op in kernel.walk()):
        found += [_buffer(r) for r in analyse(kernel, target)]
    return found


def _values(kernel: Kernel) -> list[Value]:
    return [v for op in kernel.walk() for v in [*op.results, *(a for r in op.regions for a in r.args)]]


def _named(v: Value) -> str:
    line = v.owner.loc.line if v.owner is not None else v.loc.line
    return f"%{v.name} (line {line})" if line else f"%{v.name}"


def _laid_out(v: Value) -> bool:
    return isinstance(v.type, SharedType) and v.type.layout is not None


def _tile(layout: Layout, elem: str, names: list[str]) -> dict[str, Any]:
    grid = np.indices(layout.shape).reshape(layout.rank, -1)
    register, lane, wave = layout.owner(*grid)
    owner = (wave * 64 + lane) * layout.num_registers + register
    shown = ", ".join(names[:NAMES_SHOWN])
    if len(names) > NAMES_SHOWN:
        shown += f" and {len(names) - NAMES_SHOWN} more"
    return {
        "kind": "tile",
        "title": f"tile<{elem}{list(layout.shape)}>: {shown}",
        "layout": str(layout),
        "shape": list(layout.shape),
        "waves": layout.num_waves,
        "registers": layout.num_registers,
        "copies": 1 << sum(mask.bit_count() for mask in layout.free),
        "owner": owner.tolist(),
    }


def _buffer(r: BufferReport) -> dict[str, Any]:
    shared = r.alloc.result.type
    assert isinstance(shared, SharedType)
    row, col = np.indices(shared.matrix).reshape(2, -1)
    return {
        "kind": "buffer",
        "title": f"%{r.name} (line {r.alloc.loc.line}): {shared.elem}{list(shared.shape)} in LDS",
        "layout": str(r.proof.shared),
        "shape": list(shared.shape),
        "banks": max((p.access.rule.banks for p in r.proof.accesses), default=32),
        "start": r.offset or 0,
        "offset": r.proof.shared.offset(row, col).tolist(),
    }


def page(kernel: Kernel, target: Target) -> str:
    """The HTML page. Raises CompileError for buffers whose accesses their layout does not allow."""
    found = pictures(kernel, target)
    data = json.dumps(found, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")
    title = html.escape(f"Layouts of {kernel.name} on {target.name}")
    lines = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"/><title>{title}</title><style>{STYLE}</style></head><body>',
        f"<h1>{title}</h1>",
        '<p>Colour tiles by <select id="by"><option>lane</option><option>wave</option><option>register</option></select>; '
        "LDS buffers are coloured by bank. Point at an element to see who holds it.</p>",
    ]
    if any(p["kind"] == "buffer" for p in found):
        lines.append(f"<pre>{html.escape(explain(kernel, target))}</pre>")
    for i, p in enumerate(found):
        lines.append(f"<h2>{html.escape(p['title'])}</h2>")
        lines.append(f'<div class="layout"><code>{html.escape(p["layout"])}</code></div>')
        lines.append(f'<div class="map"><canvas id="map{i}"></canvas></div>')
    lines.append('<div id="hover"></div>')
    lines.append(f'<script type="application/json" id="data">{data}</script>')
    lines.append(f"<script>//<![CDATA[\n{SCRIPT}\n//]]></script></body></html>")
    return "\n".join(lines) + "\n"


def _parser() -> argparse.ArgumentParser:
    p = Parser(prog="layout_view", description=DESCRIPTION, epilog=EPILOG)
    p.add_argument("file", help="the .tile file; - is standard input")
    p.add_argument("-k", "--kernel", default="", metavar="NAME", help="which kernel (default: the only one)")
    p.add_argument("--target", default="", metavar="CHIP", help="gfx942 or gfx950 (default: what the text is bound to)")
    p.add_argument("-D", dest="define", action="append", default=[], metavar="NAME=VALUE", help="a parameter")
    p.add_argument("--stage", metavar="PASS", help="the layouts after this pass (default: after all)")
    p.add_argument("-o", dest="output", metavar="OUT", help="output file (default: stdout)")
    return p


def _main(argv: Sequence[str]) -> int:
    from tileir.frontend import parse

    args = _parser().parse_args(argv)
    labels = step_names()
    if args.stage is not None and args.stage not in labels:
        raise UsageError(f"--stage: there is no pass '{args.stage}'; passes: {', '.join(labels)}")
    text, name = read_text(args.file)
    log = Log()
    try:
        module = parse(text, name, parameters(args.define), kernel=args.kernel or None, log=log)
        result = run_pipeline(module, args.kernel, args.target, stop_after=args.stage, log=log)
        if not pictures(result.kernel, result.context.target):
            raise UsageError(f"kernel '{result.kernel.name}' has no layouts after '{args.stage or labels[-1]}'")
        made = page(result.kernel, result.context.target)
    except CompileError as e:
        report(log.diagnostics, e.sources or {name: text}, remarks=False)
        raise CompileError(e.diagnostics, e.sources or {name: text}) from e
    report(log.diagnostics, {name: text}, remarks=False)
    write_output(args.output, made)
    return EXIT_OK


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    return run_tool("layout_view", _main, argv)


if __name__ == "__main__":
    sys.exit(main())
