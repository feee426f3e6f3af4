"""The command line of `tileir-inspect`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kernels.harness import library
from tileir.tools.inspect import main


@pytest.fixture
def hsaco(tmp_path: Path) -> Path:
    file = tmp_path / "gemm.hsaco"
    file.write_bytes(library("gemm", "gfx950").hsaco)
    return file


def test_table(hsaco: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(hsaco)]) == 0
    out = capsys.readouterr()
    assert out.out.startswith("gfx950, code object v5")
    assert "kernel gemm" in out.out and "hot loop" in out.out and "v_mfma_f32_" in out.out
    assert out.err == ""


def test_json_to_standard_output_replaces_the_table(hsaco: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(hsaco), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"][0]["name"] == "gemm"


def test_files_besides_the_table(hsaco: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, data = tmp_path / "k.html", tmp_path / "k.json"
    assert main([str(hsaco), "--html", str(page), "--json", str(data)]) == 0
    assert "hot loop" in capsys.readouterr().out
    assert page.read_text().startswith("<!DOCTYPE html>") and "gemm.hsaco" in page.read_text()
    assert json.loads(data.read_text())["chip"] == "gfx950"


def test_listing(hsaco: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(hsaco), "--listing"]) == 0
    out = capsys.readouterr().out
    assert "+ loop" in out and "s_endpgm" in out and "; kernel.tile:" in out


def test_lds_at_launch(hsaco: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(hsaco), "--lds", "0x10000"]) == 0
    assert "+ 65536 at launch" in capsys.readouterr().out


def test_standard_input(hsaco: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with hsaco.open("rb") as stream:
        monkeypatch.setattr("sys.stdin", type("Input", (), {"buffer": stream})())
        assert main(["-"]) == 0
    assert "kernel gemm" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"text, not code\n", b"\x7fELF" + bytes(60)])
def test_malformed_file(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.hsaco"
    file.write_bytes(content)
    assert main([str(file)]) == 1
    out = capsys.readouterr()
    assert out.out == "" and out.err.startswith(f"{file}: byte 0x") and ": error: " in out.err
    assert "Traceback" not in out.err and out.err.count("\n") == 1


def test_damaged_code_is_located(hsaco: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tileir.codeobject import CodeObject

    data = bytearray(hsaco.read_bytes())
    kernel = CodeObject.from_bytes(bytes(data)).kernels["gemm"]
    data[kernel.code_offset : kernel.code_offset + 4] = b"\xff\xff\xff\xff"
    hsaco.write_bytes(data)
    assert main([str(hsaco)]) == 1
    place = (
        f"{hsaco}: byte {kernel.code_offset:#x} (address {kernel.entry_address:#x}): error: kernel 'gemm': bytes ff ff"
    )
    assert capsys.readouterr().err.startswith(place)


def test_unknown_kernel_names_those_there_are(hsaco: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(hsaco), "-k", "nothing"]) == 1
    assert "no kernel 'nothing'; the code object has: gemm" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["{file}", "--json", "-", "--html", "-"], "only one of"),
        (["{file}", "--json", "-", "--listing"], "only one of"),
        (["{folder}/missing.hsaco"], "cannot read"),
        (["{folder}"], "cannot read"),
        (["{file}", "--json", "{folder}/no/such/place.json"], "cannot write"),
    ],
)
def test_wrong_usage(
    arguments: list[str], message: str, hsaco: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [a.format(file=hsaco, folder=tmp_path) for a in arguments]
    assert main(given) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("size", ["-1", "many", ""])
def test_wrong_size(size: str, hsaco: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([str(hsaco), "--lds", size])
    assert left.value.code == 2
    assert "is no number of bytes" in capsys.readouterr().err


def test_inspecting_loads_neither_numpy_nor_llvm(hsaco: Path, repository: Path) -> None:
    import subprocess
    import sys

    script = (
        "import sys; from tileir.tools.inspect import main; main([sys.argv[1]]); "
        "print(sorted({'numpy', 'llvmlite', 'mlir', 'lark'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(hsaco)], cwd=repository, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr.strip() == "[]"
