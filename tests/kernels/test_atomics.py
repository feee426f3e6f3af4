"""Atomic updates on the simulator: against the interpreter where every bit is defined, and by what must hold in any order."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tileir.frontend import parse
from tileir.interpreter import run
from tileir.runtime import get_device, launch
from tileir.runtime.simulator_device import SimulatorDevice

from .harness import CHIPS, compiled, device, integers
from .test_conversions import mnemonics
from .test_shapes import TYPES as SHAPE_TYPES

Arrays = dict[str, np.ndarray[Any, Any]]
TYPES = {**SHAPE_TYPES, "i64": np.int64}


def both(text: str, chip: str, arrays: Arrays, *outputs: str) -> None:
    """The simulator computes what the interpreter computes."""
    want = {n: a.copy() for n, a in arrays.items()}
    run(parse(text).kernels[0], want)
    launch(compiled(text, chip), arrays, device(f"simulator:{chip}"))
    for name in outputs:
        np.testing.assert_array_equal(arrays[name], want[name], err_msg=name)


PLAIN = """tileir 1
kernel @k(%A: global<E[M, N]>, %C: global<E[M, N]>, %O: global<E[M, N]>) grid(cdiv(M, 16), cdiv(N, 32)) with(waves = WAVES) {
  %i, %j = program_id()
  %a = load(%A[%i * 16 - 3 +: 16, %j * 32 +: 32])
  %old = OP(%a, %C[%i * 16 - 3 +: 16, %j * 32 +: 32])
  store(%old, %O[%i * 16 - 3 +: 16, %j * 32 +: 32])
}
"""
CASES = [
    (op, elem)
    for op, elems in {
        "atomic_add": ("i32", "i64", "f32", "f64", "f16", "bf16"),
        "atomic_max": ("i32", "i64", "f32", "f64"),
        "atomic_min": ("i32", "i64", "f32", "f64"),
        "atomic_and": ("i32", "i64"),
        "atomic_or": ("i32", "i64"),
        "atomic_xor": ("i32", "i64"),
        "atomic_xchg": ("i32", "i64", "f32", "f64"),
    }.items()
    for elem in elems
]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("op", "elem"), CASES)
def test_updates(op: str, elem: str, chip: str) -> None:
    """Every element once, with its old value, over ragged edges."""
    n = {"f16": 36, "bf16": 37}.get(elem, 40)  # pairs, and rows of odd length
    rng = np.random.default_rng(1)
    arrays = {x: integers(rng, (20, n), TYPES[elem], 50) for x in "ACO"}
    both(PLAIN.replace("E[", f"{elem}[").replace("OP", op).replace("WAVES", "4"), chip, arrays, "C", "O")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("elem", ["i32", "i64", "f32", "f64"])
def test_compare_and_swap(elem: str, chip: str) -> None:
    """Bits decide: -0 is not 0, a NaN is itself."""
    text = PLAIN.replace("E[", f"{elem}[").replace("WAVES", "2").replace("OP(%a", "atomic_cas(%a, %a + %a")
    rng = np.random.default_rng(2)
    a, c = (integers(rng, (20, 40), TYPES[elem], 2) for _ in range(2))
    if elem[0] == "f":
        a[0, :4], c[0, :4] = [0.0, np.nan, -0.0, np.inf], [-0.0, np.nan, -0.0, np.inf]
    arrays = {"A": a, "C": c, "O": np.zeros((20, 40), TYPES[elem])}
    both(text, chip, arrays, "C", "O")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("elem", ["f32", "f64"])
@pytest.mark.parametrize("op", ["atomic_max", "atomic_min"])
def test_extremes_of_special_values(op: str, elem: str, chip: str) -> None:
    """NaN loses against numbers, as in `max` and `min`."""
    special = np.array([np.nan, np.inf, -np.inf, 1.0, -2.5, 1e-310 if elem == "f64" else 1e-40, 3.0])
    a, c = (x.astype(TYPES[elem]) for x in np.meshgrid(special, special))
    text = PLAIN.replace("E[", f"{elem}[").replace("WAVES", "1").replace("OP", op)
    arrays = {"A": a.copy(), "C": c.copy(), "O": np.zeros_like(a)}
    both(text, chip, arrays, "C", "O")


@pytest.mark.parametrize("chip", CHIPS)
def test_instructions(chip: str) -> None:
    """What the chips have instructions for becomes one, and pairs of 16-bit floats are added together."""
    for elem, name in (
        ("f32", "global_atomic_add_f32"),
        ("f64", "global_atomic_add_f64"),
        ("f16", "global_atomic_pk_add_f16"),
        ("bf16", "global_atomic_pk_add_bf16"),
        ("i64", "global_atomic_add_x2"),
    ):
        text = PLAIN.replace("E[", f"{elem}[").replace("WAVES", "1").replace("OP", "atomic_add")
        assert mnemonics(compiled(text, chip))[name] > 0, name


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("waves", [1, 4])
@pytest.mark.parametrize("elem", ["i32", "f32", "bf16"])
def test_rows_picked_many_times(elem: str, waves: int, chip: str) -> None:
    """A histogram with duplicates within and between workgroups, indices outside, and a scalar that counts for all."""
    text = f"""tileir 1
kernel @k(%I: global<i32[L]>, %H: global<{elem}[B]>, %R: global<{elem}[B, 6]>) grid(cdiv(L, 64)) with(waves = {waves}) {{
  %i = program_id()
  %at = load(%I[%i * 64 +: 64], pad = -1)
  atomic_add(1, %H[%at])
  atomic_add(1, %R[%at, 1 +: 8])
}}
"""
    rng = np.random.default_rng(3)
    at = rng.integers(-3, 20, 200).astype(np.int32)
    arrays = {"I": at, "H": np.zeros(18, TYPES[elem]), "R": np.zeros((18, 6), TYPES[elem])}
    launch(compiled(text, chip), arrays, device(f"simulator:{chip}"))
    count = np.bincount(at[(at >= 0) & (at < 18)], minlength=18).astype(TYPES[elem])
    np.testing.assert_array_equal(arrays["H"], count)
    np.testing.assert_array_equal(arrays["R"], np.pad(np.repeat(count[:, None], 5, 1), ((0, 0), (1, 0))))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("waves", [1, 8])
@pytest.mark.parametrize("scope", ["device", "system"])
def test_a_counter_hands_out_numbers(scope: str, waves: int, chip: str) -> None:
    """A scalar's old value is the same in the whole workgroup and steers a branch, a loop and addresses."""
    text = f"""tileir 1
kernel @k(%N: global<i64[3]>, %O: global<i32[M, 64]>) grid(20) with(waves = {waves}) {{
  %n = atomic_add<scope = {scope}, ordering = acq_rel>(1, %N[1])
  %s = for %k = 0 to %n step 1 carry(%x = 0) {{
    yield %x + 2
  }}
  if %n < 15 {{
    %t = fill(%s) : tile<i32[64]>
    store(%t, %O[%n, 0 +: 64])
  }}
}}
"""
    count, out = np.zeros(3, np.int64), np.full((20, 64), -1, np.int32)
    launch(compiled(text, chip), {"N": count, "O": out}, device(f"simulator:{chip}"))
    assert count.tolist() == [0, 20, 0]
    assert np.all(out[:15] == 2 * np.arange(15)[:, None]) and np.all(out[15:] == -1)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("waves", [1, 4])
def test_the_last_workgroup_sees_what_the_others_wrote(waves: int, chip: str) -> None:
    """Parts are released with a counter; who counts last acquires them and adds up. The simulator's check looks for races."""
    text = f"""tileir 1
kernel @k(%A: global<f32[P, 256]>, %T: global<f32[P, 256]>, %N: global<i32[1]>, %S: global<f32[256]>) grid(P)
    with(waves = {waves}) {{
  %i = program_id()
  store(load(%A[%i, 0 +: 256]) * 2.0, %T[%i, 0 +: 256])
  %n = atomic_add<ordering = acq_rel>(1, %N[0])
  if %n == P - 1 {{
    %zero = fill(0.0) : tile<f32[256]>
    %s = for %p = 0 to P step 1 carry(%x = %zero) {{
      yield %x + load(%T[%p, 0 +: 256])
    }}
    store(%s, %S[0 +: 256])
  }}
}}
"""
    rng = np.random.default_rng(4)
    a = integers(rng, (7, 256), np.float32)
    arrays = {"A": a, "T": np.zeros_like(a), "N": np.zeros(1, np.int32), "S": np.zeros(256, np.float32)}
    checked = get_device(f"simulator:{chip}", check="all")
    assert isinstance(checked, SimulatorDevice)
    launch(compiled(text, chip), arrays, checked)
    np.testing.assert_array_equal(arrays["S"], 2 * a.sum(0))
    assert checked.statistics is not None and not checked.statistics.findings
    relaxed = {n: np.zeros_like(x) for n, x in arrays.items()}
    launch(compiled(text.replace("<ordering = acq_rel>", ""), chip), relaxed, checked)
    assert checked.statistics.findings, "without the ordering there is a race"


@pytest.mark.parametrize("chip", CHIPS)
def test_split_products_add_up(chip: str) -> None:
    """Split-K: every workgroup adds its part of a product."""
    text = """tileir 1
kernel @k(%A: global<bf16[M, K]>, %B: global<bf16[N, K]>, %C: global<f32[M, N]>) grid(cdiv(M, 64), cdiv(N, 64), 4) {
  %i, %j, %s = program_id()
  %zero = fill(0.0) : tile<f32[64, 64]>
  %c = for %k = %s * 32 to K step 128 carry(%x = %zero) {
    yield mma(load(%A[%i * 64 +: 64, %k +: 32]), transpose(load(%B[%j * 64 +: 64, %k +: 32])), %x)
  }
  atomic_add(%c, %C[%i * 64 +: 64, %j * 64 +: 64])
}
"""
    rng = np.random.default_rng(5)
    t = ml_dtypes.bfloat16
    a, b = integers(rng, (100, 200), t), integers(rng, (70, 200), t)
    c = np.ones((100, 70), np.float32)
    launch(compiled(text, chip), {"A": a, "B": b, "C": c}, device(f"simulator:{chip}"))
    np.testing.assert_array_equal(c, 1 + a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.parametrize("waves", [1, 4])
def test_updates_keep_the_order_of_the_text(waves: int) -> None:
    """Updates of one place by different lanes, and plain accesses between them; places that a stride of 0 repeats."""
    text = f"""tileir 1
kernel @k(%C: global<i32[256]>, %O: global<i32[3, 256]>, %Z: global<i32[8, 16], strides = [0, 1]>) grid(1)
    with(waves = {waves}) {{
  %i = iota<[256]>()
  %a = atomic_xchg(%i, %C[255 - %i])
  store(%a, %O[0, 0 +: 256])
  atomic_add(%i, %C[0 +: 256])
  atomic_add(1, %C[mod(%i * 7, 256)])
  %b = load(%C[0 +: 256])
  store(%b, %O[1, 0 +: 256])
  store(%i, %C[0 +: 256])
  %c = atomic_max(%b, %C[0 +: 256])
  store(%c, %O[2, 0 +: 256])
  %k = for %n = 0 to 5 step 1 carry(%x = 0) {{
    atomic_add(%n, %Z[0 +: 8, 0 +: 16])
    yield %x
  }}
}}
"""
    rng = np.random.default_rng(6)
    z = np.lib.stride_tricks.as_strided(np.zeros(16, np.int32), (8, 16), (0, 4))
    arrays = {"C": integers(rng, (256,), np.int32, 99), "O": np.zeros((3, 256), np.int32), "Z": z}
    chip = CHIPS[waves // 4]
    want = {n: a.copy() for n, a in arrays.items()}
    want["Z"] = np.lib.stride_tricks.as_strided(np.zeros(16, np.int32), (8, 16), (0, 4))
    run(parse(text).kernels[0], want)
    launch(compiled(text, chip), arrays, device(f"simulator:{chip}"))
    for name in "COZ":
        np.testing.assert_array_equal(arrays[name], want[name], err_msg=name)
    assert np.all(arrays["Z"] == 80)


SUMS = """tileir 1

kernel @sums(%A: global<bf16[M, K]>, %B: global<bf16[K, N]>, %C: global<f32[M, N]>, %S: global<f32[64, 64]>) grid(1) {
  %zero = fill(0.0) : tile<f32[64, 64]>
  %acc = for %k = 0 to K step 64 carry(%c = %zero) {
    %a = load(%A[0 +: 64, %k +: 64])
    %b = load(%B[%k +: 64, 0 +: 64])
    %d = mma(%a, %b, %c)
    atomic_add(%d * 0.5, %S[0 +: 64, 0 +: 64])
    yield %d
  }
  store(%acc, %C[0 +: 64, 0 +: 64])
}
"""


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("blocks", [0, 1, 2, 5])
def test_sums_of_a_pipelined_loop(chip: str, blocks: int) -> None:
    """Sums that nobody reads back go through buffer instructions, without a branch; waits for the next tiles do not wait for them."""
    kernel = compiled(SUMS, chip)
    assert mnemonics(kernel)["buffer_atomic_add_f32"]
    rng = np.random.default_rng(blocks)
    m, n, k = 60, 50, 64 * blocks - (3 if blocks else 0)
    a, b = (rng.integers(-4, 5, shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (k, n)))
    c, s = np.zeros((m, n), np.float32), np.zeros((64, 64), np.float32)
    launch(kernel, {"A": a, "B": b, "C": c, "S": s}, SimulatorDevice(chip, "race,uninit,barrier"))
    parts = [a[:, : i + 64].astype(np.float64) @ b[: i + 64].astype(np.float64) for i in range(0, k, 64)]
    assert np.array_equal(c, parts[-1] if parts else np.zeros((m, n)))
    assert np.array_equal(s[:m, :n], 0.5 * sum(parts, np.zeros((m, n))))
    assert not s[m:].any() and not s[:, n:].any()


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("size", [(3, 40, 2), (1, 3, 1)], ids=str)
def test_sums_that_leave_their_view_at_every_side(chip: str, size: tuple[int, int, int]) -> None:
    """Rows before the first and behind the last, and whole tiles outside: the descriptor ends where the view does, and no lane chooses anything."""
    text = """tileir 1
kernel @k(%C: global<f32[B, M, H, 64]>, %first: i32) grid(5, cdiv(M, 16) + 2, 4) with(waves = 2) {
  %b, %i, %h = program_id()
  %a = broadcast<[16, 64]>(convert<f32>(iota<[16, 1]>(axis = 0)) + 1.0)
  atomic_add(%a, %C[%b - 1, %i * 16 + %first +: 16, %h - 1, 0 +: 64])
}
"""
    kernel = compiled(text, chip)
    found = mnemonics(kernel)
    assert found["buffer_atomic_add_f32"] and not any(name.startswith("v_cndmask") for name in found)
    b, m, h = size
    for first in (-21, -3, 7, -(2**31), 2**31 - 200):
        c = np.zeros((b + 2, m, h, 64), np.float32)
        launch(kernel, {"C": c[1:-1], "first": first}, device(f"simulator:{chip}"))
        row = np.arange(m) - first
        want = np.where((row >= 0) & (row < 16 * (-(-m // 16) + 2)), row % 16 + 1, 0)
        assert not c[0].any() and not c[-1].any()
        np.testing.assert_array_equal(c[1:-1], np.broadcast_to(want[None, :, None, None], (b, m, h, 64)))
