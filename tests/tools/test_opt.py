"""tileir-opt as a program: what it writes where, and with which exit status."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tileir.codeobject import CodeObject
from tileir.frontend import parse
from tileir.tools import opt
from tileir.tools.common import write_output
from tileir.tools.expectations import mismatches

ADD = """tileir 1
kernel @add<BN: int = 256>(%X: global<f32[N]>, %Y: global<f32[N]>) grid(cdiv(N, BN)) {
  %i = program_id()
  %x = load(%X[%i * BN +: BN])
  store(%x + %x, %Y[%i * BN +: BN])
}
"""
BROKEN = ADD.replace("%x + %x", "%x + %nobody")


@pytest.fixture
def add(tmp_path: Path) -> str:
    path = tmp_path / "add.tile"
    path.write_text(ADD)
    return str(path)


def test_stdout_gets_tile_and_the_suffix_decides_for_files(
    add: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert opt.main([add, "--target", "gfx950"]) == 0
    text = capsysbinary.readouterr().out.decode()
    assert text.startswith("tileir 1\n") and "with(target = gfx950" in text
    assert parse(text, "again.tile").kernels
    for name in ("add.hsaco", "add.s", "add.ll", "add.mlir", "add.tile", "add.json", "add.o"):
        assert opt.main([add, "--target", "gfx950", "-o", str(tmp_path / name)]) == 0, name
    assert CodeObject.from_bytes((tmp_path / "add.hsaco").read_bytes()).chip == "gfx950"
    assert "s_endpgm" in (tmp_path / "add.s").read_text()
    assert "define amdgpu_kernel" in (tmp_path / "add.ll").read_text()
    assert "llvm.func" in (tmp_path / "add.mlir").read_text()
    stats = json.loads((tmp_path / "add.json").read_text())
    assert stats["vgpr_spills"] == 0 and stats["target"] == "gfx950"
    assert (tmp_path / "add.o").read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize("stage", ["add.mlir", "add.ll", "add.s"])
def test_every_later_stage_resumes_to_the_same_machine_code(stage: str, add: str, tmp_path: Path) -> None:
    whole, text, again = (str(tmp_path / n) for n in ("whole.hsaco", stage, "again.hsaco"))
    start = {".mlir": "mlir", ".ll": "llvm", ".s": "asm"}[Path(stage).suffix]
    assert opt.main([add, "--target", "gfx942", "-o", whole]) == 0
    assert opt.main([add, "--target", "gfx942", "-o", text]) == 0
    assert opt.main([text, "--target", "gfx942", "--start-from", start, "-o", again]) == 0
    first, second = (CodeObject.from_bytes(Path(p).read_bytes()) for p in (whole, again))
    assert first.kernels["add"].code == second.kernels["add"].code


def test_output_is_deterministic(add: str, tmp_path: Path) -> None:
    for name in ("a.hsaco", "b.hsaco", "a.tile", "b.tile"):
        assert opt.main([add, "--target", "gfx950", "-o", str(tmp_path / name)]) == 0
    for kind in ("hsaco", "tile"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_errors_are_rendered_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "broken.tile", tmp_path / "out.hsaco"
    source.write_text(BROKEN)
    target.write_bytes(b"precious")
    assert opt.main([str(source), "--target", "gfx950", "-o", str(target)]) == 1
    captured = capsys.readouterr()
    assert f"{source}:5:14: error: [E0203]" in captured.err and "^^^^^^^" in captured.err
    assert captured.out == "" and target.read_bytes() == b"precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken.tile", "out.hsaco"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a file"),
        (["nowhere.tile"], "cannot read 'nowhere.tile'"),
        (["{add}", "-D", "BN"], "-D wants NAME=VALUE"),
        (["{add}", "-D", "BN=1", "-D", "BN=2"], "given twice"),
        (["{add}", "--print-after", "nothing"], "there is no pass 'nothing'"),
        (["{add}", "--stop-after", "simplify", "--emit", "asm"], "leaves tile IR"),
        (["{add}", "--stop-after", "parse", "--start-from", "simplify"], "has no meaning"),
        (["{add}", "--start-from", "asm"], "needs --target"),
        (["{add}", "--start-from", "asm", "--target", "gfx950", "-D", "A=1"], "belong to tile IR"),
        (["{add}", "--start-from", "asm", "--target", "gfx950", "--emit", "mlir"], "comes before"),
        (["{add}", "--target", "gfx950", "-o", "/nowhere/at/all.tile"], "cannot write '/nowhere/at/all.tile'"),
    ],
)
def test_usage_errors(arguments: list[str], message: str, add: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert opt.main([a.replace("{add}", add) for a in arguments]) == 2
    err = capsys.readouterr().err
    assert message in err and "--help" in err and "Traceback" not in err


def test_a_fault_of_our_own_is_no_traceback(
    add: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(opt, "_compile", broken)
    monkeypatch.delenv("TILEIR_TRACEBACK", raising=False)
    assert opt.main([add, "--target", "gfx950"]) == 3
    err = capsys.readouterr().err
    assert "internal error [E0900]: KeyError: 'lost' (test_opt.py:" in err and "please report" in err
    assert "Traceback" not in err


def test_standard_input_and_formatting(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(ADD.encode())))
    assert opt.main(["-", "--stop-after", "parse", "-D", "BN=64"]) == 0
    out = capsysbinary.readouterr().out.decode()
    assert "kernel @add<BN = 64>" in out and "with(" not in out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe\x00")))
    assert opt.main(["-", "--stop-after", "parse"]) == 1
    assert b"<stdin>:" in capsysbinary.readouterr().err


def test_print_after(add: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert opt.main([add, "--target", "gfx950", "--print-after", "simplify", "-o", os.devnull, "--emit", "tile"]) == 0
    err = capsys.readouterr().err
    assert err.count("// ---- after ") == 1 and "// ---- after simplify\n" in err
    assert opt.main([add, "--target", "gfx950", "--print-after-all", "-o", os.devnull, "--emit", "tile"]) == 0
    err = capsys.readouterr().err
    assert "// ---- after specialise\n" in err and "// ---- after synchronise\n" in err


def test_several_kernels_are_all_passed(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "two.tile"
    path.write_text(ADD + ADD.replace("tileir 1\n", "").replace("@add", "@second"))
    assert opt.main([str(path), "--target", "gfx950"]) == 0
    out = capsysbinary.readouterr().out.decode()
    assert "kernel @add" in out and "kernel @second" in out
    assert opt.main([str(path), "--target", "gfx950", "--emit", "stats"]) == 1
    assert b"holds 2 kernels" in capsysbinary.readouterr().err


def test_files_are_replaced_as_a_whole_with_ordinary_rights(tmp_path: Path) -> None:
    target = tmp_path / "out"
    write_output(str(target), b"one")
    write_output(str(target), "two")
    assert target.read_text() == "two" and [p.name for p in tmp_path.iterdir()] == ["out"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask


def test_expectations() -> None:
    from tileir.ir.diagnostics import Diagnostic
    from tileir.ir.location import Loc

    source = "tileir 1\n%x  // error: [E0203] not\n// warning@-1: careful  \n%y // error: a // error: b\n"

    def at(line: int, text: str, severity: str = "error", code: str = "E0203") -> Diagnostic:
        return Diagnostic(code, text, Loc("f", line, 1, line, 2), severity)

    right = [at(2, "not defined"), at(2, "careful!", "warning"), at(4, "b"), at(4, "a")]
    assert mismatches(source, "f", right) == []
    assert mismatches(source, "f", right[1:]) == ["f:2: expected error was not given: [E0203] not"]
    assert mismatches(source, "f", [*right, at(3, "more")]) == ["f:3:1: unexpected error: [E0203] more"]
    assert mismatches("tileir 1\n", "f", [at(1, "ignored", "warning")]) == []


@pytest.mark.parametrize(
    ("to", "what"), [("/dev/full", "No space left on device"), ("&-", "standard output is closed")]
)
def test_output_that_cannot_be_written_is_a_wrong_usage(to: str, what: str, add: str) -> None:
    if to.startswith("/") and not Path(to).exists():
        pytest.skip(f"there is no {to}")
    command = f'"{sys.executable}" -m tileir.tools.opt "{add}" --stop-after parse >{to}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and what in done.stderr and "internal error" not in done.stderr
