"""Wave-level ops on fragments: single instructions on runs of registers, in the order in which the machine executes them.

A fragment is what one instruction reads or writes: `count` registers in every lane of every wave. Where a fragment is a part of
a tile, a `register_map` says of which: a tile type with a layout, whose registers from `at` on the fragment holds. In the
interpreter a fragment is an array [waves, 64, count].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tileir.ir.core import Op
from tileir.ir.ops import numeric
from tileir.ir.ops.contract import SCALE, SCALE_BLOCK, accumulator, is_small_float
from tileir.ir.ops.memory import CACHE_ATTR, access_shape
from tileir.ir.registry import AttrSpec, Check, OpDef, declare
from tileir.ir.types import FragmentType, GlobalType, SharedType, TileType, Type
from tileir.layout.linear import Layout
from tileir.layout.mfma import elements_per_lane, mfma_accumulator, operand_k

Array = np.ndarray[Any, Any]
LANES = 64
FILES = ("", "vector", "accumulation")


def _fragment(c: Check, i: int) -> FragmentType:
    t = c.operands[i]
    if not isinstance(t, FragmentType):
        c.fail("E0370", f"'{c.name}' wants a fragment here, not {t}", i, legal="fragment<bf16[8]>")
    return t


def _wanted(c: Check) -> FragmentType:
    want = c.wanted()
    if not isinstance(want, FragmentType):
        c.fail("E0371", f"'{c.name}' needs the type of its fragment", legal=": fragment<bf16[8]>")
    return want


def _map(c: Check, i: int) -> tuple[TileType, Layout]:
    """Operand `i`: a tile with a layout."""
    t = c.tile(i, "a tile with a layout")
    if t.layout is None:
        c.fail("E0372", f"'{c.name}' wants a tile with a layout, not {t}", i, legal="tile<…, linear(…)>")
    return t, t.layout


def _check_range(c: Check, fragment: FragmentType, tile: TileType, layout: Layout) -> None:
    """The registers from `at` on must be those of the tile."""
    at = c.attrs.get("at", 0)
    assert isinstance(at, int)
    if fragment.elem != tile.elem:
        c.fail("E0373", f"{fragment} is no part of {tile.with_layout(None)}", legal=f"fragment<{tile.elem}[…]>")
    if not 0 <= at <= layout.num_registers - fragment.count:
        c.fail(
            "E0373",
            f"registers {at} to {at + fragment.count - 1} of a tile with {layout.num_registers}",
            legal=f"at from 0 to {layout.num_registers - fragment.count}",
        )


def _buffer_map(c: Check, buffer: int, tile: int) -> tuple[TileType, Layout]:
    """A buffer and the map of a tile of its shape."""
    b = c.operands[buffer]
    if not isinstance(b, SharedType):
        c.fail("E0340", f"'{c.name}' wants an LDS buffer here, not {b}", buffer, legal="the result of shared_alloc")
    t, layout = _map(c, tile)
    if t.shape != b.shape or t.elem != b.elem:
        c.fail("E0341", f"{t.with_layout(None)} does not fit {b}", tile, legal=f"tile<{b.elem}{list(b.shape)}, …>")
    return t, layout


# Tiles and their registers


def registers(layout: Layout, tile: Array, first: int, count: int) -> Array:
    """Registers `first` … of a tile: [waves, 64, count]; zero where a register holds no element."""
    table = layout.owner_table()[:, :, first : first + count]
    inside = np.all(table < np.asarray(layout.shape), axis=-1)
    places = tuple(np.where(inside, table[..., d], 0) for d in range(layout.rank))
    return np.where(inside, tile[places], np.zeros((), tile.dtype))


def put_registers(layout: Layout, tile: Array, first: int, values: Array) -> Array:
    """Writes registers of a tile in place; gives the mask of the elements written."""
    table = layout.owner_table()[:, :, first : first + values.shape[-1]]
    inside = np.all(table < np.asarray(layout.shape), axis=-1)
    places = tuple(table[..., d][inside] for d in range(layout.rank))
    tile[places] = values[inside]
    mask = np.zeros(tile.shape, bool)
    mask[places] = True
    return mask


def part_mask(op: Op, lanes: int) -> Array:
    """The elements of its buffer that a `copy_async_part` writes in a workgroup of so many lanes."""
    t, width, part = op.operands[-1].type, op.attrs["bytes"], op.attrs["part"]
    assert isinstance(t, SharedType) and t.layout is not None and isinstance(width, int) and isinstance(part, int)
    rows, cols = np.indices(t.matrix)
    offset = t.layout.offset(rows, cols)
    if t.layout.kind == "slabs":  # parts count pieces of the image; the pitch is that of LDS
        offset = rows * t.layout.row_bytes + cols * t.elem.bits // 8
    together = op.attrs.get("together", 1)
    assert isinstance(together, int)
    slabs = offset // (width * LANES)  # those of a wave lie side by side, `together` of them
    mask: Array = (slabs // (together * lanes // LANES) * together + slabs % together == part).reshape(t.shape)
    return mask


def _register_map(c: Check) -> Sequence[Type]:
    want = c.wanted()
    if not isinstance(want, TileType) or want.layout is None:
        c.fail("E0372", "'register_map' needs a tile type with a layout", legal=": tile<…, linear(…)>")
    return [want]


declare(
    OpDef(
        "register_map",
        "Says who holds which element: a tile that exists only as its type. Its value is zeros; nothing is computed.",
        (),
        _register_map,
        level="wave",
        category="fragments",
        semantics=lambda ctx, op, args: np.zeros(op.results[0].tile.shape, op.results[0].tile.elem.np),
        example="%map = register_map() : tile<f32[64], linear(reg = [], lane = [[1], [2], [4], [8], [16], [32]], wave = [])>",
    )
)


def _split(c: Check) -> Sequence[Type]:
    t, layout = _map(c, 0)
    first = _wanted(c)
    if first.elem != t.elem or not c.expected or layout.num_registers != first.count * len(c.expected):
        c.fail(
            "E0374",
            f"{layout.num_registers} registers of {t.elem} do not become {len(c.expected)} of {first}",
            legal="fragments of equal size that together hold every register",
        )
    return [first] * len(c.expected)


def _split_value(ctx: Any, op: Any, args: Sequence[Any]) -> Any:
    count = op.results[0].type.count
    layout = op.operands[0].tile.layout
    return tuple(registers(layout, args[0], i * count, count) for i in range(len(op.results)))


declare(
    OpDef(
        "split_registers",
        "The registers of a tile as fragments of equal size, in order.",
        ("x",),
        _split,
        level="wave",
        category="fragments",
        semantics=_split_value,
        example="%f0, %f1 = split_registers(%held) : fragment<f32[1]>, fragment<f32[1]>",
    )
)


def _join(c: Check) -> Sequence[Type]:
    want = c.wanted()
    if not isinstance(want, TileType) or want.layout is None:
        c.fail("E0372", "'join_registers' needs a tile type with a layout", legal=": tile<…, linear(…)>")
    parts = [_fragment(c, i) for i in range(len(c.operands))]
    total = sum(p.count for p in parts)
    if any(p.elem != want.elem for p in parts) or total != want.layout.num_registers:
        c.fail(
            "E0374",
            f"fragments with {total} registers do not make a tile with {want.layout.num_registers}",
            legal="fragments that together hold every register of the tile",
        )
    return [want]


def _join_value(ctx: Any, op: Any, args: Sequence[Any]) -> Any:
    t = op.results[0].tile
    out = np.zeros(t.shape, t.elem.np)
    put_registers(t.layout, out, 0, np.concatenate(args, axis=-1))
    return out


declare(
    OpDef(
        "join_registers",
        "A tile from fragments that hold its registers in order.",
        ("parts*",),
        _join,
        level="wave",
        category="fragments",
        semantics=_join_value,
        example=(
            "%f = split_registers(%held) : fragment<f32[2]>\n"
            "%t = join_registers(%f) : tile<f32[2], linear(reg = [[1]], lane = [[0], [0], [0], [0], [0], [0]], wave = [])>"
        ),
    )
)


def _slice(c: Check) -> Sequence[Type]:
    x, want, at = _fragment(c, 0), _wanted(c), c.attrs["at"]
    assert isinstance(at, int)
    if want.elem != x.elem or not 0 <= at <= x.count - want.count:
        c.fail("E0373", f"{want} from {at} on is no part of {x}", 0, legal=f"at + size at most {x.count}")
    return [want]


declare(
    OpDef(
        "slice_fragment",
        "A part of a fragment: the registers from `at` on. A name for registers, no instruction.",
        ("x",),
        _slice,
        attrs=(AttrSpec("at", "int"),),
        level="wave",
        category="fragments",
        semantics=lambda ctx, op, args: args[0][..., op.attrs["at"] : op.attrs["at"] + op.results[0].type.count],
        example="%f = split_registers(%held) : fragment<f32[2]>\n%low = slice_fragment<at = 0>(%f) : fragment<f32[1]>",
    )
)


def _join_fragments(c: Check) -> Sequence[Type]:
    parts = [_fragment(c, i) for i in range(len(c.operands))]
    if not parts or any(p.elem != parts[0].elem for p in parts):
        c.fail("E0374", "'join_fragments' wants fragments of one element type", legal="join_fragments(%a, %b)")
    return [FragmentType(parts[0].elem, sum(p.count for p in parts))]


declare(
    OpDef(
        "join_fragments",
        "Fragments one behind the other as one. A name for registers, no instruction if they are read in place.",
        ("parts*",),
        _join_fragments,
        level="wave",
        category="fragments",
        semantics=lambda ctx, op, args: np.concatenate(args, axis=-1),
        example="%f = split_registers(%held) : fragment<f32[2]>\n%both = join_fragments(%f, %f) : fragment<f32[4]>",
    )
)


# Memory


def _load(c: Check) -> Sequence[Type]:
    t, layout = _buffer_map(c, 0, 1)
    want = _wanted(c)
    _check_range(c, want, t, layout)
    return [want]


for _name, _how in (
    ("shared_load_fragment", "by one read"),
    ("shared_load_transposed_fragment", "by one transposing read"),
):
    declare(
        OpDef(
            _name,
            f"Reads registers of a tile from LDS, from register `at` of the map on, {_how}.",
            ("buffer", "map"),
            _load,
            attrs=(AttrSpec("at", "int", default=0),),
            level="wave",
            effects=frozenset({"read"}),
            category="fragments",
            semantics=lambda ctx, op, args: ctx.shared_load_fragment(op, args[0]),
            example=f"%f = {_name}<at = 4>(%buf, %map) : fragment<f32[4]>",
        )
    )


def _store(c: Check) -> Sequence[Type]:
    x = _fragment(c, 0)
    t, layout = _buffer_map(c, 1, 2)
    _check_range(c, x, t, layout)
    return []


declare(
    OpDef(
        "shared_store_fragment",
        "Writes registers of a tile to LDS by one write: from register `at` of the map on.",
        ("value", "buffer", "map"),
        _store,
        attrs=(AttrSpec("at", "int", default=0),),
        level="wave",
        effects=frozenset({"write"}),
        category="fragments",
        semantics=lambda ctx, op, args: ctx.shared_store_fragment(op, args[0], args[1]),
        example="%f = shared_load_fragment(%buf, %map) : fragment<f32[4]>\nshared_store_fragment<at = 4>(%f, %buf, %map)",
    )
)


def _copy_part(c: Check) -> Sequence[Type]:
    shape = access_shape(c, 0)
    view, t, part = c.operands[0], c.operands[-1], c.attrs["part"]
    assert isinstance(view, GlobalType) and isinstance(part, int)
    if not isinstance(t, SharedType):
        c.fail(
            "E0340", f"'{c.name}' wants an LDS buffer, not {t}", len(c.operands) - 1, legal="the result of shared_alloc"
        )
    if shape != t.shape or view.elem != t.elem:
        c.fail(
            "E0341",
            f"a span of {list(shape)} of {view.elem} does not fit {t}",
            0,
            legal=f"a span of {list(t.shape)} of {t.elem}",
        )
    if part < 0:
        c.fail("E0306", f"attribute 'part' of '{c.name}' cannot be {part}", legal="at least 0")
    return []


declare(
    OpDef(
        "copy_async_part",
        "One instruction of a `copy_async`: number `part`, in which every wave fills 64 consecutive pieces of `bytes` of the buffer. "
        "Of `together` parts one after the other those of a wave lie side by side, and one value of M0 serves them.",
        ("access", "buffer"),
        _copy_part,
        attrs=(
            AttrSpec("bytes", "int", doc="bytes per lane and instruction"),
            AttrSpec("part", "int"),
            AttrSpec("together", "int", default=1),
            CACHE_ATTR,
        ),
        level="wave",
        effects=frozenset({"read", "write", "async"}),
        category="fragments",
        semantics=lambda ctx, op, args: ctx.copy_async_part(op, args[0], args[1:-1], args[-1]),
        example="copy_async_part<bytes = 16, part = 0>(%A[%i +: 64, %j +: 64], %buf)",
    )
)


def _load_global(c: Check) -> Sequence[Type]:
    shape = access_shape(c, 0)
    t, layout = _map(c, len(c.operands) - 1)
    view, want = c.operands[0], _wanted(c)
    assert isinstance(view, GlobalType)
    if shape != t.shape or view.elem != t.elem:
        c.fail(
            "E0341",
            f"a span of {list(shape)} of {view.elem} does not fit {t.with_layout(None)}",
            0,
            legal=f"a span of {list(t.shape)}",
        )
    _check_range(c, want, t, layout)
    return [want]


declare(
    OpDef(
        "load_fragment",
        "Reads registers of a tile from global memory by one load: from register `at` of the map on; outside elements are 0.",
        ("access", "map"),
        _load_global,
        attrs=(
            AttrSpec("at", "int", default=0),
            AttrSpec("via", "word", default="buffer", choices=("buffer", "global")),
            CACHE_ATTR,
        ),
        level="wave",
        effects=frozenset({"read"}),
        category="fragments",
        semantics=lambda ctx, op, args: ctx.load_fragment(op, args[0], args[1:-1]),
        example="%f = load_fragment<at = 4>(%A[%i +: 64, %j +: 64], %map) : fragment<f32[4]>",
    )
)


# Reductions inside of a lane


def _fold(c: Check) -> Sequence[Type]:
    acc, x = _fragment(c, 0), _fragment(c, 1)
    widens = c.attrs["kind"] == "add" and acc.elem.name == "f32" and x.elem.is_float and x.elem.bits == 16
    if acc.count != 1 or (acc.elem != x.elem and not widens):
        c.fail(
            "E0374",
            f"{x} cannot be folded into {acc}",
            1,
            legal=f"fragment<{acc.elem}[…]> into fragment<{acc.elem}[1]>",
        )
    return [acc]


def _fold_value(ctx: Any, op: Any, args: Sequence[Any]) -> Any:
    acc, x = args
    kind, elem = op.attrs["kind"], op.results[0].type.elem
    if kind == "add":
        total = acc.astype(np.float64) + np.sum(x.astype(np.float64), axis=-1, keepdims=True)
        return total.astype(elem.np) if elem.is_float else acc + np.sum(x, axis=-1, keepdims=True, dtype=x.dtype)
    pick = numeric.maximum if kind == "max" else numeric.minimum
    for i in range(x.shape[-1]):
        acc = pick(acc, x[..., i : i + 1])
    return acc


declare(
    OpDef(
        "fold_fragment",
        "Combines the elements of a fragment with a running value of the same lane. A sum in f32 may take 16-bit floats.",
        ("acc", "x"),
        _fold,
        attrs=(
            AttrSpec("kind", "word", positional=True, choices=("add", "max", "min")),
            AttrSpec("flush", "bool", default=False, doc="sums: values below 2^-126 may count as 0"),
        ),
        level="wave",
        category="fragments",
        semantics=_fold_value,
        example=(
            "%f = split_registers(%held) : fragment<f32[2]>\n"
            "%a = slice_fragment<at = 0>(%f) : fragment<f32[1]>\n"
            "%m = fold_fragment<max>(%a, %f) : fragment<f32[1]>"
        ),
    )
)


# Exchanges between lanes


def _swap(c: Check) -> Sequence[Type]:
    a, b, lane = _fragment(c, 0), _fragment(c, 1), c.attrs["lane"]
    if a != b:
        c.fail("E0374", f"{a} and {b} cannot be exchanged", 1, legal=str(a))
    if not isinstance(lane, int) or not 0 <= lane < LANES.bit_length() - 1:
        c.fail("E0306", f"attribute 'lane' of '{c.name}' cannot be {lane}", legal="0 to 5")
    return [a, b]


def _swap_value(ctx: Any, op: Any, args: Sequence[Any]) -> Any:
    a, b = args
    bit = 1 << op.attrs["lane"]
    lanes = np.arange(LANES)
    upper = (lanes & bit != 0)[None, :, None]
    return np.where(upper, b[:, lanes ^ bit], a), np.where(upper, b, a[:, lanes ^ bit])


declare(
    OpDef(
        "swap_fragments",
        "Two fragments after the bit `lane` of the lane number and the number of the fragment have changed places: the lanes of the first "
        "in which the bit is set exchange their elements with the lanes of the second in which it is not.",
        ("a", "b"),
        _swap,
        attrs=(AttrSpec("lane", "int", doc="bit of the lane number, 0 to 5"),),
        level="wave",
        category="fragments",
        semantics=_swap_value,
        example=(
            "%f = split_registers(%held) : fragment<f32[2]>\n"
            "%a = slice_fragment<at = 0>(%f) : fragment<f32[1]>\n"
            "%b = slice_fragment<at = 1>(%f) : fragment<f32[1]>\n"
            "%c, %d = swap_fragments<lane = 5>(%a, %b) : fragment<f32[1]>, fragment<f32[1]>"
        ),
    )
)


# Matrix instructions


def _mfma(c: Check) -> Sequence[Type]:
    a, b, acc = (_fragment(c, i) for i in range(3))
    if len(c.operands) not in (3, 5):
        c.fail("E0302", f"'mfma' has {len(c.operands)} operands", legal="mfma(a, b, c) or mfma(a, b, c, sa, sb)")
    instr = c.attrs["instr"]
    assert isinstance(instr, tuple)
    if (
        len(instr) != 3
        or any(n < 1 or n & (n - 1) for n in instr)
        or instr[0] * instr[2] % LANES
        or instr[1] * instr[2] % LANES
    ):
        c.fail("E0375", f"there is no matrix instruction {list(instr)}", legal="[16, 16, 32]")
    m, n, k = instr
    want = accumulator(a.elem)
    if a.elem != b.elem and not (is_small_float(a.elem) and is_small_float(b.elem)):
        c.fail(
            "E0313", f"'mfma' mixes {a.elem} and {b.elem}", 1, legal="equal element types, or floats of at most 8 bits"
        )
    sizes = elements_per_lane(m, k), elements_per_lane(n, k), m * n // LANES
    if want is None or acc.elem != want or (a.count, b.count, acc.count) != sizes:
        c.fail(
            "E0375",
            f"{a}, {b} and {acc} are not operands of {m}x{n}x{k}",
            legal=f"{sizes[0]} and {sizes[1]} elements and {sizes[2]} of {want or 'f32'}",
        )
    if len(c.operands) == 5:
        _check_scales(c, a, (m, n, k))
    return [acc]


def _check_scales(c: Check, a: FragmentType, instr: tuple[int, int, int]) -> None:
    """Each scale operand is one register, of which the instruction takes a byte."""
    m, n, k = instr
    if not is_small_float(a.elem) or m * (k // SCALE_BLOCK) != LANES or m != n:
        c.fail("E0375", f"{m}x{n}x{k} takes no scales", legal="[16, 16, 128] and [32, 32, 64] do, of small floats")
    picked = c.attrs["scale_at"]
    assert isinstance(picked, tuple)
    if len(picked) != 2:
        c.fail(
            "E0306", f"attribute 'scale_at' of 'mfma' cannot be {list(picked)}", legal="a place in each scale fragment"
        )
    for i, at in zip((3, 4), picked, strict=True):
        t = _fragment(c, i)
        if t.elem.name != SCALE or t.registers != 1 or not 0 <= at < t.count:
            c.fail("E0375", f"scale {at} of {t}", i, legal=f"one of at most four scales: fragment<{SCALE}[4]>")


def _mfma_value(ctx: Any, op: Any, args: Sequence[Any]) -> Any:
    m, n, k = op.attrs["instr"]
    acc = op.results[0].type.elem
    bits = (v.type.elem.bits for v in op.operands[:2])
    a, b = (_matrix(x, rows, k, width) for x, rows, width in zip(args, (m, n), bits, strict=False))
    if len(args) == 5:
        a, b = (
            x * _scale_matrix(args[3 + i], rows, op.attrs["scale_at"][i])
            for i, (x, rows) in enumerate(((a, m), (b, n)))
        )
    product = a @ b.transpose(0, 2, 1)
    table = mfma_accumulator(m, n, bits=max(32, op.operands[0].type.elem.bits)).owner_table()[0]
    found = product[:, table[..., 0], table[..., 1]]
    if acc.is_int:
        return (found.astype(np.int64) + args[2]).astype(acc.np)
    return (found + args[2].astype(np.float64)).astype(acc.np)


def _matrix(fragment: Array, rows: int, k: int, bits: int) -> Array:
    """An operand fragment as matrices [waves, rows, k] in f64: lane l holds row l % rows and of k what its lane group has."""
    waves, _, count = fragment.shape
    values = fragment.astype(np.float64).reshape(waves, LANES // rows, rows, count)
    place = np.argsort(operand_k(rows, k, bits=bits), axis=None)
    return values.transpose(0, 2, 1, 3).reshape(waves, rows, k)[:, :, place]


def _scale_matrix(fragment: Array, rows: int, at: int) -> Array:
    """Scales as factors of an operand, [waves, rows, k] in f64: lane rows · j + i holds that of row i and of the j-th block of k."""
    waves = fragment.shape[0]
    values = fragment[..., at].astype(np.float64).reshape(waves, LANES // rows, rows).transpose(0, 2, 1)
    return np.repeat(values, SCALE_BLOCK, axis=2)


declare(
    OpDef(
        "mfma",
        "One matrix instruction: c + a · bᵀ, where lane l of an operand holds row l mod m (or n) and its lane group a run of k. Operands "
        "stand in the order of the instruction. With five the last two are scales of blocks of 32 values of k (see `mma_scaled`): "
        "lane m · j + i holds those of row i for the j-th block of k of up to four instructions; this one takes number `scale_at`.",
        ("a", "b", "c", "scales*"),
        _mfma,
        attrs=(
            AttrSpec("instr", "shape", doc="MFMA shape m, n, k"),
            AttrSpec("scale_at", "shape", default=(), doc="which of the scales in each of the two scale fragments"),
            AttrSpec("file", "word", default="", choices=FILES, doc="register file of the accumulator"),
            AttrSpec(
                "pin", "shape", default=(), doc="first and last register of that file in which the accumulator lies"
            ),
            AttrSpec(
                "file_a", "word", default="", choices=FILES, doc="register file from which the instruction takes a"
            ),
            AttrSpec(
                "file_b", "word", default="", choices=FILES, doc="register file from which the instruction takes b"
            ),
        ),
        level="wave",
        category="fragments",
        semantics=_mfma_value,
        example=(
            "%f = shared_load_fragment(%buf, %map) : fragment<f32[1]>\n"
            "%c = shared_load_fragment<at = 4>(%buf, %map) : fragment<f32[4]>\n"
            "%d = mfma<instr = [16, 16, 4]>(%f, %f, %c) : fragment<f32[4]>"
        ),
    )
)


# Order


declare(
    OpDef(
        "schedule_fence",
        "Nothing moves across: the order of the text is that of the machine code here.",
        (),
        lambda c: [],
        level="wave",
        effects=frozenset({"order"}),
        category="fragments",
        semantics=lambda ctx, op, args: None,
        example="schedule_fence()",
    )
)


def _priority(c: Check) -> Sequence[Type]:
    level = c.attrs["level"]
    assert isinstance(level, int)
    if not 0 <= level <= 3:
        c.fail("E0306", f"attribute 'level' of 'priority' cannot be {level}", legal="0 to 3")
    return []


declare(
    OpDef(
        "priority",
        "From here on, this wave issues before waves of lower priority on its SIMD: 0 (at the start) to 3.",
        (),
        _priority,
        attrs=(AttrSpec("level", "int", positional=True),),
        level="wave",
        effects=frozenset({"order"}),
        category="fragments",
        semantics=lambda ctx, op, args: None,
        example="priority<1>()",
    )
)


def _barrier_of(c: Check) -> Sequence[Type]:
    if c.attrs["half"] not in (0, 1):
        c.fail("E0306", f"attribute 'half' of 'barrier_of' cannot be {c.attrs['half']}", legal="0 (the first) or 1")
    return []


declare(
    OpDef(
        "barrier_of",
        "The waves of one half of the workgroup (0: the lower numbers) count a barrier that the others do not: from here on they are one "
        "barrier behind, until the other half counts one, too.",
        (),
        _barrier_of,
        attrs=(AttrSpec("half", "int"),),
        level="wave",
        effects=frozenset({"sync"}),
        category="fragments",
        semantics=lambda ctx, op, args: None,
        example="barrier_of<half = 1>()",
    )
)
