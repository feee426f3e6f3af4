"""buffer_load_format, tbuffer_load_format and their stores: every format against the specification, and by hand."""

from __future__ import annotations

import numpy as np
from simulator_harness import Bench, imm, instruction, s, v, wait

from tileir.simulator import state
from tileir.simulator.spec import typed

DONE = wait(0, 0)
LANES = np.arange(64)
STRIDE = 20
FORMATS = [(data, number) for data in typed.NAMES for number in range(8)]
SELECT = (7, 4, 1, 0)  # w, x, one, zero


def setup(data: int, number: int, select: tuple[int, ...], seed: int) -> tuple[Bench, object]:
    """64 elements of STRIDE bytes each, three records fewer in range, with special patterns among random ones."""
    b = Bench()
    allocation = b.memory.allocate(64 * STRIDE)
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (64, STRIDE)).astype(np.uint8)
    raw[1], raw[2], raw[3, ::2] = 0, 255, 0x80
    width = typed.widths(data)[0]
    if number == 7 and width in (16, 32):
        special = np.array([0x7F800000, 0x7FC00000, 1, 0x80000000, 0x477FF000] * 2, np.uint32)
        small = np.array([0x7C00, 0x7E00, 1, 0x8000, 0x3C00] * 2, np.uint16)
        raw[4:14, :4] = (special if width == 32 else np.repeat(small, 2)).view(np.uint8).reshape(10, 4)
    allocation.bytes[:] = raw.reshape(-1)
    b.set_sgpr64(4, allocation.address | STRIDE << 48)
    b.set_sgpr(6, 61)
    chosen = sum(x << 3 * i for i, x in enumerate(select))
    b.set_sgpr(7, chosen | number << 12 | data << 15)
    b.set(v(1), LANES.astype(np.uint32))
    return b, allocation


def parts(tail: str) -> tuple[int, bool, bool]:
    """(components, 16 bits, upper half) of an opcode."""
    return len(tail.rpartition("_")[2]), "d16" in tail, "hi" in tail


def same(got: int, want: int, number: int, half: bool) -> bool:
    """NaNs are alike."""
    if got == want or number != 7:
        return got == want
    dtype = (np.uint16, np.float16) if half else (np.uint32, np.float32)
    return bool(np.isnan(np.array([got, want], dtype[0]).view(dtype[1])).all())


def run_load(name: str, data: int, number: int) -> None:
    """One load on all lanes; formats without a meaning must fault."""
    select = SELECT if name.startswith("buffer") else (4, 5, 6, 7)
    b, allocation = setup(data, number, select, data + 16 * number)
    components, half, high = parts(name)
    registers = (components + 1) // 2 if half else components
    for i in range(registers):
        b.row(v(10 + i))[:] = 0xABCD1234
    modifiers = {"dfmt": data, "nfmt": number} if name.startswith("t") else {}
    encoding = "mtbuf" if name.startswith("t") else "mubuf"
    load = instruction(name, v(10, registers), v(1), s(4, 4), imm(0), encoding=encoding, idxen=1, **modifiers)
    if not typed.loadable(data, number):
        assert b.run(load) == state.FAULT_DESCRIPTOR
        return
    b.must_run(load, DONE)
    for lane in range(64):
        element = allocation.bytes[lane * STRIDE : lane * STRIDE + typed.size(data)].tobytes()
        if lane >= 61:
            element = b""
        chosen = None if name.startswith("t") else SELECT
        want = typed.load(element, data, number, half, chosen)
        for c in range(components):
            if half:
                word = int(b.row(v(10 + c // 2))[lane])
                up = high or c % 2
                got = word >> 16 if up else word & 0xFFFF
                if components % 2 and c == components - 1:
                    assert (word & 0xFFFF if up else word >> 16) == (0x1234 if up else 0xABCD)
            else:
                got = int(b.row(v(10 + c))[lane])
            assert same(got, want[c], number, half), (lane, c, hex(got), hex(want[c]), element.hex())


def run_store(name: str, data: int, number: int) -> None:
    """One store of all lanes; nothing else may change."""
    b, allocation = setup(data, number, (4, 5, 6, 7), data + 16 * number)
    components, half, high = parts(name)
    registers = (components + 1) // 2 if half else components
    rng = np.random.default_rng(data)
    rows = np.zeros((4, 64), np.uint32)
    for c in range(components):
        values = rng.normal(0, 0.7, 64).astype(np.float32)
        values[:6] = [0.0, 1.0, -1.0, np.nan, np.inf, -np.inf]
        if number in (4, 5):
            rows[c] = rng.integers(0, 1 << (16 if half else 32), 64)
        else:
            rows[c] = values.astype(np.float16).view(np.uint16) if half else values.view(np.uint32)
    for i in range(registers):
        if not half:
            b.row(v(10 + i))[:] = rows[i]
        elif high:
            b.row(v(10 + i))[:] = rows[0] << 16 | 0x5555
        else:
            b.row(v(10 + i))[:] = rows[2 * i] | (rows[2 * i + 1] << 16 if 2 * i + 1 < components else 0x55550000)
    before = allocation.bytes.copy()
    modifiers = {"dfmt": data, "nfmt": number} if name.startswith("t") else {}
    encoding = "mtbuf" if name.startswith("t") else "mubuf"
    store = instruction(name, v(10, registers), v(1), s(4, 4), imm(0), encoding=encoding, idxen=1, **modifiers)
    if not typed.storable(data, number) or len(typed.widths(data)) > components:
        assert b.run(store) == state.FAULT_DESCRIPTOR
        return
    b.must_run(store, DONE)
    want = before.reshape(64, STRIDE).copy()
    for lane in range(61):
        element = typed.store(rows[:components, lane].tolist(), data, number, half)
        want[lane, : len(element)] = np.frombuffer(element, np.uint8)
    got = allocation.bytes.reshape(64, STRIDE)
    bad = np.flatnonzero((got != want).any(1))
    if number == 7:  # NaNs may differ in their payload
        bad = [i for i in bad if not any(np.isnan(x) for x in _floats(rows[:components, i], half))]
    assert not len(bad), (bad[:4], got[bad[0]], want[bad[0]])


def _floats(codes: np.ndarray, half: bool) -> list[float]:
    if half:
        return codes.astype(np.uint16).view(np.float16).tolist()
    return codes.astype(np.uint32).view(np.float32).tolist()


def check_op(name: str) -> None:
    """A load or store in every format."""
    for data, number in FORMATS:
        (run_load if "_load_" in name else run_store)(name, data, number)


def one_dword(data: int, number: int, word: int) -> list[float]:
    """x, y, z, w of a dword through tbuffer_load_format_xyzw."""
    b, allocation = setup(data, number, (4, 5, 6, 7), 0)
    allocation.bytes[:4] = np.array([word], np.uint32).view(np.uint8)
    load = instruction(
        "tbuffer_load_format_xyzw",
        v(10, 4),
        v(1),
        s(4, 4),
        imm(0),
        encoding="mtbuf",
        idxen=1,
        dfmt=data,
        nfmt=number,
    )
    b.must_run(load, DONE)
    return [float(b.get(v(10 + i), np.float32)[0]) for i in range(4)]


def test_by_hand() -> None:
    """2_10_10_10 unorm: x in the lowest ten bits. 10_11_11 float: x and y of eleven bits, z of ten. snorm: -128 is -1."""
    assert one_dword(9, 0, 1023 | 0 << 10 | 341 << 20 | 3 << 30) == [1.0, 0.0, float(np.float32(341 / 1023)), 1.0]
    one11, half11, two10 = 15 << 6, 14 << 6, 16 << 5
    assert one_dword(6, 7, one11 | half11 << 11 | two10 << 22) == [1.0, 0.5, 2.0, 0.0]
    assert one_dword(10, 1, 0x7F_80_81_00) == [0.0, -1.0, -1.0, 1.0]
    assert one_dword(10, 3, 0x7F_80_FF_00) == [0.0, -1.0, -128.0, 127.0]


def test_a_store_through_another_selection_is_refused() -> None:
    b, _ = setup(10, 0, (5, 4, 6, 7), 0)
    store = instruction("buffer_store_format_xyzw", v(10, 4), v(1), s(4, 4), imm(0), encoding="mubuf", idxen=1)
    assert b.run(store) == state.FAULT_DESCRIPTOR


def test_access_outside_every_allocation() -> None:
    b, _ = setup(14, 4, (4, 5, 6, 7), 0)
    b.set_sgpr(6, 1 << 20)
    b.set(v(1), LANES.astype(np.uint32) + 1)
    load = instruction("buffer_load_format_xyzw", v(10, 4), v(1), s(4, 4), imm(0), encoding="mubuf", idxen=1)
    assert b.run(load) == state.FAULT_MEMORY_BOUNDS
    assert int(b.raw[state.FAULT_LANES : state.FAULT_LANES + 8].view(np.uint64)[0]) == 1 << 63
