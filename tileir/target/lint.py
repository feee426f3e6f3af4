"""Check that every hardware number has a source and an evidence class: `python -m tileir.target.lint [DIRECTORY]`.

Rules for the data files: every number stands in (or below) an object with `source` and `evidence`; every cited source
is listed in `sources`, every listed source is cited; `evidence` is a known class; no key is stated twice, neither in
one object nor by a chip and the file it extends. Rule for the Python modules beside them: no numeric literal other
than 0, 1 and 2 (indices and halving), because any other number is a fact that belongs in the data. Exit status 1 if a
rule is broken.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from tileir.target.load import CHIPS, DATA_DIRECTORY
from tileir.target.model import EVIDENCE_CLASSES
from tileir.target.timing import FILE_NAME, SHARED_SECTIONS

HARMLESS_LITERALS = (0, 1, 2)

Json = dict[str, Any]


def _is_number(node: Any) -> bool:
    return isinstance(node, (int, float)) and not isinstance(node, bool)


def _walk(node: Any, path: str, covered: bool, sources: frozenset[str], cited: set[str]) -> Iterator[str]:
    if isinstance(node, dict):
        entry = cast(Json, node)
        if "source" in entry or "evidence" in entry:
            covered = True
            keys = str(entry.get("source", "")).split()
            cited.update(keys)
            if not keys:
                covered = False
                yield f"{path}: no source"
            for key in keys:
                if key not in sources:
                    covered = False
                    yield f"{path}: source '{key}' is not listed in 'sources'"
            if entry.get("evidence") not in EVIDENCE_CLASSES:
                covered = False
                yield f"{path}: evidence must be one of {', '.join(EVIDENCE_CLASSES)}, not {entry.get('evidence')!r}"
        elif "value" in entry:
            yield f"{path}: a value without source and evidence"
        for key, child in entry.items():
            yield from _walk(child, f"{path}.{key}" if path else key, covered, sources, cited)
    elif isinstance(node, list):
        for index, child in enumerate(cast(list[Any], node)):
            label = child.get("name") or child.get("op") if isinstance(child, dict) else None  # pyright: ignore
            yield from _walk(child, f"{path}[{label or index}]", covered, sources, cited)
    elif _is_number(node) and not covered:
        yield f"{path}: number {node} without source and evidence"


def _read(file: Path, findings: list[str]) -> Json:
    def unique(pairs: list[tuple[str, Any]]) -> Json:
        result: Json = {}
        for key, value in pairs:
            if key in result:
                findings.append(f"{file.name}: key '{key}' stands twice in one object")
            result[key] = value
        return result

    return cast(Json, json.loads(file.read_text("utf-8"), object_pairs_hook=unique))


def lint_data(directory: Path) -> list[str]:
    """Findings about the data files of `directory`, each `FILE: PATH: message`; empty when all rules hold."""
    findings: list[str] = []
    raw: dict[str, Json] = {}
    for chip in CHIPS:
        raw[chip] = _read(directory / f"{chip}.json", findings)
        base = str(raw[chip]["extends"])
        if base not in raw:
            raw[base] = _read(directory / f"{base}.json", findings)
    cited_anywhere: set[str] = set()
    for name, data in raw.items():
        base_data = raw.get(str(data.get("extends", "")), {})
        sources = frozenset(data["sources"]) | frozenset(base_data.get("sources", {}))
        body = {key: value for key, value in data.items() if key != "sources"}
        findings += [f"{name}.json: {text}" for text in _walk(body, "", False, sources, cited_anywhere)]
        for section in sorted(set(data) & set(base_data)):
            for key in sorted(set(data[section]) & set(base_data[section])):
                findings.append(f"{name}.json: {section}.{key}: also stated in {data['extends']}.json")
    for name, data in raw.items():
        for key in data["sources"]:
            if key not in cited_anywhere:
                findings.append(f"{name}.json: sources.{key}: cited by no fact")
    return findings + _lint_timing(directory)


def _lint_timing(directory: Path) -> list[str]:
    """The parameters of the timing model obey the same rules, and no name stands in two sections of one chip."""
    findings: list[str] = []
    data = _read(directory / FILE_NAME, findings)
    cited: set[str] = set()
    sections = {key: section for key, section in data.items() if key not in ("sources", "version")}
    findings += [f"{FILE_NAME}: {text}" for text in _walk(sections, "", False, frozenset(data["sources"]), cited)]
    for chip in CHIPS:
        for name in sorted(name for shared in SHARED_SECTIONS for name in set(data[shared]) & set(data[chip])):
            findings.append(f"{FILE_NAME}: {chip}.{name}: also stated in a shared section")
    findings += [f"{FILE_NAME}: sources.{key}: cited by no fact" for key in data["sources"] if key not in cited]
    return findings


def lint_python(directory: Path) -> list[str]:
    """Findings about numeric literals in the Python modules of `directory`, each `FILE:LINE: message`."""
    findings: list[str] = []
    for file in sorted(directory.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and _is_number(node.value) and node.value not in HARMLESS_LITERALS:
                findings.append(
                    f"{file.name}:{node.lineno}: literal {node.value!r}: a hardware number belongs in the data"
                )
    return findings


def lint(directory: Path = DATA_DIRECTORY) -> list[str]:
    """All findings about `directory`; empty when every rule holds."""
    return lint_data(directory) + lint_python(directory)


def main(arguments: list[str]) -> int:
    """Print the findings; 0 if there are none, otherwise 1."""
    findings = lint(Path(arguments[0]) if arguments else DATA_DIRECTORY)
    for finding in findings:
        print(finding)
    print(f"target lint: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
