"""Loops that the text writes instruction by instruction: the code has their order, and every kind of damage to it is seen."""

from __future__ import annotations

import itertools

import pytest

from tests.kernels.attention import source
from tests.kernels.harness import CHIPS, compiled, scheduled_gemm
from tests.lowering.test_contract import final, patched
from tileir.ir.core import Kernel, Op
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.lowering.amdgpu.compile import Compiled
from tileir.lowering.amdgpu.contract import check
from tileir.lowering.amdgpu.contract_order import scheduled_loops, slots
from tileir.simulator.inspect import inspect

S_NOP = (0xBF800000).to_bytes(4, "little")


def gemm(chip: str, pattern: str = "interleave", waves: str = "2 x 4") -> Compiled:
    return scheduled_gemm(chip, waves, (128, 128, 64), extra=f"  loop %k pattern {pattern}\n")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("pattern", "waves"), [("interleave", "2 x 2"), ("interleave", "2 x 4"), ("ping_pong", "2 x 4")]
)
def test_the_code_has_the_order_of_the_text(chip: str, pattern: str, waves: str) -> None:
    compiled = gemm(chip, pattern, waves)
    kernel = final(compiled)
    (loop,) = scheduled_loops(kernel)
    assert len(slots(loop, True)) > 8
    assert check(compiled.hsaco, kernel) == []


def exchanged(data: bytes, first: str, second: str) -> bytes:
    """Two neighbours of the hot loop of the same size, of which one is of one kind and the next of the other, exchanged."""
    kernel = inspect(data).kernel
    assert kernel.hot_loop is not None
    items = kernel.flow.items_of(kernel.hot_loop.blocks)
    for a, b in itertools.pairwise(items):
        if a.name.startswith(first) and b.name.startswith(second) and a.size == b.size:
            raw = {a.address: b.raw, b.address: a.raw}
            return patched(data, lambda item, raw=raw: raw.get(item.address))
    raise AssertionError("no such neighbours")


@pytest.mark.parametrize("chip", CHIPS)
def test_a_read_in_another_slot_is_seen(chip: str) -> None:
    """A matrix instruction changes places with the read behind it, across the fence before the read."""
    compiled = gemm(chip)
    (found,) = check(exchanged(compiled.hsaco, "v_mfma", "ds_read"), final(compiled))
    assert found.code == "W0909" and "read of LDS" in found.message and found.loc.line > 4


@pytest.mark.parametrize("name", ["ds_read_b128", "buffer_load_dwordx4"])
def test_a_missing_instruction_is_seen(name: str) -> None:
    compiled = gemm("gfx950")
    seen: list[int] = []

    def drop(item: object) -> bytes | None:
        if seen or getattr(item, "name") != name:  # noqa: B009
            return None
        seen.append(1)
        return S_NOP * 2

    codes = {d.code for d in check(patched(compiled.hsaco, drop), final(compiled))}
    assert "W0909" in codes


def moved(kernel: Kernel, name: str, number: int) -> Kernel:
    """The text with an op of that name in its scheduled loop one slot later."""
    (loop,) = scheduled_loops(kernel)
    op = [o for o in loop.regions[0].ops if o.name == name][number]
    waiting: list[Op] = []

    def rule(rw: Rewriter, o: Op) -> bool:
        if o is op:
            waiting.append(o)
            return True
        if waiting and o.name == "schedule_fence":
            rw.copy(o)
            rw.copy(waiting.pop())
            return True
        return False

    return rewrite(kernel, rule)


def test_another_order_in_the_text_is_seen() -> None:
    """The code is as it was; the text says that a copy comes one slot later."""
    compiled = gemm("gfx950")
    (found,) = check(compiled.hsaco, moved(final(compiled), "copy_async_part", 1))
    assert found.code == "W0909" and "direct copy" in found.message


def test_a_weaker_wait_is_seen() -> None:
    """Every counted wait for copies allows one more."""
    compiled = gemm("gfx950")
    kernel = inspect(compiled.hsaco).kernel
    assert kernel.hot_loop is not None

    def weaken(item: object) -> bytes | None:
        if "vmcnt(" not in getattr(item, "text"):  # noqa: B009
            return None
        word = int.from_bytes(getattr(item, "raw"), "little")  # noqa: B009
        return (word + 1).to_bytes(4, "little")

    codes = {d.code for d in check(patched(compiled.hsaco, weaken), final(compiled))}
    assert codes == {"W0905"}


# Loops that compute between their products: guards in them, of which LLVM moves the region out of the way


def attention(name: str, chip: str) -> Compiled:
    params = (("D", 64),) if chip == "gfx950" else (("AWAY", True),)
    return compiled(source(name), chip, params)


@pytest.mark.parametrize(
    ("name", "chip"),
    [("attention_prescaled", "gfx950"), pytest.param("attention_lazy", "gfx942", marks=pytest.mark.nightly)],
)
def test_a_woven_loop_with_guards_has_the_order_of_the_text(name: str, chip: str) -> None:
    """And every kind of damage to it is seen: by exchange in the code, and by texts that say something else."""
    made = attention(name, chip)
    kernel = final(made)
    (loop,) = scheduled_loops(kernel)
    guards = [op for op in loop.regions[0].ops if op.name == "guard"]
    assert guards and len(slots(loop, True)) > 40
    assert check(made.hsaco, kernel) == []
    hot = inspect(made.hsaco).kernel.hot_loop
    assert hot is not None
    items = inspect(made.hsaco).kernel.flow.items_of(hot.blocks)
    read = next(i for i in items if i.name.startswith("ds_read"))
    product = [i for i in items if i.name.startswith("v_mfma") and i.address > read.address][2]
    raw = {read.address: product.raw, product.address: read.raw}
    assert "W0909" in {d.code for d in check(patched(made.hsaco, lambda item: raw.get(item.address)), kernel)}
    for op, number in (("shared_load_fragment", 1), ("mfma", 3)):
        assert {d.code for d in check(made.hsaco, moved(kernel, op, number))} == {"W0909"}
