"""Chooses the register file of accumulators and of operands, where the text leaves it open.

A wave that has a SIMD for itself owns two files of equal size: the vector file, and the accumulation file, which matrix
instructions and memory accesses reach and other arithmetic does not. Two or more waves on a SIMD share one budget, which the
vector file can take whole, so splitting it gains nothing. Hence, with one wave a SIMD and no smaller budget stated:

* An accumulator that only products touch while their loop runs goes to the accumulation file, unless it is so small that the
  vector file holds everything and a second workgroup may fit beside. One that is rescaled in the loop stays a vector.
* An operand that is read before the loop and lives all through it goes to the accumulation file where no accumulator does; an operand that
  is read for each product passes through the vector file.

    %d = mma<file = accumulation, file_a = vector, file_b = vector>(%a, %b, %c)
"""

from __future__ import annotations

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.diagnostics import Note, error
from tileir.ir.location import Loc
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.passes.base import Context, Pass
from tileir.passes.chains import accumulators, carried_links, reached
from tileir.passes.pressure import budget, registers_of
from tileir.target import Target

VECTOR, ACCUMULATION = "vector", "accumulation"
# Share of the vector file from which an accumulator leaves it. Below, a wave needs less than half of both files in all, so that
# two workgroups of four waves fit on a compute unit.
LARGE = 1 / 4


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    # A smaller budget, which a schedule may state, is shared by both files as well.
    alone = budget(kernel, ctx.target) > ctx.target.max_arch_vgprs
    _check_pins(kernel, ctx)
    files = _accumulator_files(kernel, ctx.target, alone)
    _check_forms(kernel, ctx, files)
    free = _lasting(kernel) if alone and ACCUMULATION not in files.values() else set[Value]()
    return _stated(kernel, files, free)


def _stated(kernel: Kernel, files: dict[Op, str], free: set[Value]) -> Kernel:
    """The kernel with a file for each accumulator and operand; operands that are `free` to choose do not take that of the accumulator."""

    def rule(rw: Rewriter, op: Op) -> bool:
        if op.name != "mma":
            return False
        attrs = dict(op.attrs)
        attrs["file"] = attrs.get("file") or files[op]
        for i, name in enumerate(("file_a", "file_b")):
            if not attrs.get(name):
                other = attrs["file"] == VECTOR and op.operands[i] in free
                attrs[name] = ACCUMULATION if other else VECTOR
        rw.copy(op, attrs=attrs)
        return True

    return rewrite(kernel, rule)


def _check_pins(kernel: Kernel, ctx: Context) -> None:
    """E0665 where pinned registers are not as many as the accumulator has, or more than a wave may take. Raises CompileError."""
    wave = budget(kernel, ctx.target)
    # Registers of the accumulation file lie behind those of the vector file, of which there are some.
    files = {
        VECTOR: min(wave, ctx.target.max_arch_vgprs),
        ACCUMULATION: min(wave - ctx.target.vgpr_granule, ctx.target.max_acc_vgprs),
    }
    for op in kernel.walk():
        pin = op.attrs.get("pin")
        if op.name != "mma" or not isinstance(pin, tuple):
            continue
        first, last, needed = pin[0], pin[1], registers_of(op.result)
        place = _place(op, kernel, ctx)
        if last - first + 1 != needed:
            text = f"{last - first + 1} registers are pinned for %{op.result.name}, which takes {needed} in each lane"
            raise error("E0665", text, place, legal=f"{needed} registers", notes=[Note("the product", op.loc)])
        most = files[str(op.attrs.get("file") or VECTOR)]
        if last >= most:
            text = f"register {last} of a file of which a wave may take {most}"
            raise error("E0665", text, place, legal=f"registers 0 to {most - 1}", notes=[Note("the product", op.loc)])


def _check_forms(kernel: Kernel, ctx: Context, files: dict[Op, str]) -> None:
    """E0665 where pins ask for both files in a way that LLVM has no matrix instructions for: it decides by the registers of a result which of
    them accumulate in the accumulation file, the smaller ones (`emit.kernel.accumulation_form`). Raises CompileError."""
    pinned = [op for op in files if op.attrs.get("pin")]
    if not pinned:
        return
    files = {op: str(op.attrs.get("file") or file) for op, file in files.items()}
    sizes = {op: op.attrs["instr"][0] * op.attrs["instr"][1] for op in files if op.attrs.get("instr")}  # type: ignore[index, operator]
    for op in pinned:
        for other, file in files.items():
            if {files[op], file} != {VECTOR, ACCUMULATION} or op not in sizes or other not in sizes:
                continue
            small, large = (op, other) if files[op] == ACCUMULATION else (other, op)
            if sizes[small] >= sizes[large]:
                text = (
                    f"%{op.result.name} is pinned to the {files[op]} file, and %{other.result.name} is summed in the {file} file "
                    "by matrix instructions of that size or smaller"
                )
                legal = "both in one file; or other matrix instructions, so that results in the accumulation file are the smaller ones"
                raise error(
                    "E0665", text, _place(op, kernel, ctx), legal=legal, notes=[Note("the other product", other.loc)]
                )


def _place(op: Op, kernel: Kernel, ctx: Context) -> Loc:
    """Where the text pins a product."""
    pin = op.attrs["pin"]
    return next((d.loc for d in ctx.directives(kernel) if (d.get("first"), d.get("last")) == pin), op.loc)


def _accumulator_files(kernel: Kernel, target: Target, alone: bool) -> dict[Op, str]:
    """The file of each `mma`; products that share an accumulator share its file."""
    links = carried_links(kernel)
    touched = _computed_with(kernel)
    products = [op for op in kernel.walk() if op.name == "mma"]
    having: dict[Value, list[int]] = {}  # products by result and accumulator
    for i, op in enumerate(products):
        for v in (op.result, *op.operands[2:3]):
            having.setdefault(v, []).append(i)
    found: dict[Op, str] = {}
    for op in products:
        if op in found:
            continue
        values = set(reached(links, accumulators(op)))
        group = [products[i] for i in sorted({i for v in values for i in having.get(v, ())})]
        stated = next((str(o.attrs["file"]) for o in group if o.attrs.get("file")), "")
        registers = registers_of(op.result)
        moves = alone and LARGE * target.max_arch_vgprs <= registers <= target.max_acc_vgprs and not touched & values
        found.update(dict.fromkeys(group, stated or (ACCUMULATION if moves else VECTOR)))
    return found


def _computed_with(kernel: Kernel) -> set[Value]:
    """Values that something else than a product, a loop or a store computes with inside a loop that holds products."""
    found: set[Value] = set()
    for loop in kernel.walk():
        if loop.name not in ("for", "while") or not any(op.name == "mma" for op in loop.walk()):
            continue
        for op in loop.walk():
            if op is not loop and op.name not in ("mma", "yield", "for", "while", "if"):
                found |= set(op.operands)
    return found


def _lasting(kernel: Kernel) -> set[Value]:
    """Operands of products that are defined outside of the loop in which they are used."""
    found: set[Value] = set()
    for loop in kernel.walk():
        if loop.name not in ("for", "while"):
            continue
        inside = {r for op in loop.walk() for r in op.results}
        inside |= {a for op in loop.walk() for region in op.regions for a in region.args}
        for op in loop.walk():
            if op.name == "mma":
                found |= {v for v in op.operands[:2] if v not in inside}
    return found


PASS = Pass(
    "register-files",
    _run,
    requires=frozenset({"laid_out"}),
    summary="chooses the register file of accumulators and operands",
)
