"""Compiling and running kernels in tests: one compile per distinct text, one device per chip."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from tileir import kernels
from tileir.frontend import parse
from tileir.lowering.amdgpu.compile import Compiled, compile_kernel
from tileir.runtime import Device, compare, gemm_bound, get_device, launch

CHIPS = ("gfx942", "gfx950")
DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "i32": np.int32}
INSTRUCTION = {"gfx942": "16x16x16", "gfx950": "16x16x32"}


_devices: dict[str, tuple[Device, int]] = {}


def device(name: str) -> Device:
    """The device of that name; a new one now and then, since a simulated one keeps all code that it has run."""
    found, uses = _devices.get(name, (None, 0))
    if found is None or uses >= 64:
        found, uses = get_device(name), 0
    _devices[name] = found, uses + 1
    return found


@lru_cache(maxsize=64)
def compiled(text: str, chip: str, params: tuple[tuple[str, object], ...] = (), kernel: str = "") -> Compiled:
    """The kernel of a text for a chip; its name, where the text has several."""
    return compile_kernel(parse(text, "kernel.tile", dict(params)), kernel, chip)


def library(name: str, chip: str, **params: object) -> Compiled:
    """A kernel of the library with parameters."""
    return compiled(kernels.source(name), chip, tuple(params.items()))


def scheduled_gemm(chip: str, waves: str, tile: tuple[int, int, int], dtype: str = "bf16", extra: str = "") -> Compiled:
    """The library's GEMM under a schedule with a wave grid such as "2 x 4"."""
    text = kernels.source("gemm") + (
        f"\nschedule @s of @gemm for {chip} {{\n  waves %acc {waves}\n  mma %d {INSTRUCTION[chip]}\n{extra}}}\n"
    )
    bm, bn, bk = tile
    return compiled(text, chip, (("BM", bm), ("BN", bn), ("BK", bk), ("T", dtype)))


def integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, most: int = 3) -> np.ndarray[Any, Any]:
    """Small integers: every product and sum of them is exact, so results must be equal bit by bit."""
    return rng.integers(-most, most + 1, shape).astype(dtype)


def check_gemm(kernel: Compiled, chip: str, m: int, n: int, k: int, dtype: str = "bf16", seed: int = 0) -> None:
    """C = A·Bᵀ on random values within the bound of f32 accumulation over k terms, rounded once to the output type
    (see `gemm_bound`), with guard elements around C that must stay as they are."""
    rng = np.random.default_rng(seed + 7919 * m + 104729 * n + k)
    t = DTYPES[dtype]
    a = rng.standard_normal((m, k)).astype(t)
    b = rng.standard_normal((n, k)).astype(t)
    frame = np.full((m + 2, n + 3), 77, t)
    c = frame[1 : m + 1, 1 : n + 1]
    launch(kernel, {"A": a, "B": b, "C": c}, device(f"simulator:{chip}"))
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    result = compare(c, exact, gemm_bound(a, b.T, kernel.kernel.args[2].type.elem))
    assert result.ok, f"{m}x{n}x{k}: {result}"
    frame[1 : m + 1, 1 : n + 1] = 77
    assert np.all(frame == 77), f"{m}x{n}x{k}: wrote outside C"
