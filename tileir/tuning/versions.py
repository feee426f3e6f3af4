"""Kernels that adapt to the sizes of each launch: versions are compiled when sizes first call for them."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tileir.api.compiled import CompiledKernel, Parameters, compile
from tileir.frontend import parse
from tileir.frontend.source import Source, decode
from tileir.ir.binding import Binding
from tileir.ir.core import Kernel
from tileir.ir.diagnostics import CompileError
from tileir.ir.types import GlobalType
from tileir.passes.manager import find_kernel, find_target
from tileir.passes.split_sum import SplitSum, split_sum
from tileir.records import dataclass
from tileir.runtime.device import Buffer, BufferView, Device, Stream
from tileir.runtime.launchable import device_of
from tileir.tuning.planning import SCHEDULE, Plan, plan
from tileir.tuning.space import bind
from tileir.tuning.trials import FAULTS

_Bucket = tuple[int, ...]


@dataclass(frozen=True)
class Version:
    """What runs for some sizes. kernels: in the order of their launches – one, or that of the parts of a sum and that which adds them
    up, which `split` describes. plan: why, None for the text as it is."""

    kernels: tuple[CompiledKernel, ...]
    plan: Plan | None = None
    split: SplitSum | None = None

    def __str__(self) -> str:
        return str(self.plan) if self.plan is not None else "as it is"


class AdaptiveKernel:
    """A kernel that chooses its parameters, its schedule, and whether its sum is split, from the sizes of each launch.

    The sizes of the dimension symbols fall into buckets, one for each power of two. For the first sizes of a bucket a `plan` is made by the
    quick model and its kernels are compiled, which takes a second or two the first time and is kept; all later launches in the bucket
    run the same. What a version computes does not depend on that but for the last bits of sums. Kernels without products, and
    those with a schedule that applies, run as they are.
    """

    def __init__(self, source: str | Path, target: str, kernel: str = "", params: Parameters | None = None):
        text, self._filename = source, "<text>"
        if isinstance(source, Path):
            text, self._filename = decode(source.read_bytes(), str(source)), str(source)
        assert isinstance(text, str)
        self._text = Source(text, self._filename).text
        self._params = dict(params or {})
        module = parse(self._text, self._filename, self._params, kernel=kernel or None)
        self.kernel: Kernel = find_kernel(module, kernel)
        self.target = find_target(self.kernel, target).name
        self._fixed = not any(op.name == "mma" for op in self.kernel.walk()) or any(
            s.kernel == self.kernel.name and s.target == self.target and s.applies for s in module.schedules
        )
        self._versions: dict[_Bucket, Version] = {}
        self._own: Version | None = None
        self._workspaces: weakref.WeakKeyDictionary[Device, dict[tuple[int, str], Buffer]] = weakref.WeakKeyDictionary()
        self._views = [
            (a.name, [(i, d) for i, d in enumerate(a.type.dims) if isinstance(d, str)])
            for a in self.kernel.args
            if isinstance(a.type, GlobalType)
        ]
        self._sizes = tuple(dict.fromkeys(d for _, dims in self._views for _, d in dims))

    @property
    def name(self) -> str:
        return self.kernel.name

    def __repr__(self) -> str:
        return f"<{self.name} for {self.target}, adaptive: {len(self._versions)} versions>"

    def version(self, **sizes: int) -> Version:
        """What runs for these sizes of the dimension symbols. Raises KeyError for a size that is missing, CompileError if not even the text as it is
        compiles."""
        key = tuple((max(1, sizes[s]) - 1).bit_length() for s in self._sizes)
        found = self._versions.get(key)
        if found is None:
            found = self._versions[key] = self._made(sizes)
        return found

    def launch(
        self,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        device: Device | str | None = None,
        symbols: Mapping[str, int] | None = None,
        stream: Stream | None = None,
        **named: Any,
    ) -> Binding:
        """Runs the kernel like `CompiledKernel.launch`, in the version for the sizes of its arguments, and returns what its last launch was
        bound to. Raises as that does, and CompileError."""
        if arguments is not None:
            named = {**arguments, **named}
        sizes = self._sizes_of(named, symbols or {})
        version = self._as_it_is() if sizes is None else self.version(**sizes)
        if version.split is None or sizes is None:
            return version.kernels[0].launch(named, device=device, symbols=symbols, stream=stream)
        found = device_of(named, self.target, device, stream)
        assert version.plan is not None
        whole = bind(self._text, self._filename, self.name, {**self._given(), **version.plan.params})
        grid = tuple(e.evaluate(sizes) for e in whole.grid)
        if 0 in grid:
            return self._as_it_is().kernels[0].launch(named, device=found, symbols=symbols, stream=stream)
        for number, (name, _, _) in enumerate(version.split.workspaces):
            named[name] = self._workspace(found, stream, version.split, number, grid, version.plan.parts)
        first, second = version.kernels
        first.launch(named, device=found, symbols=symbols, stream=stream)
        return second.launch(named, device=found, symbols=symbols, stream=stream)

    # -- versions --------------------------------------------------------------------------------------------------------

    def _given(self) -> dict[str, Any]:
        return dict(self._params)

    def _as_it_is(self) -> Version:
        if self._own is None:
            source = Path(self._filename) if self._filename != "<text>" else self._text
            self._own = Version((compile(source, self.target, kernel=self.name, params=self._params),))
        return self._own

    def _made(self, sizes: Mapping[str, int]) -> Version:
        """The version for sizes: by the plan, with less of it where that does not compile, and in the end as the text is."""
        if self._fixed or 0 in sizes.values():
            return self._as_it_is()
        given = {n: v for n, v in self._params.items() if isinstance(v, int | float | bool | str)}
        if len(given) != len(self._params):  # element types are given by name to the search
            given |= {n: str(v) for n, v in self._params.items() if n not in given}
        for split in (True, False):
            try:
                made = plan(
                    self._text, self.target, sizes, kernel=self.name, params=given, split=split, filename=self._filename
                )
                found = self._compiled(made)
            except CompileError:
                continue
            if found is not None:
                return found
        return self._as_it_is()

    def _compiled(self, made: Plan) -> Version | None:
        """A plan, compiled; None where the code has faults that no proposal may have. Raises CompileError."""
        params = {**self._given(), **made.params}
        if made.parts > 1:
            split = split_sum(bind(self._text, self._filename, self.name, params))
            assert split is not None
            kernels = tuple(compile(k, self.target) for k in (split.parts, split.sum))
            return Version(kernels, made, split) if all(map(_is_clean, kernels)) else None
        text = f"{self._text.rstrip()}\n\n{made.schedule}" if made.schedule else self._text
        compiled = compile(
            text, self.target, kernel=self.name, params=params, schedule=SCHEDULE if made.schedule else ""
        )
        return Version((compiled,), made) if _is_clean(compiled) else None

    # -- launches --------------------------------------------------------------------------------------------------------

    def _sizes_of(self, arguments: Mapping[str, Any], symbols: Mapping[str, int]) -> dict[str, int] | None:
        """The sizes of a launch; None where the arguments do not tell, or do not fit, which the launch will say."""
        sizes = dict(symbols)
        for name, dims in self._views:
            shape = getattr(arguments.get(name), "shape", None)
            if shape is None:
                continue
            try:
                for i, d in dims:
                    sizes[d] = int(shape[i])
            except (IndexError, TypeError, ValueError):
                return None
        return sizes if all(s in sizes for s in self._sizes) else None

    def _workspace(
        self, device: Device, stream: Stream | None, split: SplitSum, number: int, grid: tuple[int, ...], parts: int
    ) -> BufferView:
        """Memory for the parts. Launches of one stream share it, since they follow each other."""
        name, elem, _ = split.workspaces[number]
        shape = split.shape(number, parts, grid)
        size = elem.bytes
        for n in shape:
            size *= n
        kept = self._workspaces.setdefault(device, {})
        key = _number(stream), name
        buffer = kept.get(key)
        if buffer is None or buffer.nbytes < size:
            if buffer is not None:
                (stream or device).synchronize()
            buffer = kept[key] = device.alloc(size)
        return BufferView(buffer, elem, shape)


def _number(stream: Stream | None) -> int:
    """What tells streams apart: of a GPU their handle, since there may be several objects for one."""
    if stream is None:
        return 0
    handle = getattr(stream, "handle", None)
    return int(handle) if isinstance(handle, int) else id(stream)


def _is_clean(compiled: CompiledKernel) -> bool:
    stats = compiled.stats
    return not (stats["vgpr_spills"] or stats["scratch_bytes"] or FAULTS & {d.code for d in compiled.diagnostics})


def adaptive(source: str | Path, target: str, *, kernel: str = "", params: Parameters | None = None) -> AdaptiveKernel:
    """A kernel that adapts to the sizes of each launch.

    source: the text of a file, or the `Path` of one. kernel: which one, if it has several. params: values of compile-time parameters, which
    are then fixed; parameters that only cut the work are open otherwise (docs/tuning.md).

    Raises CompileError for a text that is wrong, OSError for a file that cannot be read.
    """
    return AdaptiveKernel(source, target, kernel, params)
