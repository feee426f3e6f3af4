"""Microbenchmarks in assembly and the estimates of their time."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.simulator.inspect.inspect_assembly import assemble
from tileir.simulator import Simulator
from tileir.simulator.timing.estimate import TimeOptions, estimate
from tileir.simulator.timing.result import Timing
from tileir.target import get

CHIPS = ("gfx942", "gfx950")
DIRECTIVES = ".amdhsa_user_sgpr_kernarg_segment_ptr 1\n.amdhsa_system_sgpr_workgroup_id_x 1\n"
"""s[0:1]: kernel arguments; s2: workgroup; v0: work-item."""
ZEROS = "\n".join(f"v_mov_b32 v{i}, 0" for i in range(1, 96))


@cache
def code(
    body: str, chip: str, waves: int = 1, lds: int = 0, vgprs: int = 128, accum: int = 128, directives: str = ""
) -> bytes:
    """The code object of a kernel ``k`` of so many waves; its one argument is a pointer."""
    text = f"{body}\ns_endpgm\n"
    return assemble(
        text, chip, vgprs=vgprs, accum=accum, lds=lds, threads=64 * waves, directives=DIRECTIVES + directives
    )


def timed(
    body: str,
    chip: str,
    *,
    waves: int = 1,
    groups: int = 1,
    lds: int = 0,
    vgprs: int = 128,
    accum: int = 128,
    buffer: int = 1 << 16,
    data: NDArray[np.generic] | None = None,
    options: TimeOptions | None = None,
) -> Timing:
    """The estimate for such a kernel, on a buffer of so many bytes that begins with the data."""
    simulator = Simulator(chip)
    module = simulator.load(code(body, chip, waves, lds, vgprs, accum))
    memory = simulator.memory.allocate(buffer, "buffer")
    memory.write(np.zeros(buffer, np.uint8))
    if data is not None:
        memory.write(data)
    arguments = struct.pack("<Q", memory.address)
    return estimate(module, "k", (groups, 1, 1), (64 * waves, 1, 1), arguments, options=options)


def clocks_of_each(body: str, chip: str, *, before: str = ZEROS, times: int = 64, **options: Any) -> float:
    """Clocks that one more repetition of ``body`` takes, in steady state."""

    def run(n: int) -> int:
        return timed(before + "\n" + "\n".join([body] * n), chip, **options).cu.clocks

    return (run(2 * times) - run(times)) / times


LANE_ADDRESSES = f"""{ZEROS}
s_load_dwordx2 s[4:5], s[0:1], 0
v_and_b32 v0, 63, v0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
global_load_dword v2, v1, s[4:5]
s_waitcnt vmcnt(0)
s_barrier
"""
"""v0: lane; s[4:5]: the buffer; v2: the dword of the buffer that belongs to the lane."""


def conflicting(chip: str, op: str, degree: int) -> NDArray[np.int32]:
    """Address of each lane such that ``degree`` lanes of every lane group want different dwords of one bank."""
    access = get(chip).lds_access(op)
    out = np.zeros(64, np.int32)
    for group in access.lane_groups:
        for place, lane in enumerate(group):
            column, row = divmod(place, degree)
            out[lane] = row * access.banks * access.bank_bytes + column * access.bytes_per_lane
    return out
