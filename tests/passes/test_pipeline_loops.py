"""pipeline-loops: right for every trip count, depth and way into LDS; waits that are counted, and no weaker than they may be;
loops that cannot be pipelined are refused at their place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tileir
from tileir.frontend import parse
from tileir.ir.core import Kernel, Op
from tileir.ir.diagnostics import CompileError
from tileir.ir.rewriter import rewrite
from tileir.passes.check_sync import check_synchronised
from tileir.passes.manager import run_pipeline
from tileir.runtime.simulator_device import SimulatorDevice

GEMM = """tileir 1
kernel @gemm<BM: int = 64, BN: int = 64, BK: int = 32>(
    %A: global<bf16[M, K], strides = [LDA, 1]>, %B: global<bf16[N, K], strides = [LDB, 1]>, %C: global<f32[M, N]>)
    grid(cdiv(M, BM), cdiv(N, BN)) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[BM, BN]>
  %acc = for %k = 0 to K step BK carry(%c = %zero) {
    %a = load(%A[%i * BM +: BM, %k +: BK])
    %b = load(%B[%j * BN +: BN, %k +: BK])
    %d = mma(%a, transpose(%b), %c)
    yield %d
  }
  store(%acc, %C[%i * BM +: BM, %j * BN +: BN])
}
"""
WAYS = [("gfx950", "direct", d) for d in (2, 3, 4)] + [("gfx942", "via_registers", d) for d in (2, 3, 4)]
BF16: Any = ml_dtypes.bfloat16


PLAIN = "  loop %k pattern plain\n"
PATTERNS = pytest.mark.parametrize("pattern", ["plain", "interleave"])


def scheduled(chip: str, path: str, depth: int, text: str = GEMM, values: str = "%a, %b", more: str = "") -> str:
    return f"{text}schedule @s of @gemm for {chip} {{\n  stage {values} in shared depth {depth} {path}\n{more}}}\n"


def loop(pattern: str) -> str:
    return f"  loop %k pattern {pattern}\n"


def final(text: str, chip: str, stop_after: str | None = None) -> Kernel:
    return run_pipeline(parse(text, "gemm.tile"), "gemm", chip, stop_after=stop_after).kernel


def check(compiled: tileir.CompiledKernel, m: int, n: int, k: int, device: SimulatorDevice) -> None:
    """C = A·Bᵀ on small integers, exactly; every check of the simulator is silent."""
    rng = np.random.default_rng(1000 * k + m)
    frame = rng.integers(-3, 4, (m, k + 8)).astype(BF16)  # rows lie apart, so that ragged K is not always unaligned
    a, b = frame[:, :k], rng.integers(-3, 4, (n, k)).astype(BF16)
    c = np.full((m, n), 7, np.float32)
    compiled.launch(A=a, B=b, C=c, device=device)
    assert (c == a.astype(np.float32) @ b.astype(np.float32).T).all(), (m, n, k)
    assert device.statistics is not None and list(device.statistics.findings) == []


def checked_device(chip: str) -> SimulatorDevice:
    device = tileir.get_device(f"simulator:{chip}", check="all")
    assert isinstance(device, SimulatorDevice)
    return device


@pytest.mark.parametrize(
    ("chip", "path", "depth"), [*WAYS, ("gfx950", "via_registers", 2), ("gfx950", "via_registers", 3)]
)
@PATTERNS
def test_every_trip_count(chip: str, path: str, depth: int, pattern: str) -> None:
    """Trip counts 0 to 9, the last tile whole, ragged, or one column (case odd-trips)."""
    compiled = tileir.compile(scheduled(chip, path, depth, more=loop(pattern)), chip)
    device = checked_device(chip)
    for trips in range(10):
        check(compiled, 70, 68, 32 * trips, device)
    for k in (1, 8, 40, 56, 100, 104, 257):
        check(compiled, 70, 68, k, device)


def loops(kernel: Kernel) -> list[Op]:
    return [op for op in kernel.walk() if op.name == "for"]


@pytest.mark.parametrize(("chip", "path", "depth"), WAYS)
def test_shape(chip: str, path: str, depth: int) -> None:
    """Tile by tile: as many buffers as stages, one wait and one barrier a tile, the next copy before the reads of this tile."""
    kernel = final(scheduled(chip, path, depth, more=PLAIN), chip)
    fast, careful = loops(kernel)
    ops = fast.regions[0].ops
    direct = path == "direct"
    tiles = depth if direct else max(1, depth - 1)
    assert sum(op.name == "mma" for op in ops) == tiles
    buffers = {op.operands[-1] for op in ops if op.name in ("copy_async", "shared_store")}
    assert len(buffers) == 2 * (depth if direct else max(1, depth - 1))
    waits = [op for op in ops if op.name == "wait"]
    barriers = [op for op in ops if op.name == "barrier"]
    if direct or depth > 2:
        assert len(waits) == len(barriers) == tiles
    if direct:
        per_tile = 2 * (64 * 32 * 2) // (64 * 16 * 4)  # bytes of both tiles over what a wave of four copies at once
        assert {w.attrs["vm"] for w in waits} == {(depth - 2) * per_tile}
    first = [op.name for op in ops if op.name in ("copy_async", "load", "shared_load", "mma")]
    assert first.index("copy_async" if direct else "load") < first.index("shared_load") < first.index("mma")
    assert [op.name for op in careful.regions[0].ops].count("copy") == 2  # the fallback stays as it was


@pytest.mark.parametrize(("chip", "path", "depth"), WAYS)
@PATTERNS
def test_waits_are_as_weak_as_they_may_be(chip: str, path: str, depth: int, pattern: str) -> None:
    """Each wait weakened by one instruction, and each barrier taken away, is noticed by the checker."""
    kernel = final(scheduled(chip, path, depth, more=loop(pattern)), chip)
    check_synchronised(kernel)
    places = [op for op in loops(kernel)[0].walk() if op.name in ("wait", "barrier")]
    assert places
    for place in places:
        for name in list(place.attrs) or [""]:
            weaker = weakened(kernel, place, name)
            with pytest.raises(CompileError) as e:
                check_synchronised(weaker)
            assert {d.code for d in e.value.diagnostics} == {"E1030"}, (place, name)
            for d in e.value.diagnostics:  # both accesses, and what is missing between them
                assert d.message.count(" the '") + d.message.startswith("the '") == 2, d.message
                assert ("no barrier()" if name == "" else f"no wait<{name} = ") in d.message, (name, d.message)
                assert [n.message for n in d.notes] == ["the earlier access"]


@pytest.mark.parametrize("pattern", ["interleave", "ping_pong", "ping_pong slices 2 x 2"])
@pytest.mark.parametrize(("chip", "path"), [("gfx950", "direct"), ("gfx942", "via_registers")])
@pytest.mark.parametrize("tile", [(256, 256, 64), (192, 256, 32), (256, 128, 64)])
def test_waits_of_large_tiles(tile: tuple[int, int, int], chip: str, path: str, pattern: str) -> None:
    """Eight waves, two on each SIMD: every wait and barrier of the loop is needed, also where halves of the waves are apart."""
    m, n, k = tile
    text = GEMM.replace("BM: int = 64, BN: int = 64, BK: int = 32", f"BM: int = {m}, BN: int = {n}, BK: int = {k}")
    kernel = final(scheduled(chip, path, 2, text, more=f"  waves %acc 2 x 4\n{loop(pattern)}"), chip)
    steady = loops(kernel)[0]
    assert sum(op.name == "mfma" for op in steady.walk()) >= 24
    places = [op for op in steady.walk() if op.name in ("wait", "barrier")]
    redundant = 0
    for place in places:
        for name in list(place.attrs) or [""]:
            try:
                check_synchronised(weakened(kernel, place, name))
            except CompileError as e:
                assert {d.code for d in e.diagnostics} == {"E1030"}
            else:
                redundant += 1
                assert "ping_pong" in pattern, (
                    place,
                    name,
                )  # clusters are closed by barriers that memory does not need
    if "ping_pong" in pattern:
        assert redundant < len(places)


def test_halves_must_meet_again() -> None:
    """Case barrier-parity: one half counts a barrier more, on one way through a branch or for good."""
    text = scheduled("gfx950", "direct", 2, more="  waves %acc 2 x 4\n" + loop("ping_pong")).replace("= 64", "= 128")
    kernel = final(text, "gfx950")

    def without(half: int) -> Kernel:
        return rewrite(kernel, lambda rw, op: op.name == "barrier_of" and op.attrs["half"] == half)

    for half in (0, 1):
        with pytest.raises(CompileError) as e:
            check_synchronised(without(half))
        (d,) = e.value.diagnostics
        assert d.code == "E1034" and "barriers" in d.message and d.legal


def weakened(kernel: Kernel, place: Op, name: str) -> Kernel:
    def rule(rw: Any, op: Op) -> bool:
        if op is not place:
            return False
        if name == "vm":
            vm = op.attrs["vm"]
            assert isinstance(vm, int)
            rw.copy(op, attrs={**op.attrs, "vm": vm + 1})
        elif name and len(op.attrs) > 1:
            rw.copy(op, attrs={k: v for k, v in op.attrs.items() if k != name})
        return True

    return rewrite(kernel, rule)


def test_one_operand_of_two() -> None:
    for values in ("%a", "%b"):
        compiled = tileir.compile(scheduled("gfx950", "direct", 2, values=values), "gfx950")
        device = checked_device("gfx950")
        for trips in (0, 1, 2, 3, 5):
            check(compiled, 70, 68, 32 * trips, device)


def test_a_depth_that_is_asked_for_is_taken() -> None:
    """Depth 1 leaves the loop as it is, an open one gives the stages that suit it, and so does saying those."""
    one = final(scheduled("gfx950", "direct", 1), "gfx950")
    assert not any(op.name == "mfma" for op in one.walk())
    fast = loops(one)[0]
    assert len({op.operands[-1] for op in fast.walk() if op.name == "copy_async"}) == 2
    open_ = final(GEMM, "gfx950")
    depth = len({op.operands[-1] for op in loops(open_)[0].walk() if op.name == "copy_async_part"}) // 2
    assert depth > 1
    assert replace(final(scheduled("gfx950", "direct", depth), "gfx950"), attrs=open_.attrs) == open_


def test_an_open_depth_fits_the_lds() -> None:
    """Fewer stages where LDS has no room for more; none where it has room for one only."""
    for size, least in ((64, 4), (192, 2), (256, 2)):
        kernel = final(
            GEMM.replace(
                "BM: int = 64, BN: int = 64, BK: int = 32", f"BM: int = {size}, BN: int = {size}, BK: int = 64"
            ),
            "gfx950",
        )
        count = len({op.operands[-1] for op in loops(kernel)[0].walk() if op.name == "copy_async_part"}) // 2
        lds = kernel.attrs["lds"]
        assert isinstance(lds, int) and least <= count <= 4 and lds <= 160 * 1024
    large = GEMM.replace("BM: int = 64, BN: int = 64, BK: int = 32", "BM: int = 256, BN: int = 256, BK: int = 96")
    assert not any(op.name == "mfma" for op in final(large, "gfx950").walk())


def test_one_wave_needs_no_barrier() -> None:
    text = scheduled("gfx950", "direct", 3, more="  waves %acc 1 x 1\n").replace("= 64", "= 16")
    kernel = final(text, "gfx950")
    assert not any(op.name == "barrier" for op in kernel.walk())
    device = checked_device("gfx950")
    compiled = tileir.compile(text, "gfx950")
    for trips in (0, 1, 2, 3, 4, 7):
        check(compiled, 33, 20, 32 * trips, device)


def test_run_time_bounds_and_negative_starts() -> None:
    """Start, end and step that are known at launch only; a start before the view reads zeros."""
    text = """tileir 1
kernel @gemm(%A: global<bf16[M, K]>, %B: global<bf16[N, K]>, %C: global<f32[M, N]>, %lo: i32, %hi: i32)
    grid(cdiv(M, 64), cdiv(N, 64)) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[64, 64]>
  %acc = for %k = %lo to %hi step 32 carry(%c = %zero) {
    %a = load(%A[%i * 64 +: 64, %k +: 32])
    %b = load(%B[%j * 64 +: 64, %k +: 32])
    yield mma(%a, transpose(%b), %c)
  }
  store(%acc, %C[%i * 64 +: 64, %j * 64 +: 64])
}
"""
    compiled = tileir.compile(scheduled("gfx950", "direct", 3, text), "gfx950")
    device = checked_device("gfx950")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (64, 256)).astype(BF16) for _ in range(2))
    for low, high in ((0, 256), (32, 96), (64, 65), (-64, 128), (100, 100), (96, 0), (8, 250), (-32, -32)):
        c = np.zeros((64, 64), np.float32)
        compiled.launch(A=a, B=b, C=c, lo=low, hi=high, device=device)
        stop = low + -(-max(high - low, 0) // 32) * 32
        x, y = (m[:, max(low, 0) : max(min(stop, 256), 0)].astype(np.float32) for m in (a, b))
        assert (c == x @ y.T).all(), (low, high)


REFUSED = {
    "which the loop carries": (
        "carry(%c = %zero, %p = 0) {\n    %a = load(%A[%i * 64 +: 64, %p +: 32])",
        "yield mma(%a, transpose(%b), %c), %p + 32",
    ),
    "the loop writes %A": (
        "carry(%c = %zero) {\n    %f = fill(1.0) : tile<bf16[1, 32]>\n    store(%f, %A[%i +: 1, %k +: 32])\n"
        "    %a = load(%A[%i * 64 +: 64, %k +: 32])",
        "yield mma(%a, transpose(%b), %c)",
    ),
    "'load' inside the loop": (
        "carry(%c = %zero) {\n    %p = load(%P[%k])\n    %a = load(%A[%i * 64 +: 64, %p +: 32])",
        "yield mma(%a, transpose(%b), %c)",
    ),
}


def test_one_buffer_is_refused_where_the_order_needs_two() -> None:
    with pytest.raises(CompileError) as e:
        final(scheduled("gfx950", "direct", 1, more=loop("interleave")), "gfx950")
    (d,) = e.value.diagnostics
    assert (
        d.code == "E0606"
        and "needs two buffers" in d.message
        and d.legal == "depth 2 to 4, via_registers, or pattern plain"
    )


@pytest.mark.parametrize("why", sorted(REFUSED))
def test_refused(why: str) -> None:
    head, end = REFUSED[why]
    results = "%acc, %last" if "carries" in why else "%acc"
    text = f"""tileir 1
kernel @gemm(%A: global<bf16[M, K]>, %B: global<bf16[N, K]>, %C: global<f32[M, N]>, %P: global<i32[K]>)
    grid(cdiv(M, 64), cdiv(N, 64)) {{
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[64, 64]>
  {results} = for %k = 0 to K step 32 {head}
    %b = load(%B[%j * 64 +: 64, %k +: 32])
    {end}
  }}
  store(%acc, %C[%i * 64 +: 64, %j * 64 +: 64])
}}
"""
    with pytest.raises(CompileError) as e:
        final(scheduled("gfx950", "direct", 2, text), "gfx950")
    (d,) = e.value.diagnostics
    assert d.code == "E0606" and why in d.message and d.legal, d
    assert (
        "load(%A[" in scheduled("gfx950", "direct", 2, text).splitlines()[d.loc.line - 1]
        and d.notes[-1].message == "the loop"
    )


def test_the_innermost_loop_is_pipelined() -> None:
    text = """tileir 1
kernel @gemm(%A: global<bf16[T, M, K]>, %B: global<bf16[T, N, K]>, %C: global<f32[M, N]>) grid(cdiv(M, 64), cdiv(N, 64)) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[64, 64]>
  %sum = for %t = 0 to T step 1 carry(%s = %zero) {
    %acc = for %k = 0 to K step 32 carry(%c = %s) {
      %a = load(%A[%t, %i * 64 +: 64, %k +: 32])
      %b = load(%B[%t, %j * 64 +: 64, %k +: 32])
      yield mma(%a, transpose(%b), %c)
    }
    yield %acc
  }
  store(%sum, %C[%i * 64 +: 64, %j * 64 +: 64])
}
"""
    compiled = tileir.compile(scheduled("gfx950", "direct", 2, text), "gfx950")
    device = checked_device("gfx950")
    rng = np.random.default_rng(0)
    for t, k in ((1, 64), (3, 96), (2, 32), (3, 0), (0, 64), (2, 160)):
        a, b = (rng.integers(-3, 4, (t, 64, k)).astype(BF16) for _ in range(2))
        c = np.ones((64, 64), np.float32)
        compiled.launch(A=a, B=b, C=c, device=device)
        assert (c == np.einsum("tmk,tnk->mn", a.astype(np.float32), b.astype(np.float32))).all(), (t, k)


def test_tiles_held_in_registers_stay_packed() -> None:
    """What waits in registers for its turn is carried as it was loaded: nothing unpacks it."""
    asm = tileir.compile(scheduled("gfx942", "via_registers", 2, more=PLAIN), "gfx942").asm
    plain = tileir.compile(GEMM + "schedule @s of @gemm for gfx942 {\n" + PLAIN + "}\n", "gfx942").asm
    for op in ("v_perm_b32", "v_lshrrev_b32", "v_mov_b32", "v_alignbit"):
        assert asm.count(op) <= plain.count(op) + 8, op


@pytest.mark.parametrize(("chip", "path"), [("gfx950", "direct"), ("gfx942", "via_registers")])
def test_sums_begin_with_what_is_loaded(chip: str, path: str) -> None:
    """Also in the version for unaligned views, which loads the first values one by one."""
    text = GEMM.replace("%zero = fill(0.0) : tile<f32[BM, BN]>", "%zero = load(%C[%i * BM +: BM, %j * BN +: BN])")
    compiled = tileir.compile(scheduled(chip, path, 2, text), chip)
    device = checked_device(chip)
    rng = np.random.default_rng(0)
    for m, n, k in ((70, 68, 96), (70, 67, 33)):
        a, b = (rng.integers(-3, 4, (rows, k)).astype(BF16) for rows in (m, n))
        c = rng.integers(-9, 9, (m, n)).astype(np.float32)
        want = c + a.astype(np.float32) @ b.astype(np.float32).T
        compiled.launch(A=a, B=b, C=c, device=device)
        assert (c == want).all()
