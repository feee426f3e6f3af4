"""synchronise: what it inserts, and that its checker misses nothing: every wait and barrier taken away is noticed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileir.frontend import parse
from tileir.ir.core import Kernel, Module, Op
from tileir.ir.diagnostics import CompileError
from tileir.ir.printer import print_kernel
from tileir.passes.base import Context
from tileir.passes.check_sync import check_synchronised
from tileir.passes.manager import run_pipeline
from tileir.passes.synchronise import PASS
from tileir.target import get

KERNELS = Path(__file__).parents[2] / "tileir" / "kernels"

# A tile is stored and read back transposed by the same workgroup (case store-then-load).
STORE_THEN_LOAD = """tileir 1
kernel @k(%A: global<f32[64, 64]>, %B: global<f32[64, 64]>, %C: global<f32[64, 64]>) grid(1) {
  %x = load(%A[0 +: 64, 0 +: 64])
  store(%x, %B[0 +: 64, 0 +: 64])
  %y = load(%B[0 +: 64, 0 +: 64])
  store(%y, %C[0 +: 64, 0 +: 64])
  store(%x, %B[0 +: 64, 0 +: 64])
}
"""


def wave_kernel(
    body: str, waves: int = 4, args: str = "%A: global<f32[64, 64]>", attrs: str = "", grid: str = ""
) -> Kernel:
    """A kernel with two LDS buffers %s and %t of 4 KiB."""
    text = f"""tileir 1
kernel @k({args}) grid(1){grid} with(target = gfx950, waves = {waves}, lds = 8192{attrs}) {{
  %s = shared_alloc<offset = 0>() : shared<f32[32, 32], rows>
  %t = shared_alloc<offset = 4096>() : shared<f32[32, 32], rows>
  %z = constant<0>() : i32
  %n = constant<8>() : i32
  %one = constant<1>() : i32
  %f = constant<0.0>() : f32
  %v = fill(%f) : tile<f32[32, 32]>
{body}
}}
"""
    return parse(text, "wave.tile").kernels[0]


def synchronised(kernel: Kernel, chip: str = "gfx950") -> Kernel:
    new = PASS.run(kernel, Context(get(chip), Module([kernel])))
    check_synchronised(new)
    return new


def shape(kernel: Kernel) -> list[str]:
    """Waits, barriers and memory accesses in program order, without what is not of interest."""
    words: list[str] = []
    for op in kernel.walk():
        if op.name == "wait":
            words.append("wait " + " ".join(f"{k}={v}" for k, v in op.attrs.items()))
        elif op.name in ("barrier", "for", "if"):
            words.append(op.name)
        elif op.name in ("copy_async", "shared_load", "shared_store"):
            words.append(f"{op.name} {op.operands[0 if op.name == 'shared_load' else -1].name}")
        elif op.name in ("load", "store"):
            words.append(f"{op.name} {op.operands[0 if op.name == 'load' else 1].name}")
    return words


def mutants(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """The kernel with one wait counter or barrier removed, with what was removed."""
    places = [op for op in kernel.walk() if op.name in ("wait", "barrier")]
    for number, op in enumerate(places):
        for part in list(op.attrs) or ["barrier"]:
            yield f"{number}: {part} at {op.loc}", _without(kernel, number, part)


def _without(kernel: Kernel, number: int, part: str) -> Kernel:
    from tileir.ir.rewriter import rewrite

    seen = iter(range(1 << 30))

    def rule(rw: object, op: Op) -> bool:
        if op.name not in ("wait", "barrier") or next(seen) != number:
            return False
        rest = {k: v for k, v in op.attrs.items() if k != part}
        if op.name == "wait" and rest:
            rw.copy(op, attrs=rest)  # type: ignore[attr-defined]
        return True

    return rewrite(kernel, rule)  # type: ignore[arg-type]


def compiled(path: Path, chip: str, **params: object) -> Kernel:
    """The final text; loops of products are written tile by tile, so that waits and barriers come from this pass alone."""
    text = path.read_text()
    if path.name == "gemm.tile":
        text += f"schedule @s of @gemm for {chip} {{\n  loop %k pattern plain\n}}\n"
    module = parse(text, path.name, params)  # type: ignore[arg-type]
    return run_pipeline(module, "", chip).kernel


PROGRAMS = [
    ("gemm.tile", "gfx950", {"BM": 128, "BN": 128}),
    ("gemm.tile", "gfx942", {"BM": 128, "BN": 64, "T": "f16"}),
    ("gemm.tile", "gfx950", {"BM": 16, "BN": 16}),  # one wave
    ("transpose.tile", "gfx942", {}),
]


@pytest.mark.parametrize(("name", "chip", "params"), PROGRAMS)
def test_every_wait_and_barrier_is_needed_and_its_absence_noticed(
    name: str, chip: str, params: dict[str, object]
) -> None:
    kernel = compiled(KERNELS / name, chip, **params)
    check_synchronised(kernel)
    count = 0
    for what, mutant in mutants(kernel):
        count += 1
        with pytest.raises(CompileError) as caught:
            check_synchronised(mutant)
        d = caught.value.diagnostics[0]
        assert d.code == "E1030" and d.notes and "earlier access" in d.notes[0].message, what
    assert count > 0


def test_the_gemm_loop_has_two_barriers_and_exact_counters() -> None:
    kernel = compiled(KERNELS / "gemm.tile", "gfx950", BM=128, BN=128)
    fast = shape(kernel)[: shape(kernel).index("store C")]
    assert fast[fast.index("for") + 1 :] == [
        "wait lgkm=0",
        "barrier",
        "copy_async sa",
        "copy_async sb",
        "wait vm=0",
        "barrier",
        "shared_load sa",
        "shared_load sb",
    ]


def test_one_wave_waits_but_has_no_barrier() -> None:
    kernel = compiled(KERNELS / "gemm.tile", "gfx950", BM=16, BN=16)
    assert kernel.attrs["waves"] == 1
    assert "barrier" not in shape(kernel) and "wait vm=0" in shape(kernel)


def test_stores_are_seen_by_later_loads_and_loads_are_done_before_later_stores() -> None:
    module = parse(STORE_THEN_LOAD, "store.tile")
    kernel = run_pipeline(module, "k", "gfx950").kernel
    words = shape(kernel)
    fast = words[words.index("if") + 1 : len(words) // 2 + 1] if "if" in words else words
    assert fast == [
        "load A",
        "store B",
        "wait vm=0",
        "barrier",
        "load B",
        "store C",
        "wait vm=0",
        "barrier",
        "store B",
    ]
    for what, mutant in mutants(kernel):
        with pytest.raises(CompileError):
            check_synchronised(mutant)
        assert what


def test_disjoint_spans_and_iterations_need_nothing() -> None:
    kernel = wave_kernel(
        "  %g = load<bytes = 4, via = global>(%A[%z +: 32, %z +: 32]) : tile<f32[32, 32]>\n"
        "  %low = add(%z, %n) : i32\n"
        "  for %i = %z to %n step %one {\n"
        "    %row = mul(%i, %n) : i32\n"
        "    %x = load<bytes = 4, via = global>(%B[%row +: 8, %z +: 32]) : tile<f32[8, 32]>\n"
        "    store<bytes = 4, via = global>(%x, %C[%row +: 8, %z +: 32])\n"
        "    yield\n  }\n"
        "  store<bytes = 4, via = global>(%v, %D[%z +: 32, %z +: 32])\n"
        "  %c32 = constant<32>() : i32\n"
        "  store<bytes = 4, via = global>(%v, %D[%c32 +: 32, %z +: 32])",
        args=", ".join(f"%{n}: global<f32[64, 64]>" for n in "ABCD"),
    )
    words = shape(synchronised(kernel))
    assert "barrier" not in words and not any(w.startswith("wait") for w in words)


def test_overlapping_iterations_of_a_store_are_ordered() -> None:
    kernel = wave_kernel(
        "  for %i = %z to %n step %one {\n"
        "    store<bytes = 4, via = global>(%v, %A[%i +: 32, %z +: 32])\n    yield\n  }"
    )
    assert shape(synchronised(kernel)) == ["for", "wait vm=0", "barrier", "store A"]


def test_strided_views_are_never_taken_apart() -> None:
    kernel = wave_kernel(
        "  %c32 = constant<32>() : i32\n"
        "  store<bytes = 4, via = global>(%v, %A[%z +: 32, %z +: 32])\n"
        "  store<bytes = 4, via = global>(%v, %A[%c32 +: 32, %z +: 32])",
        args="%A: global<f32[64, 64], strides = [0, 1]>",
    )
    assert shape(synchronised(kernel)) == ["store A", "wait vm=0", "barrier", "store A"]


def test_aliases_conflict_and_others_do_not() -> None:
    body = (
        "  store<bytes = 4, via = global>(%v, %A[%z +: 32, %z +: 32])\n"
        "  %x = load<bytes = 4, via = global>(%B[%z +: 32, %z +: 32]) : tile<f32[32, 32]>\n"
        "  store<bytes = 4, via = global>(%x, %C[%z +: 32, %z +: 32])"
    )
    args = ", ".join(f"%{n}: global<f32[64, 64]>" for n in "ABC")
    assert shape(synchronised(wave_kernel(body, args=args))) == ["store A", "load B", "store C"]
    aliased = wave_kernel(body, args=args, grid=" alias(%A, %B)")
    assert shape(synchronised(aliased)) == ["store A", "wait vm=0", "barrier", "load B", "store C"]


def test_buffers_that_share_bytes_are_kept_apart() -> None:
    body = (
        "  shared_store(%v, %s)\n  %a = shared_load(%s) : tile<f32[32, 32]>\n"
        "  %u = shared_alloc<offset = 2048>() : shared<f32[32, 32], rows>\n"
        "  shared_store(%a, %u)\n  %b = shared_load(%u) : tile<f32[32, 32]>\n"
        "  store<bytes = 4, via = global>(%b, %A[%z +: 32, %z +: 32])"
    )
    sync = ["wait lgkm=0", "barrier"]
    assert shape(synchronised(wave_kernel(body))) == [
        "shared_store s",
        *sync,
        "shared_load s",
        *sync,
        "shared_store u",
        *sync,
        "shared_load u",
        "store A",
    ]


def test_one_barrier_serves_both_branches_and_the_join() -> None:
    kernel = wave_kernel(
        "  shared_store(%v, %s)\n"
        "  %p = lt(%z, %n) : i1\n"
        "  %r = if %p {\n"
        "    %a = shared_load(%s) : tile<f32[32, 32]>\n    yield %a\n"
        "  } else {\n    yield %v\n  }\n"
        "  %b = shared_load(%s) : tile<f32[32, 32]>\n"
        "  %c = add(%r, %b) : tile<f32[32, 32]>\n"
        "  store<bytes = 4, via = global>(%c, %A[%z +: 32, %z +: 32])"
    )
    new = synchronised(kernel)
    check = [w for w in shape(new) if w == "barrier"]
    assert 1 <= len(check) <= 2
    for _, mutant in mutants(new):
        with pytest.raises(CompileError):
            check_synchronised(mutant)


def test_while_loops_and_rotating_buffers() -> None:
    kernel = wave_kernel(
        "  shared_store(%v, %s)\n"
        "  %e, %f0, %k = while carry(%x = %s, %y = %t, %i = %z) {\n"
        "    %go = lt(%i, %n) : i1\n    yield %go\n"
        "  } do carry(%x1 = %x, %y1 = %y, %i1 = %i) {\n"
        "    %a = shared_load(%x1) : tile<f32[32, 32]>\n"
        "    shared_store(%a, %y1)\n"
        "    %i2 = add(%i1, %one) : i32\n    yield %y1, %x1, %i2\n  }\n"
        "  %b = shared_load(%e) : tile<f32[32, 32]>\n"
        "  store<bytes = 4, via = global>(%b, %A[%z +: 32, %z +: 32])"
    )
    new = synchronised(kernel)
    for what, mutant in mutants(new):
        with pytest.raises(CompileError):
            check_synchronised(mutant)
        assert what


def test_counted_waits_of_experts_are_understood() -> None:
    """Two copies in flight: a wait for all but the youngest covers the first, not the second."""
    body = (
        "  copy_async<bytes = 16>(%A[%z +: 32, %z +: 32], %s)\n"
        "  copy_async<bytes = 16>(%A[%z +: 32, %z +: 32], %t)\n"
        "  wait<vm = 1>()\n  barrier()\n"
        "  %a = shared_load(%s) : tile<f32[32, 32]>\n"
        "  {second}"
        "  %b = shared_load(%t) : tile<f32[32, 32]>\n"
        "  %c = add(%a, %b) : tile<f32[32, 32]>\n"
        "  store<bytes = 4, via = global>(%c, %B[%z +: 32, %z +: 32])"
    )
    args = "%A: global<f32[64, 64]>, %B: global<f32[64, 64]>"
    check_synchronised(wave_kernel(body.replace("{second}", "wait<vm = 0>()\n  barrier()\n"), args=args))
    with pytest.raises(CompileError) as caught:
        check_synchronised(wave_kernel(body.replace("{second}", ""), args=args))
    (d,) = caught.value.diagnostics
    assert "%t" in d.message and d.loc.line == 15 and "no wait<vm = 0>() and barrier()" in d.message
    assert d.notes[0].loc is not None and d.notes[0].loc.line == 11
    with pytest.raises(CompileError) as caught:  # the first copy may leave as many under way as are newer
        check_synchronised(wave_kernel(body.replace("wait<vm = 1>", "wait<vm = 2>").replace("{second}", ""), args=args))
    first = caught.value.diagnostics[0]
    assert first.loc.line == 14 and "no wait<vm = 1>() and barrier()" in first.message and "%s" in first.message
    kept = synchronised(wave_kernel(body.replace("{second}", ""), args=args))
    assert shape(kept).count("barrier") == 2  # the expert's stays, one is added


@pytest.mark.parametrize(
    ("between", "missing"),
    [
        ("wait<vm = 1>()\n  barrier()", None),
        ("wait<vm = 2>()\n  barrier()", "no wait<vm = 1>() and barrier()"),
        ("barrier()\n  wait<vm = 1>()", "no barrier()"),
        ("wait<lgkm = 0>()\n  barrier()", "no wait<vm = 1>() and barrier()"),
    ],
)
def test_a_text_that_is_synchronised_gets_nothing(between: str, missing: str | None) -> None:
    """`with(synchronised = true)`: what is missing is named and not added."""
    kernel = wave_kernel(
        "  copy_async<bytes = 16>(%A[%z +: 32, %z +: 32], %s)\n  copy_async<bytes = 16>(%A[%z +: 32, %z +: 32], %t)\n"
        f"  {between}\n  %a = shared_load(%s) : tile<f32[32, 32]>\n"
        "  store<bytes = 4, via = global>(%a, %B[%z +: 32, %z +: 32])",
        args="%A: global<f32[64, 64]>, %B: global<f32[64, 64]>",
        attrs=", synchronised = true",
    )
    context = Context(get("gfx950"), Module([kernel]))
    if missing is None:
        assert PASS.run(kernel, context) is kernel
        return
    with pytest.raises(CompileError) as caught:
        PASS.run(kernel, context)
    (d,) = caught.value.diagnostics
    assert d.code == "E1030" and missing in d.message and "'shared_load' of %s" in d.message
    assert "'copy_async' to %s" in d.message and (d.loc.line, d.notes[0].loc and d.notes[0].loc.line) == (14, 10)


@pytest.mark.parametrize(
    "order", ["wait<vm = 0>()\n  barrier()", "barrier()\n  wait<vm = 0>()", "barrier()", "wait<lgkm = 0>()\n barrier()"]
)
def test_a_barrier_before_the_wait_proves_nothing(order: str) -> None:
    """Case stale-lds: the barrier stood before the wait."""
    kernel = wave_kernel(
        f"  copy_async<bytes = 16>(%A[%z +: 32, %z +: 32], %s)\n  {order}\n"
        "  %a = shared_load(%s) : tile<f32[32, 32]>\n"
        "  store<bytes = 4, via = global>(%a, %B[%z +: 32, %z +: 32])",
        args="%A: global<f32[64, 64]>, %B: global<f32[64, 64]>",
    )
    if order.startswith("wait<vm"):
        check_synchronised(kernel)
    else:
        with pytest.raises(CompileError):
            check_synchronised(kernel)


BRANCH = "%p = lt(%z, %n) : i1\nif %p {{\n{}\nyield\n}}"
ROUND = "for %i = %z to %n step %one {{\n{}\nyield\n}}"
GROUPS = {
    "one branch": (BRANCH.format("barrier_of<half = 1>()") + "\nbarrier_of<half = 0>()", 2, 1),
    "the other branch": (
        BRANCH.format("yield\n} else {\nbarrier_of<half = 0>()") + "\nbarrier_of<half = 1>()",
        4,
        1,
    ),
    "an iteration": (ROUND.format("barrier()\nbarrier_of<half = 0>()"), 2, 0),
    "a nested branch": (ROUND.format(BRANCH.format("barrier_of<half = 1>()") + "\nbarrier_of<half = 0>()"), 3, 2),
    "the whole kernel": ("barrier_of<half = 1>()\nbarrier()", 0, None),
}


@pytest.mark.parametrize("name", GROUPS)
def test_groups_count_the_same_barriers_on_every_path(name: str) -> None:
    """Case barrier-parity: the barrier of one half is named, and the region through which the halves differ."""
    body, line, region = GROUPS[name]
    with pytest.raises(CompileError) as caught:
        check_synchronised(wave_kernel(body, waves=8))
    (d,) = caught.value.diagnostics
    assert d.code == "E1034" and "barriers" in d.message and d.legal and d.loc.line == 10 + line
    assert [n.loc.line - 10 for n in d.notes if n.loc is not None] == ([] if region is None else [region])


@pytest.mark.parametrize("shape_", [BRANCH, ROUND])
def test_groups_may_meet_again_within_a_region(shape_: str) -> None:
    check_synchronised(wave_kernel(shape_.format("barrier_of<half = 1>()\nbarrier()\nbarrier_of<half = 0>()"), waves=8))


def test_a_barrier_inside_a_guard_is_rejected() -> None:
    kernel = wave_kernel(
        "  %m = fill(%f) : tile<f32[32, 1]>\n  %need = lt(%m, %f) : tile<i1[32, 1]>\n"
        "  %r = guard %need carry(%x = %v) {\n    barrier()\n    yield %x\n  }\n"
        "  store<bytes = 4, via = global>(%r, %A[%z +: 32, %z +: 32])"
    )
    with pytest.raises(CompileError) as caught:
        check_synchronised(kernel)
    assert caught.value.diagnostics[0].code == "E1031"


def test_a_guard_is_synchronised_from_outside_or_rejected() -> None:
    head = (
        "  %m = fill(%f) : tile<f32[32, 1]>\n  %need = lt(%m, %f) : tile<i1[32, 1]>\n  shared_store(%v, %s)\n"
        "  %r = guard %need carry(%x = %v) {{\n    {first}%a = shared_load(%s) : tile<f32[32, 32]>\n    yield %a\n  }}\n"
        "  store<bytes = 4, via = global>(%r, %A[%z +: 32, %z +: 32])"
    )
    assert shape(synchronised(wave_kernel(head.format(first="")))) == [
        "shared_store s",
        "wait lgkm=0",
        "barrier",
        "shared_load s",
        "store A",
    ]
    with pytest.raises(CompileError) as caught:
        synchronised(wave_kernel(head.format(first="shared_store(%x, %s)\n    ")))
    assert caught.value.diagnostics[0].code == "E1033"


def test_the_text_of_an_expert_is_kept() -> None:
    kernel = synchronised(compiled(KERNELS / "gemm.tile", "gfx950", BM=64, BN=64))
    assert print_kernel(synchronised(kernel)) == print_kernel(kernel)


def test_reads_do_not_move_past_writes_of_their_buffer() -> None:
    kernel = wave_kernel(
        "  shared_store(%v, %s)\n  %a = shared_load(%s) : tile<f32[32, 32]>\n"
        "  shared_store(%v, %t)\n  shared_store(%v, %s)\n"
        "  store<bytes = 4, via = global>(%a, %A[%z +: 32, %z +: 32])"
    )
    words = [w for w in shape(synchronised(kernel)) if "shared" in w]
    assert words == ["shared_store s", "shared_store t", "shared_load s", "shared_store s"]


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, int]:
    """Random structured programs over two buffers (a third one overlaps both) and two views, and a number of waves."""
    fresh = itertools.count()

    def block(depth: int, value: str) -> list[str]:
        lines: list[str] = []
        for _ in range(draw(st.integers(1, 4))):
            n = next(fresh)
            buffer = draw(st.sampled_from("stu"))
            view = draw(st.sampled_from("AB"))
            kinds = ["put", "get", "copy", "load", "store", "load", "get"] + ["for", "if", "while"] * (depth < 2)
            match draw(st.sampled_from(kinds)):
                case "put":
                    lines.append(f"shared_store({value}, %{buffer})")
                case "get":
                    lines.append(f"%x{n} = shared_load(%{buffer}) : tile<f32[32, 32]>")
                    value = f"%x{n}"
                case "copy":
                    lines.append(f"copy_async<bytes = 16>(%{view}[%z +: 32, %z +: 32], %{buffer})")
                case "load":
                    lines.append(
                        f"%x{n} = load<bytes = 4, via = global>(%{view}[%z +: 32, %z +: 32]) : tile<f32[32, 32]>"
                    )
                    value = f"%x{n}"
                case "store":
                    lines.append(f"store<bytes = 4, via = global>({value}, %{view}[%z +: 32, %z +: 32])")
                case "for":
                    lines += [f"for %i{n} = %z to %n step %one {{", *block(depth + 1, value), "yield", "}"]
                case "if":
                    lines += [f"%p{n} = lt(%z, %n) : i1", f"if %p{n} {{", *block(depth + 1, value), "yield", "}"]
                    if draw(st.booleans()):
                        lines[-1] = "} else {"
                        lines += [*block(depth + 1, value), "yield", "}"]
                case "while":
                    lines += [
                        f"while {{ %p{n} = lt(%z, %n) : i1",
                        f"yield %p{n} }} do {{",
                        *block(depth + 1, value),
                        "yield",
                        "}",
                    ]
        return lines

    head = ["%u = shared_alloc<offset = 2048>() : shared<f32[32, 32], rows>"]
    return "\n".join([*head, *block(0, "%v")]), draw(st.sampled_from([1, 4]))


@settings(max_examples=150)
@given(programs())
def test_random_programs_are_synchronised_minimally(program: tuple[str, int]) -> None:
    body, waves = program
    kernel = wave_kernel(body, waves=waves, args="%A: global<f32[64, 64]>, %B: global<f32[64, 64]>")
    new = synchronised(kernel)
    if waves == 1:
        assert "barrier" not in shape(new)
    for what, mutant in mutants(new):
        with pytest.raises(CompileError):
            check_synchronised(mutant)
            raise AssertionError(f"{what} is not needed:\n{print_kernel(new)}")


def test_indices_that_differ_by_a_multiple_of_the_word_are_one_place() -> None:
    """Index arithmetic wraps: k and k + 2³¹ + 2³¹ are the same start, so the load must wait for the store."""
    text = """tileir 1
kernel @k(%A: global<f32[N]>, %k: i32) grid(1) {
  %x = load(%A[%k +: 256])
  store(%x + 1.0, %A[%k +: 256])
  %far = %k + 2147483647 + 2147483647 + 2
  %y = load(%A[%far +: 256])
  store(%y + %x, %A[%k +: 256])
}
"""
    final = run_pipeline(parse(text, "k.tile"), "", "gfx950").kernel
    body = [op.name for op in final.walk()]
    store = body.index("store")
    again = body.index("load", store)
    assert "barrier" in body[store:again]
