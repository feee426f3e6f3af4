"""Every pattern, depth and way into LDS of a loop of products, on every type: what each is to give, and the check of it.

A case is a GEMM (with scales of blocks for `mx` types) with a schedule that states all. It is right for every trip count from 0 to 9 and for
ragged sizes, with all checks of the simulator, or it is the located error that it deserves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tests.kernels.harness import CHIPS
from tests.passes.test_pipeline_loops import checked_device, weakened
from tileir import kernels
from tileir.frontend import parse
from tileir.ir.core import Kernel
from tileir.ir.diagnostics import CompileError
from tileir.ir.types import ELEMS
from tileir.lowering.amdgpu.compile import Compiled, compile_kernel
from tileir.passes.check_sync import check_synchronised
from tileir.runtime import launch
from tileir.runtime.device import DeviceError

PATTERNS = ("plain", "interleave", "ping_pong")
DEPTHS = (1, 2, 3, 4)
WAYS = ("direct", "via_registers")
PLAIN = {"bf16": "bf16", "f16": "f16", "i8": "i8", "f32": "f32"}
TYPES = {
    "gfx942": {**PLAIN, "fp8": "f8E4M3FNUZ"},
    "gfx950": {**PLAIN, "fp8": "f8E4M3FN", "mxfp8": "f8E4M3FN", "mxfp6": "f6E2M3FN", "mxfp4": "f4E2M1FN"},
}
TRIPS = range(10)
BLOCK = 32  # values of k with one scale (OCP MX 1.0)

GEMM = """tileir 1
kernel @gemm(%A: global<{t}[M, K], strides = [LDA, 1]>, %B: global<{t}[N, K], strides = [LDB, 1]>, %C: global<{c}[M, N]>)
    grid(cdiv(M, {bm}), cdiv(N, {bn})) {{
  %i, %j = program_id()
  %zero = fill({zero}) : tile<{c}[{bm}, {bn}]>
  %acc = for %k = 0 to K step {bk} carry(%c = %zero) {{
    %a = load(%A[%i * {bm} +: {bm}, %k +: {bk}])
    %b = load(%B[%j * {bn} +: {bn}, %k +: {bk}])
    %d = mma(%a, transpose(%b), %c)
    yield %d
  }}
  store(%acc, %C[%i * {bm} +: {bm}, %j * {bn} +: {bn}])
}}
"""


@dataclass(frozen=True)
class Case:
    """One loop."""

    chip: str
    pattern: str
    depth: int
    way: str
    type: str

    def __str__(self) -> str:
        return f"{self.chip} {self.type} {self.pattern} depth {self.depth} {self.way}"

    @property
    def scaled(self) -> bool:
        return self.type.startswith("mx")

    @property
    def element(self) -> str:
        return TYPES[self.chip][self.type]

    @property
    def tile(self) -> tuple[int, int, int]:
        """Rows, columns and values of k: the smallest with several slices for each wave."""
        side = 128 if self.pattern == "ping_pong" else 64
        bits = ELEMS[self.element].bits
        return side, side, 256 if bits < 8 else 128 if self.scaled else 512 // bits

    def text(self) -> str:
        (bm, bn, bk), name = self.tile, "gemm_mx" if self.scaled else "gemm"
        integers = self.type == "i8"
        gemm = GEMM.format(
            t=self.element, c="i32" if integers else "f32", zero="0" if integers else "0.0", bm=bm, bn=bn, bk=bk
        )
        waves = "2 x 4" if self.pattern == "ping_pong" else "2 x 2"
        stage = f"  stage %a, %b in shared depth {self.depth} {self.way}\n  loop %k pattern {self.pattern}\n"
        head = kernels.source("gemm_mx") if self.scaled else gemm
        return f"{head}schedule @s of @{name} for {self.chip} {{\n  waves %acc {waves}\n{stage}}}\n"

    def compile(self) -> Compiled:
        bm, bn, bk = self.tile
        params = {"BM": bm, "BN": bn, "BK": bk, "T": self.element, "O": "f32"} if self.scaled else None
        name = "gemm_mx" if self.scaled else "gemm"
        return compile_kernel(parse(self.text(), "loop.tile", params, kernel=name), name, self.chip)


def deserves(case: Case) -> str:
    """The code of the error that a case must end in; "" if it must compile."""
    if ELEMS[case.element].bits == 6:
        return "E0602"  # operands of 6 bits do not pass through LDS
    if case.chip == "gfx942" and case.way == "direct":
        return "E0706"  # no direct copies of 16 bytes
    if case.depth == 1 and case.pattern != "plain" and case.way == "direct":
        return "E0606"  # the order needs two buffers
    if case.scaled and case.pattern == "ping_pong":
        return "E0607"
    return ""


def cases() -> Iterator[Case]:
    for chip in CHIPS:
        for type_ in TYPES[chip]:
            for pattern in PATTERNS:
                for depth in DEPTHS:
                    for way in WAYS:
                        yield Case(chip, pattern, depth, way, type_)


def check(case: Case) -> None:
    """Raises AssertionError, with the case in its text, unless it compiles and is right, or ends in what it deserves."""
    wanted = deserves(case)
    try:
        compiled = case.compile()
    except CompileError as e:
        (d, *_) = e.diagnostics
        assert d.code == wanted and d.loc.line and d.legal, f"{case}: {d.code} {d.message}, not {wanted or 'code'}"
        return
    assert not wanted, f"{case}: compiles, and should end in {wanted}"
    stats = compiled.stats
    spilled = [stats[k] for k in ("vgpr_spills", "sgpr_spills", "scratch_bytes")]
    assert not any(spilled) and not stats["deviations"], f"{case}: {spilled} {stats['deviations']}"
    assert compiled.final is not None
    _check_waits(case, compiled.final)
    bm, bn, bk = case.tile
    step = BLOCK if case.scaled else 8
    for k in (*(bk * trips for trips in TRIPS), step, bk - step, bk + step, 3 * bk + 2 * step, 5 * bk - step):
        _launch(case, compiled, bm - 6, bn - 4, k)
    _launch(case, compiled, bm + 6, bn + 8, 4 * bk + step)
    if not case.scaled:
        _launch(case, compiled, 5, 3, 2 * bk + 1)  # rows that lie at no multiple of an access


def _check_waits(case: Case, kernel: Kernel) -> None:
    """The waits of loops of matrix instructions are needed, each as strict as it is, and from three stages on none waits for all copies."""
    for loop in kernel.walk():
        if loop.name != "for" or not any(op.name == "mfma" for op in loop.walk()):
            continue
        for op in loop.walk():
            for name in op.attrs if op.name == "wait" else ():
                assert case.depth < 3 or op.attrs.get("vm") != 0, f"{case}: {op} drains"
                try:
                    check_synchronised(weakened(kernel, op, name))
                except CompileError:
                    continue
                raise AssertionError(f"{case}: {op} may be weaker in {name}")


def _launch(case: Case, compiled: Compiled, m: int, n: int, k: int) -> None:
    """A·Bᵀ on small integers, exactly; every check of the simulator is silent."""
    rng = np.random.default_rng(1000 * k + m)
    elem, integers = ELEMS[case.element], case.type == "i8"
    a, b = (rng.integers(-3, 4, (rows, k)).astype(elem.np) for rows in (m, n))
    c = np.full((m, n), 7, np.int32 if integers else np.float32)
    arrays = {"A": a, "B": b, "C": c}
    x, y = (v.astype(np.float64) for v in (a, b))
    if case.scaled:
        exponents = [rng.integers(-2, 3, (rows, -(-k // BLOCK))) for rows in (m, n)]
        scales = ELEMS["f8E8M0FNU"].np
        arrays |= {
            name: (127 + e).astype(np.uint8).view(scales) for name, e in zip(("SA", "SB"), exponents, strict=True)
        }
        x, y = (v * (2.0**e).repeat(BLOCK, 1)[:, :k] for v, e in zip((x, y), exponents, strict=True))
    device = checked_device(case.chip)
    try:
        launch(compiled, arrays, device)
    except DeviceError as fault:
        raise AssertionError(f"{case}: {m} x {n} x {k}: {fault}") from fault
    assert (c == x @ y.T).all(), f"{case}: wrong for {m} x {n} x {k}"
    assert device.statistics is not None and not list(device.statistics.findings), f"{case}: {m} x {n} x {k}"
