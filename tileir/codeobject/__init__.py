"""Reading AMDGPU code objects: ELF, kernel descriptors, metadata notes, line tables. Knows nothing of tiles."""

from tileir.codeobject.codeobject import CodeObject, Kernel
from tileir.codeobject.descriptor import KernelDescriptor
from tileir.codeobject.dwarf import LineRow, LineTable, SourceLine
from tileir.codeobject.elf import Section, Segment, Symbol, encode_note
from tileir.codeobject.errors import CodeObjectError
from tileir.codeobject.metadata import KernelArg, KernelMetadata

__all__ = [
    "CodeObject",
    "CodeObjectError",
    "Kernel",
    "KernelArg",
    "KernelDescriptor",
    "KernelMetadata",
    "LineRow",
    "LineTable",
    "Section",
    "Segment",
    "SourceLine",
    "Symbol",
    "encode_note",
]
