"""The targets as typed data: names, capabilities, rates that must agree with the published peaks."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys

import pytest

from tileir import target
from tileir.target import Target, UnknownTarget

CHIPS = target.names()


@pytest.fixture(params=CHIPS)
def chip(request: pytest.FixtureRequest) -> Target:
    return target.get(request.param)


def test_names_and_identity() -> None:
    assert CHIPS == ("gfx942", "gfx950")
    assert target.get("gfx950") is target.get("gfx950")
    assert target.get("gfx942").name == "gfx942"


def test_unknown_target_names_the_legal_ones() -> None:
    with pytest.raises(UnknownTarget) as caught:
        target.get("gfx90a")
    assert isinstance(caught.value, KeyError)
    assert str(caught.value) == "unknown target 'gfx90a'; legal targets: gfx942, gfx950"


def test_chip_counts() -> None:
    small, large = target.get("gfx942"), target.get("gfx950")
    assert (small.num_cus, large.num_cus) == (304, 256)
    assert (small.lds_bytes, large.lds_bytes) == (65536, 163840)
    assert small.lds_bytes % small.lds_alloc_granule == 0 and large.lds_bytes % large.lds_alloc_granule == 0
    assert (small.elf_mach, large.elf_mach) == (0x4C, 0x4F)
    assert small.direct_to_lds_bytes == (4,) and large.direct_to_lds_bytes == (4, 12, 16)


def test_registers_per_wave(chip: Target) -> None:
    assert [chip.registers_per_wave(n) for n in (1, 2, 3, 4, 8)] == [512, 256, 168, 128, 64]
    with pytest.raises(ValueError, match="1 to 8, not 9"):
        chip.registers_per_wave(9)


def test_data_is_frozen(chip: Target) -> None:
    with pytest.raises(AttributeError):
        chip.lds_bytes = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        chip.features["mfma_scale"] = True  # type: ignore[index]


def test_one_object_per_chip(chip: Target) -> None:
    assert copy.deepcopy(chip) is chip and pickle.loads(pickle.dumps(chip)) is chip
    assert {chip: 1}[target.get(chip.name)] == 1
    assert repr(chip) == f"Target({chip.name})"


def test_facts_carry_evidence(chip: Target) -> None:
    fact = chip.fact("lds_bytes")
    assert fact.value == chip.lds_bytes and fact.evidence == "documented" and "LLVM" in fact.sources[0]
    assert chip.fact("transcendental_clocks").value == (8, 16)
    with pytest.raises(KeyError, match="has no fact 'warp_size'"):
        chip.fact("warp_size")


def test_unknown_feature_is_not_silently_absent(chip: Target) -> None:
    with pytest.raises(KeyError, match="unknown feature"):
        chip.supports("tensor_memory")


def test_features_that_differ() -> None:
    small, large = target.get("gfx942"), target.get("gfx950")
    differ = {name for name in small.features if small.supports(name) != large.supports(name)}
    assert {"bf16_packed_convert", "permlane32_swap", "lds_transpose_read_b16", "direct_to_lds_b128"} <= differ
    assert small.supports("mfma_xf32") and not large.supports("mfma_xf32")
    assert set(small.features) == set(large.features)


def test_element_uses() -> None:
    small, large = target.get("gfx942"), target.get("gfx950")
    assert small.legal_elem("f8E4M3FNUZ", "mma") and not small.legal_elem("f8E4M3FN", "mma")
    assert large.legal_elem("f8E4M3FN", "mma") and not large.legal_elem("f8E4M3FNUZ", "mma")
    assert large.legal_elem("f4E2M1FN", "mma") and not small.legal_elem("f4E2M1FN", "mma")
    assert large.legal_elem("bf16", "convert") and not small.legal_elem("bf16", "convert")
    assert small.legal_elem("bf16", "load") and small.legal_elem("bf16", "store") and not small.legal_elem("i1", "load")
    assert small.legal_elems("mma_acc") == ("i32", "f32", "f64")
    with pytest.raises(ValueError, match="unknown use 'paint'"):
        small.legal_elem("bf16", "paint")


def test_element_names_are_known(chip: Target) -> None:
    used = {e for names in chip.element_uses.values() for e in names}
    used |= {e for i in chip.mfmas for e in (*i.a, *i.b, i.c)}
    assert used <= set(chip.element_bits)


def test_mfma_lookup(chip: Target) -> None:
    by_mnemonic = chip.mfma("v_mfma_f32_16x16x16_bf16")
    assert by_mnemonic is chip.mfma("llvm.amdgcn.mfma.f32.16x16x16bf16.1k")
    assert by_mnemonic is chip.mfma("rocdl.mfma.f32.16x16x16bf16.1k")
    with pytest.raises(KeyError, match=f"{chip.name} has no matrix instruction 'v_mfma_f32_8x8x8_f16'"):
        chip.mfma("v_mfma_f32_8x8x8_f16")


def test_mfma_table_sizes_and_names() -> None:
    assert len(target.get("gfx942").mfmas) == 46 and len(target.get("gfx950").mfmas) == 68
    for name in CHIPS:
        mnemonics = [i.name for i in target.get(name).mfmas]
        assert mnemonics == sorted(set(mnemonics))


def test_half_rate_shapes() -> None:
    large = target.get("gfx950")
    for elem in ("f16", "bf16"):
        full = {i.name for i in large.mfmas_for(elem, elem, "f32") if large.is_full_rate(i, elem, elem)}
        assert full == {f"v_mfma_f32_16x16x32_{elem}", f"v_mfma_f32_32x32x16_{elem}"}
        for shape in ("16x16x16", "32x32x8"):
            slow = large.mfma(f"v_mfma_f32_{shape}_{elem}")
            assert large.mfma_rate(slow, elem, elem) * 2 == large.mfma_rate(large.mfma(min(full)), elem, elem)
    small = target.get("gfx942")
    assert small.is_full_rate(small.mfma("v_mfma_f32_16x16x16_bf16"), "bf16", "bf16")
    assert small.is_full_rate(small.mfma("v_mfma_f32_32x32x8_bf16"), "bf16", "bf16")


def test_f8f6f4_rate_depends_on_the_operands() -> None:
    large = target.get("gfx950")
    i = large.mfma("v_mfma_f32_16x16x128_f8f6f4")
    clocks = [
        large.mfma_clocks(i, a, b)
        for a, b in (("f8E5M2", "f8E5M2"), ("f8E4M3FN", "f4E2M1FN"), ("f6E2M3FN", "f4E2M1FN"))
    ]
    assert clocks == [32, 32, 16]


def test_peak_rates_follow_from_the_instruction_table(chip: Target) -> None:
    """Peak = best issue rate x SIMDs x CUs x clock: ties the table, the counts and the clock to the data sheet."""
    for elem, peak in chip.peak_flops.items():
        acc = {"i8": "i32", "f64": "f64"}.get(elem, "f32")
        best = max(chip.mfma_rate(i, elem, elem) for i in chip.mfmas_for(elem, elem, acc))
        derived = best * chip.simds_per_cu * chip.num_cus * chip.clock_hz
        assert isinstance(peak.value, float)
        assert math.isclose(derived, peak.value, rel_tol=2e-3), elem


def test_import_and_load_are_light() -> None:
    """Loading both chips takes far below 10 ms of processor time, and imports neither MLIR nor LLVM nor numpy."""
    code = (
        "import sys, time, tileir.target as t\n"
        "s = time.process_time(); [t.get(n) for n in t.names()]; e = time.process_time() - s\n"
        "bad = {'numpy', 'mlir', 'llvmlite', 'lark'} & set(sys.modules)\n"
        "assert not bad, bad\nassert e < 0.020, e\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
