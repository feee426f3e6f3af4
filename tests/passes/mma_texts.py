"""Kernels with matrix products for the tests of layout assignment, and what they need to look at."""

from __future__ import annotations

from tileir.frontend import parse
from tileir.ir.core import AttrValue, Kernel, Module, Op
from tileir.ir.diagnostics import Diagnostic, Log
from tileir.passes.manager import run_pipeline


def gemm(
    m: int, n: int, k: int, elem: str = "bf16", out: str = "", store: str = "", head: str = "", attrs: str = ""
) -> str:
    """C = A · Bᵀ with a tile of m x n x k; `store` is what is stored (of %acc), `attrs` those of the `mma`."""
    out = out or elem
    acc = {"i8": "i32", "f64": "f64"}.get(elem, "f32")
    return f"""tileir 1
kernel @k(%A: global<{elem}[M, K]>, %B: global<{elem}[N, K]>, %C: global<{out}[M, N]>) grid(cdiv(M, {m}), cdiv(N, {n})) {head}{{
  %i, %j = program_id()
  %zero = fill(0) : tile<{acc}[{m}, {n}]>
  %acc = for %k = 0 to K step {k} carry(%c = %zero) {{
    %a = load(%A[%i * {m} +: {m}, %k +: {k}])
    %b = load(%B[%j * {n} +: {n}, %k +: {k}])
    yield mma{attrs}(%a, transpose(%b), %c)
  }}
  store({store or f"convert<{out}>(%acc)"}, %C[%i * {m} +: {m}, %j * {n} +: {n}])
}}
"""


CHAIN = """tileir 1
kernel @k(%Q: global<T[NQ, {d}]>, %K: global<T[NK, {d}]>, %V: global<T[NK, {d}]>, %O: global<f32[NQ, {d}]>)
    grid(cdiv(NQ, {m})) {{
  %t = program_id()
  %q = load(%Q[%t * {m} +: {m}, 0 +: {d}])
  %zero = fill(0.0) : tile<f32[{m}, {d}]>
  %o = for %j = 0 to NK step {n} carry(%oi = %zero) {{
    %k = load(%K[%j +: {n}, 0 +: {d}])
    %v = load(%V[%j +: {n}, 0 +: {d}])
    %s = mma(%q, transpose(%k))
    yield mma(convert<T>(%s), %v, %oi)
  }}
  store(%o, %O[%t * {m} +: {m}, 0 +: {d}])
}}
"""

# The same, written for the transposed tiles: Sᵀ = K·Qᵀ and Oᵀ = Vᵀ·Sᵀ.
CHAIN_TRANSPOSED = """tileir 1
kernel @k(%Q: global<T[NQ, {d}]>, %K: global<T[NK, {d}]>, %V: global<T[NK, {d}]>, %O: global<f32[NQ, {d}]>)
    grid(cdiv(NQ, {m})) {{
  %t = program_id()
  %q = load(%Q[%t * {m} +: {m}, 0 +: {d}])
  %zero = fill(0.0) : tile<f32[{d}, {m}]>
  %o = for %j = 0 to NK step {n} carry(%oi = %zero) {{
    %k = load(%K[%j +: {n}, 0 +: {d}])
    %v = load(%V[%j +: {n}, 0 +: {d}])
    %s = mma(%k, transpose(%q))
    yield mma(transpose(%v), convert<T>(%s), %oi)
  }}
  store(transpose(%o), %O[%t * {m} +: {m}, 0 +: {d}])
}}
"""


def chain(form: str, m: int, n: int, d: int, elem: str = "bf16") -> str:
    """Two chained products of tiles m x n over a depth d."""
    return form.format(m=m, n=n, d=d).replace("<T[", f"<{elem}[").replace("<T>", f"<{elem}>")


def assigned(text: str, chip: str, stop: str = "assign-layouts") -> tuple[Kernel, list[Diagnostic]]:
    """The kernel after a pass, and the remarks R0804."""
    log = Log()
    kernel = run_pipeline(parse(text, "k.tile"), "", chip, stop_after=stop, log=log).kernel
    return kernel, [d for d in log.diagnostics if d.code == "R0804"]


def products(kernel: Kernel) -> list[Op]:
    """The products of the version for aligned views, in program order."""
    found = [op for op in kernel.walk() if op.name == "mma"]
    return found[: len(found) // 2] if any(op.name == "accessible" for op in kernel.walk()) else found


def force(module: Module, *attrs: dict[str, AttrValue], waves: int = 0) -> Module:
    """The module with attributes written onto the products of its only kernel, as if the text stated them."""
    (kernel,) = module.kernels
    for op, more in zip((o for o in kernel.walk() if o.name == "mma"), attrs, strict=True):
        op.attrs.update(more)
    if waves:
        kernel.attrs["waves"] = waves
    return module
