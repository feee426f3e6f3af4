"""Types of the hardware description: a target, its matrix instructions, its LDS access classes and single facts.

The values come from the JSON files beside this module. No number about hardware stands in Python; the lint
(`python -m tileir.target.lint`) enforces it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from tileir.records import dataclass

EVIDENCE_CLASSES = ("documented", "measured", "derived", "assumed")
ELEMENT_USES = ("memory", "load", "store", "convert", "arith", "mma", "mma_acc")

FactValue = int | float | str | bool | tuple[int, ...] | Mapping[str, int]


class UnknownTarget(KeyError):
    """The chip name is not one of `names()`; the message lists the legal ones."""

    def __init__(self, name: str, legal: tuple[str, ...]) -> None:
        self.name = name
        self.legal = legal
        super().__init__(f"unknown target '{name}'; legal targets: {', '.join(legal)}")

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Fact:
    """One hardware fact. `sources` are full citations, `evidence` is one of `EVIDENCE_CLASSES`."""

    name: str
    value: FactValue
    unit: str
    sources: tuple[str, ...]
    evidence: str
    note: str


@dataclass(frozen=True)
class Mfma:
    """One matrix instruction: D[M,N] = sum over k of A[M,K] * B[K,N] + C, `blocks` independent products side by side.

    `a` and `b` are the legal element names of the operands (several for the f8f6f4 forms, which name the format in
    the instruction), `c` the element of C and D. For a sparse instruction (`sparse`, 4:2 structured A) `k` counts the
    dense k; A holds half of it. `math` is the format the products are computed in when it is not the operand's.
    """

    name: str
    intrinsic: str
    m: int
    n: int
    k: int
    blocks: int
    a: tuple[str, ...]
    b: tuple[str, ...]
    c: str
    passes: int
    passes_narrow: int
    pass_clocks: int
    sparse: bool
    scaled: bool
    math: str
    sources: tuple[str, ...]
    evidence: str

    @property
    def issue_clocks(self) -> int:
        """Clocks per SIMD until the next matrix instruction can issue (slowest operand formats)."""
        return self.passes * self.pass_clocks

    def issue_clocks_for(self, a_bits: int, b_bits: int, byte_bits: int) -> int:
        """Issue clocks for operand widths in bits; both below a byte (`byte_bits`) run at the narrow rate."""
        narrow = a_bits < byte_bits and b_bits < byte_bits
        return (self.passes_narrow if narrow else self.passes) * self.pass_clocks

    @property
    def flops(self) -> int:
        """Operations of one instruction: a multiply and an add per element of the (dense) product."""
        return 2 * self.m * self.n * self.k * self.blocks

    @property
    def flops_per_clock(self) -> float:
        """Operations per clock and SIMD in steady state (slowest operand formats)."""
        return self.flops / self.issue_clocks

    @property
    def formats(self) -> bool:
        """Whether the instruction names the formats of its operands itself, by the codes of the fact `matrix_formats`."""
        return self.name.endswith("f8f6f4")

    @property
    def rocdl(self) -> str:
        """Name of the operation in the MLIR `rocdl` dialect."""
        return self.intrinsic.replace("llvm.amdgcn.", "rocdl.")


@dataclass(frozen=True)
class LdsAccess:
    """How the LDS serves one instruction class: conflicts count only between lanes of one group.

    `lane_groups` partition the lanes of a wave. Each group is a coset of the GF(2) subspace of lane numbers spanned by
    `subspace` (bit masks over the lane number). `addresses_per_lane` is 2 for the read2/write2 forms; each address then
    moves `bytes_per_lane / addresses_per_lane` bytes.
    """

    op: str
    direction: str
    bytes_per_lane: int
    addresses_per_lane: int
    banks: int
    bank_bytes: int
    lane_groups: tuple[tuple[int, ...], ...]
    subspace: tuple[int, ...]
    sources: tuple[str, ...]
    evidence: str


@dataclass(frozen=True)
class Product:
    """A product that carries the chip: memory bandwidth in bytes per second and memory size in bytes."""

    name: str
    hbm_bytes_per_second: int
    hbm_bytes: int
    sources: tuple[str, ...]
    evidence: str


@dataclass(frozen=True, eq=False, repr=False)
class Target:
    """A chip. There is one object per chip and process: targets compare and hash by identity, and copies and pickles
    come back as that object. Sizes are in bytes, registers are 32-bit, times are in clocks unless the name says otherwise.

    Every attribute that is a plain number is a fact of the data files: `fact(name)` tells its source and evidence.
    """

    name: str
    architecture: str
    num_xcds: int
    cus_per_xcd: int
    simds_per_cu: int
    wave_size: int
    max_waves_per_simd: int
    max_workgroup_size: int
    registers_per_lane: int
    register_bytes: int
    vgpr_granule: int
    max_arch_vgprs: int
    max_acc_vgprs: int
    accum_offset_granule: int
    sgprs_addressable: int
    sgprs_per_simd: int
    sgpr_granule: int
    user_sgprs_max: int
    lds_bytes: int
    lds_alloc_granule: int
    lds_address_granule: int
    lds_read_bytes_per_clock: int
    lds_write_bytes_per_clock: int
    direct_to_lds_bytes: tuple[int, ...]
    direct_to_lds_offset: int
    vmcnt_max: int
    lgkmcnt_max: int
    expcnt_max: int
    setprio_max: int
    nop_max: int
    ds_offset_max: int
    buffer_offset_max: int
    global_offset_min: int
    global_offset_max: int
    buffer_num_records_max: int
    buffer_descriptor_word3: int
    mfma_pass_clocks: int
    l2_bytes_per_xcd: int
    llc_bytes: int
    cache_line_bytes: int
    clock_hz: int
    elf_mach: int
    f8_kind: str
    facts: Mapping[str, Fact]
    timing: Mapping[str, Fact]
    features: Mapping[str, bool]
    element_bits: Mapping[str, int]
    element_uses: Mapping[str, tuple[str, ...]]
    mfmas: tuple[Mfma, ...]
    lds_accesses: tuple[LdsAccess, ...]
    products: tuple[Product, ...]
    peak_flops: Mapping[str, Fact]
    mfma_by_name: Mapping[str, Mfma]
    lds_access_by_op: Mapping[str, LdsAccess]

    def __repr__(self) -> str:
        return f"Target({self.name})"

    def __reduce__(self) -> tuple[Callable[[str], Target], tuple[str]]:
        from tileir.target.load import get  # not at the top: load needs this module

        return get, (self.name,)

    @property
    def num_cus(self) -> int:
        """Compute units of the whole chip."""
        return self.num_xcds * self.cus_per_xcd

    def fact(self, name: str) -> Fact:
        """The fact `name` (of the chip or its timing) with source and evidence; KeyError if there is none."""
        if name in self.facts:
            return self.facts[name]
        if name in self.timing:
            return self.timing[name]
        raise KeyError(f"{self.name} has no fact '{name}'")

    def supports(self, feature: str) -> bool:
        """Whether the chip has `feature`; KeyError for a name that no table has (a misspelling is never 'no')."""
        if feature not in self.features:
            raise KeyError(f"unknown feature '{feature}'; known: {', '.join(self.features)}")
        return self.features[feature]

    def mfma(self, name: str) -> Mfma:
        """The matrix instruction by mnemonic (`v_mfma_f32_16x16x32_bf16`), LLVM intrinsic or `rocdl` operation name.

        An intrinsic that two mnemonics share (the f8f6f4 pair) gives the scaled one. KeyError names the chip.
        """
        if name not in self.mfma_by_name:
            raise KeyError(f"{self.name} has no matrix instruction '{name}'")
        return self.mfma_by_name[name]

    @cached_property
    def _mfmas_by_elements(self) -> dict[tuple[str, str, str], tuple[Mfma, ...]]:
        return {}

    def mfmas_for(self, a: str, b: str, acc: str) -> tuple[Mfma, ...]:
        """Dense, unscaled instructions of exact arithmetic for operand elements `a`, `b` and accumulator `acc`."""
        found = self._mfmas_by_elements.get((a, b, acc))
        if found is None:
            found = self._mfmas_by_elements[a, b, acc] = tuple(
                i
                for i in self.mfmas
                if a in i.a and b in i.b and i.c == acc and not (i.sparse or i.scaled) and i.math == ""
            )
        return found

    def mfma_clocks(self, mfma: Mfma, a: str, b: str) -> int:
        """Issue interval of `mfma` in clocks per SIMD for operand elements `a` and `b`."""
        return mfma.issue_clocks_for(self.element_bits[a], self.element_bits[b], self.element_bits["i8"])

    def mfma_rate(self, mfma: Mfma, a: str, b: str) -> float:
        """Operations per clock and SIMD of `mfma` for operand elements `a` and `b`."""
        return mfma.flops / self.mfma_clocks(mfma, a, b)

    def is_full_rate(self, mfma: Mfma, a: str, b: str) -> bool:
        """Whether no other dense instruction for the same elements does more operations per clock.

        On gfx950 this is false for the shapes inherited from gfx942 (16x16x16 and 32x32x8 in f16 and bf16).
        """
        best = max(self.mfma_rate(i, a, b) for i in self.mfmas_for(a, b, mfma.c))
        return self.mfma_rate(mfma, a, b) >= best

    def lds_access(self, op: str) -> LdsAccess:
        """The access class of an LDS instruction (`ds_read_b128`, `buffer_load_dwordx4_lds`); KeyError if none."""
        if op not in self.lds_access_by_op:
            raise KeyError(f"{self.name} has no LDS instruction '{op}'; it has {', '.join(self.lds_access_by_op)}")
        return self.lds_access_by_op[op]

    def legal_elem(self, elem: str, use: str) -> bool:
        """Whether element type `elem` may be used for `use` on this chip.

        `use` is `load`, `store` or `memory` (moved as raw bytes), `convert` (hardware conversion to and from f32),
        `arith` (VALU add and multiply), `mma` (operand of a matrix instruction) or `mma_acc` (its accumulator).
        ValueError for another use.
        """
        return elem in self.legal_elems(use)

    def legal_elems(self, use: str) -> tuple[str, ...]:
        """All element names that are legal for `use` (see `legal_elem`), for a diagnostic that says what would be."""
        if use not in ELEMENT_USES:
            raise ValueError(f"unknown use '{use}'; known: {', '.join(ELEMENT_USES)}")
        if use == "mma":
            return tuple(e for e in self.element_bits if any(e in i.a or e in i.b for i in self.mfmas))
        if use == "mma_acc":
            return tuple(e for e in self.element_bits if any(e == i.c for i in self.mfmas))
        return self.element_uses["memory" if use in ("load", "store") else use]

    def waves_per_simd(self, waves: int) -> int:
        """Waves of a workgroup of `waves` on the SIMD that has most of them."""
        return max(1, -(-waves // self.simds_per_cu))

    def registers_per_wave(self, waves_per_simd: int) -> int:
        """Registers (v and a together) of one wave when `waves_per_simd` waves share a SIMD, rounded to the granule."""
        if not 1 <= waves_per_simd <= self.max_waves_per_simd:
            raise ValueError(f"waves per SIMD must be 1 to {self.max_waves_per_simd}, not {waves_per_simd}")
        share = self.registers_per_lane // waves_per_simd
        return share - share % self.vgpr_granule
