"""Fields of decoded instructions, checked by hand against the encoding tables of the ISA documents."""

from __future__ import annotations

import time

import pytest

from tileir.simulator.decoder import DecodeError, Instruction, Operand, decode, disassemble
from tileir.simulator.decoder.table import CHIPS, load


def words(*dwords: int) -> bytes:
    return b"".join(dword.to_bytes(4, "little") for dword in dwords)


def one(chip: str, *dwords: int) -> Instruction:
    return decode(chip, words(*dwords))


def vop3(opcode: int, vdst: int, *sources: int, low: int = 0, high: int = 0) -> tuple[int, int]:
    second = sum(source << 9 * number for number, source in enumerate(sources))
    return 0xD0000000 | opcode << 16 | vdst | low, second | high


@pytest.mark.parametrize("chip", CHIPS)
def test_sop2_with_literal(chip: str) -> None:
    found = one(chip, 0x80000000 | 4 << 16 | 255 << 8 | 106, 0x12345678)
    assert (found.name, found.encoding, found.size) == ("s_add_u32", "sop2", 8)
    assert found.operands == (Operand("s", 4, 1), Operand("special", 0, 1, "vcc_lo"), Operand("lit", 0x12345678, 1))
    assert found.text == "s_add_u32 s4, vcc_lo, 0x12345678"


@pytest.mark.parametrize(
    ("code", "index", "count"),
    [
        (129, 1, 1),
        (192, 64, 1),
        (193, 0xFFFFFFFF, 1),
        (208, 0xFFFFFFF0, 1),
        (240, 0x3F000000, 1),
        (247, 0xC0800000, 1),
        (248, 0x3E22F983, 1),
    ],
)
def test_inline_constants_of_32_bits(code: int, index: int, count: int) -> None:
    assert one("gfx950", 0x7E000200 | code).operands[1] == Operand("imm", index, count)


def test_inline_constants_take_the_type_of_the_operand() -> None:
    half = one("gfx950", *vop3(0x11F, 1, 240, 258))
    assert (half.name, half.operands[1].index) == ("v_add_f16", 0x3800)
    double = one("gfx950", *vop3(0x280, 2, 240, 260))
    assert (double.name, double.operands[1]) == ("v_add_f64", Operand("imm", 0x3FE0000000000000, 2))
    scalar = one("gfx950", 0xBE800100 | 2 << 16 | 193)
    assert (scalar.name, scalar.operands[1]) == ("s_mov_b64", Operand("imm", (1 << 64) - 1, 2))
    packed = one("gfx950", 0xD38F4000 | 1, 240 | 258 << 9 | 3 << 59 - 32)
    assert (packed.name, packed.operands[1].index) == ("v_pk_add_f16", 0x3800)
    bits = one("gfx950", 0xD38A4000 | 1, 240 | 258 << 9 | 3 << 59 - 32)
    assert (bits.name, bits.operands[1].index) == ("v_pk_add_u16", 0x3F000000)
    bf16 = one("gfx950", 0xD39A4000 | 1, 240 | 258 << 9 | 259 << 18 | 3 << 59 - 32)
    assert (bf16.name, bf16.operands[1].index) == ("v_dot2_f32_bf16", 0x3F00)


def test_literals_of_64_bit_operands() -> None:
    double = one("gfx942", 0x7E000000 | 4 << 17 | 15 << 9 | 255, 0x3FF80000)
    assert double.operands == (Operand("v", 4, 1), Operand("lit", 0x3FF80000_00000000, 2))
    assert double.text == "v_cvt_f32_f64_e32 v4, 0x3ff80000"
    assert one("gfx942", 0x7E000000 | 4 << 17 | 15 << 9 | 255, 1).text == "v_cvt_f32_f64_e32 v4, lit(0x1)"
    signed = one("gfx942", 0x90800000 | 2 << 16 | 129 << 8 | 255, 0x80000000)
    assert (signed.name, signed.operands[1].index) == ("s_ashr_i64", 0xFFFFFFFF80000000)
    plain = one("gfx942", 0xBE800100 | 2 << 16 | 255, 0x80000000)
    assert plain.operands[1].index == 0x80000000


def test_source_modifiers() -> None:
    found = one("gfx942", *vop3(0x101, 1, 258, 240, low=1 << 8 | 1 << 15, high=3 << 29 | 1 << 27))
    assert found.operands[1] == Operand("v", 2, 1, neg=True, abs=True)
    assert found.operands[2] == Operand("imm", 0x3F000000, 1, neg=True)
    assert found.modifiers == {"clamp": 1, "omod": 1}
    assert found.text == "v_add_f32_e64 v1, -|v2|, neg(0.5) clamp mul:2"


def test_carry_instructions_name_vcc() -> None:
    found = one("gfx950", 0x38000000 | 1 << 17 | 2 << 9 | 259)
    assert found.name == "v_addc_co_u32"
    vcc = Operand("special", 0, 2, "vcc")
    assert found.operands == (Operand("v", 1, 1), vcc, Operand("v", 3, 1), Operand("v", 2, 1), vcc)
    assert one("gfx950", *vop3(0x119, 1, 258, 259, low=4 << 8)).encoding == "vop3sd"


def test_waits_branches_and_registers() -> None:
    wait = one("gfx950", 0xBF8C0F70)
    assert (wait.name, wait.modifiers, wait.text) == ("s_waitcnt", {"simm16": 0x0F70}, "s_waitcnt vmcnt(0)")
    back = one("gfx950", 0xBF82FFFD)
    assert (back.operands, back.text) == ((Operand("label", -12, 1),), "s_branch 65533")
    assert one("gfx950", 0xB8840901).text == "s_getreg_b32 s4, hwreg(HW_REG_MODE, 4, 2)"


def test_scalar_loads() -> None:
    plain = one("gfx950", 0xC0020000 | 4 << 6 | 1, 0x10)
    assert plain.operands == (Operand("s", 4, 1), Operand("s", 2, 2), Operand("imm", 16, 1))
    both = one("gfx950", 0xC0064000 | 8 << 6 | 1, 0x1FFFF0 | 5 << 25)
    assert both.name == "s_load_dwordx2"
    assert both.operands[2] == Operand("s", 5, 1)
    assert both.modifiers == {"offset": -16}
    assert both.text == "s_load_dwordx2 s[8:9], s[2:3], s5 offset:-0x10"


def test_global_memory() -> None:
    plain = one("gfx950", 0xDC508000 | 0x1FFF | 1 << 16, 4 | 127 << 16 | 8 << 24)
    assert plain.operands == (Operand("v", 8, 1), Operand("v", 4, 2), Operand("off", 0, 0))
    assert plain.modifiers == {"offset": -1, "sc0": 1}
    based = one("gfx950", 0xDC508000, 5 | 6 << 16 | 1 << 23 | 8 << 24)
    assert based.operands == (Operand("a", 8, 1), Operand("v", 5, 1), Operand("s", 6, 2))
    silent = one("gfx950", 0xDD088000, 4 | 6 << 8 | 127 << 16 | 8 << 24)
    returning = one("gfx950", 0xDD098000, 4 | 6 << 8 | 127 << 16 | 8 << 24)
    assert (silent.name, len(silent.operands)) == ("global_atomic_add", 3)
    assert (returning.name, len(returning.operands), returning.modifiers) == ("global_atomic_add", 4, {"sc0": 1})


def test_buffers_and_lds() -> None:
    buffer = one("gfx950", 0xE05C1010, 4 | 8 << 8 | 2 << 16 | 128 << 24)
    assert buffer.name == "buffer_load_dwordx4"
    assert buffer.operands == (Operand("v", 8, 4), Operand("v", 4, 1), Operand("s", 8, 4), Operand("imm", 0, 1))
    assert buffer.modifiers == {"offen": 1, "offset": 16}
    direct = one("gfx950", 0xE05D1010, 4 | 2 << 16 | 128 << 24)
    assert direct.modifiers == {"offen": 1, "offset": 16, "lds": 1}
    assert [operand.kind for operand in direct.operands] == ["v", "s", "imm"]
    pair = one("gfx942", 0xD8EE0302, 4 | 8 << 24)
    assert (pair.name, pair.modifiers) == ("ds_read2_b64", {"offset0": 2, "offset1": 3})
    assert one("gfx942", 0xD9FE0010, 4 | 8 << 24).operands[0] == Operand("v", 8, 4)


def test_matrix_instructions() -> None:
    found = one("gfx942", 0xD3CD8000 | 4, 264 | 272 << 9 | 260 << 18 | 1 << 27)
    assert (found.name, found.encoding) == ("v_mfma_f32_16x16x16_f16", "mai")
    assert found.operands == (Operand("a", 4, 4), Operand("a", 8, 2), Operand("v", 16, 2), Operand("a", 4, 4))
    scaled = one("gfx950", 0xD3AC0800, 280 | 281 << 9 | 1 << 28, 0xD3AD0C00, 260 | 268 << 9 | 276 << 18 | 2 << 29)
    assert (scaled.name, scaled.encoding, scaled.size) == ("v_mfma_scale_f32_16x16x128_f8f6f4", "vop3px2", 16)
    assert [operand.count for operand in scaled.operands] == [4, 4, 6, 4, 1, 1]
    assert scaled.modifiers == {"cbsz": 4, "blgp": 2, "op_sel": 1, "op_sel_hi": 2}


def test_load_scale_alone_is_an_instruction() -> None:
    found = one("gfx950", 0xD3AC4800, 280 | 281 << 9 | 3 << 27, 0xD3AD0000, 260 | 268 << 9 | 276 << 18)
    assert (found.name, found.size, found.text) == (
        "v_mfma_ld_scale_b32",
        8,
        "v_mfma_ld_scale_b32 v24, v25 op_sel:[1,0]",
    )


def test_op_sel_hi_is_given_where_its_default_is_not_zero() -> None:
    assert one("gfx950", 0xD38F4000 | 1, 257 | 258 << 9 | 3 << 27).modifiers == {"op_sel_hi": 3}
    assert one("gfx950", 0xD3A00000 | 1, 257 | 258 << 9 | 259 << 18).modifiers == {}


def test_dpp_and_sdwa() -> None:
    dpp = one("gfx950", 0x02000000 | 1 << 17 | 2 << 9 | 250, 3 | 0x111 << 8 | 1 << 19 | 0xF << 24 | 0xA << 28)
    assert (dpp.name, dpp.encoding) == ("v_add_f32", "dpp")
    assert dpp.modifiers == {"dpp_ctrl": 0x111, "row_mask": 10, "bank_mask": 15, "bound_ctrl": 1}
    sdwa = one("gfx950", 0x02000000 | 1 << 17 | 2 << 9 | 249, 3 | 4 << 8 | 2 << 11 | 5 << 16 | 6 << 24 | 1 << 31)
    assert sdwa.encoding == "sdwa"
    assert sdwa.operands == (Operand("v", 1, 1), Operand("v", 3, 1), Operand("s", 2, 1))
    assert sdwa.modifiers == {"dst_sel": 4, "dst_unused": 2, "src0_sel": 5, "src1_sel": 6}


@pytest.mark.parametrize(
    ("reason", "dwords"),
    [
        ("odd register", vop3(0x280, 1, 260, 262)),
        ("not aligned", (0xBE800101, 0)),
        ("literal cannot stand here", vop3(0x101, 1, 255, 258)),
        ("dpp_ctrl", (0x7E0002FA, 0xFF000000 | 0x110 << 8)),
        ("reserved for this width", (0xBE80017D, 0)),
        ("not an instruction", (0xBF9F0000, 0)),
        ("passes the last register", (0xDC5C8000, 4 | 127 << 16 | 254 << 24)),
        ("dst_unused", (0x7E0002F9, 6 << 16 | 3 << 11)),
    ],
)
def test_reserved_encodings(reason: str, dwords: tuple[int, ...]) -> None:
    with pytest.raises(DecodeError, match=reason) as caught:
        decode("gfx942", bytes(8) + words(*dwords), 8)
    assert caught.value.offset == 8
    assert caught.value.encoding == words(*dwords)


def test_gfx942_lacks_what_gfx950_adds() -> None:
    code = words(0xD3D40000 | 4, 264 | 272 << 9 | 260 << 18)
    assert decode("gfx950", code).name == "v_mfma_f32_16x16x32_f16"
    with pytest.raises(DecodeError):
        decode("gfx942", code)


def test_truncated_code() -> None:
    for code in (b"", b"\0\0", words(0xD1010000), words(0x7E0002FF), words(0xC0020000)):
        with pytest.raises(DecodeError, match="ends inside"):
            decode("gfx950", code)


def test_disassemble_gives_addresses() -> None:
    code = words(0x7E000280, 0x7E0002FF, 0x12345678, 0xD1010000, 0x00020501, 0xBF810000)
    found = disassemble("gfx950", memoryview(code), 0x100)
    assert [address for address, _ in found] == [0x100, 0x104, 0x10C, 0x114]
    assert b"".join(instruction.raw for _, instruction in found) == code
    with pytest.raises(DecodeError) as caught:
        disassemble("gfx950", code + words(0xBF9F0000), 0x100)
    assert caught.value.offset == len(code)


def test_unknown_chip() -> None:
    with pytest.raises(ValueError, match="gfx942, gfx950"):
        decode("gfx90a", bytes(8))


def test_speed() -> None:
    """A tenth of the speed that was measured (25,000 instructions a second), so that busy machines pass."""
    code = words(*vop3(0x1CB, 4, 264, 266, 268), 0xDC508000, 0x087F0004, 0x7E000280) * 500
    load("gfx950")
    start = time.perf_counter()
    count = len(disassemble("gfx950", code))
    assert count == 1500
    assert count / (time.perf_counter() - start) > 2_500


@pytest.mark.parametrize("chip", CHIPS)
def test_loading_a_table_is_cheap(chip: str) -> None:
    """Measured: 3 ms. The best of several, so that busy machines pass."""
    times: list[float] = []
    for _ in range(5):
        load.cache_clear()
        start = time.perf_counter()
        load(chip)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.05
