"""Which ops the compiler can compile today, found by trying: small kernels go through the pipeline to MLIR text.

For every op and element type there is a probe, a kernel in which the op cannot be removed. An element type on which the
op type-checks but whose probe is rejected is reported as not compiled. (The nightly tests also generate machine code.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tileir.frontend import parse, parse_file
from tileir.ir.core import Module
from tileir.ir.diagnostics import CompileError
from tileir.ir.ops.atomic import UPDATES
from tileir.ir.registry import OpDef, all_ops
from tileir.ir.types import ELEMS
from tileir.lowering.amdgpu.emit.kernel import emit_module
from tileir.passes.manager import run_pipeline

ROOT = Path(__file__).resolve().parent.parent
CHIPS = ("gfx942", "gfx950")
# Floats of 6 and 4 bits only move, convert and multiply: the reference does not list them op by op.
ALL_ELEMS = tuple(e.name for e in ELEMS.values() if e.is_bool or e.bits >= 8)
VIEW_ELEMS = tuple(e for e in ALL_ELEMS if e != "i1")  # an i1 has no place in memory
CONVERT_ELEMS = tuple(ELEMS)
KERNELS = [
    *(ROOT / "examples" / f"{name}.tile" for name in ("attention", "gemm", "layernorm")),
    *(ROOT / "tileir" / "kernels" / f"{name}.tile" for name in ("gemm", "softmax", "transpose", "vector_add")),
]

_SHAPED = {
    "transpose": "%r = transpose(%t)\n  store(%r, %Z[%i * 32 +: 32, 0 +: 16])",
    "slice": "%r = slice<[4, 0], [8, 32]>(%t)\n  store(%r, %Z[%i * 16 +: 8, 0 +: 32])",
    "insert": "%r = insert<[4, 0]>(%t, load(%X[0 +: 8, 0 +: 32]))\n  store(%r, %Z[%i * 16 +: 16, 0 +: 32])",
    "concat": "%r = concat(%t, load(%X[0 +: 16, 0 +: 16]), axis = 1)\n  store(%r, %Z[%i * 16 +: 16, 0 +: 48])",
    "reshape": "%r = reshape<[32, 16]>(%t)\n  store(%r, %Z[%i * 32 +: 32, 0 +: 16])",
    "broadcast": "%r = broadcast<[16, 32]>(load(%X[%i * 16 +: 16, 0 +: 1]))\n  store(%r, %Z[%i * 16 +: 16, 0 +: 32])",
    "fill": "%r = fill(load(%X[%i, 0])) : tile<T[16, 32]>\n  store(%r, %Z[%i * 16 +: 16, 0 +: 32])",
    "load": "store(%t, %Z[%i * 16 +: 16, 0 +: 32])",
    "store": "store(%t, %Z[%i * 16 +: 16, 0 +: 32])",
    **{
        name: f"%r = {name}(%t, %Z[%i * 16 +: 16, 0 +: 32])\n  store(%r, %Z[%i * 16 +: 16, 0 +: 32])"
        for name in UPDATES
    },
    "atomic_cas": "%r = atomic_cas(%t, %t, %Z[%i * 16 +: 16, 0 +: 32])\n  store(%r, %Z[%i * 16 +: 16, 0 +: 32])",
    "reduce_add": "%r = reduce_add(%t, axis = 1)\n  store(%r, %Z[%i * 16 +: 16, 0 +: 1])",
    "reduce_max": "%r = reduce_max(%t, axis = 1)\n  store(%r, %Z[%i * 16 +: 16, 0 +: 1])",
    "reduce_min": "%r = reduce_min(%t, axis = 1)\n  store(%r, %Z[%i * 16 +: 16, 0 +: 1])",
    "reduce_mul": "%r = reduce_mul(%t, axis = 1)\n  store(%r, %Z[%i * 16 +: 16, 0 +: 1])",
    **{
        name: f"%r = {name}(%t, axis = 1)\n  store(%r, %Z[%i * 16 +: 16, 0 +: 1])"
        for name in ("reduce_and", "reduce_or", "reduce_xor")
    },
    **{
        name: f"%r = {name}(%t, axis = 1)\n  store(%r, %Z[%i * 16 +: 16, 0 +: 32])"
        for name in ("scan_add", "scan_mul", "scan_max", "scan_min")
    },
    **{
        name: f"%p = {name}(%t, axis = 1)\n  %r = where(%p == 3, load(%X[%i * 16 +: 16, 0 +: 1]), load(%X[%i * 16 +: 16, 1 +: 1]))\n"
        "  store(%r, %Z[%i * 16 +: 16, 0 +: 1])"
        for name in ("reduce_argmax", "reduce_argmin")
    },
    **{
        name: f"%p = {name}(%t == %t, axis = 1)\n  %r = where(%p, load(%X[%i * 16 +: 16, 0 +: 1]), load(%X[%i * 16 +: 16, 1 +: 1]))\n"
        "  store(%r, %Z[%i * 16 +: 16, 0 +: 1])"
        for name in ("any", "all")
    },
    "for": "%r = for %k = 0 to N step 1 carry(%x = %t) {\n    yield where(%k == 3, load(%X[%k +: 16, 0 +: 32]), %x)\n  }\n"
    "  store(%r, %Z[%i * 16 +: 16, 0 +: 32])",
    "while": "%r, %k = while carry(%x = %t, %n = N) {\n    yield %n > 0\n  } do carry(%y = %x, %l = %n) {\n"
    "    yield where(%l == 3, load(%X[%l +: 16, 0 +: 32]), %y), %l - 1\n  }\n  store(%r, %Z[%i * 16 +: 16, %k +: 32])",
    "if": "%r = if %i > 3 carry(%x = %t) {\n    yield load(%X[0 +: 16, 0 +: 32])\n  }\n"
    "  store(%r, %Z[%i * 16 +: 16, 0 +: 32])",
    "guard": "%need = iota<[16, 1]>() < %i\n  %r = guard %need carry(%x = %t) {\n    yield load(%X[0 +: 16, 0 +: 32])\n  }\n"
    "  store(%r, %Z[%i * 16 +: 16, 0 +: 32])",
}
_SHAPED_FRAME = """tileir 1

kernel @probe<T: type = f32>(%X: global<T[M, N]>, %Z: global<T[M, L]>) grid(cdiv(M, 16)) {{
  %i = program_id()
  %t = load(%X[%i * 16 +: 16, 0 +: 32])
  {body}
}}
"""
# Ops whose operands are always the same: whole kernels.
_FIXED = {
    "program_id": "%i, %j = program_id()\n  store(%i + %j, %Z[%i])",
    "num_programs": "%i, %j = program_id()\n  %n, %m = num_programs()\n  store(%n * %m, %Z[%i + %j])",
    "dim": "store(N, %Z[0])",
    "assume": "assume(mod(N, 16) == 0)\n  store(N, %Z[0])",
    "constant": "store(7, %Z[0])",
    "table": "store(table<i32, [3, -1, 4, 1, 5]>(), %Z[0 +: 5])",
    "prefetch": "prefetch(%Z[0 +: 64])\n  store(7, %Z[0])",
    "fence": "fence<release>()\n  store(7, %Z[0])",
    "iota": "store(iota<[64]>(), %Z[0 +: 64])",
    "philox_bits": "store(philox_bits(7, convert<i64>(iota<[64]>())), %Z[0 +: 64])",
    "philox_uniform": "store(convert<i32>(philox_uniform(7, convert<i64>(iota<[64]>())) * 100.0), %Z[0 +: 64])",
    "yield": "%r = if N > 3 carry(%x = 1) {\n    yield 2\n  }\n  store(%r, %Z[0])",
}
_FIXED_FRAME = "tileir 1\n\nkernel @probe(%Z: global<i32[N]>) grid(N, 2) {{\n  {body}\n}}\n"

_MMA_FRAME = """tileir 1

kernel @probe<T: type = f32, S: type = f32>(%A: global<T[M, K]>, %B: global<T[N, K]>, %C: global<S[M, N]>)
    grid(cdiv(M, 64), cdiv(N, 64)) {
  %i, %j = program_id()
  %zero = fill(0) : tile<S[64, 64]>
  %c = for %k = 0 to K step 64 carry(%x = %zero) {
    yield mma(load(%A[%i * 64 +: 64, %k +: 64]), transpose(load(%B[%j * 64 +: 64, %k +: 64])), %x)
  }
  store(%c, %C[%i * 64 +: 64, %j * 64 +: 64])
}
"""
_GATHER = """tileir 1

kernel @probe(%X: global<f32[M, N]>, %I: global<i32[L]>, %Z: global<f32[L, N]>) grid(cdiv(L, 16)) {
  %i = program_id()
  %rows = load(%I[%i * 16 +: 16])
  store(load(%X[%rows, 0 +: 32]), %Z[%i * 16 +: 16, 0 +: 32])
}
"""
_SCATTER = """tileir 1

kernel @probe(%X: global<f32[L, N]>, %I: global<i32[L]>, %Z: global<f32[M, N]>) grid(cdiv(L, 16)) {
  %i = program_id()
  %rows = load(%I[%i * 16 +: 16])
  store(load(%X[%i * 16 +: 16, 0 +: 32]), %Z[%rows, 0 +: 32])
}
"""
# A conversion that only renames registers; `lower-conversions` replaces all others.
_RENAMES = """tileir 1

kernel @probe(%X: global<f32[N, 256]>, %Z: global<f32[N, 256]>) grid(N) with(waves = 1) {
  %i = program_id()
  %x = load<bytes = 4, via = global>(%X[%i, 0 +: 256]) : tile<f32[256], linear(reg = [[1], [2]], lane = [[4], [8], [16], [32], [64], [128]], wave = [])>
  %y = convert_layout(%x) : tile<f32[256], linear(reg = [[2], [1]], lane = [[4], [8], [16], [32], [64], [128]], wave = [])>
  store<bytes = 4, via = global>(%y, %Z[%i, 0 +: 256])
}
"""

# Exchanges inside waves, as `lower-conversions` makes them.
_EXCHANGES = """tileir 1

kernel @probe<T: type = f32>(%X: global<T[128]>, %Z: global<T[128]>) grid(1) with(waves = 1) {{
  %i = constant<0>() : i32
  %x = load<bytes = 1, via = global>(%X[%i +: 128]) : tile<T[128], linear(reg = [[64], [0]], lane = [[1], [2], [4], [8], [16], [32]], wave = [])>
  %y = {op}(%x) : tile<T[128], linear({result}, wave = [])>
  store<bytes = 1, via = global>(%y, %Z[%i +: 128])
}}
"""
_EXCHANGED = {
    "swap_lanes": (
        "swap_lanes<register = 1, lane = 5, via = ds_bpermute>",
        "reg = [[64], [32]], lane = [[1], [2], [4], [8], [16], [0]]",
    ),
    "shuffle_lanes": (
        "shuffle_lanes<via = ds_bpermute>",
        "reg = [[64], [0]], lane = [[2], [1], [4], [8], [16], [32]]",
    ),
    "select_registers": ("select_registers", "reg = [[0], [64]], lane = [[65], [2], [4], [8], [16], [32]]"),
}


@dataclass(frozen=True)
class Support:
    """For one op: element types on which it type-checks, and by chip those that compile. Ops that take no element type of
    their own have the single entry ""."""

    legal: tuple[str, ...]
    compiled: dict[str, tuple[str, ...]]

    @property
    def everywhere(self) -> tuple[str, ...]:
        """Element types that compile on every chip."""
        return tuple(e for e in self.legal if all(e in done for done in self.compiled.values()))


def compiles(text: str, chip: str, params: dict[str, str] | None = None) -> bool | None:
    """Whether a kernel reaches MLIR text; None if it does not even type-check."""
    try:
        module = parse(text, "probe.tile", params)
    except CompileError:
        return None
    return lowers(module, chip)


CRASHES: list[str] = []
"""Probes on which the compiler raised something else than a diagnostic, as text. A test wants this empty."""


def lowers(module: Module, chip: str) -> bool:
    """Whether a checked module reaches MLIR text."""
    try:
        result = run_pipeline(module, "", chip)
        emit_module(result.kernel, result.context.target)
    except CompileError:
        return False
    except Exception as e:
        CRASHES.append(f"{chip}: {type(e).__name__}: {e}\n{next(iter(module.sources.values()))}")
        return False
    return True


def probe_text(definition: OpDef, elem: str) -> str:
    """The probe of an elementwise op on one element type."""
    inputs = [f"%x{i}" for i in range(len(definition.operands))]
    loads = {x: f"load(%X{x[2:]}[%i * 256 +: 256])" for x in inputs}
    storage = elem
    if elem == "i1":
        storage = "i32"
        loads = {x: f"{value} > 0" for x, value in loads.items()}
    if definition.name == "where":
        loads["%x0"] = "iota<[256]>() > %i"
    call = f"{definition.name}({', '.join(inputs)})"
    if definition.name == "bitcast":
        bits = ELEMS[elem].bits
        twin = next(e.name for e in ELEMS.values() if e.bits == bits and e.is_int != ELEMS[elem].is_int)
        call = f"bitcast<{twin}>(%x0)"
    lines = [f"  {x} = {value}" for x, value in loads.items()]
    views = ", ".join(f"%X{x[2:]}: global<{storage}[N]>" for x in inputs)
    result, out = call, storage
    if definition.name == "bitcast":
        out = twin  # pyright: ignore[reportPossiblyUnboundVariable]
    elif definition.category == "elementwise" and (
        elem == "i1" or definition.name in ("eq", "ne", "lt", "le", "gt", "ge")
    ):
        result, out = f"where({call}, 1, 0)", "i32"
    return (
        f"tileir 1\n\nkernel @probe({views}, %Z: global<{out}[N]>) grid(cdiv(N, 256)) {{\n  %i = program_id()\n"
        + "\n".join(lines)
        + f"\n  store({result}, %Z[%i * 256 +: 256])\n}}\n"
    )


def probes(definition: OpDef) -> Iterable[tuple[str, str, dict[str, str]]]:
    """(element type, text, parameters) of all probes of an op; none for wave-level ops, which passes make."""
    name = definition.name
    if name == "convert_layout":
        yield "", _RENAMES, {}
    elif name in _EXCHANGED:
        op, result = _EXCHANGED[name]
        for elem in VIEW_ELEMS:
            text = _EXCHANGES.format(op=op, result=result).replace("bytes = 1", f"bytes = {ELEMS[elem].bytes}")
            yield elem, text, {"T": elem}
    elif name in _FIXED:
        yield "", _FIXED_FRAME.format(body=_FIXED[name]), {}
    elif name in _SHAPED:
        for elem in VIEW_ELEMS:
            yield elem, _SHAPED_FRAME.format(body=_SHAPED[name]), {"T": elem}
    elif name == "mma":
        for elem in VIEW_ELEMS:
            for acc in ("f32", "f64", "i32"):
                yield elem, _MMA_FRAME, {"T": elem, "S": acc}
    elif definition.elementwise and name != "convert":
        for elem in ALL_ELEMS:
            if name == "bitcast" and (elem == "i1" or not _has_twin(elem)):
                continue
            yield elem, probe_text(definition, elem), {}


def _has_twin(elem: str) -> bool:
    e = ELEMS[elem]
    return any(o.bits == e.bits and o.is_int != e.is_int and not o.is_bool for o in ELEMS.values())


@cache
def support(definition: OpDef) -> Support | None:
    """What compiles of an op; None for ops without probes."""
    legal: dict[str, None] = {}
    compiled: dict[str, dict[str, None]] = {chip: {} for chip in CHIPS}
    any_probe = False
    for elem, text, params in probes(definition):
        any_probe = True
        try:
            module = parse(text, "probe.tile", params)
        except CompileError:
            continue
        legal.setdefault(elem)
        for chip in CHIPS:
            if elem not in compiled[chip] and lowers(module, chip):
                compiled[chip].setdefault(elem)
    if not any_probe:
        return None
    return Support(tuple(legal), {chip: tuple(done) for chip, done in compiled.items()})


@cache
def conversions() -> dict[tuple[str, str], tuple[str, ...]]:
    """(from, to) → chips on which `convert` compiles."""
    out: dict[tuple[str, str], tuple[str, ...]] = {}
    for source in CONVERT_ELEMS:
        for target in CONVERT_ELEMS:
            text = conversion_probe(source, target)
            out[source, target] = tuple(chip for chip in CHIPS if compiles(text, chip))
    return out


def conversion_probe(source: str, target: str) -> str:
    """A kernel that converts; i1 has no place in memory and comes from a comparison or goes through `where`."""
    value, held = "load(%X[%i * 256 +: 256])", source
    if source == "i1":
        value, held = f"{value} > 0", "i32"
    result, out = f"convert<{target}>({value})", target
    if target == "i1":
        result, out = f"where({result}, 1, 0)", "i32"
    return (
        f"tileir 1\n\nkernel @probe(%X: global<{held}[N]>, %Z: global<{out}[N]>) grid(cdiv(N, 256)) {{\n  %i = program_id()\n"
        f"  store({result}, %Z[%i * 256 +: 256])\n}}\n"
    )


@cache
def special_forms() -> dict[str, tuple[str, ...]]:
    """Forms of accesses besides spans, and chips on which they compile."""
    forms = {"gather": _GATHER, "scatter": _SCATTER}
    return {name: tuple(c for c in CHIPS if compiles(text, c)) for name, text in forms.items()}


@cache
def ops_in_compiled_kernels() -> frozenset[str]:
    """Names of the ops in the final text of our own kernels, after it was lowered."""
    found: set[str] = set()
    for path in KERNELS:
        module = parse_file(path)
        for kernel in module.kernels:
            for chip in CHIPS:
                result = run_pipeline(module, kernel.name, chip)
                emit_module(result.kernel, result.context.target)
                found.update(op.name for op in result.kernel.walk())
    return frozenset(found)


def without_probe() -> list[str]:
    """Ops that no probe covers: those of the wave level, and `convert`, which has a table of its own."""
    return [name for name, d in all_ops().items() if not any(True for _ in probes(d))]
