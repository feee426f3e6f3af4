"""Writes the generated parts of the documentation from the declarations in the code.

    python docs/generate.py            # write
    python docs/generate.py --check    # exit status 1 if a committed text is out of date

Generated are docs/diagnostics.md, and in other documents what stands between "<!-- generated: NAME -->" and
"<!-- end of NAME -->".
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(DOCS)]

import matrix_instructions  # noqa: E402
import support  # noqa: E402

from tileir.frontend.examples import PRELUDE  # noqa: E402
from tileir.ir.diagnostics import catalogue  # noqa: E402
from tileir.ir.registry import REQUIRED, AttrSpec, OpDef, all_ops, format_attr  # noqa: E402
from tileir.ir.types import ELEMS  # noqa: E402
from tileir.passes import forms  # noqa: E402
from tileir.passes.pipeline import pipeline  # noqa: E402
from tileir.target.load import DATA_DIRECTORY  # noqa: E402
from tileir.target.timing import FILE_NAME  # noqa: E402

CATEGORIES = (
    ("program", "Program"),
    ("create", "Constants and new tiles"),
    ("memory", "Global memory"),
    ("atomic", "Atomic updates"),
    ("elementwise", "Elementwise"),
    ("shape", "Shape"),
    ("assemble", "Taking apart and putting together"),
    ("reduce", "Reductions"),
    ("scan", "Scans"),
    ("contract", "Matrix product"),
    ("random", "Random numbers"),
    ("control", "Control flow"),
    ("wave", "Wave level"),
    ("fragments", "Fragments (wave level, single instructions)"),
)
OPERANDS = {"access": "an access `%view[…]`"}
LEVELS = {"tile": "tile", "wave": "wave", "both": "tile and wave"}

# The first two digits of a code say what the diagnostic is about.
FAMILIES = (
    ("01", "Reading the text"),
    ("02", "Names, parameters, files"),
    ("03", "Types and ops"),
    ("04", "Accesses to memory"),
    ("05", "Control flow and the grid"),
    ("06", "Schedules"),
    ("07", "What a chip can do"),
    ("08", "LDS and registers"),
    ("09", "Code generation"),
    ("10", "Passes and normal forms"),
    ("16", "Launching a kernel"),
    ("17", "Faults of a running kernel"),
    ("19", "Searching for schedules"),
)
SEVERITIES = {"E": "error", "W": "warning", "R": "remark"}


# -- ops -----------------------------------------------------------------------------------------------------------


def op_list() -> str:
    """The names of all ops by category."""
    ops = all_ops().values()
    lines: list[str] = []
    for key, title in CATEGORIES:
        names = ", ".join(f"`{o.name}`" for o in ops if o.category == key)
        lines.append(f"* {title}: {names}")
    return "\n".join(lines) + "\n"


def op_reference() -> str:
    """One entry per op, from its declaration."""
    known = {key for key, _ in CATEGORIES}
    unknown = sorted({o.category for o in all_ops().values()} - known)
    assert not unknown, f"categories without a title: {unknown}"
    parts: list[str] = []
    for key, title in CATEGORIES:
        parts.append(f"### {title}\n")
        parts += [op_entry(o) for o in all_ops().values() if o.category == key]
    return "\n".join(parts)


def op_entry(o: OpDef) -> str:
    """The entry of one op."""
    infix = f", written `{o.infix}`" if o.infix else ""
    lines = [f"#### `{o.name}`{infix}\n", f"{o.summary}\n"]
    lines.append(f"* Operands: {operands(o)}")
    if o.regions:
        lines.append(f"* Regions: {o.regions}")
    lines += [f"* Attribute {attribute(a)}" for a in o.attrs]
    effects = ", ".join(sorted(o.effects)) or "none"
    lines.append(f"* Level: {LEVELS[o.level]}. Effects: {effects}. {compiled(o)}")
    lines += ["", f"```tile op={o.name}", o.example, "```", ""]
    return "\n".join(lines)


def operands(o: OpDef) -> str:
    if not o.operands:
        return "none"
    named = [OPERANDS.get(n, f"`{n[:-1]}` (any number)" if n.endswith("*") else f"`{n}`") for n in o.operands]
    return ", ".join(named)


def attribute(a: AttrSpec) -> str:
    """`name` (kind, default): meaning."""
    form = "first in `<…>`, without its name" if a.positional else "in `(…)`" if a.paren else "in `<…>`"
    value = "required" if a.default is REQUIRED else f"default {default_text(a)}"
    choices = ", ".join(f"`{c}`" for c in a.choices if c)
    kind = f"one of {choices}" if choices else a.kind
    doc = f": {a.doc}" if a.doc else ""
    return f"`{a.name}` ({kind}; {form}; {value}){doc}"


def default_text(a: AttrSpec) -> str:
    text = format_attr(a.default)
    return f"`{text}`" if text else "none"


def compiled(o: OpDef) -> str:
    """What of an op compiles, as a sentence or two."""
    if o.name == "convert":
        return "Compiled: see the table of conversions."
    found = support.support(o)
    if found is None:
        return "Compiled." if o.name in support.ops_in_compiled_kernels() else "Not compiled yet."
    if found.legal == ("",):
        chips = [c for c, done in found.compiled.items() if done]
        return (
            "Compiled." if len(chips) == len(found.compiled) else f"Compiled for: {', '.join(chips) or 'no chip yet'}."
        )
    everywhere = found.everywhere
    if not any(found.compiled.values()):
        return "Not compiled yet."
    sentences = [f"Compiled on {elems(everywhere)}"]
    for chip, done in found.compiled.items():
        extra = [e for e in done if e not in everywhere]
        if extra:
            sentences.append(f"on {chip} also {elems(extra)}")
    missing = [e for e in found.legal if not any(e in done for done in found.compiled.values())]
    if missing:
        sentences.append(f"not yet on {elems(missing)}")
    return "; ".join(sentences) + "."


_GROUPS = (
    ("all integers", ("i8", "i16", "i32", "i64")),
    ("all floats from 16 to 64 bits", ("f64", "f32", "f16", "bf16")),
    ("8-bit floats", tuple(e.name for e in ELEMS.values() if e.is_float and e.bits == 8)),
)


def elems(names: Iterable[str]) -> str:
    """Element types in words."""
    left = list(names)
    out: list[str] = []
    for text, group in _GROUPS:
        if all(e in left for e in group):
            out.append(text)
            left = [e for e in left if e not in group]
    return ", ".join([*out, *(f"`{e}`" for e in left)]) or "no element type"


def conversions() -> str:
    """Between which element types `convert` compiles."""
    found = support.conversions()
    kinds = list(support.CONVERT_ELEMS)
    rows = ["| from \\ to | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 1) + "|"]
    for source in kinds:
        cells = [_cell(found[source, target]) for target in kinds]
        rows.append(f"| {source} | " + " | ".join(cells) + " |")
    return (
        "\n".join(rows)
        + "\n\n`+` on both chips, a number on that chip only (942 for gfx942, 950 for gfx950), `–` not yet.\n"
    )


def _cell(chips: tuple[str, ...]) -> str:
    if len(chips) == len(support.CHIPS):
        return "+"
    return chips[0].removeprefix("gfx") if chips else "–"


def prelude() -> str:
    """The values that the examples of the reference use."""
    return "```text\n" + "\n".join(f"{k} = {v}" for k, v in PRELUDE.items()) + "\n```\n"


def elem_table() -> str:
    """Element types."""
    rows = ["| type | bits | NumPy or ml_dtypes |", "|---|---|---|"]
    rows += [f"| `{e.name}` | {e.bits} | `{e.np.name}` |" for e in ELEMS.values()]
    return "\n".join(rows) + "\n"


def accuracy_table() -> str:
    """Bounds of the errors of functions by type."""
    path = ROOT / "tileir/ir/ops/accuracy.json"
    bounds = json.loads(path.read_text(encoding="utf-8"))["bounds"]
    types = list(next(iter(bounds.values())))
    rows = ["| function | " + " | ".join(f"`{t}`" for t in types) + " |", "|---" * (1 + len(types)) + "|"]
    rows += [f"| `{name}` | " + " | ".join(str(by_type[t]) for t in types) + " |" for name, by_type in bounds.items()]
    return "\n".join(rows) + "\n"


COVERAGE = DOCS / "coverage.json"


@cache
def coverage() -> dict[str, Any]:
    """Names of other tile languages, and what of ours does the same, as data."""
    return json.loads(COVERAGE.read_text(encoding="utf-8"))


def covered(entry: dict[str, Any]) -> bool:
    """Whether something of ours does what the name stands for: all of its ops are there, or the language itself does it."""
    ops = entry.get("ops", [])
    return bool(entry.get("language")) or (bool(ops) and all(op in all_ops() for op in ops))


def coverage_table(language: str) -> str:
    """One row per name: our ops, or the reason for the gap."""
    part = coverage()[language]
    entries: dict[str, dict[str, Any]] = part["entries"]
    have = sum(map(covered, entries.values()))
    rows = [f"{len(entries)} {part['about']}, {have} of them covered. Source: {part['source']}.", ""]
    rows += ["| name | here | remark |", "|---|---|---|"]
    for name, entry in entries.items():
        if not covered(entry):
            rows.append(f"| `{name}` | – | {entry['gap']} |")
            continue
        ours = entry.get("language") or ", ".join(f"`{op}`" for op in entry["ops"])
        rows.append(f"| `{name}` | {ours} | {entry.get('note', '')} |")
    return "\n".join(rows) + "\n"


# -- passes --------------------------------------------------------------------------------------------------------


def pass_table() -> str:
    """The steps of the pipeline in order."""
    rows = ["| step | what it does | requires | establishes |", "|---|---|---|---|"]
    for step in pipeline():
        p = step.pass_
        requires, establishes = (", ".join(sorted(x)) or "–" for x in (p.requires, p.establishes))
        rows.append(f"| `{step.label}` | {p.summary} | {requires} | {establishes} |")
    return "\n".join(rows) + "\n"


def form_table() -> str:
    """The normal forms."""
    rows = ["| normal form | meaning |", "|---|---|"]
    rows += [f"| {f.name} | {f.summary} |" for f in forms.FORMS.values()]
    return "\n".join(rows) + "\n"


# -- diagnostics ---------------------------------------------------------------------------------------------------


def timing_parameters() -> str:
    """The parameters of the timing model, one table per section of the file."""
    data = json.loads((DATA_DIRECTORY / FILE_NAME).read_text("utf-8"))
    titles = {
        "cdna": "Compute unit, both chips",
        "memory": "Memory, both chips",
        "gfx942": "gfx942",
        "gfx950": "gfx950",
    }
    parts = [f"Version {data['version']}."]
    for section_name, title in titles.items():
        parts += [
            "",
            f"**{title}**",
            "",
            "| parameter | value | unit | evidence | source and note |",
            "|---|---|---|---|---|",
        ]
        for name, entry in data[section_name].items():
            value = entry["value"]
            shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
            note = f"{entry['source'].replace(' ', ', ')}{': ' + entry['note'] if 'note' in entry else ''}"
            parts.append(f"| `{name}` | {shown} | {entry['unit']} | {entry['evidence']} | {_escape(note)} |")
    parts += ["", "Sources:", "", *[f"* *{key}*: {text}" for key, text in data["sources"].items()]]
    return "\n".join(parts)


def diagnostics_page() -> str:
    """docs/diagnostics.md."""
    codes = catalogue()
    lines = [
        "# Diagnostics",
        "",
        "Generated from `tileir/ir/diagnostic_catalogue.json` by `docs/generate.py`; do not edit.",
        "",
        "Every message has a code, a place, and what would be legal instead. The first letter says how serious it is: `E` stops",
        "the compilation (exit status 1), `W` is a warning, `R` a remark about a decision of the compiler.",
        "",
        "```text",
        "gemm.tile:12:10: error: [E0334] 'mma' of [64, 64] and [32, 64]: the inner dimensions differ",
        "    %d = mma(%a, %b, %c)",
        "                 ^^",
        "  = legal: a [m, k] and b [k, n]",
        "```",
        "",
        f"There are {len(codes)} codes.",
        "",
    ]
    titles = dict(FAMILIES)
    families = sorted({code[1:3] for code in codes})
    for family in families:
        lines += [f"## {titles[family]}", "", "| code | | meaning |", "|---|---|---|"]
        for code, text in sorted(codes.items(), key=lambda item: (item[0][1:], item[0][0])):
            if code[1:3] == family:
                lines.append(f"| {code} | {SEVERITIES[code[0]]} | {_escape(text)} |")
        lines.append("")
    return "\n".join(lines)


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


# -- documents -----------------------------------------------------------------------------------------------------

SECTIONS: dict[str, Callable[[], str]] = {
    "op list": op_list,
    "op reference": op_reference,
    "conversions": conversions,
    "prelude": prelude,
    "element types": elem_table,
    "accuracy": accuracy_table,
    **{f"coverage of {name}": partial(coverage_table, name) for name in ("cuda_tile", "tt", "tl")},
    "passes": pass_table,
    "normal forms": form_table,
    "timing parameters": timing_parameters,
    "matrix instructions": matrix_instructions.table,
}
_MARKED = re.compile(r"(<!-- generated: ([^>]*?) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


@cache
def section(name: str) -> str:
    """The text of a generated section."""
    return SECTIONS[name]()


def documents() -> dict[Path, str]:
    """Every document with generated parts, as it should be."""
    out: dict[Path, str] = {}
    for path in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        if _MARKED.search(text):
            out[path] = _MARKED.sub(lambda m: f"{m[1]}\n{section(m[2])}\n{m[3]}", text)
    out[DOCS / "diagnostics.md"] = diagnostics_page()
    return out


def main() -> int:
    """Writes, or with --check compares."""
    about = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about[0], epilog=about[2], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if a text is out of date")
    options = parser.parse_args()
    status = 0
    for path, text in documents().items():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        print(f"{path.relative_to(ROOT)} {'is out of date' if options.check else 'written'}")
        status = 1 if options.check else 0
        if not options.check:
            path.write_text(text, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
