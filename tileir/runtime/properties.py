"""Properties of devices that can be told without loading them."""

from __future__ import annotations

from tileir.runtime.device import DeviceProperties
from tileir.target import get


def simulated_properties(chip: str) -> DeviceProperties:
    """What a simulated chip is: sizes and clock are those of the hardware, its memory is the host's."""
    target = get(chip)
    return DeviceProperties(
        name=f"simulator:{chip}",
        kind="simulator",
        chip=chip,
        description=f"{chip} simulated on the CPU",
        compute_units=target.num_xcds * target.cus_per_xcd,
        lds_bytes=target.lds_bytes,
        l2_bytes=target.l2_bytes_per_xcd,
        last_level_bytes=target.llc_bytes,
        clock_hz=float(target.clock_hz),
    )


def interpreter_properties() -> DeviceProperties:
    """What the interpreter is."""
    return DeviceProperties("interpreter", "interpreter", description="NumPy semantics of every op")
