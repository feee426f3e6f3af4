"""Launches that were checked before: what a check depends on is a key, what it found a plan.

A plan holds for all arrays with the same dtypes, shapes, strides, devices and buffer ends. What else decides is looked at each
time: alignment of addresses, overlap of views, values of scalars. Such a launch costs a few microseconds instead of a hundred.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from tileir.ir.binding import Binding, bind_scalar
from tileir.ir.core import Kernel, Value
from tileir.ir.types import GlobalType
from tileir.records import dataclass
from tileir.runtime.arguments import kernarg, slots_of
from tileir.runtime.compiled import Compiled
from tileir.runtime.device import Argument, BufferView, Device, Stream
from tileir.runtime.interchange import is_torch

if TYPE_CHECKING:
    from tileir.runtime.hip_module import Frame, HipFunction

_MOST_PLANS = 256
_MOST_SCALARS = 1024
_VIEW, _TORCH, _OTHER = 1, 2, 3


@dataclass(eq=False)
class _Plan:
    """What is known of launches with one key. Byte ranges are relative to the address of their view."""

    function: HipFunction
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    packed: bytes
    words: tuple[int, ...]  # of each view's pointer in the frame
    scalars: tuple[tuple[Value, slice], ...]
    masks: tuple[int, ...]  # bits of each address that must be zero
    pairs: tuple[tuple[int, int, int, int, int, int], ...]  # two views, and first byte and end of each
    binding: Binding
    frames: list[Frame] = field(default_factory=list["Frame"])


class WarmLaunches:
    """The plans of one kernel on one device."""

    def __init__(self, kernel: Kernel, written: frozenset[str], device: Device):
        self._views = tuple(a.name for a in kernel.args if isinstance(a.type, GlobalType))
        self._scalars = tuple(a for a in kernel.args if not isinstance(a.type, GlobalType))
        self._count = len(kernel.args)
        self._device = device
        self._current: Any = getattr(device, "current", None)
        self._alone = bool(getattr(device, "alone", False))
        allowed = {frozenset(pair) for pair in kernel.aliases}
        self._pairs = [
            (i, j)
            for j, b in enumerate(self._views)
            for i, a in enumerate(self._views[:j])
            if (a in written or b in written) and frozenset((a, b)) not in allowed
        ]
        self._plans: dict[tuple[object, ...], _Plan] = {}
        self._converted: dict[tuple[object, ...], tuple[bytes, Any]] = {}
        self._kinds: dict[type, int] = {BufferView: _VIEW}

    def launch(
        self, arrays: Mapping[str, Any], symbols: Mapping[str, int] | None, stream: Stream | None
    ) -> Binding | None:
        """Launches if there is a plan and everything else is in order; None if the launch must be checked in full."""
        if not self._plans:
            return None
        addresses: list[int] = []
        key = self._key(arrays, symbols, addresses)
        plan = self._plans.get(key) if key is not None else None
        if plan is None:
            return None
        for address, mask in zip(addresses, plan.masks, strict=True):
            if address & mask:
                return None
        for i, j, low_i, end_i, low_j, end_j in plan.pairs:
            if addresses[i] + low_i < addresses[j] + end_j and addresses[j] + low_j < addresses[i] + end_i:
                return None  # perhaps only interleaved: the full check knows
        binding = plan.binding
        frames = plan.frames
        frame = frames.pop() if frames else plan.function.frame(plan.packed)
        words = frame.words
        for word, address in zip(plan.words, addresses, strict=True):
            words[word] = address
        if plan.scalars:
            values: dict[str, Any] = {}
            for arg, where in plan.scalars:
                frame.bytes[where], values[arg.name] = self._scalar(arg, arrays[arg.name])
            binding = Binding(binding.symbols, binding.grid, values)
        handle = stream.handle if stream is not None else None
        function = plan.function
        if self._alone:
            code = function.start(function.handle, *plan.grid, *plan.block, 0, handle, None, frame.extra)
        else:
            with self._current():
                code = function.start(function.handle, *plan.grid, *plan.block, 0, handle, None, frame.extra)
        frames.append(frame)
        if code:
            function.fail(code)
        return binding

    def _key(
        self, arrays: Mapping[str, Any], symbols: Mapping[str, int] | None, addresses: list[int]
    ) -> tuple[object, ...] | None:
        """Everything that the checks depend on; fills in the addresses of the views. None for arrays of other kinds."""
        if len(arrays) != self._count:
            return None
        parts: list[object] = [tuple(symbols.items())] if symbols else []
        for name in self._views:
            value = arrays.get(name)
            kind = self._kinds.get(type(value))
            if kind is None:
                kind = self._kinds[type(value)] = _TORCH if is_torch(value) else _OTHER
            if kind == _VIEW:
                parts.append(value.signature)  # pyright: ignore[reportOptionalMemberAccess]
                addresses.append(value.address)  # pyright: ignore[reportOptionalMemberAccess]
            elif kind == _TORCH:
                tensor: Any = value
                try:
                    parts.append((tensor.dtype, tensor.shape, tensor.stride(), tensor.device))
                    addresses.append(tensor.data_ptr())
                except RuntimeError:  # of tensors that are not strided
                    return None
            else:
                return None
        return tuple(parts)

    def _scalar(self, arg: Value, value: object) -> tuple[bytes, Any]:
        """Bytes and exact value of a scalar argument. Raises LaunchError."""
        # neither 1, 1.0 and True nor 0.0 and -0.0 are the same
        bits = value.hex() if type(value) is float else value
        key = (arg.name, type(value), bits)
        try:
            found = self._converted.get(key)
        except TypeError:  # not hashable, hence no number
            found = None
        if found is None:
            exact = bind_scalar(arg, value)
            found = exact.tobytes(), exact
            if type(value) in (int, float, bool):
                if len(self._converted) >= _MOST_SCALARS:
                    self._converted.clear()
                self._converted[key] = found
        return found

    def learn(
        self,
        compiled: Compiled,
        arrays: Mapping[str, Any],
        symbols: Mapping[str, int] | None,
        binding: Binding,
        arguments: Sequence[Argument],
    ) -> None:
        """Keeps a plan of a launch that was checked, on devices whose launches are worth it."""
        find: Any = getattr(self._device, "function", None)
        if find is None:
            return
        key = self._key(arrays, symbols, [])
        if key is None:
            return
        function: HipFunction = find(compiled)
        slots = slots_of([a.abi for a in arguments], function.metadata)
        place = {a.abi.name: slot for a, slot in zip(arguments, slots, strict=True)}
        views: list[BufferView] = [a.value for a in arguments if isinstance(a.value, BufferView)]
        ends = [(low - v.offset, high - v.offset) for v in views for low, high in [v.extent]]
        x, y, z = (*binding.grid, 1, 1)[:3]
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        self._plans[key] = _Plan(
            function=function,
            grid=(x, y, z),
            block=compiled.block,
            packed=kernarg(arguments, function.metadata),
            words=tuple(place[name].offset // 8 for name in self._views),
            scalars=tuple((a, slice(p.offset, p.offset + p.size)) for a in self._scalars for p in [place[a.name]]),
            masks=tuple(v.elem.bytes - 1 for v in views),
            pairs=tuple((i, j, *ends[i], *ends[j]) for i, j in self._pairs),
            binding=binding,
        )
