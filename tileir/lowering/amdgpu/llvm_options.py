"""Process-wide options of LLVM that kernels are compiled with. Imports nothing: the worker reads it, too."""

# No access to memory leaves its place: without this, LLVM keeps what a loop stores to one place of LDS in a register, and reads
# LDS before the loop to have a first value, where nobody has written yet.
IN_ORDER = "-disable-licm-promotion"
NO_SCHEDULER = "-enable-misched=0"
NO_LSR = "-disable-lsr"
NO_MACHINE_LICM = "-disable-machine-licm"
# Process-wide options of LLVM for kernels with matrix instructions: our text is in final order, and the scheduler before
# register allocation would undo it; the allocator then keeps accumulators in place (measured on 32 variants of one loop).
# Loop strength reduction would turn the addresses of the element-wise version into dozens of induction variables: 69
# spills in the 256x256x64 GEMM on gfx942 with it, none without. The IR passes that the back end runs before selection find
# nothing in loops that are written in final form, and take a third of its time.
MFMA_OPTIONS = (IN_ORDER, NO_SCHEDULER, "-greedy-reverse-local-assignment=1", NO_LSR, "-amdgpu-scalar-ir-passes=0")
KNOWN = frozenset((*MFMA_OPTIONS, NO_MACHINE_LICM))
"""Options that the LLVM in use is known, from the tests, to take: a worker need not try them out."""
