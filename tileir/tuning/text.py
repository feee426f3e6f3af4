"""Texts with a schedule and other defaults: edits of the author's file that leave everything else as it is."""

from __future__ import annotations

from collections.abc import Mapping

from tileir.frontend.parser import Node
from tileir.frontend.source import Source
from tileir.frontend.syntax import read


def with_schedule(text: str, filename: str, kernel: str, schedule: str, name: str, defaults: Mapping[str, int]) -> str:
    """The text with a `schedule` block in front of the first schedule of the kernel, or at its end, instead of one of the same name; and with
    these defaults of the kernel's parameters. Comments and spaces stay. Raises CompileError for a text that does not parse.
    """
    source = Source(text, filename)
    items = read(source).children[1:]
    text = source.text
    edits = _default_edits(
        next(n for n in items if n.kind == "kernel" and n.children[0].text == f"@{kernel}"), defaults
    )
    schedules = [n for n in items if n.kind == "schedule"]
    old = next((n for n in schedules if n.children[0].text == f"@{name}"), None)
    if old is not None:
        end = old.end
        if not schedule:
            while text[end : end + 1] == "\n":
                end += 1
        edits.append((old.start, end, schedule.rstrip("\n")))
    elif schedule:
        first = next((n for n in schedules if n.children[1].text == f"@{kernel}"), None)
        if first is not None:
            edits.append((first.start, first.start, f"{schedule}\n"))
        else:
            edits.append((len(text), len(text), ("" if text.endswith("\n") else "\n") + f"\n{schedule}"))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def schedule_names(text: str, filename: str) -> dict[str, str]:
    """The kernels of all schedules of a text, by name of the schedule."""
    items = read(Source(text, filename)).children[1:]
    return {n.children[0].text[1:]: n.children[1].text[1:] for n in items if n.kind == "schedule"}


def parameter_nodes(kernel: Node) -> list[Node]:
    """The parameters of a kernel that may be given from outside."""
    listed = kernel.children[1]
    return [p for p in listed.children if p.kind == "free_param"] if listed is not None else []


def kernel_node(text: str, filename: str, kernel: str) -> tuple[Source, Node]:
    """A kernel of a text that parses."""
    source = Source(text, filename)
    items = read(source).children[1:]
    return source, next(n for n in items if n.kind == "kernel" and n.children[0].text == f"@{kernel}")


def parameter_names(text: str, filename: str, kernel: str) -> tuple[str, ...]:
    """The parameters of a kernel that may be given from outside; none if the text does not have the kernel."""
    items = read(Source(text, filename)).children[1:]
    found = [n for n in items if n.kind == "kernel" and n.children[0].text == f"@{kernel}"]
    return tuple(p.children[0].text for node in found for p in parameter_nodes(node))


def _default_edits(kernel: Node, defaults: Mapping[str, int]) -> list[tuple[int, int, str]]:
    found: list[tuple[int, int, str]] = []
    for p in parameter_nodes(kernel):
        name, _, default = p.children
        if name.text in defaults:
            found.append((default.start, default.end, str(defaults[name.text])))
    return found
