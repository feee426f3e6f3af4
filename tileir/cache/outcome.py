"""A compiled kernel with all that was said about it, and its form on disk.

The body of an entry is a frame of the protocol between compiler and worker: a JSON object and byte strings with stated lengths.
Nothing in it is ever executed or unpickled when it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, cast

from tileir.ir.diagnostics import Diagnostic, Note
from tileir.ir.location import Loc
from tileir.lowering.amdgpu import protocol
from tileir.records import dataclass


@dataclass(frozen=True)
class Outcome:
    """What a compilation gave. The same, down to the bytes, whether it was made now or earlier.

    texts: the texts that were asked for, by stage, and "tile", what was lowered. diagnostics: warnings and remarks in order,
    the first `front` of them from reading the text. stats: what `tileir-opt --emit stats` prints; its times are those of the
    compilation that made the kernel.
    """

    target: str
    hsaco: bytes
    interface: dict[str, object]
    block: tuple[int, int, int]
    texts: dict[str, str]
    obj: bytes | None
    stats: dict[str, Any]
    diagnostics: tuple[Diagnostic, ...] = ()
    front: int = 0
    cached: bool = field(default=False, compare=False)


def encode(outcome: Outcome) -> bytes:
    """The body of an entry."""
    message = {
        "target": outcome.target,
        "interface": outcome.interface,
        "block": outcome.block,
        "stats": outcome.stats,
        "diagnostics": [_diagnostic_row(d) for d in outcome.diagnostics],
        "front": outcome.front,
    }
    blobs = {f"text:{stage}": text.encode("utf-8", "surrogatepass") for stage, text in outcome.texts.items()}
    blobs["hsaco"] = outcome.hsaco
    if outcome.obj is not None:
        blobs["obj"] = outcome.obj
    return protocol.encode(message, blobs)


def decode(body: bytes) -> Outcome:
    """The outcome in a body. Raises ValueError if there is none."""
    try:
        start = protocol.LENGTHS.size
        header, rest = protocol.lengths(body[:start])
        if start + header + rest != len(body):
            raise ValueError("lengths do not fit")
        message, blobs = protocol.decode(body[start : start + header], body[start + header :])
        x, y, z = message["block"]
        return Outcome(
            target=message["target"],
            hsaco=blobs["hsaco"],
            interface=message["interface"],
            block=(x, y, z),
            texts={
                name.removeprefix("text:"): data.decode("utf-8", "surrogatepass")
                for name, data in blobs.items()
                if name.startswith("text:")
            },
            obj=blobs.get("obj"),
            stats=message["stats"],
            diagnostics=tuple(_diagnostic(row) for row in message["diagnostics"]),
            front=message["front"],
            cached=True,
        )
    except (protocol.ProtocolError, KeyError, TypeError, ValueError, OverflowError) as e:
        raise ValueError(f"not a compiled kernel: {e!r}") from None
    except Exception as e:  # struct.error, and whatever JSON may hold
        raise ValueError(f"not a compiled kernel: {e!r}") from None


def _diagnostic_row(d: Diagnostic) -> list[Any]:
    notes = [[n.message, _loc_row(n.loc) if n.loc is not None else None] for n in d.notes]
    return [d.code, d.message, _loc_row(d.loc), d.severity, notes, d.legal]


def _loc_row(loc: Loc) -> list[Any]:
    return [loc.file, loc.line, loc.column, loc.end_line, loc.end_column]


def _diagnostic(row: Sequence[Any]) -> Diagnostic:
    code, message, loc, severity, notes, legal = row
    found = tuple(Note(text, Loc(*place) if place is not None else None) for text, place in cast("list[Any]", notes))
    return Diagnostic(code, message, Loc(*loc), severity, found, legal)
