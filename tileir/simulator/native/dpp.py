"""Data-parallel primitives: the lane permutations that a DPP encoding applies to the first source."""

from __future__ import annotations

from tileir.records import dataclass

from ..decoder import Instruction
from .builder import Builder, Value
from .op import Unsupported


def source_lanes(control: int) -> list[int]:
    """For each lane the lane it reads, or -1 where there is none.

    Controls as encoded in DPP_CTRL. [CDNA3 ISA, "DPP_CTRL Enumeration"]: quad_perm 0x000-0x0FF, row_shl 0x101-0x10F,
    row_shr 0x111-0x11F, row_ror 0x121-0x12F, wave_shl/rol/shr/ror 0x130/0x134/0x138/0x13C, row_mirror 0x140,
    row_half_mirror 0x141, row_bcast:15 0x142, row_bcast:31 0x143, row_newbcast 0x150-0x15F. A row is 16 lanes.
    """
    lanes: list[int] = []
    for lane in range(64):
        row, column = lane & ~15, lane & 15
        n = control & 15
        if control <= 0xFF:
            source = (lane & ~3) + (control >> 2 * (lane & 3) & 3)
        elif 0x101 <= control <= 0x10F:
            source = row + column + n if column + n < 16 else -1
        elif 0x111 <= control <= 0x11F:
            source = row + column - n if column >= n else -1
        elif 0x121 <= control <= 0x12F:
            source = row + (column - n) % 16
        elif control == 0x130:
            source = lane + 1 if lane < 63 else -1
        elif control == 0x134:
            source = (lane + 1) % 64
        elif control == 0x138:
            source = lane - 1
        elif control == 0x13C:
            source = (lane - 1) % 64
        elif control == 0x140:
            source = row + 15 - column
        elif control == 0x141:
            source = (lane & ~7) + 7 - (lane & 7)
        elif control == 0x142:  # lane 15 of each row to the whole next row; the first row has no source
            source = row - 1
        elif control == 0x143:  # lane 31 to lanes 32-63
            source = 31 if lane >= 32 else -1
        elif 0x150 <= control <= 0x15F:
            source = row + n
        else:
            raise Unsupported(f"DPP control {control:#x}")
        lanes.append(source)
    return lanes


@dataclass(frozen=True)
class Dpp:
    """The DPP part of an instruction. bound_zero: lanes without a source read zero instead of being switched off."""

    control: int
    row_mask: int
    bank_mask: int
    bound_zero: bool

    @staticmethod
    def of(inst: Instruction) -> Dpp:
        m = inst.modifiers
        control = m.get("dpp_ctrl", 0)
        source_lanes(control)
        return Dpp(control, m.get("row_mask", 15), m.get("bank_mask", 15), bool(m.get("bound_ctrl", 0)))

    def key(self) -> str:
        return f"dpp{self.control:x}.{self.row_mask:x}.{self.bank_mask:x}.{int(self.bound_zero)}"

    def write_lanes(self) -> int:
        """Lanes that row_mask and bank_mask leave switched on."""
        return sum(
            1 << lane
            for lane in range(64)
            if self.row_mask >> (lane // 16) & 1 and self.bank_mask >> (lane % 16 // 4) & 1
        )

    def apply(self, b: Builder, row: Value | None, execute: Value, *, wide: bool) -> tuple[Value, Value]:
        """Permuted copy of the source row and the mask of lanes to write.

        A source lane that is switched off in EXEC counts as missing.
        """
        if row is None:
            raise Unsupported("DPP with a scalar source")
        table = source_lanes(self.control)
        exists = sum(1 << lane for lane, source in enumerate(table) if source >= 0)
        gather = [max(source, 0) for source in table]
        live = execute.bitcast("<64 x i1>").shuffle(gather).bitcast("i64") & _signed(exists)
        copy = b.alloca("<128 x i32>")
        for part in range(2 if wide else 1):
            moved = b.load("<64 x i32>", row, 256 * part, 64).shuffle(gather)
            b.store(live.bitcast("<64 x i1>").select(moved, 0), copy, 256 * part, 64)
        write = execute & _signed(self.write_lanes())
        return copy, write if self.bound_zero else write & live


def _signed(mask: int) -> int:
    return mask - (1 << 64) if mask >> 63 else mask
