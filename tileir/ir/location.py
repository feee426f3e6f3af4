"""Source locations: where in a `.tile` file a thing was written."""

from __future__ import annotations

from tileir.records import dataclass


@dataclass(frozen=True, slots=True)
class Loc:
    """A span of source text. Lines and columns count from 1; `end_column` is exclusive; line 0 means "unknown"."""

    file: str = "<unknown>"
    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def to(self, other: Loc) -> Loc:
        """The span from the start of this one to the end of `other`."""
        return Loc(self.file, self.line, self.column, other.end_line, other.end_column)


UNKNOWN = Loc()
