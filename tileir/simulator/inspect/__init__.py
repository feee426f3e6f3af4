"""Static reports of code objects, whoever compiled them: registers, occupancy, loops and what they consist of.

    report = inspect(Path("k.hsaco").read_bytes())
    report.kernel.hot_loop.counts.n         # non-MFMA instructions per 1024 MFMA clocks of one wave
    as_table(report), as_listing(report), as_html(report, "k.hsaco"), as_json(report)

Everything here follows from the bytes. Counts are of instructions as they stand in the code, one per occurrence: a
branch that is rarely taken counts like any other, and a loop inside a loop counts once.

Schema of the JSON form, `tileir-inspect/1` (`as_json`). Sizes are bytes, addresses are those of the loaded code; `null`
means "the code object does not say" (hand assembly has no metadata) or "does not apply" (n without MFMA). Keys may be
added under the same version; none changes its meaning or goes.

    schema                "tileir-inspect/1"
    chip                  "gfx942" or "gfx950"
    code_object_version   4 to 6
    file_bytes
    kernels: [
      name, max_workgroup_size, complete, notes: [text]
                          complete is false where a computed jump was not followed: loops may be missing
      registers           vgprs_used, agprs_used, sgprs_used        highest register in reachable code, plus one
                          vgprs_stated, agprs_stated, sgprs_stated  of the metadata (vgprs: both files together)
                          vector_allocated, sgprs_allocated, accum_offset   of the kernel descriptor
      lds                 static, dynamic (as told), per_cu
      spills              vgprs_stated, sgprs_stated, scratch_bytes, scratch_loads, scratch_stores, loop_scratch,
                          accumulator_moves, loop_accumulator_moves (in innermost loops)
      occupancy           waves_per_workgroup, workgroups_per_cu, waves_per_simd, max_waves_per_simd, register_waves,
                          limits {resource: workgroups per CU}, limited_by [resource]
      counts              of all reachable code, see below
      unreachable_instructions
      hot_loop            number of a loop or null
      loops: [
        number, parent (number or null), depth (1 = outermost), innermost, irreducible
        headers: [address]                                          its entries
        exits: [{from, to}]                                         addresses; to is null where it is not known
        source            {file, first_line, last_line} or null
        counts            including the loops inside
        lds_reads         {count, exposed, latency_clocks,
                           reads: [{address, instruction, use, wait}]}; use and wait are {instructions, mfma_clocks} or
                          null: the first use of the data and the wait that completes the read. Exposed are reads with
                          fewer MFMA clocks before the wait than latency_clocks. Only for innermost loops, else null
      ]
    ]
    counts                instructions, code_bytes, classes {class: number}, widths {class: {bytes per lane: number}},
                          mfma {opcode: {count, clocks}}, mfma_clocks, non_mfma, n, valu_ratio, waits {text: number},
                          vmcnt_drains, lgkmcnt_drains, nop_states, nop_clocks, accumulator_reads, accumulator_writes,
                          accumulator_copies, vector_moves, vector_copies
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tileir.simulator.inspect.counts import Counts, Opcode
    from tileir.simulator.inspect.flow import InspectError
    from tileir.simulator.inspect.html_form import as_html
    from tileir.simulator.inspect.json_form import SCHEMA, as_json
    from tileir.simulator.inspect.reads import Distance, ReadDistance
    from tileir.simulator.inspect.report import KernelReport, Loop, Registers, Report, Spills, inspect
    from tileir.simulator.inspect.text_form import as_listing, as_table

__all__ = [
    "SCHEMA",
    "Counts",
    "Distance",
    "InspectError",
    "KernelReport",
    "Loop",
    "Opcode",
    "ReadDistance",
    "Registers",
    "Report",
    "Spills",
    "as_html",
    "as_json",
    "as_listing",
    "as_table",
    "inspect",
]

# Loaded when first used: the compiler needs the control-flow graph alone, in every compilation.
_HOMES = {
    "counts": ("Counts", "Opcode"),
    "flow": ("InspectError",),
    "html_form": ("as_html",),
    "json_form": ("SCHEMA", "as_json"),
    "reads": ("Distance", "ReadDistance"),
    "report": ("KernelReport", "Loop", "Registers", "Report", "Spills", "inspect"),
    "text_form": ("as_listing", "as_table"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
