"""Transposing LDS reads (CDNA4): the data of 16 lanes is transposed on its way into the registers."""

from __future__ import annotations

from .linear import Layout, LayoutError

_BLOCK_BITS = 4
_ELEMENT_BITS = 2


def transposed_source(layout: Layout) -> Layout:
    """What the lanes *address* so that a `ds_read_b64_tr_b16` delivers a tile of 16-bit elements in ``layout``.

    In every block of 16 lanes, lane i receives as element j the half ``i % 4`` of what lane ``4 * j + i // 4`` addresses
    (CDNA4 ISA, DS_READ_B64_TR_B16). In bits that is an exchange of basis vectors: the 4 elements that a lane addresses
    are the receiving lane bits 0-1, its own lane bits 0-1 are the receiving lane bits 2-3, and its lane bits 2-3 are
    the receiving register bits 0-1. The result is used like any layout: for addresses, and for bank conflicts with
    ``Access.of_layout``; its rows must be contiguous in LDS.

    Raises:
        LayoutError: lanes or registers of ``layout`` do not run as the instruction delivers them.
    """
    if layout.rank != 2:
        raise LayoutError(f"a transposing read gives a tile of rank 2, not {layout.rank}")
    if len(layout.reg) < _ELEMENT_BITS:
        raise LayoutError(
            f"a transposing read gives each lane 4 elements along rows in its lowest registers; {layout} has "
            f"{layout.registers_per_block}"
        )
    e = _ELEMENT_BITS
    lane = layout.lane[e:_BLOCK_BITS] + layout.reg[:e] + layout.lane[_BLOCK_BITS:]
    source = Layout(layout.shape, layout.lane[:e] + layout.reg[e:], lane, layout.wave, layout.reps)
    if source.contiguous(1) < 1 << e:
        raise LayoutError(
            f"a transposing read needs 4 consecutive columns in lanes 0-3; the lanes of {layout} run otherwise"
        )
    return source
