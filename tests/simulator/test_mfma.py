"""Matrix instructions: lane maps against the specification, and by hand where emulators are known to be wrong."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_harness import Bench, a, imm, instruction, v

from tileir.simulator.native.registry import OPS
from tileir.simulator.spec import matrix
from tileir.target import get

RNG = np.random.default_rng(3)
NAMES = sorted(name for name in OPS if name.startswith("v_mfma_"))


def test_every_dense_instruction_of_the_targets_is_executed() -> None:
    for chip in ("gfx942", "gfx950"):
        missing = [m.name for m in get(chip).mfmas if not m.sparse and "v_" + m.name.removeprefix("v_") not in OPS]
        assert not missing


def _registers(name: str, kinds: tuple[str, str]) -> tuple[int, int, int]:
    result, m, k, blocks, _ = matrix.parse(name)
    per_lane = k if blocks > 1 and result != "f64" else max(1, k * m * blocks // 64)
    d = m * m * blocks // 64 * (2 if result == "f64" else 1)
    return per_lane * matrix.BITS[kinds[0]] // 32, per_lane * matrix.BITS[kinds[1]] // 32, d


def _small_integers(kind: str, chip: str, count: int) -> np.ndarray:
    """Registers of small integers: products and sums are exact in every order."""
    bits = matrix.BITS[kind]
    per = 32 // bits if bits < 32 and bits != 6 else 1
    if bits == 64:
        raw = RNG.integers(-4, 5, (count // 2, 64)).astype(np.float64).view(np.uint32).reshape(count // 2, 64, 2)
        return raw.transpose(0, 2, 1).reshape(count, 64)
    if bits == 32:
        return RNG.integers(-4, 5, (count, 64)).astype(np.float32).view(np.uint32)
    if bits == 6:
        return RNG.integers(0, 1 << 32, (count, 64)).astype(np.uint32)
    small = f"{kind}fnuz" if kind in ("fp8", "bf8") and chip == "gfx942" else kind
    if kind == "i8":
        codes = RNG.integers(0, 256, (count, per, 64))
    elif kind == "bf16":
        codes = RNG.integers(-4, 5, (count, per, 64)).astype(np.float32).view(np.uint32) >> 16
    elif kind == "f16":
        codes = RNG.integers(-4, 5, (count, per, 64)).astype(np.float16).view(np.uint16)
    else:
        table = np.array(
            [
                matrix.encode_small(float(x), small) if small in matrix.SMALL and matrix.SMALL[small][3] else i
                for i, x in enumerate(range(-4, 5))
            ]
        )
        codes = table[RNG.integers(0, 9, (count, per, 64))]
    out = np.zeros((count, 64), np.uint32)
    for i in range(per):
        out |= codes[:, i].astype(np.uint32) << np.uint32(bits * i)
    return out


def _run(
    name: str,
    chip: str,
    regs: tuple[np.ndarray, np.ndarray, np.ndarray],
    accumulation: bool = False,
    distance: int = 40,
    **modifiers: int,
) -> np.ndarray:
    """The registers of D, which start `distance` registers before those of C."""
    bench = Bench(chip)
    ra, rb, rc = regs
    maker = a if accumulation else v
    d, c = maker(40 - distance, len(rc)), maker(40, len(rc))
    x, y = v(100, len(ra)), v(120, len(rb))
    for operand, values in ((x, ra), (y, rb), (c, rc)):
        for i, row in enumerate(values):
            bench.row(operand, i)[:] = row
    bench.exec = 0x1234  # EXEC does not matter
    bench.must_run(instruction(name, d, x, y, c, encoding="mai", **modifiers))
    return np.stack([bench.row(d, i).copy() for i in range(len(rc))])


def _numbers(result: str, registers: np.ndarray) -> np.ndarray:
    if result == "f64":
        pairs = registers.reshape(-1, 2, 64).transpose(0, 2, 1)
        return np.ascontiguousarray(pairs).view(np.float64)[:, :, 0]
    return registers.view(np.float32 if result == "f32" else np.int32).astype(np.float64)


def _chips(name: str) -> list[str]:
    return [
        chip for chip in ("gfx942", "gfx950") if any("v_" + m.name.removeprefix("v_") == name for m in get(chip).mfmas)
    ]


def check_op(name: str) -> None:
    """Exact on small integers; the scaled forms are tested below, in all pairs of formats."""
    result, _m, _k, _blocks, kinds = matrix.parse(name)
    chips = _chips(name)
    assert chips, "an instruction of neither chip"
    formats = (kinds[0], kinds[1]) if kinds[0] != "f8f6f4" else ("fp8", "bf8")
    for chip in chips:
        na, nb, nd = _registers(name, formats)
        ra, rb = _small_integers(formats[0], chip, na), _small_integers(formats[1], chip, nb)
        if result == "f64":
            rc = _small_integers("f64", chip, nd)
        elif result == "f32":
            rc = _small_integers("f32", chip, nd)
        else:
            rc = RNG.integers(0, 1 << 31, (nd, 64)).astype(np.uint32)
        modifiers = {"cbsz": 0, "blgp": 1} if kinds[0] == "f8f6f4" else {}
        want, _ = matrix.multiply(name, chip, ra, rb, rc, formats)
        if result == "i32":
            want = (want.astype(np.int64) + (1 << 31)) % (1 << 32) - (1 << 31)
        for accumulation in (False, True):
            got = _numbers(result, _run(name, chip, (ra, rb, rc), accumulation, **modifiers))
            assert np.array_equal(got, want), f"{name} on {chip}"


@pytest.mark.parametrize("name", [n for n in NAMES if "f16" in n and "_f32_" in n])
def test_random_values_within_bound(name: str) -> None:
    """|error| <= (k + 1) · 2**-24 · sum of magnitudes: one rounding of at most half an ulp for each of k + 1 terms."""
    _, _m, k, _blocks, kinds = matrix.parse(name)
    chip = _chips(name)[-1]
    na, nb, nd = _registers(name, (kinds[0], kinds[1]))
    dtype = np.float16 if kinds[0] == "f16" else None

    def random(count: int) -> np.ndarray:
        values = RNG.normal(size=(count, 2, 64)).astype(np.float32)
        codes = values.astype(dtype).view(np.uint16) if dtype else values.view(np.uint32) >> 16
        return codes[:, 0].astype(np.uint32) | codes[:, 1].astype(np.uint32) << 16

    ra, rb = random(na), random(nb)
    rc = RNG.normal(size=(nd, 64)).astype(np.float32).view(np.uint32)
    want, size = matrix.multiply(name, chip, ra, rb, rc)
    got = _numbers("f32", _run(name, chip, (ra, rb, rc)))
    assert (np.abs(got - want) <= (k + 1) * 2.0**-24 * size).all()


@pytest.mark.parametrize(
    "formats", [(p, q) for p in ("fp8", "bf8", "fp6", "bf6", "fp4") for q in ("fp8", "bf8", "fp6", "bf6", "fp4")]
)
@pytest.mark.parametrize("name", ["v_mfma_scale_f32_16x16x128_f8f6f4", "v_mfma_scale_f32_32x32x64_f8f6f4"])
def test_scaled(name: str, formats: tuple[str, str]) -> None:
    check_scaled(name, formats)


def check_scaled(name: str, formats: tuple[str, str]) -> None:
    """A product with scales per 32 elements of k, which op_sel and op_sel_hi take from bytes 1 and 3."""
    shape = name.split("_")[4]
    codes = {"fp8": 0, "bf8": 1, "fp6": 2, "bf6": 3, "fp4": 4}
    na, nb, nd = _registers(name, formats)
    ra, rb = (
        (
            RNG.integers(0, 1 << 32, (n, 64)) & (0x77777777 if f == "bf8" else 0x7B7B7B7B if f == "fp8" else 0xFFFFFFFF)
        ).astype(np.uint32)
        for n, f in zip((na, nb), formats, strict=True)
    )
    rc = RNG.normal(size=(nd, 64)).astype(np.float32).view(np.uint32)
    bench = Bench("gfx950")
    d, x, y, c, sa, sb = v(0, nd), v(100, na), v(120, nb), v(40, nd), v(140), v(141)
    scales = [RNG.integers(124, 131, 64).astype(np.uint32) for _ in range(2)]
    noise = np.uint32(0x01020304)
    for operand, values in ((x, ra), (y, rb), (c, rc)):
        for i, row in enumerate(values):
            bench.row(operand, i)[:] = row
    bench.row(sa)[:] = noise & np.uint32(0xFFFF00FF) | scales[0] << 8
    bench.row(sb)[:] = noise & np.uint32(0x00FFFFFF) | scales[1] << 24
    # A takes byte 1 (op_sel 1, op_sel_hi 0), B byte 3 (op_sel 1, op_sel_hi 1).
    bench.must_run(
        instruction(
            name, d, x, y, c, sa, sb, encoding="vop3px2", size=16,
            cbsz=codes[formats[0]], blgp=codes[formats[1]], op_sel=3, op_sel_hi=2,
        )
    )  # fmt: skip
    got = _numbers("f32", np.stack([bench.row(d, i).copy() for i in range(nd)]))
    want, size = matrix.multiply(name, "gfx950", ra, rb, rc, formats, (scales[0], scales[1]))
    k = int(shape.split("x")[2])
    assert np.isfinite(want).all()
    assert (np.abs(got - want) <= (k + 1) * 2.0**-24 * size).all()


@pytest.mark.parametrize("distance", [-3, -2, -1, 1, 2, 3])
@pytest.mark.parametrize(
    "name",
    ["v_mfma_f32_16x16x4_f32", "v_mfma_f32_16x16x16_bf16", "v_mfma_f32_4x4x4_16b_f16", "v_mfma_f64_16x16x4_f64"],
)
def test_result_over_a_part_of_the_accumulator(name: str, distance: int) -> None:
    """LLVM lets D of up to 4 registers overlap C in part: all of C is read before any of D is written."""
    kind = name.rsplit("_", 1)[1]
    na, nb, nd = _registers(name, (kind, kind))
    result = matrix.parse(name)[0]
    regs = tuple(_small_integers(k, "gfx942", n) for k, n in ((kind, na), (kind, nb), (result, nd)))
    apart = _run(name, "gfx942", regs)
    assert np.array_equal(_run(name, "gfx942", regs, distance=distance), apart)


def test_map_of_32x32_by_hand() -> None:
    """One product only: A[r][k] · B[k][c] must land in lane c + 32·(r / 4 % 2), register r % 4 + 4·(r / 8)."""
    for r, c, k in ((0, 0, 0), (5, 31, 9), (13, 7, 15), (31, 17, 4), (22, 30, 11)):
        ra, rb, rc = np.zeros((4, 64), np.uint32), np.zeros((4, 64), np.uint32), np.zeros((16, 64), np.uint32)
        one = 0x3F80  # bf16 1.0; 32x32x16: k = 8·(lane / 32) + element
        for registers, row in ((ra, r), (rb, c)):
            registers[k % 8 // 2, row + 32 * (k // 8)] = one << 16 * (k % 2)
        got = _run("v_mfma_f32_32x32x16_bf16", "gfx950", (ra, rb, rc)).view(np.float32)
        want = np.zeros((16, 64), np.float32)
        want[r % 4 + 4 * (r // 8), c + 32 * (r // 4 % 2)] = 1.0
        assert np.array_equal(got, want)


def test_constant_accumulator() -> None:
    bench = Bench("gfx950")
    x, y, d = v(100, 4), v(120, 4), v(0, 4)
    for operand in (x, y):
        for i in range(4):
            bench.row(operand, i)[:] = 0x3F803F80
    one = imm(0x3F800000)
    bench.must_run(instruction("v_mfma_f32_16x16x32_bf16", d, x, y, one, encoding="mai"))
    assert all((bench.get(v(i), np.float32) == 33.0).all() for i in range(4))


def test_block_broadcast_and_lane_pattern() -> None:
    """cbsz/abid and blgp of 4x4x4 f16: A of block 5 for blocks 0-7 …, lanes 0-31 of B for all."""
    name = "v_mfma_f32_4x4x4_16b_f16"
    ra, rb, rc = _small_integers("f16", "gfx942", 2), _small_integers("f16", "gfx942", 2), np.zeros((4, 64), np.uint32)
    got = _numbers("f32", _run(name, "gfx942", (ra, rb, rc), cbsz=3, abid=5, blgp=1))
    lanes = np.arange(64)
    moved_a = ra[:, lanes // 32 * 32 + 20 + lanes % 4]
    moved_b = rb[:, lanes % 32]
    want, _ = matrix.multiply(name, "gfx942", moved_a, moved_b, rc)
    assert np.array_equal(got, want)


def test_negative_zero_of_fnuz_is_nan() -> None:
    for kind in ("fp8", "bf8"):
        ra, rb = np.full((2, 64), 0x80808080, np.uint32), np.full((2, 64), 0x40404040, np.uint32)
        rc = np.zeros((4, 64), np.uint32)
        got = _run(f"v_mfma_f32_16x16x32_{kind}_{kind}", "gfx942", (ra, rb, rc)).view(np.float32)
        assert np.isnan(got).all()
        got = _run(f"v_mfma_f32_16x16x32_{kind}_{kind}", "gfx950", (ra, rb, rc)).view(np.float32)
        assert (got == 0).all()
