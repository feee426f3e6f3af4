"""A kernel as a function, for frameworks whose operators take and return arrays: what is given, changed, and returned.

Views that a kernel only writes are its results; views that it reads and writes are changed; all other arguments are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tileir.ir import registry
from tileir.ir.binding import used_symbols, written_views
from tileir.ir.core import Kernel
from tileir.ir.types import Elem, GlobalType
from tileir.records import dataclass


@dataclass(frozen=True)
class Function:
    """The names of a kernel's arguments by their role, each in the order of the kernel. `given` includes `changed`.

    sizes: symbols that no given view determines, which a caller must state. Strides of results are not among them: they are
    those of new arrays.
    """

    given: tuple[str, ...]
    changed: tuple[str, ...]
    results: tuple[str, ...]
    sizes: tuple[str, ...]


def function_of(kernel: Kernel) -> Function:
    """The roles of a kernel's arguments. They do not depend on its parameters unless its body does."""
    written, read = set(written_views(kernel)), read_views(kernel)
    results = tuple(n for n in _views(kernel) if n in written and n not in read)
    given = tuple(a.name for a in kernel.args if a.name not in results)
    changed = tuple(n for n in given if n in written)
    return Function(given, changed, results, _sizes(kernel, results))


def read_views(kernel: Kernel) -> frozenset[str]:
    """Names of the view arguments that the kernel reads."""
    found: set[str] = set()
    for op in kernel.walk():
        definition = registry.get(op.name)
        at = definition.access_position
        if at is not None and definition.effects & {"read", "atomic"} and "buffer" not in definition.operands:
            found.add(op.operands[at].name)
    return frozenset(found)


def result_shapes(
    kernel: Kernel, function: Function, shapes: Mapping[str, Sequence[Any]], sizes: Mapping[str, Any]
) -> dict[str, tuple[list[Any], Elem]]:
    """Shape and element type of each result.

    shapes: of the given views by name; sizes: values of `function.sizes`. Sizes may be numbers or whatever a framework has in
    their place: they are only handed on.
    """
    known = dict(sizes)
    views = _views(kernel)
    for name, shape in shapes.items():
        for dim, size in zip(views[name].dims, shape, strict=False):  # ranks are checked when arguments are bound
            if isinstance(dim, str):
                known.setdefault(dim, size)
    return {
        n: ([known[d] if isinstance(d, str) else d for d in views[n].dims], views[n].elem) for n in function.results
    }


def _views(kernel: Kernel) -> dict[str, GlobalType]:
    return {a.name: a.type for a in kernel.args if isinstance(a.type, GlobalType)}


def _sizes(kernel: Kernel, results: Sequence[str]) -> tuple[str, ...]:
    views = _views(kernel)
    determined: set[str | int] = set()
    dims: set[str | int] = set()
    new_strides: set[str | int] = set()
    for name, view in views.items():
        dims.update(view.dims)
        if name in results:
            new_strides.update(view.strides or ())
        else:
            determined.update(view.dims, view.strides or ())
    return tuple(s for s in used_symbols(kernel) if s not in determined and (s in dims or s not in new_strides))
