"""How many waves of a kernel fit on a compute unit at once, and what keeps more from fitting.

Rules: LLVM's AMDGPUUsage and the CDNA3 ISA (documented): a wave takes its vector and accumulation registers from one
file per SIMD, scalar registers from another, in granules; a workgroup takes LDS in granules and lives on one compute
unit with all its waves, which are dealt to the SIMDs in turn.
"""

from __future__ import annotations

from tileir.codeobject import Kernel
from tileir.records import dataclass
from tileir.target import Target

_SGPR_FIELD_SHIFT, _SGPR_FIELD_MASK = 6, 15  # granulated_wavefront_sgpr_count of compute_pgm_rsrc1


@dataclass(frozen=True)
class Occupancy:
    """Residency of one kernel. `limits` gives workgroups per compute unit by resource, `limited_by` the smallest ones.

    `waves_per_simd` is the average over the SIMDs; 0 when not even one workgroup fits.
    """

    waves_per_workgroup: int
    workgroups_per_cu: int
    waves_per_simd: float
    limits: dict[str, int]
    limited_by: tuple[str, ...]
    register_waves: int
    """Waves per SIMD that the vector registers alone would allow."""


def allocated_sgprs(kernel: Kernel, target: Target) -> int:
    """SGPRs that a wave takes: the descriptor counts pairs of half granules, and each wave has whole ones."""
    field = kernel.descriptor.rsrc1 >> _SGPR_FIELD_SHIFT & _SGPR_FIELD_MASK
    return (field // 2 + 1) * target.sgpr_granule


def occupancy(kernel: Kernel, target: Target, dynamic_lds: int = 0, work_items: int = 0) -> Occupancy:
    """Occupancy of a kernel launched with `dynamic_lds` bytes on top of its static LDS, and with workgroups of so many
    work-items (0: the largest that it allows)."""
    largest = kernel.metadata.max_flat_workgroup_size if kernel.metadata else target.max_workgroup_size
    size = work_items or largest
    waves = max(1, -(-size // target.wave_size))
    simds = target.simds_per_cu
    registers = target.registers_per_lane // kernel.descriptor.vgpr_count
    scalars = target.sgprs_per_simd // allocated_sgprs(kernel, target)
    granule = target.lds_alloc_granule
    lds = -(-(kernel.descriptor.group_segment_fixed_size + dynamic_lds) // granule) * granule
    limits = {
        "vector registers": _workgroups(registers, waves, simds),
        "scalar registers": _workgroups(scalars, waves, simds),
        "wave slots": _workgroups(target.max_waves_per_simd, waves, simds),
    }
    if lds:
        limits["LDS"] = target.lds_bytes // lds
    fitting = min(limits.values())
    return Occupancy(
        waves_per_workgroup=waves,
        workgroups_per_cu=fitting,
        waves_per_simd=fitting * waves / simds,
        limits=limits,
        limited_by=tuple(name for name, count in limits.items() if count == fitting),
        register_waves=min(registers, target.max_waves_per_simd),
    )


def _workgroups(waves_per_simd: int, waves: int, simds: int) -> int:
    """Workgroups of `waves` waves that fit when each SIMD holds `waves_per_simd` waves."""
    return waves_per_simd * simds // waves
