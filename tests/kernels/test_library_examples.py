"""Kernels that are examples as well as entries of the library: one text, whose results test_attention.py and test_layernorm.py check."""

from __future__ import annotations

from pathlib import Path

import pytest

from tileir import kernels

EXAMPLES = {"attention": "attention.tile", "layer_norm": "layernorm.tile"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_library_has_the_text_of_the_example(repository: Path, name: str) -> None:
    assert kernels.source(name) == (repository / "examples" / EXAMPLES[name]).read_text(encoding="utf-8")


def test_every_text_is_short() -> None:
    """A file of the library can be read at once: fewer than 100 lines, or 50 for each of its kernels; none longer than 140 characters."""
    for name in kernels.names():
        lines = kernels.source(name).splitlines()
        count = sum(line.startswith("kernel @") for line in lines)
        assert len(lines) < max(100, 50 * count) and max(map(len, lines)) <= 140, name
