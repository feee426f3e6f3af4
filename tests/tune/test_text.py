"""Texts with a schedule: what the author wrote stays."""

from __future__ import annotations

from tileir.frontend import parse
from tileir.tuning.text import with_schedule

FILE = """tileir 1

// adds one
kernel @one<B: int = 256 /* of a workgroup */>(%X: global<f32[N]>) grid(cdiv(N, B)) {
  %i = program_id()
  store(load(%X[%i * B +: B]) + 1.0, %X[%i * B +: B])  // in place
}
""".replace(" /* of a workgroup */", "")
BLOCK = "schedule @tuned of @one for gfx950 when B == 64 {\n  order linear\n}\n"
OTHER = "schedule @old of @one for gfx950 {\n}\n"


def test_a_block_goes_to_the_end_and_defaults_change() -> None:
    out = with_schedule(FILE, "f", "one", BLOCK, "tuned", {"B": 64})
    assert out == FILE.replace("= 256", "= 64") + "\n" + BLOCK
    assert parse(out).schedules[0].applies


def test_a_block_goes_in_front_of_others_of_the_kernel() -> None:
    out = with_schedule(f"{FILE}\n{OTHER}", "f", "one", BLOCK, "tuned", {})
    assert out == f"{FILE}\n{BLOCK}\n{OTHER}"


def test_a_block_replaces_one_of_its_name() -> None:
    before = f"{FILE}\n{OTHER}\nschedule @tuned of @one for gfx950 {{\n}}\n\n// the end\n"
    out = with_schedule(before, "f", "one", BLOCK, "tuned", {})
    assert out == f"{FILE}\n{OTHER}\n{BLOCK}\n// the end\n"
    assert with_schedule(out, "f", "one", BLOCK, "tuned", {}) == out


def test_a_file_without_a_last_line_end() -> None:
    out = with_schedule(FILE.rstrip("\n"), "f", "one", BLOCK, "tuned", {})
    assert out == f"{FILE}\n{BLOCK}"
