"""Compiles kernels of a file with Triton: one request per line of standard input, one answer per line of output.

A request is {kernel, chip, types, constants, options, out}: types of the run-time arguments by name, in order, with
":16" behind what is divisible by 16. The code object goes to the file `out`; the answer is {lds, threads, kernel} or {error}.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gluon_kernels
import triton
import triton_kernels

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

from compile_child import serve
from triton_build import build, write


def answer(request: dict[str, Any]) -> dict[str, Any]:
    explicit = hasattr(gluon_kernels, request["kernel"])
    kernel = getattr(gluon_kernels if explicit else triton_kernels, request["kernel"])
    constants = {
        n: getattr(triton.language, v[3:]) if str(v).startswith("tl.") else v for n, v in request["constants"].items()
    }
    return write(build(kernel, request["types"], constants, request["chip"], request["options"]), request["out"])


if __name__ == "__main__":
    serve(answer)
