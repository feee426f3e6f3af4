"""What the runtime needs to know of a compiled kernel, whoever compiled it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tileir.ir.core import Kernel


class Compiled(Protocol):
    """A kernel ready for launch on any device.

    kernel: the IR with all parameters bound, whose arguments, symbols and grid are those of the code object; None if only
        the code object is known.
    interface: arguments, grid and written views as the code object states them (`tileir.runtime.interface`); may be
        empty where `kernel` is given.
    hsaco: the linked code object; b"" if only the interpreter is to run the kernel.
    target: the chip that the code object is for, such as "gfx950".
    block: threads of one workgroup in x, y, z.
    """

    @property
    def kernel(self) -> Kernel | None: ...

    @property
    def interface(self) -> Mapping[str, object]: ...

    @property
    def hsaco(self) -> bytes: ...

    @property
    def target(self) -> str: ...

    @property
    def block(self) -> tuple[int, int, int]: ...
