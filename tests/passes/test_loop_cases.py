"""Faults that users of other compilers reported of pipelined loops, each named after its case."""

from __future__ import annotations

import time

import pytest

from tileir.frontend import parse
from tileir.ir.core import Kernel, Op, Value
from tileir.lowering.amdgpu.compile import Options, compile_kernel
from tileir.passes.iteration import AHEAD_CLOCKS
from tileir.passes.manager import run_pipeline
from tileir.target import get

GEMM = """tileir 1
kernel @gemm<B: int = 128, BK: int = 64>(%A: global<bf16[M, K]>, %B: global<bf16[N, K]>, %C: global<f32[M, N]>)
    grid(cdiv(M, B), cdiv(N, B)) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[B, B]>
  %acc = for %k = 0 to K step BK carry(%c = %zero) {
    %a = load(%A[%i * B +: B, %k +: BK])
    %b = load(%B[%j * B +: B, %k +: BK])
    %d = mma(%a, transpose(%b), %c)
    yield %d
  }
  store(%acc, %C[%i * B +: B, %j * B +: B])
}
"""


def final(chip: str, pattern: str, depth: int, waves: str, size: int = 128) -> Kernel:
    way = "direct" if chip == "gfx950" else "via_registers"
    lines = f"  waves %acc {waves}\n  stage %a, %b in shared depth {depth} {way}\n  loop %k pattern {pattern}\n"
    text = f"{GEMM}schedule @s of @gemm for {chip} {{\n{lines}}}\n"
    return run_pipeline(parse(text, "gemm.tile", {"B": size}), "gemm", chip).kernel


def steady(kernel: Kernel) -> Op:
    return next(op for op in kernel.walk() if op.name == "for")


@pytest.mark.parametrize(
    ("pattern", "waves"), [("interleave", "2 x 2"), ("interleave", "2 x 4"), ("ping_pong", "2 x 4")]
)
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_drained_pipeline(depth: int, pattern: str, waves: str) -> None:
    """From two stages on, no wait of the steady state is for all copies that are on their way; from three on, a tile is."""
    kernel = final("gfx950", pattern, depth, waves)
    counts = [op.attrs["vm"] for op in steady(kernel).walk() if op.name == "wait" and "vm" in op.attrs]
    copies = sum(op.name == "copy_async_part" for op in steady(kernel).walk()) // len({*_buffers(kernel)}) * 2
    assert counts
    if pattern == "interleave" or depth > 2:
        assert all(isinstance(n, int) and n > 0 for n in counts), counts
    if depth > 2:
        assert all(isinstance(n, int) and n >= copies * (depth - 2) // 2 for n in counts), (counts, copies)


def _buffers(kernel: Kernel) -> list[Value]:
    return [op.operands[-1] for op in steady(kernel).walk() if op.name == "copy_async_part"]


@pytest.mark.parametrize(
    ("chip", "depth", "waves", "size"),
    [
        ("gfx950", 2, "2 x 2", 128),
        ("gfx950", 4, "2 x 2", 128),
        ("gfx950", 2, "2 x 4", 256),
        ("gfx942", 2, "2 x 2", 128),
        ("gfx942", 2, "2 x 4", 256),
    ],
)
def test_exposed_read(chip: str, depth: int, waves: str, size: int) -> None:
    """Between a read of LDS and its first use stand matrix instructions for as long as LDS takes to answer, round the loop, too."""
    body = steady(final(chip, "interleave", depth, waves, size)).regions[0]
    carried = dict(zip(body.terminator.operands, body.args[1:], strict=True))
    at: dict[Op, int] = {}
    for op in body.ops:
        at[op] = sum(o.name == "mfma" for o in at)
    steps = sum(op.name == "mfma" for op in body.ops)
    first = next(op for op in body.ops if op.name == "mfma")
    shape = first.attrs["instr"]
    target = get(chip)
    (instr,) = [i for i in target.mfmas_for("bf16", "bf16", "f32") if (i.m, i.n, i.k) == shape and i.blocks == 1]
    clocks = target.mfma_clocks(instr, "bf16", "bf16")
    for read in body.ops:
        if read.name != "shared_load_fragment":
            continue
        here = [at[op] for op in _users(body.ops, read.result) if op.name == "mfma"]
        again = [at[op] + steps for op in _users(body.ops, carried.get(read.result)) if op.name == "mfma"]
        distance = min(*here, *again, 1 << 30) - at[read]
        assert distance * clocks >= AHEAD_CLOCKS, (read, distance)


def _users(ops: list[Op], v: Value | None) -> list[Op]:
    """What uses a value, also in parts or put together with others."""
    if v is None:
        return []
    direct = [op for op in ops if v in op.operands]
    cut = [op for op in direct if op.name in ("slice_fragment", "join_fragments")]
    return direct + [user for op in cut for user in _users(ops, op.result)]


def test_group_barrier_blowup() -> None:
    """Order is kept by single fences: `sched.group.barrier`, of which many take LLVM minutes, is not in the code; a loop with dozens
    of fences compiles in seconds."""
    kernel = final("gfx942", "interleave", 2, "2 x 4", 256)
    assert sum(op.name == "schedule_fence" for op in steady(kernel).walk()) > 20
    text = f"{GEMM}schedule @s of @gemm for gfx942 {{\n  waves %acc 2 x 4\n}}\n"
    start = time.perf_counter()
    compiled = compile_kernel(parse(text, "gemm.tile", {"B": 256}), "gemm", "gfx942", Options(emit=("llvm",)))
    assert time.perf_counter() - start < 120  # seconds, on a machine that does much else besides
    assert "sched.group.barrier" not in compiled.texts["llvm"] and "sched.barrier" in compiled.texts["llvm"]
    assert compiled.stats["attempts"] == 1
