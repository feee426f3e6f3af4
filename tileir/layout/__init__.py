"""Layouts of tiles in registers and LDS: pure mathematics over GF(2); hardware numbers are passed in by callers."""

from .blocked import blocked
from .linear import FreeMasks, Layout, LayoutError, broadcast_source

__all__ = ["FreeMasks", "Layout", "LayoutError", "blocked", "broadcast_source"]
