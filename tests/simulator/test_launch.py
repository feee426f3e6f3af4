"""Launch state, faults of whole kernels, impossible launches, sparse memory."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from simulator_compile import CHIPS, from_c

from tileir.simulator import Module, Simulator, SimulatorError, SimulatorFault

both = pytest.mark.parametrize("chip", CHIPS)
COPY = "KERNEL void k(GLOBAL u32 *out, GLOBAL u32 *in, int n) { int i = WG * 64 + TID; if (i < n) out[i] = in[i] + 1; }"


def load(source: str, chip: str = "gfx950", *options: str) -> tuple[Simulator, Module]:
    simulator = Simulator(chip)
    return simulator, simulator.load(from_c(source, chip, *options))


def fault_of(module: Module, *args: object, **kwargs: object) -> SimulatorFault:
    with pytest.raises(SimulatorFault) as caught:
        module.launch(*args, **kwargs)  # type: ignore[arg-type]
    return caught.value


@both
def test_out_of_bounds_names_lanes_allocation_and_line(chip: str) -> None:
    simulator, module = load(COPY, chip)
    out, data = simulator.memory.allocate(512, "out"), simulator.memory.allocate(400, "in")
    fault = fault_of(module, "k", (2, 1, 1), (64, 1, 1), [out, data, 110])
    assert fault.kind == "memory-bounds"
    assert fault.workgroup == (1, 0, 0) and fault.wave == 0 and fault.lanes == tuple(range(36, 46))
    assert fault.disassembly is not None and fault.disassembly.startswith("global_load_dword")
    assert fault.source is not None and fault.source.endswith("kernel.c:12")
    assert "'in' of 400 bytes" in str(fault) and "0 bytes behind" in str(fault)
    fault = fault_of(module, "k", (2, 1, 1), (64, 1, 1), [simulator.memory.allocate(300, "short"), out, 100])
    assert fault.disassembly is not None and "store" in fault.disassembly and "'short'" in str(fault)


@both
def test_endless_loop_meets_the_budget(chip: str) -> None:
    source = "KERNEL void k(GLOBAL volatile u32 *p) { while (p[0] == 0) {} }"
    simulator, module = load(source, chip)
    fault = fault_of(module, "k", (1, 1, 1), (64, 1, 1), [simulator.memory.allocate(4)], max_instructions=10000)
    assert fault.kind == "instruction-budget" and "10000" in fault.message


@both
def test_barrier_that_not_all_waves_reach(chip: str) -> None:
    source = """
    KERNEL __attribute__((amdgpu_flat_work_group_size(128, 128))) void k(GLOBAL u32 *p) {
      if (__builtin_amdgcn_readfirstlane(TID) < 64) __builtin_amdgcn_s_barrier(); p[TID] = 1; }"""
    simulator, module = load(source, chip)
    buffer = simulator.memory.allocate(512)
    fault = fault_of(module, "k", (1, 1, 1), (128, 1, 1), [buffer])
    assert fault.kind == "barrier-divergence" and "[0]" in fault.message and "[1]" in fault.message
    assert fault.disassembly == "s_barrier"
    module.launch("k", (1, 1, 1), (128, 1, 1), [buffer], strict_barriers=False)
    assert (buffer.read(np.uint32) == 1).all()


def _replace_first(code: bytes, module: Module, word: int) -> bytes:
    kernel = module.code.kernel("k")
    return code[: kernel.code_offset] + struct.pack("<I", word) + code[kernel.code_offset + 4 :]


@pytest.mark.parametrize(
    "word,kind,text",
    [
        (0xBFFF0000, "undecodable-instruction", "00 00 ff bf"),  # SOPP opcode 127 does not exist
        (0xBF900000 | 1 << 16, "unsupported-instruction", "s_sendmsghalt"),
        (0xBF920001, "trap", "s_trap"),
        (0x7E000280 | 200 << 17, "register-range", "v200"),  # v_mov_b32 v200, 0
        (0xBE801D06, "illegal-jump", "0x7fbadbad7fbadbad"),  # s_setpc_b64 s[6:7]
        (0xBF820000 | 0x4000, "illegal-jump", "no instruction"),  # s_branch far away
    ],
)
def test_instructions_that_cannot_run(word: int, kind: str, text: str) -> None:
    code = from_c(COPY, "gfx950")
    simulator = Simulator("gfx950")
    module = simulator.load(_replace_first(code, simulator.load(code), word))
    fault = fault_of(module, "k", (1, 1, 1), (64, 1, 1), [0, 0, 0])
    assert fault.kind == kind
    assert text in str(fault)
    assert fault.pc is not None


def test_running_past_the_end() -> None:
    code = from_c(COPY, "gfx950")
    simulator = Simulator("gfx950")
    kernel = simulator.load(code).code.kernel("k")
    text = kernel.code.replace(struct.pack("<I", 0xBF810000), struct.pack("<I", 0xBF800000))
    code = code[: kernel.code_offset] + text + code[kernel.code_offset + len(text) :]
    module = simulator.load(code)
    buffer = simulator.memory.allocate(256)
    assert fault_of(module, "k", (1, 1, 1), (64, 1, 1), [buffer, buffer, 64]).kind == "end-of-code"


def test_impossible_launches() -> None:
    simulator, module = load(COPY)
    for kwargs, text in (
        ({"kernel": "nope"}, "no kernel 'nope'"),
        ({"grid": (0, 1, 1)}, "grid"),
        ({"block": (64, 1)}, "block"),
        ({"block": (2048, 1, 1)}, "block"),
        ({"block": (1024, 2, 1)}, "2048 work-items"),
        ({"args": [1, 2]}, "3: "),
        ({"args": [1, 2, 1 << 33]}, "does not fit"),
        ({"args": bytes(5000)}, "kernarg segment"),
        ({"lds_dynamic": 1 << 20}, "LDS"),
        ({"workgroups": [(5, 0, 0)]}, "outside the grid"),
    ):
        arguments: dict[str, object] = {
            "kernel": "k",
            "grid": (1, 1, 1),
            "block": (64, 1, 1),
            "args": [0, 0, 0],
        } | kwargs
        with pytest.raises(SimulatorError, match=text):
            module.launch(**arguments)  # type: ignore[arg-type]
    with pytest.raises(SimulatorError, match="gfx942"):
        Simulator("gfx950").load(from_c(COPY, "gfx942"))
    with pytest.raises(SimulatorError, match="legal targets"):
        Simulator("gfx90a")
    with pytest.raises(SimulatorError, match="not a usable code object"):
        Simulator("gfx950").load(b"\x7fELF" + bytes(100))
    assert simulator.chip == "gfx950"


def test_subset_of_workgroups_and_statistics() -> None:
    simulator, module = load(COPY)
    out, data = simulator.memory.allocate(1024), simulator.memory.allocate(1024)
    statistics = module.launch("k", (4, 1, 1), (64, 1, 1), [out, data, 256], workgroups=[(2, 0, 0)])
    got = out.read(np.uint32)
    assert (got[128:192] == 1).all() and got.sum() == 64
    assert statistics.workgroups == 1 and statistics.waves == 1
    assert sum(statistics.executions.values()) == statistics.instructions > 10


@both
def test_arguments_of_many_sizes(chip: str) -> None:
    source = """
    KERNEL void k(GLOBAL u64 *out, u8 a, i16 b, float c, double d, u32 e, i64 f, u8 g, u64 h, u16 i, i32 j) {
      out[0] = a; out[1] = (u64)(i64)b; out[2] = (u64)(c * 4); out[3] = (u64)(d * 8); out[4] = e; out[5] = f; out[6] = g;
      out[7] = h; out[8] = i; out[9] = (u64)(i64)j; }"""
    simulator, module = load(source, chip)
    out = simulator.memory.allocate(80)
    module.launch(
        "k", (1, 1, 1), (1, 1, 1), [out, 200, -3, 2.5, 3.25, 1 << 31, -(1 << 40), np.uint8(7), (1 << 64) - 1, 65535, -9]
    )
    minus = (1 << 64) - 3
    assert out.read(np.uint64).tolist() == [
        200,
        minus,
        10,
        26,
        1 << 31,
        (1 << 64) - (1 << 40),
        7,
        (1 << 64) - 1,
        65535,
        (1 << 64) - 9,
    ]


@both
def test_preloaded_arguments(chip: str) -> None:
    """Kernel arguments marked inreg arrive in scalar registers; execution starts behind the 256-byte prologue."""
    source = COPY
    options = ("-mllvm", "-amdgpu-kernarg-preload-count=5")
    simulator, module = load(source, chip, *options)
    assert module.code.kernel("k").descriptor.kernarg_preload_length == 5
    out, data = simulator.memory.allocate(256), simulator.memory.allocate(256)
    data.write(np.arange(64, dtype=np.uint32))
    module.launch("k", (1, 1, 1), (64, 1, 1), [out, data, 64])
    assert np.array_equal(out.read(np.uint32), np.arange(64) + 1)


@both
def test_sparse_buffer_beyond_four_gigabytes(chip: str) -> None:
    source = "KERNEL void k(GLOBAL u8 *p, u64 step) { p[(u64)TID * step] = TID + 1; }"
    simulator, module = load(source, chip)
    step = (5 << 30) // 64
    buffer = simulator.memory.allocate(64 * step)
    module.launch("k", (1, 1, 1), (64, 1, 1), [buffer, step])
    assert buffer.bytes[::step].tolist() == list(range(1, 65))
    fault = fault_of(module, "k", (1, 1, 1), (64, 1, 1), [buffer, step + (1 << 26)])
    assert fault.kind == "memory-bounds"


@both
def test_freed_memory_faults(chip: str) -> None:
    simulator, module = load(COPY, chip)
    out, data = simulator.memory.allocate(256), simulator.memory.allocate(256)
    simulator.memory.free(data)
    assert fault_of(module, "k", (1, 1, 1), (64, 1, 1), [out, data, 64]).kind == "memory-bounds"
    with pytest.raises(SimulatorError, match="not allocated"):
        simulator.memory.free(data)


@both
def test_dynamic_lds(chip: str) -> None:
    source = """
    extern LDS u32 dynamic[];
    KERNEL void k(GLOBAL u32 *out) { dynamic[TID] = TID * 3; BARRIER(); out[TID] = dynamic[TID ^ 63]; }"""
    simulator, module = load(source, chip)
    out = simulator.memory.allocate(256)
    module.launch("k", (1, 1, 1), (64, 1, 1), [out], lds_dynamic=256)
    assert np.array_equal(out.read(np.uint32), (np.arange(64) ^ 63) * 3)
    fault = fault_of(module, "k", (1, 1, 1), (64, 1, 1), [out], lds_dynamic=252)
    assert fault.kind == "lds-bounds" and fault.lanes == (63,)


def test_import_is_light() -> None:
    """The simulator never needs the compiler."""
    import subprocess
    import sys

    program = "import sys, tileir.simulator; print([m for m in sys.modules if m == 'mlir' or m.startswith(('tileir.ir', 'tileir.lowering', 'tileir.passes'))])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
