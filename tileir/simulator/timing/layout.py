"""Memory layout of what the native functions of the timing model work on. All offsets are in bytes."""

from __future__ import annotations

# ---- recording: one structure per wave -----------------------------------------------------------------------------
T_INSTRUCTIONS = 0
T_COUNT = 8
T_CAPACITY = 16
T_LINES = 24
T_LINE_COUNT = 32
T_LINE_CAPACITY = 40
T_TABLE = 48
"""One STATIC_BYTES entry per record."""
T_RULES = 56
T_BANK_COUNTS = 64
T_BANK_WORDS = 72
T_BYTES = 80

STATIC_RULE = 0
"""Number of the rule by which the LDS serves the record, -1 for none (i32)."""
STATIC_CLOCKS = 4
"""LDS clocks without conflicts (i32)."""
STATIC_KIND = 8
STATIC_POLICY = 9
STATIC_BYTES = 16

RULE_BANKS = 0
RULE_GROUPS = 4
RULE_ATOMIC = 8
"""1 when lanes do not share a dword (i32)."""
RULE_GROUP_OF_LANE = 16
RULE_BYTES = RULE_GROUP_OF_LANE + 64

MAX_BANKS = 64
MAX_SLOTS = 32
"""Lane groups of an instruction, times its addresses per lane."""
BANK_DEPTH = 256
"""Distinct dwords that one bank may have to deliver to one lane group: 64 lanes of 4 dwords."""
MAX_LINES = 320
"""Cache lines of one instruction at most."""
LINE_SHIFT = 7
"""Cache lines have 128 bytes; the recorder refuses a target that says otherwise."""

INSTRUCTION_BYTES = 16
INSTRUCTION_RECORD = 0
INSTRUCTION_LDS = 4
INSTRUCTION_CONFLICT = 6
INSTRUCTION_FIRST_LINE = 8
INSTRUCTION_LINES = 12
LINE_BYTES = 16
LINE_ADDRESS = 0
LINE_SIZE = 8
LINE_KIND = 10
LINE_POLICY = 11
LINE_INSTRUCTION = 12

# ---- model of the CU: what it knows about each record ----------------------------------------------------------------
S_UNIT = 0
S_CLASS = 4
"""Bit of the arbiter's class, 0 for instructions that the wave executes itself (i32)."""
S_FLAGS = 8
F_PACKED, F_TO_LDS, F_VM, F_LGKM, F_BARRIER, F_END, F_LDS, F_MATRIX, F_SCALAR, F_PRIORITY = (1 << i for i in range(10))
S_BUSY = 12
"""Clocks for which the instruction occupies its unit."""
S_DELAY = 16
"""Clocks until the wave may issue again."""
S_TAKEN_DELAY = 20
"""The same when the next record is another than the one behind (branches)."""
S_WAIT_VM = 24
S_WAIT_LGKM = 28
S_VALUE = 32
"""Priority that s_setprio sets."""
S_RETURN = 36
"""Clocks of an LDS access on the path between the LDS and the registers of the SIMD."""
S_TO_USE = 40
"""Clocks from issue until another instruction may use the result: as an operand of a VALU or memory instruction, as a
factor of an MFMA, as its accumulator (the whole result of the same opcode, of another, a part of it)."""
S_TO_FACTOR = 44
S_TO_SAME = 48
S_TO_OTHER = 52
S_TO_PARTIAL = 56
S_OPCODE = 60
S_RESULT = 64
S_RESULT_COUNT = 68
S_LIST = 72
"""First of the record's registers in the list: those used, then factors, then the accumulator."""
S_USES = 76
S_FACTORS = 80
S_ACCUMULATOR = 84
S_ACCUMULATOR_COUNT = 88
S_BYTES = 96

# ---- a wave
W_TRACE = 0
W_COUNT = 8
W_POSITION = 16
W_READY = 24
W_MARK = 32
"""Clock up to which the wave's time is accounted for."""
W_STATIC = 40
W_PRIORITY = 48
W_STATUS = 52
W_SIMD = 56
W_SLOT = 60
W_GROUP = 64
W_INDEX = 68
W_LINES = 72
W_LEVELS = 80
W_START = 88
W_END = 96
W_INTERVAL = 104
"""Number of the wave's latest interval, plus one."""
W_VM_HEAD = 112
W_VM_COUNT = 116
W_LGKM_COUNT = 120
W_VM_LAST = 128
W_LDS_LAST = 136
W_VM = 192
VM_RING = 64
W_LGKM = W_VM + 8 * VM_RING
LGKM_ROOM = 32
W_REGISTERS = W_LGKM + 8 * LGKM_ROOM
REGISTERS = 512
R_USABLE = 0
R_ISSUED = 8
R_RECORD = 16
R_BYTES = 24
W_BYTES = W_REGISTERS + REGISTERS * R_BYTES
WAITING_TO_START, RUNNING, AT_BARRIER, ENDED = range(4)

# ---- a workgroup
G_FIRST = 0
G_WAVES = 4
G_ALIVE = 8
G_WAITING = 12
G_END = 16
G_BYTES = 24

# ---- the CU
SIMDS = 4
"""The arbiter's turns are compiled in; the model refuses a target that says otherwise."""
SIMD_WAVES = 16
C_STATIC = 0
C_LIST = 8
C_WAVES = 16
C_GROUPS = 24
C_GROUP_COUNT = 32
C_NEXT_GROUP = 40
C_RESIDENT = 48
C_STALLS = 56
C_BYTES_MOVED = 64
C_INTERVALS = 72
C_INTERVAL_COUNT = 80
C_INTERVAL_CAPACITY = 88
C_WINDOW = 96
C_ALIVE = 104
C_VALU_CLOSED = 112
"""Clocks after the issue of an MFMA in which no VALU instruction issues."""
C_PACKED_OPEN = 120
C_LDS_LATENCY = 128
C_LDS_QUEUE = 136
"""Entries of the queue that each SIMD may have."""
C_LDS_SHARE = 144
C_BARRIER = 152
C_WAVE_LAUNCH = 160
C_GROUP_LAUNCH = 168
C_LAST_SIMD = 176
C_LATENCY = 192
"""Doubles by level: clocks from issue to data."""
C_CLOCKS_PER_BYTE = 224
C_SERVER = 256
"""Doubles by level: when the level's share for this CU is free."""
C_LINE_CLOCKS = 288
C_SCALAR_LATENCY = 296
C_FILLS = 304
"""Host pointer of a table of the lines that came to the CU last: address, and clock (a double) of their arrival."""
C_SIMD = 320
D_VALU_FREE = 0
D_VALU_OPEN = 8
D_MFMA_FREE = 16
D_VMEM_FREE = 24
D_RETURN_FREE = 32
D_NEXT = 40
"""Earliest clock at which one of its waves may issue."""
D_COUNT = 48
D_QUEUE_HEAD = 56
D_QUEUE_COUNT = 64
"""LDS instructions of the SIMD that have not been served: clocks at which they will be, in order."""
D_QUEUE = 72
QUEUE_ROOM = 16
D_WAVES = D_QUEUE + 8 * QUEUE_ROOM
D_BYTES = D_WAVES + 4 * SIMD_WAVES
C_PAIR_FREE = C_SIMD + SIMDS * D_BYTES
"""For each pair of SIMDs the clock from which its half of the LDS is free."""
C_BYTES = C_PAIR_FREE + 4 * SIMDS
FILLS = 1 << 13
FILL_LINE = 0
FILL_ARRIVAL = 8
FILL_BYTES = 16
CAUSES = 16
"""Room for causes in the table of stalls."""

INTERVAL_BYTES = 32
I_START = 0
I_END = 8
I_RECORD = 16
I_WAVE = 20
I_SIMD = 22
I_UNIT = 23
I_CAUSE = 24
