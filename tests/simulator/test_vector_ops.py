"""Every vector op: native library against the NumPy specification."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_harness import EXEC, Bench, instruction, s, v
from simulator_samples import rounds, ulp_distance

from tileir.simulator.spec import convert, vector_float, vector_int  # noqa: F401  (they fill the table)
from tileir.simulator.spec import media as _media  # noqa: F401
from tileir.simulator.spec.core import DTYPES, VECTOR, Spec


def _mask_to_int(mask: np.ndarray) -> int:
    return sum(1 << i for i, bit in enumerate(mask) if bit)


def _int_to_mask(value: int) -> np.ndarray:
    return np.array([bool(value >> i & 1) for i in range(64)])


def _one_nan(x: np.ndarray) -> np.ndarray:
    """The dwords with the same pattern in every half that is a NaN."""
    halves = np.ascontiguousarray(x).view(np.float16)
    return np.where(np.isnan(halves), np.uint16(0x7E00), halves.view(np.uint16)).view(np.uint32)


def check(spec: Spec, got: np.ndarray, want: np.ndarray, active: np.ndarray, inputs: list[np.ndarray]) -> None:
    """Compares the active lanes; float results up to ``spec.ulp``."""
    want = np.asarray(want)
    assert want.dtype == got.dtype, f"{spec.name}: specification gives {want.dtype}"
    if got.dtype.kind == "f":
        distance = ulp_distance(got, want)
        bad = active & (distance > spec.ulp)
        if spec.ulp == 0:
            integer = f"u{got.dtype.itemsize}"
            bad |= active & ~np.isnan(want) & (got.view(integer) != want.view(integer))
    else:
        if spec.halves:
            got, want = _one_nan(got), _one_nan(want)
        bad = active & (got != want)
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        shown = ", ".join(f"{x[i]!r}" for x in inputs)
        pytest.fail(f"{spec.name}({shown}): native {got[i]!r}, specification {want[i]!r}")


def check_op(name: str) -> None:
    """Also v_cmpx: the comparison, whose result goes to EXEC, too."""
    spec = VECTOR[name.replace("v_cmpx", "v_cmp")]
    bench = Bench("gfx950")
    rng = np.random.default_rng(len(name))
    destinations = [
        v(10 + 4 * i, 2 if t.endswith("64") else 1) if t != "mask" else s(20 + 2 * i, 2)
        for i, t in enumerate(spec.results)
    ]
    sources = [
        v(30 + 4 * i, 2 if t.endswith("64") else 1) if t != "mask" else s(40 + 2 * i, 2)
        for i, t in enumerate(spec.sources)
    ]
    kinds = [t for t in spec.sources if t != "mask"]
    if spec.accumulate:
        kinds.append(spec.results[0])
    old = np.arange(64, dtype=np.uint32) * 0x01010101
    for number, patterns in enumerate(rounds(kinds, seed=len(name))):
        bench.exec = (1 << 64) - 1 if number % 3 else 0xF0F0_1234_5678_9ABC
        active = _int_to_mask(bench.exec)
        for d, t in zip(destinations, spec.results, strict=True):
            if t != "mask":
                for k in range(d.count):
                    bench.row(d, k)[:] = old
        queue = iter(patterns)
        inputs: list[np.ndarray] = []
        for operand, t in zip(sources, spec.sources, strict=True):
            if t == "mask":
                bits = int(rng.integers(0, 1 << 63)) * 2 + number % 2
                bench.set_sgpr64(operand.index, bits)
                inputs.append(_int_to_mask(bits))
            else:
                values = next(queue).view(DTYPES[t])
                bench.set(operand, values)
                inputs.append(values)
        if spec.accumulate:
            values = next(queue).view(DTYPES[spec.results[0]])
            bench.set(destinations[0], values)
            inputs.append(values)
        if spec.vcc:
            bench.vcc = int(rng.integers(0, 1 << 63))
            inputs.append(_int_to_mask(bench.vcc))
        if spec.lane:
            inputs.append(np.arange(64))
        before = [bench.row(d).copy() if t != "mask" else None for d, t in zip(destinations, spec.results, strict=True)]
        copy = instruction("s_mov_b64", s(50, 2), EXEC, encoding="sop1", size=4)
        bench.must_run(instruction(name, *destinations, *sources), copy)
        with np.errstate(all="ignore"):
            wanted = spec.function(*inputs)
        for i, (d, t) in enumerate(zip(destinations, spec.results, strict=True)):
            want = wanted[i] if isinstance(wanted, tuple) else wanted
            if t == "mask":
                got = _int_to_mask(bench.sgpr64(d.index))
                assert not (got & ~active).any(), f"{name} sets bits of inactive lanes"
                if "cmpx" in name:
                    assert bench.sgpr64(50) == bench.sgpr64(d.index)
            else:
                got = bench.get(d, DTYPES[t])
                unchanged = bench.row(d)[~active] == before[i][~active]
                assert unchanged.all(), f"{name} writes inactive lanes"
            check(spec, got, np.asarray(want), active, inputs)
