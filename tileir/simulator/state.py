"""Memory layout of the state that native code works on, and of the records of a translated program.

All offsets are in bytes. The register file is kept as ``[register][lane]`` of 32-bit words, so that an op is a loop
over contiguous lanes.
"""

from __future__ import annotations

WAVE_SIZE = 64
"""Lanes per wave (CDNA has no other size)."""

# ---- wave ------------------------------------------------------------------------------------------------------------
SGPR = 0
"""128 scalar registers in the numbering of the instruction encodings: s0-s101, flat_scratch 102, xnack_mask 104,
vcc 106, ttmp0-15 108, m0 124, exec 126."""
FLAT_SCRATCH = 4 * 102
XNACK_MASK = 4 * 104
VCC = 4 * 106
TTMP = 4 * 108
M0 = 4 * 124
EXEC = 4 * 126
SCC = 512
MODE = 516
STATUS = 520
"""One of the STATUS_* / FAULT_* codes: why the wave is not running."""
CURRENT = 528
"""Pointer to the record that stopped the wave, or at which it resumes."""
BUDGET = 536
"""Instructions that the wave may still execute in this time slice."""
WORKGROUP = 544
HELPERS = 552
FAULT_LANES = 560
FAULT_ADDRESS = 568
FAULT_EXTRA = 576
PENDING = 584
"""Number of registers with a poisoned flag (i32); checks run only when it is not zero."""
SEQUENCE = 588
"""Sequence number of the last memory operation (i32)."""
SHARED_BASE = 592
SHARED_LIMIT = 600
PRIVATE_BASE = 608
PRIVATE_LIMIT = 616
SCRATCH = 624
"""Host pointer of the scratch memory of this wave: 64 lanes, each SCRATCH_BYTES."""
SCRATCH_BYTES = 632
VM_HEAD = 640
VM_LENGTH = 644
LGKM_HEAD = 648
LGKM_LENGTH = 652
SMEM_LENGTH = 656
FLAT_LENGTH = 660
EXECUTED = 664
"""Instructions executed by this wave (i64)."""
FAULT_REGISTER = 672
"""Register (in check numbering) whose poisoned flag stopped the wave."""
HW_ID = 676
XCC_ID = 680
BARRIERS = 684
"""Barriers that the wave has reached (i32)."""
POISON = 704
"""Flags of registers whose value is still on its way: CHECK_WORDS 64-bit words."""
CHECK_WORDS = 10
OWNER = 832
"""Sequence number of the operation that poisoned each of the 640 registers (i32)."""
QUEUE_VM = OWNER + 4 * 640
QUEUE_CAPACITY = 64
QUEUE_LGKM = QUEUE_VM + 64 * QUEUE_CAPACITY
QUEUE_SMEM = QUEUE_LGKM + 64 * QUEUE_CAPACITY
QUEUE_FLAT = QUEUE_SMEM + 64 * QUEUE_CAPACITY
VGPR = 20480
"""256 vector registers, then 256 accumulation registers, 256 bytes each."""
AGPR = VGPR + 256 * 256
WAVE_BYTES = VGPR + 512 * 256

VM_MAX = 63
"""Largest value of vmcnt on gfx9 (6 bits): the hardware holds back further operations. [CDNA3 ISA, s_waitcnt]"""
LGKM_MAX = 15
"""Largest value of lgkmcnt on gfx9 (4 bits). [CDNA3 ISA, s_waitcnt]"""

# Check numbering of registers: v 0-255, a 256-511, scalar 512-639.
CHECK_AGPR = 256
CHECK_SGPR = 512

# ---- pending memory operation (queue entry, 64 bytes) ------------------------------------------------------------------
ENTRY_RECORD = 0
ENTRY_SEQUENCE = 8
ENTRY_REGISTER = 12
ENTRY_COUNT = 16
ENTRY_LDS_BYTES = 20
"""Bytes per lane that a direct-to-LDS load writes; 0 for none."""
ENTRY_LDS_BASE = 24
ENTRY_NEED = 28
"""FLAT queue only: bit 0 waits for vmcnt(0), bit 1 for lgkmcnt(0)."""
ENTRY_LANES = 32
ENTRY_SLOT = 40
"""Number of the slot that holds the accesses of the operation, -1 for none (checks only)."""
ENTRY_BYTES = 64

# ---- workgroup ---------------------------------------------------------------------------------------------------------
WG_LDS = 0
WG_LDS_SIZE = 8
WG_LDS_POISON = 16
"""Host pointer of one byte per LDS dword: number of direct-to-LDS writes still on their way."""
WG_LDS_PENDING = 24
"""Number of direct-to-LDS loads on their way in the workgroup (i32)."""
WG_WAVES = 32
"""Host pointer of the first wave; waves are WAVE_BYTES apart."""
WG_WAVE_COUNT = 40
WG_ALLOCATIONS = 48
"""Host pointer of the allocation table, sorted by address."""
WG_ALLOCATION_COUNT = 56
WG_CODE_BASE = 64
WG_CODE_BYTES = 72
WG_CODE_MAP = 80
"""Host pointer: record number (i32, -1 for none) of each dword of the code."""
WG_RECORDS = 88
WG_CLOCK = 96
WG_SLICE = 104
WG_BUDGET = 112
WG_STRICT_BARRIERS = 120
WG_CHECK = 128
"""Host pointer of the block of the checks (``native/check_state.py``); null without checks."""
WG_BYTES = 256

# ---- allocation table --------------------------------------------------------------------------------------------------
ALLOC_START = 0
ALLOC_SIZE = 8
ALLOC_HOST = 16
ALLOC_FLAGS = 24
ALLOC_BYTES = 32
ALLOC_READ_ONLY = 1

# ---- record ------------------------------------------------------------------------------------------------------------
REC_FUNCTION = 0
REC_TARGET = 8
REC_PC = 16
REC_COUNT = 24
"""Executions of the instruction (i64)."""
REC_CHECKS = 32
REC_FLAGS = 36
REC_SLOTS = 40
"""Eight operand slots of 8 bytes: byte offsets into the wave, or constants."""
SLOTS = 8
REC_CHECK_WORDS = REC_SLOTS + 8 * SLOTS
"""Indices (u8) of the poison words to test, then their masks."""
REC_CHECK_MASKS = REC_CHECK_WORDS + 16
RECORD_SIZE = REC_CHECK_MASKS + 8 * CHECK_WORDS

# ---- helpers of the runtime, indices into the table at HELPERS -----------------------------------------------------------
HELPER_ENQUEUE_VM = 0
HELPER_ENQUEUE_LGKM = 1
HELPER_ENQUEUE_SMEM = 2
HELPER_ENQUEUE_FLAT = 3
HELPER_WAIT = 4
HELPER_FIND = 5
HELPER_OBSERVE = 6
"""The first of four: one for each queue of pending operations."""
HELPER_COUNT = 10

# ---- why a wave stopped --------------------------------------------------------------------------------------------------
STATUS_RUNNING = 0
STATUS_ENDED = 1
STATUS_BARRIER = 2
STATUS_SLICE = 3
STATUS_REFINE = 4
"""The checks need smaller units of memory before the wave goes on."""
FAULT_BASE = 16
FAULT_UNSUPPORTED = 16
FAULT_UNDECODABLE = 17
FAULT_POISONED_REGISTER = 18
FAULT_POISONED_LDS = 19
FAULT_LDS_BOUNDS = 20
FAULT_MEMORY_BOUNDS = 21
FAULT_READ_ONLY = 22
FAULT_SCRATCH_BOUNDS = 23
FAULT_MISALIGNED = 24
FAULT_JUMP = 25
FAULT_BUDGET = 26
FAULT_BARRIER = 27
FAULT_END_OF_CODE = 28
FAULT_TRAP = 29
FAULT_DESCRIPTOR = 30
FAULT_INDEX = 31
FAULT_MODE = 32
FAULT_EXEC = 33
