"""Reports of whole code objects: ours, clang's and Triton's, against llvm-objdump and what LLVM says of itself."""

from __future__ import annotations

import html.parser
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from inspect_assembly import CHIPS, assemble, report
from inspect_objdump import listing, loops, number

from tests.kernels.harness import library, scheduled_gemm
from tileir.frontend import parse
from tileir.lowering.amdgpu.compile import Compiled, Options, compile_kernel
from tileir.simulator.inspect import InspectError, as_html, as_json, as_listing, as_table, inspect

LIBRARY = ("vector_add", "softmax", "transpose", "gemm")


def example(chip: str, repository: Path) -> Compiled:
    text = (repository / "examples" / "gemm.tile").read_text()
    return compile_kernel(parse(text, "gemm.tile"), "gemm", chip)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", LIBRARY)
def test_counts_agree_with_objdump(name: str, chip: str, llvm_tool: Callable[[str], str], tmp_path: Path) -> None:
    data = library(name, chip).hsaco
    kernel = inspect(data).kernel
    lines = listing(llvm_tool("llvm-objdump"), data, chip, tmp_path)
    reached = {i.address for i in kernel.flow.items_of([b.number for b in kernel.flow.blocks if b.reachable])}
    lines = [line for line in lines if line.address in reached]
    c = kernel.counts
    assert c.instructions == len(lines)
    assert c.mfma_count == number(lines, r"v_(mfma|smfmac)")
    assert c.classes["lds_read"] == number(lines, "ds_read")
    assert c.classes["lds_write"] == number(lines, "ds_write")
    assert c.classes["wait"] == number(lines, "s_waitcnt")
    assert c.classes["barrier"] == number(lines, "s_barrier")
    assert c.classes["nop"] == number(lines, "s_nop")
    assert c.classes["smem"] == number(lines, "s_(load|buffer_load|dcache)")
    assert c.classes["branch"] == number(lines, "s_c?branch")
    to_lds = [line for line in lines if line.operands.endswith(" lds") or "_load_lds_" in line.name]
    assert c.classes["direct_to_lds"] == len(to_lds)
    assert c.classes["load"] == number(lines, "(buffer|global|flat)_load") - len(to_lds)
    assert c.classes["store"] == number(lines, "(buffer|global|flat)_store")
    slow = number(lines, r"v_(exp|log|rcp|rsq|sqrt|sin|cos)(_iflag|_legacy)?_f")
    assert c.classes["transcendental"] == slow
    assert c.classes["valu"] == number(lines, "v_") - slow - c.mfma_count
    assert c.accumulator_moves == number(lines, "v_accvgpr")
    waits = [line.operands for line in lines if line.name == "s_waitcnt"]
    assert c.waits == {text: waits.count(text) for text in sorted(set(waits))}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", LIBRARY)
def test_loops_are_those_that_branches_close(
    name: str, chip: str, llvm_tool: Callable[[str], str], tmp_path: Path
) -> None:
    data = library(name, chip).hsaco
    kernel = inspect(data).kernel
    found = loops(listing(llvm_tool("llvm-objdump"), data, chip, tmp_path))
    assert {loop.headers[0] for loop in kernel.loops} == set(found)
    assert not any(loop.irreducible for loop in kernel.loops) and kernel.flow.complete
    for loop in kernel.loops:
        assert loop.counts.instructions == len(found[loop.headers[0]])


TILES = {"gfx942": 1, "gfx950": 2}
"""Tiles of a trip of the example's loop, and LDS buffers of an operand."""


@pytest.mark.parametrize("chip", CHIPS)
def test_hot_loop_of_the_gemm(chip: str, repository: Path, llvm_tool: Callable[[str], str], tmp_path: Path) -> None:
    data = example(chip, repository).hsaco
    kernel = inspect(data).kernel
    hot = kernel.hot_loop
    assert hot is not None
    lines = loops(listing(llvm_tool("llvm-objdump"), data, chip, tmp_path))[hot.headers[0]]
    matrix = number(lines, "v_mfma")
    # 256 x 256 x 64 on 8 waves: 2 * 256 * 256 * 64 / 8 operations of one wave, 1024 or 512 of them per clock and SIMD; the
    # schedule for gfx950 asks for two stages, and as many tiles make one trip of the loop
    clocks = 2 * 256 * 256 * 64 // 8 // (1024 if chip == "gfx950" else 512) * TILES[chip]
    assert hot.counts.mfma_clocks == clocks == matrix * 16
    assert hot.counts.n == pytest.approx((len(lines) - matrix) * 1024 / clocks)
    # the loop around it prepares addresses
    assert (hot.file, hot.innermost, hot.depth) == ("gemm.tile", True, 2)
    source = (repository / "examples" / "gemm.tile").read_text().splitlines()
    spanned = "\n".join(source[hot.first_line - 1 : hot.last_line])
    assert "for %k" in spanned and "mma(" in spanned
    assert len(hot.reads) == number(lines, "ds_read")
    assert all(r.use is not None and r.wait is not None and r.wait.instructions < r.use.instructions for r in hot.reads)


@pytest.mark.parametrize("chip", CHIPS)
def test_resources(chip: str, repository: Path) -> None:
    compiled = example(chip, repository)
    kernel = inspect(compiled.hsaco).kernel
    r = kernel.registers
    assert kernel.lds_bytes == 65536 * TILES[chip] and kernel.max_workgroup_size == 512
    assert r.vgprs_stated == compiled.stats["vgprs"] and r.sgprs_stated == compiled.stats["sgprs"]
    assert max(r.vgprs_used, r.accum_offset * bool(r.agprs_used) + r.agprs_used) == r.vgprs_stated
    assert kernel.spills.scratch_bytes == kernel.spills.loop_accumulator_moves == 0
    assert kernel.occupancy.waves_per_workgroup == 8
    assert kernel.occupancy.waves_per_simd == 2.0


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    "name, params", [("vector_add", {}), ("softmax", {}), ("transpose", {}), ("gemm", {"BM": 64, "BN": 64})]
)
def test_occupancy_is_what_llvm_says(name: str, params: dict[str, int], chip: str) -> None:
    """LLVM prints waves per SIMD, as registers of both kinds and LDS allow them, into its assembly."""
    from tileir import kernels

    module = parse(kernels.source(name), "k.tile", params)
    compiled = compile_kernel(module, "", chip, Options(emit=("asm",)))
    stated = re.search(r"^; Occupancy: (\d+)", compiled.texts["asm"], re.MULTILINE)
    assert stated is not None
    assert inspect(compiled.hsaco).kernel.occupancy.waves_per_simd == int(stated[1])


@pytest.mark.parametrize("vgprs, lds, threads, groups, limited", [
    (128, 0, 256, 4, ("vector registers",)),      # 512 / 128 = 4 waves on each of 4 SIMDs
    (64, 0, 256, 8, ("vector registers", "wave slots")),
    (64, 40000, 256, 4, ("LDS",)),  # 163840 / 40960
    (64, 54600, 256, 2, ("LDS",)),  # in granules of 1280 bytes three do not fit
    (256, 0, 1024, 0, ("vector registers",)),     # 2 waves per SIMD, 16 wanted on 4
    (64, 0, 64, 32, ("vector registers", "wave slots")),
])  # fmt: skip
def test_occupancy_by_hand(vgprs: int, lds: int, threads: int, groups: int, limited: tuple[str, ...]) -> None:
    kernel = report("s_endpgm", vgprs=vgprs, accum=vgprs, lds=lds, threads=threads)
    o = kernel.occupancy
    assert (o.workgroups_per_cu, o.limited_by) == (groups, limited)
    assert o.waves_per_simd == groups * threads / 64 / 4


@pytest.mark.parametrize("chip", CHIPS)
def test_scratch_is_found_in_the_code(chip: str) -> None:
    """Whatever the metadata say; nested loops count their instructions once."""
    kernel = report(
        """
.Louter:
.Linner:
  scratch_store_dwordx2 off, v[0:1], off offset:8
  scratch_load_dword v1, off, off offset:4
  s_cbranch_scc1 .Linner
  scratch_load_dword v1, off, off offset:4
  s_cbranch_vccz .Louter
  scratch_load_dword v1, off, off
  s_endpgm
""",
        chip,
    )
    s = kernel.spills
    assert (s.scratch_loads, s.scratch_stores, s.loop_scratch) == (3, 1, 3)
    assert s.vgprs_stated is None and "no metadata" in as_table(inspect(assemble("s_endpgm")))


def test_lds_given_at_launch_counts() -> None:
    data = assemble("ds_read_b32 v0, v1\n s_endpgm", vgprs=64, accum=64, threads=256)
    kernel = inspect(data).kernel
    assert any("given at launch" in note for note in kernel.notes)
    more = inspect(data, dynamic_lds=80000).kernel
    assert more.occupancy.workgroups_per_cu == 2 and more.notes == ()


def test_accumulators_in_the_other_file() -> None:
    """A 256x256 accumulator on 4 waves needs the accumulation registers."""
    kernel = inspect(scheduled_gemm("gfx950", "2 x 2", (256, 256, 64)).hsaco).kernel
    assert kernel.registers.agprs_used > 0
    assert kernel.registers.agprs_used == kernel.registers.agprs_stated
    assert kernel.occupancy.register_waves == 1


def test_unlinked_object(repository: Path) -> None:
    from tileir import kernels

    compiled = compile_kernel(parse(kernels.source("vector_add"), "k.tile"), "", "gfx950", Options(emit=("obj",)))
    assert compiled.obj is not None
    linked, unlinked = inspect(compiled.hsaco).kernel, inspect(compiled.obj).kernel
    assert unlinked.counts == linked.counts
    assert any("not linked" in note for note in unlinked.notes)


def test_one_kernel_of_several() -> None:
    data = assemble("s_endpgm")
    assert inspect(data, "k").kernel.name == "k"
    with pytest.raises(InspectError, match="no kernel 'other'; the code object has: k"):
        inspect(data, "other")


CLANG_SOURCE = """
__attribute__((noinline)) float twice(float x) { return x * x + 1.0f; }
KERNEL void sums(GLOBAL float *out, GLOBAL const float *in, int n, int m) {
  float total = 0;
  for (int i = 0; i < n; ++i) {
    #pragma clang loop unroll(disable)
    for (int j = 0; j < m; ++j) total += in[i * m + j];
    total = twice(total);
  }
  out[TID] = total;
}
"""


@pytest.mark.parametrize("chip", CHIPS)
def test_clang_object(chip: str) -> None:
    import sys

    sys.path.insert(0, str(Path(__file__).parent.parent))
    try:
        from simulator_compile import from_c
    finally:
        sys.path.pop(0)
    kernel = inspect(from_c(CLANG_SOURCE, chip, "-fno-unroll-loops"), "sums").kernel
    assert [loop.depth for loop in kernel.loops] == [1, 2]
    assert any("the called code is not counted" in note for note in kernel.notes)
    hot = kernel.hot_loop
    assert hot is not None and hot.number == 1 and hot.file.endswith("kernel.c")


@pytest.mark.parametrize("chip", CHIPS)
def test_triton_object(chip: str, tmp_path: Path, llvm_tool: Callable[[str], str]) -> None:
    pytest.importorskip("triton")
    from triton_gemm import compile_gemm

    data = compile_gemm(chip)
    kernel = inspect(data, dynamic_lds=64 * 1024).kernel
    lines = listing(llvm_tool("llvm-objdump"), data, chip, tmp_path)
    assert kernel.counts.mfma_count == number(lines, "v_mfma")
    hot = kernel.hot_loop
    assert hot is not None and hot.counts.mfma_count > 0 and hot.counts.n is not None
    assert hot.counts.instructions == len(loops(lines)[hot.headers[0]])


# Forms of the report


def kernel_with_odd_name() -> bytes:
    """Metadata may name a kernel as it likes; a page must not run what stands there."""
    data = assemble("s_endpgm", threads=64)
    assert data.count(b"\xa1k") == 1
    return data.replace(b"\xa1k", b"\xa1<")


@pytest.mark.parametrize("chip", CHIPS)
def test_table_fits_a_terminal(chip: str, repository: Path) -> None:
    text = as_table(inspect(example(chip, repository).hsaco))
    assert max(len(line) for line in text.splitlines()) <= 100
    assert text.isascii() and "hot loop" in text


def test_table_with_deep_loops_and_long_names() -> None:
    heads = "".join(f".L{i}:\n v_mov_b32 v{i}, 0\n" for i in range(30))
    tails = "".join(f" s_cbranch_scc{i % 2} .L{i}\n" for i in reversed(range(30)))
    kernel = report(heads + tails + " s_endpgm\n")
    assert [loop.depth for loop in kernel.loops] == list(range(1, 31))
    text = as_table(inspect(assemble(heads + tails + " s_endpgm\n")))
    assert max(len(line) for line in text.splitlines()) <= 100


def test_names_cannot_steer_the_terminal() -> None:
    data = assemble("s_endpgm", threads=64).replace(b"\xa1k", b"\xa1\x1b")
    found = inspect(data)
    assert found.kernel.name == "\x1b"
    for text in (as_table(found), as_listing(found)):
        assert "kernel \\x1b" in text and "\x1b" not in text


SHAPE = {
    "": {"schema", "chip", "code_object_version", "file_bytes", "kernels"},
    "kernels": {
        "name", "max_workgroup_size", "complete", "notes", "registers", "lds", "spills", "occupancy", "counts",
        "unreachable_instructions", "hot_loop", "loops",
    },
    "loops": {
        "number", "parent", "depth", "innermost", "irreducible", "headers", "exits", "source", "counts", "lds_reads",
    },
    "counts": {
        "instructions", "code_bytes", "classes", "widths", "mfma", "mfma_clocks", "non_mfma", "n", "valu_ratio", "waits",
        "vmcnt_drains", "lgkmcnt_drains", "nop_states", "nop_clocks", "accumulator_reads", "accumulator_writes",
        "accumulator_copies", "vector_moves", "vector_copies",
    },
    "registers": {
        "vgprs_used", "agprs_used", "sgprs_used", "vgprs_stated", "agprs_stated", "sgprs_stated", "vector_allocated",
        "sgprs_allocated", "accum_offset",
    },
    "spills": {
        "vgprs_stated", "sgprs_stated", "scratch_bytes", "scratch_loads", "scratch_stores", "loop_scratch",
        "accumulator_moves", "loop_accumulator_moves",
    },
    "occupancy": {
        "waves_per_workgroup", "workgroups_per_cu", "waves_per_simd", "max_waves_per_simd", "register_waves", "limits",
        "limited_by",
    },
    "lds_reads": {"count", "exposed", "latency_clocks", "reads"},
}  # fmt: skip


@pytest.mark.parametrize("chip", CHIPS)
def test_json_has_the_documented_shape(chip: str, repository: Path) -> None:
    """The keys are promised: changing one means a new schema version."""
    import tileir.simulator.inspect as package

    found = inspect(example(chip, repository).hsaco)
    data = json.loads(as_json(found))
    assert data["schema"] == "tileir-inspect/1" and set(data) == SHAPE[""]
    (kernel,) = data["kernels"]
    assert set(kernel) == SHAPE["kernels"]
    hot = kernel["loops"][kernel["hot_loop"]]
    assert set(hot) == SHAPE["loops"]
    for key in ("registers", "spills", "occupancy", "counts"):
        assert set(kernel[key]) == SHAPE[key]
    assert set(hot["counts"]) == SHAPE["counts"] and set(hot["lds_reads"]) == SHAPE["lds_reads"]
    assert sum(hot["counts"]["classes"].values()) == hot["counts"]["instructions"]
    assert hot["counts"]["n"] == found.kernel.hot_loop.counts.n  # type: ignore[union-attr]
    documented = package.__doc__ or ""
    for keys in SHAPE.values():
        assert all(re.search(rf"\b{key}\b", documented) for key in keys), keys
    assert as_json(inspect(example(chip, repository).hsaco)) == as_json(found)


class _Page(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.links: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [(k, v) for k, v in attrs if k in ("href", "src", "id")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("chip", CHIPS)
def test_html_stands_alone(chip: str, repository: Path) -> None:
    found = inspect(example(chip, repository).hsaco)
    text = as_html(found, "gemm.hsaco")
    page = _Page(text)
    assert page.open == [] and "script" not in page.tags
    targets = {v for k, v in page.links if k == "id"}
    assert all(v is not None and v.startswith("#") and v[1:] in targets for k, v in page.links if k in ("href", "src"))
    assert "url(" not in text and "@import" not in text
    for item in found.kernel.flow.items[:5]:
        assert item.text in page.text
    assert "gemm.tile:" in page.text and text.count("k-mfma") > 64


def test_html_escapes_names() -> None:
    text = as_html(inspect(kernel_with_odd_name()), "<b>&amp.hsaco")
    page = _Page(text)
    assert "b" not in page.tags and "kernel &lt;" in text and "<b>&amp.hsaco" in page.text


def test_html_of_a_loop_in_two_pieces() -> None:
    """Code of a loop that stands behind other code is shown in a second frame."""
    body = """
.Lhead:
  s_cbranch_scc0 .Lback
  s_endpgm
.Lback:
  v_mov_b32 v0, 0
  s_branch .Lhead
"""
    text = as_html(inspect(assemble(body)), "k")
    assert _Page(text).open == [] and "loop 0 (hot), continued" in text


def test_listing_shows_all_code(repository: Path) -> None:
    found = inspect(example("gfx950", repository).hsaco)
    lines = as_listing(found).splitlines()
    code = [line for line in lines if re.search(r"^(\| )*\s*~?\s*[0-9a-f]+  \w+ ", line)]
    assert len(code) == len(found.kernel.flow.items)
    for item, line in zip(found.kernel.flow.items, code, strict=True):
        assert f"{item.address:x} " in line and item.text in line
    hot = found.kernel.hot_loop
    assert hot is not None
    assert sum(line.startswith("| ") for line in code) >= hot.counts.instructions
    assert sum(line.startswith("+ loop") for line in lines) == sum(loop.depth == 1 for loop in found.kernel.loops)
