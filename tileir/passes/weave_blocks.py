"""Writes loops that compute between their matrix products instruction by instruction: vector work under matrix instructions.

A run of tile ops in the body of a loop, between two places where waves meet or paths part,

    %p = exp2(%x) : tile<f32[256, 64], …>
    %s = mma(%q, %k) : tile<f32[256, 64], …>

becomes ops on fragments (`take_apart`) in the order in which a wave should issue them (`order_ops`), with a fence before each matrix
instruction, across which the machine scheduler moves nothing:

    %p_0 = exp2(%x_0) : fragment<f32[4]>
    schedule_fence()
    %s_0 = mfma<instr = [32, 32, 16]>(%k_0, %q_0, %zero) : fragment<f32[16]>
    %p_1 = exp2(%x_1) : fragment<f32[4]>
    %p_2 = exp2(%x_2) : fragment<f32[4]>
    schedule_fence()
    …

Runs that fill a buffer and read it stay as they are up to the last op that fills one, as do loops without vector work between matrix
instructions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from tileir.ir.core import AttrValue, Block, Kernel, Op, Value
from tileir.ir.ops.memory import cache_of
from tileir.ir.registry import get
from tileir.ir.rewriter import Rewriter, rewrite
from tileir.ir.types import FragmentType, SharedType, TileType
from tileir.passes.base import Context, Pass
from tileir.passes.order_ops import Known, fused, order
from tileir.passes.outstanding import rounds, together_of
from tileir.passes.take_apart import Parts

# Direct copies stand in the first part of a run, so that they are under way for as long as possible, but not all at once: each
# occupies the path to memory.
COPIED_BY = 0.6
_BORDERS = ("wait", "barrier", "barrier_of", "schedule_fence", "yield", "priority")


def runs(block: Block) -> Iterator[list[Op]]:
    """The ops of a block between borders."""
    run: list[Op] = []
    for op in block.ops:
        if op.regions or op.name in _BORDERS:
            if run:
                yield run
            run = []
        else:
            run.append(op)
    if run:
        yield run


def _is_worth(run: list[Op]) -> bool:
    """Whether a run multiplies tiles and computes with them, and no buffer in it is both filled and read."""
    tiles = [
        op for op in run if op.results and isinstance(op.results[0].type, TileType) and not op.results[0].type.is_scalar
    ]
    if not any(op.name == "mma" for op in tiles) or not any(get(op.name).elementwise for op in tiles):
        return False
    read = {v for op in run if op.name.startswith("shared_load") for v in op.operands if isinstance(v.type, SharedType)}
    filled = {
        v for op in run if not op.name.startswith("shared_load") for v in op.operands if isinstance(v.type, SharedType)
    }
    return not read & filled


def woven_runs(kernel: Kernel) -> dict[Op, list[Op]]:
    """The runs to weave, by their first op."""
    found: dict[Op, list[Op]] = {}
    for loop in kernel.walk():
        if (
            loop.name != "for"
            or loop.attrs.get("few")
            or loop.attrs.get("pattern") == "plain"
            or any(op.name in ("for", "copy") for r in loop.regions for op in r.walk())
        ):
            continue
        for run in runs(loop.regions[0]):
            for part in (run, _behind_fills(run)):
                if _is_worth(part):
                    found[part[0]] = part
                    break
    return found


def _behind_fills(run: list[Op]) -> list[Op]:
    """What follows the last op of a run that fills a buffer: waves meet there, if it reads that buffer."""
    last = max((i for i, op in enumerate(run) if op.name == "shared_store"), default=-1)
    return run[last + 1 :]


def early_copies(block: Block, runs: Mapping[Op, Sequence[Op]]) -> dict[Op, list[Op]]:
    """Direct copies that stand between a meeting of the waves and a run to weave, by the first op of the run: they may as well stand in it, unless
    something reads before its end what they bring."""
    found: dict[Op, list[Op]] = {}
    open_: list[Op] = []
    for op in block.ops:
        if op in runs:
            used = {v for x in runs[op] for v in x.operands}
            found[op], open_ = [copy for copy in open_ if not used & _filled(copy)], []
        elif op.name in _BORDERS or (op.regions and op.name != "guard"):
            open_ = []
        elif op.name == "copy_async":
            open_.append(op)
        elif open_:
            used = {v for x in op.walk() for v in x.operands}
            open_ = [copy for copy in open_ if not used & _filled(copy)]
    return found


def _filled(copy: Op) -> set[Value]:
    """The buffer of a direct copy."""
    return {v for v in copy.operands if isinstance(v.type, SharedType)}


class _Weaver:
    """Writes the runs of one kernel."""

    def __init__(self, kernel: Kernel, ctx: Context):
        self.ctx = ctx
        self.runs = woven_runs(kernel)
        self.copies: dict[Op, list[Op]] = {}
        self.following: dict[Op, list[tuple[Value, Value]]] = {}  # by the first op of a run, what its loop carries on
        for op in kernel.walk():
            if op.name == "for":
                self.copies.update(early_copies(op.regions[0], self.runs))
                self.following.update((x, _carried_on(op)) for x in op.regions[0].ops if x in self.runs)
        self.contracts = kernel.fp != "strict"
        self.waves = kernel.attrs["waves"]
        self.loops = {op: loop for loop in kernel.walk() if loop.name == "for" for op in loop.regions[0].ops}
        self.known: Known = {}
        self.members = {op for run in self.runs.values() for op in run}
        self.members |= {op for copies in self.copies.values() for op in copies}
        self.users: dict[Value, list[Op]] = {}
        for op in kernel.walk():
            for v in op.operands:
                self.users.setdefault(v, []).append(op)

    def rule(self, rw: Rewriter, op: Op) -> bool:
        if op in self.runs:
            self._write(rw, self.runs[op])
            return True
        return op in self.members

    def _write(self, rw: Rewriter, run: list[Op]) -> None:
        inside = set(run)
        while True:  # what an op needs of its users may rule it out, and that others
            parts = Parts(rw, inside, self.users)
            kept = {op for op in inside if parts.takes(op)}
            kept -= _between(run, kept)
            if kept == inside:
                break
            inside = kept
        outer, rw.block = rw.block, Block()
        whole: list[Op] = []
        for op in run:
            if op in inside:
                parts.write(op)
                continue
            for v in op.operands:
                if v in parts.held and v.owner in inside:
                    rw.mapping[v] = parts.tile(v)
            whole.append(rw.copy(op))
        for op in run:
            for v in op.results:
                if (
                    op in inside
                    and v in parts.held
                    and any(u not in inside for u in self.users.get(v, []))
                    and v not in rw.mapping
                ):
                    rw.mapping[v] = parts.tile(v)
        inner, rw.block = rw.block, outer
        places = [
            (rw.use(old), parts.held[new].fragments)
            for old, new in self.following.get(run[0], ())
            if new in parts.held and new.owner in inside
        ]
        self._put(rw, inner.ops, set(whole), self._parts(rw, self.copies.get(run[0], ())), places, run)

    def _parts(self, rw: Rewriter, copies: Sequence[Op]) -> list[Op]:
        """The instructions of direct copies."""
        found: list[Op] = []
        assert isinstance(self.waves, int)
        for copy in copies:
            operands = [rw.use(v) for v in copy.operands]
            together = together_of(copy, self.waves, self.ctx.target)
            for part in range(rounds(copy, self.waves)[1]):
                attrs: dict[str, AttrValue] = {"bytes": copy.attrs["bytes"], "part": part, **together, **cache_of(copy)}
                found.append(Op("copy_async_part", operands, attrs, [], [], copy.spans, copy.loc))
        return found

    def _ending(self, rw: Rewriter, run: list[Op]) -> set[Value]:
        """Values from before a run, but of the same iteration, that nothing else uses."""
        body, inside = self.loops[run[0]].regions[0], set(run)
        local = {*body.args, *(v for op in body.ops for v in op.results)}
        before = {v for op in run for v in op.operands if v in local and v.owner not in inside}
        return {rw.use(v) for v in before if all(u in inside for u in self.users[v])}

    def _put(
        self,
        rw: Rewriter,
        ops: list[Op],
        whole: set[Op],
        copies: list[Op],
        places: Sequence[tuple[Value, Sequence[Value]]],
        run: list[Op],
    ) -> None:
        """The fragments in their order. Ops on whole tiles and scalars stand before them, but for those that need fragments. `places`
        are tiles that the loop carries, with the fragments that take their place in the next iteration."""
        makers = {v: op for op in ops for v in op.results}
        behind: set[Op] = set()
        for op in ops:
            if op.name == "join_registers" or (op in whole and any(makers.get(v) in behind for v in op.operands)):
                behind.add(op)
        fragments = [op for op in ops if op not in whole and op not in behind]
        for op in ops:
            if op in whole and op not in behind:
                rw.insert(op)
        used = {v for op in behind for v in op.operands}
        inner = fused(fragments, used) if self.contracts else set[Op]()
        before = overwritten(fragments, places, inner)
        assert isinstance(self.waves, int)
        per_simd = self.ctx.target.waves_per_simd(self.waves)
        ending = self._ending(rw, run)
        ordered = order(fragments, used, ending, per_simd, self.ctx.target, self.known, before, inner)
        slots, found = ordered.slots, ordered.solution
        if ordered.new:
            loop = self.loops[run[0]]
            self.ctx.log.remark(
                "R0813",
                f"the order of {len(found.order)} instructions in the loop over %{loop.regions[0].args[0].name} takes {found.text()}",
                loop.loc,
            )
        step = max(1, int(len(slots) * COPIED_BY) // max(1, len(copies)))
        for i, slot in enumerate(slots):
            if any(op.name == "mfma" for op in slot):
                rw.op("schedule_fence")
            for op in slot:
                rw.insert(op)
            if i % step == 0 and i // step < len(copies):
                rw.insert(copies[i // step])
        for copy in copies[-(-len(slots) // step) :]:
            rw.insert(copy)
        for op in ops:
            if op in behind:
                rw.insert(op)


def _carried_on(loop: Op) -> list[tuple[Value, Value]]:
    """Tiles of the body that have the registers of what the loop carries, each with the value that takes its place in the next iteration."""
    body = loop.regions[0]
    found = list(zip(body.args[1:], body.terminator.operands, strict=True))
    following = dict(found)
    for op in body.ops:
        if op.name == "guard":
            for init, result in zip(op.operands[1:], op.results, strict=True):
                if init in following:
                    following[result] = following[init]
                    found.append((result, following[init]))
    return [(old, new) for old, new in found if isinstance(old.type, TileType)]


def overwritten(
    ops: Sequence[Op], places: Sequence[tuple[Value, Sequence[Value]]], inner: Set[Op]
) -> dict[Op, list[Op]]:
    """The ops that should stand before some matrix instructions: those that read registers of tiles from outside, before the first of
    those that make the fragments which take their `places`. Both can then have the same registers, and nothing is copied. Only what
    stands before in `ops` as it is."""
    registers: dict[Value, list[tuple[Value, int]]] = {}  # of the tiles
    readers: dict[tuple[Value, int], list[Op]] = {}
    makers = {v: op for op in ops for v in op.results}
    number = {op: i for i, op in enumerate(ops)}
    tiles = {old for old, _ in places}
    for op in ops:
        if op.name == "split_registers" and op.operands[0] in tiles:
            at = 0
            for v in op.results:
                registers[v] = [(op.operands[0], at + i) for i in range(count_of(v))]
                at += count_of(v)
        elif op.name == "slice_fragment" and op.operands[0] in registers:
            at = op.attrs.get("at", 0)
            assert isinstance(at, int)
            registers[op.result] = registers[op.operands[0]][at : at + count_of(op.result)]
        elif op.name == "join_fragments" and all(v in registers for v in op.operands):
            registers[op.result] = [r for v in op.operands for r in registers[v]]
        elif op in inner:  # it is the sum that reads
            registers[op.result] = [r for v in op.operands for r in registers.get(v, ())]
        else:
            for r in dict.fromkeys(r for v in op.operands for r in registers.get(v, ())):
                readers.setdefault(r, []).append(op)
    found: dict[Op, list[Op]] = {}
    for old, new in places:
        at = 0
        for v in new:
            first, maker = None, makers.get(v)
            while maker is not None and maker.name == "mfma":
                first, maker = maker, makers.get(maker.operands[2])
            reading = dict.fromkeys(op for i in range(count_of(v)) for op in readers.get((old, at + i), ()))
            at += count_of(v)
            if first is not None and all(number[op] < number[first] for op in reading):
                found.setdefault(first, []).extend(reading)
    return found


def count_of(v: Value) -> int:
    """Registers of a fragment."""
    assert isinstance(v.type, FragmentType)
    return v.type.count


def _between(run: list[Op], inside: set[Op]) -> set[Op]:
    """Ops to be taken apart that a whole op needs which others of them need: these cannot all be in one order."""
    needed: set[Value] = set()
    found: set[Op] = set()
    whole: set[Value] = set()  # what whole ops need that lead to others
    for op in reversed(run):
        leads = any(v in needed for v in op.results)
        if op in inside:
            if any(v in whole for v in op.results):
                found.add(op)
            needed.update(op.operands)
        elif leads:
            needed.update(op.operands)
            whole.update(op.operands)
    return found


def _run(kernel: Kernel, ctx: Context) -> Kernel:
    if ctx.whole_tiles:
        return kernel
    weaver = _Weaver(kernel, ctx)
    return rewrite(kernel, weaver.rule) if weaver.runs else kernel


PASS = Pass(
    "weave-blocks",
    _run,
    requires=frozenset({"pipelined"}),
    summary="puts vector work under matrix instructions, one by one",
)
