"""Transposing LDS reads (CDNA4): the data of 16 lanes is transposed on its way into the registers."""

from __future__ import annotations

from .linear import Layout, LayoutError, ceil_log2

_BLOCK_BITS = 4
_READ_BITS = 64


def elements_per_read(elem_bits: int) -> int:
    """Elements that a lane addresses, and receives, in one 64-bit transposing read."""
    return _READ_BITS // elem_bits


def transposed_source(layout: Layout, elem_bits: int = 16) -> Layout:
    """What the lanes *address* so that a 64-bit transposing read delivers a tile of ``elem_bits``-bit elements in ``layout``.

    A lane addresses n = 64 / bits elements. In every block of 16 lanes, lane i receives as element j the element ``i % n`` of
    what lane ``16 / n * j + i // n`` addresses (CDNA4 ISA, DS_READ_B64_TR_B16 and _B8). In bits that is an exchange of basis
    vectors: the elements that a lane addresses are the lowest receiving lane bits, its own lane bits are the others of the
    block and then the lowest receiving register bits. The result is used like any layout: for addresses, and for bank
    conflicts with ``Access.of_layout``; its rows must be contiguous in LDS.

    Raises:
        LayoutError: lanes or registers of ``layout`` do not run as the instruction delivers them.
    """
    n = elements_per_read(elem_bits)
    e = ceil_log2(n)
    if layout.rank != 2:
        raise LayoutError(f"a transposing read gives a tile of rank 2, not {layout.rank}")
    if len(layout.reg) < e:
        raise LayoutError(
            f"a transposing read gives each lane {n} elements along rows in its lowest registers; {layout} has "
            f"{layout.registers_per_block}"
        )
    lane = layout.lane[e:_BLOCK_BITS] + layout.reg[:e] + layout.lane[_BLOCK_BITS:]
    source = Layout(layout.shape, layout.lane[:e] + layout.reg[e:], lane, layout.wave, layout.reps)
    if source.contiguous(1) < n:
        raise LayoutError(
            f"a transposing read needs {n} consecutive columns in lanes 0-{n - 1}; the lanes of {layout} run otherwise"
        )
    return source
