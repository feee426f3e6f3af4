"""Counter-based random numbers: Philox-4x32-10 (Salmon et al., SC 2011), reproducible on any host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tileir.ir.ops.common import broadcast_shape, elementwise_layout
from tileir.ir.registry import Check, OpDef, declare
from tileir.ir.types import F32, I32, TileType, Type

# Multipliers and Weyl increments of Philox-4x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def philox4x32(counter: Sequence[Any], key: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
    """The Philox-4x32-10 block function: four counter words and two key words in, four words out, each a uint64 array
    whose values are below 2^32."""
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0, c1, c2, c3 = (np.asarray(c, np.uint64) for c in counter)
    k0, k1 = (np.asarray(k, np.uint64) for k in key)
    for _ in range(ROUNDS):
        p0, p1 = c0 * np.uint64(MULTIPLIERS[0]), c2 * np.uint64(MULTIPLIERS[1])
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ k0, p1 & mask, (p0 >> shift) ^ c3 ^ k1, p0 & mask
        k0, k1 = (k0 + np.uint64(WEYL[0])) & mask, (k1 + np.uint64(WEYL[1])) & mask
    return c0, c1, c2, c3


def philox_bits(seed: Any, counter: Any) -> Any:
    """First 32-bit word of the Philox-4x32-10 block with key = `seed` (low and high word) and counter block
    (low word of `counter`, high word, 0, 0). Arrays of i64 in, uint32 out."""
    return np.asarray(philox4x32((*_words(counter), 0, 0), _words(seed))[0]).astype(np.uint32)


def _words(x: Any) -> tuple[Any, Any]:
    x = np.asarray(x, np.int64).view(np.uint64)
    return x & np.uint64(0xFFFFFFFF), x >> np.uint64(32)


def _rule(elem: Any) -> Any:
    def rule(c: Check) -> Sequence[Type]:
        tiles = [c.tile(0), c.tile(1)]
        for i, t in enumerate(tiles):
            if t.elem.name != "i64":
                c.fail("E0343", f"'{c.name}' wants i64, not {t.elem}", i, legal="convert<i64>(…)")
        shape = broadcast_shape(c, tiles)
        return [TileType(elem, shape, elementwise_layout(c, shape, tiles))]

    return rule


def _shape(op: Any) -> tuple[int, ...]:
    return op.results[0].tile.shape


declare(
    OpDef(
        "philox_bits",
        "32 random bits for each (seed, counter): the first word of Philox-4x32-10 with key = seed and counter block (low, high, 0, 0).",
        ("seed", "counter"),
        _rule(I32),
        elementwise=True,
        literals=("i64",),
        category="random",
        semantics=lambda ctx, op, args: np.broadcast_to(
            philox_bits(args[0], args[1]).view(np.int32), _shape(op)
        ).copy(),
        example="%r = philox_bits(%seed, %n) : tile<i32[64]>",
    )
)
declare(
    OpDef(
        "philox_uniform",
        "An f32 in [0, 1) for each (seed, counter): the upper 24 of the bits of philox_bits, times 2^-24.",
        ("seed", "counter"),
        _rule(F32),
        elementwise=True,
        literals=("i64",),
        category="random",
        semantics=lambda ctx, op, args: np.broadcast_to(
            (philox_bits(args[0], args[1]) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24), _shape(op)
        ).copy(),
        example="%r = philox_uniform(%seed, %n) : tile<f32[64]>",
    )
)
