"""Loads, stores and atomics of LDS, scratch, global, flat and buffer instructions."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_harness import FULL, M0, OFF, Bench, imm, instruction, s, v, wait

from tileir.simulator import state
from tileir.simulator.native.global_memory import PRIVATE_APERTURE, SHARED_APERTURE
from tileir.simulator.spec import memory as spec

LANES = np.arange(64)
RNG = np.random.default_rng(11)
DONE = wait(0, 0)


def registers(bench: Bench, first: int, n: int) -> np.ndarray:
    return np.stack([bench.row(v(first + i)).copy() for i in range(n)])


def fill(bench: Bench, first: int, n: int) -> np.ndarray:
    data = RNG.integers(0, 1 << 32, (n, 64)).astype(np.uint32)
    for i in range(n):
        bench.row(v(first + i))[:] = data[i]
    return data


def expect_load(memory: np.ndarray, address: np.ndarray, part: spec.Part, old: np.ndarray, active: int) -> np.ndarray:
    return spec.load(memory, address.tolist(), part, old, active)


EXECS = (FULL, 0x8000_0000_F0F0_0001)


def check_lds_read(name: str, active: int) -> None:
    part = spec.LDS_READS[name]
    b = Bench()
    memory = RNG.integers(0, 256, 65536).astype(np.uint8)
    b.lds[:65536] = memory
    address = (RNG.permutation(64) * 24).astype(np.uint32)
    b.set(v(1), address)
    old = fill(b, 10, part.dwords)
    b.exec = active
    b.must_run(instruction(name, v(10, part.dwords), v(1), encoding="ds", offset=48), DONE)
    want = spec.load(memory, (address + 48).tolist(), part, old, active)
    assert np.array_equal(registers(b, 10, part.dwords), want)


def check_lds_write(name: str, active: int) -> None:
    part = spec.LDS_WRITES[name]
    b = Bench()
    address = (RNG.permutation(64) * 24).astype(np.uint32)
    b.set(v(1), address)
    data = fill(b, 10, part.dwords)
    b.exec = active
    b.must_run(instruction(name, v(1), v(10, part.dwords), encoding="ds", offset=16), DONE)
    want = np.zeros(65536, np.uint8)
    spec.store(want, (address + 16).tolist(), part, data, active)
    assert np.array_equal(b.lds[:65536], want)


def check_lds_pairs(name: str) -> None:
    """ds_read2 and ds_write2, each through the other."""
    dwords, stride = (2 if name.endswith("b64") else 1), "st64" if "st64" in name else ""
    unit = 4 * dwords * (64 if stride else 1)
    b = Bench()
    address = (LANES * 4 * dwords).astype(np.uint32)
    b.set(v(1), address)
    first, second = fill(b, 10, dwords), fill(b, 14, dwords)
    bits = 32 * dwords
    write = instruction(
        f"ds_write2{stride}_b{bits}", v(1), v(10, dwords), v(14, dwords), encoding="ds", offset0=3, offset1=80
    )
    read = instruction(f"ds_read2{stride}_b{bits}", v(20, 2 * dwords), v(1), encoding="ds", offset0=80, offset1=3)
    b.must_run(write, DONE, read, DONE)
    memory = np.zeros(65536, np.uint8)
    part = spec.Part(dwords)
    spec.store(memory, (address + 3 * unit).tolist(), part, first, FULL)
    spec.store(memory, (address + 80 * unit).tolist(), part, second, FULL)
    assert np.array_equal(b.lds[:65536], memory)
    none = np.zeros((dwords, 64), np.uint32)
    assert np.array_equal(registers(b, 20, dwords), spec.load(memory, (address + 80 * unit).tolist(), part, none, FULL))
    assert np.array_equal(
        registers(b, 20 + dwords, dwords), spec.load(memory, (address + 3 * unit).tolist(), part, none, FULL)
    )


def check_transposing_read(name: str) -> None:
    b = Bench("gfx950")
    bits = int(name.rpartition("_b")[2])
    memory = RNG.integers(0, 256, 65536).astype(np.uint8)
    b.lds[:65536] = memory
    dwords = 3 if bits == 6 else 2
    address = (RNG.permutation(64) * 4 * dwords).astype(np.uint32)
    b.set(v(1), address)
    b.must_run(instruction(name, v(10, dwords), v(1), encoding="ds", offset=8), DONE)
    assert np.array_equal(registers(b, 10, dwords), spec.transposing_read(memory, (address + 8).tolist(), bits))


@pytest.mark.parametrize("bits", [6, 4])
def test_transposing_read_of_small_elements_by_hand(bits: int) -> None:
    """A 16 by 16 table, row r at lane r of each block: lane i receives column i."""
    b = Bench("gfx950")
    dwords = 3 if bits == 6 else 2
    table = RNG.integers(0, 1 << bits, (16, 16))
    for row in range(16):
        word = sum(int(code) << bits * column for column, code in enumerate(table[row]))
        b.lds[16 * row : 16 * row + 4 * dwords] = np.frombuffer(word.to_bytes(4 * dwords, "little"), np.uint8)
    b.set(v(1), (LANES % 16 * 16).astype(np.uint32))
    b.must_run(instruction(f"ds_read_b{32 * dwords}_tr_b{bits}", v(10, dwords), v(1), encoding="ds"), DONE)
    got = registers(b, 10, dwords)
    for lane in range(64):
        word = sum(int(got[k, lane]) << 32 * k for k in range(dwords))
        assert [word >> bits * e & ((1 << bits) - 1) for e in range(16)] == table[:, lane % 16].tolist()


def test_transposing_read_by_hand() -> None:
    """Rows of 16 halves, row r at lanes 4r…4r+3 of a block: lane i receives column i of rows 0-3."""
    b = Bench("gfx950")
    table = np.arange(4 * 64, dtype=np.uint16).reshape(16, 16)
    b.lds[:512] = table.reshape(-1).view(np.uint8)
    # Block of 16 lanes: lane l addresses row l / 4 (of the block's four rows), four halves from 4 · (l % 4) on.
    block, within = LANES // 16, LANES % 16
    b.set(v(1), ((block * 4 + within // 4) * 32 + within % 4 * 8).astype(np.uint32))
    b.must_run(instruction("ds_read_b64_tr_b16", v(10, 2), v(1), encoding="ds"), DONE)
    got = registers(b, 10, 2)
    for lane in range(64):
        halves = [got[0, lane] & 0xFFFF, got[0, lane] >> 16, got[1, lane] & 0xFFFF, got[1, lane] >> 16]
        assert halves == [table[lane // 16 * 4 + e, lane % 16] for e in range(4)]


def test_transposing_read_needs_all_lanes() -> None:
    b = Bench("gfx950")
    b.set(v(1), np.zeros(64, np.uint32))
    b.exec = FULL >> 1
    assert b.run(instruction("ds_read_b64_tr_b16", v(10, 2), v(1), encoding="ds")) == state.FAULT_EXEC


def check_permute(name: str, active: int) -> None:
    b = Bench()
    function = {"ds_bpermute_b32": spec.bpermute, "ds_permute_b32": spec.permute}[name]
    data, index = fill(b, 2, 1)[0], RNG.integers(0, 1 << 32, 64).astype(np.uint32)
    b.set(v(1), index)
    b.row(v(3))[:] = 5
    b.exec = active
    b.must_run(instruction(name, v(3), v(1), v(2), encoding="ds", offset=8), DONE)
    want = function(index.tolist(), data, 8, active)
    for lane in range(64):
        assert b.row(v(3))[lane] == (want[lane] if active >> lane & 1 else 5)


SWIZZLES = (
    0x041F, 0x001F, 0x7C1F, 0x0200 | 0x1F, 0x2A | 0x0C00, 0x7FFF, 0,  # and, or, xor of the lane number
    0x8000 | 0b00_01_10_11, 0x80FF, 0x80E4,  # quads
    0xC000 | 5 << 5, 0xC400 | 9 << 5 | 3, 0xC3E0, 0xC7E1,  # rotation
    0xE000, 0xE010, 0xE018, 0xE01C, 0xE01E, 0xE01F,  # FFT
)  # fmt: skip


def check_swizzle(name: str, active: int) -> None:
    for offset in SWIZZLES:
        b = Bench()
        data = fill(b, 2, 1)[0]
        b.row(v(3))[:] = 5
        b.exec = active
        b.must_run(instruction(name, v(3), v(2), encoding="ds", offset=offset), DONE)
        live = np.array([bool(active >> lane & 1) for lane in range(64)])
        want = np.where(live, spec.swizzle(np.where(live, data, 0).astype(np.uint32), offset), 5)
        assert np.array_equal(b.row(v(3)), want), hex(offset)


def test_swizzle_by_hand() -> None:
    """[ISA, DS_SWIZZLE_B32] FFT of 32, 16 and 8 points reverses 5, 4 and 3 bits of the lane number; quads; rotation by 5
    among 32 lanes; swap of neighbours by xor with 1."""
    lanes = np.arange(64, dtype=np.uint32)
    assert spec.swizzle(lanes, 0xE000)[[1, 2, 6, 31, 33]].tolist() == [16, 8, 12, 31, 48]
    assert spec.swizzle(lanes, 0xE010)[[1, 2, 17, 47]].tolist() == [8, 4, 24, 47]
    assert spec.swizzle(lanes, 0xE018)[[1, 4, 9, 36]].tolist() == [4, 1, 12, 33]
    assert spec.swizzle(lanes, 0xE01F).tolist() == lanes.tolist()
    assert spec.swizzle(lanes, 0x8000 | 0b00_01_10_11)[:8].tolist() == [3, 2, 1, 0, 7, 6, 5, 4]
    assert spec.swizzle(lanes, 0xC000 | 5 << 5)[[0, 26, 27, 31, 32, 59]].tolist() == [5, 31, 0, 4, 37, 32]
    assert spec.swizzle(lanes, 0x041F)[:4].tolist() == [1, 0, 3, 2]


def test_lds_bounds() -> None:
    b = Bench(lds_bytes=1024)
    address = (LANES * 16).astype(np.uint32)
    b.set(v(1), address)
    b.must_run(instruction("ds_read_b128", v(10, 4), v(1), encoding="ds"), DONE)
    assert b.run(instruction("ds_read_b128", v(10, 4), v(1), encoding="ds", offset=4)) == state.FAULT_LDS_BOUNDS
    assert int(b.raw[state.FAULT_LANES : state.FAULT_LANES + 8].view(np.uint64)[0]) == 1 << 63


def device(b: Bench, size: int = 4096) -> tuple[object, np.ndarray]:
    allocation = b.memory.allocate(size)
    allocation.bytes[:] = RNG.integers(0, 256, size).astype(np.uint8)
    return allocation, allocation.bytes.copy()


def addresses(b: Bench, register: int, base: int, offsets: np.ndarray) -> None:
    full = (base + offsets).astype(np.uint64)
    b.set(v(register, 2), full)


def check_load(name: str, active: int) -> None:
    space, _, tail = name.partition("_load_")
    part = spec.LOADS[tail]
    b = Bench(scratch_bytes=256)
    allocation, memory = device(b)
    offsets = RNG.permutation(64).astype(np.int64) * 20 + (1 if space != "buffer" and part.bits == 8 else 0)
    old = fill(b, 10, part.dwords)
    b.exec = active
    destination = v(10, part.dwords)
    if space == "global":
        b.set_sgpr64(4, allocation.address)
        b.set(v(1), (offsets + 64).astype(np.uint32))
        b.must_run(instruction(name, destination, v(1), s(4, 2), encoding="global", offset=-64), DONE)
        want = spec.load(memory, offsets.tolist(), part, old, active)
    elif space == "flat":
        addresses(b, 2, allocation.address, offsets)
        b.must_run(instruction(name, destination, v(2, 2), encoding="flat", offset=12), DONE)
        want = spec.load(memory, (offsets + 12).tolist(), part, old, active)
    elif space == "scratch":
        b.scratch[:] = RNG.integers(0, 256, b.scratch.size).astype(np.uint8)
        where = (LANES * 3).astype(np.uint32)
        b.set(v(1), where)
        b.must_run(instruction(name, destination, v(1), OFF, encoding="scratch", offset=16), DONE)
        want = spec.load(b.scratch, (LANES * 256 + where + 16).tolist(), part, old, active)
    else:
        descriptor(b, 4, allocation.address, 4096)
        b.set_sgpr(8, 100)
        b.set(v(1), offsets.astype(np.uint32))
        b.must_run(instruction(name, destination, v(1), s(4, 4), s(8), encoding="mubuf", offen=1, offset=7), DONE)
        want = spec.load(memory, (offsets + 107).tolist(), part, old, active)
    assert np.array_equal(registers(b, 10, part.dwords), want)


def check_store(name: str, active: int) -> None:
    space, _, tail = name.partition("_store_")
    part = spec.STORES[tail]
    b = Bench(scratch_bytes=256)
    allocation, memory = device(b)
    offsets = RNG.permutation(64).astype(np.int64) * 20
    data = fill(b, 10, part.dwords)
    b.exec = active
    source = v(10, part.dwords)
    if space == "global":
        addresses(b, 2, allocation.address, offsets)
        b.must_run(instruction(name, v(2, 2), source, OFF, encoding="global", offset=8), DONE)
        spec.store(memory, (offsets + 8).tolist(), part, data, active)
    elif space == "flat":
        addresses(b, 2, allocation.address, offsets)
        b.must_run(instruction(name, v(2, 2), source, encoding="flat"), DONE)
        spec.store(memory, offsets.tolist(), part, data, active)
    elif space == "scratch":
        b.set_sgpr(8, 32)
        b.must_run(instruction(name, OFF, source, s(8), encoding="scratch", offset=16), DONE)
        want = np.zeros(b.scratch.size, np.uint8)
        spec.store(want, (LANES * 256 + 48).tolist(), part, data, active)
        assert np.array_equal(b.scratch, want)
    else:
        descriptor(b, 4, allocation.address, 4096)
        b.set(v(1), offsets.astype(np.uint32))
        b.must_run(instruction(name, source, v(1), s(4, 4), imm(16), encoding="mubuf", offen=1, offset=4), DONE)
        spec.store(memory, (offsets + 20).tolist(), part, data, active)
    assert np.array_equal(allocation.bytes, memory)


def descriptor(b: Bench, register: int, base: int, records: int, stride: int = 0) -> None:
    b.set_sgpr64(register, base | stride << 48)
    b.set_sgpr(register + 2, records)
    b.set_sgpr(register + 3, 0x00020000)


@pytest.mark.parametrize("records", [0, 3, 4, 250, 256, 258, 1000])
@pytest.mark.parametrize("soffset", [0, 12, 300])
def test_buffer_range_is_checked_by_dword(records: int, soffset: int) -> None:
    """Dwords beyond num_records - soffset read zero and are not written; nothing outside is touched."""
    b = Bench()
    allocation, memory = device(b, 4096)
    descriptor(b, 4, allocation.address, records)
    b.set_sgpr(8, soffset)
    b.set(v(1), (LANES * 12).astype(np.uint32))
    fill(b, 10, 4)
    b.must_run(instruction("buffer_load_dwordx4", v(10, 4), v(1), s(4, 4), s(8), encoding="mubuf", offen=1), DONE)
    got = registers(b, 10, 4)
    data = fill(b, 20, 4)
    b.must_run(instruction("buffer_store_dwordx4", v(20, 4), v(1), s(4, 4), s(8), encoding="mubuf", offen=1), DONE)
    for lane in range(64):
        for k in range(4):
            offset = 12 * lane + 4 * k
            inside = offset + 4 + soffset <= records
            at = soffset + offset
            assert got[k, lane] == (memory[at : at + 4].view(np.uint32)[0] if inside else 0)
    for lane in range(64):
        for k in range(4):
            at = 12 * lane + 4 * k + soffset
            if at + 4 <= records:
                memory[at : at + 4] = data[k : k + 1, lane].view(np.uint8)
    assert np.array_equal(allocation.bytes, memory)


def test_buffer_offsets_do_not_wrap_at_32_bits() -> None:
    b = Bench()
    allocation, _ = device(b)
    descriptor(b, 4, allocation.address, 4096)
    b.set(v(1), np.full(64, 0xFFFFFFFC, np.uint32))
    fill(b, 10, 1)
    b.must_run(
        instruction("buffer_load_dword", v(10), v(1), s(4, 4), imm(0), encoding="mubuf", offen=1, offset=8), DONE
    )
    assert (b.row(v(10)) == 0).all()


def test_buffer_inside_descriptor_but_outside_allocation() -> None:
    b = Bench()
    allocation, _ = device(b, 1024)
    descriptor(b, 4, allocation.address, 0xFFFFFFFF)
    b.set(v(1), (LANES * 16 + 8).astype(np.uint32))
    load = instruction("buffer_load_dwordx4", v(10, 4), v(1), s(4, 4), imm(0), encoding="mubuf", offen=1)
    assert b.run(load) == state.FAULT_MEMORY_BOUNDS
    assert int(b.raw[state.FAULT_LANES : state.FAULT_LANES + 8].view(np.uint64)[0]) == 1 << 63


def test_buffer_index_and_stride() -> None:
    b = Bench()
    allocation, memory = device(b)
    descriptor(b, 4, allocation.address, 4096, stride=24)
    b.set(v(1), LANES.astype(np.uint32))
    b.set(v(2), np.full(64, 8, np.uint32))
    b.must_run(
        instruction("buffer_load_dword", v(10), v(1, 2), s(4, 4), imm(0), encoding="mubuf", offen=1, idxen=1), DONE
    )
    none = np.zeros((1, 64), np.uint32)
    assert np.array_equal(registers(b, 10, 1), spec.load(memory, (LANES * 24 + 8).tolist(), spec.Part(1), none, FULL))


def test_records_are_counted_with_an_index() -> None:
    """num_records counts records when there is an index and a stride: index 60 of 60 is outside, and dword 6 of 6."""
    b = Bench()
    allocation, memory = device(b, 4096)
    descriptor(b, 4, allocation.address, 60, stride=24)
    b.set(v(1), LANES.astype(np.uint32))
    load = instruction("buffer_load_dwordx2", v(10, 2), v(1), s(4, 4), imm(0), encoding="mubuf", idxen=1, offset=20)
    b.must_run(load, DONE)
    last = memory.view(np.uint32)[5 : 5 + 6 * 64 : 6]
    assert np.array_equal(b.row(v(10)), np.where(LANES < 60, last, 0))
    assert (b.row(v(11)) == 0).all()
    descriptor(b, 4, allocation.address, 60, stride=0)
    b.must_run(load, DONE)
    assert (b.row(v(10)) == memory[20:24].view(np.uint32)[0]).all()


@pytest.mark.parametrize("index_stride", range(4))
@pytest.mark.parametrize("tail", ["dword", "dwordx2", "dwordx4", "ubyte", "ushort"])
@pytest.mark.parametrize("add_tid", [0, 1])
def test_swizzled_buffer(tail: str, index_stride: int, add_tid: int) -> None:
    """Dword d of record i lies at ((i / n) stride + 4 d) n + 4 (i % n); 60 records of 24 bytes."""
    part = spec.LOADS[tail]
    b = Bench()
    allocation, memory = device(b, 8192)
    descriptor(b, 4, allocation.address | 1 << 63, 60, stride=24)
    b.set_sgpr(7, 0x1000 << 0 | index_stride << 21 | add_tid << 23)
    index = np.zeros(64, np.int64) if add_tid else RNG.permutation(64)
    inner = RNG.integers(0, 7, 64) * 4
    if part.bits != 32:
        inner += RNG.integers(0, 4 // part.bytes, 64) * part.bytes
    b.set(v(1), index.astype(np.uint32))
    b.set(v(2), inner.astype(np.uint32))
    b.set_sgpr(8, 16)
    data = fill(b, 20, part.dwords)
    load = instruction(
        f"buffer_load_{tail}", v(10, part.dwords), v(1, 2), s(4, 4), s(8), encoding="mubuf", offen=1, idxen=1
    )
    b.must_run(load, DONE)
    got = registers(b, 10, part.dwords)
    name = f"buffer_store_{tail}".replace("_u", "_")
    b.must_run(instruction(name, v(20, part.dwords), v(1, 2), s(4, 4), s(8), encoding="mubuf", offen=1, idxen=1), DONE)
    want = memory.copy()
    step = min(4, part.bytes)
    for lane in range(64):
        for k in range(part.dwords):
            at = spec.swizzled(
                int(index[lane]) + add_tid * lane, int(inner[lane]) + 4 * k, step, 24, 60, 8 << index_stride
            )
            if at is None:
                assert got[k, lane] == 0
                continue
            held = memory[16 + at : 16 + at + step]
            assert got[k, lane] == int.from_bytes(held.tobytes(), "little")
            want[16 + at : 16 + at + step] = data[k : k + 1, lane].view(np.uint8)[:step]
    assert np.array_equal(allocation.bytes, want)


def test_swizzled_buffer_by_hand() -> None:
    """Stride 8, 8 records together: dword 1 of record 0 follows dword 0 of record 7; record 8 starts at byte 64."""
    assert [spec.swizzled(i, d, 4, 8, 100, 8) for i, d in ((0, 0), (7, 0), (0, 4), (7, 4), (8, 0))] == [
        0,
        28,
        32,
        60,
        64,
    ]
    assert spec.swizzled(100, 0, 4, 8, 100, 8) is None and spec.swizzled(0, 8, 4, 8, 100, 8) is None


@pytest.mark.parametrize("tail", ["dword", "dwordx3", "dwordx4", "ubyte", "ushort"])
@pytest.mark.parametrize("active", EXECS)
@pytest.mark.parametrize("offset", [0, 100])
def test_buffer_load_to_lds(tail: str, active: int, offset: int) -> None:
    """M0 + offset + lane · size; lanes out of range write zeros, switched-off lanes nothing."""
    part = spec.LOADS[tail]
    size = max(4, part.bytes)
    b = Bench("gfx950")
    allocation, memory = device(b, 4096)
    descriptor(b, 4, allocation.address, 1000)
    offsets = RNG.permutation(64).astype(np.int64) * 20
    b.set(v(1), offsets.astype(np.uint32))
    b.lds[:] = 0xEE
    b.set_sgpr(124, 512)
    b.exec = active
    load = instruction(f"buffer_load_{tail}", v(1), s(4, 4), imm(0), encoding="mubuf", offen=1, lds=1, offset=offset)
    b.must_run(load, DONE)
    offsets += offset
    want = np.full(b.lds.size, 0xEE, np.uint8)
    for lane in range(64):
        if active >> lane & 1:
            data = np.zeros(size, np.uint8)
            step = min(4, part.bytes)
            for k in range(0, part.bytes, step):
                at = offsets[lane] + k
                if at + step <= 1000:
                    data[k : k + step] = memory[at : at + step]
            to = 512 + offset + lane * size
            want[to : to + size] = data
    assert np.array_equal(b.lds, want)


def check_global_load_to_lds(name: str, active: int) -> None:
    part = spec.LOADS[name.rpartition("_")[2]]
    size = max(4, part.bytes)
    b = Bench("gfx950")
    allocation, memory = device(b, 4096)
    offsets = RNG.permutation(64).astype(np.int64) * 16
    b.set_sgpr64(4, allocation.address)
    b.set(v(1), offsets.astype(np.uint32))
    b.lds[:] = 0xEE
    b.set_sgpr(124, 256)
    b.exec = active
    b.must_run(instruction(name, v(1), s(4, 2), encoding="global", offset=32), DONE)
    loaded = spec.load(memory, (offsets + 32).tolist(), part, np.zeros((part.dwords, 64), np.uint32), active)
    want = np.full(b.lds.size, 0xEE, np.uint8)
    for lane in range(64):
        if active >> lane & 1:
            at = 288 + size * lane
            want[at : at + size] = np.ascontiguousarray(loaded[:, lane]).view(np.uint8)
    assert np.array_equal(b.lds, want)


def test_direct_load_beyond_lds() -> None:
    b = Bench("gfx950", lds_bytes=1024)
    allocation, _ = device(b)
    descriptor(b, 4, allocation.address, 4096)
    b.set(v(1), np.zeros(64, np.uint32))
    b.set_sgpr(124, 4)
    load = instruction("buffer_load_dwordx4", v(1), s(4, 4), imm(0), encoding="mubuf", offen=1, lds=1)
    assert b.run(load) == state.FAULT_LDS_BOUNDS
    assert M0.name == "m0"


def test_flat_apertures() -> None:
    b = Bench(scratch_bytes=256)
    allocation, _ = device(b)
    where = np.where(
        LANES % 3 == 0, allocation.address, np.where(LANES % 3 == 1, SHARED_APERTURE << 32, PRIVATE_APERTURE << 32)
    )
    offset = np.where(LANES % 3 == 2, 8, LANES * 8)
    addresses(b, 2, 0, where.astype(np.int64) + offset)
    data = fill(b, 10, 2)
    b.must_run(
        instruction("flat_store_dwordx2", v(2, 2), v(10, 2), encoding="flat"),
        DONE,
        instruction("flat_load_dwordx2", v(20, 2), v(2, 2), encoding="flat"),
        DONE,
    )
    assert np.array_equal(registers(b, 20, 2), data)
    assert b.lds[8:16].view(np.uint32).tolist() == data[:, 1].tolist()
    assert b.scratch[2 * 256 + 8 : 2 * 256 + 16].view(np.uint32).tolist() == data[:, 2].tolist()


def test_global_access_outside() -> None:
    b = Bench()
    first, _ = device(b, 256)
    offsets = LANES.astype(np.int64) * 4
    offsets[17], offsets[40] = 256, -4
    addresses(b, 2, first.address, offsets)
    store = instruction("global_store_dword", v(2, 2), v(10), OFF, encoding="global")
    assert b.run(store) == state.FAULT_MEMORY_BOUNDS
    lanes = int(b.raw[state.FAULT_LANES : state.FAULT_LANES + 8].view(np.uint64)[0])
    assert lanes == 1 << 17 | 1 << 40
    assert int(b.raw[state.FAULT_ADDRESS : state.FAULT_ADDRESS + 8].view(np.uint64)[0]) == first.address + 256


def test_read_only_memory() -> None:
    b = Bench()
    allocation = b.memory.allocate(256, read_only=True)
    addresses(b, 2, allocation.address, LANES.astype(np.int64) * 4)
    assert b.run(instruction("global_store_dword", v(2, 2), v(10), OFF, encoding="global")) == state.FAULT_READ_ONLY
    b.must_run(instruction("global_load_dword", v(10), v(2, 2), OFF, encoding="global"), DONE)


def lds_atomics() -> dict[str, str]:
    """DS names, with and without a result, and the key of the specification."""
    out = {}
    for key, one in spec.ATOMICS.items():
        out[one.lds_name] = out[one.lds_name.replace("_rtn", "")] = key
    return out


def check_atomic(name: str, returns: bool) -> None:
    """Eight cells, 64 lanes one after another in ascending order; the previous value comes back where it is asked for
    (DS: by the name)."""
    space = name.partition("_")[0]
    returns = "_rtn_" in name if space == "ds" else returns
    one = spec.ATOMICS[lds_atomics()[name] if space == "ds" else name.partition("_atomic_")[2]]
    b = Bench()
    allocation, _ = device(b, 4096)
    cells = one.random(RNG, 8)
    data = [one.random(RNG, 64) for _ in range(one.sources)]
    if one.sources == 2:
        data[1] = np.resize(cells, 64)
    index = LANES % 8
    size = cells.dtype.itemsize
    n = size // 4
    for k, values in enumerate(data):
        b.set(v(10 + k * n, n), values.view(np.dtype(f"u{size}")))
    target = b.lds if space == "ds" else allocation.bytes
    target[: 8 * size] = cells.view(np.uint8)
    b.exec = active = 0xFFFF_0FFF_FFFF_FFF7
    where = index * size
    result = 10 if space == "buffer" else 30
    out = [v(30, n)] if returns and space != "buffer" else []
    if space in ("global", "flat"):
        addresses(b, 2, allocation.address, where)
        off = [OFF] if space == "global" else []
        act = instruction(
            name, *out, v(2, 2), v(10, n * one.sources), *off, encoding=space, **({"sc0": 1} if returns else {})
        )
    elif space == "buffer":
        descriptor(b, 4, allocation.address, 4096)
        b.set(v(1), where.astype(np.uint32))
        act = instruction(
            name,
            v(10, n * one.sources),
            v(1),
            s(4, 4),
            imm(0),
            encoding="mubuf",
            offen=1,
            **({"sc0": 1} if returns else {}),
        )
    else:
        b.set(v(1), where.astype(np.uint32))
        operands = [v(10 + n * k, n) for k in reversed(range(one.sources))]
        act = instruction(name, *out, v(1), *operands, encoding="ds")
    before = b.get(v(result, n), cells.dtype.type).copy()
    b.must_run(act, DONE)
    want = cells.copy()
    for lane in range(64):
        if active >> lane & 1:
            if returns:
                before[lane] = want[index[lane]]
            want[index[lane]] = one.update(want[index[lane]], *(d[lane] for d in data))
    got = target[: 8 * size].view(cells.dtype)
    assert np.array_equal(got, want), name
    assert np.array_equal(b.get(v(result, n), cells.dtype.type), before)


SPECIAL = {
    "f4": [0x0, 0x80000000, 0x1, 0x807FFFFF, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000],
    "f8": [0x0, 1 << 63, 1, 0x3FF << 52, 0x7FEF << 48, 0x7FF << 52, 0xFFF << 52, 0x7FF8 << 48, 0x800F << 48],
}


@pytest.mark.parametrize("key", [k for k, a in spec.ATOMICS.items() if np.dtype(a.dtype).kind == "f"])
def test_float_atomics_on_special_operands(key: str) -> None:
    """Every special number against every other, one cell each."""
    one = spec.ATOMICS[key]
    size = np.dtype(one.dtype).itemsize
    special = np.array(SPECIAL[one.dtype], f"u{size}").view(one.dtype)
    old, new = (x.reshape(-1)[:64].copy() for x in np.meshgrid(special, special))
    b = Bench()
    b.set(v(1), (LANES * size).astype(np.uint32))
    b.set(v(2, size // 4), new.view(f"u{size}"))
    b.lds[: 64 * size] = old.view(np.uint8)
    name = one.lds_name.replace("_rtn", "")
    b.must_run(instruction(name, v(1), v(2, size // 4), encoding="ds"), DONE)
    got = b.lds[: 64 * size].view(one.dtype)
    with np.errstate(all="ignore"):
        want = np.array([one.update(x, y) for x, y in zip(old, new, strict=True)])
    same = (got.view(f"u{size}") == want.view(f"u{size}")) | (np.isnan(got) & np.isnan(want))
    assert same.all(), (old[~same], new[~same], got[~same], want[~same])


@pytest.mark.parametrize(
    "old,add,want",
    [
        (0x3F803F80, 0x3B803C00, 0x3F803F81),
        (0x7F7F7F80, 0x7F7F7F80, 0x7F807F80),
        (0x00018000, 0x00010000, 0x00020000),
        (0x3F813F81, 0x3B803B80, 0x3F823F82),
    ],
)
def test_packed_bf16_atomics_by_hand(old: int, add: int, want: int) -> None:
    """bf16 halves: 1 + 2**-7 has a place, 1 + 2**-8 is a tie to even; overflow; infinities; denormals; a tie upwards."""
    b = Bench()
    b.set(v(1), np.zeros(64, np.uint32))
    b.row(v(2))[:] = add
    b.exec = 1
    b.lds[:4] = np.array([old], np.uint32).view(np.uint8)
    b.must_run(instruction("ds_pk_add_bf16", v(1), v(2), encoding="ds"), DONE)
    got = int(b.lds[:4].view(np.uint32)[0])
    assert got == want, hex(got)


def test_misaligned_atomic() -> None:
    b = Bench()
    allocation, _ = device(b)
    addresses(b, 2, allocation.address + 2, LANES.astype(np.int64) * 4)
    add = instruction("global_atomic_add", v(2, 2), v(10), OFF, encoding="global")
    assert b.run(add) == state.FAULT_MISALIGNED
    b.set(v(1), np.full(64, 4, np.uint32))
    assert b.run(instruction("ds_add_u64", v(1), v(10, 2), encoding="ds")) == state.FAULT_MISALIGNED
    b.must_run(instruction("ds_add_u32", v(1), v(10), encoding="ds"), DONE)
