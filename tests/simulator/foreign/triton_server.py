"""Compiles kernels of a file with Triton: one request per line of standard input, one answer per line of output.

A request is {kernel, chip, types, constants, options, out}: types of the run-time arguments by name, in order, with
":16" behind what is divisible by 16. The code object goes to the file `out`; the answer is {lds, threads, kernel} or {error}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import gluon_kernels
import triton
import triton_kernels
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource


def build(request: dict[str, Any]) -> dict[str, Any]:
    types: dict[str, str] = request["types"]
    constants: dict[str, Any] = request["constants"]
    explicit = hasattr(gluon_kernels, request["kernel"])
    kernel = getattr(gluon_kernels if explicit else triton_kernels, request["kernel"])
    names = kernel.arg_names
    signature = {n: "constexpr" if n in constants else types[n].removesuffix(":16") for n in names}
    hints = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if types.get(n, "").endswith(":16")}
    fixed = {n: getattr(triton.language, v[3:]) if str(v).startswith("tl.") else v for n, v in constants.items()}
    source = (GluonASTSource if explicit else ASTSource)(kernel, signature=signature, constexprs=fixed, attrs=hints)
    done = triton.compile(source, target=GPUTarget("hip", request["chip"], 64), options=request["options"])
    with open(request["out"], "wb") as file:
        file.write(done.asm["hsaco"])
    return {"lds": done.metadata.shared, "threads": 64 * done.metadata.num_warps, "kernel": done.metadata.name}


def main() -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        try:
            answer = build(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
