"""Rare memory, LDS and lane operations against their specifications, each on random and special operands."""

from __future__ import annotations

import numpy as np
from simulator_harness import FULL, OFF, Bench, imm, instruction, s, v, wait

from tileir.simulator import state
from tileir.simulator.spec import lanes, media
from tileir.simulator.spec import memory as spec

LANES = np.arange(64)
DONE = wait(0, 0)
ACTIVE = 0xFFFF_0FFF_FFFF_FFF7
EDGES = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7F800000, 0x7FC00000, 0x3F800000, 0x00000001, 0xBFF00000]


def numbers(rng: np.random.Generator, size: int, n: int) -> list[int]:
    """Patterns of 4 or 8 bytes: special dwords in all places among random ones."""
    words = rng.integers(0, 1 << 32, (n, size // 4), dtype=np.uint32)
    words[rng.random((n, size // 4)) < 0.6] = rng.choice(np.array(EDGES, np.uint32))
    pick = rng.random((n, size // 4)) < 0.5
    words[pick] = rng.choice(np.array(EDGES, np.uint32), pick.sum())
    return [int.from_bytes(row.tobytes(), "little") for row in words]


def put(b: Bench, register: int, values: list[int], size: int) -> None:
    b.set(v(register, size // 4), np.array(values, f"u{size}"))


def get(b: Bench, register: int, size: int) -> list[int]:
    return b.get(v(register, size // 4), np.dtype(f"u{size}").type).tolist()


def check_lds_update(full: str) -> None:
    """Eight cells that 64 lanes update one after another."""
    returns = "_rtn_" in full
    head, _, tail = full.rpartition("_")
    one = spec.LDS_UPDATES[full if returns else f"{head}_rtn_{tail}"]
    name = full
    rng = np.random.default_rng(len(name))
    b, n = Bench(), one.size // 4
    cells = numbers(rng, one.size, 8)
    data = [numbers(rng, one.size, 64) for _ in range(one.data)]
    if one.data == 2:
        data[0][:32] = [cells[lane % 8] for lane in range(32)]  # comparisons that hold
    b.lds[: 8 * one.size] = np.frombuffer(b"".join(c.to_bytes(one.size, "little") for c in cells), np.uint8)
    b.set(v(1), (LANES % 8 * one.size).astype(np.uint32))
    for k, values in enumerate(data):
        put(b, 10 + 2 * k, values, one.size)
    put(b, 30, [7] * 64, one.size)
    b.exec = ACTIVE
    operands = [v(1), *(v(10 + 2 * k, n) for k in range(one.data))]
    b.must_run(instruction(full, *([v(30, n)] if returns else []), *operands, encoding="ds"), DONE)
    old = [7] * 64
    for lane in range(64):
        if ACTIVE >> lane & 1:
            old[lane] = cells[lane % 8]
            cells[lane % 8] = one.update(cells[lane % 8], *(d[lane] for d in data))
    held = [int.from_bytes(b.lds[i * one.size : (i + 1) * one.size].tobytes(), "little") for i in range(8)]
    assert held == cells, full
    if returns:
        assert get(b, 30, one.size) == old


def test_lds_updates_by_hand() -> None:
    """[ISA] wrap: 5 - 3, and 2 + 10 where 2 < 3. mskor: clear the mask, then set. A NaN is equal to nothing."""
    assert spec.LDS_UPDATES["ds_wrap_rtn_b32"].update(5, 3, 10) == 2
    assert spec.LDS_UPDATES["ds_wrap_rtn_b32"].update(2, 3, 10) == 12
    assert spec.LDS_UPDATES["ds_mskor_rtn_b32"].update(0xFF00FF00, 0xFFFF, 0x12) == 0xFF000012
    assert spec.LDS_UPDATES["ds_cmpst_rtn_f32"].update(0x80000000, 0, 9) == 9  # -0 equals +0
    assert spec.LDS_UPDATES["ds_cmpst_rtn_f32"].update(0x7FC00000, 0x7FC00000, 9) == 0x7FC00000
    assert spec.LDS_UPDATES["ds_condxchg32_rtn_b64"].update(0x0000000A_0000000B, 0x80000005_00000006) == 0x5_0000000B
    assert spec.LDS_UPDATES["ds_rsub_rtn_u32"].update(3, 10) == 7


def check_double_exchange(name: str) -> None:
    dwords, stride = (2 if name.endswith("b64") else 1), "st64" if "st64" in name else ""
    rng = np.random.default_rng(dwords)
    b, size = Bench(), 4 * dwords
    unit = size * (64 if stride else 1)
    b.lds[:65536] = rng.integers(0, 256, 65536)
    before = b.lds.copy()
    b.set(v(1), (LANES * size).astype(np.uint32))
    first, second = numbers(rng, size, 64), numbers(rng, size, 64)
    put(b, 10, first, size)
    put(b, 12, second, size)
    b.exec = ACTIVE
    operands = (v(20, 2 * dwords), v(1), v(10, dwords), v(12, dwords))
    b.must_run(instruction(name, *operands, encoding="ds", offset0=64, offset1=1), DONE)
    got = [get(b, 20, size), get(b, 20 + dwords, size)]
    for lane in range(64):
        if ACTIVE >> lane & 1:
            for i, offset, new in ((0, 64, first), (1, 1, second)):
                at = lane * size + offset * unit
                assert got[i][lane] == int.from_bytes(before[at : at + size].tobytes(), "little")
                before[at : at + size] = np.frombuffer(new[lane].to_bytes(size, "little"), np.uint8)
    assert np.array_equal(b.lds, before)


def check_counter(name: str) -> None:
    """All active lanes receive the previous count; the counter moves by their number."""
    sign = 1 if name == "ds_append" else -1
    for active in (FULL, ACTIVE, 1 << 63, 0):
        b = Bench()
        b.lds[24:28] = np.array([1000], np.uint32).view(np.uint8)
        b.set_sgpr(124, 16)
        b.row(v(3))[:] = 5
        b.exec = active
        b.must_run(instruction(name, v(3), encoding="ds", offset=8), DONE)
        assert b.lds[24:28].view(np.uint32)[0] == 1000 + sign * active.bit_count()
        assert b.row(v(3)).tolist() == [1000 if active >> lane & 1 else 5 for lane in range(64)]
        b.set_sgpr(124, 65536)
        if active:
            assert b.run(instruction(name, v(3), encoding="ds")) == state.FAULT_LDS_BOUNDS


def check_addtid(name: str) -> None:
    """ds_read_addtid_b32 and ds_write_addtid_b32, each through the other: M0 + offset + 4 * lane."""
    rng = np.random.default_rng(1)
    b = Bench()
    data = rng.integers(0, 1 << 32, 64, dtype=np.uint32)
    b.row(v(3))[:] = data
    b.row(v(4))[:] = 9
    b.set_sgpr(124, 256)
    b.exec = ACTIVE
    b.must_run(
        instruction("ds_write_addtid_b32", v(3), encoding="ds", offset=64),
        DONE,
        instruction("ds_read_addtid_b32", v(4), encoding="ds", offset=64),
        DONE,
    )
    live = np.array([bool(ACTIVE >> lane & 1) for lane in range(64)])
    assert np.array_equal(b.lds[320:576].view(np.uint32), np.where(live, data, 0))
    assert np.array_equal(b.row(v(4)), np.where(live, data, 9))


def check_scratch_load_to_lds(name: str) -> None:
    """Private memory of each lane to M0 + offset + lane * 4."""
    part = spec.LOADS[name.rpartition("_")[2]]
    b = Bench(scratch_bytes=64)
    b.scratch[:] = np.random.default_rng(2).integers(0, 256, b.scratch.size)
    b.set(v(1), (LANES % 8).astype(np.uint32))
    b.set_sgpr(124, 128)
    b.exec = ACTIVE
    b.lds[:] = 0xEE
    b.must_run(instruction(name, v(1), OFF, encoding="scratch", offset=8), DONE)
    none = np.zeros((1, 64), np.uint32)
    want = spec.load(b.scratch, (LANES * 64 + LANES % 8 + 8).tolist(), part, none, ACTIVE)[0]
    got = b.lds[136:392].view(np.uint32)
    for lane in range(64):
        assert got[lane] == (want[lane] if ACTIVE >> lane & 1 else 0xEEEEEEEE)


def descriptor(b: Bench, register: int, base: int, records: int, stride: int = 0) -> None:
    b.set_sgpr64(register, base | stride << 48)
    b.set_sgpr(register + 2, records)


def check_scalar_memory(name: str, register_offset: bool) -> None:
    """The two lowest address bits do not count; buffer forms stop at the end of the buffer, dword by dword."""
    stores = "store" in name
    n = (spec.SCALAR_STORES if stores else spec.SCALAR_LOADS)[name]
    rng = np.random.default_rng(n)
    for offset in (0, 8, 18, 40):
        b = Bench()
        allocation = b.memory.allocate(256)
        allocation.bytes[:] = rng.integers(0, 256, 256)
        memory = allocation.bytes.copy()
        data = rng.integers(0, 1 << 32, n, dtype=np.uint32)
        for k in range(n):
            b.set_sgpr(20 + k, int(data[k]))
        buffer = "buffer" in name
        if buffer:
            descriptor(b, 4, allocation.address, 6, stride=8)
        else:
            b.set_sgpr64(4, allocation.address + 1)
        b.set_sgpr(10, offset + 12)
        place = (s(10),) if register_offset else (imm(offset),)
        more = {"offset": -12} if register_offset else {}
        b.must_run(instruction(name, s(20, n), s(4, 4 if buffer else 2), *place, encoding="smem", **more), DONE)
        start = (offset if buffer else offset + 1) & -4
        for k in range(n):
            at = start + 4 * k
            inside = not buffer or at + 4 <= 48
            if stores and inside:
                memory[at : at + 4] = data[k : k + 1].view(np.uint8)
            elif not stores:
                assert b.sgpr(20 + k) == (int(memory[at : at + 4].view(np.uint32)[0]) if inside else 0)
        assert np.array_equal(allocation.bytes, memory)


def test_scalar_store_faults() -> None:
    b = Bench()
    allocation = b.memory.allocate(64, read_only=True)
    b.set_sgpr64(4, allocation.address)
    store = instruction("s_store_dword", s(20), s(4, 2), imm(0), encoding="smem")
    assert b.run(store) == state.FAULT_READ_ONLY
    b.set_sgpr64(4, allocation.address + 64)
    assert b.run(store) == state.FAULT_MEMORY_BOUNDS


def check_scalar_atomic(name: str, returns: int) -> None:
    one = spec.ATOMICS[name.partition("atomic_")[2]]
    rng = np.random.default_rng(5)
    dtype = np.dtype(one.dtype)
    n = dtype.itemsize // 4
    for case in range(6):
        b = Bench()
        allocation = b.memory.allocate(64)
        old = one.random(rng, 1)
        data = [one.random(rng, 1) for _ in range(one.sources)]
        if one.sources == 2 and case % 2:
            data[1] = old.copy()
        allocation.bytes[16 : 16 + dtype.itemsize] = old.view(np.uint8)
        words = np.concatenate(data).view(np.uint32)
        for k, word in enumerate(words):
            b.set_sgpr(20 + k, int(word))
        records = 8 if case == 4 else 64
        if "buffer" in name:
            descriptor(b, 4, allocation.address, records)
        else:
            b.set_sgpr64(4, allocation.address)
        width = 4 if "buffer" in name else 2
        act = instruction(name, s(20, len(words)), s(4, width), imm(16), encoding="smem", glc=returns)
        b.must_run(act, DONE)
        outside = "buffer" in name and records == 8
        with np.errstate(over="ignore"):
            want = old[0] if outside else one.update(old[0], *(d[0] for d in data))
        assert allocation.bytes[16 : 16 + dtype.itemsize].view(dtype)[0] == want
        got = [b.sgpr(20 + k) for k in range(n)]
        previous = [0] * n if outside else old.view(np.uint32).tolist()
        assert got == (previous if returns else words[:n].tolist())


def check_four_sums(name: str) -> None:
    """Random, and by hand: windows of bytes 1 2 3 4 5 at the first two offsets against 1 0 3 4."""
    rng = np.random.default_rng(3)
    b = Bench()
    x = rng.integers(0, 1 << 63, 64).astype(np.uint64)
    y = rng.integers(0, 1 << 32, 64, dtype=np.uint32)
    y[::3] &= 0xFF00FFFF
    y[::5] = 0
    z = rng.integers(0, 1 << 32, (4, 64), dtype=np.uint32)
    x[7], y[7], z[:, 7] = 0x0504030201, 0x04030001, 100
    b.set(v(10, 2), x)
    b.set(v(12), y)
    for k in range(4):
        b.row(v(20 + k))[:] = z[k]
    b.exec = ACTIVE | 1 << 7
    b.must_run(instruction(name, v(20, 4), v(10, 2), v(12), v(20, 4)))
    want = media.four_wide_sums(x, y, z)
    for lane in range(64):
        live = b.exec >> lane & 1
        assert [b.row(v(20 + k))[lane] for k in range(4)] == (want if live else z)[:, lane].tolist()
    assert want[:2, 7].tolist() == [100, 103]


def check_lanes(name: str) -> None:
    rng = np.random.default_rng(4)
    x, y = (rng.integers(0, 1 << 32, 64, dtype=np.uint32) for _ in range(2))
    swaps = {
        "v_permlane16_swap_b32": lambda active: lanes.permlane_swap(x, y, 16),
        "v_permlane32_swap_b32": lambda active: lanes.permlane_swap(x, y, 32),
        "v_swap_b32": lambda active: lanes.swap(x, y, active),
    }
    for active in (FULL, ACTIVE, 1 << 40, 0):
        b = Bench()
        b.exec = active
        b.set(v(1), x)
        b.set(v(2), y)
        if name == "v_readfirstlane_b32":
            b.must_run(instruction(name, s(10), v(1)))
            assert b.sgpr(10) == lanes.readlane(x, lanes.first_lane(active))
        elif name in swaps:
            swap = instruction(name, v(1), v(2), encoding="vop1", size=4)
            if name != "v_swap_b32" and active != FULL:
                assert b.run(swap) == state.FAULT_EXEC
                continue
            b.must_run(swap)
            want = swaps[name](active)
            assert np.array_equal(b.row(v(1)), want[0]) and np.array_equal(b.row(v(2)), want[1])
        else:
            for lane in (0, 63, 64, 200):
                b.set(v(2), y)
                b.set_sgpr(11, 0xABCDEF01)
                if name == "v_readlane_b32":
                    b.must_run(instruction(name, s(10), v(1), imm(lane)))
                    assert b.sgpr(10) == lanes.readlane(x, lane)
                else:
                    b.must_run(instruction(name, v(2), s(11), imm(lane)))
                    assert np.array_equal(b.row(v(2)), lanes.writelane(y, lane, 0xABCDEF01))
