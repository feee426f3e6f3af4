"""The way of operands that are loaded before the loop of their products: straight to registers, through LDS, or again in each pass."""

from __future__ import annotations

import pytest

from tests.passes.mma_texts import CHAIN, chain
from tileir.frontend import parse
from tileir.ir.core import Kernel, Op
from tileir.ir.diagnostics import CompileError, Log
from tileir.ir.printer import print_module
from tileir.passes.explain_layouts import explain
from tileir.passes.manager import run_pipeline
from tileir.target import get


def placed(text: str, chip: str) -> tuple[Kernel, list[str]]:
    """The kernel after `assign-layouts`, and its remarks about held operands."""
    log = Log()
    kernel = run_pipeline(parse(text, "k.tile"), "", chip, stop_after="assign-layouts", log=log).kernel
    return kernel, [d.message for d in log.diagnostics if d.code == "R0812"]


def loads_of(kernel: Kernel, view: str, name: str = "load") -> list[tuple[Op, bool]]:
    """The ops of a name that read a view, and whether a loop holds them."""
    inside = {op for loop in kernel.walk() if loop.name == "for" for op in loop.walk()}
    return [(op, op in inside) for op in kernel.walk() if op.name == name and op.operands[0].name == view]


CHIPS = ("gfx942", "gfx950")


@pytest.mark.parametrize("chip", CHIPS)
def test_what_no_two_waves_share_goes_straight_to_registers(chip: str) -> None:
    kernel, remarks = placed(chain(CHAIN, 128, 64, 64), chip)
    fast, slow = loads_of(kernel, "Q")[0], loads_of(kernel, "Q", "copy")
    assert fast[0].attrs["stage"] == "none" and not fast[1]
    assert len(slow) == 1  # element by element, LDS is cheaper: neighbours lie in neighbouring lanes
    assert len(remarks) == 1 and "straight to registers" in remarks[0]


SHARED = """tileir 1
kernel @k(%Q: global<bf16[NQ, 64]>, %K: global<bf16[NK, 64]>, %S: global<bf16[NQ, NK]>) grid(cdiv(NQ, 64)) with(waves = 8) {
  %i = program_id()
  %q = load(%Q[%i * 64 +: 64, 0 +: 64])
  for %j = 0 to NK step 256 {
    %k = load(%K[%j +: 256, 0 +: 64])
    %s = mma<waves = [1, 8]>(%q, transpose(%k))
    store(convert<bf16>(%s), %S[%i * 64 +: 64, %j +: 256])
  }
}
"""


@pytest.mark.parametrize("chip", CHIPS)
def test_what_many_waves_share_passes_through_lds(chip: str) -> None:
    kernel, remarks = placed(SHARED, chip)
    assert not any(op.attrs.get("stage") == "none" for op in kernel.walk())
    assert "through LDS" in remarks[0]
    table = explain(run_pipeline(parse(SHARED, "k.tile"), "", chip, stop_after="place-memory").kernel, get(chip))
    block = table.split("\n\n")[-1].splitlines()
    assert (
        block[0].startswith("line 4: %q")
        and block[2].startswith("*")
        and block[2].endswith("through LDS, held in registers")
    )


def test_a_stated_stage_is_kept() -> None:
    text = chain(CHAIN, 128, 64, 64).replace("%q = load(", "%q = load<stage = via_registers>(")
    kernel, remarks = placed(text, "gfx950")
    assert not remarks and not any(op.attrs.get("stage") == "none" for op in kernel.walk())
    straight = SHARED.replace("%q = load(", "%q = load<stage = none>(")
    kernel, remarks = placed(straight, "gfx950")
    assert not remarks and all(op.attrs["stage"] == "none" for op, _ in loads_of(kernel, "Q"))


def test_what_lds_has_no_room_for_does_not_pass_through_it() -> None:
    """Eight waves share Q, but it takes the 64 KiB of LDS twice."""
    big = SHARED.replace("[NQ, 64]", "[NQ, 512]").replace("[NK, 64]", "[NK, 512]").replace("0 +: 64", "0 +: 512")
    big = big.replace("step 256", "step 32").replace("%j +: 256", "%j +: 32").replace("[1, 8]", "[8, 1]")
    kernel, remarks = placed(big.replace("64 +: 64", "128 +: 128"), "gfx942")
    assert {op.attrs["stage"] for op, _ in loads_of(kernel, "Q")} == {"none"}
    assert len(loads_of(kernel, "Q")) == 2 and "LDS" not in remarks[0].replace("past LDS", "")


@pytest.mark.parametrize("chip", CHIPS)
def test_what_registers_have_no_room_for_comes_in_each_pass(chip: str) -> None:
    """O takes 128 registers of 256, Q would take 64, S and the fragments the rest."""
    kernel, remarks = placed(chain(CHAIN, 256, 64, 256), chip)
    loads = loads_of(kernel, "Q")
    assert len(loads) == 2 and all(inside and op.attrs["stage"] == "none" for op, inside in loads)
    assert "loaded again in each pass, past LDS" in remarks[0]


def test_registers_have_no_room_but_lds_has() -> None:
    """O takes 128 registers of 256, Q would take 56; its 112 KiB stay in LDS and are read in each pass."""
    text = chain(CHAIN, 256, 32, 256)
    for view, n in (("Q", "NQ"), ("K", "NK")):
        text = text.replace(f"%{view}: global<bf16[{n}, 256]>", f"%{view}: global<bf16[{n}, 224]>")
    text = text.replace("%t * 256 +: 256, 0 +: 256])\n  %zero", "%t * 256 +: 256, 0 +: 224])\n  %zero")
    text = text.replace("%K[%j +: 32, 0 +: 256]", "%K[%j +: 32, 0 +: 224]")
    kernel, remarks = placed(text, "gfx950")
    assert "read from LDS in each pass" in remarks[0], remarks
    assert not loads_of(kernel, "Q")
    reads = {
        op.operands[0].name for op in kernel.walk() if op.name == "shared_load" and op.result.tile.shape == (256, 224)
    }
    assert reads == {"sq", "sq_0"}


@pytest.mark.parametrize("chip", CHIPS)
def test_the_text_can_be_resumed_and_loops_may_not_load_operands_unasked(chip: str) -> None:
    kernel, _ = placed(chain(CHAIN, 256, 64, 256), chip)
    module = parse(chain(CHAIN, 256, 64, 256), "k.tile")
    module.kernels[:] = [kernel]
    text = print_module(module)
    again = parse(text, "k.tile")
    run_pipeline(again, "", chip, start_from="simplify-2")
    with pytest.raises(CompileError) as caught:
        run_pipeline(parse(text.replace(", stage = none", ""), "k.tile"), "", chip, start_from="simplify-2")
    (found,) = caught.value.diagnostics
    assert (
        found.code == "E1001"
        and "'placed'" in found.message
        and "straight from global memory" in found.notes[0].message
    )
