"""Which registers go into which MFMA: found from the layouts of A, B and C alone."""

from __future__ import annotations

import functools

import numpy as np

from tileir.records import dataclass

from .linear import WAVE, IntArray, Layout, LayoutError
from .mfma import elements_per_lane, mfma_accumulator, operand_k

SCALED_TOGETHER = 32
"""Values of k with one scale in the scaled MFMAs (CDNA4 ISA)."""


@dataclass(frozen=True)
class MmaStep:
    """One MFMA: first register of its C, A and B fragments (a fragment is consecutive registers) in tile terms.

    With ``swapped`` the instruction's first operand is the B fragment and its second the A fragment.
    """

    c: int
    a: int
    b: int


@dataclass(frozen=True)
class MmaPlan:
    """All MFMAs of one tile product, k outermost, then C fragments in register order."""

    steps: tuple[MmaStep, ...]
    a_registers: int
    b_registers: int
    c_registers: int


def fragments(layout: Layout, elements: int) -> tuple[range, ...]:
    """Register ranges of the instruction fragments of a tile, ``elements`` registers each.

    Raises:
        LayoutError: the registers do not divide into fragments.
    """
    if elements < 1 or layout.num_registers % elements:
        raise LayoutError(f"{layout.num_registers} registers do not divide into fragments of {elements}")
    return tuple(range(i, i + elements) for i in range(0, layout.num_registers, elements))


@functools.lru_cache(maxsize=256)
def mma_plan(
    a: Layout,
    b: Layout,
    c: Layout,
    *,
    instr: tuple[int, int, int],
    operand_bits: int | tuple[int, int],
    swapped: bool = False,
) -> MmaPlan:
    """Find, from the three layouts alone, the MFMAs that compute C += A·B, or say why there are none.

    Every C fragment must lie in the instruction's accumulator map, every operand fragment in its row map, and a pair is
    multiplied when both hold the same k wherever the instruction multiplies two elements (the lanes that hold these differ
    where A and B have elements of different widths); the pairs of a C fragment must
    cover every k once. So any layouts that are right are accepted, whoever wrote them.

    Raises:
        LayoutError: the layouts do not fit the instruction or each other.
    """
    m, n, k = instr
    bits_a, bits_b = operand_bits if isinstance(operand_bits, tuple) else (operand_bits, operand_bits)
    if a.rank != 2 or b.rank != 2 or c.rank != 2:
        raise LayoutError("mma needs tiles of rank 2")
    if (a.shape[0], b.shape[1], a.shape[1]) != (c.shape[0], c.shape[1], b.shape[0]):
        raise LayoutError(f"mma of {list(a.shape)} and {list(b.shape)} into {list(c.shape)}: shapes do not match")
    if not a.num_waves == b.num_waves == c.num_waves:
        raise LayoutError(f"the layouts have {a.num_waves}, {b.num_waves} and {c.num_waves} waves; they must be equal")
    acc = (
        mfma_accumulator(n, m, bits=max(32, bits_a)).transpose((1, 0))
        if swapped
        else mfma_accumulator(m, n, bits=max(32, bits_a))
    )
    c_origin = _accumulator_origins(c, acc)
    a_row, a_k = _operand_origins("A", a, 0, m, k, bits_a)
    b_row, b_k = _operand_origins("B", b, 1, n, k, bits_b)
    by_row_a = _group([x.tobytes() for x in a_row])
    by_row_b = _group([x.tobytes() for x in b_row])
    b_keys = [x.tobytes() for x in b_k]
    a_keys = [x.tobytes() for x in a_k]
    found: list[tuple[int, int, MmaStep]] = []
    sizes = a.num_registers // len(a_row), b.num_registers // len(b_row), c.num_registers // len(c_origin)
    rank_of_k = {key: i for i, key in enumerate(dict.fromkeys(a_keys))}
    k_needed = a.padded_shape[1]
    covers: dict[tuple[bytes, ...], bool] = {}
    for fc, origin in enumerate(c_origin):
        rows = by_row_a.get(np.ascontiguousarray(origin[:, 0]).tobytes(), [])
        cols = by_row_b.get(np.ascontiguousarray(origin[:, 1]).tobytes(), [])
        b_at = {b_keys[fb]: fb for fb in reversed(cols)}
        pairs: dict[bytes, tuple[int, int]] = {}
        for fa in rows:
            if a_keys[fa] in b_at and a_keys[fa] not in pairs:
                pairs[a_keys[fa]] = fa, b_at[a_keys[fa]]
        held = tuple(pairs)
        if held not in covers:
            covers[held] = _covers([a_k[fa] for fa, _ in pairs.values()], k_needed)
        if not covers[held]:
            where = [int(x) for x in origin[0]]
            raise LayoutError(
                f"the fragment of C at {where} cannot be computed with {m}x{n}x{k}: the fragments of A and B that "
                f"wave 0 holds for it do not cover k = 0 .. {k_needed - 1} in a common order; use the layouts of one "
                "wave grid and one k order"
            )
        found += [
            (rank_of_k[key], fc, MmaStep(fc * sizes[2], fa * sizes[0], fb * sizes[1]))
            for key, (fa, fb) in pairs.items()
        ]
    found.sort(key=lambda x: x[:2])
    return MmaPlan(tuple(step for _, _, step in found), *sizes)


@functools.lru_cache(maxsize=256)
def scale_registers(
    plan: MmaPlan,
    operands: tuple[Layout, Layout],
    scales: tuple[Layout, Layout],
    instr: tuple[int, int, int],
    operand_bits: tuple[int, int],
) -> tuple[tuple[int, int], ...]:
    """For every step of a plan the registers with the scales of its A and B fragments.

    A scale register holds in lane ``rows * j + i`` the scale of row i and of the j-th block of 32 values of k of the instruction
    (CDNA4 ISA, scaled MFMAs): a fragment of an instruction whose k counts blocks.

    Raises:
        LayoutError: no register holds the scales of a fragment so.
    """
    found: list[dict[tuple[bytes, bytes], int]] = []
    keys: list[list[tuple[bytes, bytes]]] = []
    for axis in (0, 1):
        rows, blocks = instr[axis], instr[2] // SCALED_TOGETHER
        if blocks < 1 or rows * blocks != WAVE:
            raise LayoutError(f"{'x'.join(map(str, instr))} takes no scales: 16x16x128 and 32x32x64 do")
        row, k = _operand_origins("AB"[axis], operands[axis], axis, rows, instr[2], operand_bits[axis])
        together = [x.reshape(len(x), blocks, SCALED_TOGETHER) // SCALED_TOGETHER for x in k]
        if any(np.any(x != x[:, :, :1]) for x in together):
            raise LayoutError(
                f"the order of k of {'AB'[axis]} mixes blocks of {SCALED_TOGETHER}, which have one scale each"
            )
        keys.append(
            [(r.tobytes(), np.ascontiguousarray(x[:, :, 0]).tobytes()) for r, x in zip(row, together, strict=True)]
        )
        held = zip(*_operand_origins(f"the scales of {'AB'[axis]}", scales[axis], axis, rows, blocks, 8), strict=True)
        found.append(
            {(r.tobytes(), np.ascontiguousarray(x).tobytes()): i for i, (r, x) in reversed(list(enumerate(held)))}
        )
    out: list[tuple[int, int]] = []
    for step in plan.steps:
        places = (step.a // plan.a_registers, step.b // plan.b_registers)
        own = [found[i].get(keys[i][places[i]]) for i in (0, 1)]
        if own[0] is None or own[1] is None:
            raise LayoutError("no register holds the scales of a fragment; use the layouts that the operands' imply")
        out.append((own[0], own[1]))
    return tuple(out)


def _covers(ks: list[IntArray], extent: int) -> bool:
    """Whether the fragments together hold each k below ``extent`` exactly once, in every wave."""
    if not ks:
        return False
    held = np.sort(np.concatenate(ks, axis=1), axis=1)
    return np.array_equal(held, np.broadcast_to(np.arange(extent), (len(held), extent)))


def _group(keys: list[bytes]) -> dict[bytes, list[int]]:
    out: dict[bytes, list[int]] = {}
    for i, key in enumerate(keys):
        out.setdefault(key, []).append(i)
    return out


def _accumulator_origins(c: Layout, acc: Layout) -> list[IntArray]:
    """Per C fragment: int64 [waves, 2], coordinates of the fragment's element (0, 0)."""
    size = acc.num_registers
    ranges = fragments(c, size)
    held = [x.reshape(c.num_waves, WAVE, len(ranges), size) for x in c.holders()]
    fits = np.ones(len(ranges), dtype=np.bool_)
    for x, want in zip(held, acc.holders(), strict=True):
        fits &= (x - x[:, :1, :, :1] == want[0][:, None, :]).all(axis=(0, 1, 3))
    if not fits.all():
        f = ranges[int(np.argmin(fits))]
        raise LayoutError(
            f"registers {f.start} .. {f.stop - 1} of C are not an accumulator fragment of the instruction "
            f"({acc}); use the layout that mma_layouts gives, or convert"
        )
    origins = np.stack([x[:, 0, :, 0] for x in held])
    return [np.ascontiguousarray(origins[:, :, f].T) for f in range(len(ranges))]


def _operand_origins(
    name: str, x: Layout, row_axis: int, rows: int, k: int, bits: int
) -> tuple[list[IntArray], list[IntArray]]:
    """Per fragment: first row of each wave [waves], and the k held [waves, k of the instruction]."""
    size = elements_per_lane(rows, k)
    place = np.argsort(operand_k(rows, k, bits=bits), axis=None)
    table = x.owner_table()
    lanes = np.arange(WAVE)
    origins: list[IntArray] = []
    ks: list[IntArray] = []
    for f in fragments(x, size):
        part = table[:, :, f.start : f.stop, :]
        row = part[..., row_axis]
        origin = row[:, 0, 0]
        k_held = part[..., 1 - row_axis].reshape(x.num_waves, WAVE // rows, rows, size)
        if not np.array_equal(
            row - origin[:, None, None], np.broadcast_to((lanes % rows)[:, None], row.shape)
        ) or np.any(k_held != k_held[:, :, :1, :]):
            raise LayoutError(
                f"registers {f.start} .. {f.stop - 1} of {name} are not an operand fragment {rows} x {k} of {bits}-bit "
                "elements: lane l must hold row l % rows, and lanes of the same group the same k"
            )
        origins.append(np.ascontiguousarray(origin))
        ks.append(np.ascontiguousarray(k_held[:, :, 0, :].reshape(x.num_waves, -1)[:, place]))
    return origins, ks
