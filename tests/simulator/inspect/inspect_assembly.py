"""Makes code objects from hand-written assembly, with TileIR's own assembler and linker."""

from __future__ import annotations

from functools import cache

from tileir.lowering.amdgpu.compile import resume
from tileir.simulator.inspect import KernelReport, inspect

CHIPS = ("gfx942", "gfx950")

METADATA = """
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: k
    .symbol: k.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 40
    .vgpr_count: {vgprs}
    .agpr_count: 0
    .max_flat_workgroup_size: {threads}
    .sgpr_spill_count: 0
    .vgpr_spill_count: 0
...
.end_amdgpu_metadata
"""


@cache
def assemble(
    body: str,
    chip: str = "gfx950",
    vgprs: int = 128,
    accum: int = 64,
    lds: int = 0,
    threads: int = 0,
    more: str = "",
    directives: str = "",
) -> bytes:
    """The code object of a kernel `k` with this body. `threads` 0 leaves the metadata out; `more` is code behind it,
    `directives` go into the descriptor."""
    text = f"""
.amdgcn_target "amdgcn-amd-amdhsa--{chip}"
.amdhsa_code_object_version 5
.text
.globl k
.p2align 8
.type k,@function
k:
{body}
.Lend:
.size k, .Lend-k
{more}
.rodata
.p2align 6
.amdhsa_kernel k
  .amdhsa_next_free_vgpr {vgprs}
  .amdhsa_next_free_sgpr 40
  .amdhsa_accum_offset {accum}
  .amdhsa_group_segment_fixed_size {lds}
  {directives}
.end_amdhsa_kernel
"""
    if threads:
        text += METADATA.format(lds=lds, vgprs=vgprs, threads=threads)
    return resume("asm", text, chip).hsaco


def report(body: str, chip: str = "gfx950", **options: object) -> KernelReport:
    """The report of such a kernel."""
    return inspect(assemble(body, chip, **options)).kernel  # type: ignore[arg-type]
