"""Binds a kernel to a chip and to the schedule that applies: directives become attributes of ops and of the kernel.

    kernel @gemm(…) … {
      …
      %a = load(%A[%i +: 256, %k +: 64]) : tile<bf16[256, 64]>
      %d = mma(%a, %bt, %c) : tile<f32[256, 256]>

with `waves %acc 2 x 4`, `mma %d 16x16x32`, `stage %a, %b in shared direct` becomes

    kernel @gemm(…) … with(target = gfx950, schedule = gemm_mi355, waves = 8) {
      …
      %a = load<stage = direct>(%A[%i +: 256, %k +: 64]) : tile<bf16[256, 64]>
      %d = mma<instr = [16, 16, 32], waves = [2, 4]>(%a, %bt, %c) : tile<f32[256, 256]>

What the text already says is kept; a directive that contradicts it is an error at the directive. Afterwards no pass looks
at schedules. What the chip cannot do – element types, matrix shapes, sizes of workgroups – is rejected here, at its line.
"""

from __future__ import annotations

from tileir.ir import reports
from tileir.ir.core import AttrValue, Kernel, Op
from tileir.ir.diagnostics import CompileError, Diagnostic
from tileir.ir.kernel_attrs import check_kernel_attrs
from tileir.ir.rewriter import Rewriter, Rule, rewrite
from tileir.passes.base import Context, Pass
from tileir.passes.directives import Decisions, apply_schedule
from tileir.passes.legality import (
    check_copies,
    check_kernel,
    check_layouts,
    check_mma,
    check_workgroup,
    laid_out_values,
)
from tileir.passes.scaled_products import as_products


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    check_kernel_attrs(kernel)
    found: list[Diagnostic] = []
    kernel = as_products(kernel)
    for check in (check_kernel, check_mma, check_copies):
        found += check(kernel, ctx.target)
    decisions = apply_schedule(kernel, ctx, found)
    new = rewrite(kernel, _attach(decisions))
    if any(op.name in reports.OPS for op in new.walk()):
        new = rewrite(new, _locate(len(kernel.grid)))
    new.attrs = {"target": ctx.target.name, **kernel.attrs, **decisions.kernel}
    stated = [v.tile.layout.num_waves for v, _ in laid_out_values(new) if v.tile.layout is not None]
    if stated and "waves" not in new.attrs:
        new.attrs["waves"] = stated[0]
    found += check_workgroup(new, ctx.target, decisions.places)
    found += check_layouts(new, ctx.target)
    if found:
        raise CompileError(found)
    return new


def _attach(decisions: Decisions) -> Rule:
    def rule(rw: Rewriter, op: Op) -> bool:
        extra = decisions.ops.get(op)
        if not extra:
            return False
        attrs: dict[str, AttrValue] = {**op.attrs, **extra}
        rw.copy(op, attrs=attrs)
        return True

    return rule


def _locate(rank: int) -> Rule:
    """Hands `print` and `assert` the position in the grid, before the order of workgroups changes what the hardware says."""

    def rule(rw: Rewriter, op: Op) -> bool:
        if op.name not in reports.OPS or op.attrs.get("ids"):
            return False
        ids = rw.op("program_id", num_results=rank, hint="at", loc=op.loc).results
        operands = [*(rw.use(v) for v in op.operands), *ids]
        rw.op(op.name, operands, {**op.attrs, "ids": rank}, loc=op.loc, operand_locs=op.operand_locs)
        return True

    return rule


PASS = Pass(
    "specialise",
    _run,
    establishes=frozenset({"bound"}),
    summary="binds the kernel to its chip and attaches the directives of the schedule",
)
