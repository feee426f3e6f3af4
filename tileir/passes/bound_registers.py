"""Says how many registers a kernel may take, which code generation is held to.

The kernel's attribute `registers` bounds what the code may take of each file: what tiles need (`pressure`), and for addresses and
temporaries what the hungriest GEMM needs. For a wave that has its SIMD to itself it is the whole file, unless so little is needed
that four could share it. What a schedule states (`registers 128`) stays beside it as the attribute `budget`: of both files together no
code takes more, or it is an error (E0863).

    kernel @k(…) grid(…) with(…, registers = [256, 128])
"""

from __future__ import annotations

from dataclasses import replace

from tileir.ir.core import Kernel
from tileir.passes.base import Context, Pass
from tileir.passes.pressure import ACCUMULATION, budget, peak, pinned, wave_count
from tileir.target import Target

# Registers for addresses, masks and temporaries. Of 500 GEMMs of all forms and types with two waves on a SIMD none takes more than
# 111 beside its tiles, half of them at most 24.
RESERVE = 112


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    new = replace(kernel, attrs=dict(kernel.attrs))
    stated = new.attrs.get("registers")
    if isinstance(stated, tuple):
        return new
    if isinstance(stated, int):
        new.attrs["budget"] = stated
    new.attrs["registers"] = _bound(new, ctx.target)
    return new


def _bound(kernel: Kernel, target: Target) -> tuple[int, int]:
    """At most so many registers of the vector and of the accumulation file."""
    waves, most = wave_count(kernel), budget(kernel, target)
    need = peak(kernel)
    granule = target.vgpr_granule
    least = (
        max(need.most_vector + RESERVE, pinned(kernel, "vector")),
        max(need.most_accumulation, pinned(kernel, ACCUMULATION)),
    )
    vector, accumulation = (-(-n // granule) * granule for n in least)
    shares = target.waves_per_simd(waves) > 1 or most <= target.max_arch_vgprs
    if not shares and vector + accumulation > target.registers_per_wave(4):
        # Where paths meet, LLVM may hold a part of the accumulators twice. What no vector register is left for goes there, too.
        over = max(0, vector - target.max_arch_vgprs)
        return target.max_arch_vgprs, target.max_acc_vgprs if accumulation else over
    return min(vector, most), min(accumulation, most)


PASS = Pass(
    "bound-registers",
    _run,
    requires=frozenset({"laid_out"}),
    summary="bounds the registers of both files",
)
