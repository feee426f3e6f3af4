"""Layouts of tiles in registers and LDS: pure mathematics over GF(2); hardware numbers are passed in by callers."""

from .algebra import LinearMap
from .banks import Access, AccessProof, BankRule, Proof, conflict_degree, conflict_degrees, prove
from .blocked import blocked
from .choose import choose, choose_free
from .conversion import Conversion, conversion, transpose_sources
from .linear import FreeMasks, Layout, LayoutError, broadcast_source, transfer
from .mfma import (
    accumulator_k_order,
    block_k_order,
    k_block,
    mfma_accumulator,
    mfma_operand,
    mma_layouts,
    wide_k_order,
)
from .mma import MmaPlan, MmaStep, fragments, mma_plan
from .shared import SharedLayout
from .spans import address_bases
from .transposed import transposed_source

__all__ = [
    "Access",
    "AccessProof",
    "BankRule",
    "Conversion",
    "FreeMasks",
    "Layout",
    "LayoutError",
    "LinearMap",
    "MmaPlan",
    "MmaStep",
    "Proof",
    "SharedLayout",
    "accumulator_k_order",
    "address_bases",
    "block_k_order",
    "blocked",
    "broadcast_source",
    "choose",
    "choose_free",
    "conflict_degree",
    "conflict_degrees",
    "conversion",
    "fragments",
    "k_block",
    "mfma_accumulator",
    "mfma_operand",
    "mma_layouts",
    "mma_plan",
    "prove",
    "transfer",
    "transpose_sources",
    "transposed_source",
    "wide_k_order",
]
