"""`dataclass` as in the standard library, for a fifth of the time that it takes there to make a class.

A compile in a fresh process makes more than a hundred such classes, and the standard decorator compiles up to six functions for each, half
a millisecond in all. This one compiles `__init__` alone, and only for a class of which more than a few objects are made; the other methods are closures over
the names of the fields. What `fields`, `replace` and `asdict` need comes from the standard library.

    @dataclass(frozen=True)
    class Point:
        x: int
        y: int = 0

`hash_once` is for frozen classes with much in them that often are keys.

Not here: InitVar, order, and what needs a new class (slots=True), which the standard decorator makes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

_Class = TypeVar("_Class", bound=type)
_FEW_OBJECTS = 8
"""So many are made before `__init__` is compiled for them."""

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, slots=False):
        """Class decorator; arguments as in the standard library."""
        if slots:
            make = dataclasses.dataclass(frozen=frozen, eq=eq, repr=repr, slots=True)
        else:

            def make(cls):
                return _make(cls, frozen, eq, repr)

        return make if cls is None else make(cls)


def _make(cls: Any, frozen: bool, eq: bool, repr: bool) -> Any:
    if not cls.__doc__:
        cls.__doc__ = cls.__name__  # the standard library would work out a signature to have one
    dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    fields = dataclasses.fields(cls)
    own = cls.__dict__
    if "__init__" not in own:
        cls.__init__ = _FirstInit(cls, fields, frozen)
    if repr and "__repr__" not in own:
        cls.__repr__ = _repr(tuple(f.name for f in fields if f.repr))
    if frozen:
        names = frozenset(f.name for f in fields)
        cls.__setattr__, cls.__delattr__ = _refusal(cls, names, "assign to"), _refusal(cls, names, "delete")
    if not eq:
        return cls
    hashes = own.get("__hash__") is not None  # defining __eq__ alone leaves None here
    if "__eq__" not in own:
        cls.__eq__ = _eq(_values(f.name for f in fields if f.compare))
    if frozen and not hashes:
        cls.__hash__ = _hash(_values(f.name for f in fields if (f.compare if f.hash is None else f.hash)))
    elif not hashes:
        cls.__hash__ = None
    return cls


class _FirstInit:
    """`__init__` before it is compiled, which takes as long as 30 objects made without that: of half of the classes that a compile imports it
    makes no object, and of half of the others at most eight."""

    def __init__(self, cls: Any, fields: tuple[dataclasses.Field[Any], ...], frozen: bool) -> None:
        self.cls, self.fields, self.frozen = cls, fields, frozen
        self.left = _FEW_OBJECTS

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is not None and self.left > 0:
            self.left -= 1
            return partial(self._fill, instance)
        made = self.cls.__init__ = _init(self.cls, self.fields, self.frozen)
        return made.__get__(instance, owner)

    def _fill(self, instance: Any, /, *arguments: Any, **named: Any) -> None:
        """What the compiled function does. Wrong arguments are left to that one, for its message."""
        positional = [f.name for f in self.fields if f.init and not f.kw_only]
        given = {**dict(zip(positional, arguments, strict=False)), **named}
        values: dict[str, Any] = {}
        taken, missing = 0, dataclasses.MISSING
        for f in self.fields:
            if f.init and f.name in given:
                values[f.name] = given[f.name]
                taken += 1
            elif f.default_factory is not missing:
                values[f.name] = f.default_factory()
            elif f.init:
                values[f.name] = f.default
        if taken != len(arguments) + len(named) or any(v is missing for v in values.values()):
            self.cls.__init__ = _init(self.cls, self.fields, self.frozen)
            self.cls.__init__(instance, *arguments, **named)
            return
        if self.frozen:
            instance.__dict__.update(values)
        else:
            for name, value in values.items():
                setattr(instance, name, value)
        if hasattr(self.cls, "__post_init__"):
            instance.__post_init__()


def _init(cls: type, fields: tuple[dataclasses.Field[Any], ...], frozen: bool) -> Callable[..., None]:
    """`__init__`, compiled. A frozen object is filled through its dictionary, past the `__setattr__` that refuses. Names of its own begin with
    two underscores, as no field does."""
    missing = dataclasses.MISSING
    known: dict[str, Any] = {"__missing": missing}
    positional, named, body = ["self"], [], []
    if frozen:
        body.append("__to = self.__dict__")
    for f in fields:
        value = f.name
        if f.default_factory is not missing:
            known[f"__make_{f.name}"] = f.default_factory
            value = f"__make_{f.name}()" + (f" if {f.name} is __missing else {f.name}" if f.init else "")
        elif not f.init:
            continue
        if f.init:
            parameter = f.name
            if f.default_factory is not missing:
                parameter += "=__missing"
            elif f.default is not missing:
                known[f"__default_{f.name}"] = f.default
                parameter += f"=__default_{f.name}"
            (named if f.kw_only else positional).append(parameter)
        body.append(f"__to[{f.name!r}] = {value}" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *named] if named else [])])
    lines = "".join(f"\n  {line}" for line in body or ["pass"])
    # The values come as parameters of a function around it: its own could have the names of globals.
    made: dict[str, Any] = {}
    exec(f"def make({', '.join(known)}):\n def __init__({parameters}):{lines}\n return __init__", made)
    init = made["make"](**known)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    init.__annotations__ = {**{f.name: f.type for f in fields if f.init}, "return": None}
    return init


def _values(names: Any) -> Callable[[Any], Any]:
    """A function of an object that gives the values of fields, something to compare and hash."""
    names = tuple(names)
    return attrgetter(*names) if names else lambda _: ()


def _eq(values: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], Any]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _repr(names: tuple[str, ...]) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"

    return __repr__


def _refusal(cls: type, names: frozenset[str], what: str) -> Callable[..., None]:
    """`__setattr__` or `__delattr__` of a frozen class; what a subclass adds by itself is free, as in the standard library."""
    plain = object.__setattr__ if what == "assign to" else object.__delattr__

    def refuse(self: Any, name: str, *value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")
        plain(self, name, *value)

    return refuse


def hash_once(cls: _Class) -> _Class:
    """Class decorator, before that of a frozen dataclass: each object works out its hash once. What is copied to another process, where
    texts hash otherwise, works it out again."""
    made: Any = cls
    compute: Callable[[Any], int] = made.__hash__

    def __hash__(self: Any) -> int:
        kept = self.__dict__
        known = kept.get("_hash")
        if known is None:
            known = kept["_hash"] = compute(self)
        return known

    def __getstate__(self: Any) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    made.__hash__, made.__getstate__ = __hash__, __getstate__
    return cls
