"""Steps of layout conversions inside a wave: `swap_lanes`, `shuffle_lanes`, `select_registers`. Which instructions a step
takes is decided in `tileir.passes.lane_code`; here they are written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tileir.ir.core import Op
from tileir.ir.types import Elem, FragmentType, TileType
from tileir.layout import Layout
from tileir.lowering.amdgpu.emit.coords import lane, linear
from tileir.lowering.amdgpu.emit.state import State
from tileir.lowering.amdgpu.emit.tiles import Tile
from tileir.lowering.amdgpu.emit.writer import Writer, scalar_type, vector_type
from tileir.passes import lane_code
from tileir.passes.lane_code import DWORD_BITS, Condition, LaneIndex, Shape, slots

_ALL_ROWS = 15
_PAIR = "!llvm.struct<(i32, i32)>"


class Emitter:
    """Writes each instruction of a step as an intrinsic on i32 values."""

    def __init__(self, s: State):
        self.s, self.w = s, s.w
        self._indices: dict[LaneIndex, str] = {}

    def swap(self, a: str, b: str, lane: int) -> tuple[str, str]:
        w = self.w
        pair = w.op(f"rocdl.permlane{1 << lane}.swap {a}, {b}, false, false : (i32, i32) -> {_PAIR}")
        return w.op(f"llvm.extractvalue {pair}[0] : {_PAIR}"), w.op(f"llvm.extractvalue {pair}[1] : {_PAIR}")

    def dpp(self, a: str, control: int, old: str | None = None, banks: int = 15) -> str:
        """Without `old` every lane is written, so that LLVM may merge the move into the instruction that uses it."""
        w = self.w
        if old is None:
            old = w.hoist(("poison", "i32"), lambda: w.op("llvm.mlir.poison : i32"), entry=True)
            return w.op(f"rocdl.update.dpp {old}, {a} with {control}, {_ALL_ROWS}, {banks}, true : i32")
        return w.op(f"rocdl.update.dpp {old}, {a} with {control}, {_ALL_ROWS}, {banks}, false : i32")

    def swizzle(self, a: str, pattern: int) -> str:
        return self.w.op(f"rocdl.ds_swizzle {a}, {self.w.const(pattern)} : (i32, i32) -> i32")

    def permute(self, a: str, index: LaneIndex) -> str:
        """Bytes of lane numbers stay in a register for the whole kernel, but the few bits that differ between registers are put
        on where they are used."""
        w = self.w
        if index not in self._indices:
            bits = [("lane", j, 4 * x) for j, x in enumerate(index.lanes)]
            bits += [("wave", j, 4 * x) for j, x in enumerate(index.waves)]
            base = w.hoist(("lane index", index.lanes, index.waves), lambda: linear(w, bits)[0])
            self._indices[index] = w.binary("xor", base, w.const(4 * index.start)) if index.start else base
        return w.op(f"rocdl.ds_bpermute {self._indices[index]}, {a} : (i32, i32) -> i32")

    def select(self, condition: Condition, a: str, b: str) -> str:
        return self.w.select(self._condition(condition), a, b, "i32")

    def bytes(self, a: str, b: str, picks: tuple[int, ...]) -> str:
        return self._perm(a, b, self.w.const(_selector(picks)))

    def bytes_by_lane(
        self, a: str, b: str, condition: Condition, picks: tuple[int, ...], others: tuple[int, ...]
    ) -> str:
        w = self.w
        test = self._condition(condition)
        first, second = w.const(_selector(picks)), w.const(_selector(others))
        selector = w.hoist(("byte selector", test, picks, others), lambda: w.select(test, first, second, "i32"))
        return self._perm(a, b, selector)

    def _perm(self, a: str, b: str, selector: str) -> str:
        """v_perm counts the bytes of its second operand first."""
        return self.w.op(f'llvm.call_intrinsic "llvm.amdgcn.perm"({b}, {a}, {selector}) : (i32, i32, i32) -> i32')

    def _condition(self, condition: Condition) -> str:
        w = self.w

        def emit() -> str:
            mask = condition.lanes
            if not condition.waves and mask & mask - 1 == 0:
                return w.icmp("ne", w.binary("and", lane(w), w.const(mask)), w.const(0))
            bits = [("lane", j, 1) for j in range(mask.bit_length()) if mask >> j & 1]
            bits += [("wave", j, 1) for j in range(condition.waves.bit_length()) if condition.waves >> j & 1]
            return w.icmp("ne", linear(w, bits)[0], w.const(0))

        return w.hoist(("condition", condition), emit)


def _selector(picks: Sequence[int]) -> int:
    value = sum(pick << 8 * i for i, pick in enumerate(picks))
    return value - (1 << DWORD_BITS) if value >> DWORD_BITS - 1 else value


# -- dwords of tiles -----------------------------------------------------------------------------------------------------


def to_words(w: Writer, tile: Tile, elem: Elem, layout: Layout) -> list[list[str]]:
    """The registers of a lane as i32 values; two lists, of low and high halves, for elements of 64 bits."""
    element = scalar_type(elem)
    if elem.bits > DWORD_BITS:
        halves = [w.bitcast(v, element, "vector<2xi32>") for v in tile.scalars(w)]
        return [[w.extract(v, i, "vector<2xi32>") for v in halves] for i in range(2)]
    n = slots(layout, elem.bits)
    short = f"i{n * elem.bits}"
    words: list[str] = []
    for piece in tile.get(w, n):
        word = w.bitcast(piece, vector_type(element, n), short)
        words.append(word if short == "i32" else w.op(f"llvm.zext {word} : {short} to i32"))
    return [words]


def from_words(w: Writer, words: Sequence[Sequence[str]], t: TileType, layout: Layout) -> Tile:
    """The inverse of `to_words`, for a tile of type `t`."""
    element = scalar_type(t.elem)
    if t.elem.bits > DWORD_BITS:
        pairs = zip(*words, strict=True)
        return Tile(t, 1, [w.bitcast(w.pack(pair, "i32"), "vector<2xi32>", element) for pair in pairs])
    n = slots(layout, t.elem.bits)
    short = f"i{n * t.elem.bits}"
    pieces: list[str] = []
    for word in words[0]:
        bits = word if short == "i32" else w.op(f"llvm.trunc {word} : i32 to {short}")
        pieces.append(w.bitcast(bits, short, vector_type(element, n)))
    return Tile(t, n, pieces)


def _step(s: State, op: Op, run: Callable[[Emitter, list[str], Shape], list[str]]) -> None:
    x, t = op.operands[0], op.result.tile
    before, after = x.tile.layout, t.layout
    assert before is not None and after is not None
    tile = s.tile(x)
    if tile.splat:
        s.values[op.result] = Tile.of_scalar(t, tile.splat, tile.splat_text)
        return
    if t.elem.is_bool:
        raise s.unsupported(f"'{op.name}' of {t.elem}", op.loc, "convert<i8>(…) first")
    shape = Shape(before, after, t.elem.bits)
    emitter = Emitter(s)
    halves = [run(emitter, words, shape) for words in to_words(s.w, tile, t.elem, before)]
    s.values[op.result] = from_words(s.w, halves, t, after)


def swap(s: State, op: Op) -> None:
    register, lane, via = op.attrs["register"], op.attrs["lane"], str(op.attrs["via"])
    assert isinstance(register, int) and isinstance(lane, int)
    if not lane_code.can_swap(via, lane, s.target):
        raise s.unsupported(f"'swap_lanes' of lane bit {lane} by {via}", op.loc, "ds_bpermute")
    _step(s, op, lambda m, words, shape: lane_code.swap(m, words, shape, register, lane, via, s.target))


def swap_fragments(s: State, op: Op) -> None:
    """Register by register, by the instruction that swaps rows of lanes."""
    lane, t = op.attrs["lane"], op.operands[0].type
    assert isinstance(lane, int) and isinstance(t, FragmentType)
    if not lane_code.can_swap("permlane_swap", lane, s.target):
        raise s.unsupported(f"'swap_fragments' of lane bit {lane}", op.loc, "swap_lanes of a tile")
    if t.count * t.elem.bits % DWORD_BITS or t.elem.bits > DWORD_BITS:
        raise s.unsupported(f"'swap_fragments' of {t}", op.loc, "fragments of whole registers")
    w, count = s.w, t.count * t.elem.bits // DWORD_BITS
    held, words = vector_type(scalar_type(t.elem), t.count), vector_type("i32", count)
    pair = [w.bitcast(s.scalar(v), held, words) for v in op.operands]
    if count > 1:
        columns = zip(*([w.extract(v, i, words) for i in range(count)] for v in pair), strict=True)
    else:
        columns = [tuple(pair)]
    emitter = Emitter(s)
    swapped = [emitter.swap(a, b, lane) for a, b in columns]
    for v, parts in zip(op.results, zip(*swapped, strict=True), strict=True):
        s.values[v] = w.bitcast(w.pack(list(parts), "i32") if count > 1 else parts[0], words, held)


def shuffle(s: State, op: Op) -> None:
    via = str(op.attrs["via"])
    _step(s, op, lambda m, words, shape: lane_code.shuffle(m, words, shape, via, s.target))


def select(s: State, op: Op) -> None:
    _step(s, op, lane_code.select)
