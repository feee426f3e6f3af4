"""Memory layout of what the native checks keep: one block per launch that the workgroup points to, shadow cells, slots.

All offsets are in bytes. A *stamp* of 64 bits names one access: bits 0-15 the memory instruction (numbered from 1),
16-31 the clock of its wave, 32-35 the wave, 36-53 the workgroup (numbered from 1), 54-59 the lane, and flags. A *cell* of three stamps
stands for one unit of memory: the last write, and two readers of different waves. A unit has 1, 2, 4, 8 or 16 bytes:
as many as every access so far was a multiple of.
"""

from __future__ import annotations

# ---- stamps
CLOCK_SHIFT, WAVE_SHIFT, GROUP_SHIFT = 16, 32, 36
RECORD_MASK, CLOCK_MASK = 0xFFFF, 0xFFFF
GROUP_BITS = 18
LANE_SHIFT = GROUP_SHIFT + GROUP_BITS
WHO_BITS = GROUP_BITS + GROUP_SHIFT - WAVE_SHIFT
"""Wave and workgroup together, from bit WAVE_SHIFT on."""
CARRIED = 1 << 60
"""The access was on its way when its wave passed a barrier or released what it had done."""
ATOMIC_STAMP = 1 << 61
LAST_CLOCK = 0xFFF0
"""The clocks are set back when one arrives here."""

CELL_WRITER = 0
CELL_FIRST = 8
CELL_SECOND = 16
CELL_BYTES = 24
COARSEST = 4
"""log2 of the largest unit, 16 bytes."""

# ---- entries of the log: what one lane of an instruction accessed
LOG_ADDRESS = 0
LOG_WHAT = 8
"""Bytes of the access, lane << 8, LOG_LDS for LDS, what it does << USE_SHIFT."""
LOG_OLD = 12
"""Digest (i32) of what stood there before a plain write."""
LOG_BYTES = 16
LOG_LDS = 1 << 16
USE_SHIFT = 20
READ, WRITE, ATOMIC = 1, 2, 4
LOG_ENTRIES = 512
"""More than one instruction makes: 64 lanes of a buffer load to LDS, four dwords one by one and the LDS write."""

# ---- areas: LDS, and one for each allocation in the order of the allocation table
AREA_START = 0
AREA_SIZE = 8
AREA_SHADOW = 16
"""Host pointer of the cells, or null when accesses are not compared."""
AREA_SHIFT = 24
AREA_WRITTEN = 32
"""Host pointer of a byte per byte of the area, 0xFF where something was written; null when that is not checked."""
AREA_LDS = 40
AREA_HOST = 48
AREA_TOUCHED = 56
"""Host pointer of a byte for each BLOCK of the area: whether its cells were used."""
AREA_BYTES = 64
BLOCK_SHIFT = 16

# ---- slots: the accesses of operations on their way, a ring for each wave and queue
SLOT_COUNT = 0
SLOT_LOW = 4
"""Lowest and highest byte of LDS that the operation touches."""
SLOT_HIGH = 8
SLOT_RECORD = 12
SLOT_LOG = 16
SLOT_BYTES = SLOT_LOG + LOG_BYTES * LOG_ENTRIES
SLOTS = 64
QUEUES = 4
QUEUE_VM, QUEUE_LGKM, QUEUE_SMEM, QUEUE_FLAT = range(QUEUES)
NO_SLOT = -1

# ---- the block
CK_FLAGS = 0
FLAG_RACE, FLAG_UNINIT = 1, 2
CK_GROUP = 8
"""Number of the running workgroup, from 1 on."""
CK_OPS = 16
"""Host pointer of the number of the memory instruction (i32) of each record, with OP_SYNC."""
OP_SYNC = 1 << 16
"""The instruction may order waves through memory: atomics that return, coherent accesses."""
CK_SLOTS = 24
CK_AREAS = 32
CK_FOREIGN = 40
"""Host pointer: for each wave and workgroup the 16 clocks (u16) of its waves that the wave has acquired; or null."""
CK_GROUPS = 48
CK_FINDINGS = 56
CK_FINDING_COUNT = 64
CK_KEYS = 72
"""Host pointer of the open-addressing table of pairs that were reported."""
CK_SYNC = 80
"""Host function called with the wave, the record number and 0; at a join of all waves with -1."""
CK_REFINE_AREA = 88
"""Area (host pointer) whose unit is too coarse for the access that stopped the wave, and the access."""
CK_REFINE_BITS = 96
CK_JOIN = 104
"""Not zero: the host function wants to be called at the next join."""
CK_LDS = 112
"""The area that stands for LDS."""
CK_LOG_COUNT = CK_LDS + AREA_BYTES
CK_CLOCKS = CK_LOG_COUNT + 8
"""Clock (i32) of each of 16 waves."""
CK_RING = CK_CLOCKS + 64
"""Next slot (i32) of each wave and queue."""
CK_KNOWN = CK_RING + 16 * 4 * QUEUES
"""For each wave the clocks (i32) of the others up to which their accesses are ordered before what it does now."""
CK_CHECKED = CK_KNOWN + 16 * 64
"""Host pointer of one CHECKED_BYTES entry per record: what the register check knows about it."""
CK_CHECKED_ITEMS = CK_CHECKED + 8
CK_REGISTERS = CK_CHECKED + 16
"""Host pointer: for each wave and register (check numbering) the mask of lanes that have been written."""
CK_UNINIT = CK_CHECKED + 24
"""Host pointer of the reads of never-written registers: entries of UNINIT_BYTES, at most one per record."""
CK_UNINIT_COUNT = CK_CHECKED + 32
CK_LOG = (CK_UNINIT_COUNT + 8 + 63) // 64 * 64
CK_BYTES = CK_LOG + LOG_BYTES * LOG_ENTRIES

# ---- findings
RAW_KIND = 0
KIND_RACE, KIND_UNINIT, KIND_OVERTAKEN = 1, 2, 3
RAW_WHAT = 4
RAW_ADDRESS = 8
RAW_STAMP = 16
RAW_OTHER = 24
RAW_LANES = 32
RAW_BYTES = 40
MOST_FINDINGS = 4096
KEYS = 4 * MOST_FINDINGS

# ---- check of registers
CHECKED_FIRST = 0
CHECKED_COUNT = 4
CHECKED_SEEN = 8
CHECKED_BYTES = 12
ITEM_READ_ACTIVE = 0
"""Items are ``register | mode << 16``: reads of the active lanes, reads of some lane, writes of active or all lanes; and
copies, source before destination, which are not reported but pass on what is not written."""
ITEM_READ_ANY = 1
ITEM_WRITE_ACTIVE = 2
ITEM_WRITE_ALL = 3
ITEM_COPY_FROM = 4
ITEM_COPY_TO = 5
ITEM_COPY_FROM_INDEXED = 6
"""Copies between vector registers of which this one is relative to M0 (s_set_gpr_idx_on)."""
ITEM_COPY_TO_INDEXED = 7
ITEM_WRITE_INDEXED = 8
ITEM_COPY_AND = 9
"""A further source of a copy: the destination counts as written where all sources do."""
ITEM_MASK = 10
"""Scalar pair with the lanes in which a choice takes its second source."""
ITEM_COPY_WHERE = 11
"""The second source of a choice."""
ITEM_WRITTEN_WHERE = 12
"""The second source is a constant."""
READS = (ITEM_READ_ACTIVE, ITEM_READ_ANY)
SHADOW_REGISTERS = 640
UNINIT_RECORD = 0
UNINIT_REGISTER = 4
UNINIT_LANES = 8
UNINIT_WAVE = 16
UNINIT_BYTES = 24
