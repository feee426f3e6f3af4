"""specialise: which schedule applies, what its directives become, and every way in which one can be wrong.

Schedules are built directly: what the frontend already rejects must not pass here either, for users of the Python API.
"""

from __future__ import annotations

from typing import Any

import pytest

from tileir.frontend import parse
from tileir.ir.core import Directive, Kernel, Module, Op, Schedule
from tileir.ir.diagnostics import CompileError
from tileir.passes.base import Context
from tileir.passes.specialise import PASS
from tileir.target import get

TEXT = """tileir 1
kernel @k<T: type = bf16>(%A: global<T[M, K]>, %B: global<T[N, K]>, %C: global<f32[M, N]>) grid(cdiv(M, 64), cdiv(N, 64)) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[64, 64]>
  %acc = for %k = 0 to K step 64 carry(%c = %zero) {
    %a = load(%A[%i * 64 +: 64, %k +: 64])
    %b = load(%B[%j * 64 +: 64, %k +: 64])
    %d = mma(%a, transpose(%b), %c)
    %e = mma(%b, transpose(%a), %d)
    yield %e
  }
  %out = %acc * 2.0
  store(%out, %C[%i * 64 +: 64, %j * 64 +: 64])
}
"""


def directive(kind: str, /, *values: str, **settings: Any) -> Directive:
    return Directive(kind, values, tuple(settings.items()))


def schedule(*directives: Directive, name: str = "s", target: str = "gfx950", applies: bool = True) -> Schedule:
    return Schedule(name, "k", target, "" if applies else "T == f16", applies, directives)


def specialise(
    *schedules: Schedule, chip: str = "gfx950", named: str = "", text: str = TEXT, **params: Any
) -> tuple[Kernel, Context]:
    kernel = parse(text, "k.tile", params).kernels[0]
    ctx = Context(get(chip), Module([kernel], list(schedules)), schedule=named)
    return PASS.run(kernel, ctx), ctx


def op(kernel: Kernel, result: str) -> Op:
    return next(o for o in kernel.walk() if any(v.name == result for v in o.results))


def code_of(*directives: Directive, chip: str = "gfx950", **params: Any) -> list[str]:
    with pytest.raises(CompileError) as caught:
        specialise(schedule(*directives, target=chip), chip=chip, **params)
    assert all(d.message and d.severity == "error" for d in caught.value.diagnostics)
    assert all(d.legal for d in caught.value.diagnostics)
    return [d.code for d in caught.value.diagnostics]


def test_without_a_schedule_the_kernel_is_only_bound() -> None:
    kernel, ctx = specialise()
    assert kernel.attrs == {"target": "gfx950"} and not ctx.log.diagnostics


def test_the_first_schedule_of_this_chip_whose_condition_holds_applies() -> None:
    schedules = (
        schedule(name="other_chip", target="gfx942"),
        schedule(name="false", applies=False),
        schedule(name="first"),
        schedule(name="second"),
    )
    assert specialise(*schedules)[0].attrs["schedule"] == "first"
    assert specialise(*schedules, named="second")[0].attrs["schedule"] == "second"
    for name, code in (("other_chip", "E0652"), ("false", "E0653"), ("nobody", "E0650")):
        with pytest.raises(CompileError) as caught:
            specialise(*schedules, named=name)
        assert caught.value.diagnostics[0].code == code


def test_a_grid_of_waves_goes_to_every_mma_that_contributes() -> None:
    for name in ("acc", "out", "d", "c"):
        kernel, _ = specialise(schedule(directive("waves", name, grid=(2, 2))))
        assert kernel.attrs["waves"] == 4
        assert op(kernel, "d").attrs["waves"] == op(kernel, "e").attrs["waves"] == (2, 2), name


def test_mma_stage_loop_order_registers() -> None:
    kernel, ctx = specialise(
        schedule(
            directive("mma", "d", shape=(16, 16, 32), swapped=True),
            directive("mma", "e", shape=(32, 32, 16)),
            directive("stage", "a", path="direct"),
            directive("stage", "b", path="via_registers", depth=1),
            directive("loop", "k", pattern="plain"),
            directive("order", kind="xcd", chunk=8, window=2),
            directive("registers", count=128),
        )
    )
    assert op(kernel, "d").attrs == {"instr": (16, 16, 32), "swapped": True}
    assert op(kernel, "e").attrs == {"instr": (32, 32, 16)}
    assert op(kernel, "a").attrs["stage"] == "direct" and op(kernel, "b").attrs["depth"] == 1
    assert op(kernel, "acc").attrs["pattern"] == "plain"
    expected = {
        "target": "gfx950",
        "schedule": "s",
        "order": "xcd",
        "order_chunk": 8,
        "order_window": 2,
        "registers": 128,
    }
    assert kernel.attrs == expected
    assert not ctx.log.diagnostics


@pytest.mark.parametrize(
    ("wrong", "codes"),
    [
        (directive("dance", "d"), ["E0654"]),
        (directive("waves", "nobody", grid=(2, 2)), ["E0655"]),
        (directive("waves", "a", grid=(2, 2)), ["E0656"]),
        (directive("waves", "i", grid=(2, 2)), ["E0656"]),
        (directive("mma", "acc", shape=(16, 16, 32)), ["E0656"]),
        (directive("stage", "d"), ["E0656"]),
        (directive("loop", "i"), ["E0656"]),
        (directive("loop", "c"), ["E0656"]),
        (directive("waves", "acc", grid=(3, 1)), ["E0660"]),
        (directive("waves", "acc", grid=(2, 2, 2)), ["E0660"]),
        (directive("waves", "acc", grid=(8, 4)), ["E0705"]),
        (directive("stage", "a", depth=0), ["E0661"]),
        (directive("loop", "k", slices=(0, 2)), ["E0661"]),
        (directive("order", kind="zigzag"), ["E0662"]),
        (directive("order", kind="xcd", chunks=3), ["E0662"]),
        (directive("order", kind="xcd", chunk=0), ["E0662"]),
        (directive("order", kind="linear", chunk=4), ["E0662"]),
        (directive("registers", count=513), ["E0663"]),
        (directive("mma", "d", shape=(16, 16, 16)), ["E0704"]),
        (directive("mma", "d", shape=(32, 32, 8)), ["E0704"]),
        (directive("mma", "d", shape=(16, 16, 4)), ["E0702"]),
    ],
)
def test_every_wrong_directive_is_an_error(wrong: Directive, codes: list[str]) -> None:
    assert code_of(wrong) == codes


def test_independent_faults_are_reported_together() -> None:
    assert code_of(directive("stage", "d"), directive("loop", "i"), directive("registers", count=0)) == [
        "E0656",
        "E0656",
        "E0663",
    ]


def test_directives_that_contradict_each_other_or_the_text() -> None:
    assert code_of(directive("waves", "acc", grid=(2, 2)), directive("waves", "d", grid=(4, 2))) == ["E0658"]
    assert code_of(directive("waves", "acc", grid=(2, 2)), directive("waves", "d", grid=(4, 1))) == ["E0658"]
    specialise(schedule(directive("waves", "acc", grid=(2, 2)), directive("waves", "d", grid=(2, 2))))
    written = TEXT.replace("%d = mma(", "%d = mma<instr = [32, 32, 16]>(")
    with pytest.raises(CompileError) as caught:
        specialise(schedule(directive("mma", "d", shape=(16, 16, 32))), text=written)
    assert caught.value.diagnostics[0].code == "E0657" and caught.value.diagnostics[0].notes[0].loc is not None
    bound = TEXT.replace("cdiv(N, 64)) {", "cdiv(N, 64)) with(waves = 8) {")
    with pytest.raises(CompileError) as caught:
        specialise(schedule(directive("waves", "d", grid=(2, 2))), text=bound)
    assert caught.value.diagnostics[0].code == "E0657"


@pytest.mark.parametrize(("waves", "registers", "legal"), [((4, 4), 129, 128), ((2, 4), 257, 256), ((4, 4), 512, 128)])
def test_launch_bound(waves: tuple[int, int], registers: int, legal: int) -> None:
    """1024 threads with more than 128 registers cannot be launched (512 registers per lane and SIMD, four SIMDs)."""
    directives = (directive("waves", "acc", grid=waves), directive("registers", count=registers))
    with pytest.raises(CompileError) as caught:
        specialise(schedule(*directives))
    (d,) = caught.value.diagnostics
    assert d.code == "E0862" and f"at most {legal} registers" in d.legal
    specialise(schedule(directives[0], directive("registers", count=legal)))


def test_direct_needs_wide_copies() -> None:
    assert code_of(directive("stage", "a", path="direct"), chip="gfx942") == ["E0706"]
    specialise(schedule(directive("stage", "a", path="via_registers"), target="gfx942"), chip="gfx942")


@pytest.mark.parametrize(
    ("chip", "elem", "full", "half"),
    [
        ("gfx950", "bf16", ["16x16x32", "32x32x16"], ["16x16x16", "32x32x8"]),
        ("gfx950", "f16", ["16x16x32", "32x32x16"], ["16x16x16", "32x32x8"]),
        ("gfx942", "bf16", ["16x16x16", "32x32x8"], []),
        ("gfx942", "f16", ["16x16x16", "32x32x8"], []),
        ("gfx942", "f8E4M3FNUZ", ["16x16x32", "32x32x16"], []),
        # k of the tile is 64, half of what the second one takes, so that the first is no slower
        ("gfx950", "f8E4M3FN", ["16x16x32", "16x16x128", "32x32x64"], ["32x32x16"]),
    ],
)
def test_half_rate_mfma(chip: str, elem: str, full: list[str], half: list[str]) -> None:
    """Shapes that run at half the rate are never taken, not even when asked for; the error lists the full-rate ones."""
    for text in full:
        shape = tuple(map(int, text.split("x")))
        kernel, _ = specialise(schedule(directive("mma", "d", shape=shape), target=chip), chip=chip, T=elem)
        assert op(kernel, "d").attrs["instr"] == shape
    for text in half:
        with pytest.raises(CompileError) as caught:
            specialise(
                schedule(directive("mma", "d", shape=tuple(map(int, text.split("x")))), target=chip), chip=chip, T=elem
            )
        (d,) = caught.value.diagnostics
        assert d.code == "E0704" and d.legal == ", ".join(full)


@pytest.mark.parametrize(
    ("chip", "elem", "ok"),
    [
        ("gfx942", "f8E4M3FN", False),
        ("gfx942", "f8E5M2", False),
        ("gfx942", "f8E5M2FNUZ", True),
        ("gfx950", "f8E4M3FNUZ", False),
        ("gfx950", "f8E5M2", True),
        ("gfx942", "f4E2M1FN", False),
        ("gfx950", "f4E2M1FN", True),
        ("gfx942", "i8", False),  # the accumulator would be i32, and %zero is f32
    ],
)
def test_fp8_kind(chip: str, elem: str, ok: bool) -> None:
    """Case fp8-kind: small floats of the other chip's kind are rejected with a note that names this chip's."""
    if ok:
        specialise(chip=chip, T=elem)
        return
    with pytest.raises(CompileError) as caught:
        specialise(chip=chip, T=elem)
    found = caught.value.diagnostics
    assert found[0].code in ("E0703", "E0701", "E0335")
    if elem.startswith("f8"):
        assert any(get(chip).f8_kind in n.message for d in found for n in d.notes)
