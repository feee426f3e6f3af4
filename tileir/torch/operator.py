"""A kernel as a PyTorch operator: schema, implementation, shapes without data.

The schema follows from the kernel (`tileir.api.functional`): given views are tensors, changed ones tensors that are changed in
place, results are made by the operator, scalars are numbers; sizes that no argument determines become integer arguments at the
end, by their name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tileir.api.compiled import CompiledKernel, Parameters, compile
from tileir.api.functional import function_of, result_shapes
from tileir.frontend import parse
from tileir.ir.core import Kernel, Value
from tileir.ir.types import GlobalType, TileType
from tileir.passes.manager import find_kernel
from tileir.runtime import Device, get_device, launch
from tileir.torch.dtypes import dtype_of, torch
from tileir.tuning.versions import AdaptiveKernel

DEFAULT_CPU = "simulator:gfx950"
ParameterRule = Callable[[Mapping[str, Any]], Parameters]
_Key = tuple[tuple[str, str], ...]


class KernelOp:
    """A registered operator; calling it runs the kernel.

    op: what `torch.library.custom_op` made of it, with `register_autograd` and others. schema: its types. Kernels are compiled
    when a set of parameters first occurs on a chip.
    """

    def __init__(
        self,
        name: str,
        source: str,
        kernel: str,
        params: Parameters | ParameterRule,
        schedule: str,
        cpu: str,
        adapt: bool,
    ):
        self.name = name
        self._adapt = adapt and not schedule
        self._adaptive: dict[tuple[str, _Key], AdaptiveKernel] = {}
        self._source, self._kernel_name, self._schedule, self._cpu = source, kernel, schedule, cpu
        self._rule: ParameterRule = params if callable(params) else lambda _, fixed=dict(params): fixed
        self._typed: dict[_Key, Kernel] = {}
        self._compiled: dict[tuple[str, _Key], CompiledKernel] = {}
        # roles of arguments do not depend on a rule's parameters: types and sizes may
        template = self._typed_kernel({} if callable(params) else dict(params))
        self._function = function_of(template)
        self.schema = self._schema(template)
        changed = list(self._function.changed)
        self.op: Any = torch.library.custom_op(name, self._run, mutates_args=changed, schema=self.schema)
        self.op.register_fake(self._fake)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.op(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.name}{self.schema}>"

    def _schema(self, kernel: Kernel) -> str:
        function = self._function
        types = {a.name: _schema_type(a) for a in kernel.args}
        types |= {name: f"Tensor(a{number}!)" for number, name in enumerate(function.changed)}
        parts = [f"{types[name]} {name}" for name in function.given] + [f"SymInt {name}" for name in function.sizes]
        results = ", ".join("Tensor" for _ in function.results)
        return f"({', '.join(parts)}) -> {results if len(function.results) == 1 else f'({results})'}"

    def compiled(self, chip: str, params: Parameters) -> CompiledKernel:
        """The kernel for a chip with values of its parameters; compiled once. Raises CompileError."""
        key = chip, _key(params)
        if key not in self._compiled:
            self._compiled[key] = compile(
                self._source, chip, kernel=self._kernel_name, params=params, schedule=self._schedule
            )
        return self._compiled[key]

    def adaptive(self, chip: str, params: Parameters) -> AdaptiveKernel:
        """The kernel for a chip that adapts to sizes, with what `params` leaves open; made once. Raises CompileError."""
        key = chip, _key(params)
        if key not in self._adaptive:
            self._adaptive[key] = AdaptiveKernel(self._source, chip, self._kernel_name, params)
        return self._adaptive[key]

    def _typed_kernel(self, params: Parameters) -> Kernel:
        """The kernel with these parameters, for its types and sizes."""
        key = _key(params)
        if key not in self._typed:
            module = parse(self._source, self.name, params, kernel=self._kernel_name or None)
            self._typed[key] = find_kernel(module, self._kernel_name)
        return self._typed[key]

    def _named(self, values: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments, and sizes, by name."""
        given, sizes = self._function.given, self._function.sizes
        return dict(zip(given, values, strict=False)), dict(zip(sizes, values[len(given) :], strict=True))

    def _fake(self, *values: Any) -> Any:
        """Results without data; sizes may be PyTorch's symbols."""
        named, sizes = self._named(values)
        return self._answer(self._new_results(self._typed_kernel(self._rule(named)), named, sizes))

    def _run(self, *values: Any) -> Any:
        """Runs the kernel where the tensors are."""
        named, sizes = self._named(values)
        device, stream = _place(named.values(), self._cpu)
        params = self._rule(named)
        kernel = self._typed_kernel(params)
        views = {a.name: a.type for a in kernel.args if isinstance(a.type, GlobalType)}
        only_read = {k for k in named if k in views and k not in self._function.changed}
        arguments = {k: _readable(v, views[k]) if k in only_read else v for k, v in named.items()}
        results = self._new_results(kernel, named, sizes)
        chip = device.properties.chip or DEFAULT_CPU.partition(":")[2]
        if self._adapt:
            adaptive = self.adaptive(chip, params)
            adaptive.launch({**arguments, **results}, device=device, symbols=sizes or None, stream=stream)
        else:
            launch(self.compiled(chip, params), {**arguments, **results}, device, symbols=sizes or None, stream=stream)
        return self._answer(results)

    def _new_results(self, kernel: Kernel, named: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
        """New tensors, on the device of the first one that is given."""
        tensors = {k: v for k, v in named.items() if isinstance(v, torch.Tensor)}
        place = next((t.device for t in tensors.values()), "cpu")
        shapes = result_shapes(kernel, self._function, {k: t.shape for k, t in tensors.items()}, sizes)
        return {k: torch.empty(shape, dtype=dtype_of(elem), device=place) for k, (shape, elem) in shapes.items()}

    def _answer(self, results: Mapping[str, Any]) -> Any:
        found = tuple(results.values())
        return found[0] if len(found) == 1 else found or None


def register(
    name: str,
    source: str | Path,
    *,
    kernel: str = "",
    params: Parameters | ParameterRule | None = None,
    schedule: str = "",
    cpu: str = DEFAULT_CPU,
    adapt: bool = True,
) -> KernelOp:
    """Registers a kernel as the PyTorch operator `name`, such as "mine::scale".

    source: the text of a `.tile` file, or the `Path` of one; kernel: which one, if it has several.
    params: values of compile-time parameters, or a function that gives them for the arguments of a call by name, for kernels
        that depend on dtypes or on sizes: `lambda a: {"T": tileir.torch.elem_of(a["X"])}`.
    cpu: where kernels on CPU tensors run: "simulator:CHIP" or "interpreter". Tensors on a GPU run on it, in PyTorch's current
        stream.
    adapt: whether parameters that only cut the work, and that `params` leaves open, are chosen from the sizes of each call, and the sum of
        a kernel with few tiles may be split (docs/tuning.md); not with a `schedule`, and only where the kernel has matrix products.

    Raises CompileError for a text that is wrong; what depends on parameters comes with the first call that needs it.
    """
    text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
    return KernelOp(name, text, kernel, params or {}, schedule, cpu, adapt)


def _schema_type(arg: Value) -> str:
    if isinstance(arg.type, GlobalType):
        return "Tensor"
    assert isinstance(arg.type, TileType)
    elem = arg.type.elem
    return "bool" if elem.is_bool else "SymInt" if elem.is_int else "float"


def _key(params: Parameters) -> _Key:
    return tuple(sorted((k, f"{type(v).__name__} {v}") for k, v in params.items()))


def _readable(tensor: Any, view: GlobalType) -> Any:
    """A tensor that is only read, with strides that the view declares: itself, or a copy."""
    if view.strides is None:
        return tensor.contiguous()
    fits = all(
        size <= 1 or isinstance(want, str) or want == stride
        for size, stride, want in zip(tensor.shape, tensor.stride(), view.strides, strict=False)
    )
    return tensor if fits else tensor.contiguous()


_devices: dict[str, Device] = {}


def _place(values: Iterable[Any], cpu: str) -> tuple[Device, Any]:
    """Device and stream: those of the first tensor on a GPU, else what runs kernels on CPU tensors."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.device.type == "cuda":  # PyTorch's name under ROCm as well
            from tileir.runtime.hip_device import HipDevice, HipStream

            device = _device(f"hip:{value.device.index}")
            assert isinstance(device, HipDevice)
            handle = torch.cuda.current_stream(value.device).cuda_stream
            return device, HipStream(device, handle) if handle else None
    return _device(cpu), None


def _device(name: str) -> Device:
    """One device object for each name, so that code objects stay loaded."""
    if name not in _devices:
        _devices[name] = get_device(name)
    return _devices[name]
