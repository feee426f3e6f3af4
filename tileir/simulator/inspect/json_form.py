"""A report as JSON data; the schema is described in `tileir.simulator.inspect`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from tileir.simulator.inspect.counts import Counts
from tileir.simulator.inspect.reads import Distance, lds_latency
from tileir.simulator.inspect.report import KernelReport, Loop, Report

SCHEMA = "tileir-inspect/1"


def as_json(report: Report) -> str:
    """The report as JSON text, the same for the same report."""
    data = {
        "schema": SCHEMA,
        "chip": report.chip,
        "code_object_version": report.code_object_version,
        "file_bytes": report.file_bytes,
        "kernels": [_kernel(kernel) for kernel in report.kernels],
    }
    return json.dumps(data, indent=2) + "\n"


def _kernel(kernel: KernelReport) -> dict[str, Any]:
    o = kernel.occupancy
    return {
        "name": kernel.name,
        "max_workgroup_size": kernel.max_workgroup_size,
        "complete": kernel.flow.complete,
        "notes": list(kernel.notes),
        "registers": asdict(kernel.registers),
        "lds": {
            "static": kernel.lds_bytes,
            "dynamic": kernel.dynamic_lds_bytes,
            "per_cu": kernel.target.lds_bytes,
        },
        "spills": asdict(kernel.spills),
        "occupancy": {
            "waves_per_workgroup": o.waves_per_workgroup,
            "workgroups_per_cu": o.workgroups_per_cu,
            "waves_per_simd": o.waves_per_simd,
            "max_waves_per_simd": kernel.target.max_waves_per_simd,
            "register_waves": o.register_waves,
            "limits": o.limits,
            "limited_by": list(o.limited_by),
        },
        "counts": _counts(kernel.counts),
        "unreachable_instructions": kernel.unreachable_instructions,
        "hot_loop": kernel.hot,
        "loops": [_loop(loop, kernel) for loop in kernel.loops],
    }


def _loop(loop: Loop, kernel: KernelReport) -> dict[str, Any]:
    source = {"file": loop.file, "first_line": loop.first_line, "last_line": loop.last_line} if loop.file else None
    reads = {
        "count": len(loop.reads),
        "exposed": loop.exposed_reads(kernel.target),
        "latency_clocks": lds_latency(kernel.target),
        "reads": [
            {"address": r.address, "instruction": r.name, "use": _distance(r.use), "wait": _distance(r.wait)}
            for r in loop.reads
        ],
    }
    return {
        "number": loop.number,
        "parent": loop.parent,
        "depth": loop.depth,
        "innermost": loop.innermost,
        "irreducible": loop.irreducible,
        "headers": list(loop.headers),
        "exits": [{"from": start, "to": end} for start, end in loop.exits],
        "source": source,
        "counts": _counts(loop.counts),
        "lds_reads": reads if loop.innermost else None,
    }


def _distance(distance: Distance | None) -> dict[str, int] | None:
    return None if distance is None else asdict(distance)


def _counts(counts: Counts) -> dict[str, Any]:
    return {
        "instructions": counts.instructions,
        "code_bytes": counts.code_bytes,
        "classes": dict(counts.classes),
        "widths": {kind: {str(width): n for width, n in by.items()} for kind, by in counts.widths.items()},
        "mfma": {name: asdict(opcode) for name, opcode in counts.mfma.items()},
        "mfma_clocks": counts.mfma_clocks,
        "non_mfma": counts.non_mfma,
        "n": counts.n,
        "valu_ratio": counts.valu_ratio,
        "waits": dict(counts.waits),
        "vmcnt_drains": counts.vmcnt_drains,
        "lgkmcnt_drains": counts.lgkmcnt_drains,
        "nop_states": counts.nop_states,
        "nop_clocks": counts.nop_clocks,
        "accumulator_reads": counts.accumulator_reads,
        "accumulator_writes": counts.accumulator_writes,
        "accumulator_copies": counts.accumulator_copies,
        "vector_moves": counts.vector_moves,
        "vector_copies": counts.vector_copies,
    }
