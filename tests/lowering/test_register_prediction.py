"""The prediction of registers: its parts by hand, and the whole against the metadata of compiled kernels."""

from __future__ import annotations

import pytest

from tests.kernels.harness import CHIPS, library
from tileir.lowering.amdgpu.emit.kernel import emit_module
from tileir.lowering.amdgpu.registers.allocate import Rows, allocate
from tileir.lowering.amdgpu.registers.liveness import liveness, profile
from tileir.lowering.amdgpu.registers.motion import early_loads, hoist, loops, share
from tileir.lowering.amdgpu.registers.predict import predict, pressure_limit
from tileir.lowering.amdgpu.registers.select import CROSS, MATERIALISED, SCALAR_CONSTANT, select
from tileir.lowering.amdgpu.registers.text import Function, read, type_of
from tileir.lowering.amdgpu.registers.values import ACCUMULATION, MASK, SCALAR, VECTOR, Registers, kinds_of
from tileir.target import get

HEAD = 'llvm.func @k(%arg_X: !llvm.ptr<1> {llvm.nonnull}, %sym_N: i32) attributes {passthrough = [["amdgpu-agpr-alloc", "AGPRS"]]} {'


def function(*lines: str, agprs: int = 0) -> Function:
    """A function of these statements."""
    return read("\n".join((HEAD.replace("AGPRS", str(agprs)), *lines, "}")))


def peak(f: Function, file: str = VECTOR) -> tuple[int, int]:
    """Registers alive at most, and registers that placing them takes."""
    registers = Registers(f)
    live = liveness(f, registers)
    return max(profile(live, registers, file), default=0), allocate(Rows(f, registers, live), file, backwards=False)


THREAD = "%t = rocdl.workitem.id.x : i32"
ONE = "%one = llvm.mlir.constant(1 : i32) : i32"
STORE = "llvm.store {}, %arg_X : {}, !llvm.ptr<1>"


@pytest.mark.parametrize(
    ("text", "dwords"),
    [("i1", 1), ("bf16", 1), ("f64", 2), ("vector<8xbf16>", 4), ("vector<3xi8>", 1), ("!llvm.ptr<8>", 4), ("!llvm.ptr<3>", 1)],
)  # fmt: skip
def test_registers_of_types(text: str, dwords: int) -> None:
    assert type_of(text).dwords == dwords


def test_what_nobody_needs_is_dropped() -> None:
    f = function(
        THREAD, "%a = llvm.add %t, %t : i32", "%b = llvm.mul %t, %t : i32", STORE.format("%a", "i32"), "llvm.return"
    )
    assert [i.op for i in f.instructions()] == ["rocdl.workitem.id.x", "llvm.add", "llvm.store", "llvm.return"]


def test_files_of_values() -> None:
    f = function(
        THREAD,
        ONE,
        "%s = llvm.add %sym_N, %one : i32",
        "%v = llvm.add %s, %t : i32",
        '%m = llvm.icmp "ult" %v, %s : i32',
        "%c = llvm.select %m, %v, %t : i1, i32",
        "%p = rocdl.mfma.f32.4x4x1f32 %c, %c, %c, %one, %one, %one : (i32, i32, i32, i32, i32, i32) -> vector<4xf32>",
        STORE.format("%p", "vector<4xf32>"),
        "llvm.return",
        agprs=256,
    )
    kinds = kinds_of(f)
    assert [kinds[x] for x in ("%s", "%v", "%m", "%c", "%p")] == [SCALAR, VECTOR, MASK, VECTOR, ACCUMULATION]


def test_parts_share_the_registers_of_the_whole() -> None:
    """Four loads of one dword as a vector, and an element of it again: five names, four registers and the thread's."""
    loads = [f"%l{i} = rocdl.raw.ptr.buffer.load %arg_X, %t, %one, %one : i32" for i in range(4)]
    parts = ["%p = llvm.mlir.poison : vector<4xi32>"]
    for i in range(4):
        parts += [f"%k{i} = llvm.mlir.constant({i} : i32) : i32"]
        parts += [f"%q{i} = llvm.insertelement %l{i}, {f'%q{i - 1}' if i else '%p'}[%k{i} : i32] : vector<4xi32>"]
    use = ["%e = llvm.extractelement %q3[%k2 : i32] : vector<4xi32>", STORE.format("%q3", "vector<4xi32>")]
    f = function(THREAD, ONE, *loads, *parts, *use, STORE.format("%e", "i32"), "llvm.return")
    assert peak(f) == (4, 4), "the thread's register serves the last load, too"


def test_rows_begin_at_even_registers() -> None:
    """A 64-bit value between two that live all through: three registers in use, four taken."""
    wide = "%w = llvm.zext %t : i32 to i64"
    f = function(THREAD, wide, STORE.format("%w", "i64"), STORE.format("%t", "i32"), "llvm.return")
    assert peak(f) == (3, 3)


LOOP = (
    THREAD,
    ONE,
    "llvm.br ^b1(%one : i32)",
    "^b1(%i: i32 loc(unknown)):",
    "%a = llvm.mul %t, %t : i32",
    "%b = llvm.add %a, %i : i32",
    STORE.format("%b", "i32"),
    "%n = llvm.add %i, %one : i32",
    '%more = llvm.icmp "slt" %n, %sym_N : i32',
    "llvm.cond_br %more, ^b1(%n : i32), ^b2",
    "^b2:",
    "llvm.return",
)


def test_invariants_leave_loops_as_far_as_registers_allow() -> None:
    f = function(*LOOP)
    assert [(h.label, sorted(body)) for h, body in loops(f)] == [("^b1", ["^b1"])]
    hoist(f, 256)
    assert [i.result for i in f.blocks[0].instructions if i.op == "llvm.mul"] == ["%a"]
    g = function(*LOOP)
    hoist(g, 2)
    assert not any(i.op == "llvm.mul" for i in g.blocks[0].instructions)


def test_values_are_computed_once_where_the_first_is_passed() -> None:
    again = ("%a2 = llvm.mul %t, %t : i32", STORE.format("%a2", "i32"))
    f = function(*LOOP[:-1], *again, "llvm.return")
    share(f)
    assert sum(i.op == "llvm.mul" for i in f.instructions()) == 1
    assert f.blocks[2].instructions[0].operands[0] == "%a"


def test_selection_by_lanes_takes_constants_from_registers() -> None:
    def selected(constant: int) -> int:
        f = function(
            THREAD,
            f"%k = llvm.mlir.constant({constant} : i32) : i32",
            '%m = llvm.icmp "eq" %t, %k : i32',
            "%s = llvm.select %m, %t, %k : i1, i32",
            STORE.format("%s", "i32"),
            "llvm.return",
        )
        select(f)
        return sum(i.op == MATERIALISED for i in f.instructions())

    assert (selected(64), selected(65)) == (0, 1), "64 is the largest inline constant"


def test_addends_of_wide_products_are_pairs() -> None:
    """A 64-bit multiply-add overwrites its addend, so a constant one is moved to two vector registers."""
    fma = "%d = llvm.intr.fma(%w, %w, {}) : (f64, f64, f64) -> f64"
    for bits, pairs in (("0x400921FB54442D18", 1), ("0x0000000000000000", 0)):
        constant = f"%k = llvm.mlir.constant({bits} : f64) : f64"
        f = function(THREAD, "%w = llvm.sitofp %t : i32 to f64", constant, fma.format("%k"), STORE.format("%d", "f64"), "llvm.return")  # fmt: skip
        select(f)
        made = [i.type for i in f.instructions() if i.op == MATERIALISED]
        assert [t.dwords for t in made if t is not None] == [2] * pairs


def test_literals_come_from_scalar_registers() -> None:
    """A constant that two instructions use, or that a 64-bit one does, or `v_mul_lo_u32`; not that of one short instruction."""

    def selected(*lines: str) -> int:
        f = function(THREAD, "%k = llvm.mlir.constant(1000 : i32) : i32", *lines, "llvm.return")
        select(f)
        return sum(i.op == SCALAR_CONSTANT for i in f.instructions())

    add = ("%a = llvm.add %t, %k : i32", STORE.format("%a", "i32"))
    again = ("%b = llvm.xor %t, %k : i32", STORE.format("%b", "i32"))
    assert (selected(*add), selected(*add, *again)) == (0, 2)
    assert selected("%m = llvm.mul %t, %k : i32", STORE.format("%m", "i32")) == 1
    wide = (
        "%w = llvm.sitofp %t : i32 to f64",
        "%c = llvm.mlir.constant({} : f64) : f64",
        "%p = llvm.fmul %w, %c : f64",
        STORE.format("%p", "f64"),
    )
    for bits, count in (("0x400921FB54442D18", 1), ("0x3FF0000000000000", 0)):
        assert selected(*(x.format(bits) for x in wide)) == count


def test_cross_products_are_kept_where_several_sums_use_a_product() -> None:
    def kept(sums: int) -> int:
        lines = ["%w = llvm.sext %t : i32 to i64", "%s = llvm.sext %sym_N : i32 to i64", "%m = llvm.mul %w, %s : i64"]
        for i in range(sums):
            lines += [f"%d{i} = llvm.add %m, %w : i64", f"%p{i} = llvm.getelementptr %arg_X[%d{i}] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8"]  # fmt: skip
            lines += [f"%l{i} = llvm.load %p{i} : !llvm.ptr<1> -> i32", STORE.format(f"%l{i}", "i32")]
        f = function(THREAD, *lines, "llvm.return")
        select(f)
        made = [i.result for i in f.instructions() if i.op == CROSS]
        uses = [i for i in f.instructions() if i.op == "llvm.load" and set(made) & set(i.operands)]
        assert len(uses) == sums * len(made)
        return len(made)

    assert (kept(1), kept(2)) == (0, 1)


def test_wide_rows_can_keep_what_is_dead() -> None:
    """A vector of four, of which one element is used late, and four others then: they fit into the dead ones, or do not."""
    loads = [f"%l{i} = rocdl.raw.ptr.buffer.load %arg_X, %t, %one, %one : vector<4xi32>" for i in range(2)]
    zero = "%zero = llvm.mlir.constant(0 : i32) : i32"
    take = "%e{0} = llvm.extractelement %l{0}[%zero : i32] : vector<4xi32>"
    f = function(
        THREAD, ONE, zero, loads[0], take.format(0), loads[1], STORE.format("%l1", "vector<4xi32>"), STORE.format("%e0", "i32"), "llvm.return",
    )  # fmt: skip
    registers = Registers(f)
    rows = Rows(f, registers, liveness(f, registers))
    tight, whole = (allocate(rows, VECTOR, backwards=True, widest=w) for w in (5, 4))
    assert tight < whole == 8


@pytest.mark.parametrize("chip", CHIPS)
def test_bytes_pass_from_block_to_block_as_words(chip: str) -> None:
    """Vectors of bytes would be taken apart, one register a byte."""
    compiled = library("gemm_int8", chip, BM=64, BN=64)
    assert compiled.final is not None
    text = emit_module(compiled.final, get(chip))
    heads = [line for line in text.splitlines() if line.lstrip().startswith("^")]
    jumps = [line for line in text.splitlines() if " llvm.br " in line or " llvm.cond_br " in line]
    assert heads and jumps and not any("xi8>" in line for line in (*heads, *jumps))


def test_loads_come_early_but_not_past_barriers() -> None:
    load = "%l{0} = rocdl.raw.ptr.buffer.load %arg_X, %t, %one, %one : i32"
    stores = [STORE.format(v, "i32") for v in ("%x", "%l0", "%l1")]
    start = (THREAD, ONE, "%x = llvm.mul %t, %t : i32", stores[0])
    f = function(*start, load.format(0), "rocdl.s.barrier", load.format(1), *stores[1:], "llvm.return")
    early_loads(f)
    ops = [i.op for i in f.instructions()]
    assert ops.index("rocdl.raw.ptr.buffer.load") < ops.index("llvm.mul") < ops.index("rocdl.s.barrier")
    assert ops[ops.index("rocdl.s.barrier") + 1] == "rocdl.raw.ptr.buffer.load"


def test_limit_of_pressure() -> None:
    f = function(THREAD, "llvm.return")
    chip = get("gfx942")
    for threads, lds, limit in ((256, 0, 64), (256, 65536, 256), (512, 32768, 128), (64, 0, 64)):
        f.threads, f.lds = threads, lds
        assert pressure_limit(f, chip) == limit, (threads, lds)


CASES = (
    ("vector_add", {}, 8, 20),
    ("softmax", {}, 8, 20),
    ("transpose", {}, 8, 14),
    ("gemm", {"BM": 64, "BN": 64}, 12, 14),
    ("gemm", {"BM": 256, "BN": 256}, 12, 14),
    ("gemm_int8", {"BM": 64, "BN": 64}, 8, 14),
)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("name", "params", "vectors", "scalars"), CASES)
def test_against_the_metadata(chip: str, name: str, params: dict[str, int], vectors: int, scalars: int) -> None:
    compiled = library(name, chip, **params)
    assert compiled.final is not None
    found = predict(emit_module(compiled.final, get(chip)), get(chip))
    agprs, vgprs, sgprs = (int(str(compiled.stats[k])) for k in ("agprs", "vgprs", "sgprs"))
    assert found.accumulation == agprs
    assert abs(found.vector - (vgprs - agprs)) <= vectors
    assert abs(found.scalar - sgprs) <= scalars
