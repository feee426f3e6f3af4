"""The one error that reading a code object can raise."""

from __future__ import annotations


class CodeObjectError(ValueError):
    """The bytes are not a well-formed code object (or not one this reader supports).

    `message` says what is wrong, `offset` is the byte offset in the file (or None when no single place is to blame).
    """

    def __init__(self, message: str, offset: int | None = None) -> None:
        self.message = message
        self.offset = offset
        super().__init__(message if offset is None else f"{message} (at byte {offset:#x})")
