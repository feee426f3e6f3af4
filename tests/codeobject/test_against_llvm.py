"""Everything the reader says, against llvm-readelf, llvm-objdump and llvm-dwarfdump (skipped where absent)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tileir.codeobject import CodeObject

Tool = Callable[[str], str]


@pytest.fixture(params=range(7))
def file(request: pytest.FixtureRequest, objects: Path) -> Path:
    """Each object of llvmlite and of clang in turn."""
    own = sorted(objects.glob("*.hsaco"))
    if request.param < len(own):
        return own[request.param]
    compiled: list[Path] = request.getfixturevalue("clang_objects")
    return compiled[request.param - len(own)]


def run(tool: str, *arguments: str) -> str:
    return subprocess.run([tool, *arguments], capture_output=True, text=True, check=True).stdout


def flatten(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """(key, text) of every scalar in order, the way the YAML of llvm-readelf lists them."""
    if isinstance(value, dict):
        for name, child in value.items():
            yield from flatten(child, name)
    elif isinstance(value, list):
        for child in value:
            yield from flatten(child, "" if not isinstance(child, dict) else key)
    else:
        yield key, str(value).lower() if isinstance(value, bool) else str(value)


def test_notes(file: Path, llvm_tool: Tool) -> None:
    text = run(llvm_tool("llvm-readelf"), "--notes", str(file)).split("---", 1)[1].rsplit("...", 1)[0]
    expected: list[tuple[str, str]] = []
    for line in text.splitlines():
        match = re.match(r"[\s-]*(?:([.\w]+):)?\s*(.*)$", line)
        assert match is not None
        if match[2]:
            expected.append((match[1] or "", match[2].strip("'")))
    assert list(flatten(CodeObject.from_bytes(file.read_bytes()).metadata)) == expected


def test_sections_and_segments(file: Path, llvm_tool: Tool) -> None:
    code = CodeObject.from_bytes(file.read_bytes())
    text = run(llvm_tool("llvm-readelf"), "-S", "-l", "-W", str(file))
    rows = re.findall(r"^\s*\[\s*(\d+)\] (\S*)\s+([A-Z_]\w+)\s+([0-9a-f]{16}) ([0-9a-f]+) ([0-9a-f]+)", text, re.M)
    assert [(s.name, s.address, s.offset, s.size) for s in code.elf.sections] == [
        (name, int(address, 16), int(offset, 16), int(size, 16)) for _i, name, _type, address, offset, size in rows
    ]
    loads = re.findall(r"^\s*LOAD\s+(0x\w+) (0x\w+) 0x\w+ (0x\w+) (0x\w+) (R?) ?(W?)\s?(E?)", text, re.M)
    assert [(s.offset, s.vaddr, len(s.data), s.memsize, s.writable, s.executable) for s in code.segments] == [
        (int(o, 16), int(v, 16), int(f, 16), int(m, 16), w == "W", x == "E") for o, v, f, m, _r, w, x in loads
    ]


def test_symbols(file: Path, llvm_tool: Tool) -> None:
    code = CodeObject.from_bytes(file.read_bytes())
    text = run(llvm_tool("llvm-readelf"), "-s", "-W", str(file))
    rows = re.findall(r"^\s*\d+: ([0-9a-f]{16})\s+(\d+) \w+\s+\w+\s+\w+\s+(\w+) (\S+)$", text, re.M)
    expected = {(name, int(value, 16), int(size)) for value, size, _section, name in rows}
    assert {(s.name, s.value, s.size) for s in code.symbols} == expected


def test_descriptors(file: Path, llvm_tool: Tool) -> None:
    code = CodeObject.from_bytes(file.read_bytes())
    text = run(llvm_tool("llvm-objdump"), "-D", "-j", ".rodata", str(file))
    blocks = dict(re.findall(r"\.amdhsa_kernel (\w+)\n(.*?)\.end_amdhsa_kernel", text, re.S))
    assert set(blocks) == set(code.kernels)
    for name, block in blocks.items():
        wanted = {key: int(value) for key, value in re.findall(r"\.amdhsa_(\w+) (\d+)", block)}
        d = code.kernels[name].descriptor
        given = {
            "group_segment_fixed_size": d.group_segment_fixed_size,
            "private_segment_fixed_size": d.private_segment_fixed_size,
            "kernarg_size": d.kernarg_size,
            "accum_offset": d.accum_offset,
            "tg_split": d.tg_split,
            "next_free_vgpr": d.vgpr_count,
            "float_round_mode_32": d.float_round_mode_32,
            "float_round_mode_16_64": d.float_round_mode_16_64,
            "float_denorm_mode_32": d.float_denorm_mode_32,
            "float_denorm_mode_16_64": d.float_denorm_mode_16_64,
            "dx10_clamp": d.dx10_clamp,
            "ieee_mode": d.ieee_mode,
            "fp16_overflow": d.fp16_overflow,
            "enable_private_segment": d.enable_private_segment,
            "system_sgpr_workgroup_id_x": d.enable_sgpr_workgroup_id_x,
            "system_sgpr_workgroup_id_y": d.enable_sgpr_workgroup_id_y,
            "system_sgpr_workgroup_id_z": d.enable_sgpr_workgroup_id_z,
            "system_sgpr_workgroup_info": d.enable_sgpr_workgroup_info,
            "system_vgpr_workitem_id": d.workitem_id,
            "user_sgpr_dispatch_ptr": d.enable_sgpr_dispatch_ptr,
            "user_sgpr_queue_ptr": d.enable_sgpr_queue_ptr,
            "user_sgpr_kernarg_segment_ptr": d.enable_sgpr_kernarg_segment_ptr,
            "user_sgpr_dispatch_id": d.enable_sgpr_dispatch_id,
            "user_sgpr_private_segment_size": d.enable_sgpr_private_segment_size,
            "uses_dynamic_stack": d.uses_dynamic_stack,
            "user_sgpr_kernarg_preload_length": d.kernarg_preload_length,
        }
        unknown = [
            k for k in wanted if k not in given and not k.startswith(("exception_", "reserve_", "next_free_sgpr"))
        ]
        assert unknown == []
        assert {k: int(v) for k, v in given.items() if k in wanted} == {k: v for k, v in wanted.items() if k in given}
        assert d.exceptions == sum(v for k, v in wanted.items() if k.startswith("exception_"))


def test_code_is_where_objdump_sees_it(file: Path, llvm_tool: Tool) -> None:
    code = CodeObject.from_bytes(file.read_bytes())
    for name, kernel in code.kernels.items():
        text = run(llvm_tool("llvm-objdump"), "-d", "-z", f"--disassemble-symbols={name}", str(file))
        words = re.findall(r"// ([0-9A-F]{12}): ((?:[0-9A-F]{8} ?)+)", text)
        assert int(words[0][0], 16) == kernel.entry_address
        raw = b"".join(int(w, 16).to_bytes(4, "little") for _a, group in words for w in group.split())
        assert raw[: len(kernel.code)] == kernel.code  # objdump goes on over the padding


def test_line_table(file: Path, llvm_tool: Tool) -> None:
    code = CodeObject.from_bytes(file.read_bytes())
    text = run(llvm_tool("llvm-dwarfdump"), "--debug-line", str(file))
    rows = re.findall(r"^(0x[0-9a-f]{16}) +(\d+) +(\d+) +(\d+) +\d+ +\d+ +\d+ +(.*)$", text, re.M)
    expected = [
        (int(address, 16), (int(line), int(column)) if int(line) else None, "is_stmt" in flags)
        for address, line, column, _file, flags in rows
        if "end_sequence" not in flags
    ]
    given = [
        (r.address, (r.source.line, r.source.column) if r.source else None, r.is_statement)
        for r in code.line_table.rows
    ]
    assert given == expected and expected


def test_lookup_agrees_with_the_symbolizer(file: Path, llvm_tool: Tool) -> None:
    code = CodeObject.from_bytes(file.read_bytes())
    for kernel in code.kernels.values():
        addresses = list(range(kernel.entry_address, kernel.entry_address + kernel.code_size, 4))
        options = ["-e", str(file), "--relative-address", "--no-inlines", "--functions=none"]
        out = run(llvm_tool("llvm-symbolizer"), *options, *(hex(a) for a in addresses))
        places = [p for p in out.split("\n") if p]
        for address, place in zip(addresses, places, strict=True):
            name, line, column = place.rsplit(":", 2)
            source = code.line_table.lookup(address)
            if line == "0":
                assert source is None
            else:
                assert source is not None
                assert (source.line, source.column) == (int(line), int(column))
                assert Path(source.file).name == Path(name).name
