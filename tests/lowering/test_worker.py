"""The code generation worker: what comes out, and that nothing that goes wrong in it reaches this process."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tileir.codeobject import CodeObject
from tileir.lowering.amdgpu.attempts import MFMA_ATTEMPTS, OTHER_ATTEMPTS
from tileir.lowering.amdgpu.failure import explain_death
from tileir.lowering.amdgpu.llvm_options import KNOWN
from tileir.lowering.amdgpu.worker import OUTPUTS, CodegenError, Worker, worker_for

DATA = Path(__file__).parent / "data"
LOOP = (DATA / "loop.mlir").read_text()
PARTS = "module { gpu.module @m { %s llvm.func @k(%%A: !llvm.ptr<1>) attributes {rocdl.kernel} {\n%s\nllvm.return } } }"
SMALL = PARTS % ("", "%t = rocdl.workitem.id.x : i32\nllvm.store %t, %A : i32, !llvm.ptr<1>")


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One worker for the module; tests that kill it prove that it comes back."""
    shared = Worker()
    yield shared
    shared.stop()


def failure(worker: Worker, stage: str, text: str, target: str = "gfx950", **options: object) -> CodegenError:
    """The error of a compile that must fail; the compile after it must succeed."""
    with pytest.raises(CodegenError) as caught:
        worker.compile(stage, text, target, **options)  # pyright: ignore[reportArgumentType]
    assert worker.compile("mlir", SMALL, "gfx950").hsaco
    return caught.value


# What comes out


@pytest.mark.parametrize(
    ("file", "target"),
    [("ops_gfx950", "gfx950"), ("ops_gfx942", "gfx942"), ("conversions", "gfx942"), ("conversions", "gfx950")],
)
def test_operations_that_lowering_uses_compile(worker: Worker, file: str, target: str) -> None:
    output = worker.compile("mlir", (DATA / f"{file}.mlir").read_text(), target)
    assert output.hsaco is not None
    code = CodeObject.from_bytes(output.hsaco)
    assert code.chip == target and list(code.kernels) == ["k"]
    assert output.diagnostics == ()


def test_every_output_and_the_time_of_every_step(worker: Worker) -> None:
    output = worker.compile("mlir", LOOP, "gfx950", emit=OUTPUTS)
    assert output.mlir is not None and "rocdl.mfma.f32.32x32x16.bf16" in output.mlir
    assert output.llvm is not None and "ptr addrspace(1) inreg noalias %A, i32 inreg %K" in output.llvm
    assert output.asm is not None and "v_mfma_f32_32x32x16_bf16" in output.asm
    assert output.obj is not None and not CodeObject.from_bytes(output.obj).linked
    assert output.hsaco is not None and CodeObject.from_bytes(output.hsaco).linked
    steps = {"parse", "check", "convert", "translate", "llvm-parse", "print", "codegen", "codegen-listing", "link"}
    assert steps | {"round_trip"} == set(output.timings)
    assert sum(output.timings[s] for s in steps) <= output.timings["round_trip"]


def test_only_what_is_asked_for_is_made(worker: Worker) -> None:
    output = worker.compile("mlir", LOOP, "gfx950", emit=("llvm",))
    assert output.llvm and (output.mlir, output.asm, output.obj, output.hsaco) == (None,) * 4
    assert "codegen" not in output.timings
    output = worker.compile("mlir", LOOP, "gfx950", emit=("mlir",))
    assert output.mlir and output.llvm is None and "translate" not in output.timings


def test_metadata_says_what_the_mlir_attributes_say(worker: Worker) -> None:
    hsaco = worker.compile("mlir", LOOP, "gfx950").hsaco
    assert hsaco is not None
    kernel = CodeObject.from_bytes(hsaco).kernels["k"]
    metadata = kernel.metadata
    assert metadata is not None
    assert [(a.name, a.offset, a.size, a.value_kind) for a in metadata.args] == [
        ("A", 0, 8, "global_buffer"),
        ("K", 8, 4, "by_value"),
    ]
    assert metadata.reqd_workgroup_size == (256, 1, 1)
    assert metadata.agpr_count == 16 and metadata.group_segment_fixed_size == 65536


def test_own_metadata_survives_from_every_stage(worker: Worker) -> None:
    first = worker.compile("mlir", (DATA / "ops_gfx950.mlir").read_text(), "gfx950", emit=OUTPUTS)
    assert first.llvm and first.asm and first.hsaco
    again = [worker.compile("llvm", first.llvm, "gfx950").hsaco, worker.compile("asm", first.asm, "gfx950").hsaco]
    for hsaco in (first.hsaco, *again):
        assert hsaco is not None
        assert CodeObject.from_bytes(hsaco).section(".tileir.meta") == b'{"answer": 42}'


def test_later_stages_resume_to_the_same_machine_code(worker: Worker) -> None:
    first = worker.compile("mlir", LOOP, "gfx950", emit=OUTPUTS)
    assert first.mlir and first.llvm and first.asm and first.hsaco
    code = CodeObject.from_bytes(first.hsaco).kernels["k"].code
    for stage, text in (("mlir", first.mlir), ("llvm", first.llvm), ("asm", first.asm)):
        hsaco = worker.compile(stage, text, "gfx950").hsaco
        assert hsaco is not None
        resumed = CodeObject.from_bytes(hsaco)
        assert resumed.kernels["k"].code == code, stage
        metadata = resumed.kernels["k"].metadata
        assert metadata is not None and [a.name for a in metadata.args] == ["A", "K"], stage
    assert worker.compile("mlir", first.mlir, "gfx950").hsaco == first.hsaco
    assert worker.compile("llvm", first.llvm, "gfx950").hsaco == first.hsaco


def test_lines_of_the_tile_file_reach_the_machine_code(worker: Worker) -> None:
    hsaco = worker.compile("mlir", LOOP, "gfx950").hsaco
    assert hsaco is not None
    sources = {row.source for row in CodeObject.from_bytes(hsaco).line_table.rows if row.source is not None}
    assert {s.file for s in sources} == {"gemm.tile"}
    assert (14, 10) in {(s.line, s.column) for s in sources}  # the MFMA of loop.mlir


def test_code_object_version(worker: Worker) -> None:
    versions = {}
    for asked in (None, 5, 6):
        hsaco = worker.compile("mlir", SMALL, "gfx950", code_object_version=asked).hsaco
        assert hsaco is not None
        versions[asked] = CodeObject.from_bytes(hsaco).code_object_version
    assert versions == {None: 5, 5: 5, 6: 6}
    six = worker.compile("mlir", SMALL, "gfx950", code_object_version=6, emit=("llvm", "asm"))
    assert six.llvm and six.asm
    for stage, text in (("llvm", six.llvm), ("asm", six.asm)):
        hsaco = worker.compile(stage, text, "gfx950").hsaco
        assert hsaco is not None and CodeObject.from_bytes(hsaco).code_object_version == 6
        error = failure(worker, stage, text, code_object_version=5)
        assert "states code object version 6, but version 5 was asked for" in error.message


@pytest.mark.parametrize("passes", ["minimal", "O1", "O2", "O3"])
def test_ir_passes_run_only_on_request(worker: Worker, passes: str) -> None:
    text = PARTS % ("", "%c = llvm.mlir.constant(3 : i32) : i32\n%t = rocdl.workitem.id.x : i32\n%d = llvm.add %t, %c : i32\n"
                    "%e = llvm.sub %d, %c : i32\nllvm.store %e, %A : i32, !llvm.ptr<1>")  # fmt: skip
    plain = worker.compile("mlir", text, "gfx950", emit=("llvm",)).llvm
    better = worker.compile("mlir", text, "gfx950", passes=passes, emit=("llvm",)).llvm
    assert plain and better
    assert " sub i32" in plain and " sub i32" not in better


def test_amdgpu_vector_and_arith_operations_are_converted(worker: Worker) -> None:
    body = """
      %t = rocdl.workitem.id.x : i32
      %c = arith.constant 5 : i32
      %s = arith.muli %t, %c : i32
      %f = arith.sitofp %s : i32 to f32
      %v = vector.broadcast %f : f32 to vector<4xf32>
      %h = llvm.fptrunc %v : vector<4xf32> to vector<4xf16>
      %d = amdgpu.mfma 16x16x16 %h * %h + %v blgp = none : vector<4xf16>, vector<4xf16>, vector<4xf32>
      llvm.store %d, %A : vector<4xf32>, !llvm.ptr<1>"""
    output = worker.compile("mlir", PARTS % ("", body), "gfx942", emit=("mlir", "asm"))
    assert output.mlir and "rocdl.mfma.f32.16x16x16f16" in output.mlir
    assert not re.search(r"\b(amdgpu|vector|arith)\.\w", output.mlir)
    assert output.asm and "v_mfma_f32_16x16x16_f16" in output.asm


def test_assembly_inside_the_ir_goes_through_the_assembler(worker: Worker) -> None:
    text = 'define amdgpu_kernel void @k() {\n  call void asm sideeffect "s_nop 3", ""()\n  ret void\n}\n'
    hsaco = worker.compile("llvm", text, "gfx950").hsaco
    assert hsaco is not None
    assert CodeObject.from_bytes(hsaco).kernels["k"].code[:4] == bytes.fromhex("030080bf")  # s_nop 3
    error = failure(worker, "llvm", text.replace("s_nop", "s_bad"))
    assert "invalid instruction" in error.diagnostics[0].message


def test_warnings_of_llvm_are_handed_on(worker: Worker) -> None:
    text = SMALL.replace("{rocdl.kernel}", '{rocdl.kernel, passthrough = [["target-features", "+flying"]]}')
    output = worker.compile("mlir", text, "gfx950")
    assert output.hsaco and any("'+flying' is not a recognized feature" in d.message for d in output.diagnostics)
    assert worker.compile("mlir", SMALL, "gfx950").diagnostics == ()


# Determinism


def test_bytes_do_not_depend_on_process_or_hash_seed(worker: Worker) -> None:
    program = (
        "import sys, hashlib; from tileir.lowering.amdgpu.worker import OUTPUTS, worker_for\n"
        "o = worker_for().compile('mlir', sys.stdin.read(), 'gfx950', emit=OUTPUTS)\n"
        "print(*(hashlib.sha256(x if isinstance(x, bytes) else x.encode()).hexdigest()\n"
        "        for x in (o.mlir, o.llvm, o.asm, o.obj, o.hsaco)))\n"
    )
    text = (DATA / "ops_gfx950.mlir").read_text()
    seen: set[str] = set()
    for seed in ("0", "1", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", program], input=text, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        seen.add(done.stdout.strip())
    here = worker.compile("mlir", text, "gfx950", emit=OUTPUTS)
    parts = (here.mlir, here.llvm, here.asm, here.obj, here.hsaco)
    digests = [hashlib.sha256(p if isinstance(p, bytes) else (p or "").encode()).hexdigest() for p in parts]
    assert seen == {" ".join(digests)}


# What goes wrong


def test_matrix_instruction_of_the_other_chip(worker: Worker) -> None:
    error = failure(worker, "mlir", LOOP, "gfx942")
    assert error.crashed and "Cannot select" in error.stderr
    assert "no machine instruction for llvm.amdgcn.mfma.f32.32x32x16.bf16" in error.message
    (place,) = error.diagnostics
    assert (place.file, place.line, place.column) == ("gemm.tile", 14, 10)
    assert str(error).startswith("gemm.tile:14:10: error: ")


def test_place_is_found_through_a_location_alias(worker: Worker) -> None:
    text = LOOP.replace('loc("gemm.tile":14:10)', "loc(#here)") + '#here = loc("gemm.tile":99:7)\n'
    (place,) = failure(worker, "mlir", text, "gfx942").diagnostics
    assert (place.file, place.line, place.column) == ("gemm.tile", 99, 7)


def test_wide_direct_load_on_gfx942(worker: Worker) -> None:
    error = failure(worker, "mlir", (DATA / "ops_gfx950.mlir").read_text(), "gfx942")
    assert error.crashed and "no machine instruction for llvm.amdgcn.raw.ptr.buffer.load.lds" in error.message


def test_lds_over_the_limit(worker: Worker) -> None:
    error = failure(worker, "mlir", LOOP.replace("65536", "163844"))
    assert error.crashed and error.message == "k needs 163844 bytes of LDS, the chip has 163840"
    assert error.diagnostics[0].file == "gemm.tile"
    assert worker.compile("mlir", LOOP.replace("65536", "163840"), "gfx950").hsaco


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("module { gpu.module @m { llvm.func @k( } }", 1, "expected non-function type"),
        (SMALL.replace("%t, %A", "%nothing, %A"), 3, "use of undeclared SSA value name"),
        (SMALL.replace("%t, %A : i32", "%t, %A : i64"), 3, "expects different type than prior uses"),
        (PARTS % ("", "foo.bar"), 2, "Dialect `foo' not found"),
        (PARTS % ("", "%m = memref.alloc() : memref<4xf32>"), 2, "operation 'memref.alloc' is not accepted"),
        (PARTS % ("", "%c = llvm.mlir.constant(1.0 : f32) : f32\n%x = amdgpu.mfma 16x16x16 %c * %c + %c : f32, f32, f32"), 3, "mfma"),
        ("\x00\x01", 1, "unexpected character"),
    ],
)  # fmt: skip
def test_malformed_mlir_is_located_and_kills_nothing(worker: Worker, text: str, line: int, message: str) -> None:
    worker.start()
    before = worker.pid
    error = failure(worker, "mlir", text)
    assert not error.crashed and worker.pid == before
    assert error.diagnostics[0].line == line and message in error.diagnostics[0].message


@pytest.mark.parametrize("text", ["", "module {}", "module { func.func @f() { return } }"])
def test_mlir_without_a_gpu_module(worker: Worker, text: str) -> None:
    error = failure(worker, "mlir", text)
    assert not error.crashed and "exactly one gpu.module" in error.message


def test_argument_names_must_match_the_arguments(worker: Worker) -> None:
    error = failure(worker, "mlir", LOOP.replace('["A", "K"]', '["A"]'))
    assert error.message == "'argument_names' of 'k' names 1 of 2 arguments"
    error = failure(worker, "mlir", LOOP.replace('["A", "K"]', '["A", 7]'))
    assert "must be an array of strings" in error.message and error.diagnostics[0].file == "gemm.tile"


def test_failed_translation_keeps_its_located_messages(worker: Worker) -> None:
    body = '%c = llvm.mlir.constant(0.0 : f32) : f32\n%x = llvm.call_intrinsic "llvm.amdgcn.nosuch"(%c) : (f32) -> f32'
    error = failure(worker, "mlir", PARTS % ("", body))
    assert error.crashed and "could not be translated" in error.message
    assert error.diagnostics[0].line == 3 and "llvm.amdgcn.nosuch" in error.diagnostics[0].message


def test_assertion_inside_mlir(worker: Worker) -> None:
    table = "llvm.mlir.global private constant @t(dense<[1.0, 2.0, 3.0, 4.0]> : vector<4xf32>) : !llvm.array<4 x f32>"
    error = failure(worker, "mlir", PARTS % (table, ""))
    assert error.crashed and "an assertion inside MLIR or LLVM failed" in error.message
    assert "Assertion" in error.stderr


def test_undefined_symbol(worker: Worker) -> None:
    error = failure(worker, "mlir", PARTS % ("llvm.func @helper()", "llvm.call @helper() : () -> ()"))
    assert not error.crashed and "undefined symbols: helper" in error.message


def test_malformed_llvm_ir(worker: Worker) -> None:
    text = "define amdgpu_kernel void @k() {\n  %1 = add i32 %2, i33 4\n  ret void\n}\n"
    error = failure(worker, "llvm", text)
    assert not error.crashed
    assert (error.diagnostics[0].line, error.diagnostics[0].message) == (2, "expected value token")


def test_llvm_ir_that_does_not_verify(worker: Worker) -> None:
    text = (
        "declare void @llvm.amdgcn.s.waitcnt(i32 immarg)\n"
        "define amdgpu_kernel void @k(i32 %x) {\n  call void @llvm.amdgcn.s.waitcnt(i32 %x)\n  ret void\n}\n"
    )
    error = failure(worker, "llvm", text)
    assert not error.crashed and "immarg operand has non-immediate parameter" in error.message


def test_llvm_ir_for_another_machine(worker: Worker) -> None:
    error = failure(worker, "llvm", 'target triple = "x86_64-unknown-linux-gnu"\n')
    assert "for 'x86_64-unknown-linux-gnu', not for amdgcn-amd-amdhsa" in error.message


def test_malformed_assembly(worker: Worker) -> None:
    error = failure(worker, "asm", ".text\nk:\n  v_flies_b32 v0, v1\n")
    assert not error.crashed
    assert (error.diagnostics[0].line, error.diagnostics[0].message) == (3, "invalid instruction")


def test_compile_that_takes_too_long(worker: Worker) -> None:
    chain = "%x0 = rocdl.workitem.id.x : i32\n"
    chain += "".join(f"%x{i} = llvm.mul %x{i - 1}, %x{i - 1} : i32\n" for i in range(1, 20000))
    text = PARTS % ("", chain + "llvm.store %x19999, %A : i32, !llvm.ptr<1>")
    start = time.monotonic()
    error = failure(worker, "mlir", text, timeout=0.05)
    assert error.crashed and "did not finish within 0.05 s" in error.message
    assert time.monotonic() - start < 5


def test_wrong_requests_are_refused_without_the_worker() -> None:
    idle = Worker()
    for stage, target, options, words in (
        ("mlir", "gfx90a", {}, "target 'gfx90a' is not one of gfx942, gfx950"),
        ("tile", "gfx950", {}, "stage 'tile' is not one of mlir, llvm, asm"),
        ("asm", "gfx950", {"emit": ("llvm",)}, "output of stage 'asm' 'llvm' is not one of asm, obj, hsaco"),
        ("mlir", "gfx950", {"emit": ()}, "no output was asked for"),
        ("mlir", "gfx950", {"passes": "O9"}, "pass pipeline 'O9' is not one of none, minimal, O1, O2, O3"),
        ("mlir", "gfx950", {"opt": 4}, "code generation level 4 is not one of 0, 1, 2, 3"),
        ("mlir", "gfx950", {"code_object_version": 4}, "code object version 4 is not one of 5, 6"),
    ):
        with pytest.raises(CodegenError) as caught:
            idle.compile(stage, SMALL, target, **options)
        assert caught.value.message == words
    assert idle.pid is None


def test_options_of_llvm(worker: Worker) -> None:
    with pytest.raises(CodegenError, match="is not an LLVM option"):
        Worker(["enable-misched=0"])
    for option, words in (
        ("-no-such-option", "LLVM does not know the option '-no-such-option'"),
        ("-enable-misched=maybe", "LLVM rejects the option '-enable-misched=maybe': "),
    ):
        with pytest.raises(CodegenError) as caught:
            Worker([option]).compile("mlir", SMALL, "gfx950")
        assert caught.value.message.startswith(words)
    right = Worker(["-enable-misched=0", "-greedy-reverse-local-assignment=1"])
    text = (DATA / "ops_gfx950.mlir").read_text()
    assert right.compile("mlir", text, "gfx950").hsaco != worker.compile("mlir", text, "gfx950").hsaco
    right.stop()
    assert worker_for(["-enable-misched=0"]) is worker_for(("-enable-misched=0",)) is not worker_for()


def test_options_that_are_not_tried_out_are_taken() -> None:
    assert {o for a in (*MFMA_ATTEMPTS, *OTHER_ATTEMPTS) for o in a.options} <= KNOWN
    script = "from tileir.lowering.amdgpu import codegen; codegen._set_options(tuple(sorted(codegen.KNOWN)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_loading_the_attempts_loads_no_compiler() -> None:
    script = "import sys, tileir.lowering.amdgpu.attempts; print('numpy' in sys.modules or 'tileir.ir' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"


def test_unknown_deaths_say_what_is_known() -> None:
    error = explain_death(-signal.SIGKILL, "", "mlir", "")
    assert error.message == "the code generator died of SIGKILL (out of memory?)" and error.crashed
    error = explain_death(1, "Traceback\nValueError: odd\n", "mlir", "")
    assert error.message == "the code generator ended with status 1: ValueError: odd"
    assert "not an answer" in explain_death(None, "", "mlir", "").message


# Life of the process


def test_start_returns_at_once_and_the_process_stays() -> None:
    own = Worker()
    begin = time.perf_counter()
    own.start()
    assert time.perf_counter() - begin < 0.1
    first = own.pid
    own.start()
    own.compile("mlir", SMALL, "gfx950")
    own.compile("mlir", SMALL, "gfx942")
    assert own.pid == first is not None
    own.stop()
    assert own.pid is None
    assert own.compile("mlir", SMALL, "gfx950").hsaco and own.pid not in (None, first)
    own.stop()


def test_worker_killed_between_compiles_is_replaced() -> None:
    own = Worker()
    own.compile("mlir", SMALL, "gfx950")
    first = own.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    tasks = Path(f"/proc/{first}/task")  # all threads must have ended, not only the first
    while Path(f"/proc/{first}/stat").read_text().split()[2] != "Z" or len(list(tasks.iterdir())) > 1:
        time.sleep(0.005)
    assert own.compile("mlir", SMALL, "gfx950").hsaco
    assert not Path(f"/proc/{first}").exists()  # reaped
    own.stop()


def test_worker_killed_during_a_compile_is_an_error() -> None:
    own = Worker()
    own.start()
    pid = own.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    killer = threading.Timer(0.2, os.kill, (pid, signal.SIGKILL))
    killer.start()
    error = failure(own, "mlir", SMALL)
    assert error.crashed and "SIGKILL" in error.message
    own.stop()


def test_threads_take_turns(worker: Worker) -> None:
    expected = {t: worker.compile("mlir", SMALL, t).hsaco for t in ("gfx942", "gfx950")}
    wrong: list[str] = []

    def work(chip: str) -> None:
        for _ in range(5):
            if worker.compile("mlir", SMALL, chip).hsaco != expected[chip]:
                wrong.append(chip)

    threads = [threading.Thread(target=work, args=(chip,)) for chip in ("gfx942", "gfx950") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_forked_child_starts_its_own_worker_and_leaves_the_parent_alone() -> None:
    shared = worker_for()
    expected = shared.compile("mlir", SMALL, "gfx950").hsaco
    parent_worker = shared.pid
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            fine = shared.pid is None and shared.compile("mlir", SMALL, "gfx950").hsaco == expected
            fine = fine and shared.pid != parent_worker
            shared.stop()
            os.write(write, b"1" if fine else b"0")
        finally:
            os._exit(0)
    os.close(write)
    assert os.read(read, 1) == b"1"
    os.close(read)
    os.waitpid(child, 0)
    assert shared.pid == parent_worker
    assert shared.compile("mlir", SMALL, "gfx950").hsaco == expected
    shared.stop()


def test_client_is_light_silent_and_leaves_nothing_behind() -> None:
    program = (
        "import os, sys\n"
        "from tileir.lowering.amdgpu.worker import CodegenError, worker_for\n"
        "worker = worker_for(); worker.start()\n"
        "try:\n"
        "    worker.compile('mlir', sys.stdin.read(), 'gfx942')\n"
        "except CodegenError as error:\n"
        "    assert error.crashed\n"
        "worker.start()\n"
        "assert not {'mlir', 'llvmlite', 'numpy'} & set(sys.modules)\n"
        "print(worker.pid)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input=LOOP, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert not Path(f"/proc/{int(done.stdout)}").exists()


def test_worker_ends_when_its_compiler_is_killed() -> None:
    program = (
        "import os, time; from tileir.lowering.amdgpu.worker import worker_for\n"
        "w = worker_for(); w.start(); print(w.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as compiler:
        assert compiler.stdout is not None
        pid = int(compiler.stdout.readline())
        compiler.kill()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and Path(f"/proc/{pid}").exists():
        if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
            break  # ended; whoever adopted it has not waited for it yet
        time.sleep(0.02)
    else:
        assert not Path(f"/proc/{pid}").exists()


def test_output_of_the_worker_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    import tileir.lowering.amdgpu.worker as module

    monkeypatch.setattr(module, "_STDERR_LIMIT_BYTES", 200)
    noisy = SMALL.replace("{rocdl.kernel}", '{rocdl.kernel, passthrough = [["target-features", "+flying"]]}')
    own = Worker()
    for _ in range(5):
        output = own.compile("mlir", noisy, "gfx950")
        assert any("flying" in d.message for d in output.diagnostics)
    own.stop()


ORPHAN = """
import sys
from tileir.lowering.amdgpu.worker import Worker
worker = Worker()
worker.start()
print(worker.pid, flush=True)
lines = [f"%x{i} = fmul float %x{max(0, i - 1)}, %x{i // 2}" for i in range(1, 40000)]
stores = [f"store volatile float %x{i}, ptr addrspace(1) %a" for i in range(0, 40000, 2)]
body = "\\n".join(["%x0 = load volatile float, ptr addrspace(1) %a", *lines, *stores])
text = f"define amdgpu_kernel void @k(ptr addrspace(1) %a) {{\\n{body}\\nret void\\n}}"
print("compiling", flush=True)
worker.compile("llvm", text, "gfx950")
print("done", flush=True)
"""


def test_a_worker_does_not_outlive_its_process() -> None:
    """Also in the middle of a compile that takes long, which cannot be interrupted from inside."""
    child = subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    pid = int(child.stdout.readline())
    assert child.stdout.readline() == "compiling\n"
    time.sleep(1.0)
    child.kill()
    child.wait()
    assert "done" not in child.stdout.read(), "the compile is too short to show anything"
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists()
