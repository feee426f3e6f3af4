"""Layouts of tiles in registers and LDS: pure mathematics over GF(2); hardware numbers are passed in by callers."""

from .blocked import blocked
from .linear import FreeMasks, Layout, LayoutError, broadcast_source
from .mfma import accumulator_k_order, k_block, mfma_accumulator, mfma_operand, mma_layouts, wide_k_order
from .mma import MmaPlan, MmaStep, fragments, mma_plan

__all__ = [
    "FreeMasks",
    "Layout",
    "LayoutError",
    "MmaPlan",
    "MmaStep",
    "accumulator_k_order",
    "blocked",
    "broadcast_source",
    "fragments",
    "k_block",
    "mfma_accumulator",
    "mfma_operand",
    "mma_layouts",
    "mma_plan",
    "wide_k_order",
]
