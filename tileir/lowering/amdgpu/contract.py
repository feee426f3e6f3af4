"""Does the machine code keep what the text says? Compares a code object with the kernel that was lowered.

LLVM chooses registers, adds waits of its own and moves instructions between fences; what the text promises must survive
that. Checked are:

* W0902: no spilled register and no scratch memory,
* W0903: no accumulator moved between the register files in loops of matrix instructions,
* W0904: LDS size and workgroup size,
* W0905: in every matrix loop the waits that the text states, as strict, in the same order and number, before the same
  barriers and on the same side of the memory operations that they are for (see `contract_waits`),
* W0907: no more registers than the text says (the kernel's attribute `registers`),
* E0866: accumulators that the text pins to registers there, all through their loops (see `contract_pins`),
* W0908: accumulators and operands of matrix instructions in the register files that the text says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tileir import target as targets
from tileir.codeobject import CodeObject, CodeObjectError
from tileir.codeobject import Kernel as MachineKernel
from tileir.ir.core import Kernel, Op
from tileir.ir.location import Loc
from tileir.lowering.amdgpu.contract_order import order
from tileir.lowering.amdgpu.contract_pins import pins
from tileir.lowering.amdgpu.contract_waits import Deviation, lines_of, matrix_regions, waits
from tileir.simulator.inspect import classify
from tileir.simulator.inspect.counts import class_of
from tileir.simulator.inspect.flow import Flow, InspectError, control_flow
from tileir.simulator.inspect.items import Item, skim
from tileir.target import Target

_LDS_CLASSES = (classify.LDS_READ, classify.LDS_TRANSPOSE_READ, classify.LDS_WRITE, classify.LDS_OTHER, classify.TO_LDS)

_FILES = ("vector", "accumulation")


def prepare(chip: str) -> None:
    """Makes the tables with which code objects of a chip are read, so that `check` need not; may run in another thread."""
    skim(chip, bytes(4), 0)  # whatever instruction that is
    for name in targets.names():  # the reader asks each whether the machine is its own
        targets.get(name)


def check(hsaco: bytes, kernel: Kernel) -> list[Deviation]:
    """Deviations of the code object from `kernel`, the text that was lowered to it; none if all promises are kept.

    Code that cannot be analysed is itself a deviation (W0906). Raises nothing.
    """
    try:
        code = CodeObject.from_bytes(hsaco)
        machine = code.kernel(kernel.name)
        found = _resources(machine, kernel, code.target)
        flow = control_flow(code, machine)
        found += [*_lds(machine, kernel, flow), *_moves(code, kernel, flow), *_files(code, kernel, flow)]
        return [*found, *pins(code, kernel, flow), *waits(code, kernel, flow), *order(code, kernel, flow)]
    except (CodeObjectError, InspectError) as error:
        text = f"the emitted code could not be compared with the text: {error}"
        return [Deviation("W0906", text, kernel.loc, "please report this: TileIR reads all code that LLVM emits")]


def spills(figures: Mapping[str, object], loc: Loc) -> list[Deviation]:
    """W0902 if any of `vgpr_spills`, `sgpr_spills` and `scratch_bytes` is not zero."""
    spilled = [
        f"{figures[k]} {k.replace('_', ' ')}" for k in ("vgpr_spills", "sgpr_spills", "scratch_bytes") if figures[k]
    ]
    if not spilled:
        return []
    legal = "smaller tiles, more waves, or --allow-spills to accept it"
    return [Deviation("W0902", f"registers did not suffice: {', '.join(spilled)}", loc, legal)]


def _resources(machine: MachineKernel, kernel: Kernel, target: Target) -> list[Deviation]:
    metadata = machine.metadata
    figures = {
        "vgpr_spills": metadata.vgpr_spill_count if metadata else 0,
        "sgpr_spills": metadata.sgpr_spill_count if metadata else 0,
        "scratch_bytes": machine.descriptor.private_segment_fixed_size,
    }
    found = [*spills(figures, kernel.loc), *_registers(machine, kernel)]
    waves = kernel.attrs.get("waves")
    if metadata and isinstance(waves, int) and metadata.max_flat_workgroup_size != waves * target.wave_size:
        text = f"the code is for workgroups of {metadata.max_flat_workgroup_size}, the text for {waves} waves"
        found.append(Deviation("W0904", text, kernel.loc, f"{waves * target.wave_size} work-items"))
    return found


def _registers(machine: MachineKernel, kernel: Kernel) -> list[Deviation]:
    """Registers of each file against what the text says at most."""
    stated, metadata = kernel.attrs.get("registers"), machine.metadata
    if not isinstance(stated, tuple) or metadata is None:
        return []
    agprs = metadata.agpr_count or 0
    found: list[Deviation] = []
    for file, most, count in zip(_FILES, stated, (metadata.vgpr_count - agprs, agprs), strict=True):
        if count > most:
            text = f"the code takes {count} registers of the {file} file, the text says at most {most}"
            legal = "smaller tiles, more waves, or a larger number in the text"
            found.append(Deviation("W0907", text, kernel.loc, legal, count - most))
    budget, taken = kernel.attrs.get("budget"), metadata.vgpr_count
    if isinstance(budget, int) and taken > budget:
        text = f"the code takes {taken} registers of both files, the budget is {budget}"
        found.append(Deviation("W0907", text, kernel.loc, "smaller tiles, or a larger budget", taken - budget))
    return found


def _lds(machine: MachineKernel, kernel: Kernel, flow: Flow) -> list[Deviation]:
    """LDS in bytes; none at all is right where the code never touches it (LLVM drops an unused buffer)."""
    stated, emitted = kernel.attrs.get("lds", 0), machine.descriptor.group_segment_fixed_size
    unused = emitted == 0 and not any(class_of(item) in _LDS_CLASSES for item in flow.items)
    if not isinstance(stated, int) or emitted == stated or unused:
        return []
    return [
        Deviation("W0904", f"the code takes {emitted} bytes of LDS, the text {stated}", kernel.loc, f"{stated} bytes")
    ]


# Accumulator moves


def _moves(code: CodeObject, kernel: Kernel, flow: Flow) -> list[Deviation]:
    """Moves in matrix loops. Others, such as the loops of an epilogue, must read accumulators to compute with them."""
    found: list[Deviation] = []
    for number in matrix_regions(flow):
        moves = [i for i in flow.items_of(flow.loops[number].nodes) if classify.is_accumulator_move(i.name)]
        if moves:
            text = f"accumulator moves in a loop: {len(moves)} in each iteration, none is needed"
            legal = "smaller tiles, more waves, or another matrix instruction"
            found.append(Deviation("W0903", text, _place(code, kernel, moves), legal, len(moves)))
    return found


def _place(code: CodeObject, kernel: Kernel, items: Sequence[Item]) -> Loc:
    """The op of the text that the first item with a source line comes from; the kernel when there is none."""
    lines = lines_of(code, items)
    for op in kernel.walk():
        if op.loc.line in lines:
            return op.loc
    return kernel.loc


# Register files


def _files(code: CodeObject, kernel: Kernel, flow: Flow) -> list[Deviation]:
    """Matrix instructions of loops that take an operand from, or leave the accumulator in, another file than the `mma` of
    their source line says. Where products of one line say different things, any of these is right."""
    said: dict[int, tuple[Op, list[set[str]]]] = {}
    for op in kernel.walk():
        if op.name in ("mma", "mfma") and all(op.attrs.get(name) for name in ("file", "file_a", "file_b")):
            a, b = ("file_b", "file_a") if op.attrs.get("swapped") else ("file_a", "file_b")
            _, files = said.setdefault(op.loc.line, (op, [set(), set(), set()]))
            for into, name in zip(files, ("file", a, b), strict=True):
                into.add(str(op.attrs[name]))
    wrong: dict[tuple[int, str, str], int] = {}
    for number in matrix_regions(flow):
        for item in flow.items_of(flow.loops[number].nodes):
            if class_of(item) != classify.MFMA:
                continue
            place = code.line_table.lookup(item.address)
            if place is None or place.line not in said:
                continue
            names = ("the accumulator", "the first operand", "the second operand")
            for name, want, got in zip(names, said[place.line][1], _files_of(item), strict=True):
                if got not in want:
                    key = (place.line, name, got)
                    wrong[key] = wrong.get(key, 0) + 1
    return [
        Deviation(
            "W0908",
            f"{count} matrix instructions of a loop have {name} in the {got} file",
            said[line][0].loc,
            f"the {' or the '.join(sorted(set(_FILES) - {got}))} file, as the text says",
            count,
        )
        for (line, name, got), count in wrong.items()
    ]


def _files_of(item: Item) -> tuple[str, str, str]:
    """Files of the accumulator and of the instruction's first and second operand: bits ACC_CD (15) and ACC (59, 60) of the
    VOP3P-MAI encoding (CDNA3 ISA); a scaled instruction has the same bits in its second half."""
    word = int.from_bytes(item.raw[-8:], "little")
    return tuple(_FILES[word >> bit & 1] for bit in (15, 59, 60))  # type: ignore[return-value]
