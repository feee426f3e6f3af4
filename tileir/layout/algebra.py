"""The algebra of layouts: linear maps over GF(2) between named groups of bits.

A register layout maps the bits of ``reg``, ``lane`` and ``wave`` to the bits of coordinates; an LDS layout without padding
maps image bits to address bits; a common order of k maps k to k. All are :class:`LinearMap`, and what the passes
do with them are few operations:

* ``f @ g``: composition, g first. An order of k is composed onto both operands of a product.
* ``f.inverse()``, ``f.right_inverse()``, ``f.pseudo_inverse()``: who holds an element. ``src.right_inverse() @ dst`` says where
  a lane of ``dst`` finds in ``src`` what it needs: that is a conversion.
* ``f * g``: product. Bits of g lie above those of f of the same name: a tile is made of fragments, lane runs, waves.
  ``(f * g).divide(f) == g``.
* ``f.reorder(outputs = …)``: transposition of the result, no data moves; ``f.regroup(…)``: the same bits under other names, which
  is a reshape.

Dimensions that are no powers of two are not linear: `tileir.layout.linear.Layout` repeats a linear block.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tileir.records import dataclass

from . import gf2

Space = tuple[tuple[str, int], ...]
"""Named groups of bits, the first group in the lowest bits: ((name, number of bits), …)."""


class LayoutError(ValueError):
    """A layout that cannot exist or cannot be represented; the message says what would be legal."""


def _space_text(space: Space) -> str:
    return "(" + ", ".join(f"{name}: {bits}" for name, bits in space) + ")"


def _bits(space: Space) -> int:
    return sum(bits for _, bits in space)


@dataclass(frozen=True)
class LinearMap:
    """A linear map from the bits of ``inputs`` to the bits of ``outputs``.

    Attributes:
        inputs, outputs: named groups of bits; names are distinct within a space. Groups of 0 bits are kept.
        columns: image of every input bit, packed: the first output group in the lowest bits.

    Raises:
        LayoutError: a number of columns other than that of input bits, images beyond the outputs, repeated names.
    """

    inputs: Space
    outputs: Space
    columns: tuple[int, ...]

    def __post_init__(self) -> None:
        for space in (self.inputs, self.outputs):
            names = [name for name, _ in space]
            if len(set(names)) != len(names) or any(bits < 0 for _, bits in space):
                raise LayoutError(f"{_space_text(space)}: names must be distinct, numbers of bits at least 0")
        if len(self.columns) != _bits(self.inputs):
            raise LayoutError(
                f"{_space_text(self.inputs)} has {_bits(self.inputs)} bits and needs as many columns, not {len(self.columns)}"
            )
        size = _bits(self.outputs)
        if any(not 0 <= c < 1 << size for c in self.columns):
            raise LayoutError(f"columns {list(self.columns)} must fit the {size} bits of {_space_text(self.outputs)}")

    # -- making maps ---------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, bases: Mapping[str, Sequence[Sequence[int]]], outputs: Space) -> LinearMap:
        """The map that sends bit i of an input group to ``bases[group][i]``, a vector with one number per output group.

        Raises:
            LayoutError: a vector of the wrong length, or a number beyond its group.
        """
        columns: list[int] = []
        for name, vectors in bases.items():
            for vector in vectors:
                fits = len(vector) == len(outputs) and all(
                    0 <= x < 1 << bits for x, (_, bits) in zip(vector, outputs, strict=True)
                )
                if not fits:
                    raise LayoutError(f"vector {list(vector)} of {name} must lie in {_space_text(outputs)}")
                columns.append(_pack(vector, outputs))
        return cls(tuple((name, len(vectors)) for name, vectors in bases.items()), outputs, tuple(columns))

    @classmethod
    def identity(cls, source: str, target: str, bits: int) -> LinearMap:
        """Bit i of ``source`` is bit i of ``target``."""
        return cls(((source, bits),), ((target, bits),), gf2.identity(bits))

    @classmethod
    def replicate(cls, source: str, bits: int) -> LinearMap:
        """Bits of ``source`` that choose nothing: whoever differs only in them holds the same."""
        return cls(((source, bits),), (), (0,) * bits)

    @classmethod
    def empty(cls) -> LinearMap:
        """No bits: the neutral element of the product."""
        return cls((), (), ())

    # -- evaluation ----------------------------------------------------------------------------------------------

    def apply(self, value: int) -> int:
        """Image of one packed input."""
        return gf2.apply(self.columns, value)

    def __call__(self, **values: int | Sequence[int] | npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.int64]]:
        """Image of numbers by group, elementwise; groups that are not given are 0.

        Raises:
            LayoutError: no such group, or a number beyond its bits.
        """
        arrays = {name: np.asarray(v, dtype=np.int64) for name, v in values.items()}
        sizes = dict(self.inputs)
        for name, v in arrays.items():
            if name not in sizes or np.any((v < 0) | (v >> sizes[name] > 0)):
                raise LayoutError(f"{name} must be a group of {_space_text(self.inputs)} and its numbers fit the bits")
        packed = np.zeros(np.broadcast_shapes(*(v.shape for v in arrays.values())), dtype=np.int64)
        at = 0
        for name, bits in self.inputs:
            v = arrays.get(name)
            for i in range(bits if v is not None else 0):
                assert v is not None
                packed = packed ^ (v >> i & 1) * self.columns[at + i]
            at += bits
        out: dict[str, npt.NDArray[np.int64]] = {}
        for name, bits in self.outputs:
            out[name] = packed & (1 << bits) - 1
            packed = packed >> bits
        return out

    def bases(self, name: str) -> tuple[tuple[int, ...], ...]:
        """Image of every bit of an input group, as vectors with one number per output group."""
        at = self._start(self.inputs, name)
        return tuple(_unpack(c, self.outputs) for c in self.columns[at : at + dict(self.inputs)[name]])

    # -- facts ---------------------------------------------------------------------------------------------------

    @functools.cached_property
    def rank(self) -> int:
        """Dimension of the image."""
        return gf2.rank(self.columns)

    @property
    def is_injective(self) -> bool:
        """Different inputs have different images: nothing is held twice."""
        return self.rank == len(self.columns)

    @property
    def is_surjective(self) -> bool:
        """Every output is an image: somebody holds every element."""
        return self.rank == _bits(self.outputs)

    def kernel(self) -> tuple[int, ...]:
        """A basis of the packed inputs that map to 0."""
        return gf2.kernel(self.columns)

    # -- operations ----------------------------------------------------------------------------------------------

    def compose(self, inner: LinearMap) -> LinearMap:
        """``self ∘ inner``: inner first. Also written ``self @ inner``.

        Raises:
            LayoutError: the outputs of ``inner`` are not the inputs of this map.
        """
        if inner.outputs != self.inputs:
            raise LayoutError(
                f"a map from {_space_text(self.inputs)} cannot follow one to {_space_text(inner.outputs)}: "
                "rename or reorder the groups first"
            )
        return LinearMap(inner.inputs, self.outputs, gf2.compose(self.columns, inner.columns))

    def __matmul__(self, inner: LinearMap) -> LinearMap:
        return self.compose(inner)

    def pseudo_inverse(self) -> LinearMap:
        """g with f∘g∘f = f and g∘f∘g = g, for every map f: where the image is reached, the preimage that uses the lowest
        independent input bits; beyond it, bits are ignored."""
        return LinearMap(self.outputs, self.inputs, gf2.pseudo_inverse(self.columns, _bits(self.outputs)))

    def right_inverse(self) -> LinearMap:
        """g with f∘g = 1: the canonical holder of every element where some are held several times.

        Raises:
            LayoutError: the map is not surjective.
        """
        if not self.is_surjective:
            raise LayoutError(f"{self} reaches only {self.rank} of {_bits(self.outputs)} output bits")
        return self.pseudo_inverse()

    def inverse(self) -> LinearMap:
        """g with f∘g = g∘f = 1.

        Raises:
            LayoutError: the map is no bijection.
        """
        if not self.is_injective:
            raise LayoutError(f"{self} maps {1 << len(self.columns) - self.rank} inputs to each image: no inverse")
        return self.right_inverse()

    def product(self, outer: LinearMap) -> LinearMap:
        """Both side by side: in every group that both have, the bits of ``outer`` lie above. Also written ``self * outer``."""
        inputs, outputs = _merge(self.inputs, outer.inputs), _merge(self.outputs, outer.outputs)
        place = _places(outputs, self.outputs, outer.outputs)
        columns: list[int] = []
        for name, _ in inputs:
            for side, of in enumerate((self, outer)):
                if name in dict(of.inputs):
                    at = of._start(of.inputs, name)
                    for c in of.columns[at : at + dict(of.inputs)[name]]:
                        columns.append(gf2.apply(place[side], c))
        return LinearMap(inputs, outputs, tuple(columns))

    def __mul__(self, outer: LinearMap) -> LinearMap:
        return self.product(outer)

    def divide(self, inner: LinearMap) -> LinearMap:
        """The ``outer`` with ``inner * outer`` equal to this map, up to the order of groups. Groups that ``inner`` fills are left
        out.

        Raises:
            LayoutError: this map is no such product.
        """
        sizes_in, sizes_out = dict(inner.inputs), dict(inner.outputs)
        inputs, outputs = _quotient(self.inputs, inner.inputs), _quotient(self.outputs, inner.outputs)
        if inputs is None or outputs is None:
            raise LayoutError(f"{self} has not all the bits of {inner}")
        columns: list[int] = []
        for name, _ in inputs:
            for vector in self.bases(name)[sizes_in.get(name, 0) :]:
                high = {n: x >> sizes_out.get(n, 0) for (n, _), x in zip(self.outputs, vector, strict=True)}
                columns.append(_pack([high[n] for n, _ in outputs], outputs))
        outer = LinearMap(inputs, outputs, tuple(columns))
        whole = inner * outer
        order = tuple(n for n, _ in self.inputs), tuple(n for n, _ in self.outputs)
        if whole.reorder(inputs=order[0], outputs=order[1]) != self:
            raise LayoutError(f"{self} is no product of {inner} and another map: their bits meet")
        return outer

    def reorder(self, *, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None) -> LinearMap:
        """The same map with its groups in another order; of the outputs, that is a transposition.

        Raises:
            LayoutError: not a permutation of the groups.
        """
        new_in = _permuted(self.inputs, inputs)
        new_out = _permuted(self.outputs, outputs)
        columns: list[int] = []
        for name, _ in new_in:
            for vector in self.bases(name):
                by_name = dict(zip((n for n, _ in self.outputs), vector, strict=True))
                columns.append(_pack([by_name[n] for n, _ in new_out], new_out))
        return LinearMap(new_in, new_out, tuple(columns))

    def regroup(self, *, inputs: Space | None = None, outputs: Space | None = None) -> LinearMap:
        """The same bits in other groups: of the outputs, a reshape (of the groups from the last to the first).

        Raises:
            LayoutError: another number of bits.
        """
        new_in, new_out = self.inputs if inputs is None else inputs, self.outputs if outputs is None else outputs
        return LinearMap(new_in, new_out, self.columns)

    # -- text ----------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return f"{_space_text(self.inputs)} -> {_space_text(self.outputs)} [{', '.join(map(str, self.columns))}]"

    @classmethod
    def parse(cls, text: str) -> LinearMap:
        """The map that ``str`` printed.

        Raises:
            LayoutError: text of another form, or a map that cannot exist.
        """
        match = re.fullmatch(r"\s*\(([^()]*)\)\s*->\s*\(([^()]*)\)\s*\[([\d\s,]*)\]\s*", text)
        group = r"\s*([A-Za-z_]\w*)\s*:\s*(\d+)\s*"
        if match is None:
            raise LayoutError(f"'{text}' is no map; write (reg: 1) -> (col: 1) [1]")
        spaces: list[Space] = []
        for part in match.groups()[:2]:
            items = [re.fullmatch(group, item) for item in part.split(",")] if part.strip() else []
            if not all(items):
                raise LayoutError(f"'({part})' names no groups of bits; write (reg: 2, lane: 6)")
            spaces.append(tuple((m[1], int(m[2])) for m in items if m is not None))
        listed = match[3].split(",") if match[3].strip() else []
        if not all(x.strip().isdigit() for x in listed):
            raise LayoutError(f"'[{match[3]}]' is no list of columns; write [1, 2, 4]")
        return cls(spaces[0], spaces[1], tuple(int(x) for x in listed))

    @staticmethod
    def _start(space: Space, name: str) -> int:
        at = 0
        for n, bits in space:
            if n == name:
                return at
            at += bits
        raise LayoutError(f"{_space_text(space)} has no group {name}")


def _pack(vector: Sequence[int], space: Space) -> int:
    out = at = 0
    for x, (_, bits) in zip(vector, space, strict=True):
        out |= x << at
        at += bits
    return out


def _unpack(packed: int, space: Space) -> tuple[int, ...]:
    out: list[int] = []
    for _, bits in space:
        out.append(packed & (1 << bits) - 1)
        packed >>= bits
    return tuple(out)


def _merge(low: Space, high: Space) -> Space:
    """The groups of both, those of ``low`` first, with the sums of their bits."""
    more = dict(high)
    merged = [(name, bits + more.pop(name, 0)) for name, bits in low]
    return (*merged, *((name, bits) for name, bits in high if name in more))


def _quotient(whole: Space, low: Space) -> Space | None:
    """The groups of ``whole`` with the bits that ``low`` leaves; None if it has more."""
    rest, taken = dict(whole), dict(low)
    if any(bits > rest.get(name, -1) for name, bits in low):
        return None
    return tuple((n, b - taken.get(n, 0)) for n, b in whole if n not in taken or b > taken[n])


def _places(merged: Space, low: Space, high: Space) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Image of every output bit of either factor among those of their product."""
    sizes, start, at = dict(low), dict[str, int](), 0
    for name, bits in merged:
        start[name] = at
        at += bits
    return (
        tuple(1 << start[name] + i for name, bits in low for i in range(bits)),
        tuple(1 << start[name] + sizes.get(name, 0) + i for name, bits in high for i in range(bits)),
    )


def _permuted(space: Space, names: Sequence[str] | None) -> Space:
    if names is None:
        return space
    sizes = dict(space)
    if sorted(names) != sorted(sizes):
        raise LayoutError(f"{list(names)} must be a permutation of the groups of {_space_text(space)}")
    return tuple((name, sizes[name]) for name in names)
