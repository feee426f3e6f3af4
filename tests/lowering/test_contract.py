"""The comparison of emitted code with its text: silent on our kernels, loud on every kind of damage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kernels.harness import CHIPS, library, scheduled_gemm
from tileir.codeobject import CodeObject
from tileir.frontend import parse
from tileir.ir.core import Kernel
from tileir.ir.diagnostics import Log
from tileir.ir.location import UNKNOWN, Loc
from tileir.lowering.amdgpu import contract, contract_waits
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
    text = scheduled_gemm("gfx950", "1 x 1", (64, 64, 32)).texts["tile"]
    for wait in ("wait<lgkm = 0>()", "wait<vm = 0>()"):
        assert wait in text
        text = text.replace(wait, f"{wait}\nbarrier()")
    compiled = compile_kernel(parse(text, "edited.tile"), "", "gfx950", Options(start_from="synchronise"))
    assert sum(op.name == "barrier" for op in final(compiled).walk()) >= 2
    assert inspect(compiled.hsaco).kernel.counts.classes["barrier"] == 0
    assert check(compiled.hsaco, final(compiled)) == []


@pytest.mark.parametrize(
    "chip, counter, field, count",
    [("gfx950", "vmcnt", 0xC00F, 3), ("gfx950", "lgkmcnt", 0x0F00, 0x200), ("gfx942", "lgkmcnt", 0x0F00, 0x200)],
)
def test_weaker_wait_is_seen(chip: str, counter: str, field: int, count: int, repository: Path) -> None:
    """Every wait of the hot loop allows more; the message is at the barrier behind the stated wait. (On gfx942 the text
    states no vmcnt in that loop: the loads are to registers, and LLVM waits for these.)"""
    compiled = example(chip, repository)

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
def test_missing_wait_is_seen(chip: str, repository: Path) -> None:
    compiled = example(chip, repository)
    damaged = patched(compiled.hsaco, lambda i: dword(S_WAITCNT_NOTHING) if i.name == "s_waitcnt" else None)
    (found,) = check(damaged, final(compiled))
    assert found.code == "W0905" and "there is none" in found.message


@pytest.mark.parametrize("chip", CHIPS)
def test_missing_barrier_is_seen(chip: str, repository: Path) -> None:
    compiled = example(chip, repository)
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
    text = contract_waits._TextLoop(  # pyright: ignore[reportPrivateUsage]
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
def test_accumulator_move_is_seen(chip: str, repository: Path) -> None:
    compiled = example(chip, repository)
    done: list[int] = []

    def move(item: Item) -> bytes | None:
        if item.encoding != "vop3" or done:
            return None
        done.append(item.address)
        return V_ACCVGPR_READ

    damaged = patched(compiled.hsaco, move)
    listing = [i for i in inspect(damaged).kernel.flow.items if i.address in done]
    assert [i.text for i in listing] == ["v_accvgpr_read_b32 v0, a0"]
    (found,) = check(damaged, final(compiled))
    assert found.code == "W0903" and "1 in each iteration" in found.message
    assert found.loc.file == "gemm.tile" and found.loc.line > 4


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
    assert contract_waits._matching([[True, True, False], [True, False, True], [True, False, False]]) == {0: 1, 1: 2, 2: 0}
    assert contract_waits._matching([]) == {}
