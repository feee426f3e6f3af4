"""The 64-byte kernel descriptor of the AMDHSA ABI, as gfx90a and its successors (gfx942, gfx950) use it.

Source of all bit positions: LLVM's AMDGPUUsage, tables 'Kernel Descriptor', 'compute_pgm_rsrc1', 'compute_pgm_rsrc2'
and 'compute_pgm_rsrc3 for GFX90A, GFX942, GFX950'.
"""

from __future__ import annotations

import struct

from tileir.codeobject.errors import CodeObjectError
from tileir.records import dataclass
from tileir.target import Target

DESCRIPTOR_SIZE = 64
_LAYOUT = struct.Struct("<III4sq20sIIIHH4s")


def _bits(word: int, low: int, count: int) -> int:
    return word >> low & (1 << count) - 1


@dataclass(frozen=True)
class KernelDescriptor:
    """A kernel descriptor: sizes in bytes, registers counted as allocated (a multiple of the granule).

    `float_round_mode_*`: 0 nearest even, 1 plus infinity, 2 minus infinity, 3 zero. `float_denorm_mode_*`: bit 0 keep
    input denormals, bit 1 keep output denormals (3 = full support). `workitem_id`: 0 = x, 1 = x and y, 2 = x, y, z.
    `vgpr_count` is architectural and accumulation registers together; the latter begin at `accum_offset`.
    """

    group_segment_fixed_size: int
    private_segment_fixed_size: int
    kernarg_size: int
    entry_byte_offset: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    vgpr_count: int
    accum_offset: int
    priority: int
    float_round_mode_32: int
    float_round_mode_16_64: int
    float_denorm_mode_32: int
    float_denorm_mode_16_64: int
    dx10_clamp: bool
    ieee_mode: bool
    fp16_overflow: bool
    enable_private_segment: bool
    user_sgpr_count: int
    enable_sgpr_workgroup_id_x: bool
    enable_sgpr_workgroup_id_y: bool
    enable_sgpr_workgroup_id_z: bool
    enable_sgpr_workgroup_info: bool
    workitem_id: int
    exceptions: int
    tg_split: bool
    enable_sgpr_private_segment_buffer: bool
    enable_sgpr_dispatch_ptr: bool
    enable_sgpr_queue_ptr: bool
    enable_sgpr_kernarg_segment_ptr: bool
    enable_sgpr_dispatch_id: bool
    enable_sgpr_flat_scratch_init: bool
    enable_sgpr_private_segment_size: bool
    wavefront_size32: bool
    uses_dynamic_stack: bool
    kernarg_preload_length: int
    kernarg_preload_offset: int

    def user_sgprs(self) -> tuple[tuple[str, int, int], ...]:
        """(name, first SGPR, count) of every enabled user SGPR field, in the fixed order of the ABI.

        `kernarg_preload` comes last: `kernarg_preload_length` dwords of the kernarg segment from dword
        `kernarg_preload_offset` on.
        """
        candidates = (
            ("private_segment_buffer", self.enable_sgpr_private_segment_buffer, 4),
            ("dispatch_ptr", self.enable_sgpr_dispatch_ptr, 2),
            ("queue_ptr", self.enable_sgpr_queue_ptr, 2),
            ("kernarg_segment_ptr", self.enable_sgpr_kernarg_segment_ptr, 2),
            ("dispatch_id", self.enable_sgpr_dispatch_id, 2),
            ("flat_scratch_init", self.enable_sgpr_flat_scratch_init, 2),
            ("private_segment_size", self.enable_sgpr_private_segment_size, 1),
            ("kernarg_preload", self.kernarg_preload_length > 0, self.kernarg_preload_length),
        )
        result: list[tuple[str, int, int]] = []
        first = 0
        for name, enabled, count in candidates:
            if enabled:
                result.append((name, first, count))
                first += count
        return tuple(result)


def decode_descriptor(data: bytes, offset: int, target: Target) -> KernelDescriptor:
    """The descriptor at `data[offset:offset + 64]`; `CodeObjectError` for reserved bits that are set, or a short file."""
    if not 0 <= offset <= len(data) - DESCRIPTOR_SIZE:
        raise CodeObjectError("kernel descriptor lies outside the file", max(offset, 0))
    group, private, kernarg, reserved0, entry, reserved1, rsrc3, rsrc1, rsrc2, properties, preload, reserved2 = (
        _LAYOUT.unpack_from(data, offset)
    )
    if any(reserved0) or any(reserved1) or any(reserved2):
        raise CodeObjectError("reserved bytes of the kernel descriptor are not zero", offset)
    vgprs = (_bits(rsrc1, 0, 6) + 1) * target.vgpr_granule
    accum_offset = (_bits(rsrc3, 0, 6) + 1) * target.accum_offset_granule
    if accum_offset > vgprs:
        raise CodeObjectError(
            f"accum_offset {accum_offset} lies beyond the {vgprs} registers of the kernel", offset + 44
        )
    descriptor = KernelDescriptor(
        group_segment_fixed_size=group,
        private_segment_fixed_size=private,
        kernarg_size=kernarg,
        entry_byte_offset=entry,
        rsrc1=rsrc1,
        rsrc2=rsrc2,
        rsrc3=rsrc3,
        properties=properties,
        vgpr_count=vgprs,
        accum_offset=accum_offset,
        priority=_bits(rsrc1, 10, 2),
        float_round_mode_32=_bits(rsrc1, 12, 2),
        float_round_mode_16_64=_bits(rsrc1, 14, 2),
        float_denorm_mode_32=_bits(rsrc1, 16, 2),
        float_denorm_mode_16_64=_bits(rsrc1, 18, 2),
        dx10_clamp=bool(_bits(rsrc1, 21, 1)),
        ieee_mode=bool(_bits(rsrc1, 23, 1)),
        fp16_overflow=bool(_bits(rsrc1, 26, 1)),
        enable_private_segment=bool(_bits(rsrc2, 0, 1)),
        user_sgpr_count=_bits(rsrc2, 1, 5),
        enable_sgpr_workgroup_id_x=bool(_bits(rsrc2, 7, 1)),
        enable_sgpr_workgroup_id_y=bool(_bits(rsrc2, 8, 1)),
        enable_sgpr_workgroup_id_z=bool(_bits(rsrc2, 9, 1)),
        enable_sgpr_workgroup_info=bool(_bits(rsrc2, 10, 1)),
        workitem_id=_bits(rsrc2, 11, 2),
        exceptions=_bits(rsrc2, 24, 7),
        tg_split=bool(_bits(rsrc3, 16, 1)),
        enable_sgpr_private_segment_buffer=bool(_bits(properties, 0, 1)),
        enable_sgpr_dispatch_ptr=bool(_bits(properties, 1, 1)),
        enable_sgpr_queue_ptr=bool(_bits(properties, 2, 1)),
        enable_sgpr_kernarg_segment_ptr=bool(_bits(properties, 3, 1)),
        enable_sgpr_dispatch_id=bool(_bits(properties, 4, 1)),
        enable_sgpr_flat_scratch_init=bool(_bits(properties, 5, 1)),
        enable_sgpr_private_segment_size=bool(_bits(properties, 6, 1)),
        wavefront_size32=bool(_bits(properties, 10, 1)),
        uses_dynamic_stack=bool(_bits(properties, 11, 1)),
        kernarg_preload_length=_bits(preload, 0, 7),
        kernarg_preload_offset=_bits(preload, 7, 9),
    )
    if descriptor.wavefront_size32:
        raise CodeObjectError(f"wave32 kernel, but {target.name} has waves of {target.wave_size} lanes", offset + 56)
    if descriptor.workitem_id == 3:
        raise CodeObjectError("work-item id mode 3 is undefined", offset + 52)
    used = sum(count for _name, _first, count in descriptor.user_sgprs())
    if used > descriptor.user_sgpr_count:
        raise CodeObjectError(
            f"the enabled user SGPRs need {used}, the descriptor declares {descriptor.user_sgpr_count}", offset + 52
        )
    return descriptor
