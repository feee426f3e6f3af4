"""Accesses of an LDS tile as spans over GF(2), by which many candidate layouts are judged quickly."""

from __future__ import annotations

import functools

import numpy as np

from tileir.records import dataclass

from . import gf2
from .banks import Access, coset, linear_parts
from .linear import IntArray
from .masks import bank_mask, differences
from .shared import SharedLayout

IMMEDIATE_RANGE = 1 << 16
"""DS instructions have a 16-bit unsigned byte offset (CDNA3 ISA, DS encoding)."""


def address_bases(addresses: IntArray) -> int:
    """How many address registers the instructions [instructions, 64] need when constants go into the immediate offset.

    Instructions whose addresses differ by one constant in all lanes share a register.
    """
    active = addresses >= 0
    first = np.where(active.any(axis=1), addresses[np.arange(len(addresses)), active.argmax(axis=1)], 0)
    pattern = np.where(active, addresses - first[:, None], -(1 << 40))
    groups: dict[bytes, list[int]] = {}
    for row, start in zip(pattern, first.tolist(), strict=True):
        groups.setdefault(row.tobytes(), []).append(start)
    return sum(-(-(max(v) - min(v) + 1) // IMMEDIATE_RANGE) for v in groups.values())


@dataclass(frozen=True)
class Span:
    """What one lane group touches: dwords that differ by the span of ``vectors`` (image bytes), independent and with distinct
    leading bits, ascending; ``count`` groups of instructions touch such dwords. In an XOR layout the degree is 2 to the power
    of the rank that the bank bits lose."""

    vectors: tuple[int, ...]
    bank_mask: int
    count: int

    def clocks(self, shared: SharedLayout) -> int:
        """Clocks of all these groups in an XOR layout that keeps dwords whole."""
        banks = gf2.rank(shared.image_to_offset(v) & self.bank_mask for v in self.vectors)
        return self.count << len(self.vectors) - banks


def _echelon(vectors: list[int]) -> tuple[int, ...]:
    """Independent vectors of the same span with distinct leading bits, ascending; no vector has the leading bit of another."""
    rows: dict[int, int] = {}
    for vector in vectors:
        for lead in sorted(rows, reverse=True):
            if vector >> lead & 1:
                vector ^= rows[lead]
        if vector:
            lead = vector.bit_length() - 1
            rows = {k: v ^ vector if v >> lead & 1 else v for k, v in rows.items()}
            rows[lead] = vector
    return tuple(rows[lead] for lead in sorted(rows))


class Load:
    """One access, prepared so that many candidate layouts can be judged quickly.

    If what a lane group reaches is affine over GF(2) in the lane (in image bytes), its degree in an XOR layout depends only on
    the linear part: cosets have the degree of their subspace. So equal spans are judged once, by ranks.
    """

    def __init__(self, access: Access, plain: SharedLayout) -> None:
        """``plain``: the tile in rows."""
        self.access = access
        image = access.rows * plain.row_bytes + access.cols * plain.elem_bits // 8
        self.image = np.where(access.rows < 0, -1, image)
        self.free = int(sum((access.rows[:, list(g)] >= 0).any(axis=1).sum() for g in access.rule.lane_groups))
        """clocks without any conflict: one per group with an active lane"""

    @functools.cached_property
    def apart(self) -> tuple[IntArray, int] | None:
        """The differences that the access needs apart, and the address bits by which (see `tileir.layout.masks`)."""
        apart = differences(self.access, self.image)
        return None if apart is None else (apart, bank_mask(self.access))

    @property
    def register_bits(self) -> int:
        """Image bits in which instructions of one linear part differ."""
        bits = 0
        for _, starts in self.patterns or ():
            bits |= int(np.bitwise_or.reduce(starts ^ starts[0]))
        return bits

    @functools.cached_property
    def patterns(self) -> list[tuple[tuple[int, ...], IntArray]] | None:
        """(linear part, image bytes of lane 0 of the instructions that have it), or None if an instruction is not linear."""
        if not len(self.image) or self.image.min() < 0:
            return None
        parts = linear_parts(self.image)
        if parts is None:
            return None
        found: dict[tuple[int, ...], list[int]] = {}
        for part, start in zip(parts.tolist(), self.image[:, 0].tolist(), strict=True):
            found.setdefault(tuple(part), []).append(start)
        return [(part, np.array(starts, dtype=np.int64)) for part, starts in found.items()]

    @functools.cached_property
    def spans(self) -> tuple[Span, ...] | None:
        """What the lane groups touch, or None if one of them is not linear."""
        rule = self.access.rule
        words = -(-rule.bytes_per_lane // rule.bank_bytes)
        if not len(self.image) or self.image.min() < 0 or words & words - 1 or rule.banks & rule.banks - 1:
            return None
        if rule.bytes_per_lane >= rule.bank_bytes and np.any(
            self.image & max(rule.bytes_per_lane, rule.bank_bytes) - 1
        ):
            return None
        dwords = [rule.bank_bytes << i for i in range(words.bit_length() - 1)]
        counts: dict[tuple[int, ...], int] = {}
        for group in rule.lane_groups:
            found = coset(group)
            if found is None:
                return None
            first, basis = found
            lanes = [first ^ gf2.apply(basis, i) for i in range(1 << len(basis))]
            parts = linear_parts(self.image[:, lanes])
            if parts is None:
                return None
            for part in parts.tolist():
                key = tuple(part)
                counts[key] = counts.get(key, 0) + 1
        spans: dict[tuple[int, ...], int] = {}
        for part, count in counts.items():
            span = _echelon([v & -rule.bank_bytes for v in part] + dwords)
            spans[span] = spans.get(span, 0) + count
        mask = (rule.banks - 1) * rule.bank_bytes
        return tuple(Span(span, mask, count) for span, count in spans.items())

    def _is_whole_in(self, shared: SharedLayout) -> bool:
        rule = self.access.rule
        return shared.is_linear and shared.granule >= max(rule.bytes_per_lane, rule.bank_bytes)

    def address_registers(self, shared: SharedLayout) -> int:
        """As :func:`address_bases`. In an XOR layout, lanes move the bits that the linear part reaches; instructions share a
        register iff they agree in those."""
        if self.patterns is None or self.apart is None or not self._is_whole_in(shared):
            return address_bases(self.access.addresses(shared))
        total = 0
        for part, starts in self.patterns:
            moving = 0
            for v in part:
                moving |= shared.image_to_offset(v)
            offsets = shared.offset_of_image(starts)
            if shared.size_bytes <= IMMEDIATE_RANGE:
                total += len(set((offsets & moving).tolist()))
                continue
            places: dict[int, list[int]] = {}
            for offset in offsets.tolist():
                places.setdefault(offset & moving, []).append(offset)
            total += sum(-(-(max(v) - min(v) + 1) // IMMEDIATE_RANGE) for v in places.values())
        return total

    def clocks(self, shared: SharedLayout, limit: int | None) -> int:
        """Sum of degrees over instructions and groups: by ranks where that applies, else by enumeration; a lower bound of it
        as soon as that exceeds ``limit``.

        Raises:
            LayoutError: the layout tears a lane's bytes apart.
        """
        if self.spans is not None and self._is_whole_in(shared):
            return sum(span.clocks(shared) for span in self.spans)
        addresses = self.access.addresses(shared)
        done = 0
        step = max(1, len(addresses) // 4)
        if limit is not None and step > 1:  # a few instructions discard most candidates
            sample = self.access.degrees_at(addresses[::step])
            active = np.count_nonzero(sample)
            done = int(sample.sum()) - active
            if done and self.free + done > limit:
                return self.free + done
        return int(self.access.degrees_at(addresses).sum())
