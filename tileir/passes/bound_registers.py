"""Says how many registers a kernel may take, which code generation is held to.

The kernel's attribute `registers` bounds what the code may take of each file: what tiles need (`pressure`), and for addresses and
temporaries what the hungriest GEMM needs. For a wave that has its SIMD to itself it is the whole file, unless so little is needed
that four could share it.

    kernel @k(…) grid(…) with(…, registers = [256, 128])
"""

from __future__ import annotations

from tileir.ir.core import Kernel
from tileir.ir.rewriter import rewrite
from tileir.passes.base import Context, Pass
from tileir.passes.pressure import peak
from tileir.target import Target

# Registers for addresses, masks and temporaries. Of 500 GEMMs of all forms and types with two waves on a SIMD none takes more than
# 111 beside its tiles, half of them at most 24.
RESERVE = 112


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    waves = kernel.attrs["waves"]
    assert isinstance(waves, int)
    new = rewrite(kernel, lambda rw, op: False)
    stated = new.attrs.get("registers")
    if isinstance(stated, int):
        _check_budget(stated, new, ctx)
    new.attrs["registers"] = stated if isinstance(stated, tuple) else _bound(new, ctx.target, waves)
    return new


def _check_budget(budget: int, kernel: Kernel, ctx: Context) -> None:
    """A budget that is what the waves have anyway is kept by the hardware; another one is not held to yet."""
    waves = kernel.attrs["waves"]
    assert isinstance(waves, int)
    natural = ctx.target.registers_per_wave(ctx.target.waves_per_simd(waves))
    if budget == natural:
        return
    loc = next((d.loc for d in ctx.directives(kernel) if d.kind == "registers"), kernel.loc)
    text = f"'registers {budget}' is not held to: {waves} waves have {natural} registers each"
    ctx.unhonoured.append(f"registers {budget}")
    ctx.log.warning("W0604", text, loc, legal=f"registers {natural}, or no budget")


def _bound(kernel: Kernel, target: Target, waves: int) -> tuple[int, int]:
    """At most so many registers of the vector and of the accumulation file."""
    per_simd = target.waves_per_simd(waves)
    need = peak(kernel)
    granule = target.vgpr_granule
    vector, accumulation = (-(-n // granule) * granule for n in (need.most_vector + RESERVE, need.most_accumulation))
    if per_simd == 1 and vector + accumulation > target.registers_per_wave(4):
        # Where paths meet, LLVM may hold a part of the accumulators twice. What no vector register is left for goes there, too.
        over = max(0, vector - target.max_arch_vgprs)
        return target.max_arch_vgprs, target.max_acc_vgprs if accumulation else over
    return min(vector, target.registers_per_wave(per_simd)), accumulation


PASS = Pass(
    "bound-registers",
    _run,
    requires=frozenset({"laid_out"}),
    summary="bounds the registers of both files",
)
