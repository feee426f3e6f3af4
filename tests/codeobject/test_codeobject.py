"""Code objects built by llvmlite and lld: what the reader says about them, and the errors for others."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tileir.codeobject import CodeObject, CodeObjectError, SourceLine, encode_note
from tileir.codeobject.msgpack import decode, encode

HERE = Path(__file__).parent


def test_identity(objects: Path) -> None:
    for file in sorted(objects.glob("*.hsaco")):
        chip, version, _dwarf, _suffix = file.name.split(".")
        code = CodeObject.from_bytes(file.read_bytes())
        assert (code.chip, code.code_object_version) == (chip, int(version))
        assert (code.xnack, code.sramecc) == ("any", "any")
        assert code.linked


def test_kernel(linked: bytes) -> None:
    code = CodeObject.from_bytes(linked)
    assert list(code.kernels) == ["add"]
    kernel = code.kernel("add")
    assert kernel.metadata is not None
    assert [(a.name, a.offset, a.size, a.value_kind) for a in kernel.metadata.explicit_args] == [
        ("A", 0, 8, "global_buffer"),
        ("B", 8, 8, "global_buffer"),
        ("n", 16, 4, "by_value"),
        ("C", 24, 8, "global_buffer"),
    ]
    assert all(a.value_kind.startswith("hidden_") for a in kernel.metadata.args[4:])
    assert kernel.metadata.max_flat_workgroup_size == 256 and kernel.metadata.wavefront_size == 64
    descriptor = kernel.descriptor
    assert descriptor.group_segment_fixed_size == 1024 == kernel.metadata.group_segment_fixed_size
    assert descriptor.user_sgprs() == (("kernarg_segment_ptr", 0, 2), ("kernarg_preload", 2, 5))
    assert (
        descriptor.enable_sgpr_workgroup_id_x and descriptor.workitem_id == 0 and descriptor.float_denorm_mode_32 == 3
    )
    assert kernel.preloaded_entry_address == kernel.entry_address + 256
    assert len(kernel.code) == kernel.code_size and kernel.code.endswith(b"\x00\x00\x81\xbf")  # s_endpgm
    assert code.read(kernel.entry_address, 16) == kernel.code[:16]
    with pytest.raises(CodeObjectError, match="no kernel 'mul'; the code object has: add"):
        code.kernel("mul")


def test_segments_hold_the_image(linked: bytes) -> None:
    code = CodeObject.from_bytes(linked)
    assert [s.executable for s in code.segments].count(True) == 1
    last = code.segments[-1]
    assert last.memsize > len(last.data)  # zero-filled tail
    assert code.read(last.vaddr + last.memsize - 8, 8) == b"\0" * 8
    with pytest.raises(CodeObjectError, match="are loaded at"):
        code.read(last.vaddr + last.memsize - 4, 8)
    with pytest.raises(CodeObjectError, match="are loaded at"):
        code.read(0, -1)


@pytest.mark.parametrize("variant", ["gfx950.5.5", "gfx942.5.5", "gfx950.6.4"])
def test_line_table(objects: Path, variant: str) -> None:
    code = CodeObject.from_bytes((objects / f"{variant}.hsaco").read_bytes())
    file = "kernels/add.tile" if variant == "gfx942.5.5" else "add.tile"
    kernel = code.kernel("add")
    lines = [
        code.line_table.lookup(a)
        for a in range(kernel.preloaded_entry_address, kernel.entry_address + kernel.code_size, 4)
    ]
    assert {s.line for s in lines if s} == {4, 5, 6, 7}
    assert {s.file for s in lines if s} == {file}
    assert lines[-1] == SourceLine(file, 7, 1)
    assert code.line_table.lookup(kernel.entry_address - 4) is None
    assert code.line_table.lookup(kernel.entry_address + kernel.code_size) is None
    assert len(code.line_table) == len(code.line_table.rows)


def test_custom_section_survives_the_linker(objects: Path) -> None:
    for file in sorted(objects.glob("*.hsaco")):
        code = CodeObject.from_bytes(file.read_bytes())
        assert code.section(".tileir") == b'{"a": 1234}'
        assert code.section(".nothing") is None


def test_builds_are_byte_identical(objects: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(HERE / "build_objects.py"), str(tmp_path)], check=True)
    for file in sorted(tmp_path.iterdir()):
        assert file.read_bytes() == (objects / file.name).read_bytes(), file.name


def test_unlinked_object(objects: Path) -> None:
    whole = CodeObject.from_bytes((objects / "gfx950.5.5.hsaco").read_bytes())
    part = CodeObject.from_bytes((objects / "gfx950.5.5.o").read_bytes())
    assert not part.linked and part.segments == ()
    assert {"add", "add.kd"} <= {s.name for s in part.symbols}
    assert part.kernel("add").code_size == whole.kernel("add").code_size
    assert part.kernel("add").metadata == whole.kernel("add").metadata
    with pytest.raises(CodeObjectError, match="link it first"):
        _ = part.line_table


def test_metadata_re_encodes_to_the_same_bytes(linked: bytes) -> None:
    """LLVM writes the shortest MessagePack forms too, so decoding and encoding must reproduce its note."""
    code = CodeObject.from_bytes(linked)
    (note,) = [n for n in code.elf.notes if n.name == "AMDGPU"]
    description = linked[note.offset : note.offset + note.size]
    assert encode(decode(description)) == description
    assert encode_note("AMDGPU", note.type, description) in linked


def test_stripped_of_sections(linked: bytes) -> None:
    """Without section headers the note comes from the program headers, and the symbols are gone."""
    data = bytearray(linked)
    data[0x28:0x30] = bytes(8)  # e_shoff
    with pytest.raises(CodeObjectError, match=r"no symbol 'add\.kd' for kernel 'add'"):
        CodeObject.from_bytes(bytes(data))


HAND_WRITTEN = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.text
.globl bare
.p2align 8
.type bare,@function
bare:
  v_mov_b32 v0, 1
  s_endpgm
.Lend:
SIZE
.rodata
.p2align 6
.amdhsa_kernel bare
  .amdhsa_next_free_vgpr 40
  .amdhsa_next_free_sgpr 8
  .amdhsa_accum_offset 24
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_system_vgpr_workitem_id 2
  .amdhsa_float_round_mode_32 3
  .amdhsa_tg_split 1
.end_amdhsa_kernel
"""


def assemble(text: str, folder: Path, chip: str) -> bytes:
    source, unlinked, linked = folder / "in.s", folder / "in.o", folder / "in.hsaco"
    source.write_text(text)
    zig = [sys.executable, "-m", "ziglang"]
    assembler = [*zig, "clang", "--target=amdgcn-amd-amdhsa", f"-mcpu={chip}", "-c", "-x", "assembler"]
    subprocess.run([*assembler, str(source), "-o", str(unlinked)], check=True)
    subprocess.run([*zig, "ld.lld", "-shared", str(unlinked), "-o", str(linked)], check=True)
    return linked.read_bytes()


@pytest.mark.parametrize("size", [".size bare, .Lend-bare", ""])
def test_hand_written_assembly_without_metadata(tmp_path: Path, size: str) -> None:
    code = CodeObject.from_bytes(assemble(HAND_WRITTEN.replace("SIZE", size), tmp_path, "gfx942"))
    kernel = code.kernel("bare")
    assert kernel.metadata is None
    assert kernel.code == bytes.fromhex("8102007e000081bf")
    descriptor = kernel.descriptor
    assert (descriptor.vgpr_count, descriptor.accum_offset, descriptor.workitem_id) == (40, 24, 2)
    assert (descriptor.float_round_mode_32, descriptor.tg_split) == (3, True)
    assert descriptor.user_sgprs() == (("kernarg_segment_ptr", 0, 2),)
    assert len(code.line_table) == 0 and code.line_table.lookup(kernel.entry_address) is None


def patched(data: bytes, offset: int, value: bytes) -> bytes:
    return data[:offset] + value + data[offset + len(value) :]


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0, b"\x7fELG", "not an ELF file"),
        (0, b"__CLANG_OFFLOAD_BUNDLE__", "offload bundle"),
        (4, b"\x01", "not a 64-bit little-endian"),
        (7, b"\x00", "OS ABI 0 is not AMDGPU HSA"),
        (8, b"\x01", "ABI version 1; versions 4 to 6"),
        (8, b"\x09", "ABI version 9; versions 4 to 6"),
        (16, b"\x02", "ELF type 2"),
        (18, b"\x3e\x00", "ELF machine 62 is not AMDGPU"),
        (0x30, b"\x3f", "code object for gfx90a; supported: gfx942, gfx950"),
        (0x30, b"\x7f", "an unknown machine 0x7f"),
        (0x3A, b"\x00\x01", "section headers of 256 bytes"),
        (0x36, b"\x00\x01", "program headers of 256 bytes"),
        (0x3C, b"\xff\xff", "65535 section headers do not fit"),
        (0x3E, b"\xf0\x00", "section name table index 240"),
    ],
)
def test_header_errors(linked: bytes, offset: int, value: bytes, message: str) -> None:
    with pytest.raises(CodeObjectError, match=message) as caught:
        CodeObject.from_bytes(patched(linked, offset, value))
    assert caught.value.offset is not None


def descriptor_offset(data: bytes) -> int:
    code = CodeObject.from_bytes(data)
    symbol = next(s for s in code.symbols if s.name == "add.kd")
    at = code.elf.file_offset(symbol.value, 64)
    assert at is not None
    return at


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (12, b"\x01", "reserved bytes"),
        (60, b"\x01", "reserved bytes"),
        (16, struct.pack("<q", 1 << 40), "where the file has no code"),
        (16, struct.pack("<q", -(1 << 63)), "where the file has no code"),
        (16, struct.pack("<q", 0), "not executable"),
        (44, b"\x3f", "accum_offset 256 lies beyond"),
        (57, b"\x04", "wave32 kernel"),
        (52, b"\x00", "the enabled user SGPRs need 7"),
    ],
)
def test_descriptor_errors(linked: bytes, field: int, value: bytes, message: str) -> None:
    with pytest.raises(CodeObjectError, match=message):
        CodeObject.from_bytes(patched(linked, descriptor_offset(linked) + field, value))


def with_metadata(data: bytes, root: object) -> bytes:
    """`data` with its metadata replaced; the note is overwritten in place and must not grow."""
    code = CodeObject.from_bytes(data)
    (note,) = [n for n in code.elf.notes if n.name == "AMDGPU"]
    encoded = encode(root)  # type: ignore[arg-type]
    assert len(encoded) <= note.size
    head = note.offset - 8 - 12  # owner "AMDGPU" padded to 8, before it the 12-byte note head
    section = next(s for s in code.elf.sections if s.name == ".note")
    index = code.elf.sections.index(section)
    size_field = struct.unpack_from("<Q", data, 0x28)[0] + index * 64 + 0x20
    record = encode_note("AMDGPU", note.type, encoded)
    return patched(patched(data, head, record), size_field, struct.pack("<Q", len(record)))


@pytest.mark.parametrize(
    ("mutate", "message"),
    [
        (lambda k: k.update({".symbol": "sub.kd"}), r"no symbol 'sub\.kd'"),
        (lambda k: k.update({".symbol": 3}), r"'\.symbol' must be a string"),
        (lambda k: k.update({".sgpr_count": -1}), r"'\.sgpr_count' must be an unsigned 32-bit number"),
        (lambda k: k.update({".sgpr_count": True}), r"'\.sgpr_count' must be an unsigned 32-bit number"),
        (lambda k: k.pop(".vgpr_count"), r"'\.vgpr_count' must be an unsigned 32-bit number"),
        (lambda k: k.update({".args": 0}), r"'\.args' must be an array"),
        (lambda k: k.update({".args": [0]}), "argument 0 of kernel 'add' is not a map"),
        (lambda k: k.update({".kernarg_segment_size": 8}), "argument 1 of kernel 'add' ends beyond"),
        (lambda k: k.update({".reqd_workgroup_size": ["a"], ".args": []}), "must be an array of unsigned numbers"),
        (lambda k: k.update({".uses_dynamic_stack": "no", ".args": []}), "must be a boolean"),
    ],
)
def test_metadata_errors(linked: bytes, mutate: object, message: str) -> None:
    root = CodeObject.from_bytes(linked).metadata
    mutate(root["amdhsa.kernels"][0])  # type: ignore[index,call-overload,operator]
    with pytest.raises(CodeObjectError, match=message):
        CodeObject.from_bytes(with_metadata(linked, root))


def test_metadata_shapes(linked: bytes) -> None:
    assert CodeObject.from_bytes(with_metadata(linked, CodeObject.from_bytes(linked).metadata)).kernel("add")
    with pytest.raises(CodeObjectError, match="amdhsa metadata is not a map"):
        CodeObject.from_bytes(with_metadata(linked, []))
