"""The cost model of layout assignment: prices worked out by hand, and its order against instruction counts of compiled kernels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kernels.harness import CHIPS
from tests.passes.mma_texts import CHAIN, CHAIN_TRANSPOSED, assigned, chain, force, gemm, products
from tileir.frontend import parse
from tileir.ir.core import AttrValue
from tileir.ir.diagnostics import CompileError
from tileir.ir.types import BF16, F32
from tileir.layout import Layout, conversion, mma_layouts
from tileir.lowering.amdgpu.compile import Options, compile_kernel
from tileir.passes.choose_mapping import Problem
from tileir.passes.layout_classes import Classes
from tileir.passes.mfma_choice import Mapping, fragments_of, layouts_of, mappings
from tileir.passes.mma_cost import CostModel, movement, registers_of, run_of_wave
from tileir.simulator.inspect import inspect
from tileir.target import get as get_target


def accumulator(m: int, n: int, grid: tuple[int, int], instr: tuple[int, int, int], swapped: bool = True) -> Layout:
    return mma_layouts(m, n, instr[2], wave_grid=grid, instr=instr, operand_bits=16, swapped=swapped)[2]


ROOT = Path(__file__).resolve().parents[2]


# -- prices by hand ----------------------------------------------------------------------------------------------------


def test_reads_cost_a_clock_per_lane_group() -> None:
    """64 x 64 bf16 of 2 x 2 waves: 32 x 64 a wave are 32 elements a lane, 4 reads of 16 bytes; 4 waves. A read of 16 bytes takes
    4 lane groups on gfx950 (256 bytes a clock) and 8 on gfx942 (128)."""
    for chip, groups in (("gfx950", 4), ("gfx942", 8)):
        instr = (16, 16, 32) if chip == "gfx950" else (16, 16, 16)
        a = layouts_of((64, 64, 64), 16, Mapping(instr, (2, 2), True))[0]
        cost = CostModel(get_target(chip), 4).lds_read(a, BF16)
        assert (cost.lds, cost.vector) == (4 * groups * 4, 4 * 4)


def test_transposing_reads_are_known() -> None:
    """B of A·B, 64 x 64 over 2 columns of waves: 32 elements a lane in 8 reads of 4 elements, 2 groups each, on gfx950; gfx942 would
    read 32 single elements."""
    b = layouts_of((64, 64, 64), 16, Mapping((16, 16, 32), (2, 2), True))[1]
    assert CostModel(get_target("gfx950"), 4).lds_read(b, BF16).lds == 8 * 2 * 4
    b = layouts_of((64, 64, 64), 16, Mapping((16, 16, 16), (2, 2), True))[1]
    assert CostModel(get_target("gfx942"), 4).lds_read(b, BF16).lds == 32 * 2 * 4


def test_padding_is_paid() -> None:
    """80 columns: 5 fragments for one column of waves, 3 each for two."""
    assert fragments_of((128, 80, 64), Mapping((16, 16, 32), (4, 1), True)) == (2, 5, 2)
    assert fragments_of((128, 80, 64), Mapping((16, 16, 32), (2, 2), True)) == (4, 3, 2)
    assert fragments_of((16, 256, 64), Mapping((16, 16, 32), (4, 1), True)) == (1, 16, 2)  # waves that repeat others


@pytest.mark.parametrize(
    ("swapped", "instr", "elem", "requests"),
    [
        (True, (16, 16, 32), BF16, 16),  # a lane 8 bytes, 4 lanes to a run of 32: 16 rows, a request each
        (True, (16, 16, 32), F32, 16),  # a lane 16 bytes, runs of 64
        (True, (32, 32, 16), BF16, 32),  # runs of 16 bytes in 32 rows
        (False, (16, 16, 32), BF16, 4),  # a lane 2 bytes, 16 lanes to a run of 32; four times the accesses
    ],
)
def test_stores_pay_for_every_request(swapped: bool, instr: tuple[int, int, int], elem: object, requests: int) -> None:
    assert elem in (BF16, F32)
    e = BF16 if elem is BF16 else F32
    c = accumulator(64, 64, (2, 2), instr, swapped)
    cost = CostModel(get_target("gfx950"), 4).memory(c, e, 1, 16)
    accesses = 16 // (4 if swapped else 1)  # 16 elements of a lane
    assert cost.memory == accesses * max(4, requests) * 4
    assert run_of_wave(c, 1) == (16 if instr[0] == 16 else 8)


def test_reduction_over_waves_waits() -> None:
    model = CostModel(get_target("gfx950"), 4)
    rows, split = accumulator(64, 64, (4, 1), (16, 16, 32)), accumulator(64, 64, (1, 4), (16, 16, 32))
    inside = model.reduction(rows, 1, F32, rows.reduce(1))
    across = model.reduction(split, 1, F32, split.reduce(1))
    assert inside.sync == inside.lds == 0 and across.sync > 0 and across.lds > 0
    assert inside.total < across.total
    # 16 elements a lane of one row: 15 additions, then 2 exchanges and additions over the 4 lanes of a row
    assert inside.vector == 15 * 4 + 2 * (4 + 20)


def test_registers() -> None:
    assert registers_of(accumulator(256, 256, (2, 4), (16, 16, 32)), F32) == 128
    assert registers_of(accumulator(128, 128, (2, 2), (16, 16, 32)), BF16) == 32


@pytest.mark.parametrize("swapped", [True, False])
def test_movement_agrees_with_tables(swapped: bool) -> None:
    """The answer by ranks is that of `conversion`, which compares whole tables of elements."""
    grids = ((4, 1), (2, 2), (1, 4))
    shapes = ((64, 64), (32, 128), (16, 64), (96, 64))
    for m, n in shapes:
        found = [accumulator(m, n, g, i, s) for g in grids for i in ((16, 16, 32), (32, 32, 16)) for s in (True, False)]
        found += [layouts_of((m, 16, n), 16, Mapping((16, 16, 32), g, swapped))[0] for g in grids]
        for src in found:
            for dst in found:
                kind = conversion(src, dst).kind
                assert movement(src, dst) == ("registers" if kind == "none" else kind), (src, dst)


# -- searching ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [CHAIN, CHAIN_TRANSPOSED], ids=["S = QK", "St = KQt"])
@pytest.mark.parametrize("chip", CHIPS)
def test_search_finds_the_best_of_all(chip: str, form: str) -> None:
    """The bound never cuts off the best choice, nor the best for either product that maps it otherwise."""
    kernel, _ = assigned(chain(form, 64, 32, 32), chip, "place-memory")
    problem = Problem(kernel, get_target(chip), Classes(kernel))
    decision = problem.search(2)
    costs: dict[tuple[Mapping, Mapping], float] = {}
    first, second = problem.products
    for one in mappings(first.op, 2, get_target(chip), tuple(first.producers)):
        for two in mappings(second.op, 2, get_target(chip), tuple(second.producers)):
            try:
                costs[one, two] = problem.evaluate(2, (one, two)).clocks.total
            except ValueError:  # no layout: the accumulator of another instruction is no operand
                continue
    best = decision.best.mappings
    assert decision.best.clocks.total == min(costs.values())
    for i, other in enumerate(decision.others):
        least = min(c for m, c in costs.items() if m[i] != best[i])
        assert other is not None and other.clocks.total == pytest.approx(least)
    assert decision.evaluated < len(costs)


@pytest.mark.parametrize("chip", CHIPS)
def test_few_candidates(chip: str) -> None:
    kernel, _ = assigned(chain(CHAIN, 256, 64, 128), chip, "place-memory")
    problem = Problem(kernel, get_target(chip), Classes(kernel))
    assert all(len(problem.candidates(p, 8)) <= 32 for p in problem.products)


# -- order against compiled code ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A kernel, and other mappings of its products."""

    text: str
    chip: str
    others: tuple[dict[str, AttrValue], ...]


def _instr(chip: str, m: int) -> tuple[int, int, int]:
    return (m, m, {16: 32, 32: 16}[m] if chip == "gfx950" else {16: 16, 32: 8}[m])


def _cases() -> list[Case]:
    found: list[Case] = []
    for chip in CHIPS:
        big: dict[str, AttrValue] = {"instr": _instr(chip, 32)}
        found += [
            Case(gemm(128, 128, 64), chip, (big, {"waves": (1, 4)}, {"waves": (4, 1)})),
            Case(gemm(64, 256, 64), chip, ({"waves": (4, 1)}, {"waves": (2, 2)}, big)),
            Case(gemm(16, 256, 64), chip, ({"waves": (4, 1)}, {"waves": (2, 2)})),
            Case(gemm(128, 80, 64), chip, ({"waves": (2, 2)}, {"waves": (1, 4)})),
            Case(gemm(96, 96, 64, "f16"), chip, ({"waves": (4, 1)}, {"waves": (1, 4)}, big)),
            Case(chain(CHAIN, 64, 32, 64), chip, ({"waves": (2, 2)}, {"waves": (1, 4)})),
        ]
        attention = (ROOT / "examples" / "attention.tile").read_text(encoding="utf-8")
        found.append(Case(attention, chip, ({"waves": (4, 2)}, {"waves": (2, 4)}, big)))
    return found


def static_cost(text: str, chip: str, attrs: dict[str, AttrValue], waves: int) -> float | None:
    """Clocks of one wave for one trip of the hot loop, and the share of the SIMD that its other waves take: MFMAs, 4 clocks for any
    other instruction, and the LDS clocks of all waves. None where the registers do not suffice."""
    module = parse(text, "k.tile")
    count = sum(op.name == "mma" for op in module.kernels[0].walk())
    try:
        code = compile_kernel(force(module, *[dict(attrs)] * count, waves=waves), "", chip, Options())
    except CompileError as e:
        assert e.diagnostics[0].code == "E0863"
        return None
    hot = inspect(code.hsaco).kernels[0].hot_loop
    assert hot is not None
    counts = hot.counts
    per_simd = -(-waves // get_target(chip).simds_per_cu)
    target = get_target(chip)
    rates = {"lds_read": target.lds_read_bytes_per_clock, "lds_transpose_read": target.lds_read_bytes_per_clock}
    rates["lds_write"] = target.lds_write_bytes_per_clock
    lds = sum(
        number * width * target.wave_size / rates[kind]
        for kind, widths in counts.widths.items()
        if kind in rates
        for width, number in widths.items()
    )
    return (counts.mfma_clocks + 4 * counts.non_mfma) * per_simd + lds * waves


TOLERANCE = 1.05


@pytest.mark.nightly
@pytest.mark.parametrize("case", _cases(), ids=lambda c: c.chip)
def test_chosen_mapping_is_cheapest_in_code(case: Case) -> None:
    kernel, _ = assigned(case.text, case.chip)
    waves = kernel.attrs["waves"]
    assert isinstance(waves, int)
    chosen = static_cost(case.text, case.chip, {}, waves)
    assert chosen is not None and products(kernel)
    for attrs in case.others:
        other = static_cost(case.text, case.chip, attrs, waves)
        assert other is None or chosen <= TOLERANCE * other, (attrs, chosen, other)
