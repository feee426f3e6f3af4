"""Masks of XOR layouts that keep what is served together apart: solved for, bit by bit, not tried out.

Two lanes of a group conflict if they touch different places in one bank. In an XOR layout the bank of a place is linear in the bits
of its image byte, so it depends only on the *difference*, the XOR of the two image bytes, whether they meet: it must not be mapped to
bank bits of 0. The differences of all pairs of all accesses say everything about conflicts, whether or not the lanes run
linearly: elements without order, holes and tiles of any number of rows are covered alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .banks import Access
from .linear import IntArray
from .shared import SharedLayout

_STEPS = 512
"""Bound on the steps of one search; where there are many solutions, it ends long before."""

_TRIES = 12
"""Searches in different orders: one that began badly would go through a great many masks of the last bits in vain."""


def bank_mask(access: Access) -> int:
    """The bits of a byte address that say in which bank a lane's bytes begin, without those inside the bytes of a lane."""
    rule = access.rule
    return (rule.banks * rule.bank_bytes - 1) & -max(rule.bytes_per_lane, rule.bank_bytes)


def differences(access: Access, image: IntArray) -> IntArray | None:
    """XORs of the image bytes of any two lanes that are served together and touch different places: ascending, distinct, the bits
    inside a lane's bytes 0. None where the bytes of a lane are no power of two or not aligned to their number.

    Args:
        image: the byte at which each lane begins, [instructions, 64], negative for inactive lanes.
    """
    rule = access.rule
    whole = max(rule.bytes_per_lane, rule.bank_bytes)
    if whole & whole - 1 or rule.banks & rule.banks - 1:
        return None
    if rule.bytes_per_lane >= rule.bank_bytes and np.any((image >= 0) & (image & whole - 1 > 0)):
        return None
    found: list[IntArray] = []
    parts: dict[int, set[bytes]] = {}
    for group in access.rule.lane_groups:
        part = image[:, list(group)]
        idle = part < 0
        if idle.any():  # an idle lane is where another one is, or nobody is
            first = part[np.arange(len(part)), (~idle).argmax(axis=1)]
            part = np.where(idle, first[:, None], part)
        apart = (part ^ part[:, :1]) & -whole
        parts.setdefault(len(group), set()).update(row.tobytes() for row in apart)
    for size, rows in parts.items():
        apart = np.frombuffer(b"".join(sorted(rows)), dtype=np.int64).reshape(-1, size)
        upper, lower = np.triu_indices(size, 1)
        found.append(_distinct(apart[:, upper] ^ apart[:, lower]))
    every = _distinct(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)
    return every[every > 0]


def _distinct(numbers: IntArray) -> IntArray:
    """The numbers in ascending order, each once. np.unique does the same, but its first call imports numpy.ma: 30 ms."""
    ascending = np.sort(numbers, axis=None)
    return ascending[np.append(True, ascending[1:] != ascending[:-1])] if ascending.size else ascending


def leading_bits(vectors: IntArray) -> IntArray:
    """Number of the highest bit of each positive number below 2**52."""
    return np.frexp(vectors.astype(np.float64))[1].astype(np.int64) - 1


class Constraints:
    """Differences that must stay apart, in all accesses of a tile."""

    def __init__(self, apart: Sequence[tuple[IntArray, int]], base: int) -> None:
        """Args:
        apart: differences, and the bits of the address by which they must be told apart.
        base: bits of the granule that stays whole; lower bits cannot have masks.
        """
        banks: dict[int, list[IntArray]] = {}
        for vectors, mask in apart:
            banks.setdefault(mask, []).append(vectors)
        merged = [(_distinct(np.concatenate(v)), mask) for mask, v in sorted(banks.items())]
        vectors = np.concatenate([v for v, _ in merged]) if merged else np.zeros(0, dtype=np.int64)
        masks = np.concatenate([np.full(len(v), m) for v, m in merged]) if merged else vectors
        leads = leading_bits(vectors)
        order = np.argsort(leads, kind="stable")
        self._vectors, self._masks, leads = vectors[order], masks[order], leads[order]
        self._banks = sorted(banks)
        self.bits = tuple(sorted({int(lead) for lead in leads if lead > base}))
        """leading bits that can have masks"""
        self._starts = [int(np.searchsorted(leads, bit)) for bit in self.bits] + [len(leads)]
        self._moved = [
            (self._vectors[start:] >> bit & 1) * self._masks[start:]
            for bit, start in zip(self.bits, self._starts, strict=False)
        ]
        self._led = [[*self._by_bank(start, end)] for start, end in zip(self._starts, self._starts[1:], strict=False)]

    def _by_bank(self, start: int, end: int) -> Iterator[tuple[int, NDArray[np.bool_] | None]]:
        """The bank masks of some differences, and which have each (None: all)."""
        masks = self._masks[start:end]
        for bank in self._banks:
            own = masks == bank
            if own.all():
                yield bank, None
            elif own.any():
                yield bank, own

    def met(self, shared: SharedLayout) -> bool:
        """Whether an XOR layout keeps all differences apart."""
        return bool(np.all(shared.offset_of_image(self._vectors) & self._masks))

    def free_masks(self, options: Sequence[Sequence[int]], wanted: int) -> Iterator[tuple[int, ...]]:
        """Masks for `bits`, one of the options each, with which no difference has bank bits of 0: at most ``wanted``, spread over the
        masks of every bit.

        Bits are taken from the lowest up. Where a difference led by the bit lies, is known but for the mask of the bit, so it forbids
        one mask (on its bank bits); any that is left over may be taken. If a search ends by itself without a solution, there is none;
        one that takes too many steps begins anew with the options in another order.
        """
        place = self._vectors & self._masks
        if np.any(place[: self._starts[0]] == 0):
            return
        for attempt in range(_TRIES):
            orders = [_shuffled(o, attempt * len(options) + i) if attempt else list(o) for i, o in enumerate(options)]
            search = _Search(self, orders)
            count = 0
            for solution in search.solutions((), place[self._starts[0] :], wanted):
                count += 1
                yield solution
            if count or search.steps < _STEPS:
                return

    def allowed(self, depth: int, place: IntArray, options: IntArray) -> list[int]:
        """The options for a bit that separate what it leads; ``place``: where the differences led by it or higher bits lie."""
        led = place[: self._starts[depth + 1] - self._starts[depth]]
        for bank, own in self._led[depth]:
            taken = np.zeros(bank + 1, dtype=np.bool_)
            taken[led if own is None else led[own]] = True
            options = options[~taken[options & bank]]
        return options.tolist()

    def moved(self, depth: int, place: IntArray, mask: int) -> IntArray:
        """Where the differences led by higher bits lie once a bit has its mask."""
        count = self._starts[depth + 1] - self._starts[depth]
        return (place ^ (self._moved[depth] & mask))[count:] if mask else place[count:]


class _Search:
    """A depth-first search for masks, of at most `_STEPS` steps."""

    def __init__(self, constraints: Constraints, options: Sequence[Sequence[int]]) -> None:
        self.constraints = constraints
        self.options = [np.array(o, dtype=np.int64) for o in options]
        self.steps = 0

    def solutions(self, masks: tuple[int, ...], place: IntArray, wanted: int) -> Iterator[tuple[int, ...]]:
        """At most ``wanted`` solutions that begin with ``masks``."""
        depth = len(masks)
        if depth == len(self.options):
            yield masks
            return
        allowed = self.constraints.allowed(depth, place, self.options[depth])
        share = max(1, wanted // max(1, len(allowed)))
        for mask in allowed:
            if wanted <= 0 or self.steps >= _STEPS:
                return
            self.steps += 1
            below = self.constraints.moved(depth, place, mask)
            for solution in self.solutions((*masks, mask), below, min(share, wanted)):
                wanted -= 1
                yield solution


def _shuffled(options: Sequence[int], seed: int) -> list[int]:
    """The options in an order that depends on the seed alone."""
    return sorted(options, key=lambda m: (m + 1) * (2 * seed + 1) * 0x9E3779B97F4A7C15 >> 20 & 0xFFFFF)
