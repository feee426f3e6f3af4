"""Which registers an instruction reads and writes, for the check of reads before any write."""

from __future__ import annotations

from tileir.simulator import state
from tileir.simulator.decoder import Instruction, Operand
from tileir.simulator.native import check_state as c
from tileir.simulator.native.cross_lane import INDEX_DESTINATION, INDEX_SOURCE
from tileir.simulator.native.op import check_of

_UPDATES = (
    "v_fmac",
    "v_mac_",
    "v_pk_fmac",
    "v_cvt_pkaccum",
    "v_dot2c",
    "v_dot4c",
    "v_dot8c",
    "v_smfmac",
    "s_addk",
    "s_mulk",
    "s_cmovk",
)
_MOVES = (
    "v_mov_b32",
    "v_mov_b64",
    "s_mov_b32",
    "s_mov_b64",
    "v_accvgpr_read_b32",
    "v_accvgpr_write_b32",
    "v_accvgpr_mov_b32",
    "v_readlane_b32",
)
"""``v_readlane_b32`` is how LLVM reloads spilled scalar registers; the result counts as written if any lane of the source does."""
_PACKED = ("v_pk_add_f32", "v_pk_mul_f32", "v_pk_fma_f32")
_SWAPS = ("v_swap_b32", "v_permlane16_swap", "v_permlane32_swap")
_ACROSS = ("v_readlane", "v_readfirstlane", "v_permlane", "v_swap", "ds_bpermute", "ds_permute", "ds_swizzle")
_NO_RESULT = (
    "s_cmp", "s_bitcmp", "s_setreg", "s_setpc", "s_cbranch", "s_dcache", "s_icache", "s_set_gpr", "s_setvskip", "v_nop",
)  # fmt: skip
_TWO_RESULTS = ("v_div_scale", "v_mad_u64_u32", "v_mad_i64_i32")
_WIDE = {"v_mad_u64_u32": 2, "v_mad_i64_i32": 2, "v_lshlrev_b64": 1}
"""Source of 64 bits whose upper half has no influence on the lower half of the result."""
_LDS_RESULTS = ("ds_read", "ds_bpermute", "ds_permute", "ds_swizzle", "ds_consume", "ds_append")
_MEMORY = ("mubuf", "mtbuf", "global", "flat", "scratch")


def results(inst: Instruction) -> int:
    """Number of leading operands that the instruction writes."""
    name, encoding = inst.name, inst.encoding
    if not inst.operands or name.startswith(_NO_RESULT) or encoding == "sopp":
        return 0
    if encoding == "ds":
        return int(name.startswith(_LDS_RESULTS) or "_rtn_" in name)
    if encoding in _MEMORY:
        if inst.modifiers.get("lds", 0) or "_load_lds_" in name:
            return 0
        return int("_load_" in name or ("_atomic_" in name and bool(inst.modifiers.get("sc0", 0))))
    if encoding == "smem":
        atomic = "_atomic_" in name and bool(inst.modifiers.get("glc", 0))
        return int("load" in name or name.startswith("s_mem") or atomic)
    if name.startswith("v_") and ("_co_" in name or name.startswith(_TWO_RESULTS)):
        return 2
    return 1


def _numbers(operand: Operand) -> range:
    if operand.kind == "special" and operand.name.startswith(("exec", "scc", "src_")):
        return range(0)
    found = check_of(operand)
    if found is None:
        return range(0)
    return range(found[0], min(found[0] + found[1], c.SHADOW_REGISTERS))


def _chosen(inst: Instruction, place: int, numbers: range) -> range:
    """The registers of source ``place`` that count: packed f32 operations may take one half of a pair twice."""
    if not (inst.name.startswith("v_pk_") and inst.name.endswith(("_f32", "_mov_b32"))) or len(numbers) != 2:
        return numbers
    op_sel = inst.modifiers.get("op_sel", 0) >> place & 1
    high = inst.modifiers.get("op_sel_hi", -1) >> place & 1
    if inst.name.endswith("_mov_b32"):
        high = op_sel
    return numbers if op_sel != high else numbers[op_sel : op_sel + 1]


def splits(inst: Instruction) -> tuple[list[Operand], list[Operand]]:
    """Operands that are read and operands that are written."""
    n, name = results(inst), inst.name
    read, write = list(inst.operands[n:]), list(inst.operands[:n])
    if name.startswith(_UPDATES) or (inst.encoding in ("mubuf", "smem") and "_atomic_" in name and n):
        read += write
    if name.startswith(_SWAPS):
        read, write = list(inst.operands), list(inst.operands)
    return read, write


def registers(inst: Instruction) -> tuple[frozenset[int], frozenset[int]]:
    """Check numbers of the registers that an instruction reads and writes."""
    read, write = splits(inst)
    return frozenset(n for o in read for n in _numbers(o)), frozenset(n for o in write for n in _numbers(o))


def items(inst: Instruction, indexing: int = 0) -> list[int]:
    """The registers as ``register | mode << 16``, reads first.

    What another lane than the reading one wrote counts for instructions that move data across lanes: there only a
    register that no lane has written is reported. indexing: operands that are relative to M0, as in ``Program.indexing``.
    """
    read, write = splits(inst)
    name = inst.name
    across = name.startswith(_ACROSS) or "dpp" in inst.encoding
    idle = _idle_sources(inst)
    out: list[int] = []
    moved = copies(inst)
    if name == "v_cndmask_b32" and moved:
        return _choice(inst)
    if moved:
        reads = c.ITEM_COPY_FROM_INDEXED if indexing & INDEX_SOURCE else c.ITEM_COPY_FROM
        writes = c.ITEM_COPY_TO_INDEXED if indexing & INDEX_DESTINATION else c.ITEM_COPY_TO
        for operand in read[1:] if name == "v_readlane_b32" else ():
            out += [number | c.ITEM_READ_ANY << 16 for number in _numbers(operand)]
        for sources, destination in moved:
            for place, source in enumerate(sources):
                out.append(source | (c.ITEM_COPY_AND if place else reads) << 16)
            out.append(destination | (writes if sources else c.ITEM_WRITE_ACTIVE) << 16)
        return out
    for place, operand in enumerate(read):
        if operand in idle:
            continue
        numbers = _numbers(operand)
        if _WIDE.get(name) == place:
            # compilers leave the upper half undefined where only the lower half of the result counts
            numbers = numbers[:1]
        numbers = _chosen(inst, place, numbers)
        for number in numbers:
            any_lane = across or number >= state.CHECK_SGPR
            out.append(number | (c.ITEM_READ_ANY if any_lane else c.ITEM_READ_ACTIVE) << 16)
    whole = name.startswith(("v_mfma", "v_smfmac", "v_writelane", *_SWAPS))
    for operand in write:
        for number in _numbers(operand):
            everywhere = whole or number >= state.CHECK_SGPR
            mode = c.ITEM_WRITE_ALL if everywhere else c.ITEM_WRITE_ACTIVE
            out.append(number | (c.ITEM_WRITE_INDEXED if indexing & INDEX_DESTINATION else mode) << 16)
    return out


def copies(inst: Instruction) -> list[tuple[tuple[int, ...], int]]:
    """(sources, destination) of the registers of a move or a choice, and of the halves of a packed f32 operation; empty for
    other instructions. The destination counts as written where all sources do.

    Compilers copy and spill registers that hold nothing yet, or half of a pair that does, and leave lanes of a choice or
    half of a packed operation undefined: that is no fault as long as nothing else is computed from it.
    """
    if inst.name == "v_cndmask_b32":
        if inst.encoding in ("dpp", "sdwa") or len(_numbers(inst.operands[3])) != 2:
            return []
        sources = tuple(n for o in inst.operands[1:3] for n in _numbers(o))
        return [(sources, to) for to in _numbers(inst.operands[0])]
    if inst.name in _PACKED and "dpp" not in inst.encoding:
        return [
            (tuple(n for i, o in enumerate(inst.operands[1:]) for n in _half(inst, i, _numbers(o), half)), to)
            for half, to in enumerate(_numbers(inst.operands[0]))
        ]
    return [((source,), to) for source, to in _moves(inst)]


def _choice(inst: Instruction) -> list[int]:
    """Items of ``v_cndmask_b32``: in each lane a copy of what the mask takes, since compilers leave the rest undefined."""
    first, second, mask = (_numbers(o) for o in inst.operands[1:])
    out = [number | c.ITEM_READ_ANY << 16 for number in mask]
    out.append(mask[0] | c.ITEM_MASK << 16)
    out += [number | c.ITEM_COPY_FROM << 16 for number in first]
    out += [number | c.ITEM_COPY_WHERE << 16 for number in second] or [c.ITEM_WRITTEN_WHERE << 16]
    return out + [number | c.ITEM_COPY_TO << 16 for number in _numbers(inst.operands[0])]


def _half(inst: Instruction, place: int, numbers: range, half: int) -> range:
    """The register of source ``place`` from which one half of a packed f32 result is made."""
    high = inst.modifiers.get("op_sel_hi", -1) if half else inst.modifiers.get("op_sel", 0)
    at = high >> place & 1
    return numbers[at : at + 1]


def _moves(inst: Instruction) -> list[tuple[int, int]]:
    if inst.name not in (*_MOVES, "v_pk_mov_b32") or "dpp" in inst.encoding or "sdwa" in inst.encoding:
        return []
    if inst.name == "v_pk_mov_b32":
        target = _numbers(inst.operands[0])
        sources = [_chosen(inst, i, _numbers(o)) for i, o in enumerate(inst.operands[1:3])]
        if (
            any(len(numbers) != 1 for numbers in sources)
            or inst.modifiers.get("neg_lo")
            or inst.modifiers.get("neg_hi")
        ):
            return []
        return [(numbers[0], to) for numbers, to in zip(sources, target, strict=True)]
    destination, source = inst.operands[:2]
    if source.neg or source.abs:
        return []
    return list(zip(_numbers(source), _numbers(destination), strict=False))


_FRAME_POINTER = 33
"""s33 in LLVM's calling convention for AMDGPU; functions save it with a move."""


_MASK_UPDATES = ("s_or_b64", "s_andn2_b64")


def _idle_sources(inst: Instruction) -> tuple[Operand, ...]:
    """Sources whose value does not matter: ``x ^ x`` and ``x - x`` are ways to make zero, and functions save the
    registers of their callers (to scratch memory, to lanes of a vector register) without knowing whether they are used.
    """
    if inst.name.startswith(("scratch_store", "v_writelane")):
        return inst.operands[1:2]
    if inst.name == "s_mov_b32":
        return tuple(o for o in inst.operands[1:] if o.kind == "s" and o.index == _FRAME_POINTER)
    if inst.name in ("v_xor_b32", "s_xor_b32", "s_xor_b64", "v_sub_u32", "s_sub_u32") and len(inst.operands) == 3:
        first, second = inst.operands[1:]
        if first == second:
            return (first,)
    if inst.name in _MASK_UPDATES and len(inst.operands) == 3:
        # masks of lanes that LLVM builds up round a loop: the bits of lanes that do not take part are undefined
        target, first, second = inst.operands
        if first == target and second.kind == "special" and second.name == "exec":
            return (first,)
    return ()
