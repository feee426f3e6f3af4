"""Old texts stay legal: every file of tests/archive is unchanged, parses, verifies, and means what its canonical text means."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from tileir.frontend import parse
from tileir.ir.printer import print_module
from tileir.ir.registry import all_ops
from tileir.ir.verifier import verify

ARCHIVE = Path(__file__).parents[1] / "archive"
FILES = sorted(p.relative_to(ARCHIVE).as_posix() for p in ARCHIVE.rglob("*.tile"))
DIGESTS = ARCHIVE / "SHA256SUMS"
HEAD = re.compile(r"// Archived (\d{4}-\d\d-\d\d), format version (\d+): .+\. Never change this file\.")


def _digests(text: str) -> dict[str, str]:
    """File → digest, as `sha256sum` writes them; a name that stands twice is an error: files do not change."""
    lines = [line.split("  ", 1) for line in text.splitlines()]
    names = [name for _, name in lines]
    assert len(set(names)) == len(names)
    return {name: digest for digest, name in lines}


def test_files_are_only_ever_added() -> None:
    found = {name: hashlib.sha256((ARCHIVE / name).read_bytes()).hexdigest() for name in FILES}
    assert found == _digests(DIGESTS.read_text("utf-8")), "tests/archive/README.md: files are only added, never changed"


@pytest.mark.parametrize("name", FILES)
def test_file_keeps_its_meaning(name: str) -> None:
    text = (ARCHIVE / name).read_text("utf-8")
    head = HEAD.fullmatch(text.splitlines()[0])
    assert head and head[1] == name.split("/")[0]
    module = parse(text, name)
    assert module.kernels
    for kernel in module.kernels:
        verify(kernel)
    canonical = print_module(module)
    assert canonical.startswith(f"tileir {head[2]}\n")
    again = parse(canonical, name)
    assert again == module
    assert print_module(again) == canonical
    for kernel in again.kernels:
        verify(kernel)


def test_archive_has_texts_of_every_stage() -> None:
    assert {name.split("/")[1] for name in FILES} >= {"source", "canonical", "parse", "assign-layouts", "final"}
    ops = parse((ARCHIVE / "2026-11-30/source/ops.tile").read_text("utf-8"))
    names = {k.name.removeprefix("op_") for k in ops.kernels}
    assert names >= {"mma", "mma_scaled", "guard", "atomic_add", "wait", "convert_layout"}
    assert names <= all_ops().keys()
