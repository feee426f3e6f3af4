"""The comparison of emitted code with its text: silent on our kernels, loud on every kind of damage."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.harness import CHIPS, library, scheduled_gemm
from tileir import kernels
from tileir.codeobject import CodeObject
from tileir.frontend import parse
from tileir.ir.core import Kernel, Module
from tileir.ir.diagnostics import CompileError, Log
from tileir.ir.location import UNKNOWN, Loc
from tileir.ir.printer import print_module
from tileir.lowering.amdgpu import compile as compiling
from tileir.lowering.amdgpu import contract, contract_waits
from tileir.lowering.amdgpu.attempts import MFMA_ATTEMPTS
from tileir.lowering.amdgpu.compile import Compiled, Options, compile_kernel
from tileir.lowering.amdgpu.contract import check
from tileir.lowering.amdgpu.contract_waits import Deviation
from tileir.simulator.inspect import inspect
from tileir.simulator.inspect.items import Item

S_WAITCNT_NOTHING = 0xBF8CCF7F  # all counters at their maximum
S_NOP = 0xBF800000
V_ACCVGPR_READ = bytes.fromhex("0040d8d300010018")  # v_accvgpr_read_b32 v0, a0 (checked below)


def example(chip: str, repository: Path) -> Compiled:
    text = (repository / "examples" / "gemm.tile").read_text()
    return compile_kernel(parse(text, "gemm.tile"), "gemm", chip)


def plain(chip: str, waves: str = "2 x 2", tile: tuple[int, int, int] = (128, 128, 64)) -> Compiled:
    """The library's GEMM with a loop that is written tile by tile."""
    return scheduled_gemm(chip, waves, tile, extra="  loop %k pattern plain\n")


def final(compiled: Compiled) -> Kernel:
    assert compiled.final is not None
    return compiled.final


def patched(data: bytes, change: Callable[[Item], bytes | None], hot: bool = True) -> bytes:
    """The code object with instructions of its hot loop (or of all its code) replaced where `change` gives bytes."""
    kernel = inspect(data).kernel
    code = CodeObject.from_bytes(data).kernels[kernel.name]
    loop = kernel.hot_loop
    assert loop is not None
    out, changed = bytearray(data), 0
    for item in kernel.flow.items_of(loop.blocks if hot else range(len(kernel.flow.blocks))):
        new = change(item)
        if new is not None and len(new) == item.size:
            at = code.code_offset + item.address - code.entry_address
            out[at : at + item.size] = new
            changed += 1
    assert changed
    return bytes(out)


def dword(word: int) -> bytes:
    return word.to_bytes(4, "little")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", ["vector_add", "softmax", "transpose", "gemm"])
def test_library_kernels_keep_their_word(name: str, chip: str) -> None:
    compiled = library(name, chip)
    assert check(compiled.hsaco, final(compiled)) == []
    assert compiled.stats["deviations"] == []


@pytest.mark.parametrize("chip", CHIPS)
def test_the_example_keeps_its_word(chip: str, repository: Path) -> None:
    compiled = example(chip, repository)
    assert check(compiled.hsaco, final(compiled)) == []


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    "waves, tile",
    [("1 x 1", (64, 64, 32)), ("2 x 2", (128, 128, 64)), ("1 x 8", (64, 256, 32)), ("4 x 1", (128, 32, 64))],
)
def test_other_wave_grids_keep_their_word(chip: str, waves: str, tile: tuple[int, int, int]) -> None:
    compiled = scheduled_gemm(chip, waves, tile)
    assert check(compiled.hsaco, final(compiled)) == []


def test_one_wave_has_no_barriers() -> None:
    """LLVM leaves them out, whatever the text says."""
    text = plain("gfx950", "1 x 1", (64, 64, 32)).texts["tile"]
    for wait in ("wait<lgkm = 0>()", "wait<vm = 0>()"):
        assert wait in text
        text = text.replace(wait, f"{wait}\nbarrier()")
    compiled = compile_kernel(parse(text, "edited.tile"), "", "gfx950", Options(start_from="synchronise"))
    assert sum(op.name == "barrier" for op in final(compiled).walk()) >= 2
    assert inspect(compiled.hsaco).kernel.counts.classes["barrier"] == 0
    assert check(compiled.hsaco, final(compiled)) == []


ONE_WAVE = """tileir 1
kernel @k(%A: global<bf16[M, K]>, %B: global<bf16[N, K]>, %C: global<f32[M, N]>) grid(cdiv(M, 24), cdiv(N, 16)) {
  %i, %j = program_id()
  %zero = fill(0) : tile<f32[24, 16]>
  %acc = for %k = 0 to K step 32 carry(%c = %zero) {
    %a = load(%A[%i * 24 +: 24, %k +: 32])
    %b = load(%B[%j * 16 +: 16, %k +: 32])
    yield mma(%a, transpose(%b), %c)
  }
  store(%acc, %C[%i * 24 +: 24, %j * 16 +: 16])
}
schedule @s of @k for gfx950 {
  stage %a, %b in shared depth 2 direct
  loop %k pattern plain
}
"""


def test_loop_of_one_wave_may_begin_anywhere() -> None:
    """Copies under a mask make LLVM turn the loop: its first block is none in which an iteration of the text begins."""
    compiled = compile_kernel(parse(ONE_WAVE, "one.tile"), "k", "gfx950")
    assert compiled.stats["attempts"] == 1 and check(compiled.hsaco, final(compiled)) == []
    hot = inspect(compiled.hsaco).kernel.hot_loop
    assert hot is not None
    items = inspect(compiled.hsaco).kernel.flow.items_of(hot.blocks)
    names = [i.name for i in items]
    assert names.index("buffer_load_dwordx4") < [i.name == "s_waitcnt" and "vmcnt" in i.text for i in items].index(True)
    for wait in [i for i in items if i.name == "s_waitcnt" and "vmcnt(0)" in i.text]:
        damaged = patched(
            compiled.hsaco, lambda i, at=wait.address: dword(S_WAITCNT_NOTHING) if i.address == at else None
        )
        (found,) = check(damaged, final(compiled))
        assert found.code == "W0905" and "where the text has this wait" in found.message


@pytest.mark.parametrize(
    "chip, counter, field, count",
    [("gfx950", "vmcnt", 0xC00F, 3), ("gfx950", "lgkmcnt", 0x0F00, 0x200), ("gfx942", "lgkmcnt", 0x0F00, 0x200)],
)
def test_weaker_wait_is_seen(chip: str, counter: str, field: int, count: int) -> None:
    """Every wait of the hot loop allows more; the message is at the barrier behind the stated wait. (On gfx942 the text
    states no vmcnt in that loop: the loads are to registers, and LLVM waits for these.)"""
    compiled = plain(chip)

    def weaken(item: Item) -> bytes | None:
        word = int.from_bytes(item.raw, "little")
        return dword(word & ~field | count) if item.name == "s_waitcnt" and word & field < count else None

    (found,) = check(patched(compiled.hsaco, weaken), final(compiled))
    assert found.code == "W0905"
    allowed = 3 if counter == "vmcnt" else 2
    assert found.message.endswith(f"lacks {counter}(0) before this barrier: the strictest is {counter}({allowed})")
    assert found.loc in [op.loc for op in final(compiled).walk() if op.name == "barrier"]
    hot = inspect(compiled.hsaco).kernel.hot_loop
    assert hot is not None and f"loop at {hot.headers[0]:#x} " in found.message


@pytest.mark.parametrize("chip", CHIPS)
def test_missing_wait_is_seen(chip: str) -> None:
    compiled = plain(chip)
    damaged = patched(compiled.hsaco, lambda i: dword(S_WAITCNT_NOTHING) if i.name == "s_waitcnt" else None)
    (found,) = check(damaged, final(compiled))
    assert found.code == "W0905" and "there is none" in found.message


@pytest.mark.parametrize("chip", CHIPS)
def test_missing_barrier_is_seen(chip: str) -> None:
    compiled = plain(chip)
    seen: list[int] = []

    def drop_one(item: Item) -> bytes | None:
        if item.name != "s_barrier" or seen:
            return None
        seen.append(item.address)
        return dword(S_NOP)

    (found,) = check(patched(compiled.hsaco, drop_one), final(compiled))
    assert found.code == "W0905" and found.message.endswith("has 1 barriers, the text 2")


def test_wait_on_the_wrong_side_of_a_barrier_is_seen() -> None:
    """The multiset of waits is the same; which barrier they precede is not."""
    text = contract_waits._TextLoop(
        None,  # type: ignore[arg-type]
        frozenset(),
        contract_waits._stretches([(4, 99), None, (99, 0), None, (0, 99), None]),
        (UNKNOWN,) * 3,
    )

    def keeps(*events: tuple[int, int] | None) -> bool:
        loop = contract_waits._CodeLoop(0, frozenset(), contract_waits._stretches(events))
        return contract_waits._difference(text, loop) == (False, False, 0, 0)

    assert keeps((4, 99), None, (99, 0), None, (0, 99), None)
    assert keeps((0, 0), None, (99, 0), None, (0, 99), None)  # stricter
    assert keeps((0, 99), None, (4, 99), None, (99, 0), None)  # turned
    assert keeps(None, (99, 0), None, (0, 99), None, (4, 99))  # the last wait belongs to the first barrier
    assert keeps(*2 * ((4, 99), None, (99, 0), None, (0, 99), None))  # unrolled
    assert not keeps((99, 0), None, (4, 99), None, (0, 99), None)
    assert not keeps((4, 99), None, (0, 99), None, (99, 0), None)
    assert not keeps((4, 99), None, (99, 0), (0, 99), None)
    assert not keeps((4, 99), None, (99, 1), None, (0, 99), None)


@pytest.mark.parametrize("chip", CHIPS)
def test_accumulator_move_is_seen(chip: str) -> None:
    compiled = plain(chip)
    done: list[int] = []

    def move(item: Item) -> bytes | None:
        if not item.name.startswith("v_mfma") or done:
            return None
        done.append(item.address)
        return V_ACCVGPR_READ

    damaged = patched(compiled.hsaco, move)
    listing = [i for i in inspect(damaged).kernel.flow.items if i.address in done]
    assert [i.text for i in listing] == ["v_accvgpr_read_b32 v0, a0"]
    (found,) = check(damaged, final(compiled))
    assert found.code == "W0903" and "1 in each iteration" in found.message
    assert found.loc.file == "kernel.tile" and found.loc.line > 4


def test_accumulator_moves_of_the_epilogue_are_no_deviation() -> None:
    """Accumulators in the other file must be read to be converted and stored."""
    compiled = scheduled_gemm("gfx950", "2 x 2", (256, 256, 64))
    kernel = inspect(compiled.hsaco).kernel
    moved = [loop.counts.accumulator_moves for loop in kernel.loops if loop.counts.mfma_count]
    assert kernel.spills.accumulator_moves > sum(moved)
    found = [d for d in check(compiled.hsaco, final(compiled)) if d.code == "W0903"]
    assert len(found) == sum(n > 0 for n in moved)


@pytest.mark.parametrize("chip", CHIPS)
def test_other_sizes_are_seen(chip: str) -> None:
    compiled = library("gemm", chip)
    kernel = replace(final(compiled), attrs=dict(final(compiled).attrs))
    assert check(compiled.hsaco, kernel) == []
    lds, waves = kernel.attrs["lds"], kernel.attrs["waves"]
    assert isinstance(lds, int) and isinstance(waves, int)
    kernel.attrs["lds"] = lds + 1024
    (found,) = check(compiled.hsaco, kernel)
    assert (found.code, found.legal) == ("W0904", f"{lds + 1024} bytes")
    kernel.attrs.update(lds=lds, waves=2 * waves)
    (found,) = check(compiled.hsaco, kernel)
    assert (found.code, found.message) == (
        "W0904",
        f"the code is for workgroups of {64 * waves}, the text for {2 * waves} waves",
    )


def test_unused_lds_is_no_deviation() -> None:
    compiled = library("vector_add", "gfx950")
    kernel = replace(final(compiled), attrs={**final(compiled).attrs, "lds": 4096})
    assert check(compiled.hsaco, kernel) == []


@pytest.mark.parametrize("data", [b"", b"\x7fELF"])
def test_what_cannot_be_read_is_a_deviation(data: bytes) -> None:
    (found,) = check(data, final(library("gemm", "gfx950")))
    assert found.code == "W0906"


def test_code_that_cannot_be_decoded_is_a_deviation() -> None:
    compiled = library("gemm", "gfx950")
    data = patched(compiled.hsaco, lambda i: b"\xff" * 4 if i.name == "s_barrier" else None)
    assert [d.code for d in check(data, final(compiled))] == ["W0906"]


@pytest.mark.parametrize("file", ["vgpr", "sgpr"])
def test_spills_are_seen(file: str) -> None:
    compiled = library("gemm", "gfx950")
    key = f".{file}_spill_count".encode()
    assert compiled.hsaco.count(key + b"\x00") == 1  # MessagePack: the number 0
    (found,) = check(compiled.hsaco.replace(key + b"\x00", key + b"\x05"), final(compiled))
    assert (found.code, found.message) == ("W0902", f"registers did not suffice: 5 {file} spills")
    assert found.loc == final(compiled).loc and "--allow-spills" in found.legal


def test_deviations_become_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each at its place, and in the stats; spills can be accepted, other deviations cannot."""
    module = parse((Path(__file__).parent.parent.parent / "tileir/kernels/vector_add.tile").read_text(), "v.tile")
    place = Loc("v.tile", 3, 1, 3, 2)
    invented = [Deviation("W0902", "spills", place, "fewer"), Deviation("W0905", "a wait", place, "stricter")]
    monkeypatch.setattr(contract, "check", lambda data, kernel: list(invented))
    for allowed, codes in ((False, ["W0902", "W0905"]), (True, ["W0905"])):
        log = Log()
        compiled = compile_kernel(module, "", "gfx950", Options(allow_spills=allowed), log)
        warnings = [d for d in log.diagnostics if d.severity == "warning"]
        assert [d.code for d in warnings] == codes and warnings[-1].loc == place
        assert compiled.stats["deviations"] == [f"{d.code}: {d.message}" for d in invented]
        assert compiled.stats["spills_allowed"] is allowed


def test_loops_are_paired_one_to_one() -> None:
    """Two loops of the text cannot both be kept by one loop of the code while the other one is broken."""
    assert contract_waits._matching([[True, False], [True, False]]) in ({0: 0}, {1: 0})
    assert contract_waits._matching([[True, True], [True, False]]) == {0: 1, 1: 0}
    assert contract_waits._matching([[True, True, False], [True, False, True], [True, False, False]]) == {
        0: 1,
        1: 2,
        2: 0,
    }
    assert contract_waits._matching([]) == {}


# What the text says of registers


@pytest.mark.parametrize("chip", CHIPS)
def test_more_registers_than_said_are_seen(chip: str) -> None:
    compiled = library("gemm", chip)
    kernel = replace(final(compiled), attrs=dict(final(compiled).attrs))
    stated = kernel.attrs["registers"]
    vgprs, agprs = compiled.stats["vgprs"], compiled.stats["agprs"]
    assert isinstance(stated, tuple) and isinstance(vgprs, int) and isinstance(agprs, int)
    assert vgprs - agprs <= stated[0] and agprs <= stated[1]
    kernel.attrs["registers"] = (vgprs - agprs - 1, stated[1])
    (found,) = check(compiled.hsaco, kernel)
    assert (found.code, found.weight, found.loc) == ("W0907", 1, kernel.loc)
    assert f"takes {vgprs - agprs} registers of the vector file" in found.message


def test_more_accumulators_than_said_are_seen() -> None:
    compiled = scheduled_gemm("gfx950", "2 x 2", (256, 256, 64))
    kernel = replace(final(compiled), attrs={**final(compiled).attrs, "registers": (256, 255)})
    assert compiled.stats["agprs"] == 256
    (found,) = check(compiled.hsaco, kernel)
    assert found.code == "W0907" and "takes 256 registers of the accumulation file" in found.message


def other_file(bit: int) -> Callable[[Item], bytes | None]:
    """Flips a bit of one matrix instruction that names a register file (VOP3P-MAI: 15 accumulator, 59 and 60 operands)."""
    seen: list[int] = []

    def change(item: Item) -> bytes | None:
        if not item.name.startswith("v_mfma") or seen:
            return None
        seen.append(item.address)
        return (int.from_bytes(item.raw, "little") ^ 1 << bit).to_bytes(8, "little")

    return change


@pytest.mark.parametrize("bit, what", [(15, "the accumulator"), (59, "the first operand"), (60, "the second operand")])
@pytest.mark.parametrize("chip", CHIPS)
def test_another_register_file_is_seen(chip: str, bit: int, what: str) -> None:
    """All three are in the vector file; after the change one register is an `a`, in the decoder's eyes too."""
    compiled = library("gemm", chip, BM=64, BN=64)
    product = next(op for op in final(compiled).walk() if op.name == "mfma")
    assert [product.attrs[name] for name in ("file", "file_a", "file_b")] == ["vector"] * 3
    damaged = patched(compiled.hsaco, other_file(bit))
    texts = [i.text for i in inspect(damaged).kernel.flow.items if i.name.startswith("v_mfma") and " a[" in i.text]
    assert len(texts) == 1, "one instruction has another file"
    (found,) = check(damaged, final(compiled))
    assert (found.code, found.weight) == ("W0908", 1)
    assert found.message == f"1 matrix instructions of a loop have {what} in the accumulation file"
    assert found.loc.line == product.loc.line


def test_accumulator_in_the_vector_file_is_seen() -> None:
    compiled = scheduled_gemm("gfx950", "2 x 2", (256, 256, 64))
    (found,) = check(patched(compiled.hsaco, other_file(15)), final(compiled))
    assert found.code == "W0908" and found.message.endswith("the accumulator in the vector file")


def test_operands_in_the_accumulation_file_are_kept() -> None:
    """Written by hand, operands go to the accumulation file: lowering ties them, and the code has them there."""
    text = plain("gfx950", tile=(64, 64, 64)).texts["tile"]
    assert "file_a = vector" in text
    text = re.sub(", registers = [^)]*", "", text).replace("file_a = vector", "file_a = accumulation")
    compiled = compile_kernel(parse(text, "edited.tile"), "", "gfx950", Options(start_from="synchronise"))
    assert check(compiled.hsaco, final(compiled)) == []
    hot = inspect(compiled.hsaco).kernel.hot_loop
    assert hot is not None
    kernel = inspect(compiled.hsaco).kernel
    products = [i.text for i in kernel.flow.items_of(hot.blocks) if i.name.startswith("v_mfma")]
    # The instruction computes the transposed product, so that a is its second operand.
    assert products and all(t.split(", ")[2].startswith("a[") and t.split(", ")[1].startswith("v[") for t in products)


# Order and number of waits

Wait, Memory = contract_waits.Wait, contract_waits.Memory


def stretch(*events: str) -> list[contract_waits.Event]:
    """Events from words such as "copy", "read*4", "vm2" and "lgkm0"."""
    out: list[contract_waits.Event] = []
    none = contract_waits._NO_WAIT
    for e in events:
        if e.startswith("vm"):
            out.append(Wait((int(e[2:]), none), UNKNOWN))
        elif e.startswith("lgkm"):
            out.append(Wait((none, int(e[4:])), UNKNOWN))
        else:
            kind, _, count = e.partition("*")
            out.append(Memory(kind, int(count or 1)))
    return out


@pytest.mark.parametrize(
    "text, code, counter, lost",
    [
        ("copy*2 vm0", "copy copy vm0", 0, 0),
        ("copy*2 vm0", "copy vm0 copy", 0, 1),  # before the last copy
        ("copy*2 vm0", "vm0 copy copy", 0, 1),
        ("copy*2 vm1 copy*2 vm0", "copy copy vm1 copy copy vm0", 0, 0),
        ("copy*2 vm1 copy*2 vm0", "copy copy vm0 copy copy vm0", 0, 0),  # stricter
        ("copy*2 vm1 copy*2 vm0", "copy copy copy copy vm0", 0, 1),  # one of two is left
        ("copy*2 vm1 copy*2 vm0", "copy vm1 copy copy copy vm0", 0, 1),  # one copy too early
        ("copy*2 vm1 vm0", "copy copy vm0", 0, 0),  # nothing in between: merged
        ("read*4 lgkm0", "read read lgkm0", 1, 0),  # LLVM joins reads
        ("read*4 lgkm0 write", "lgkm0 read write", 1, 1),
        ("read lgkm0 write lgkm0", "read lgkm0 write lgkm0", 1, 0),
        ("read lgkm0 write lgkm0", "read write lgkm0 lgkm0", 1, 1),
        ("read lgkm0", "read lgkm1", 1, 1),
    ],
)
def test_order_and_number_of_waits(text: str, code: str, counter: int, lost: int) -> None:
    found = contract_waits._without_partner(stretch(*text.split()), stretch(*code.split()), counter)
    assert len(found) == lost


def test_wait_on_the_wrong_side_of_the_copies_is_seen() -> None:
    """The text is changed, not the code: there the wait stands before the copies, which it is not for."""
    compiled = plain("gfx950")
    text = print_module(Module([final(compiled)]), locations=True)
    assert check(compiled.hsaco, parse(text).kernels[0]) == []
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if "wait<vm = 0>" in line)
    copies = [i for i in range(at) if "copy_async" in lines[i]][-2:]
    assert copies == [at - 2, at - 1]
    lines[at - 2 : at + 1] = [lines[at], *lines[at - 2 : at]]
    (found,) = check(compiled.hsaco, parse("\n".join(lines)).kernels[0])
    assert found.code == "W0905" and "no vmcnt(0) where the text has this wait" in found.message


def test_one_wait_less_than_stated_is_seen() -> None:
    compiled = plain("gfx950")
    text = print_module(Module([final(compiled)]), locations=True)
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if "wait<vm = 0>" in line)
    lines.insert(at - 1, lines[at])  # the text now has a wait between the two copies, too
    (found,) = check(compiled.hsaco, parse("\n".join(lines)).kernels[0])
    assert found.code == "W0905" and "no vmcnt(0) where the text has this wait" in found.message


# Retries


def test_every_deviation_is_retried_and_the_best_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves in the first attempt, a wait lost in the second, nothing in the third: the third it is."""
    place = Loc("v.tile", 3, 1, 3, 2)
    answers = [[Deviation("W0903", "moves", place, "fewer", 5)], [Deviation("W0905", "a wait", place, "stricter")], []]
    asked: list[int] = []

    def answer(data: bytes, kernel: Kernel) -> list[Deviation]:
        asked.append(len(data))
        return answers[len(asked) - 1]

    monkeypatch.setattr(contract, "check", answer)
    module = parse(kernels.source("gemm"), "gemm.tile", {"BM": 64, "BN": 64})
    compiled = compile_kernel(module, "", "gfx950")
    assert compiled.stats["attempts"] == 3 == len(asked) and compiled.stats["deviations"] == []


@pytest.mark.parametrize(("spills", "made"), [((0, 0, 7), 2), ((0, 0, 0), 1), ((400, 134, 0), 2)])
def test_what_cannot_mend_is_not_tried(
    spills: tuple[int, int, int], made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scalars in lanes: the sparing text as well. Far too many spills in a loop of single instructions: at once whole tiles, and those sparing."""
    generate, asked = compiling._generate_once, list[bool]()

    def once(stage: str, text: str, *rest: Any) -> Compiled:
        asked.append(True)
        return generate(stage, text, *rest)

    monkeypatch.setattr(compiling, "_generate_once", once)
    monkeypatch.setattr(compiling, "_spills", lambda compiled: spills)
    module = parse(kernels.source("gemm"), "gemm.tile", {"BM": 128, "BN": 128})
    module.kernels[0].attrs["waves"] = 4  # stated, so that no other number is tried
    if spills[1]:
        with pytest.raises(CompileError) as caught:
            compile_kernel(module, "", "gfx950")
        assert caught.value.diagnostics[0].code == "E0863"
    else:
        assert compile_kernel(module, "", "gfx950").stats["attempts"] == made
    assert len(asked) == made


@pytest.mark.parametrize("allowed", [False, True])
def test_moves_that_stay_are_an_error_with_the_live_values(allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Loc("gemm.tile", 12, 1, 12, 2)
    moves = [Deviation("W0903", "accumulator moves in a loop: 5", place, "fewer", 5)]
    monkeypatch.setattr(contract, "check", lambda data, kernel: moves)
    module = parse(kernels.source("gemm"), "gemm.tile", {"BM": 64, "BN": 64})
    module.kernels[0].attrs["waves"] = 4  # stated, so that no other number is tried
    if allowed:
        compiled = compile_kernel(module, "", "gfx950", Options(allow_spills=True))
        assert compiled.stats["deviations"] == ["W0903: accumulator moves in a loop: 5"]
        assert compiled.stats["spills_allowed"] is True
        return
    with pytest.raises(CompileError) as caught:
        compile_kernel(module, "", "gfx950")
    (d,) = caught.value.diagnostics
    assert (d.code, d.loc) == ("E0865", place) and "--allow-spills" in d.legal
    assert any("%" in n.message and "takes" in n.message for n in d.notes), "the values that are alive"


def test_the_best_of_bad_attempts_is_kept_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that every attempt loses is a warning at its place, after a bounded number of attempts."""
    place = Loc("gemm.tile", 12, 1, 12, 2)
    asked: list[int] = []

    def answer(data: bytes, kernel: Kernel) -> list[Deviation]:
        asked.append(len(asked))
        return [Deviation("W0905", f"attempt {len(asked)}", place, "stricter", 10 if len(asked) != 2 else 1)]

    monkeypatch.setattr(contract, "check", answer)
    log = Log()
    module = parse(kernels.source("gemm"), "gemm.tile", {"BM": 64, "BN": 64})
    compiled = compile_kernel(module, "", "gfx950", Options(), log)
    assert len(asked) == len(MFMA_ATTEMPTS)
    assert compiled.stats["deviations"] == ["W0905: attempt 2"]
    assert [(d.code, d.loc) for d in log.diagnostics if d.severity == "warning"] == [("W0905", place)]
