"""Every instruction that the decoder knows: it runs and equals its specification, or it is listed here as not executed.

:data:`FAMILIES` says for each name which comparison of native code and NumPy specification applies. A name that is in no
family, or in two, fails; so does an op that is added without a specification.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import test_control_ops as control_ops
import test_memory_ops as memory_ops
import test_mfma as mfma
import test_modifiers as modifiers
import test_scalar_ops as scalar_ops
import test_scaled_conversions as scaled_ops
import test_small_floats as small_floats
import test_sparse as sparse
import test_special_ops as special
import test_typed_buffers as typed
import test_vector_ops as vector_ops

from tileir.simulator.decoder import decode
from tileir.simulator.decoder.table import CHIPS, load
from tileir.simulator.engine import engine
from tileir.simulator.native.op import Context, Op, Unsupported
from tileir.simulator.native.registry import OPS, lower
from tileir.simulator.spec import control, convert, media, vector_float, vector_int  # noqa: F401  (they fill VECTOR)
from tileir.simulator.spec import memory as memory_spec
from tileir.simulator.spec.core import VECTOR
from tileir.simulator.spec.lanes import LANES
from tileir.simulator.spec.packed import PACKED
from tileir.simulator.spec.scalar import SCALAR
from tileir.target import get

Runner = Callable[[str], None]

NOT_EXECUTED: dict[str, tuple[str, ...]] = {
    "global wave sync needs a resource that the host allocates for a launch": (
        "ds_gws_barrier", "ds_gws_init", "ds_gws_sema_br", "ds_gws_sema_p", "ds_gws_sema_release_all", "ds_gws_sema_v",
    ),
    "scratch memory by its device address, which simulated scratch memory does not have": (
        "s_scratch_load_dword", "s_scratch_load_dwordx2", "s_scratch_load_dwordx4",
        "s_scratch_store_dword", "s_scratch_store_dwordx2", "s_scratch_store_dwordx4",
    ),
    "which written data a discarded cache line loses is not defined": ("s_dcache_discard", "s_dcache_discard_x2"),
    "only the trap handler executes it, and the simulator has none": ("s_rfe_b64", "s_rfe_restore_b64"),
    "the stack of masks of old shader compilers": ("s_cbranch_g_fork", "s_cbranch_i_fork", "s_cbranch_join"),
    "pixel shaders only": ("s_endpgm_ordered_ps_done", "v_screen_partition_4se_b32"),
    "no instruction of its own, but the first half of v_mfma_scale_*": ("v_mfma_ld_scale_b32",),
}  # fmt: skip
"""What faults when it is reached, by reason."""


@cache
def decoded(chip: str) -> frozenset[str]:
    """Names in the decoder table of a chip."""
    table = load(chip)
    found = (table.entries[f].get(o) for f in table.lines for o in table.opcodes(f))
    return frozenset(e.name for e in found if e is not None)


@cache
def everything() -> frozenset[str]:
    return frozenset().union(*(decoded(chip) for chip in CHIPS))


def starting(*prefixes: str) -> list[str]:
    return [n for n in everything() if n.startswith(prefixes)]


def both(check: Callable[[str, int], None]) -> Runner:
    """With all lanes active, and with some."""

    def run(name: str) -> None:
        for active in memory_ops.EXECS:
            check(name, active)

    return run


def flags(check: Callable[[str, Any], None]) -> Runner:
    """Without and with a result, or another choice of two."""

    def run(name: str) -> None:
        check(name, 0)
        check(name, 1)

    return run


def _small(name: str) -> None:
    for chip, kind, small in small_floats.CASES:
        if kind in name and name.startswith("v_cvt_pk_" + kind):
            for saturate in (False, True):
                small_floats.check_rounding(chip, kind, small, saturate)
        elif kind in name and name.startswith("v_cvt_sr"):
            small_floats.check_stochastic(chip, kind, small)
        elif kind in name:
            small_floats.check_decoding(chip, kind, small)


def _sparse(name: str) -> None:
    for chip in CHIPS:
        if name in decoded(chip):
            sparse.check_op(name, chip)


def _spaces(part: str, tails: Iterable[str]) -> list[str]:
    return [f"{space}_{part}_{tail}" for space in ("global", "flat", "scratch", "buffer") for tail in tails]


def _atomics() -> list[str]:
    tails = [a.global_name for a in memory_spec.ATOMICS.values()]
    names = [f"{space}_atomic_{tail}" for space in ("global", "flat", "buffer") for tail in tails]
    return [*names, *memory_ops.lds_atomics()]


def _updates() -> list[str]:
    plain = [n.replace("_rtn", "") for n, one in memory_spec.LDS_UPDATES.items() if one.plain]
    return [*memory_spec.LDS_UPDATES, *plain]


def families() -> dict[str, tuple[Iterable[str], Runner]]:
    """Names and comparison of each family."""
    comparisons = [n.replace("v_cmp_", "v_cmpx_") for n in VECTOR if n.startswith("v_cmp_")]
    small = [
        f"v_cvt_{form}"
        for kind in ("fp8", "bf8")
        for form in (f"f32_{kind}", f"pk_f32_{kind}", f"pk_{kind}_f32", f"sr_{kind}_f32")
    ]
    return {
        "vector": (VECTOR, vector_ops.check_op),
        "comparisons that write EXEC": (comparisons, vector_ops.check_op),
        "packed": (PACKED, modifiers.check_packed),
        "packed moves": (["v_pk_mov_b32"], modifiers.check_packed_move),
        "mixed fma": (["v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16"], modifiers.check_mixed_fma),
        "any function of three bits": (["v_bitop3_b32", "v_bitop3_b16"], modifiers.check_bitop3),
        "masked sums of four windows": (["v_mqsad_u32_u8"], special.check_four_sums),
        "8-bit floats": (small, _small),
        "scaled conversions": (starting("v_cvt_scalef32"), scaled_ops.check_op),
        "stochastic rounding to 16 bits": (["v_cvt_sr_f16_f32", "v_cvt_sr_bf16_f32"], scaled_ops.check_stochastic16),
        "matrix": ([n for n in starting("v_mfma_") if "scale" not in n], mfma.check_op),
        "scaled matrix": (starting("v_mfma_scale_"), partial(mfma.check_scaled, formats=("fp8", "fp4"))),
        "sparse matrix": (starting("v_smfmac_"), _sparse),
        "lanes": (LANES, special.check_lanes),
        "scalar": (SCALAR, scalar_ops.check_op),
        "masks in EXEC": (control.CONTROL, control_ops.check_exec_mask),
        "branches": (control.CONDITIONS, control_ops.check_branch),
        "jumps": (control.JUMPS, control_ops.check_jump),
        "hardware registers": (control.HARDWARE, control_ops.check_hardware),
        "relative scalar moves": (control.RELATIVE, control_ops.check_relative_scalar_move),
        "relative vector registers": (control.INDEXING, control_ops.check_indexing),
        "no effect": (control.NOTHING, control_ops.check_nothing_changes),
        "ends and stops": (control.STOPS, control_ops.check_stop),
        "waits and clocks": (control.WAITS, control_ops.check_wait),
        "skipping": (control.SKIPS, control_ops.check_skip),
        "loads": (_spaces("load", memory_spec.LOADS), both(memory_ops.check_load)),
        "stores": (_spaces("store", memory_spec.STORES), both(memory_ops.check_store)),
        "loads to LDS": (starting("global_load_lds_"), both(memory_ops.check_global_load_to_lds)),
        "scratch loads to LDS": (starting("scratch_load_lds_"), special.check_scratch_load_to_lds),
        "formatted accesses": (starting(*_FORMATTED), typed.check_op),
        "atomics": (_atomics(), flags(memory_ops.check_atomic)),
        "scalar memory": ([*memory_spec.SCALAR_LOADS, *memory_spec.SCALAR_STORES], flags(special.check_scalar_memory)),
        "scalar atomics": (starting("s_atomic_", "s_buffer_atomic_"), flags(special.check_scalar_atomic)),
        "LDS reads": (memory_spec.LDS_READS, both(memory_ops.check_lds_read)),
        "LDS writes": (memory_spec.LDS_WRITES, both(memory_ops.check_lds_write)),
        "LDS pairs": (starting("ds_read2", "ds_write2"), memory_ops.check_lds_pairs),
        "transposing LDS reads": ([n for n in everything() if "_tr_b" in n], memory_ops.check_transposing_read),
        "LDS permutations": (["ds_bpermute_b32", "ds_permute_b32"], both(memory_ops.check_permute)),
        "LDS swizzles": (["ds_swizzle_b32"], both(memory_ops.check_swizzle)),
        "LDS updates": (_updates(), special.check_lds_update),
        "LDS double exchanges": (starting("ds_wrxchg2"), special.check_double_exchange),
        "LDS counters": (["ds_append", "ds_consume"], special.check_counter),
        "LDS by lane number": (["ds_read_addtid_b32", "ds_write_addtid_b32"], special.check_addtid),
    }


_FORMATTED = ("buffer_load_format", "buffer_store_format", "tbuffer_")
FAMILIES = families()


def _runners() -> dict[str, Runner]:
    """The comparison of each name; KeyError where two families claim one."""
    out: dict[str, Runner] = {}
    for family, (names, runner) in FAMILIES.items():
        for name in names:
            if name in out:
                raise KeyError(f"{name} is in two families, the second is {family}")
            out[name] = runner
    return out


RUNNERS = _runners()
_HEAVY = ("v_smfmac", "v_cvt_scalef32_sr_pk32", "v_cvt_scalef32_pk32")
"""Comparisons that take long; the gate takes a part of them."""
_LIGHT = ("16x16x32_f16", "16x16x64_i8", "16x16x64_fp8_bf8", "_fp6_f32", "_f32_bf6")


def _cases() -> list[Any]:
    names = sorted(everything() & set(OPS))
    return [
        pytest.param(n, marks=[pytest.mark.nightly] if n.startswith(_HEAVY) and not n.endswith(_LIGHT) else [])
        for n in names
    ]


@pytest.mark.parametrize("name", _cases())
def test_native_equals_specification(name: str) -> None:
    assert name in RUNNERS, f"{name} is executed without a specification"
    RUNNERS[name](name)


FORMS_NOT_EXECUTED: dict[str, str] = {
    r"clamp on v_(addc?|subb?|subrev|subbrev)_co_u32": "what becomes of the carry is not documented",
    r"clamp on v_(mad|mul|mqsad|qsad|msad|sad|pk_mad|pk_mul)\w*": "saturating products that no compiler asks for",
    r"clamp on v_(dot|pk_min|pk_max|pk_\w*rev|cvt_pk)\w*": "the bit has no documented effect",
    r"clamp on v_(and|or|xor|xnor|not|bf|ff|alignb|lshl|lshr|ashr|mov|cndmask|frexp_exp|perm|prng|sat_pk)\w*": "the bit has no documented effect",
    r"operand src_(execz|vccz|pops_exiting_wave_id)": "compilers branch on these conditions and do not compute with them",
    r"v_cvt_\w+ with (other selectors or modifiers than its own|a modifier on packed elements)": "no documented meaning",
    r"v_pk_fmac_f16 with modifiers, constants or SDWA|v_pk_fmac_f16 with clamp or in a .*": "which half they concern is not documented",
    r"v_dot\w+ with selectors or negation": "no compiler uses them",
    r"v_mfma_\w+ with (cbsz or blgp|cbsz \d+ and abid \d+ for \d+ blocks)": "the ISA allows them where A has that many blocks",
    r"v_mfma_\w+ with negated operands": "only f64 operands can be negated",
    r"buffer_load_format_x to LDS": "what a conversion leaves in LDS is not documented",
    r"clamp on v_p(ack_b32_f16|k_mov_b32)": "the bit has no documented effect",
    r"the wave would stop for good.*|message \d+ has no receiver.*": "nobody answers",
    r"(writing )?hardware register \d+": "only MODE, HW_ID and XCC_ID are there",
    r"s_\w+ with (an operand that is no scalar register|these operands)": "a constant where the program goes on at",
    r"\w+ with registers relative to M0": "only v_mov_b32 is",
}
"""Encodings of executed instructions that fault, by what the fault says, and why."""


def _golden(chip: str) -> list[Any]:
    """Instructions of the golden file that the simulator executes, from their bytes."""
    entries = json.loads((Path(__file__).parent / "decoder" / f"golden_{chip}.json").read_text())["valid"]
    decoded_ = (decode(chip, bytes.fromhex(code), 0) for code, *_ in entries)
    return [inst for inst in decoded_ if inst.name in OPS]


def _lowered(chip: str, dynamic: bool) -> list[Op]:
    """The ops of all these instructions; forms that are not executed must be listed."""
    out, unlisted = [], []
    for inst in _golden(chip):
        try:
            out.append(lower(inst, Context(chip, dynamic_mode=dynamic)))
        except Unsupported as error:
            if not any(re.fullmatch(pattern, str(error)) for pattern in FORMS_NOT_EXECUTED):
                unlisted.append((inst.text, str(error)))
    assert not unlisted, unlisted
    return out


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_decoded_instructions_are_translated(chip: str, dynamic: bool) -> None:
    """From the bytes, as programs come: operands and modifiers of every encoding mean something to the ops."""
    ops = {op.key: op for op in _lowered(chip, dynamic)}
    for op in ops.values():
        assert "define" in op.make("op")


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
def test_decoded_instructions_are_compiled(chip: str) -> None:
    for dynamic in (False, True):
        for op in _lowered(chip, dynamic):
            engine().prepare(op.key, op.make)
    engine().addresses({})


@pytest.mark.parametrize("chip", CHIPS)
def test_every_name_is_executed_or_listed(chip: str) -> None:
    listed = {n for names in NOT_EXECUTED.values() for n in names}
    assert decoded(chip) - set(OPS) == listed & decoded(chip)
    assert not listed & set(OPS)


def test_nothing_is_specified_in_vain() -> None:
    """Specifications of names that no decoder table has: forms that an assembler writes differently."""
    assert set(RUNNERS) - everything() <= set(OPS) | set(VECTOR), sorted(set(RUNNERS) - everything() - set(OPS))


def test_every_dense_matrix_instruction_of_the_targets() -> None:
    for chip in CHIPS:
        assert {"v_" + m.name.removeprefix("v_") for m in get(chip).mfmas} <= everything()
