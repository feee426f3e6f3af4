"""What the runtime needs to know of a compiled kernel, whoever compiled it."""

from __future__ import annotations

from typing import Protocol

from tileir.ir.core import Kernel


class Compiled(Protocol):
    """A kernel ready for launch on any device.

    kernel: the IR with all parameters bound; its arguments, symbols and grid are those of the code object, and the
        interpreter runs it.
    hsaco: the linked code object that contains it under `kernel.name`; b"" if only the interpreter is to run it.
    target: the chip that the code object is for, such as "gfx950".
    block: threads of one workgroup in x, y, z.
    """

    @property
    def kernel(self) -> Kernel: ...

    @property
    def hsaco(self) -> bytes: ...

    @property
    def target(self) -> str: ...

    @property
    def block(self) -> tuple[int, int, int]: ...
