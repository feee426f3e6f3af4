"""Every AMDGPU builtin of clang 22 that a chip has, compiled in this test run, against the NumPy specifications.

One object per chip holds a kernel for each builtin and choice of constants. A builtin that is neither called nor listed as
left out fails, so that a newer clang's additions are noticed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from builtin_cases import NUMPY, Array, Call, Family, family, values
from builtin_kernels import KERNELS, LEFT_OUT, PREAMBLE, Kernel, left_out
from builtins_list import PREFIX, Builtin, Type, available, library

from tests.simulator.simulator_compile import from_c
from tileir.simulator import Simulator
from tileir.simulator.decoder import decode

CHIPS = ("gfx942", "gfx950")
OPTIONS = ("-flax-vector-conversions=all", "-Wno-everything", "-O1")


def size(t: Type) -> int:
    """Bytes of a value in an array; vectors take a power of two of elements."""
    n = 1 << (max(1, t.count) - 1).bit_length()
    return n * np.dtype(NUMPY[t.element]).itemsize


def constant_places(builtin: Builtin, one: Family) -> list[int]:
    return [i for i, t in enumerate(builtin.signature) if i and (t.constant or i in one.fixed)]


def kernel_text(builtin: Builtin, one: Family, number: int, constants: tuple[int, ...]) -> str:
    """``out[lane] = builtin(a1[lane], constant, …)``."""
    signature = builtin.signature
    places = constant_places(builtin, one)
    parameters, arguments = [], []
    for i, t in enumerate(signature[1:], 1):
        if i in places:
            arguments.append(str(constants[places.index(i)]))
        else:
            parameters.append(f", GLOBAL {t.c} *a{i}")
            arguments.append(f"a{i}[TID]" + (" != 0" if t.element == "bool_" else ""))
    call = f"{PREFIX}{builtin.name}({', '.join(arguments)})"
    result = "int" if signature[0].element == "bool_" else f"__typeof__({call})"
    declared = "".join(p.replace("GLOBAL ", "GLOBAL ") for p in parameters)
    # the element type of the output cannot be named before the parameters are
    return (
        f"KERNEL void k_{builtin.name}_{number}(GLOBAL void *out{declared}) {{\n"
        f"  typedef {result} R; ((GLOBAL R *)out)[TID] = {call};\n}}\n"
    )


def typedefs() -> str:
    text = "typedef int bool_; typedef _Float16 half; typedef __bf16 bf16;\n"
    for element in ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "float", "double", "half", "bf16"):
        for n in (2, 3, 4, 6, 8, 16, 32):
            text += f"typedef {element} v{n}{element} __attribute__((ext_vector_type({n})));\n"
    return text


def wanted(chip: str) -> list[tuple[Builtin, Family]]:
    """The builtins that are called lane by lane."""
    out = []
    for builtin in available(chip):
        if left_out(builtin.name, chip) or builtin.name in KERNELS:
            continue
        one = family(builtin.name, sum(t.constant for t in builtin.signature[1:]))
        if one is not None:
            out.append((builtin, one))
    return out


def own_kernels(chip: str) -> dict[str, Kernel]:
    return {n: k for n, k in KERNELS.items() if chip in k.chips}


@pytest.fixture(scope="module", params=CHIPS)
def module(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A simulator with all the kernels of a chip."""
    chip = request.param
    if library() is None:
        pytest.skip("clang-22 is not installed")
    text = typedefs()
    for builtin, one in wanted(chip):
        for number, constants in enumerate(one.constants):
            text += kernel_text(builtin, one, number, constants)
    text += PREAMBLE + "".join(f"KERNEL void c_{n}{k.source}\n" for n, k in own_kernels(chip).items())
    simulator = Simulator(chip)
    yield simulator, simulator.load(from_c(text, chip, *OPTIONS))


@cache
def names_of(code: Any, kernel: str, chip: str) -> list[str]:
    """The instructions of a kernel."""
    k = code.kernel(kernel)
    data, out, offset = code.read(k.entry_address, k.code_size), [], 0
    while offset < len(data):
        inst = decode(chip, data, offset)
        out.append(inst.name)
        offset += inst.size
        if inst.name == "s_endpgm":
            break
    return out


def stored(x: Array, bytes_each: int) -> Array:
    """Values as they lie in memory."""
    raw = np.ascontiguousarray(x.reshape(64, -1)).view(np.uint8).reshape(64, -1)
    out = np.zeros((64, bytes_each), np.uint8)
    out[:, : raw.shape[1]] = raw
    return out


def differs(got: Array, want: Array, ulp: int) -> Array:
    """Where values differ; NaNs are alike."""
    if got.dtype.kind in "iu":
        return got != want
    integer = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}[got.dtype.itemsize]
    g, w = got.astype(np.float64), want.astype(np.float64)
    both = np.isnan(g) & np.isnan(w)
    patterns = [np.ascontiguousarray(x).view(integer).astype(object) for x in (got, want)]
    top = 1 << 8 * got.dtype.itemsize - 1
    ordered = [np.where(p < 0, -(p + top), p) for p in patterns]
    near = np.abs(ordered[0] - ordered[1]) <= ulp
    if ulp == 0:
        near = patterns[0] == patterns[1]
    return ~(both | near.astype(bool))


def check(simulator: Simulator, loaded: Any, builtin: Builtin, one: Family, number: int) -> None:
    chip, constants, signature = loaded.code.chip, one.constants[number], builtin.signature
    kernel = f"k_{builtin.name}_{number}"
    found = [n for n in names_of(loaded.code, kernel, chip) if n.startswith(one.picks)] if one.picks else []
    assert found or not one.picks, f"{builtin.name}: no {one.picks} in {names_of(loaded.code, kernel, chip)}"
    rng = np.random.default_rng(zlib.crc32(kernel.encode()))
    places = constant_places(builtin, one)
    open_ = [t for i, t in enumerate(signature) if i and i not in places]
    call = Call(builtin.name, chip, found[-1] if found else "", list(constants), len(open_))
    for _ in range(2):
        call.arguments = [
            one.arguments(rng, call, i, t.element, t.count) if one.arguments else values(rng, t.element, t.count)
            for i, t in enumerate(open_)
        ]
        out_type = Type("i32") if signature[0].element == "bool_" else signature[0]
        buffers = [simulator.memory.allocate(64 * size(t), f"argument {i}") for i, t in enumerate([out_type, *open_])]
        for buffer, t, x in zip(buffers[1:], open_, call.arguments, strict=True):
            buffer.write(stored(x, size(t)))
        loaded.launch(kernel, (1, 1, 1), (64, 1, 1), buffers)
        dtype = np.dtype(NUMPY[out_type.element])
        width = max(1, out_type.count) * dtype.itemsize
        got = np.ascontiguousarray(buffers[0].read(np.uint8).reshape(64, -1)[:, :width])
        with np.errstate(all="ignore"):
            want = np.asarray(one.expected(call))
        if want.dtype == bool:
            want = want.astype(np.int32)
        shown = np.ascontiguousarray(stored(want, width))
        # compared as the C type where it is a float, else as what the specification gives
        compared = (
            dtype if dtype.kind in "fV" else want.dtype if want.dtype.kind == "f" else np.dtype(f"u{dtype.itemsize}")
        )
        g, w = (x.reshape(-1).view(compared).reshape(64, -1) for x in (got, shown))
        if g.dtype.kind in "iu":
            counted = np.array([one.bits(call) & (1 << 8 * g.dtype.itemsize) - 1], np.uint64).astype(g.dtype)
            g, w = g & counted, w & counted
        bad = np.flatnonzero(differs(g, w, one.ulp).any(1))
        assert not len(bad), (
            f"{kernel} {constants} {call.instruction} lane {bad[0]}: {[a[bad[0]] for a in call.arguments]} "
            f"gives {g[bad[0]]}, specification {w[bad[0]]}"
        )
        for buffer in buffers:
            simulator.memory.free(buffer)


def check_own(simulator: Simulator, loaded: Any, name: str, kernel: Kernel) -> None:
    run = kernel.run(np.random.default_rng(zlib.crc32(name.encode())))
    buffers = [simulator.memory.allocate(a.nbytes, f"argument {i}") for i, a in enumerate(run.arrays)]
    for buffer, array in zip(buffers, run.arrays, strict=True):
        buffer.write(array.view(np.uint8) if array.dtype.kind == "V" else array)
    loaded.launch(f"c_{name}", run.grid, run.block, buffers)
    for position, want in run.expected.items():
        given = run.arrays[position]
        got = buffers[position].read(np.uint8).view(given.dtype)
        if callable(want):
            assert want(got), got
        else:
            bad = np.flatnonzero(differs(got, np.asarray(want).astype(given.dtype).reshape(got.shape), 0))
            assert not len(bad), (position, bad[:4], got[bad[:4]], np.asarray(want).reshape(got.shape)[bad[:4]])
    for buffer in buffers:
        simulator.memory.free(buffer)


def test_builtins_with_kernels_of_their_own(module: Any) -> None:
    simulator, loaded = module
    failures = []
    for name, kernel in own_kernels(loaded.code.chip).items():
        try:
            check_own(simulator, loaded, name, kernel)
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {str(error)[:400]}")
    assert not failures, "\n".join(failures)


def test_builtins(module: Any) -> None:
    simulator, loaded = module
    failures = []
    for builtin, one in wanted(loaded.code.chip):
        for number in range(len(one.constants)):
            try:
                check(simulator, loaded, builtin, one, number)
            except Exception as error:
                failures.append(f"{builtin.name} {one.constants[number]}: {type(error).__name__}: {str(error)[:400]}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("chip", CHIPS)
def test_every_builtin_is_called_or_left_out(chip: str) -> None:
    if library() is None:
        pytest.skip("clang-22 is not installed")
    names = {b.name for b in available(chip)}
    called = {b.name for b, _ in wanted(chip)} | set(own_kernels(chip))
    assert not {n for n in names - called if not left_out(n, chip)}
    assert not set(LEFT_OUT) - names - {n for c in CHIPS for n in (b.name for b in available(c))}
