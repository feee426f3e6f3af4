"""The shipped parse table is the grammar's, and driving it gives the tree that lark gives."""

from pathlib import Path
from typing import Any

import pytest
from lark import Lark, Token, Tree
from lark.exceptions import LarkError

from tileir.frontend import build_table
from tileir.frontend.parser import Node, SyntaxFault, parse_tree, table


@pytest.fixture(scope="module")
def lark() -> Lark:
    grammar = build_table.GRAMMAR.read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", strict=True, maybe_placeholders=True)


def test_shipped_table_equals_the_grammar() -> None:
    text = build_table.dump(build_table.build(build_table.GRAMMAR.read_text(encoding="utf-8")))
    assert build_table.TABLE.read_text(encoding="utf-8") == text, "run python -m tileir.frontend.build_table"
    assert table().digest == build_table.digest(build_table.GRAMMAR.read_text(encoding="utf-8"))


def test_a_conflict_is_refused() -> None:
    with pytest.raises(LarkError):
        build_table.build('start: a | b\na: X\nb: X\nX: "x"\n')


def test_two_terminals_for_one_text_are_refused() -> None:
    with pytest.raises(LarkError):
        build_table.build("start: A | B\nA: /x+/\nB: /[xy]+/\n")


def _same(ours: Node | None, theirs: Any) -> bool:
    if theirs is None or ours is None:
        return theirs is ours
    if isinstance(theirs, Tree):
        return (
            ours.kind == theirs.data
            and len(ours.children) == len(theirs.children)
            and all(_same(a, b) for a, b in zip(ours.children, theirs.children, strict=True))
        )
    assert isinstance(theirs, Token)
    fixed = ours.kind in table().fixed  # nodes of fixed texts are shared and have no place
    return ours.kind == theirs.type and ours.text == str(theirs) and (fixed or ours.start == theirs.start_pos)


TEXTS = [
    "tileir 1",
    "tileir 1 const A = 1 + 2 * 3 << 1 type T = tile<f32[A, 2]>",
    'tileir 1 kernel @k() grid(1) { if %a { yield } else { yield %b, -%c } loc("x":1:2) }',
    "tileir 1 kernel @mma<T: type = f8E4M3FN>(%a: f32) grid(M) fp fast alias(%a, %b) with(grid = [1, x], to = for) { }",
    "tileir 1 kernel @k() grid(1) { %x = for<pattern = plain> %k = 0 to 1 step 2 carry(%a = %b) { yield !%a } "
    "while { yield true } do { guard %m { } } }",
    "tileir 1 schedule @s of @k for gfx950 when T == bf16 & !X { waves %acc 2 x 4 mma %d 16x16x32 swapped "
    "stage %a, %b in shared depth 2 direct loop %k pattern plain slices 2 order xcd(chunk = 2) registers 256 }",
    "tileir 1 kernel @k() grid(1) { %t = load(%A[%i +: 4, 0], pad = -inf) : "
    "tile<f32[4], linear(reg = [[1], []], lane = [], wave = [], reps = [1])> }",
]


@pytest.mark.parametrize("text", TEXTS)
def test_tree_is_the_one_of_lark(lark: Lark, text: str) -> None:
    assert _same(parse_tree(text), lark.parse(text))


def test_trees_of_the_examples_are_those_of_lark(lark: Lark, repository: Path) -> None:
    for path in sorted(repository.glob("examples/*.tile")):
        text = path.read_text(encoding="utf-8")
        assert _same(parse_tree(text), lark.parse(text)), path.name


@pytest.mark.parametrize(
    "text", ["tileir", "tileir 1 kernel", "tileir 1 const A = ", "tileir 1 kernel @k() grid(1) { %x = + }"]
)
def test_lark_rejects_what_we_reject(lark: Lark, text: str) -> None:
    with pytest.raises(SyntaxFault):
        parse_tree(text)
    with pytest.raises(LarkError):
        lark.parse(text)


def test_a_fault_knows_everything_that_could_stand_there() -> None:
    with pytest.raises(SyntaxFault) as caught:
        parse_tree("tileir 1 const A = 1 1")
    names = table().names
    texts = {names.get(n, n) for n in caught.value.expected}
    assert {"+", "*", "<<", "<", "|", "$END", "const", "kernel"} <= texts
    assert not {"INT", "VALUE", ")", "]"} & texts


def test_spans_include_brackets() -> None:
    tree = parse_tree("tileir 1 const A = (1 + 2) * 3")
    product = tree.children[1].children[1]
    assert (product.kind, product.start, product.end) == ("mul", 19, 30)


def test_long_lists_take_linear_time() -> None:
    text = "tileir 1\n" + "".join(f"const A{i} = {i}\n" for i in range(20_000))
    assert len(parse_tree(text).children) == 20_001
