"""`tileir.records.dataclass` against the standard library's."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tileir import records

Decorator = Callable[..., Any]


def classes(dataclass: Decorator) -> SimpleNamespace:
    """The same classes, made by a decorator."""

    @dataclass
    class Plain:
        a: int
        b: str = "b"
        items: list[int] = field(default_factory=list)
        secret: int = field(default=3, compare=False, repr=False)
        made: int = field(default=0, init=False)

        def __post_init__(self) -> None:
            self.made = self.a + 1

    @dataclass(frozen=True)
    class Frozen:
        """A class that is hashed."""

        a: int
        b: tuple[int, ...] = ()
        note: str = field(default="", hash=False)
        named: int = field(default=7, kw_only=True)

        @property
        def double(self) -> int:
            return 2 * self.a

    @dataclass(frozen=True)
    class Below(Frozen):
        c: int = 5
        cache: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    @dataclass(frozen=True, eq=False)
    class Same:
        a: int

    @dataclass(eq=False, repr=False)
    class Bare:
        self_: int = 0

    @dataclass(frozen=True, repr=False)
    class Own:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

        def __repr__(self) -> str:
            return "own"

    @dataclass(frozen=True, slots=True)
    class Slots:
        a: int
        b: int = 2

    @dataclass(frozen=True)
    class Empty:
        pass

    names = ("Plain", "Frozen", "Below", "Same", "Bare", "Own", "Slots", "Empty")
    return SimpleNamespace(**{name: value for name, value in locals().items() if name in names})


OURS, THEIRS = classes(records.dataclass), classes(dataclasses.dataclass)


@records.dataclass(frozen=True)
class Point:
    """At the top of a module, so that it can be pickled."""

    x: int
    y: tuple[int, ...] = (1,)


CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Plain", (1,), {}),
    ("Plain", (1, "x", [2]), {"secret": 9}),
    ("Frozen", (1,), {}),
    ("Frozen", (1, (2,)), {"named": 8, "note": "n"}),
    ("Below", (1, (2,), "n", 6), {"named": 9}),
    ("Same", (4,), {}),
    ("Own", (4,), {}),
    ("Slots", (4,), {"b": 3}),
    ("Empty", (), {}),
]


@pytest.mark.parametrize("name, positional, named", CALLS)
def test_objects_are_alike(name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
    ours, theirs = (getattr(c, name) for c in (OURS, THEIRS))
    a, b = ours(*positional, **named), theirs(*positional, **named)
    assert repr(a) == repr(b)
    assert {f.name: getattr(a, f.name) for f in dataclasses.fields(a)} == dataclasses.asdict(b)
    assert dataclasses.asdict(a) == dataclasses.asdict(b)
    assert (a == ours(*positional, **named)) == (b == theirs(*positional, **named))
    assert a != b or name == "Own"
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    if ours.__hash__ is not None:
        assert (hash(a) == hash(ours(*positional, **named))) == (hash(b) == hash(theirs(*positional, **named)))
    assert ours.__match_args__ == theirs.__match_args__
    assert repr(copy.deepcopy(a)) == repr(b)
    if name not in ("Empty", "Own"):
        first = dataclasses.fields(a)[0].name
        assert repr(dataclasses.replace(a, **{first: 77})) == repr(dataclasses.replace(b, **{first: 77}))


@pytest.mark.parametrize("name, positional, named", CALLS)
def test_the_first_objects_are_like_later_ones(name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Whatever `__init__` is compiled for: the first objects are made without."""
    ours, theirs = (getattr(classes(c), name) for c in (records.dataclass, dataclasses.dataclass))
    made = [ours(*positional, **named) for _ in range(12)]
    assert {repr(item) for item in made} == {repr(theirs(*positional, **named))}
    assert all(list(vars(item)) == list(vars(made[-1])) for item in made if hasattr(item, "__dict__"))


@pytest.mark.parametrize(
    "positional, named", [((), {}), ((1, "b", [], 3, 4), {}), ((1,), {"a": 1}), ((1,), {"x": 2}), ((1,), {"made": 2})]
)
def test_wrong_arguments_are_refused_alike(positional: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError) as theirs:
        classes(dataclasses.dataclass).Plain(*positional, **named)
    with pytest.raises(TypeError) as ours:
        classes(records.dataclass).Plain(*positional, **named)
    assert str(ours.value) == str(theirs.value)


def test_arguments_that_are_arrays() -> None:
    """No argument is compared with anything."""
    items = np.zeros(3)
    assert classes(records.dataclass).Plain(1, items=items).items is items


@pytest.mark.parametrize("name", sorted(vars(OURS)))
def test_signatures_are_alike(name: str) -> None:
    def parameters(cls: type) -> list[tuple[str, Any, bool]]:
        return [(p.name, p.kind, p.default is p.empty) for p in inspect.signature(cls).parameters.values()]

    assert parameters(getattr(OURS, name)) == parameters(getattr(THEIRS, name))


def test_frozen_objects_do_not_change() -> None:
    for cls, args in ((OURS.Frozen, (1,)), (OURS.Below, (1,)), (OURS.Same, (1,)), (OURS.Slots, (1,))):
        item = cls(*args)
        with pytest.raises(FrozenInstanceError):
            item.a = 2
        with pytest.raises(FrozenInstanceError):
            del item.a
        assert item.a == 1
    with pytest.raises(FrozenInstanceError):
        OURS.Frozen(1).other = 2


def test_fields_that_do_not_compare() -> None:
    assert OURS.Plain(1, secret=5) == OURS.Plain(1, secret=6)
    assert OURS.Frozen(1, note="x") != OURS.Frozen(1, note="y")
    assert hash(OURS.Frozen(1, note="x")) == hash(OURS.Frozen(1, note="y"))
    assert OURS.Below(1) != OURS.Frozen(1)


def test_defaults_are_not_shared() -> None:
    first, second = OURS.Plain(1), OURS.Plain(1)
    first.items.append(3)
    assert second.items == []
    with pytest.raises(TypeError):
        OURS.Plain()
    with pytest.raises(TypeError):
        OURS.Frozen(1, (), "", 4)


def test_pickling() -> None:
    point = Point(3, (4,))
    again = pickle.loads(pickle.dumps(point))
    assert again == point and hash(again) == hash(point)
    with pytest.raises(FrozenInstanceError):
        again.x = 1


@pytest.mark.parametrize("frozen", [False, True])
def test_fields_of_any_name(frozen: bool) -> None:
    """No name that `__init__` uses inside is taken from fields."""

    @records.dataclass(frozen=frozen)
    class Names:
        to: int
        missing: int = 2
        make_all: int = 3
        all: list[int] = field(default_factory=list)
        default_missing: int = 5

    made = Names(1, all=[4])
    assert (made.to, made.missing, made.make_all, made.all, made.default_missing) == (1, 2, 3, [4], 5)
