"""Compiles kernels of `timing_kernels.py`: one request (JSON) per line of standard input, one answer per line of output.

A request is {kernel, chip, dtype, types, constants, options, out}; {module} if the kernel is of another file, and, for a Gluon product,
{product}: what `layouts` makes layouts of. types: of the run-time arguments by name, `T` standing for dtype. The code object
goes to the file `out`; the answer is {lds, threads, kernel, triton} or {error}. Runs in Triton's Python.
"""

from __future__ import annotations

import importlib
from typing import Any

from compile_child import serve
from triton.experimental.gluon import language as gl
from triton_build import build, write

ELEMENTS = {"fp16": gl.float16, "bf16": gl.bfloat16}


def linear_of(shared: Any, shape: list[int], warps: int) -> Any:
    """The layout of a load whose lanes write a padded LDS buffer in order: 8 elements of a lane, then lanes, then waves."""
    bases = [list(b) for b in shared.offset_bases]
    waves = warps.bit_length() - 1
    register, lane, warp, rest = bases[:3], bases[3:9], bases[9 : 9 + waves], bases[9 + waves :]
    return gl.DistributedLinearLayout(register + rest, lane, warp, [], shape)


def layouts(spec: dict[str, Any], dtype: str, warps: int) -> dict[str, Any]:
    """All layouts of a product from {tile: [m, n, k], waves: [m, n], instr: [m, n, k], version, lds: padded | plain |
    swizzle with swizzle: [vec, per phase, phases], slices: [of m, of n], blocked: [...]}."""
    m, n, k = spec["tile"]
    m, n = m // spec.get("slices", [1, 1])[0], n // spec.get("slices", [1, 1])[1]
    mfma = gl.amd.AMDMFMALayout(spec["version"], spec["instr"], True, spec["waves"])
    out: dict[str, Any] = {"MFMA": mfma}
    blocked = gl.BlockedLayout([1, 8], [8, 8], [warps, 1], [1, 0])
    turned = gl.BlockedLayout([8, 1], [8, 8], [1, warps], [0, 1])
    out["GLOBAL_A"], out["GLOBAL_B"] = blocked, turned
    kind = spec.get("lds")
    if kind == "padded":
        for name, index, shape in (("A", 0, [m, k]), ("B", 1, [k, n])):
            dot = gl.DotOperandLayout(index, mfma, 8)
            shared = gl.amd.cdna4.compute_efficient_padded_shared_layout(dot, shape, ELEMENTS[dtype], True)
            if shared is None:
                raise ValueError(f"no padded layout for {shape}")
            out[f"LDS_{name}"] = shared
            out[f"GLOBAL_{name}"] = linear_of(shared, shape, warps)
    elif kind == "swizzle":
        out["LDS_A"] = gl.SwizzledSharedLayout(*spec["swizzle"], [1, 0])
        out["LDS_B"] = gl.SwizzledSharedLayout(*spec["swizzle"], [0, 1])
    return out


def answer(request: dict[str, Any]) -> dict[str, Any]:
    kernel = getattr(importlib.import_module(request.get("module", "timing_kernels")), request["kernel"])
    constants = dict(request["constants"])
    if "product" in request:
        made = layouts(request["product"], request["dtype"], request["options"]["num_warps"])
        m, n, k = request["product"]["tile"]
        made |= {"BM": m, "BN": n, "BK": k}
        constants |= {name: value for name, value in made.items() if name in kernel.arg_names}
    element = request["dtype"]
    types = {name: kind.replace("T", element) + ":16" for name, kind in request["types"].items()}
    return write(build(kernel, types, constants, request["chip"], request["options"]), request["out"])


if __name__ == "__main__":
    serve(answer)
