"""What compiled kernels of every origin have in common: they launch the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tileir.ir.binding import Binding
from tileir.runtime.compiled import Compiled
from tileir.runtime.device import BufferView, Device, Stream
from tileir.runtime.devices import default_device, get_device
from tileir.runtime.launch import launch


class Launchable:
    """Gives a `Compiled` its method `launch`."""

    def launch(
        self: Compiled,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        device: Device | str | None = None,
        symbols: Mapping[str, int] | None = None,
        stream: Stream | None = None,
        **named: Any,
    ) -> Binding:
        """Runs the kernel. Arguments by name, in a mapping or as keywords: arrays of the host or the device for views (NumPy,
        PyTorch, DLPack, `__cuda_array_interface__`, buffers), numbers for scalars. The device is by default a GPU of the kernel's
        chip, or that of a `BufferView` among the arguments, else the simulator of the chip. Waits unless all arrays are a GPU's.
        Returns what the launch was bound to. Raises LaunchError for arguments that do not fit, DeviceError for what goes wrong
        on the device."""
        if arguments is not None:
            named = {**arguments, **named}
        found = device_of(named, self.target, device, stream)
        return launch(self, named, found, symbols=symbols, stream=stream)


def device_of(arguments: Mapping[str, Any], chip: str, device: Device | str | None, stream: Stream | None) -> Device:
    """The device of a launch: the one that is given, else that of the stream, else of a `BufferView` among the arguments, else the default one of
    the chip."""
    if isinstance(device, str):
        return get_device(device)
    if device is not None:
        return device
    if stream is not None:
        return stream.device
    for value in arguments.values():
        if isinstance(value, BufferView):
            return value.buffer.device
    return default_device(chip)
