"""One kernel through Triton's compiler. Runs in Triton's Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction


def build(
    kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any], chip: str, options: Mapping[str, Any]
) -> Any:
    """The compiled kernel, a Triton or a Gluon one. types: of the run-time arguments by name, with ":16" behind what is
    divisible by 16."""
    names = kernel.arg_names
    signature = {n: "constexpr" if n in constants else types[n].removesuffix(":16") for n in names}
    hints = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if types.get(n, "").endswith(":16")}
    source_of = GluonASTSource if isinstance(kernel, GluonJITFunction) else ASTSource
    source = source_of(kernel, signature=signature, constexprs=dict(constants), attrs=hints)
    return triton.compile(source, target=GPUTarget("hip", chip, 64), options=dict(options))


def write(compiled: Any, path: str) -> dict[str, Any]:
    """Writes the code object. Returns what a launch needs: {lds, threads, kernel, triton}."""
    with open(path, "wb") as file:
        file.write(compiled.asm["hsaco"])
    metadata = compiled.metadata
    return {
        "lds": metadata.shared,
        "threads": 64 * metadata.num_warps,
        "kernel": metadata.name,
        "triton": triton.__version__,
    }
