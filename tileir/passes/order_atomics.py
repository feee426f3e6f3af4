"""Makes the orderings of atomic updates explicit.

    atomic_add<scope = device, ordering = acq_rel>(%one, %C[%i +: 1])

becomes, in a workgroup of several waves,

    wait<vm = 0>()
    barrier()
    fence<release>()
    atomic_add(%one, %C[%i +: 1])
    fence<acquire>()
    barrier()

The barrier before makes the fence of the wave that updates cover what any wave of the workgroup has written; the one behind
keeps all waves from reading before caches have dropped what they hold from before the update.
"""

from __future__ import annotations

from tileir.ir.core import Kernel, Op
from tileir.ir.ops.atomic import is_atomic
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.passes.base import Context, Pass


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    if not any(is_atomic(op) for op in kernel.walk()):
        return kernel
    waves = kernel.attrs.get("waves")

    def rule(rw: Rewriter, op: Op) -> bool:
        ordering = op.attrs.get("ordering", "relaxed")
        if not is_atomic(op) or ordering == "relaxed":
            return False
        rw.loc = op.loc
        scope = {"scope": op.attrs["scope"]} if "scope" in op.attrs else {}
        if ordering in ("release", "acq_rel"):
            if waves != 1:
                rw.op("wait", attrs={"vm": 0})
                rw.op("barrier")
            rw.op("fence", attrs={"ordering": "release", **scope})
        rw.copy(op, attrs={k: v for k, v in op.attrs.items() if k != "ordering"})
        if ordering in ("acquire", "acq_rel"):
            rw.op("fence", attrs={"ordering": "acquire", **scope})
            if waves != 1:
                rw.op("barrier")
        return True

    return rewrite(kernel, rule)


PASS = Pass("order-atomics", _run, summary="makes fences and barriers of the orderings of atomic updates")
