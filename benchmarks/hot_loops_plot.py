"""The figures of `hot_loops.py` as an SVG picture: bars of n, and of the estimated efficiency of the loop, by row and compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

COLOURS = ("#1f6f8b", "#d95f02", "#f2a15f", "#7a7a7a", "#a8a8a8", "#d0d0d0")
"""One for each code object of a row, in its order."""
LEFT, BAR, GAP, WIDTH, SPACE = 250, 9, 12, 360, 70
"""Pixels: of the row names, of a bar's height, between rows, of the longest bar, between the two panels."""


def plot(rows: Sequence[dict[str, Any]]) -> str:
    """The picture of what `hot_loops.data` gave. The bar of a row is a line across its bars of n."""
    names = list(dict.fromkeys(name for row in rows for name in row["results"]))
    most = max((r["n"] or 0 for row in rows for r in row["results"].values()), default=1) or 1
    out: list[str] = []
    y = 50
    second = LEFT + WIDTH + SPACE
    for row in rows:
        height = BAR * len(row["results"])
        out.append(text(LEFT - 8, y + height / 2 + 4, row["row"], anchor="end"))
        for i, (name, r) in enumerate(row["results"].items()):
            top, colour = y + i * BAR, COLOURS[names.index(name) % len(COLOURS)]
            if r["n"] is None:
                out.append(text(LEFT + 4, top + BAR - 1, f"{name}: does not compile", size=8))
                continue
            out += _bar(LEFT, top, WIDTH * r["n"] / most, colour, f"{r['n']:.1f}")
            if r["efficiency"] is not None:
                out += _bar(second, top, WIDTH * r["efficiency"], colour, f"{100 * r['efficiency']:.1f} %")
        if row["bar"]:
            x = LEFT + WIDTH * row["bar"] / most
            out.append(f'<path d="M{x:.1f} {y - 2}V{y + height + 2}" stroke="#000" stroke-dasharray="3 2"/>')
        y += height + GAP
    head = [
        text(LEFT, 20, "n: other instructions per 1024 MFMA clocks (dashed: at most)"),
        text(second, 20, "estimated efficiency of the loop"),
    ]
    for i, name in enumerate(names):
        x = 10 + 160 * i
        head.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{COLOURS[i % len(COLOURS)]}"/>')
        head.append(text(x + 15, y + 9, name))
    size = f'width="{second + WIDTH + SPACE}" height="{y + 25}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">\n'
        '<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(head + out) + "\n</svg>\n"
    )


def text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _bar(x: float, y: float, width: float, colour: str, label: str) -> list[str]:
    return [
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BAR - 1}" fill="{colour}"/>',
        text(x + width + 3, y + BAR - 1, label, size=8),
    ]
