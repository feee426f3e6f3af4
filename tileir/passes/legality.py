"""What a chip can do, checked at the line that asks for it: element types, matrix shapes, sizes of workgroups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tileir.ir.core import Kernel, Op, Value
from tileir.ir.diagnostics import Diagnostic, Note
from tileir.ir.location import Loc
from tileir.ir.ops.contract import accumulator, is_small_float
from tileir.ir.types import ELEMS, Elem, GlobalType, TileType, Type
from tileir.target import Mfma, Target

ADDRESSES = 1 << 63  # bytes that the 64-bit arithmetic of addresses reaches
MOST_REGISTERS = 1 << 13  # elements per lane from which on no layout is looked at: many times what spills can hold
SCALED_OPERANDS = 5  # of a product with scales of blocks
WIDE_DIRECT_BYTES = 16  # the copies that `direct` means: one b128 per lane

# Ops that move a value without looking at it: any element that fits in memory will do.
_MOVES = frozenset(
    "load store bitcast pack unpack transpose reshape broadcast fill constant where shared_alloc shared_load shared_load_transposed shared_store "
    "copy_async convert_layout swap_lanes shuffle_lanes select_registers for while if guard yield accessible print assert".split()
)


def is_power_of_two(n: int) -> bool:
    return n >= 1 and n & (n - 1) == 0


def most_waves(target: Target) -> int:
    """Waves of the largest workgroup."""
    return target.max_workgroup_size // target.wave_size


def check_kernel(kernel: Kernel, target: Target) -> list[Diagnostic]:
    """Element types of views, conversions and arithmetic that the chip lacks, each reported once per place."""
    found: list[Diagnostic] = []
    for arg in kernel.args:
        if isinstance(arg.type, GlobalType) and not target.legal_elem(arg.type.elem.name, "memory"):
            found.append(
                Diagnostic(
                    "E0701",
                    f"{target.name} has no views of {arg.type.elem}: %{arg.name} is {arg.type}",
                    arg.loc,
                    notes=_kind_notes(arg.type.elem, target),
                    legal=", ".join(target.legal_elems("memory")),
                )
            )
        if isinstance(arg.type, GlobalType) and _least_bytes(arg.type) >= ADDRESSES:
            message = f"%{arg.name} spans {_least_bytes(arg.type)} bytes: no memory holds {arg.type}"
            found.append(Diagnostic("E0707", message, arg.loc, legal="dimensions and strides of fewer than 2^63 bytes"))
    for op in kernel.walk():
        elem = _foreign(op, target)
        if elem is not None:
            found.append(
                Diagnostic(
                    "E0701",
                    f"'{op.name}' works on {elem}, for which {target.name} has no such instruction",
                    op.loc,
                    notes=_kind_notes(elem, target),
                    legal="convert<f32>(…) first, and back afterwards",
                )
            )
    return found


def _least_bytes(view: GlobalType) -> int:
    """Bytes that a view spans at least: unknown sizes count as 1, unknown strides as 0."""
    span, dense = 1, 1
    for d in reversed(range(view.rank)):
        size = view.dims[d]
        stride = dense if view.strides is None else view.strides[d]
        size = size if isinstance(size, int) else 1
        span += (size - 1) * (stride if isinstance(stride, int) else 0)
        dense *= size
    return span * view.elem.bytes


def _foreign(op: Op, target: Target) -> Elem | None:
    """A small float that the op computes with and the chip cannot."""
    # mma is checked against the matrix instructions; conversions are made of bit operations where there is no instruction
    if op.name in _MOVES or op.name in ("mma", "convert"):
        return None
    elems = [e for t in _types(op) if (e := getattr(t, "elem", None)) is not None and is_small_float(e)]
    return next((e for e in elems if not target.legal_elem(e.name, "arith")), None)


def _types(op: Op) -> list[Type]:
    return [v.type for v in (*op.operands, *op.results)]


def _kind_notes(elem: Elem, target: Target) -> tuple[Note, ...]:
    if not is_small_float(elem):
        return ()
    if elem.bits < 8:
        return (Note(f"{target.name} {'has' if target.supports('mfma_f8f6f4') else 'lacks'} 6- and 4-bit floats"),)
    kind = target.f8_kind
    own = [e for e in target.legal_elems("convert") if is_small_float(ELEMS[e]) and ELEMS[e].bits == 8]
    return (Note(f"the 8-bit floats of {target.name} are of the {kind} kind: {', '.join(own)}"),)


# -- matrix instructions -----------------------------------------------------------------------------------------


def instructions(op: Op, target: Target) -> tuple[Mfma, ...]:
    """Dense one-block matrix instructions of the chip for the operand types of an `mma`; with scales those that take some."""
    a, b = op.operands[0].tile.elem, op.operands[1].tile.elem
    acc = accumulator(a)
    if acc is None:
        return ()
    found = tuple(i for i in target.mfmas_for(a.name, b.name, acc.name) if i.blocks == 1)
    return tuple(i for i in found if i.formats) if is_scaled(op) else found


def is_scaled(op: Op) -> bool:
    """Whether a product has scales of blocks."""
    return len(op.operands) == SCALED_OPERANDS


def worthwhile(op: Op, target: Target) -> list[Mfma]:
    """Those of `instructions` that no other one outruns; where k of the tile does not fill them, also the shorter ones of 8-bit
    floats that need no more clocks for it. (Other types have two rates for one kind of instruction, of which the lower is for
    code that knows no better.)"""
    a, b = op.operands[0].tile.elem, op.operands[1].tile.elem
    found = instructions(op, target)
    full = [i for i in found if target.is_full_rate(i, a.name, b.name)]
    if not (is_small_float(a) and is_small_float(b)):
        return full
    k = op.operands[0].tile.shape[1]

    def clocks(i: Mfma) -> int:
        return -(-k // i.k) * target.mfma_clocks(i, a.name, b.name)

    def as_good(i: Mfma) -> bool:
        return all(clocks(i) <= clocks(f) and -k % i.k < -k % f.k for f in full if f.m == i.m)

    return [i for i in found if i in full or as_good(i)]


def shapes(found: list[Mfma]) -> str:
    """Shapes as directives write them: `16x16x32, 32x32x16`."""
    return ", ".join(dict.fromkeys(f"{i.m}x{i.n}x{i.k}" for i in sorted(found, key=lambda i: (i.m, i.k))))


def check_mma(kernel: Kernel, target: Target) -> list[Diagnostic]:
    """Every `mma` must have a matrix instruction; a shape written in the text must be one of them."""
    found: list[Diagnostic] = []
    for op in kernel.walk():
        if op.name != "mma":
            continue
        a, b = op.operands[0].tile.elem, op.operands[1].tile.elem
        if not instructions(op, target):
            pair = f"{a}" if a == b else f"{a} by {b}"
            if is_scaled(op):
                found.append(_no_scales(op, target))
                continue
            found.append(
                Diagnostic(
                    "E0703",
                    f"{target.name} has no matrix instruction that multiplies {pair}",
                    op.loc,
                    notes=_kind_notes(a, target),
                    legal=f"operands of {', '.join(target.legal_elems('mma'))}",
                )
            )
            continue
        instr = op.attrs.get("instr", ())
        if isinstance(instr, tuple) and instr:
            found += mfma_diagnostics(op, instr, op.loc, target)
    return found


def _no_scales(op: Op, target: Target) -> Diagnostic:
    """For a product with scales of blocks on a chip without the instruction."""
    own = [e for e in target.legal_elems("convert") if is_small_float(ELEMS[e]) and ELEMS[e].bits == 8]
    legal = f"mma of {' or '.join(own)} for each block, its result times the scales in f32, or convert<bf16>(…) of the operands"
    return Diagnostic("E0703", f"{target.name} has no matrix instruction with scales of blocks", op.loc, legal=legal)


def mfma_diagnostics(op: Op, shape: tuple[int, ...], loc: Loc, target: Target) -> list[Diagnostic]:
    """What is wrong with a matrix shape for an `mma` on a chip; empty if it is legal and of full rate."""
    elem = op.operands[0].tile.elem
    all_of_type = instructions(op, target)
    if not all_of_type:
        return []  # the op itself is reported
    good = worthwhile(op, target)
    chosen = [i for i in all_of_type if (i.m, i.n, i.k) == shape]
    text = "x".join(map(str, shape))
    notes = (Note("the operands are multiplied here", op.loc),)
    if not chosen:
        message = f"{target.name} has no {text} matrix instruction for {elem}"
        return [Diagnostic("E0702", message, loc, notes=notes, legal=shapes(good))]
    if not any(i in good for i in chosen):
        message = f"{text} runs at half the rate or less for {elem} on {target.name}"
        return [Diagnostic("E0704", message, loc, notes=notes, legal=shapes(good))]
    return []


# -- written layouts ---------------------------------------------------------------------------------------------


def check_layouts(kernel: Kernel, target: Target, most_registers: int = MOST_REGISTERS) -> list[Diagnostic]:
    """Register layouts must be for the waves of the workgroup, and take no more registers than spilling could hold."""
    found: list[Diagnostic] = []
    waves = kernel.attrs.get("waves")
    if not isinstance(waves, int) or not is_power_of_two(waves):
        return found
    for v, loc in laid_out_values(kernel):
        layout = v.tile.layout
        assert layout is not None
        if layout.num_waves != waves:
            message = f"the layout of %{v.name} is for {_count(layout.num_waves, 'wave')}; the workgroup has {waves}"
            bits = _count(waves.bit_length() - 1, "vector")
            legal = f"{bits} in `wave = […]` (zeros where waves hold copies), or with(waves = {layout.num_waves})"
            found.append(Diagnostic("E0708", message, loc, legal=legal))
        elif layout.num_registers > most_registers:
            message = f"%{v.name} lies in {layout.num_registers} registers of every lane; {target.name} has "
            message += f"{target.registers_per_lane}"
            legal = "fewer vectors in `reg = […]`, and more in `lane` and `wave` that are not zero"
            found.append(Diagnostic("E0708", message, loc, legal=legal))
    return found


def laid_out_values(kernel: Kernel) -> Iterator[tuple[Value, Loc]]:
    """The values with a register layout, and where they are defined."""
    for op in kernel.walk():
        for v in (*op.results, *(a for region in op.regions for a in region.args)):
            if isinstance(v.type, TileType) and v.type.layout is not None:
                yield v, v.loc if v.loc.line else op.loc


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def check_copies(kernel: Kernel, target: Target) -> list[Diagnostic]:
    """Widths of direct copies that the text states must be those of the chip."""
    found: list[Diagnostic] = []
    for op in kernel.walk():
        if op.name == "copy_async" and op.attrs["bytes"] not in target.direct_to_lds_bytes:
            message = f"{target.name} has no direct-to-LDS loads of {op.attrs['bytes']} bytes per lane"
            legal = ", ".join(map(str, target.direct_to_lds_bytes))
            found.append(Diagnostic("E0706", message, op.loc, legal=f"bytes = one of {legal}"))
    return found


# -- workgroups --------------------------------------------------------------------------------------------------


def check_workgroup(kernel: Kernel, target: Target, places: Mapping[str, Loc]) -> list[Diagnostic]:
    """Number of waves and register budget must be launchable together. `places` are the directives they come from."""
    found: list[Diagnostic] = []
    waves, registers = kernel.attrs.get("waves"), kernel.attrs.get("registers")
    if isinstance(waves, int) and not (is_power_of_two(waves) and waves <= most_waves(target)):
        found.append(
            Diagnostic(
                "E0705",
                f"a workgroup of {waves} waves ({waves * target.wave_size} threads)",
                places.get("waves", kernel.loc),
                legal=f"a power of two of at most {most_waves(target)} waves",
            )
        )
    if isinstance(registers, int) and not 1 <= registers <= target.registers_per_lane:
        found.append(
            Diagnostic(
                "E0663",
                f"a budget of {registers} registers per lane",
                places.get("registers", kernel.loc),
                legal=f"1 to {target.registers_per_lane} on {target.name}",
            )
        )
    elif isinstance(waves, int) and isinstance(registers, int) and not found:
        per_simd = target.waves_per_simd(waves)
        most = target.registers_per_wave(per_simd)
        if registers > most:
            found.append(
                Diagnostic(
                    "E0862",
                    f"{waves} waves with {registers} registers per lane cannot be launched: {per_simd} waves share a SIMD of "
                    f"{target.registers_per_lane} registers",
                    places.get("registers", kernel.loc),
                    notes=(Note(f"{waves} waves are asked for here", places.get("waves", kernel.loc)),),
                    legal=f"at most {most} registers, or fewer waves",
                )
            )
    return found
