"""One kernel through every execution: interpreter, text, pass boundaries, and the machine code on both chips."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import ml_dtypes
import numpy as np

from tileir.frontend import parse
from tileir.fuzz.constructs import all_functions
from tileir.interpreter import run
from tileir.ir.arrays import strided
from tileir.ir.binding import LaunchError, written_views
from tileir.ir.core import Kernel, Module, Schedule
from tileir.ir.diagnostics import CompileError, Log
from tileir.ir.ops.elementwise import accuracy
from tileir.ir.printer import print_module
from tileir.ir.types import Elem, GlobalType
from tileir.lowering.amdgpu.compile import Compiled, Options, compile_kernel
from tileir.passes.manager import run_pipeline
from tileir.records import dataclass
from tileir.runtime import DeviceError, launch
from tileir.runtime.simulator_device import SimulatorDevice
from tileir.tools.tolerance import clone

Array = np.ndarray[Any, Any]

# What a kernel may be rejected for without a fault of the compiler: it asks for more than the chip has, or for what the
# documentation says is not compiled.
SCHEDULE = frozenset(
    ("E0602", "E0606", "E0607", "E0657", "E0658", "E0660", "E0701", "E0702", "E0704", "E0706", "E0721")
)
"""What a schedule may be rejected for: it asks for what the kernel or the chip cannot do. The kernel is then run without it."""
RESOURCES = frozenset(("E0337", "E0603", "E0703", "E0861", "E0862", "E0863", "E0864", "E0867", "E0903", "E1623"))


MOST_ITERATIONS = 1 << 12
"""Of any loop: what the generator makes ends sooner, what the reducer leaves of it may not."""


@dataclass(frozen=True)
class Case:
    """How a kernel is run. `values` is "special" (zeros of both signs, infinities, NaN, extremes) or "integers" (small)."""

    chips: tuple[str, ...]
    sizes: Mapping[str, int]
    gap: int  # elements between rows where strides are free
    seed: int
    values: str
    boundaries: bool = False  # also interpret after every pass
    schedules: tuple[Schedule, ...] = ()
    code: bool = True  # without: the last text of the passes is interpreted instead of machine code


@dataclass(frozen=True)
class Outcome:
    """What became of a program: "right", "rejected" (with the code), or "wrong" at some stage."""

    kind: str
    stage: str = ""
    message: str = ""

    @property
    def signature(self) -> str:
        """What must stay the same while a failing kernel is reduced."""
        start = self.message.split("[", 1)[0].splitlines()  # without the place of a wrong element
        return f"{self.kind} {self.stage} {start[0][:60] if start else ''}"


_LAUNCHES = 64
"""Of one simulated device, which keeps every kernel and never uses an address twice."""
_devices: dict[str, tuple[SimulatorDevice, int]] = {}


def _device(chip: str) -> SimulatorDevice:
    device, launches = _devices.get(chip, (None, _LAUNCHES))
    if device is None or launches >= _LAUNCHES:
        device, launches = SimulatorDevice(chip, check="all"), 0
    _devices[chip] = device, launches + 1
    return device


def execute(kernel: Kernel, case: Case, made: Mapping[str, Compiled] | None = None) -> Outcome:
    """Runs a kernel everywhere and compares bit by bit (NaN equals NaN). `made` is code that is there already, by chip. Never raises
    for a fault of TileIR."""
    stage = "text"
    try:
        module = Module([kernel], list(case.schedules))
        text = print_module(module)
        if parse(text) != module:
            return Outcome("wrong", stage, "the text does not parse back")
        stage = "interpreter"
        inputs = make_inputs(kernel, case)
        want = copied(inputs)
        with np.errstate(all="ignore"), redirect_stdout(StringIO()) as said:
            run(kernel, want, symbols=dict(case.sizes), max_iterations=MOST_ITERATIONS)
        rejected: dict[str, str] = {}
        for chip in case.chips:
            stage = f"compile for {chip}"
            with redirect_stdout(StringIO()):  # passes are checked by the interpreter, which prints
                compiled = (made or {}).get(chip) or _with_schedule(module, chip, case)
            if isinstance(compiled, CompileError):
                if {d.code for d in compiled.diagnostics} <= RESOURCES:
                    rejected[chip] = compiled.diagnostics[0].code
                    continue
                return Outcome("wrong", stage, str(compiled))
            got = copied(inputs)
            with np.errstate(all="ignore"), redirect_stdout(StringIO()) as printed:
                if isinstance(compiled, Kernel):
                    stage = f"after the passes for {chip}"
                    run(compiled, got, symbols=dict(case.sizes))
                else:
                    stage = f"run on {chip}"
                    device = _device(chip)
                    launch(compiled, got, device, symbols=dict(case.sizes))
                    if device.statistics is not None and device.statistics.findings:
                        return Outcome("wrong", f"checks on {chip}", str(device.statistics.findings[0]))
            difference = _difference(kernel, got, want, signed_zeros=case.values == "special")
            if difference:
                return Outcome("wrong", stage, difference)
            if sorted(printed.getvalue().splitlines()) != sorted(said.getvalue().splitlines()):
                return Outcome("wrong", stage, f"prints {printed.getvalue()[:200]!r}, not {said.getvalue()[:200]!r}")
        if len(rejected) == len(case.chips):
            return Outcome("rejected", "", " ".join(rejected.values()))
        return Outcome("right", "", " ".join(f"{code} on {chip}" for chip, code in rejected.items()))
    except LaunchError as e:
        codes = {d.code for d in e.diagnostics}
        return Outcome("rejected", "", min(codes)) if codes <= RESOURCES else Outcome("wrong", stage, str(e))
    except (CompileError, DeviceError) as e:
        return Outcome("wrong", stage, str(e))
    except Exception:  # the point of a fuzzer: nothing else may come out
        last = traceback.format_exc().strip().splitlines()
        return Outcome("wrong", stage, "\n".join([last[-1], *last[-9:-1]]))


def _with_schedule(module: Module, chip: str, case: Case) -> Compiled | Kernel | CompileError:
    """What becomes of the kernel, without its schedule if it cannot have that, or why nothing does."""
    try:
        return _compiled(module, chip, case)
    except CompileError as e:
        asked = any(s.target == chip for s in module.schedules)
        if not asked or not {d.code for d in e.diagnostics} <= SCHEDULE | RESOURCES:
            return e
    try:
        return _compiled(Module(module.kernels), chip, case)
    except CompileError as e:
        return e


def _compiled(module: Module, chip: str, case: Case) -> Compiled | Kernel:
    each = "run" if case.boundaries else "off"
    if case.code:
        return compile_kernel(module, "", chip, Options(allow_spills=True, verify_each=each))
    return run_pipeline(module, "", chip, verify_each=each, log=Log()).kernel


def make_inputs(kernel: Kernel, case: Case) -> dict[str, Any]:
    """Arrays for the views, dense or with gaps between rows, and numbers for the scalars."""
    rng = np.random.default_rng(case.seed)
    draw = special_values if case.values == "special" else _integers
    values: dict[str, Any] = {}
    for arg in kernel.args:
        if not isinstance(arg.type, GlobalType):
            values[arg.name] = draw(arg.type.elem, 1, rng)[0].item()  # type: ignore[union-attr]
            continue
        shape = tuple(d if isinstance(d, int) else case.sizes[d] for d in arg.type.dims)
        strides = [1] * len(shape)
        for d in reversed(range(len(shape) - 1)):
            strides[d] = strides[d + 1] * shape[d + 1] + (case.gap if arg.type.strides is not None else 0)
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        flat = draw(arg.type.elem, max(extent, 1), rng)
        size = flat.dtype.itemsize
        values[arg.name] = strided(flat, shape, [s * size for s in strides])
    return values


def special_values(elem: Elem, count: int, rng: np.random.Generator) -> Array:
    """Random elements, a third of them special."""
    if elem.is_int:
        info = np.iinfo(elem.np)
        special = np.array([0, 1, -1, 2, -2, 7, info.min, info.max, info.min + 1, 31, 64], elem.np)
        plain = rng.integers(-100, 100, count).astype(elem.np)
    else:
        f: Any = ml_dtypes.finfo(elem.np)
        limits = [float(x) for x in (f.max, f.min, f.smallest_normal, f.smallest_subnormal, f.eps)]
        special = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, np.inf, -np.inf, np.nan, *limits]).astype(elem.np)
        plain = (rng.standard_normal(count) * 4).astype(elem.np)
    return np.where(rng.random(count) < 1 / 3, special[rng.integers(0, len(special), count)], plain)


def _integers(elem: Elem, count: int, rng: np.random.Generator) -> Array:
    from tileir.fuzz.products import MOST

    if elem.name == "f8E8M0FNU":  # powers of two alone
        return np.exp2(rng.integers(-1, 2, count)).astype(elem.np)
    return rng.integers(-MOST, MOST + 1, count).astype(elem.np)


def copied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Copies that keep strides and what lies between the rows."""
    return {k: clone(v) if isinstance(v, np.ndarray) else v for k, v in values.items()}


def _difference(kernel: Kernel, got: Mapping[str, Any], want: Mapping[str, Any], *, signed_zeros: bool) -> str:
    bounds = _bounds(kernel)
    for name in written_views(kernel):
        right = same(got[name], want[name], signed_zeros)
        if name in bounds and not right.all():
            right |= _near(got[name], want[name], bounds[name])
        wrong = np.argwhere(~right)
        if len(wrong):
            at = tuple(int(i) for i in wrong[0])
            count, size = len(wrong), want[name].size
            return f"%{name}{list(at)} is {got[name][at]}, not {want[name][at]} ({count} of {size} differ)"
    return ""


def _bounds(kernel: Kernel) -> dict[str, float]:
    """For views to which a function's results are stored: its stated bound in units in the last place."""
    found: dict[str, float] = {}
    for op in kernel.walk():
        if op.name == "store" and op.operands[0].owner is not None and op.operands[0].owner.name in all_functions():
            found[op.operands[1].name] = accuracy(op.operands[0].owner.name, op.operands[0].tile.elem.name)[0]
    return found


def _near(got: Array, want: Array, bound: float) -> Array:
    """Within the bound of a function, and half a unit because the interpreter rounds, too."""
    g, w = got.astype(np.float64), want.astype(np.float64)
    f: Any = ml_dtypes.finfo(want.dtype)
    with np.errstate(all="ignore"):
        unit = np.maximum(np.abs(np.spacing(np.abs(want)).astype(np.float64)), float(f.smallest_subnormal))
        largest = np.isinf(w) != np.isinf(g)  # one side of the step to infinity
        top = float(f.max)
        g, w = np.clip(g, -top, top), np.clip(w, -top, top)
        unit = np.where(largest, top * float(f.eps), unit)
        return np.abs(g - w) <= (bound + 0.5) * unit


def same(got: Array, want: Array, signed_zeros: bool = True) -> Array:
    """Equal bits, but for the bits of NaN; sums of zeros in any order may have either sign where `signed_zeros` is false."""
    if want.dtype.kind in "iub":
        return got == want
    g, w = got.astype(np.float64), want.astype(np.float64)
    equal = g == w if not signed_zeros else (g == w) & (np.signbit(g) == np.signbit(w))
    return equal | (np.isnan(g) & np.isnan(w))
