"""Which matrix instructions of a chip a text can reach, found by binding a small kernel that asks for each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tileir.frontend import parse
from tileir.ir.diagnostics import CompileError
from tileir.ir.ops.contract import SCALE_BLOCK, accumulator
from tileir.ir.types import ELEMS
from tileir.passes.base import Context
from tileir.passes.specialise import PASS as SPECIALISE
from tileir.target import Mfma, Target, get, names

TILE = 32  # rows and columns of the result

PLAIN = """tileir 1
kernel @product<T: type, U: type, S: type>(%A: global<T[M, K]>, %B: global<U[N, K]>, %C: global<S[M, N]>)
    grid(cdiv(M, {tile}), cdiv(N, {tile})) {{
  %i, %j = program_id()
  %zero = fill(0) : tile<S[{tile}, {tile}]>
  %acc = for %k = 0 to K step {k} carry(%c = %zero) {{
    %a = load(%A[%i * {tile} +: {tile}, %k +: {k}])
    %b = load(%B[%j * {tile} +: {tile}, %k +: {k}])
    %d = mma(%a, transpose(%b), %c)
    yield %d
  }}
  store(%acc, %C[%i * {tile} +: {tile}, %j * {tile} +: {tile}])
}}
"""
SCALED = """tileir 1
kernel @product<T: type, U: type, S: type>(%A: global<T[M, K]>, %B: global<U[N, K]>,
    %SA: global<f8E8M0FNU[M, KS]>, %SB: global<f8E8M0FNU[N, KS]>, %C: global<S[M, N]>)
    grid(cdiv(M, {tile}), cdiv(N, {tile})) {{
  %i, %j = program_id()
  %zero = fill(0) : tile<S[{tile}, {tile}]>
  %acc = for %k = 0 to K step {k} carry(%c = %zero) {{
    %a = load(%A[%i * {tile} +: {tile}, %k +: {k}])
    %b = load(%B[%j * {tile} +: {tile}, %k +: {k}])
    %sa = load(%SA[%i * {tile} +: {tile}, %k / 32 +: {blocks}])
    %sb = load(%SB[%j * {tile} +: {tile}, %k / 32 +: {blocks}])
    %d = mma_scaled(%a, %sa, transpose(%b), transpose(%sb), %c)
    yield %d
  }}
  store(%acc, %C[%i * {tile} +: {tile}, %j * {tile} +: {tile}])
}}
"""
SCHEDULE = """
schedule @asked of @product for {chip} {{
  mma %d {directive}
}}
"""


@dataclass(frozen=True)
class Reach:
    """How a text reaches an instruction, or why it does not.

    op: `mma` or `mma_scaled`, "" if nothing reaches it. reason: why not. k: of the tile.
    """

    op: str
    reason: str = ""
    k: int = 0


def operands(i: Mfma) -> tuple[str, str]:
    """Element types of a and b of the product. Where the instruction takes two types, it is asked for by the transposed
    product: its first operand is b then, whatever the compiler would have chosen."""
    return (i.a[0], i.b[0]) if i.a == i.b else (i.b[0], i.a[0])


def directive(i: Mfma) -> str:
    """What the schedule says."""
    return f"{i.m}x{i.n}x{i.k}{'' if i.a == i.b else ' swapped'}"


def text(i: Mfma, chip: str) -> str:
    """A kernel that asks for the instruction by a schedule."""
    body = SCALED if i.scaled else PLAIN
    plain = body.format(tile=TILE, k=i.k, blocks=max(1, i.k // SCALE_BLOCK))
    return plain + SCHEDULE.format(chip=chip, directive=directive(i))


def parameters(a: str, b: str) -> dict[str, str]:
    """Element types of the kernel's operands and sums."""
    total = accumulator(ELEMS[a])
    return {"T": a, "U": b, "S": str(total)}


@cache
def reach(chip: str, name: str) -> Reach:
    """Whether a text reaches the instruction."""
    target = get(chip)
    i = target.mfma(name)
    if i.sparse:
        return Reach("", "later: the language has no products with structured zeros")
    if i.blocks > 1:
        how = "a shape without blocks does no fewer operations in a clock"
        return Reach("", f"computes {i.blocks} small products side by side; {how}")
    if i.math:
        return Reach("", f"multiplies f32 rounded to {i.math}: `mma` of f32 does not round its operands")
    try:
        module = parse(text(i, chip), "asked.tile", parameters(*operands(i)))
        SPECIALISE.run(module.kernels[0], Context(target, module))
    except CompileError as e:
        d = e.diagnostics[0]
        return Reach("", f"{d.code}: {d.message}; legal: {d.legal}")
    return Reach("mma_scaled" if i.scaled else "mma", k=i.k)


def reachable(chip: str) -> list[Mfma]:
    """The instructions that texts reach."""
    return [i for i in get(chip).mfmas if reach(chip, i.name).op]


def table() -> str:
    """Every matrix instruction of every chip."""
    parts: list[str] = []
    for chip in names():
        target = get(chip)
        dense = sum(not i.sparse for i in target.mfmas)
        parts += [
            f"## {chip}",
            "",
            f"{len(target.mfmas)} instructions, {dense} of them without structured sparsity; {len(reachable(chip))} can be reached.",
            "",
            "| instruction | a, b | sums | clocks | reached by |",
            "|---|---|---|---|---|",
        ]
        parts += [_row(target, i) for i in sorted(target.mfmas, key=lambda i: (i.sparse, i.scaled, i.name))]
        parts.append("")
    return "\n".join(parts).rstrip()


def _row(target: Target, i: Mfma) -> str:
    found = reach(target.name, i.name)
    elems = ", ".join(i.a) if i.a == i.b else f"{i.a[0]} by {i.b[0]}"
    clocks = str(i.issue_clocks)
    if i.passes_narrow != i.passes:
        clocks += f", {i.passes_narrow * i.pass_clocks} below 8 bits"
    how = (
        f"`{found.op}`, `mma %d {directive(i)}` with {found.k} values of k in the tile"
        if found.op
        else f"– {found.reason}"
    )
    return f"| `{i.name}` | {elems} | {i.c} | {clocks} | {how.replace('|', chr(92) + '|')} |"
