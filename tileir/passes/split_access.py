"""Chooses how lanes access global memory: wide where it is proved or tested once, else element by element.

A wide access (up to 16 bytes a lane) needs base address, strides and row end to be multiples of its size, and buffer
instructions need the span of a tile to stay below 2 GiB. What the text does not prove is tested once per launch: the
body of the kernel is split into two versions behind a uniform branch.

    %t = load(%A[%i +: 64, %k +: 64]) : tile<bf16[64, 64]>

becomes

    %f = accessible<bytes = 16>(%A[%c0 +: 64, %c0 +: 64]) : i1
    if %f {
      %t = load<bytes = 16, via = buffer>(%A[%i +: 64, %k +: 64]) : tile<bf16[64, 64]>
      ...
    } else {
      %t_0 = load<bytes = 2, via = global>(%A[%i +: 64, %k +: 64]) : tile<bf16[64, 64]>
      ...
    }

Where a load of a product's operand begins is tested as well if it is a number of the launch (`start_tests.py`).

Accesses whose text already states `bytes` and `via` are left alone. Rows that a tile of indices picks may lie any distance apart, and
most atomic updates are branched over anyway, so both versions use global instructions for them; only the width differs. Sums of f32
that nobody reads back go through buffer instructions, which drop what is outside without a branch, and which waits can count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tileir.ir.builder import Builder, Names
from tileir.ir.core import AttrValue, Block, Kernel, Op, Value
from tileir.ir.diagnostics import error
from tileir.ir.ops.atomic import is_atomic
from tileir.ir.ops.memory import picked_dim, tile_dims
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter, all_names
from tileir.ir.types import I32, GlobalType
from tileir.passes.base import Context, Pass
from tileir.passes.facts import Divisibility
from tileir.passes.mfma_choice import SCALES_TOGETHER
from tileir.passes.scaled_products import scale_loads
from tileir.passes.start_tests import emit_tests, operand_loads, start_tests

PAIR = 4  # bytes of two 16-bit floats, which one instruction adds
SIX_BYTES = 12  # of 16 elements of 6 bits: three dwords
SCALE_GROUPS = (
    2  # blocks of k of a matrix instruction, at least, whose scales are in different lanes (CDNA4 ISA, 32x32x64)
)
WIDEST = 16  # bytes of the widest memory access of a lane: four dwords (CDNA3 ISA, buffer_load_dwordx4)


def contiguous_dim(view: GlobalType) -> int | None:
    """The dimension whose stride is certainly 1, or None."""
    if view.strides is None:
        return view.rank - 1
    return next((d for d in reversed(range(view.rank)) if view.strides[d] == 1), None)


def is_open(op: Op) -> bool:
    """Whether the op is an access of global memory whose width is still to be chosen."""
    return (op.name in ("load", "store") or is_atomic(op)) and not op.attrs.get("bytes")


def adds_unseen(op: Op) -> bool:
    """Whether the op adds f32 in memory and nobody sees what was there: a buffer instruction without a result does it, for the whole device."""
    if op.name != "atomic_add" or op.results or op.attrs.get("scope") == "system" or picked_dim(op) is not None:
        return False
    return access(op)[0].elem.name == "f32"


def access(op: Op) -> tuple[GlobalType, list[Value]]:
    """View type and index values of a load or store."""
    at = get(op.name).access_position
    assert at is not None and op.spans is not None
    view = op.operands[at].type
    assert isinstance(view, GlobalType)
    return view, op.operands[at + 1 : at + 1 + len(op.spans)]


def ideal_bytes(op: Op, facts: Divisibility, scale_axis: int | None = None) -> int:
    """Widest access that the spans and start indices allow, whatever the view's address and strides are; 0 where there is one
    version only: for picked rows whose elements do not lie together, and for most atomic updates of other than pairs. Of scales of a
    product, whose axis `scale_axis` counts blocks, a lane needs no more than half of a row together (`SCALE_GROUPS`)."""
    view, indices = access(op)
    assert op.spans is not None
    together, size = view.elem.unit
    d = contiguous_dim(view)
    if adds_unseen(op):
        return size
    if is_atomic(op) and size != PAIR // 2:
        return 0
    single = 0 if is_atomic(op) or picked_dim(op) is not None else size
    if d is None or op.spans[d] is None:
        _check_whole_bytes(op, view, 1)
        return single
    start = facts.of(indices[d])
    run = math.gcd(op.spans[d] or 0, start) if start else op.spans[d] or 0
    run &= -run
    if scale_axis is not None:
        along = tile_dims(op)[scale_axis] == d
        run = min(run // SCALE_GROUPS, SCALES_TOGETHER) if along and run > 1 else 1
    _check_whole_bytes(op, view, run)
    most = PAIR if is_atomic(op) else SIX_BYTES if view.elem.bits == 6 else WIDEST
    width = max(size, min(most, run // together * size))
    return width if width > size and (width == most or view.elem.bits != 6) else single


def _check_whole_bytes(op: Op, view: GlobalType, run: int) -> None:
    """E0867 where an access of elements below a byte may begin or end inside one: rows of views begin at whole bytes."""
    together = view.elem.unit[0]
    if run % together:
        message = f"this access may begin or end between the {together} elements of {view.elem} that share bytes"
        legal = f"starts and extents that are known to be multiples of {together}, as literals or by assume(mod(…, {together}) == 0)"
        raise error("E0867", message, op.loc, legal=legal)


def _open_starts(kernel: Kernel) -> Iterator[tuple[Value, int]]:
    """Where the loads of operands in loops begin, and of what that must be a multiple for them to be as wide as their rows allow."""
    for op in operand_loads(kernel):
        view, indices = access(op)
        d = contiguous_dim(view)
        # Elements below a byte cannot be loaded one by one, where the test fails.
        if d is not None and op.spans is not None and op.spans[d] is not None and view.elem.unit[0] == 1:
            span = op.spans[d] or 1
            yield indices[d], min(WIDEST // view.elem.unit[1], span & -span)


def _tell_narrow_loads(kernel: Kernel, facts: Divisibility, widths: dict[Op, int], ctx: Context) -> None:
    """Remarks on loads in loops that are narrow only because of where they begin: nobody sees it in the text, and it costs most of
    the speed of a product, whose operands then go element by element."""
    inside = {op for loop in kernel.walk() if loop.name in ("for", "while") for op in loop.walk()}
    for op, width in widths.items():
        view, indices = access(op)
        d = contiguous_dim(view)
        if op.name != "load" or op not in inside or d is None or op.spans is None or view.elem.unit[0] > 1:
            continue
        span, size = op.spans[d] or 1, view.elem.unit[1]
        most = min(WIDEST, (span & -span) * size)
        if 0 < width < most and facts.of(indices[d]) * size < most:
            ctx.log.remark(
                "R0816",
                f"this load of %{op.operands[0].name} takes {width} bytes an access, not {most}: nothing says that %{indices[d].name}, "
                f"where it begins, is a multiple of {most // size}; assume(mod(…, {most // size}) == 0) of what it is computed from would",
                op.loc,
            )


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    for op in kernel.walk():
        if (op.name in ("load", "store") or is_atomic(op)) and op.attrs.get("bytes") and not op.attrs.get("via"):
            message = f"this '{op.name}' says how wide accesses are, but not by which instructions"
            raise error("E1018", message, op.loc, legal="via = buffer or via = global beside it, or neither of the two")
    facts = Divisibility(kernel)
    open_ops = [op for op in kernel.walk() if is_open(op)]
    if not open_ops:
        return kernel
    scales = scale_loads(kernel)
    aligned = start_tests(kernel, _open_starts(kernel), facts)
    if aligned:
        facts = Divisibility(kernel, aligned)
    widths = {op: ideal_bytes(op, facts, scales.get(op)) for op in open_ops}
    _tell_narrow_loads(kernel, facts, widths, ctx)
    names = Names(all_names(kernel))
    args = [Value(a.name, a.type, a.loc) for a in kernel.args]
    mapping = dict(zip(kernel.args, args, strict=True))
    body = Block()
    builder = Builder(body, names, kernel.loc)
    zero = builder.constant(0, I32)
    tests: dict[object, Value] = {}
    for op in open_ops:
        if widths[op]:
            at = get(op.name).access_position
            assert at is not None and op.spans is not None
            key = (op.operands[at].name, op.spans, widths[op])
            if key not in tests:
                operands = [mapping[op.operands[at]], *[zero] * len(op.spans)]
                tests[key] = builder.value(
                    "accessible", operands, {"bytes": widths[op]}, spans=op.spans, loc=op.loc, hint="fast"
                )
    if not tests:
        return replace(kernel, args=args, body=_version(kernel, names, mapping, {}, rename=False))
    condition, *others = [*tests.values(), *emit_tests(builder, aligned, mapping)]
    for other in others:
        condition = builder.value("and", [condition, other], hint="fast")
    regions = [
        _version(kernel, names, mapping, widths, rename=False),
        _version(kernel, names, mapping, {}, rename=True),
    ]
    for region in regions:
        region.ops.append(Op("yield", [], loc=kernel.loc))
    builder.op("if", [condition], regions=regions, loc=kernel.loc)
    return replace(kernel, args=args, body=body)


def _version(kernel: Kernel, names: Names, mapping: dict[Value, Value], widths: dict[Op, int], rename: bool) -> Block:
    """A copy of the body in which open accesses have `widths` (none: element by element, global)."""

    def rule(rw: Rewriter, op: Op) -> bool:
        attrs: dict[str, AttrValue] = dict(op.attrs)
        if is_open(op):
            view, _ = access(op)
            wide = widths.get(op, 0)
            attrs["bytes"] = wide or view.elem.unit[1]
            near = picked_dim(op) is None and (not is_atomic(op) or adds_unseen(op))
            attrs["via"] = "buffer" if wide and near else "global"
        new = rw.copy(op, attrs=attrs)
        if rename:
            for v in [*new.results, *(a for r in new.regions for a in r.args)]:
                v.name = names.fresh(v.name)
        return True

    block = Block()
    rw = Rewriter(block, names, rule, dict(mapping))
    rw.ops(kernel.body)
    return block


PASS = Pass(
    "split-access",
    _run,
    requires=frozenset({"bound"}),
    establishes=frozenset({"accesses_chosen"}),
    summary="chooses width and kind of global accesses, testing once per launch what is not proved",
)
