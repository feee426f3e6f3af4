"""What `with(…)` at the head of a kernel may say: what passes, or an author in their place, decided for the whole kernel."""

from __future__ import annotations

from tileir.ir.core import Kernel
from tileir.ir.diagnostics import error
from tileir.ir.registry import AttrSpec, check_attr

ATTRS = tuple(
    AttrSpec(name, kind, None, doc=doc)
    for name, kind, doc in (
        ("target", "word", "the chip that the text was specialised for"),
        ("schedule", "word", "the schedule that was applied"),
        ("waves", "int", "waves of a workgroup"),
        ("budget", "int", "registers per lane that the schedule allows"),
        ("registers", "shape", "registers per lane of either file that LLVM may take; a number is a budget"),
        ("lds", "int", "bytes of LDS"),
        ("order", "word", "the order of workgroups"),
        ("order_chunk", "int", "neighbours in the grid that a chiplet gets at once"),
        ("order_window", "int", "rows of workgroups that are walked together"),
        ("ordered", "bool", "the text computes the order of workgroups"),
        ("synchronised", "bool", "the text holds its waits and barriers"),
        ("reports", "bool", "the kernel has a buffer for what it prints and asserts"),
    )
)
_BY_NAME = {spec.name: spec for spec in ATTRS}


def check_kernel_attrs(kernel: Kernel) -> None:
    """Raises CompileError unless a kernel can have the attributes that it has. The parser lets others pass: old texts keep their meaning."""
    for name, value in kernel.attrs.items():
        if name not in _BY_NAME:
            legal = f"its attributes: {', '.join(_BY_NAME)}"
            raise error("E0307", f"a kernel has no attribute '{name}'", kernel.loc, legal=legal)
        if not (name == "registers" and type(value) is int):
            check_attr("a kernel", _BY_NAME[name], value, kernel.loc)
