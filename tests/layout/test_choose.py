"""Choice of LDS layouts."""

from __future__ import annotations

import numpy as np
import pytest

from tileir import target
from tileir.layout import (
    Access,
    LayoutError,
    SharedLayout,
    address_bases,
    blocked,
    choose,
    choose_free,
    mma_layouts,
    prove,
    transposed_source,
    wide_k_order,
)

GFX942 = target.get("gfx942").lds_access_by_op
GFX950 = target.get("gfx950").lds_access_by_op
LANE = np.arange(64)


@pytest.mark.parametrize("instr", [(16, 16, 32), (32, 32, 16)])
@pytest.mark.parametrize("tile_k", [32, 64, 128])
def test_gemm_on_gfx950_is_free_with_direct_loads(instr: tuple[int, int, int], tile_k: int) -> None:
    a, b, _ = mma_layouts(256, 256, tile_k, wave_grid=(2, 4), instr=instr, operand_bits=16)
    for operand in (a, b.transpose((1, 0))):
        access = Access.of_layout("read", GFX950["ds_read_b128"], operand, 16)
        shared, proof = choose((256, tile_k), 16, [access], direct_bytes=16)
        assert proof.conflict_free and shared.kind == "swizzle" and shared.allows_direct(16)
        assert shared.size_bytes == 256 * tile_k * 2
        assert len(proof.accesses[0].addresses) == len(access.rows)  # every instruction was enumerated


@pytest.mark.parametrize("instr", [(16, 16, 16), (32, 32, 8)])
@pytest.mark.parametrize("tile_k", [32, 64, 128])
def test_gemm_on_gfx942_is_free_with_register_staging(instr: tuple[int, int, int], tile_k: int) -> None:
    order = wide_k_order(tile_k, instr, 16)
    a, _, _ = mma_layouts(256, 256, tile_k, wave_grid=(2, 4), instr=instr, operand_bits=16, k_order=order)
    staging = blocked((256, tile_k), 8, axis_order=(1, 0), vector=8)
    accesses = [
        Access.of_layout("read", GFX942["ds_read_b128"], a, 16),
        Access.of_layout("write", GFX942["ds_write_b128"], staging, 16),
    ]
    shared, proof = choose((256, tile_k), 16, accesses)
    assert proof.conflict_free and shared.size_bytes == 256 * tile_k * 2
    assert prove(SharedLayout(256, tile_k, 16), accesses).degree > 1


def test_identity_where_it_is_free() -> None:
    rows = Access("rows", GFX942["ds_read_b128"], (LANE // 8)[None], (8 * (LANE % 8))[None])
    shared, proof = choose((8, 64), 16, [rows])
    assert shared.kind == "rows" and proof.conflict_free


def test_no_accesses_means_identity() -> None:
    shared, proof = choose((16, 16), 32, [])
    assert str(shared) == "rows" and proof.conflict_free and proof.accesses == ()


def test_a_column_needs_a_swizzle_and_keeps_the_bytes() -> None:
    shared, proof = choose((64, 32), 32, [Access("column", GFX942["ds_read_b32"], LANE[None], 0 * LANE[None])])
    assert proof.conflict_free and shared.size_bytes == 64 * 128 and shared.kind in ("swizzle", "xor")


def fragment_of_80_byte_rows() -> Access:
    """16 rows of 40 bf16; lane l reads 16 bytes of row l % 16 at byte 16 * (l // 16)."""
    return Access("fragment", GFX942["ds_read_b128"], (LANE % 16)[None], (LANE // 16 * 8)[None])


@pytest.mark.parametrize("direct_bytes", [None, 16])
def test_blocks_where_rows_are_no_power_of_two(direct_bytes: int | None) -> None:
    access = fragment_of_80_byte_rows()
    shared, proof = choose((16, 40), 16, [access], direct_bytes=direct_bytes)
    # 80-byte rows: lane 1 at 80 and lane 20 at 4 * 80 + 16 = 336 = 80 (mod 128) are served together. Five blocks of 16 bytes: the
    # 16-byte pieces of lanes 0-3, 20-23 are 0-3 and, in the next block, 256 bytes on, 4-7
    assert prove(SharedLayout(16, 40, 16), [access]).degree == 2
    assert proof.conflict_free and str(shared) == "blocks(16)" and shared.size_bytes == 1280


def test_padding_where_no_xor_is_free() -> None:
    # 6-byte rows: a block of the power of two in them holds 2 bytes, less than the 4 that lanes share
    access = Access("column", GFX942["ds_read_u16"], LANE[None], 0 * LANE[None])
    shared, proof = choose((64, 3), 16, [access])
    assert prove(SharedLayout(64, 3, 16), [access]).degree == 2
    assert proof.conflict_free and shared.kind == "padded"


def test_direct_loads_need_whole_pieces() -> None:
    with pytest.raises(LayoutError, match="do not divide a row of 120 bytes"):
        choose((16, 60), 16, [], direct_bytes=16)


def test_a_free_layout_or_none() -> None:
    access = fragment_of_80_byte_rows()
    found = choose_free((16, 40), 16, [access])
    assert found is not None and found[1].conflict_free
    # 8 bytes of each of 16 rows, of which 16 stay together: half of the banks serve all
    halves = Access("halves", GFX942["ds_read_b64"], (LANE % 16)[None], (LANE // 16 * 4)[None])
    wide = Access("rows", GFX942["ds_write_b128"], (LANE // 4)[None], (LANE % 4 * 8)[None])
    assert choose_free((16, 32), 16, [halves, wide]) is None
    alone = choose_free((16, 32), 16, [halves], granule=8)
    assert alone is not None and alone[1].conflict_free and alone[0].granule == 8


def test_the_best_of_a_conflict_names_the_access_that_pays() -> None:
    # b64 fragment reads want 8-byte granules, b128 writes keep 16 bytes whole: no layout is free for both
    a, _, _ = mma_layouts(128, 128, 64, wave_grid=(2, 2), instr=(16, 16, 16), operand_bits=16)
    read = Access.of_layout("fragment read", GFX942["ds_read_b64"], a, 16)
    staging = blocked((128, 64), 4, axis_order=(1, 0), vector=8)
    write = Access.of_layout("staging write", GFX942["ds_write_b128"], staging, 16)
    shared, proof = choose((128, 64), 16, [read, write])
    assert [p.degree for p in proof.accesses] == [2, 1]
    assert shared.granule >= 16
    assert "fragment read: ds_read_b64 degree 2" in proof.summary()
    alone, free = choose((128, 64), 16, [read])
    assert free.conflict_free and alone.granule == 8


@pytest.mark.parametrize("instr", [(16, 16, 32), (32, 32, 16)])
@pytest.mark.parametrize("columns", [64, 128, 256])
def test_transposing_reads_with_direct_loads_are_free(instr: tuple[int, int, int], columns: int) -> None:
    # B of A.B: [k, n] in LDS, read by MFMAs that want k in the registers
    _, b, _ = mma_layouts(64, columns, 64, wave_grid=(1, 2), instr=instr, operand_bits=16)
    access = Access.of_layout("transposed", GFX950["ds_read_b64_tr_b16"], transposed_source(b), 16)
    direct = GFX950["buffer_load_dwordx4_lds"]
    shared, proof = choose((64, columns), 16, [access], direct=direct)
    assert proof.conflict_free and shared.allows_direct(16) and shared.size_bytes == 64 * columns * 2
    assert [p.access.name for p in proof.accesses] == ["transposed", "direct write"]
    assert "direct write: buffer_load_dwordx4_lds degree 1 (lane groups assumed)" in proof.summary()


def test_direct_loads_are_part_of_the_proof() -> None:
    direct = GFX950["buffer_load_dwordx4_lds"]
    with pytest.raises(LayoutError, match="must stay whole"):
        prove(SharedLayout(16, 64, 16, "padded", (144,)), [], direct=direct)
    assert prove(SharedLayout(16, 64, 16), [], direct=direct).degree == 1


def test_budget() -> None:
    access = Access("column", GFX942["ds_read_u16"], LANE[None], 0 * LANE[None])
    shared, proof = choose((64, 3), 16, [access], max_bytes=384)
    assert shared.size_bytes <= 384 and proof.degree == 2
    with pytest.raises(LayoutError, match="at least 384 bytes"):
        choose((64, 3), 16, [access], max_bytes=380)


def test_the_choice_is_the_cheapest_of_its_family() -> None:
    """Against brute force over all swizzles: no free one of the same bytes needs fewer address registers."""
    a, _, _ = mma_layouts(64, 64, 64, wave_grid=(2, 2), instr=(16, 16, 32), operand_bits=16)
    access = Access.of_layout("read", GFX950["ds_read_b128"], a, 16)
    shared, proof = choose((64, 64), 16, [access], direct_bytes=16)
    free = [
        address_bases(access.addresses(s))
        for bits in range(1, 5)
        for base in range(4, 8)
        for shift in range(1, 9)
        if (s := SharedLayout(64, 64, 16, "swizzle", (bits, base, shift))).size_bytes == shared.size_bytes
        and access.degrees(s).max() == 1
    ]
    assert address_bases(proof.accesses[0].addresses) == min(free)


def test_address_bases() -> None:
    base = 16 * LANE
    assert address_bases(np.stack([base, base + 4096, base + 8192])) == 1
    assert address_bases(np.stack([base, base ^ 64])) == 2
    assert address_bases(np.stack([base, base + (1 << 16)])) == 2  # beyond the immediate offset
    assert address_bases(np.where(LANE < 3, -1, np.stack([base, base + 32]))) == 1


def test_same_input_same_choice() -> None:
    row = 8 * (LANE // 16) + LANE % 16 // 4
    access = Access("transposed", GFX950["ds_read_b64_tr_b16"], row[None], (4 * (LANE % 4))[None])
    chosen = {choose((64, 128), 16, [access], direct_bytes=16)[0] for _ in range(3)}
    assert len(chosen) == 1
