"""The data against LLVM's assembler and scheduling model (development tools; skipped where they are absent)."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tileir import target
from tileir.target.load import read_data
from tileir.target.model import Mfma, Target

LLVM_MC = shutil.which("llvm-mc-22")
LLVM_MCA = shutil.which("llvm-mca-22")
needs_mc = pytest.mark.skipif(LLVM_MC is None, reason="llvm-mc-22 is not installed")
needs_mca = pytest.mark.skipif(LLVM_MCA is None, reason="llvm-mca-22 is not installed")


@pytest.fixture(params=target.names())
def chip(request: pytest.FixtureRequest) -> Target:
    return target.get(request.param)


def rejected(chip: str, lines: list[str], folder: Path) -> dict[int, str]:
    """Index of each line that the assembler rejects for `chip`, with its message."""
    file = folder / "in.s"
    file.write_text("\n".join(lines) + "\n")
    command = [str(LLVM_MC), "-triple=amdgcn-amd-amdhsa", f"-mcpu={chip}", "-filetype=null", str(file)]
    errors = subprocess.run(command, capture_output=True, text=True).stderr
    return {int(m[1]) - 1: m[2] for m in re.finditer(r"in\.s:(\d+):\d+: error: (.*)", errors)}


def registers(chip: Target, rows: int, cols: int, blocks: int, elem: str) -> int:
    """32-bit registers per lane that hold `blocks` tiles of rows x cols elements."""
    return rows * cols * blocks * chip.element_bits[elem] // (8 * chip.register_bytes * chip.wave_size)


def span(start: int, count: int) -> str:
    return f"v{start}" if count == 1 else f"v[{start}:{start + count - 1}]"


def assembly(chip: Target, i: Mfma, a: str, b: str) -> str:
    """`i` with operand register counts that follow from the shape alone."""
    k_of_a = i.k // 2 if i.sparse else i.k
    d = span(0, registers(chip, i.m, i.n, i.blocks, i.c))
    text = f"{i.name} {d}, {span(64, registers(chip, i.m, k_of_a, i.blocks, a))}, "
    text += f"{span(96, registers(chip, i.n, i.k, i.blocks, b))}, "
    text += "v120" if i.sparse else d
    if i.scaled:
        text += ", v121, v122 op_sel_hi:[0,0,0]"
    if "f8f6f4" in i.name:
        formats = ["f8E4M3FN", "f8E5M2", "f6E2M3FN", "f6E3M2FN", "f4E2M1FN"]
        text += f" cbsz:{formats.index(a)} blgp:{formats.index(b)}"
    return text


@needs_mc
def test_every_shape_has_the_register_counts_llvm_wants(chip: Target, tmp_path: Path) -> None:
    lines = [assembly(chip, i, a, b) for i in chip.mfmas for a in i.a for b in i.b]
    assert rejected(chip.name, lines, tmp_path) == {}


@needs_mc
def test_wrong_shape_would_be_seen(chip: Target, tmp_path: Path) -> None:
    """The check above is sharp: doubling k, m or the number of blocks changes a register count that LLVM refuses."""
    i = chip.mfma("v_mfma_f32_32x32x8_f16")
    text = assembly(chip, i, "f16", "f16")
    wrong = [text.replace("v[64:65]", "v[64:67]"), text.replace("v[0:15]", "v[0:31]"), text.replace("v[96:97]", "v96")]
    assert sorted(rejected(chip.name, wrong, tmp_path)) == [0, 1, 2]


@needs_mc
def test_instructions_of_the_other_chip_are_absent(tmp_path: Path) -> None:
    """A mnemonic is in a chip's table exactly when LLVM assembles it for that chip."""
    tables = {name: {i.name: i for i in target.get(name).mfmas} for name in target.names()}
    for name in target.names():
        chip, others = target.get(name), [i for t in tables.values() for i in t.values() if i.name not in tables[name]]
        lines = [assembly(chip, i, i.a[0], i.b[0]) for i in others]
        assert others and sorted(rejected(name, lines, tmp_path)) == list(range(len(lines)))


@needs_mc
def test_features_match_the_assembler(chip: Target, tmp_path: Path) -> None:
    probes = {name: entry["probe"] for name, entry in read_data(chip.name)["features"].items()}
    refused = rejected(chip.name, list(probes.values()), tmp_path)
    accepted = {name: index not in refused for index, name in enumerate(probes)}
    assert accepted == dict(chip.features)


@needs_mc
def test_lds_instructions_exist(chip: Target, tmp_path: Path) -> None:
    lines: list[str] = []
    for access in chip.lds_accesses:
        op, count = access.op, max(1, access.bytes_per_lane // chip.register_bytes)
        if op.startswith("buffer_load"):
            lines.append(f"{op.removesuffix('_lds')} v0, s[8:11], s3 offen lds")
        elif op.startswith("global_load"):
            lines.append(f"{op} v[2:3], off")
        elif access.direction == "read":
            lines.append(f"{op} {span(0, count)}, v40")
        elif access.addresses_per_lane == 2:
            lines.append(f"{op} v40, {span(0, count // 2)}, {span(8, count // 2)}")
        else:
            lines.append(f"{op} v40, {span(0, count)}")
    assert rejected(chip.name, lines, tmp_path) == {}


@needs_mc
def test_limits_match_the_assembler(chip: Target, tmp_path: Path) -> None:
    def at_and_beyond(limit: int, text: str) -> list[str]:
        return [text.format(limit), text.format(limit + 1)]

    lines = at_and_beyond(chip.vmcnt_max, "s_waitcnt vmcnt({})")
    lines += at_and_beyond(chip.lgkmcnt_max, "s_waitcnt lgkmcnt({})")
    lines += at_and_beyond(chip.expcnt_max, "s_waitcnt expcnt({})")
    lines += at_and_beyond(chip.sgprs_addressable - 1, "s_mov_b32 s{}, 0")
    lines += at_and_beyond(chip.max_arch_vgprs - 1, "v_mov_b32 v{}, 0")
    lines += at_and_beyond(chip.max_acc_vgprs - 1, "v_accvgpr_read_b32 v0, a{}")
    lines += at_and_beyond(chip.ds_offset_max, "ds_read_b32 v0, v1 offset:{}")
    lines += at_and_beyond(chip.global_offset_max, "global_load_dword v0, v[2:3], off offset:{}")
    lines += [f"global_load_dword v0, v[2:3], off offset:{chip.global_offset_min - d}" for d in (0, 1)]
    assert sorted(rejected(chip.name, lines, tmp_path)) == list(range(1, len(lines), 2))


@needs_mc
def test_machine_number_is_the_elf_flag(chip: Target, tmp_path: Path) -> None:
    source, out = tmp_path / "in.s", tmp_path / "out.o"
    source.write_text("s_endpgm\n")
    command = [
        str(LLVM_MC),
        "-triple=amdgcn-amd-amdhsa",
        f"-mcpu={chip.name}",
        "-filetype=obj",
        str(source),
        "-o",
        str(out),
    ]
    subprocess.run(command, check=True)
    assert out.read_bytes()[0x30] == chip.elf_mach  # low byte of e_flags of an ELF64 header


@needs_mca
def test_passes_match_the_scheduling_model(chip: Target) -> None:
    """Resource cycles of LLVM's model are passes; for f8f6f4 it knows only the narrow rate."""
    text = "\n".join(assembly(chip, i, i.a[-1], i.b[-1]) for i in chip.mfmas)
    command = [str(LLVM_MCA), "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={chip.name}", "-iterations=1"]
    command += ["-instruction-info", "-resource-pressure=false", "-summary-view=false"]
    out = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in out.splitlines() if "_mfma" in line or "_smfmac" in line]
    modelled = [float(row[2]) for row in rows]
    assert modelled == [float(i.passes_narrow) for i in chip.mfmas]


# One dense f16 instruction per number of passes: intrinsic, operand elements per lane, result elements per lane.
BY_PASSES = {
    2: ("llvm.amdgcn.mfma.f32.4x4x4f16", 4),
    4: ("llvm.amdgcn.mfma.f32.16x16x16f16", 4),
    8: ("llvm.amdgcn.mfma.f32.32x32x8f16", 16),
    16: ("llvm.amdgcn.mfma.f32.32x32x4f16", 32),
}


@pytest.mark.parametrize("passes", BY_PASSES)
def test_wait_states_before_a_dependent_valu(chip: Target, passes: int, tmp_path: Path) -> None:
    """LLVM's hazard recogniser idles exactly the stated number of issue slots between an MFMA and a VALU read of D."""
    llc = shutil.which("llc-22")
    if llc is None:
        pytest.skip("llc-22 is not installed")
    intrinsic, width = BY_PASSES[passes]
    assert chip.mfma(intrinsic).passes == passes
    source = tmp_path / "in.ll"
    source.write_text(f"""
declare <{width} x float> @{intrinsic}(<4 x half>, <4 x half>, <{width} x float>, i32, i32, i32)
define amdgpu_ps float @f(<4 x half> %a, <4 x half> %b, <{width} x float> %c) #0 {{
  %d = call <{width} x float> @{intrinsic}(<4 x half> %a, <4 x half> %b, <{width} x float> %c, i32 0, i32 0, i32 0)
  %e = extractelement <{width} x float> %d, i32 0
  %r = fadd float %e, 1.0
  ret float %r
}}
attributes #0 = {{ "amdgpu-agpr-alloc"="0" }}
""")
    # The PAL triple, because the graphics calling convention keeps every operand in registers.
    command = [llc, "-mtriple=amdgcn--amdpal", f"-mcpu={chip.name}", str(source), "-o", "-"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    between = out[out.index("v_mfma") : out.index("v_add_f32")]
    idle = sum(int(n, 0) + 1 for n in re.findall(r"s_nop (\w+)", between))
    stated = chip.fact("mfma_to_valu_wait_states").value
    assert isinstance(stated, Mapping) and idle == stated[str(passes)]
