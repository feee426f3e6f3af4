"""check_written: a read of LDS before everything that could have written what it reads, and no other, is rejected."""

from __future__ import annotations

import pytest

from tests.passes.test_synchronise import wave_kernel
from tileir.ir.core import Kernel, Module
from tileir.ir.diagnostics import CompileError, Log
from tileir.passes.check_written import check_written
from tileir.passes.manager import run_pipeline

FIRST = 10  # line of the body
MAP = (
    "linear(reg = [[0, 1], [0, 2]], lane = [[0, 4], [0, 8], [0, 16], [1, 0], [2, 0], [4, 0]], wave = [[8, 0], [16, 0]])"
)
READ = f"%a = shared_load(%s) : tile<f32[32, 32], {MAP}>"
COPY = "copy_async<bytes = 16>(%A[%z +: 32, %z +: 32], %s)"
ROUND = "for %i = %z to %n step %one {{\n{}\nyield\n}}"
INNER = "for %j = %z to {} step %one {{\n{}\nyield\n}}"
IF = "if {} {{\n{}\nyield\n}}"
RIGHT = {
    "in a row": f"{COPY}\n{READ}",
    "written in a branch": IF.format("%q", COPY) + f"\n{READ}",
    "written in a loop that may not run": ROUND.format(COPY) + f"\n{READ}",
    "read in a later iteration": ROUND.format(f"%p = lt(%one, %i) : i1\n{IF.format('%p', READ)}\n{COPY}"),
    "an inner loop that starts later": ROUND.format(f"{INNER.format('%i', READ)}\n{COPY}"),
    "carried": "%x, %y = for %i = %z to %n step %one carry(%g = %s, %h = %t) {\nshared_store(%c, %h)\nyield %h, %g\n}\n"
    + READ,
}
# The text and the line of the read.
WRONG = {
    "nothing writes it": (READ, 0),
    "written behind it": (f"{READ}\n{COPY}", 0),
    "another buffer": (f"{COPY.replace('%s)', '%t)')}\n{READ}", 1),
    "written later in the iteration": (ROUND.format(f"{READ}\n{COPY}"), 1),
    "a branch that is taken at once or never": (ROUND.format(f"{IF.format('%q', READ)}\n{COPY}"), 2),
    "an inner loop that runs at once or never": (ROUND.format(f"{INNER.format('%n', READ)}\n{COPY}"), 2),
    "the other branch": (f"if %q {{\n{COPY}\nyield\n}} else {{\n{READ}\nyield\n}}", 4),
}


def kernel(body: str) -> Kernel:
    head = "%q = lt(%z, %n) : i1\n%c = fill(%f) : tile<f32[32, 32], " + MAP + ">"
    return wave_kernel("\n".join(f"  {line}" for line in f"{head}\n{body}".split("\n")), attrs=", ordered = true")


@pytest.mark.parametrize("name", RIGHT)
def test_what_may_have_been_written_is_accepted(name: str) -> None:
    check_written(kernel(RIGHT[name]))


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_have_been_written_is_rejected(name: str) -> None:
    body, line = WRONG[name]
    with pytest.raises(CompileError) as caught:
        check_written(kernel(body))
    (d,) = caught.value.diagnostics
    assert d.code == "E1037" and "nothing has written %s" in d.message and d.loc.line == FIRST + 2 + line
    written = COPY in body
    assert ["comes later" in n.message for n in d.notes] == ([True, False] if written else [False])


FRAGMENTS = """%m = register_map() : tile<f32[32, 32], {map}>
%low, %high = split_registers(%c) : fragment<f32[2]>, fragment<f32[2]>
shared_store_fragment<at = 0>(%low, %s, %m)
%d = shared_load_fragment<at = {at}>(%s, %m) : fragment<f32[2]>"""


def test_parts_of_a_buffer_are_told_apart() -> None:
    check_written(kernel(FRAGMENTS.format(map=MAP, at=0)))
    with pytest.raises(CompileError) as caught:
        check_written(kernel(FRAGMENTS.format(map=MAP, at=2)))
    assert "nothing has written 512 elements of what it reads" in caught.value.diagnostics[0].message


def test_the_pipeline_rejects_it() -> None:
    with pytest.raises(CompileError) as caught:
        run_pipeline(Module([kernel(READ)]), "", "gfx950", start_from="synchronise", log=Log())
    assert [d.code for d in caught.value.diagnostics] == ["E1037"]
