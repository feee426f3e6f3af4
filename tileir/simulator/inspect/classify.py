"""What an instruction is, by its mnemonic: one class each, so that the counts of the classes add up to all.

Source of the mnemonics: the instruction tables of the AMD CDNA3 and CDNA4 ISA documents (documented).
"""

from __future__ import annotations

import re
from functools import cache

MFMA = "mfma"
LDS_READ = "lds_read"
LDS_TRANSPOSE_READ = "lds_transpose_read"
LDS_WRITE = "lds_write"
LDS_OTHER = "lds_other"
TO_LDS = "direct_to_lds"
LOAD = "load"
STORE = "store"
ATOMIC = "atomic"
SCRATCH_LOAD = "scratch_load"
SCRATCH_STORE = "scratch_store"
CACHE = "cache"
SMEM = "smem"
TRANSCENDENTAL = "transcendental"
VALU = "valu"
SALU = "salu"
WAIT = "wait"
BARRIER = "barrier"
NOP = "nop"
PRIORITY = "priority"
BRANCH = "branch"
OTHER = "other"

CLASSES = (
    MFMA, LDS_READ, LDS_TRANSPOSE_READ, LDS_WRITE, LDS_OTHER, TO_LDS, LOAD, STORE, ATOMIC, SCRATCH_LOAD, SCRATCH_STORE,
    CACHE, SMEM, TRANSCENDENTAL, VALU, SALU, WAIT, BARRIER, NOP, PRIORITY, BRANCH, OTHER,
)  # fmt: skip
"""Every class, in the order in which reports list them."""

BY_WIDTH = frozenset({LDS_READ, LDS_TRANSPOSE_READ, LDS_WRITE, TO_LDS, LOAD, STORE, SCRATCH_LOAD, SCRATCH_STORE})
"""Classes whose instructions move a known number of bytes per lane."""

_TRANSCENDENTAL = re.compile(r"v_(?:exp(?:_legacy)?|log(?:_legacy)?|rcp(?:_iflag)?|rsq|sqrt|sin|cos)_(?:f16|f32|f64)$")
_SOPP = {
    "s_waitcnt": WAIT,
    "s_barrier": BARRIER,
    "s_nop": NOP,
    "s_setprio": PRIORITY,
    "s_branch": BRANCH,
}
_INDIRECT = frozenset({"s_setpc_b64", "s_swappc_b64", "s_rfe_b64", "s_cbranch_g_fork", "s_cbranch_join"})
_CALLS = frozenset({"s_swappc_b64", "s_call_b64"})
_MOVES = frozenset({"v_mov_b32", "v_mov_b64", "v_pk_mov_b32"})

_UNITS = {
    "ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2,
    "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16,
    "u8": 1, "i8": 1, "b8": 1, "u16": 2, "i16": 2, "b16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16,
}  # fmt: skip
_FORMAT_WIDTH = re.compile(r"_format_(d16_)?(?:hi_)?([xyzw]+)$")


@cache
def classify(name: str, encoding: str, to_lds: bool) -> str:
    """The class of an instruction (see `CLASSES`)."""
    if encoding == "scratch":
        return SCRATCH_LOAD if "_load_" in name else SCRATCH_STORE
    if to_lds:
        return TO_LDS
    if encoding == "ds":
        return _lds(name)
    if encoding in ("mubuf", "mtbuf", "global", "flat"):
        return _vector_memory(name)
    if encoding == "smem":
        return SMEM
    if name.startswith(("v_mfma_", "v_smfmac_")) and not name.startswith("v_mfma_ld_scale"):
        return MFMA
    if name.startswith("v_"):
        return TRANSCENDENTAL if _TRANSCENDENTAL.match(name) else VALU
    if encoding == "sopp" and name in _SOPP:
        return _SOPP[name]
    if is_branch(name):
        return BRANCH
    return OTHER if encoding == "sopp" or not name else SALU


def _lds(name: str) -> str:
    if name.startswith("ds_read"):
        return LDS_TRANSPOSE_READ if "_tr_" in name else LDS_READ
    return LDS_WRITE if name.startswith("ds_write") else LDS_OTHER


def _vector_memory(name: str) -> str:
    if "_atomic_" in name:
        return ATOMIC
    if "_load_" in name:
        return LOAD
    return STORE if "_store_" in name else CACHE


def is_branch(name: str) -> bool:
    """Whether the instruction may go on elsewhere than behind itself (the end of the program apart)."""
    return name.startswith("s_cbranch") or name in ("s_branch", "s_call_b64") or name in _INDIRECT


def is_indirect(name: str) -> bool:
    """Whether the target stands in registers."""
    return name in _INDIRECT


def is_call(name: str) -> bool:
    """Whether it leaves the address behind itself for a return."""
    return name in _CALLS


def falls_through(name: str) -> bool:
    """Whether execution may go on behind the instruction; a call is expected to return."""
    return not name.startswith("s_endpgm") and name not in ("s_branch", "s_setpc_b64", "s_rfe_b64", "s_cbranch_join")


def is_accumulator_move(name: str) -> bool:
    """v_accvgpr_read, _write and _mov: values carried between the two register files or within the accumulators."""
    return name.startswith("v_accvgpr_")


def is_vector_move(name: str) -> bool:
    """v_mov_b32 and its wider forms, whatever they move."""
    return name in _MOVES


@cache
def width(name: str) -> int:
    """Bytes per lane that an instruction of a class in `BY_WIDTH` moves; 0 when the name does not tell.

    Both addresses of the read2 and write2 forms count.
    """
    match = _FORMAT_WIDTH.search(name)
    if match:
        return len(match[2]) * (2 if match[1] else 4)
    pair = 2 if name.startswith(("ds_read2", "ds_write2")) else 1
    return max((_UNITS[part] for part in name.split("_") if part in _UNITS), default=0) * pair
