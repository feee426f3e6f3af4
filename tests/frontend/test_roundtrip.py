"""parse(print(ir)) == ir: the examples, random kernels at tile level, and the forms that only passes write."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layout.strategies import layouts
from strategies import kernels

from tileir.frontend import parse, parse_file
from tileir.ir import expr
from tileir.ir.builder import Builder, Names
from tileir.ir.core import Block, Directive, Kernel, Module, Schedule, Value
from tileir.ir.printer import print_module
from tileir.ir.types import BF16, ELEMS, F32, I32, GlobalType, TileType, scalar
from tileir.ir.verifier import verify

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def assert_round_trip(module: Module) -> None:
    """The canonical text means the same module, with and without locations, and prints the same again."""
    text = print_module(module)
    again = parse(text)
    assert again == module, text
    assert print_module(again) == text
    for kernel in again.kernels:
        verify(kernel)
    located = print_module(module, locations=True)
    again = parse(located)
    assert again == module, located
    for a, b in zip(module.kernels, again.kernels, strict=True):
        places = [(op.loc.file, op.loc.line, op.loc.column) for op in a.walk() if op.loc.line]
        kept = [(y.loc.file, y.loc.line, y.loc.column) for x, y in zip(a.walk(), b.walk(), strict=True) if x.loc.line]
        assert kept == places


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("gemm", {}),
        ("gemm", {"BM": 96, "BN": 80, "BK": 16, "T": "f16"}),
        ("gemm", {"T": ELEMS["f8E4M3FN"]}),
        ("attention", {}),
        ("attention", {"CAUSAL": True, "D": 64, "T": "f16"}),
        ("layernorm", {}),
        ("layernorm", {"BM": 1, "D": 17, "T": "f32"}),
    ],
)
def test_examples(repository: Path, name: str, params: dict[str, Any]) -> None:
    module = parse_file(repository / "examples" / f"{name}.tile", params)
    for key, value in params.items():
        bound = module.kernels[0].params[key]
        assert bound == (ELEMS[value] if isinstance(value, str) else value)
    for kernel in module.kernels:
        verify(kernel)
    assert_round_trip(module)


@settings(max_examples=150, suppress_health_check=SLOW)
@given(kernels())
def test_random_kernels(kernel: Kernel) -> None:
    assert_round_trip(Module([kernel]))


@pytest.mark.nightly
@settings(max_examples=3000, suppress_health_check=SLOW)
@given(kernels())
def test_many_random_kernels(kernel: Kernel) -> None:
    assert_round_trip(Module([kernel]))


_words = st.sampled_from("gfx950 direct for global mma pattern to x rows via_registers true_ infinite".split())
_attr_values = st.recursive(
    st.integers(-(2**63), 2**64 - 1)
    | st.booleans()
    | st.floats()
    | _words
    | st.sampled_from(list(ELEMS.values()))
    | st.just("@symbol"),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=10,
)


@settings(max_examples=150)
@given(
    st.dictionaries(_words, _attr_values, max_size=4),
    st.sampled_from(["default", "fast", "strict"]),
    st.lists(st.sampled_from([("A", "B"), ("B", "A")]), max_size=2),
    st.sampled_from(["f.tile", 'quo"te.tile', "back\\slash.tile", "grün € .tile", "tab\t.tile"]),
)
def test_heads_and_file_names(attrs: dict[str, Any], fp: str, aliases: list[tuple[str, str]], file: str) -> None:
    a, b = (Value(n, GlobalType(F32, ("M", 4), ("S", 1))) for n in "AB")
    block = Block()
    builder = Builder(block, Names({"A", "B"}))
    from tileir.ir.location import Loc

    builder.constant(1, I32, Loc(file, 7, 9, 7, 10))
    kernel = Kernel("k", {}, [a, b], (expr.symbol("M"),), block, fp, tuple(aliases), attrs)
    assert_round_trip(Module([kernel]))


_sizes = st.recursive(
    st.integers(-5, 300).map(expr.integer) | st.sampled_from("MN").map(expr.symbol),
    lambda inner: (
        st.builds(
            lambda op, a, b: expr.Expr(op, args=(a, b)), st.sampled_from("add sub mul min max".split()), inner, inner
        )
        | st.builds(
            lambda op, a, b: expr.Expr(op, args=(a, expr.integer(b))),
            st.sampled_from("div cdiv mod".split()),
            inner,
            st.integers(1, 9),
        )
    ),
    max_leaves=12,
)


def _has_symbol_everywhere(e: expr.Expr) -> bool:
    return e.op in ("int", "symbol") or (bool(e.symbols()) and all(map(_has_symbol_everywhere, e.args)))


@settings(max_examples=200)
@given(_sizes.filter(lambda e: e.op != "int" and _has_symbol_everywhere(e)))
def test_grid_expressions(size: expr.Expr) -> None:
    kernel = Kernel("k", {}, [Value("A", GlobalType(F32, ("M", "N")))], (size,), Block())
    assert parse(print_module(Module([kernel]))).kernels[0].grid == (size,)


@settings(max_examples=80, suppress_health_check=SLOW)
@given(layouts())
def test_layouts(layout: Any) -> None:
    view = Value("A", GlobalType(BF16, tuple(f"M{i}" for i in range(len(layout.shape)))))
    block = Block()
    b = Builder(block, Names({"A"}))
    zero = b.constant(0, I32)
    t = TileType(BF16, layout.shape, layout)
    x = b.value("load", [view, *[zero] * t.rank], spans=layout.shape, types=[t])
    b.value("add", [x, x])
    b.value("fill", [b.value("convert", [b.constant(1.0, F32)], {"elem": BF16})], types=[t])
    assert_round_trip(Module([Kernel("k", {}, [view], (expr.integer(1),), block, attrs={"waves": 1})]))


WAVE = Path(__file__).parent / "wave_level.tile"


def test_wave_level_text_is_canonical() -> None:
    text = WAVE.read_text(encoding="utf-8")
    module = parse(text)
    assert print_module(module) == text
    verify(module.kernels[0])
    assert_round_trip(module)
    kernel = module.kernels[0]
    assert kernel.attrs["path"][0] == ("direct", 1.5)  # type: ignore[index]
    assert kernel.params == {"BM": 64, "T": BF16, "EPS": 1e-05, "CAUSAL": True}
    loop = next(op for op in kernel.walk() if op.name == "for")
    assert loop.attrs == {"pattern": "ping_pong", "slices": (2, 2)}
    assert loop.regions[0].args[0].type == scalar(ELEMS["i64"])


@st.composite
def _schedules(draw: st.DrawFn) -> Schedule:
    parts = [
        Directive("waves", ("acc",), (("grid", draw(st.sampled_from([(1, 1), (2, 4), (4, 4)]))),)),
        Directive("mma", ("d",), (("shape", (16, 16, 32)), *((("swapped", True),) if draw(st.booleans()) else ()))),
        Directive(
            "stage",
            draw(st.sampled_from([("a",), ("a", "b")])),
            tuple(
                s
                for s in (
                    ("depth", draw(st.integers(1, 4))),
                    ("path", draw(st.sampled_from(["direct", "via_registers"]))),
                )
                if draw(st.booleans())
            ),
        ),
        Directive(
            "loop",
            ("k",),
            tuple(
                s
                for s in (("pattern", "ping_pong"), ("slices", draw(st.sampled_from([(2, 2), (3,)]))))
                if draw(st.booleans())
            ),
        ),
        Directive("order", (), (("kind", "xcd"), ("chunk", 64), ("window", 8))),
        Directive("order", (), (("kind", "linear"),)),
        Directive("registers", (), (("count", draw(st.integers(1, 512))),)),
    ]
    chosen = draw(st.lists(st.sampled_from(parts), unique_by=lambda d: d.kind, max_size=6))
    when, applies = draw(
        st.sampled_from(
            [("", True), ("T == bf16", True), ("!(BM == 1 | BN < 3)", True), ("BM - (BN - 1) << 1 == 3", False)]
        )
    )
    return Schedule("s", "gemm", draw(st.sampled_from(["gfx942", "gfx950"])), when, applies, tuple(chosen))


@settings(max_examples=100)
@given(_schedules())
def test_schedules(repository_gemm: Module, schedule: Schedule) -> None:
    module = replace(repository_gemm, schedules=[schedule])
    assert_round_trip(module)


@pytest.fixture(scope="module")
def repository_gemm(request: pytest.FixtureRequest) -> Module:
    root: Path = request.getfixturevalue("repository")
    return replace(parse_file(root / "examples" / "gemm.tile"), schedules=[])
