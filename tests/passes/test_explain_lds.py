"""`--explain-lds`: what it says agrees with the text it explains, and with numbers that can be checked by hand."""

from __future__ import annotations

import re

import pytest

from tileir import kernels
from tileir.frontend import parse
from tileir.ir.core import Kernel
from tileir.ir.diagnostics import CompileError
from tileir.ir.types import SharedType
from tileir.passes.explain_lds import analyse, explain
from tileir.passes.manager import run_pipeline
from tileir.target import get as get_target
from tileir.tools.opt import main

CHIPS = ("gfx942", "gfx950")
BUFFER = re.compile(r"^%(\w+), line (\d+): (\w+)\[([\d, ]+)\] as (.+), (\d+) bytes at offset (\d+)$")

ROWS = "[[1, 0], [2, 0], [4, 0], [8, 0], [16, 0], [32, 0]]"
COLUMNS = "[[0, 1], [0, 2], [0, 4], [0, 8], [0, 16], [0, 32]]"
# One wave writes single dwords along rows of 64 and reads 4 columns of a row at once.
EXCHANGE = f"""tileir 1

kernel @exchange(%X: global<f32[64, 64]>, %Y: global<f32[64, 64]>) grid(1) with(target = CHIP, waves = 1) {{
  %x = load<bytes = 4, via = global>(%X[0 +: 64, 0 +: 64]) : tile<f32[64, 64], linear(reg = {ROWS}, lane = {COLUMNS}, wave = [])>
  %s = shared_alloc() : shared<f32[64, 64]LAYOUT>
  shared_store(%x, %s)
  %y = shared_load(%s) : tile<f32[64, 64], linear(reg = {COLUMNS}, lane = {ROWS}, wave = [])>
  store<bytes = 4, via = global>(%y, %Y[0 +: 64, 0 +: 64])
}}
"""


def exchange(layout: str, chip: str = "gfx942") -> Kernel:
    return parse(EXCHANGE.replace("LAYOUT", f", {layout}" if layout else "").replace("CHIP", chip), "x.tile").kernels[0]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", ["gemm", "gemm_batched", "gemm_epilogue", "transpose", "softmax"])
def test_every_buffer_of_the_text_is_reported(chip: str, name: str) -> None:
    kernel = run_pipeline(parse(kernels.source(name), f"{name}.tile"), "", chip).kernel
    found = [m.groups() for line in explain(kernel, get_target(chip)).split("\n") if (m := BUFFER.match(line))]
    wanted = []
    for op in kernel.walk():
        if op.name == "shared_alloc":
            t = op.result.type
            assert isinstance(t, SharedType) and t.layout is not None
            shape = ", ".join(map(str, t.shape))
            wanted.append(
                (op.result.name, str(op.loc.line), t.elem.name, shape, str(t.layout), str(t.layout.size_bytes))
            )
            assert found[len(wanted) - 1][6] == str(op.attrs["offset"])
    assert [f[:6] for f in found] == wanted


def test_headline_counts() -> None:
    text = kernels.source("gemm") + "schedule @s of @gemm for gfx950 {\n  loop %k pattern plain\n}\n"
    kernel = run_pipeline(parse(text, "gemm.tile"), "gemm", "gfx950").kernel
    head = explain(kernel, get_target("gfx950")).split("\n")[0]
    assert head == "kernel gemm on gfx950: 4 LDS buffers, 32768 of 163840 bytes; of 8 accesses none conflicts"


def test_without_lds() -> None:
    kernel = run_pipeline(parse(kernels.source("vector_add"), "v.tile"), "", "gfx942").kernel
    assert explain(kernel, get_target("gfx942")) == "kernel vector_add on gfx942 uses no LDS\n"


@pytest.mark.parametrize(
    ("layout", "write", "read"),
    [
        # Rows of 256 bytes begin in one bank: 8 lanes of a group in 8 rows share 4 banks. Writing is along rows: free.
        ("rows", 1, 8),
        # 16 bytes more per row move the next row by 4 banks: 8 lanes on 32 banks.
        ("padded(272)", 1, 1),
        # 4 bytes more: only single dwords stay aligned, 32 lanes in 32 rows on 32 banks.
        ("padded(260)", 1, 1),
        # 16-byte columns XORed with row % 8.
        ("swizzle(3, 4, 4)", 1, 1),
    ],
)
def test_degrees_by_hand(layout: str, write: int, read: int) -> None:
    (report,) = analyse(exchange(layout), get_target("gfx942"))
    assert [p.degree for p in report.proof.accesses] == [write, read]
    assert report.offset is None and report.name == "s"
    width = 4 if layout == "padded(260)" else 16
    assert report.proof.accesses[1].access.rule.bytes_per_lane == width


def test_clocks_by_hand() -> None:
    """64 rows of 256 bytes by 64 lanes of 16 bytes: 16 instructions of 8 groups, each 8 clocks instead of 1."""
    (report,) = analyse(exchange("rows"), get_target("gfx942"))
    assert [(p.clocks, p.free_clocks) for p in report.proof.accesses] == [(128, 128), (1024, 128)]
    text = explain(exchange("rows"), get_target("gfx942"))
    assert "of 2 accesses 1 conflicts" in text
    assert "ds_read_b128, degree 8 – 1024 clocks instead of 128; 32 banks, lane groups measured" in text
    assert "ds_write_b32, degree 1; 32 banks, lane groups assumed" in text


def test_full_report_is_the_proof() -> None:
    """Every access with every lane of an instruction, at the address that the layout gives by hand, and with ranks."""
    text = explain(exchange("rows"), get_target("gfx942"), full=True)
    read = text[text.index("read at line 7") :]
    lanes = {int(a): (int(b), c) for a, b, c in re.findall(r"lane (\d+) at (\d+) banks ([\d-]+)", read)}
    assert lanes == {lane: (lane * 256, "0-3") for lane in range(64)}  # row l, column 0
    assert "rank 5 in all, rank 2 on the bank bits, degree 2^3 = 8" in read
    padded = explain(exchange("padded(272)"), get_target("gfx942"), full=True)
    assert "not linear over GF(2) in the lane number; the enumeration is the proof" in padded


def test_a_buffer_without_layout_is_an_error() -> None:
    with pytest.raises(CompileError) as e:
        explain(exchange(""), get_target("gfx942"))
    (d,) = e.value.diagnostics
    assert d.code == "E0802" and d.loc.line == 5 and d.legal


def test_lanes_without_an_element_read_one_of_another_lane() -> None:
    """A tile of 3 columns in a layout of 4: the lane that holds the hole, column 3 = 0b11, reads column 1."""
    text = (
        "tileir 1\n\nkernel @k(%Y: global<f32[16, 3]>) grid(1) with(target = gfx942, waves = 1) {\n"
        "  %s = shared_alloc() : shared<f32[16, 3], rows>\n"
        "  %y = shared_load(%s) : "
        "tile<f32[16, 3], linear(reg = [], lane = [[0, 1], [0, 2], [1, 0], [2, 0], [4, 0], [8, 0]], wave = [])>\n"
        "  store<bytes = 4, via = global>(%y, %Y[0 +: 16, 0 +: 3])\n}\n"
    )
    (report,) = analyse(parse(text, "h.tile").kernels[0], get_target("gfx942"))
    (proof,) = report.proof.accesses
    assert proof.addresses.tolist() == [[lane // 4 * 12 + (0, 4, 8, 4)[lane % 4] for lane in range(64)]]
    assert proof.degree == 1  # 32 lanes read 24 dwords, which are consecutive


def test_command_line(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "gemm.tile"
    file.write_text(kernels.source("gemm"))
    assert main([str(file), "--target", "gfx942", "--explain-lds"]) == 0
    short = capsys.readouterr().out
    final = run_pipeline(parse(kernels.source("gemm"), "gemm.tile"), "gemm", "gfx942").kernel
    count = sum(op.name == "shared_alloc" for op in final.walk())
    assert count >= 2  # how many stages of %a and %b there are, a model of the loop chooses
    assert short.startswith(f"kernel gemm on gfx942: {count} LDS buffers") and "rank:" not in short
    assert main([str(file), "--target", "gfx942", "--explain-lds=full"]) == 0
    full = capsys.readouterr().out
    assert "rank:" in full and set(short.split("\n")) <= set(full.split("\n"))
    assert main([str(file), "--target", "gfx942", "--explain-lds", "--emit", "asm"]) == 2
    assert "--explain-lds" in capsys.readouterr().err
    forms = tmp_path / "forms.tile"
    forms.write_text(kernels.source("gemm_forms"))
    assert main([str(forms), "--target", "gfx950", "--explain-lds"]) == 0
    assert capsys.readouterr().out.count("\nkernel ") == 3  # four kernels, the first at the start
