"""Bank conflicts of the library's kernels: proved for every LDS access of the final text, and counted from the addresses
that the machine code uses in the simulator, with lane groups written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import CHIPS, DTYPES, device, integers
from tests.kernels.test_gemm_forms import FORMS, NUMPY, OUT, SUM, stored
from tests.passes.lds_tracer import Trace, bytes_of, degree, rule, traced
from tileir import kernels
from tileir.frontend import parse
from tileir.ir.core import Kernel, Module, Op
from tileir.ir.diagnostics import CompileError, Log
from tileir.ir.printer import print_module
from tileir.layout import SharedLayout
from tileir.lowering.amdgpu.compile import Compiled, Options, compile_kernel
from tileir.passes.explain_lds import BufferReport, analyse
from tileir.passes.lds_accesses import FRAGMENTS
from tileir.passes.manager import run_pipeline
from tileir.runtime import launch
from tileir.target import get as get_target

Tile = tuple[int, int, int]
TILES: tuple[Tile, ...] = (
    (64, 64, 32),
    (64, 64, 64),
    (128, 128, 32),
    (128, 128, 64),
    (32, 64, 16),
    (64, 128, 128),
    (256, 256, 64),
)

# Accesses that are not free in any layout that the search knows: (LDS clocks, clocks without a conflict) of each. None.
EXCEPTIONS: dict[tuple[str, str, str, Tile], set[tuple[int, int]]] = {}


def parameters(dtype: str, tile: Tile) -> dict[str, object]:
    return {"T": dtype, "S": SUM[dtype], "O": SUM[dtype], "BM": tile[0], "BN": tile[1], "BK": tile[2]}


@lru_cache(maxsize=64)
def reports(file: str, name: str, chip: str, params: tuple[tuple[str, object], ...]) -> tuple[BufferReport, ...]:
    module = parse(kernels.source(file), f"{file}.tile", dict(params), kernel=name)
    result = run_pipeline(module, name, chip)
    return analyse(result.kernel, result.context.target)


def conflicts(found: tuple[BufferReport, ...]) -> list[tuple[str, int, tuple[int, int]]]:
    """(access, degree, clocks) of everything above degree 1."""
    return [
        (p.access.name, p.degree, (p.clocks, p.free_clocks)) for r in found for p in r.proof.accesses if p.degree > 1
    ]


def fits(dtype: str, tile: Tile, chip: str) -> bool:
    size = (tile[0] + tile[1]) * tile[2] * np.dtype(NUMPY[dtype]).itemsize
    return size <= get_target(chip).lds_bytes and (tile[0] < 256 or dtype == "bf16")


@pytest.mark.parametrize("dtype", list(SUM))
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_every_form_is_free_of_conflicts(chip: str, name: str, dtype: str) -> None:
    """Degree 1 by enumeration, both versions (aligned views, others), without exception but for the named ones."""
    for tile in (t for t in TILES if fits(dtype, t, chip)):
        found = reports("gemm_forms", f"gemm_{name}", chip, tuple(parameters(dtype, tile).items()))
        assert len(found) >= 4 and all(r.proof.accesses for r in found)
        measured = {c for _, _, c in conflicts(found)}
        assert measured == EXCEPTIONS.get((chip, name, dtype, tile), set()), (tile, conflicts(found))


SIZES = (
    *((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128), (256, 256)),
    *((64, 192), (192, 64), (128, 192), (192, 128), (192, 192), (192, 256), (256, 192)),
)


@pytest.mark.nightly
@pytest.mark.parametrize("waves", [4, 8])
@pytest.mark.parametrize("dtype", list(SUM))
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_every_tile_of_every_form_is_free_of_conflicts(chip: str, name: str, dtype: str, waves: int) -> None:
    """All tiles from 64 to 256 with 16 to 128 along k, 4 and 8 waves. What does not fit the chip is rejected with its reason."""
    text = kernels.source("gemm_forms")
    grid = "grid(cdiv(M, BM), cdiv(N, BN))"
    assert grid in text
    checked = 0
    for m, n in SIZES:
        for k in (16, 32, 64, 128):
            params = parameters(dtype, (m, n, k))
            module = parse(text.replace(grid, f"{grid} with(waves = {waves})"), "f.tile", params, kernel=f"gemm_{name}")
            try:
                result = run_pipeline(module, f"gemm_{name}", chip)
            except CompileError as e:
                assert {d.code for d in e.diagnostics} <= {"E0861", "E0863"}, e
                continue
            assert conflicts(analyse(result.kernel, result.context.target)) == [], (m, n, k)
            checked += 1
    assert checked >= 8


ANY = (16, 24, 32, 40, 48, 64, 72, 80, 96, 128, 160, 192, 256)

# Accesses that conflict in tiles of any of these sizes, form by form, with (LDS clocks, clocks without a conflict). None.
ODD: dict[tuple[str, str, str, Tile], set[tuple[int, int]]] = {}


def tiles_of_any_size(step: int, start: int) -> list[Tile]:
    """Every size in every role, with a `step` of 1 every pair of sizes in every pair of roles (a Latin square)."""
    n = len(ANY)
    found: list[Tile] = []
    for i in range(n):
        for j in range(start + i * (step > 1), n, step):
            found.append((ANY[i], ANY[(i + 3 * j + start) % n], ANY[j]))
    return found


def conflicts_of_any_size(chip: str, name: str, dtype: str, tiles: list[Tile]) -> int:
    """How many of the tiles fit the chip; none of them conflicts but for what is named."""
    text, checked = kernels.source("gemm_forms"), 0
    for tile in tiles:
        module = parse(text, "f.tile", parameters(dtype, tile), kernel=f"gemm_{name}")
        try:
            result = run_pipeline(module, f"gemm_{name}", chip, stop_after="layout-lds")
        except CompileError as e:
            assert {d.code for d in e.diagnostics} <= {"E0861", "E0863"}, (tile, e)
            continue
        found = conflicts(analyse(result.kernel, result.context.target))
        assert {c for _, _, c in found} == ODD.get((chip, name, dtype, tile), set()), (tile, found)
        checked += 1
    return checked


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_sizes_that_are_no_power_of_two(chip: str, name: str) -> None:
    """A sample of all rows, columns and values of k; the tiles that large kernels use are among it."""
    large = [(192, 256, 64), (256, 192, 32), (192, 192, 96)]
    sample = [*tiles_of_any_size(len(ANY), 0), *large]
    assert {t[i] for t in sample for i in range(3)} == set(ANY)
    assert conflicts_of_any_size(chip, name, "bf16", sample) >= 10


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", list(SUM))
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_all_sizes(chip: str, name: str, dtype: str) -> None:
    """Every pair of sizes along m, n and k: the layout of an operand depends on its two, and on the waves that all share out."""
    assert conflicts_of_any_size(chip, name, dtype, tiles_of_any_size(1, 0)) >= 40


OTHERS = (
    ("gemm", "gemm", ()),
    ("gemm", "gemm", (("T", "f16"), ("BM", 256), ("BN", 256))),
    ("gemm_batched", "gemm_batched", ()),
    ("gemm_epilogue", "gemm_epilogue", (("ACT", 2),)),
    ("transpose", "transpose", ()),
    ("transpose", "transpose", (("T", "bf16"),)),
    ("transpose", "transpose", (("BM", 32), ("BN", 128))),
    ("softmax", "softmax", (("BM", 1),)),
    ("softmax", "softmax", (("BM", 16), ("BN", 256))),
)


@pytest.mark.parametrize(("file", "name", "params"), OTHERS, ids=str)
@pytest.mark.parametrize("chip", CHIPS)
def test_other_kernels(chip: str, file: str, name: str, params: tuple[tuple[str, object], ...]) -> None:
    found = reports(file, name, chip, params)
    assert any(r.proof.accesses for r in found) or not file.startswith("gemm")
    assert conflicts(found) == []


@pytest.mark.parametrize("name", ["gemm", "attention", "layernorm"])
@pytest.mark.parametrize("chip", CHIPS)
def test_examples(chip: str, name: str, repository: Path) -> None:
    """Attention has every kind of access: direct and element-wise copies, reads along rows and across, exchanges."""
    module = parse((repository / "examples" / f"{name}.tile").read_text(encoding="utf-8"), f"{name}.tile")
    result = run_pipeline(module, "", chip)
    found = analyse(result.kernel, result.context.target)
    assert conflicts(found) == []
    assert found or name == "layernorm"


@pytest.mark.parametrize(("chip", "name", "searches"), [("gfx950", "nt", 2), ("gfx950", "tn", 2), ("gfx942", "nt", 2)])
def test_versions_share_their_layouts(chip: str, name: str, searches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version for views that are not aligned reads as the other does, and its writes never conflict: no search of its own."""
    from tileir.passes import layout_lds

    asked: list[object] = []
    original = layout_lds._choose
    monkeypatch.setattr(layout_lds, "_choose", lambda *args: asked.append(args[:3]) or original(*args))
    module = parse(kernels.source("gemm_forms"), "f.tile", parameters("bf16", (192, 128, 64)), kernel=f"gemm_{name}")
    found = analyse(run_pipeline(module, f"gemm_{name}", chip, stop_after="layout-lds").kernel, get_target(chip))
    assert len(found) == 4 and len(asked) == searches and conflicts(found) == []
    layouts = [str(r.proof.shared) for r in found]
    assert layouts[:2] == layouts[2:]


@pytest.mark.parametrize("dim", [64, 80, 96, 128, 192])
@pytest.mark.parametrize("chip", CHIPS)
def test_attention_of_any_head_dimension(chip: str, dim: int, repository: Path) -> None:
    """K is read along its rows and V across, P goes through LDS where its layout must change."""
    text = (repository / "examples" / "attention.tile").read_text(encoding="utf-8")
    module = parse(text, "attention.tile", {"D": dim, "BM": 128, "BN": 32})
    found = analyse(run_pipeline(module, "", chip, stop_after="layout-lds").kernel, get_target(chip))
    assert len(found) >= 2 and conflicts(found) == []


# -- what the machine code does ----------------------------------------------------------------------------------------


def run_traced(kernel: Compiled, chip: str, arrays: dict[str, Any], name: str) -> Trace:
    d = device(f"simulator:{chip}")
    with traced(d, kernel.hsaco, name) as trace:
        launch(kernel, arrays, d)
    return trace


@cache
def compiled_form(name: str, chip: str, dtype: str, tile: Tile) -> Compiled:
    module = parse(kernels.source("gemm_forms"), "f.tile", parameters(dtype, tile), kernel=f"gemm_{name}")
    return compile_kernel(module, f"gemm_{name}", chip)


def trace_form(kernel: Compiled, name: str, chip: str, dtype: str, tile: Tile, k: int) -> Trace:
    """One tile of C with k terms, and the result checked: a trace of a kernel that computes something else is worth nothing."""
    rng = np.random.default_rng(k)
    a, b = integers(rng, (tile[0], k), NUMPY[dtype]), integers(rng, (k, tile[1]), NUMPY[dtype])
    c = np.zeros((tile[0], tile[1]), NUMPY[SUM[dtype]])
    x, y = stored(name, a, b)
    trace = run_traced(kernel, chip, {"A": x, "B": y, "C": c}, f"gemm_{name}")
    assert np.array_equal(c, (a.astype(np.float64) @ b.astype(np.float64)).astype(c.dtype))
    return trace


@pytest.mark.parametrize("dtype", list(SUM))
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_simulator_counts_no_conflicts(chip: str, name: str, dtype: str) -> None:
    """Aligned and element-wise version; what is executed must agree with what is proved."""
    tile = (64, 64, 64)
    kernel = compiled_form(name, chip, dtype, tile)
    assert kernel.final is not None
    for k in (128, 61):
        trace = trace_form(kernel, name, chip, dtype, tile, k)
        assert trace.count > 0 and len({line for _, line in trace.degrees}) >= 2  # both operands were seen
        assert set(trace.degrees.values()) == {1}, trace.degrees


@pytest.mark.parametrize("tile", [(64, 64, 32), (32, 64, 16)], ids=str)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chip", CHIPS)
def test_simulator_counts_small_i8_tiles(chip: str, name: str, tile: Tile) -> None:
    """Tiles of a half and a quarter of the instruction's k: lanes beyond K read what other lanes read."""
    kernel = compiled_form(name, chip, "i8", tile)
    for k in (96, 61):
        trace = trace_form(kernel, name, chip, "i8", tile, k)
        assert trace.count > 0 and set(trace.degrees.values()) == {1}, trace.degrees


BLOCKS: tuple[tuple[str, str, str, Tile], ...] = (
    ("gfx950", "nt", "bf16", (64, 32, 24)),
    ("gfx950", "tn", "bf16", (96, 192, 40)),
    ("gfx950", "tt", "i8", (80, 48, 96)),
    ("gfx950", "nn", "f32", (32, 72, 40)),
    ("gfx942", "nt", "bf16", (96, 64, 80)),
    ("gfx942", "nn", "f16", (48, 192, 32)),
    ("gfx942", "tn", "f32", (96, 24, 40)),
)


@pytest.mark.parametrize(("chip", "name", "dtype", "tile"), BLOCKS, ids=str)
def test_simulator_counts_blocks_of_columns(chip: str, name: str, dtype: str, tile: Tile) -> None:
    """Rows that are no power of two, filled by direct copies, register writes and element by element, with holes in registers and in
    LDS."""
    kernel = compiled_form(name, chip, dtype, tile)
    assert kernel.final is not None
    assert any(r.proof.shared.kind == "blocks" for r in analyse(kernel.final, get_target(chip)))
    for k in (2 * tile[2], tile[2] - 3):
        trace = trace_form(kernel, name, chip, dtype, tile, k)
        assert trace.count > 0 and set(trace.degrees.values()) == {1}, trace.degrees


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("chip", CHIPS)
def test_simulator_counts_the_transposition(chip: str, dtype: str) -> None:
    """A copy that reads rows and writes columns: wide accesses conflict, so the layout keeps less together. Elements of 16
    bits may be exchanged between lanes instead."""
    module = parse(kernels.source("transpose"), "t.tile", {"T": dtype})
    kernel = compile_kernel(module, "transpose", chip)
    x = np.arange(64 * 128).reshape(64, 128).astype(NUMPY[dtype])
    y = np.zeros((128, 64), NUMPY[dtype])
    trace = run_traced(kernel, chip, {"X": x, "Y": y}, "transpose")
    assert np.array_equal(y, x.T)
    assert trace.count > 0 or dtype == "bf16"
    assert set(trace.degrees.values()) <= {1}, trace.degrees


RESHAPE = """tileir 1

kernel @reshape(%X: global<f32[48, 80]>, %Y: global<f32[60, 64]>) grid(1) with(waves = 4) {
  store(reshape<[60, 64]>(load(%X[0 +: 48, 0 +: 80])), %Y[0 +: 60, 0 +: 64])
}
"""


@pytest.mark.parametrize("chip", CHIPS)
def test_proof_and_counter_agree_on_reads_under_another_shape(chip: str) -> None:
    """Whatever the degrees are, text and machine code must have the same ones."""
    kernel = compile_kernel(parse(RESHAPE, "r.tile"), "", chip)
    assert kernel.final is not None
    loads = [op for op in kernel.final.walk() if op.name == "shared_load"]
    assert any(op.result.tile.shape == (60, 64) for op in loads)
    x = np.arange(48 * 80, dtype=np.float32).reshape(48, 80)
    y = np.zeros((60, 64), np.float32)
    trace = run_traced(kernel, chip, {"X": x, "Y": y}, "reshape")
    assert np.array_equal(y.ravel(), x.ravel())
    proved = {
        p.access.rule.direction: p.degree for r in analyse(kernel.final, get_target(chip)) for p in r.proof.accesses
    }
    counted: dict[str, int] = {}
    for (op, _), d in trace.degrees.items():
        direction = op.split("_")[1].rstrip("2")
        counted[direction] = max(d, counted.get(direction, 0))
    assert counted == proved


# -- cases and mutants -------------------------------------------------------------------------------------------------


def staged(name: str, chip: str, dtype: str, tile: Tile) -> str:
    """The text after layout-lds."""
    module = parse(kernels.source("gemm_forms"), "f.tile", parameters(dtype, tile), kernel=f"gemm_{name}")
    return print_module(Module([run_pipeline(module, f"gemm_{name}", chip, stop_after="layout-lds").kernel]))


def with_layouts(text: str, layout: str) -> str:
    """The text with every buffer in another layout."""
    lines = []
    for line in text.split("\n"):
        if "shared_alloc" in line:
            head, shape = line.split("], ")[0], line
            line = f"{head}], {layout}>" if "], " in shape else line
        lines.append(line)
    return "\n".join(lines)


def resumed(text: str, chip: str) -> Compiled:
    return compile_kernel(parse(text, "s.tile"), "", chip, Options(start_from="allocate-lds"))


@pytest.mark.parametrize("chip", CHIPS)
def test_unswizzled_direct(chip: str) -> None:
    """Case unswizzled-direct: plain rows of 128 bytes; lane l reads 16 bytes of row l % 16 at column 16 · (l / 16). By hand,
    gfx950: lanes 0-3 and 12-15 of a group read column 0 of 8 rows, 64 banks are two rows, so 4 rows share each bank.
    gfx942: lanes 0-3 of a group read column 0 of 4 rows, 32 banks are one row, so all 4 share banks. 4-way both times."""
    dtype, expected = "bf16", 4
    tile = (64, 64, 64)
    chosen = staged("nt", chip, dtype, tile)
    plain = resumed(with_layouts(chosen, "rows"), chip)
    assert plain.final is not None
    counted = trace_form(plain, "nt", chip, dtype, tile, 128)
    reads = {d for (op, _), d in counted.degrees.items() if op == "ds_read_b128"}
    proved = {
        p.degree
        for r in analyse(plain.final, get_target(chip))
        for p in r.proof.accesses
        if p.access.rule.op == "ds_read_b128"
    }
    assert reads == proved == {expected}
    free = trace_form(resumed(chosen, chip), "nt", chip, dtype, tile, 128)
    assert set(free.degrees.values()) == {1}


def test_swizzle_of_the_other_chip_conflicts() -> None:
    """XOR of the 16-byte column with row % 8 is free on gfx942 and not on gfx950 for rows of 256 bytes: the counter, which
    knows neither chip's tables, must see both."""
    degrees = {}
    for chip in CHIPS:
        text = with_layouts(staged("nt", chip, "bf16", (32, 32, 128)), "swizzle(3, 4, 4)")
        trace = trace_form(resumed(text, chip), "nt", chip, "bf16", (32, 32, 128), 128)
        degrees[chip] = max(d for (op, _), d in trace.degrees.items() if op == "ds_read_b128")
    assert degrees == {"gfx942": 1, "gfx950": 2}


def all_reports() -> Iterator[tuple[str, BufferReport]]:
    for chip in CHIPS:
        for dtype in SUM:
            for name in FORMS:
                for tile in ((64, 64, 32), (64, 64, 64)):
                    for r in reports("gemm_forms", f"gemm_{name}", chip, tuple(parameters(dtype, tile).items())):
                        yield chip, r


def test_needless_swizzle() -> None:
    """Case needless-swizzle: wherever plain rows are free, counted by hand, the identity is what was chosen."""
    identity = 0
    for chip, r in all_reports():
        chosen = r.proof.shared
        rows = SharedLayout(chosen.rows, chosen.cols, chosen.elem_bits)
        worst = 0
        for p in r.proof.accesses:
            if p.access.name == "direct write":
                continue
            for addresses in p.access.addresses(rows).tolist():
                used = tuple(a if a >= 0 else None for a in addresses)
                worst = max(worst, degree(chip, p.access.rule.op, used))
        if worst == 1:
            identity += 1
            assert chosen.kind == "rows", (chip, r.name, str(chosen))
        elif r.proof.conflict_free:
            assert chosen.kind != "rows"
    assert identity > 10  # otherwise the case never arose


# -- remarks -----------------------------------------------------------------------------------------------------------


def remarks(text: str, chip: str, code: str, start_from: str | None = None) -> list[Any]:
    log = Log()
    run_pipeline(parse(text, "r.tile", log=log), "", chip, start_from=start_from, log=log)
    return [d for d in log.diagnostics if d.code == code]


def form_text(name: str, dtype: str) -> str:
    text = kernels.source("gemm_forms")
    start = text.index(f"kernel @gemm_{name}<")
    end = text.find("\n}\n", start) + 3
    body = (
        text[start:end]
        .replace("T: type = bf16", f"T: type = {dtype}")
        .replace("S: type = f32", f"S: type = {SUM[dtype]}")
    )
    return "tileir 1\n\n" + body.replace("O: type = bf16", f"O: type = {OUT[dtype]}")


@pytest.mark.parametrize("chip", CHIPS)
def test_silent_scalar(chip: str) -> None:
    """Case silent-scalar: an operand that is read element by element is named with its line; one that is not, is not."""
    text = form_text("nn", "f32")
    (line,) = (i for i, t in enumerate(text.split("\n"), 1) if "%b = load" in t)
    found = remarks(text, chip, "R0802")
    assert found and {d.loc.line for d in found} == {line} and all("ds_read_b32" in d.message for d in found)
    assert remarks(form_text("nt", "f32"), chip, "R0802") == []
    assert remarks(form_text("nt", "bf16"), chip, "R0802") == []


def test_silent_scalar_by_a_written_layout() -> None:
    """A swizzle that an author wrote and that tears the 16 bytes of a lane apart is obeyed, with a remark at the line."""
    module = parse(kernels.source("gemm"), "g.tile", {"BM": 64, "BN": 64})
    laid = print_module(Module([run_pipeline(module, "gemm", "gfx942", stop_after="transposing-reads").kernel]))
    torn = laid.replace("shared<bf16[64, 64]>", "shared<bf16[64, 64], swizzle(3, 1, 6)>")
    assert torn != laid
    found = remarks(torn, "gfx942", "R0802", "layout-lds")
    assert found and all("2 bytes a lane" in d.message and "keeps no more together" in d.message for d in found)
    assert all(d.loc.line for d in found)
    kernel = compile_kernel(parse(torn, "t.tile"), "", "gfx942", Options(start_from="layout-lds"))
    rng = np.random.default_rng(0)
    a, b = integers(rng, (70, 72), DTYPES["bf16"]), integers(rng, (60, 72), DTYPES["bf16"])
    c = np.zeros((70, 60), DTYPES["bf16"])
    launch(kernel, {"A": a, "B": b, "C": c}, device("simulator:gfx942"))
    assert np.array_equal(c, (a.astype(np.float32) @ b.astype(np.float32).T).astype(DTYPES["bf16"]))


# -- the counter itself --------------------------------------------------------------------------------------------------


def test_the_counter_by_hand() -> None:
    """Vectors that can be checked on paper."""
    same = tuple(0 for _ in range(64))
    assert degree("gfx942", "ds_read_b32", same) == 1  # one dword for all
    assert degree("gfx942", "ds_read_b32", tuple(4 * i for i in range(64))) == 1
    assert degree("gfx942", "ds_read_b32", tuple(8 * i for i in range(64))) == 2  # every second bank
    assert degree("gfx942", "ds_read_b32", tuple(128 * i for i in range(64))) == 32
    assert degree("gfx950", "ds_read_b64", tuple(8 * i for i in range(64))) == 1  # 32 lanes of 8 bytes: 64 banks
    assert degree("gfx950", "ds_write_b64", tuple(8 * i for i in range(64))) == 1
    assert degree("gfx942", "ds_read_b128", tuple(16 * i for i in range(64))) == 1
    # lanes 0 and 20 are in one group of gfx942, lanes 0 and 4 are not
    far = [None] * 64
    for lanes, want in (((0, 20), 2), ((0, 4), 1)):
        used: list[int | None] = list(far)
        used[lanes[0]], used[lanes[1]] = 0, 4096
        assert degree("gfx942", "ds_read_b128", tuple(used)) == want
    assert bytes_of("ds_read2st64_b32") == 4 and bytes_of("buffer_load_dwordx4_lds") == 16


@pytest.mark.parametrize("chip", CHIPS)
def test_tables_are_those_written_by_hand(chip: str) -> None:
    """Any change of any lane group or number of banks is noticed here."""
    for access in get_target(chip).lds_accesses:
        banks, groups = rule(chip, access.op)
        assert access.banks == banks and access.bank_bytes == 4, access.op
        assert sorted(map(sorted, access.lane_groups)) == sorted(map(sorted, groups)), access.op
        assert access.bytes_per_lane == bytes_of(access.op) * access.addresses_per_lane, access.op


def test_a_wrong_lane_group_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the compiler's table of lane groups wrong, its layouts would conflict in the independent count."""
    import dataclasses

    from tileir.passes import layout_lds

    chip = "gfx950"
    real = get_target(chip)

    class Wrong:
        """gfx950 with the consecutive-lane groups that one would assume."""

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def lds_access(self, op: str) -> Any:
            rule = real.lds_access(op)
            if op != "ds_read_b128":
                return rule
            return dataclasses.replace(rule, lane_groups=tuple(tuple(range(i, i + 16)) for i in range(0, 64, 16)))

    original = layout_lds._choose
    monkeypatch.setattr(layout_lds, "_choose", lambda s, f, d, n, t: original(s, f, d, n, Wrong()))
    degrees = set()
    for tile in ((64, 64, 32), (64, 64, 64), (64, 64, 128)):
        module = parse(kernels.source("gemm_forms"), "f.tile", parameters("bf16", tile), kernel="gemm_nt")
        kernel = compile_kernel(module, "gemm_nt", chip)
        degrees |= set(trace_form(kernel, "nt", chip, "bf16", tile, 128).degrees.values())
    assert max(degrees) > 1


def test_final_text_is_what_is_analysed() -> None:
    """Buffers of the final text have offsets, and the report shows every access op of the text."""
    module = parse(kernels.source("gemm_forms"), "f.tile", parameters("bf16", (64, 64, 64)), kernel="gemm_tn")
    kernel: Kernel = run_pipeline(module, "gemm_tn", "gfx950").kernel
    found = analyse(kernel, get_target("gfx950"))
    names = {
        "shared_load",
        "shared_load_transposed",
        "shared_store",
        "copy",
        "copy_async",
        "copy_async_part",
        *FRAGMENTS,
    }

    def what(op: Op) -> tuple[str, int]:  # the instructions of one op of the text are reported together
        return FRAGMENTS.get(op.name, op.name), op.loc.line

    assert {what(op) for r in found for op in r.ops} == {what(op) for op in kernel.walk() if op.name in names}
    assert all(r.offset is not None for r in found)
