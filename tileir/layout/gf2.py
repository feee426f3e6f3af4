"""Linear algebra over GF(2) on bit vectors held in Python integers.

A vector is a non-negative ``int`` (bit i is coordinate i). A matrix is a sequence of *columns*: column j is the image
of the j-th unit vector, so applying a matrix XORs the columns that the argument's bits select.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def apply(columns: Sequence[int], vector: int) -> int:
    """Image of ``vector`` under the matrix with the given columns.

    Raises:
        ValueError: ``vector`` has a bit beyond the last column.
    """
    if vector < 0 or vector >> len(columns):
        raise ValueError(f"vector {vector:#x} does not fit a matrix of {len(columns)} columns")
    out = 0
    for j, column in enumerate(columns):
        if vector >> j & 1:
            out ^= column
    return out


def compose(outer: Sequence[int], inner: Sequence[int]) -> tuple[int, ...]:
    """Columns of the product ``outer · inner`` (``inner`` is applied first)."""
    return tuple(apply(outer, column) for column in inner)


def identity(size: int) -> tuple[int, ...]:
    """Columns of the identity matrix."""
    return tuple(1 << i for i in range(size))


class Span:
    """A growing subspace that remembers how each of its elements is a sum of the vectors that were added.

    Invariant: ``_rows[p]`` has leading bit p, and ``_combination[p]`` says (as a bit set over the order of ``add``
    calls) which added vectors XOR to it.
    """

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        self._rows: dict[int, int] = {}
        self._combination: dict[int, int] = {}
        self._added = 0
        for vector in vectors:
            self.add(vector)

    @property
    def dimension(self) -> int:
        """Dimension of the subspace."""
        return len(self._rows)

    def _reduce(self, vector: int) -> tuple[int, int]:
        combination = 0
        while vector:
            lead = vector.bit_length() - 1
            if lead not in self._rows:
                break
            vector ^= self._rows[lead]
            combination ^= self._combination[lead]
        return vector, combination

    def add(self, vector: int) -> bool:
        """Add a vector; True if it enlarged the subspace, False if it was zero or dependent."""
        rest, combination = self._reduce(vector)
        index = self._added
        self._added += 1
        if not rest:
            return False
        lead = rest.bit_length() - 1
        self._rows[lead] = rest
        self._combination[lead] = combination | 1 << index
        return True

    def __contains__(self, vector: int) -> bool:
        return not self._reduce(vector)[0]

    def combination(self, vector: int) -> int | None:
        """Bit set of added vectors (by order of ``add``) that XOR to ``vector``, or None if it is outside.

        Only vectors that enlarged the subspace are ever used, so the answer is unique.
        """
        rest, combination = self._reduce(vector)
        return None if rest else combination

    def project(self, vector: int) -> int:
        """Bit set of added vectors that XOR to ``vector`` projected onto the subspace, along the bits that lead none of its
        rows. Linear in ``vector``; inside the subspace the same as :meth:`combination`."""
        combination = 0
        for lead in sorted(self._rows, reverse=True):
            if vector >> lead & 1:
                vector ^= self._rows[lead]
                combination ^= self._combination[lead]
        return combination


def rank(vectors: Iterable[int]) -> int:
    """Dimension of the span of ``vectors``."""
    return Span(vectors).dimension


def solve(columns: Sequence[int], target: int) -> int | None:
    """One x with ``apply(columns, x) == target`` (dependent columns get coefficient 0), or None if there is none."""
    return Span(columns).combination(target)


def kernel(columns: Sequence[int]) -> tuple[int, ...]:
    """A basis of the vectors x with ``apply(columns, x) == 0``."""
    span = Span()
    basis: list[int] = []
    for j, column in enumerate(columns):
        combination = span.combination(column)
        if combination is not None:
            basis.append(combination | 1 << j)
        span.add(column)
    return tuple(basis)


def pseudo_inverse(columns: Sequence[int], rows: int) -> tuple[int, ...]:
    """Columns (one per row of the argument) of a matrix G with F·G·F = F and G·F·G = G, for any F.

    For y in the image of F, G·y is the preimage that uses only columns that enlarged the span; bits of y that lead
    out of the image count for nothing.
    """
    span = Span(columns)
    return tuple(span.project(1 << i) for i in range(rows))


def inverse(columns: Sequence[int]) -> tuple[int, ...]:
    """Columns of the inverse of a square matrix.

    Raises:
        ValueError: the matrix is singular or a column has more bits than there are columns.
    """
    size = len(columns)
    if any(column >> size for column in columns) or rank(columns) != size:
        raise ValueError(f"the {size}-column matrix {list(columns)} has no inverse")
    return pseudo_inverse(columns, size)
