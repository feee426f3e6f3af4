"""Loops of products with scales of blocks: right for every trip count and depth, their waits no weaker than they may be, and as dense as
others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.test_pipeline_loops import checked_device, loops, weakened
from tileir import kernels
from tileir.frontend import parse
from tileir.ir.core import Kernel
from tileir.ir.diagnostics import CompileError
from tileir.ir.types import ELEMS
from tileir.lowering.amdgpu.compile import Compiled, compile_kernel
from tileir.passes.check_sync import check_synchronised
from tileir.passes.manager import run_pipeline
from tileir.runtime import launch
from tileir.simulator.inspect import inspect

CHIP = "gfx950"
F8, F4 = "f8E4M3FN", "f4E2M1FN"
NAME = "gemm_mx"


def text(depth: int = 0, more: str = "") -> str:
    stage = f"  stage %a, %b in shared depth {depth} direct\n" if depth else ""
    return f"{kernels.source(NAME)}\nschedule @s of @gemm_mx for {CHIP} {{\n{stage}{more}}}\n"


def module(source: str, t: str, u: str, tile: tuple[int, int, int]) -> Any:
    m, n, k = tile
    return parse(source, "gemm_mx.tile", {"BM": m, "BN": n, "BK": k, "T": t, "U": u, "O": "f32"}, kernel=NAME)


def compiled(source: str, t: str, u: str, tile: tuple[int, int, int]) -> Compiled:
    return compile_kernel(module(source, t, u, tile), NAME, CHIP)


def final(source: str, t: str, u: str, tile: tuple[int, int, int]) -> Kernel:
    return run_pipeline(module(source, t, u, tile), NAME, CHIP).kernel


def density(kernel: Compiled) -> float:
    """Other instructions for 1024 clocks of matrix instructions, in the densest loop."""
    found: list[float] = []
    for loop in inspect(kernel.hsaco).kernel.loops:
        counts = loop.counts
        clocks = sum(opcode.clocks for opcode in counts.mfma.values())
        if clocks:
            found.append((counts.instructions - counts.classes["mfma"]) * 1024 / clocks)
    return min(found)


def check(kernel: Compiled, t: str, u: str, m: int, n: int, k: int) -> None:
    """Against f64 on small numbers and scales of which each product and each sum is exact in f32; every check of the simulator is
    silent."""
    rng = np.random.default_rng(1000 * k + m)
    a, b = (rng.integers(-3, 4, (rows, k)).astype(ELEMS[e].np) for rows, e in ((m, t), (n, u)))
    sa, sb = ((127 + rng.integers(-2, 3, (rows, -(-k // 32)))).astype(np.uint8) for rows in (m, n))
    c = np.full((m, n), 7, np.float32)
    scales = ELEMS["f8E8M0FNU"].np
    device = checked_device(CHIP)
    launch(kernel, {"A": a, "SA": sa.view(scales), "B": b, "SB": sb.view(scales), "C": c}, device)
    x, y = (
        v.astype(np.float64) * (2.0 ** (s.astype(np.float64) - 127)).repeat(32, 1)[:, :k] for v, s in ((a, sa), (b, sb))
    )
    assert (c == x @ y.T).all(), (m, n, k)
    assert device.statistics is not None and list(device.statistics.findings) == []


@pytest.mark.parametrize(("t", "u", "depth"), [(F8, F8, 2), (F4, F4, 3), (F4, F8, 2)])
def test_every_trip_count(t: str, u: str, depth: int) -> None:
    """Trip counts 0 to 9, the last tile whole or of one block; rows and columns outside."""
    kernel = compiled(text(depth), t, u, (64, 64, 128))
    assert kernel.final is not None and any(op.name == "mfma" for op in kernel.final.walk())
    for trips in range(10):
        check(kernel, t, u, 5, 3, 128 * trips)
    for k in (32, 160, 416):
        check(kernel, t, u, 5, 3, k)
    check(kernel, t, u, 70, 67, 384)


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize(
    ("t", "u", "tile"), [(F8, F8, (64, 64, 128)), (F4, F8, (128, 64, 128)), (F4, F4, (128, 128, 256))]
)
def test_waits_are_as_weak_as_they_may_be(t: str, u: str, tile: tuple[int, int, int], depth: int) -> None:
    """Loads of scales are counted: each wait weakened by one instruction, and each barrier taken away, is noticed by the checker."""
    kernel = final(text(depth), t, u, tile)
    check_synchronised(kernel)
    steady = loops(kernel)[0]
    assert any(op.name == "load_fragment" for op in steady.walk())
    for place in [op for op in steady.walk() if op.name in ("wait", "barrier")]:
        for name in list(place.attrs) or [""]:
            with pytest.raises(CompileError) as e:
                check_synchronised(weakened(kernel, place, name))
            assert {d.code for d in e.value.diagnostics} == {"E1030"}, (place, name)


@pytest.mark.parametrize(("t", "k", "most"), [(F8, 128, 36.0), (F4, 256, 40.0)])
def test_dense_loops(t: str, k: int, most: float) -> None:
    """n of tiles of 256 x 256; no register of any kind spills, and the code has the order of the text."""
    kernel = compiled(kernels.source(NAME), t, t, (256, 256, k))
    assert density(kernel) <= most
    assert not kernel.stats["vgpr_spills"] and not kernel.stats["sgpr_spills"] and not kernel.stats["scratch_bytes"]
    assert not [d for d in kernel.log.diagnostics if d.severity == "warning" or d.code == "R0807"]


@pytest.mark.parametrize(("t", "k"), [(F8, 128), (F4, 256)])
def test_one_load_brings_the_scales_of_several_instructions(t: str, k: int) -> None:
    """A lane loads the scales of all instructions along k of the tile at once, and each instruction picks its own."""
    steady = loops(final(kernels.source(NAME), t, t, (256, 256, k)))[0]
    (count,) = {op.result.type.count for op in steady.walk() if op.name == "load_fragment"}  # type: ignore[union-attr]
    picked = {p for op in steady.walk() if op.name == "mfma" for p in op.attrs["scale_at"]}  # type: ignore[union-attr]
    assert count > 1 and picked == set(range(count))
