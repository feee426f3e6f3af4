"""The examples of the op declarations as whole kernels, so that documentation shows nothing that does not parse.

Every example may use the values of `PRELUDE`; its kernel defines those that it does not define itself.
"""

from __future__ import annotations

import re

from tileir.ir.registry import OpDef

PRELUDE: dict[str, str] = {
    "%lo": "constant<0>() : i32",
    "%hi": "constant<8>() : i32",
    "%step": "constant<2>() : i32",
    "%i": "constant<0>() : i32",
    "%j": "constant<64>() : i32",
    "%zero": "constant<0.0>() : f32",
    "%one": "constant<1.0>() : f32",
    "%cond": "constant<true>() : i1",
    "%seed": "constant<7>() : i64",
    "%a": "load(%A[0 +: 64, 0 +: 64])",
    "%b": "load(%A[64 +: 64, 0 +: 64])",
    "%acc": "fill(0.0) : tile<f32[64, 64]>",
    "%s": "fill(1.0) : tile<f32[64, 1]>",
    "%m": "iota<[64, 1]>() < 32",
    "%u": "iota<[64]>()",
    "%v": "iota<[64]>() + 1",
    "%n": "convert<i64>(iota<[64]>())",
    "%x": "fill(1.0) : tile<f32[1]>",
    "%held": "fill(1.0) : tile<f32[2], linear(reg = [[1]], lane = [[0], [0], [0], [0], [0], [0]], wave = [])>",
    "%spread": "fill(1.0) : tile<f32[2], linear(reg = [], lane = [[1], [0], [0], [0], [0], [0]], wave = [])>",
    "%q": "fill(1.0) : tile<f8E4M3FN[64, 64]>",
    "%qs": "fill(1.0) : tile<f8E8M0FNU[64, 2]>",
    "%r": "fill(1.0) : tile<f8E5M2[64, 64]>",
    "%rs": "fill(1.0) : tile<f8E8M0FNU[2, 64]>",
    "%buf": "shared_alloc() : shared<f32[64, 64]>",
    "%map": (
        "register_map() : tile<f32[64, 64], linear(reg = [[0, 1], [0, 2], [0, 4], [0, 8], [0, 16], [0, 32]], "
        "lane = [[1, 0], [2, 0], [4, 0], [8, 0], [16, 0], [32, 0]], wave = [])>"
    ),
}
"""Value → how it is made."""


def example_kernel(definition: OpDef) -> str:
    """A file with one kernel around the example of an op."""
    example = definition.example
    used = set(re.findall(r"%\w+", example))
    defined = {n for names in re.findall(r"(%\w+(?:, %\w+)*) = ", example) for n in names.split(", ")}
    lines = [f"{name} = {value}" for name, value in PRELUDE.items() if name in used - defined]
    body = "\n".join(f"  {line}" for line in [*lines, *example.split("\n")])
    numbers = ", %I: global<i32[L]>" if "%I" in used else ""
    return f"tileir 1\n\nkernel @example(%A: global<f32[M, N]>{numbers}) grid(M, N) {{\n{body}\n}}\n"
