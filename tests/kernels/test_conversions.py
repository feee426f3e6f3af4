"""Changes of register layouts and reductions, from wave-level text to machine code, in the interpreter and the simulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.kernels.harness import CHIPS, device, library
from tests.layout.pairs import layouts_of, pairs
from tileir.codeobject import CodeObject
from tileir.frontend import parse
from tileir.interpreter import run
from tileir.ir.core import Module, Op
from tileir.ir.diagnostics import CompileError
from tileir.ir.printer import print_module
from tileir.layout import Layout, mfma_accumulator, mfma_operand
from tileir.lowering.amdgpu.compile import Compiled, Options, compile_kernel
from tileir.passes import lane_code, lower_conversions
from tileir.runtime import launch
from tileir.simulator.decoder import disassemble

TYPES: dict[str, Any] = {
    "i8": np.int8,
    "i16": np.int16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}
INSIDE = ("swap_lanes", "shuffle_lanes", "select_registers")
Case = tuple[Layout, Layout, str]


def text_of(cases: Sequence[Case], chip: str) -> str:
    """A kernel that loads each tile in its first layout, converts it, and stores it from the second."""
    args: list[str] = []
    body: list[str] = ["%z = constant<0>() : i32"]
    for i, (src, dst, elem) in enumerate(cases):
        dims, spans = ", ".join(map(str, src.shape)), ", ".join(f"%z +: {n}" for n in src.shape)
        args += [f"%A{i}: global<{elem}[{dims}]>", f"%B{i}: global<{elem}[{dims}]>"]
        access = f"<bytes = {np.dtype(TYPES[elem]).itemsize}, via = global>"
        body += [
            f"%x{i} = load{access}(%A{i}[{spans}]) : tile<{elem}[{dims}], {src}>",
            f"%y{i} = convert_layout(%x{i}) : tile<{elem}[{dims}], {dst}>",
            f"store{access}(%y{i}, %B{i}[{spans}])",
        ]
    waves = cases[0][0].num_waves
    head = f"kernel @k({', '.join(args)}) grid(1) with(target = {chip}, waves = {waves})"
    return "tileir 1\n" + head + " {\n  " + "\n  ".join(body) + "\n}\n"


def converted(cases: Sequence[Case], chip: str) -> Compiled:
    """The kernel, compiled and checked against its input in the interpreter, after every pass, and in the simulator."""
    text = text_of(cases, chip)
    options = Options(start_from="lower-conversions", verify_each="run")
    compiled = compile_kernel(parse(text, "k.tile"), "", chip, options)
    arrays: dict[str, Any] = {}
    for i, (src, _, elem) in enumerate(cases):
        tile = np.arange(1, 1 + int(np.prod(src.shape))).reshape(src.shape)
        arrays[f"A{i}"] = (tile * 7919 % 251 if np.dtype(TYPES[elem]).itemsize < 4 else tile).astype(TYPES[elem])
    assert compiled.final is not None
    for execute in (
        lambda a: run(compiled.final, a),  # type: ignore[arg-type]
        lambda a: launch(compiled, a, device(f"simulator:{chip}")),
    ):
        out = {f"B{i}": np.zeros(src.shape, TYPES[elem]) for i, (src, _, elem) in enumerate(cases)}
        execute({**arrays, **out})
        for i, case in enumerate(cases):
            assert np.array_equal(out[f"B{i}"], arrays[f"A{i}"]), case
    return compiled


@st.composite
def cases(draw: st.DrawFn, count: int) -> list[Case]:
    waves = draw(st.integers(0, 2))
    return [(*draw(pairs(waves)), draw(st.sampled_from(list(TYPES)))) for _ in range(count)]


@pytest.mark.parametrize("chip", CHIPS)
@settings(max_examples=2, phases=[Phase.generate])
@given(cases(5), st.booleans())
def test_random_conversions(chip: str, drawn: list[Case], always_inside: bool) -> None:
    check_conversions(chip, drawn, always_inside)


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@settings(max_examples=100, phases=[Phase.generate])
@given(cases(6), st.booleans())
def test_many_random_conversions(chip: str, drawn: list[Case], always_inside: bool) -> None:
    check_conversions(chip, drawn, always_inside)


def check_conversions(chip: str, drawn: list[Case], always_inside: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if always_inside:
            patch.setattr(lower_conversions, "exchange_clocks", lambda *a: 1 << 40)
        converted(drawn, chip)


def mnemonics(compiled: Compiled) -> Counter[str]:
    """Instructions of the code object by name; DPP forms end in _dpp."""
    (kernel,) = CodeObject.from_bytes(compiled.hsaco).kernels.values()
    return Counter(
        name if name.endswith("_dpp") or "row_" not in i.text else name + "_dpp"
        for _, i in disassemble(compiled.target, kernel.code)
        for name in [i.text.split()[0]]
    )


def example(name: str, chip: str, **params: object) -> Compiled:
    text = (Path(__file__).parents[2] / "examples" / f"{name}.tile").read_text(encoding="utf-8")
    return compile_kernel(parse(text, f"{name}.tile", dict(params)), "", chip)


def steps(compiled: Compiled) -> list[Op]:
    assert compiled.final is not None
    return [op for op in compiled.final.walk() if op.name in INSIDE]


ACCUMULATOR = mfma_accumulator(16, 16, bits=32).transpose((1, 0)).repeat((1, 2))
OPERAND = mfma_operand(16, 32, bits=16)
LINE = [[1 << j] for j in range(6)]


@pytest.mark.parametrize("chip", CHIPS)
def test_accumulator_to_operand_in_machine_code(chip: str) -> None:
    """What the text says is what is emitted: 4 swaps on gfx950; 4 exchanges by lane number on gfx942; no LDS memory."""
    compiled = converted([(ACCUMULATOR, OPERAND, "bf16")], chip)
    found = mnemonics(compiled)
    assert compiled.stats["lds_bytes"] == 0 and not found["s_barrier"] and not found["ds_write_b16"]
    if chip == "gfx950":
        assert [(op.attrs["register"], op.attrs["lane"], op.attrs["via"]) for op in steps(compiled)] == [
            (2, 5, "permlane_swap"),
            (2, 4, "permlane_swap"),
        ]
        assert (found["v_permlane32_swap_b32_e32"], found["v_permlane16_swap_b32_e32"]) == (2, 2)
    else:
        assert found["ds_bpermute_b32"] == 4
        without = mnemonics(converted([(OPERAND, OPERAND, "bf16")], chip))  # loads and stores have selects of their own
        selects = [n["v_cndmask_b32_e32"] + n["v_cndmask_b32_e64"] for n in (found, without)]
        assert selects[0] - selects[1] == 8


@pytest.mark.parametrize("chip", CHIPS)
def test_moves_of_a_row_in_machine_code(chip: str) -> None:
    """Lane bits 0 and 1 exchanged: one quad_perm. Lane bit 2 swapped with a register: two shifts of rows."""
    quad = (Layout.from_bases((64,), [], LINE, []), Layout.from_bases((64,), [], [LINE[1], LINE[0], *LINE[2:]], []))
    swap = (
        Layout.from_bases((128,), [[64]], LINE, []),
        Layout.from_bases((128,), [LINE[2]], [*LINE[:2], [64], *LINE[3:]], []),
    )
    found = mnemonics(converted([(*quad, "f32"), (*swap, "f32")], chip))
    assert found["v_mov_b32_dpp"] == 3 and not any(name.startswith("ds_") for name in found)


@pytest.mark.parametrize("chip", CHIPS)
def test_lds_where_it_is_cheaper_or_the_only_way(chip: str) -> None:
    """A transposition of 64 x 64 in one wave; a conversion that takes elements to another wave."""
    rows = Layout.from_bases((64, 64), [[x, 0] for (x,) in LINE], [[0, x] for (x,) in LINE], [])
    across = (Layout.from_bases((128,), [], LINE, [[64]]), Layout.from_bases((128,), [], [*LINE[:5], [64]], [[32]]))
    for case, why in (
        ((rows, rows.transpose((1, 0)), "f32"), "inside waves"),
        ((*across, "f32"), "elements move between waves"),
    ):
        compiled = converted([case], chip)
        assert not steps(compiled) and compiled.stats["lds_bytes"]
        (remark,) = [d for d in compiled.log.diagnostics if d.code.startswith("R05")]
        assert remark.code == "R0502" and why in remark.message


def test_swaps_in_the_wrong_order_do_not_type_check() -> None:
    compiled = converted([(ACCUMULATOR, OPERAND, "bf16")], "gfx950")
    assert compiled.final is not None
    text = print_module(Module([compiled.final]))
    parse(text, "final.tile")
    turned = text.replace("lane = 5,", "lane = 9,").replace("lane = 4,", "lane = 5,").replace("lane = 9,", "lane = 4,")
    with pytest.raises(CompileError, match="E0304"):
        parse(turned, "final.tile")


@pytest.mark.parametrize("change", ["lane", "register", "half"])
def test_wrong_instructions_are_seen(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code that swaps another lane bit, another register bit, or only some registers, does not pass the checks."""
    right = lane_code.swap

    def wrong(m: Any, words: Any, shape: Any, register: int, lane: int, via: str, target: Any) -> Any:
        if change == "lane":
            return right(m, words, shape, register, lane ^ 1, via, target)
        if change == "register":
            return right(m, words, shape, register - 1, lane, via, target)
        return [*right(m, words, shape, register, lane, via, target)[:-1], words[-1]]

    case = (ACCUMULATOR, OPERAND, "bf16")
    converted([case], "gfx950")
    monkeypatch.setattr(lane_code, "swap", wrong)
    with pytest.raises(AssertionError):
        converted([case], "gfx950")


# -- reductions ----------------------------------------------------------------------------------------------------------

KINDS = ("add", "max", "min", "mul")
REDUCED = {**TYPES, "i32": np.int32, "i64": np.int64, "f16": np.float16}


Reduction = tuple[Layout, int, str, str]


def straight(layout: Layout) -> bool:
    """Whether every bit moves along one dimension by a power of two: reductions ask for it."""
    vectors = (*layout.reg, *layout.lane, *layout.wave)
    return all(sum(x > 0 for x in v) <= 1 and all(x & x - 1 == 0 for x in v) for v in vectors)


@st.composite
def reductions(draw: st.DrawFn, count: int) -> list[Reduction]:
    """(layout, axis, kind, element) for tiles of one number of waves."""
    waves = draw(st.integers(0, 1))
    out: list[Reduction] = []
    while len(out) < count:
        shape = draw(st.sampled_from([(64,), (16, 16), (32, 16), (16, 64), (48, 16), (3, 64), (33, 5), (96, 24)]))
        layout = draw(layouts_of(shape, waves).filter(straight))
        axis = draw(st.integers(0, len(shape) - 1))
        out.append((layout, axis, draw(st.sampled_from(KINDS)), draw(st.sampled_from(list(REDUCED)))))
    return out


@pytest.mark.parametrize("chip", CHIPS)
@settings(max_examples=2, phases=[Phase.generate])
@given(reductions(5), st.integers(0, 2**32 - 1))
def test_random_reductions(chip: str, drawn: list[Reduction], seed: int) -> None:
    check_reductions(chip, drawn, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@settings(max_examples=100, phases=[Phase.generate])
@given(reductions(6), st.integers(0, 2**32 - 1))
def test_many_random_reductions(chip: str, drawn: list[Reduction], seed: int) -> None:
    check_reductions(chip, drawn, seed)


def exact(x: Any, kind: str, axis: int, elem: str) -> Any:
    """The reduction in Python's integers, wrapped to the element."""
    t = np.dtype(REDUCED[elem])
    f = {"add": np.sum, "mul": np.prod, "max": np.max, "min": np.min}[kind]
    whole = f(x.astype(object), axis=axis, keepdims=True)
    if elem.startswith("i"):
        return np.array(whole & ((1 << 8 * t.itemsize) - 1), dtype=np.uint64).astype(t)
    return whole.astype(np.float64).astype(t)


def check_reductions(chip: str, drawn: list[Reduction], seed: int) -> None:
    """Besides the result, every lane that holds an element along the axis stores its copy of it: all must have the same bits.
    Sums of small integers and products of a few twos are exact in any order."""
    rng = np.random.default_rng(seed)
    args: list[str] = []
    body = ["%z = constant<0>() : i32"]
    arrays: dict[str, Any] = {}
    expected: dict[str, Any] = {}
    for i, (layout, axis, kind, elem) in enumerate(drawn):
        t = REDUCED[elem]
        small = tuple(1 if d == axis else n for d, n in enumerate(layout.shape))
        dims, kept = (", ".join(map(str, shape)) for shape in (layout.shape, small))
        spans, result = (", ".join(f"%z +: {n}" for n in shape) for shape in (layout.shape, small))
        access = f"<bytes = {np.dtype(t).itemsize}, via = global>"
        args += [f"%A{i}: global<{elem}[{dims}]>", f"%B{i}: global<{elem}[{kept}]>", f"%C{i}: global<{elem}[{dims}]>"]
        body += [
            f"%x{i} = load{access}(%A{i}[{spans}]) : tile<{elem}[{dims}], {layout}>",
            f"%y{i} = reduce_{kind}(%x{i}, axis = {axis}) : tile<{elem}[{kept}], {layout.reduce(axis)}>",
            f"store{access}(%y{i}, %B{i}[{result}])",
            f"%w{i} = broadcast<[{dims}]>(%y{i}) : tile<{elem}[{dims}], {layout}>",
            f"store{access}(%w{i}, %C{i}[{spans}])",
        ]
        x = rng.integers(-3, 4, layout.shape)
        if kind == "mul":
            x = rng.choice([-1, 1], layout.shape) * np.where(rng.random(layout.shape) < 0.05, 2, 1)
        arrays[f"A{i}"] = x.astype(t)
        arrays[f"B{i}"], arrays[f"C{i}"] = np.zeros(small, t), np.zeros(layout.shape, t)
        expected[f"B{i}"] = exact(x, kind, axis, elem)
        expected[f"C{i}"] = np.broadcast_to(expected[f"B{i}"], layout.shape)
    head = f"kernel @k({', '.join(args)}) grid(1) with(target = {chip}, waves = {drawn[0][0].num_waves})"
    text = "tileir 1\n" + head + " {\n  " + "\n  ".join(body) + "\n}\n"
    compiled = compile_kernel(parse(text, "k.tile"), "", chip, Options(start_from="lower-conversions"))
    launch(compiled, arrays, device(f"simulator:{chip}"))
    for name, want in expected.items():
        assert np.array_equal(arrays[name], want), (name, drawn[int(name[1:])])


def reduced_by_machine(layout: Layout, chip: str) -> Counter[str]:
    """Instructions of a kernel that sums the rows of a tile of rank 2, after checking its result."""
    rows, columns = layout.shape
    text = f"""tileir 1
kernel @k(%A: global<f32[{rows}, {columns}]>, %B: global<f32[{rows}, 1]>) grid(1) with(target = {chip}, waves = 1) {{
  %z = constant<0>() : i32
  %x = load<bytes = 4, via = global>(%A[%z +: {rows}, %z +: {columns}]) : tile<f32[{rows}, {columns}], {layout}>
  %y = reduce_add(%x, axis = 1) : tile<f32[{rows}, 1], {layout.reduce(1)}>
  store<bytes = 4, via = global>(%y, %B[%z +: {rows}, %z +: 1])
}}
"""
    compiled = compile_kernel(parse(text, "k.tile"), "", chip, Options(start_from="lower-conversions"))
    a = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    b = np.zeros((rows, 1), np.float32)
    launch(compiled, {"A": a, "B": b}, device(f"simulator:{chip}"))
    assert np.array_equal(b, a.sum(axis=1, keepdims=True))
    assert compiled.stats["lds_bytes"] == 0
    return mnemonics(compiled)


ROWS = [[1, 0], [2, 0], [4, 0], [8, 0]]


@pytest.mark.parametrize("chip", CHIPS)
def test_rows_of_an_accumulator_are_reduced_without_lds_memory(chip: str) -> None:
    """Columns lie in lane bits 4 and 5: two permlane swaps on gfx950, one exchange each by ds_swizzle and ds_bpermute on gfx942."""
    found = reduced_by_machine(Layout.from_bases((16, 16), [[0, 1], [0, 2]], [*ROWS, [0, 4], [0, 8]], []), chip)
    if chip == "gfx950":
        assert found["v_permlane16_swap_b32_e32"] == found["v_permlane32_swap_b32_e32"] == 1
        assert not any(name.startswith("ds_") for name in found)
    else:
        assert found["ds_swizzle_b32"] == found["ds_bpermute_b32"] == 1


@pytest.mark.parametrize(("registers", "swaps"), [(2, (1, 2)), (3, (2, 3)), (4, (2, 4))])
def test_permlane_swaps_reduce_two_values_at_a_time(registers: int, swaps: tuple[int, int]) -> None:
    """2 values: one swap of halves, one of quarters, one back; 4 values: 2 + 1, then 1 + 2 back. Of 3 the last goes alone."""
    reps = (3, 1) if registers == 3 else (1, 1)
    reg = [[16, 0], [32, 0]][: registers // 2] if registers != 3 else []
    layout = Layout.from_bases((16 * registers, 4), reg, [*ROWS, [0, 1], [0, 2]], [], reps)
    found = reduced_by_machine(layout, "gfx950")
    assert (found["v_permlane16_swap_b32_e32"], found["v_permlane32_swap_b32_e32"]) == swaps


@pytest.mark.parametrize("chip", CHIPS)
def test_a_whole_wave_is_reduced_by_dpp_and_its_last_lane(chip: str) -> None:
    found = reduced_by_machine(Layout.from_bases((1, 64), [], [[0, x] for (x,) in LINE], []), chip)
    assert not any(name.startswith(("ds_", "v_permlane")) for name in found)
    assert sum(n for name, n in found.items() if name.endswith("_dpp")) == 6 and found["v_readlane_b32"] == 1


@pytest.mark.parametrize("chip", CHIPS)
def test_softmax_and_layernorm_reduce_rows_in_a_wave_without_lds(chip: str) -> None:
    """Their rows lie in one wave each."""
    for kernel in (library("softmax", chip), example("layernorm", chip, D=1024)):
        assert kernel.stats["lds_bytes"] == 0
        assert not any(name.startswith("ds_") or name == "s_barrier" for name in mnemonics(kernel))


def test_attention_reduces_scores_by_permlane_swaps() -> None:
    found = mnemonics(example("attention", "gfx950", BM=64, BN=32, D=64))
    assert found["v_permlane32_swap_b32_e32"] and not found["ds_bpermute_b32"] and not found["ds_swizzle_b32"]


@pytest.mark.parametrize("chip", CHIPS)
def test_masks_and_reshapes_stay_in_the_wave(chip: str) -> None:
    """A tile of i1 travels as i8; a reshape to a layout that moves elements is one in place and a conversion."""
    src = Layout.from_bases((16, 16), [[0, 1], [0, 2]], [*ROWS, [0, 4], [0, 8]], [])
    dst = Layout.from_bases((16, 16), [[0, 4], [0, 1]], [*ROWS, [0, 2], [0, 8]], [])
    flat = Layout.from_bases((256,), [[64], [128]], LINE, [])
    text = f"""tileir 1
kernel @k(%A: global<f32[16, 16]>, %B: global<f32[16, 16]>, %C: global<f32[256]>) grid(1) with(target = {chip}, waves = 1) {{
  %z = constant<0>() : i32
  %zero = fill(0.0) : tile<f32[16, 16], {src}>
  %x = load<bytes = 4, via = global>(%A[%z +: 16, %z +: 16]) : tile<f32[16, 16], {src}>
  %m = lt(%x, %zero) : tile<i1[16, 16], {src}>
  %n = convert_layout(%m) : tile<i1[16, 16], {dst}>
  %y = convert<f32>(%n) : tile<f32[16, 16], {dst}>
  store<bytes = 4, via = global>(%y, %B[%z +: 16, %z +: 16])
  %f = reshape<[256]>(%x) : tile<f32[256], {flat}>
  store<bytes = 4, via = global>(%f, %C[%z +: 256])
}}
"""
    options = Options(start_from="lower-conversions", verify_each="run")
    compiled = compile_kernel(parse(text, "k.tile"), "", chip, options)
    assert steps(compiled) and compiled.stats["lds_bytes"] == 0
    a = np.random.default_rng(5).standard_normal((16, 16)).astype(np.float32)
    b, c = np.zeros((16, 16), np.float32), np.zeros(256, np.float32)
    launch(compiled, {"A": a, "B": b, "C": c}, device(f"simulator:{chip}"))
    assert np.array_equal(b, (a < 0).astype(np.float32)) and np.array_equal(c, a.reshape(256))
