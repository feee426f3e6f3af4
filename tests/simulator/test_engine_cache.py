"""The cache of compiled ops: private, atomic, indifferent to damage."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tileir.simulator.cache import ObjectCache, default_directory, digest

VERSION = digest(["v"])
PROGRAM = """
import numpy as np
from tileir.simulator.engine import engine
from tileir.simulator.native.op import Context
from tileir.simulator.native.registry import lower
from tileir.simulator.decoder import Instruction, Operand
v = lambda i: Operand("v", i, 1)
op = lower(Instruction("v_add_f32", "vop2", 4, (v(0), v(1), v(2)), {}, b""), Context("gfx950"))
library = engine()
assert library.addresses({op.key: op.make})[op.key]
print(library.compiled)
"""


def _run(directory: Path) -> int:
    environment = {**os.environ, "TILEIR_CACHE_DIR": str(directory)}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    return int(result.stdout)


def test_second_process_compiles_nothing(tmp_path: Path) -> None:
    assert _run(tmp_path) == 2
    assert _run(tmp_path) == 0


def test_damaged_entries_are_recompiled(tmp_path: Path) -> None:
    assert _run(tmp_path) == 2
    entries = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len(entries) == 2
    entries[0].write_bytes(entries[0].read_bytes()[:-1])
    entries[1].write_bytes(b"")
    assert _run(tmp_path) == 2
    assert _run(tmp_path) == 0


def test_directory_is_private(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "a", VERSION)
    cache.put(digest(["k"]), b"data")
    assert cache.get(digest(["k"])) == b"data"
    assert (tmp_path / "a").stat().st_mode & 0o077 == 0
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert ObjectCache(tmp_path / "open", VERSION).directory is None


def test_unusable_directory_only_costs_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    cache = ObjectCache(tmp_path / "file" / "x", VERSION)
    cache.put(digest(["k"]), b"data")
    assert cache.get(digest(["k"])) is None
    assert ObjectCache(None, VERSION).get("k") is None


def test_keys_do_not_run_together() -> None:
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    assert digest(["a"]) == digest([b"a"])


def test_old_versions_are_removed(tmp_path: Path) -> None:
    for i in range(7):
        folder = ObjectCache(tmp_path, digest([str(i)])).directory
        assert folder is not None
        os.utime(folder, (i, i))
    ObjectCache(tmp_path, digest(["new"]))
    assert {p.name for p in tmp_path.iterdir()} == {digest([x]) for x in ("4", "5", "6", "new")}


def test_location(tmp_path: Path) -> None:
    environment = {**os.environ, "TILEIR_CACHE_DIR": str(tmp_path)}
    code = "from tileir.simulator.cache import default_directory; print(default_directory())"
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == str(tmp_path / "simulator")
    assert default_directory().name == "simulator"
