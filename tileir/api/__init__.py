"""Building and compiling kernels from Python; `import tileir` hands on what is here."""

from tileir.api.builder import KernelBuilder
from tileir.api.schedule import ScheduleBuilder
from tileir.api.values import Access, Size, Span, Tile, View, cdiv, span, symbol

__all__ = ["Access", "KernelBuilder", "ScheduleBuilder", "Size", "Span", "Tile", "View", "cdiv", "span", "symbol"]
