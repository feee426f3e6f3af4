"""Which parameters of a kernel may vary, and which schedules there are of it."""

from __future__ import annotations

import pytest

from tileir import kernels, target
from tileir.ir.diagnostics import CompileError
from tileir.tuning.schedules import Directives, handles, schedule_text
from tileir.tuning.space import Given, neighbours, space_of, variants

GFX950 = target.get("gfx950")


def opened(name: str, given: Given | None = None, kernel: str = "") -> dict[str, tuple[int, ...]]:
    space = space_of(kernels.source(name), f"{name}.tile", kernel or name, GFX950, given or {})
    return {p.name: p.values for p in space.parameters}


def test_sides_and_depth_of_a_product_are_open() -> None:
    found = opened("gemm")
    assert list(found) == ["BM", "BN", "BK"]
    assert found["BM"] == (16, 32, 64, 96, 128, 192, 256)
    assert found["BK"] == (32, 64, 128)


def test_what_is_given_once_is_fixed_and_what_is_given_several_times_is_tried() -> None:
    assert opened("gemm", {"BM": 64, "BN": ["32", 48], "T": "f16"}) == {"BN": (32, 48), "BK": (32, 64, 128)}


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("softmax", ["BM", "BN"]),
        ("vector_add", ["BN"]),
        ("transpose", ["BM", "BN"]),
        ("rms_norm", ["BM"]),  # D is the length of a row
        ("gemm_split_k", ["BM", "BN", "BK", "S"]),
    ],
)
def test_parameters_that_say_what_is_computed_stay(name: str, names: list[str]) -> None:
    assert list(opened(name)) == names


def test_many_combinations_are_thinned_but_never_what_was_given() -> None:
    source = kernels.source("gemm_split_k")
    space = space_of(source, "k.tile", "gemm_split_k", GFX950, {})
    assert len(space.bindings()) <= 600 and space.defaults() in space.bindings()
    odd = tuple(range(16, 16 * 41, 16))
    space = space_of(source, "k.tile", "gemm_split_k", GFX950, {"BM": odd, "BN": 64, "BK": 64})
    assert {b[0] for b in space.bindings()} == set(odd)


HEADS = """tileir 1

kernel @scale<HEADS: int = 4, B: int = 64>(%X: global<f32[N]>, %Y: global<f32[N]>) grid(cdiv(N, B), HEADS) {
  %i, %h = program_id()
  %x = load(%X[%i * B +: B])
  if %h == HEADS - 1 {
    store(%x * convert<f32>(%h), %Y[%i * B +: B])
  }
}
"""


def test_a_parameter_of_the_grid_that_changes_the_result_stays_and_is_named() -> None:
    space = space_of(HEADS, "scale.tile", "scale", GFX950, {})
    assert [p.name for p in space.parameters] == ["B"]
    (note,) = space.notes
    assert note.startswith("HEADS stays 4: with 8 the kernel computes something else (%Y[")


def test_values_that_change_the_result_are_rejected_at_the_parameter() -> None:
    with pytest.raises(CompileError) as e:
        space_of(HEADS, "scale.tile", "scale", GFX950, {"HEADS": (4, 2)})
    (d,) = e.value.diagnostics
    assert (d.code, d.loc.line, d.loc.column) == ("E1902", 3, 15)
    assert "with HEADS = 2" in d.message and "%Y[" in d.notes[0].message


@pytest.mark.parametrize("given", [{"T": ("bf16", "f16")}, {"BM": ("a", "b")}, {"BM": ()}])
def test_only_integers_are_tried(given: Given) -> None:
    with pytest.raises(CompileError, match="E1903"):
        opened("gemm", given)


def test_every_variant_is_a_schedule_that_the_text_takes() -> None:
    source = kernels.source("gemm")
    space = space_of(source, "gemm.tile", "gemm", GFX950, {"BM": 128, "BN": 64, "BK": 64})
    kernel = space.bound(())
    names = handles(kernel)
    assert (names.products, names.staged, names.loops) == (("d",), ("a", "b"), ("k",))
    found = list(variants(kernel, GFX950))
    assert found[0] == Directives() and len(set(found)) == len(found)
    blocks = [
        schedule_text(f"s{i}", kernel, "gfx950", "", d, names)
        for i, d in enumerate([*found, *(d for _, d in neighbours(space, (), found[-1], 10_000))])
    ]
    from tileir.frontend import parse

    module = parse(source + "\n" + "\n".join(blocks), params={"BM": 128, "BN": 64})
    assert len(module.schedules) == len(blocks)
    said = {kind for s in module.schedules for kind in (d.kind for d in s.directives)}
    assert said == {"waves", "mma", "stage", "loop", "order"}


def test_what_the_kernel_says_is_not_said_again() -> None:
    source = kernels.source("gemm").replace("mma(", "mma<waves = [2, 2], instr = [16, 16, 32]>(")
    space = space_of(source, "gemm.tile", "gemm", GFX950, {"BM": 128, "BN": 128, "BK": 64})
    assert all(d.waves is None and d.instr is None for d in variants(space.bound(()), GFX950))
