"""Single edits of final texts: what the simulator finds wrong, the verifier rejects, and what it rejects is wrong, or explained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.mutation.edits import ACCESSES, SUBJECTS, Edit, Subject, Verdict, edits, judge
from tests.mutation.framework import waited_for_by_code

BY_NAME = {str(s): s for s in SUBJECTS}
SLICE = {"gfx950 gemm interleave depth 2": 9, "gfx942 gemm interleave": 20, "gfx950 two loops": 24}
"""Subjects of the gate, and one of how many of their edits is judged."""
WRITES = ("copy", "copy_async", "copy_async_part", "store", "shared_store", "shared_store_fragment")


def another_program(v: Verdict) -> bool:
    """Whether an edit took away something that writes: in time, the text says something else, and the code does that."""
    return v.edit.startswith(tuple(f"deleted: {name}<" for name in WRITES)) and v.wrong == "result"


def conservative(v: Verdict) -> bool:
    """Whether a rejected text may run right all the same: a raised priority costs time alone; the code may wait for LDS on its own; and a copy
    that comes behind one of the same part to the same buffer is made by the same lanes, whose loads return in order, which the
    verifier does not look at; nor does it look at which wave touches which elements, so that it wants a barrier – not only a wait – also
    in buffers in which no wave meets another (`own_buffers`)."""
    in_order = "may overtake the 'copy_async" in v.rejected
    alone = "no barrier()" in v.rejected and any(f" %{name} of another wave" in v.rejected for name in v.own)
    return v.rejected.startswith("E1036") or in_order or alone or waited_for_by_code(v.rejected)


def agree(v: Verdict) -> None:
    if v.wrong and not another_program(v):
        assert v.rejected, v
    if v.rejected and not conservative(v):
        assert v.wrong, v


@pytest.mark.parametrize("subject", SLICE)
def test_some_edits_are_judged_alike(subject: str) -> None:
    step = SLICE[subject]
    verdicts = list(judge(BY_NAME[subject], lambda i, edit: i % step == step // 2))
    assert len(verdicts) >= 8
    for v in verdicts:
        agree(v)
    assert any(v.rejected and v.wrong for v in verdicts) and any(not v.rejected and not v.wrong for v in verdicts)


@pytest.mark.nightly
@pytest.mark.parametrize("subject", BY_NAME)
def test_every_edit_is_judged_alike(subject: str) -> None:
    for v in judge(BY_NAME[subject]):
        agree(v)


def test_reads_stay_before_the_barrier_behind_which_others_overwrite() -> None:
    """The first turn of a loop through registers comes at the end of the iteration before, and once before the loop. LLVM sank the reads
    that stand there past that barrier, into the way to the loop, which is the only place where their values are used."""
    subject = BY_NAME["gfx942 gemm interleave"]
    subject = replace(subject, text=subject.text.replace("depth 4", "depth 2"))
    kernel = subject.final
    loop = next(op for op in kernel.walk() if op.name == "for")
    body = loop.regions[0].ops
    at = next(i for i, op in enumerate(body) if op.name == "wait")
    turn = body[at : at + 2]
    assert [op.name for op in turn] == ["wait", "barrier"] and all(op.name not in ACCESSES for op in body[:at])
    rotated = (*body[:at], *body[at + 2 : -1], *turn, body[-1])
    kernel = Edit("rotated", loop, loop.regions[0], rotated).applied(kernel)
    block = next(
        op for op in kernel.body.ops if op.name == "if" and any(o.name == "for" for o in op.regions[0].ops)
    ).regions[0]
    number = next(i for i, op in enumerate(block.ops) if op.name == "for")
    kernel = Edit("turn", block.ops[number], block, (*block.ops[:number], *turn, *block.ops[number:])).applied(kernel)
    assert not subject.rejected(kernel)
    assert not subject.wrong(kernel)


@pytest.mark.parametrize("subject", [str(s) for s in SUBJECTS if s.unaligned])
def test_launches_reach_all_products(subject: str) -> None:
    """An edit of what no launch reaches looks right, whatever it does. (In loops of three tiles a trip that happened to the last of two
    tiles that were left.)"""
    assert not BY_NAME[subject].unreached()


def test_edits_are_made_of_every_kind() -> None:
    subject: Subject = BY_NAME["gfx950 gemm ping_pong"]
    found = list(edits(subject.final))
    kinds = {e.kind for e in found}
    assert kinds >= {"deleted", "weaker by one", "other half", "later by one", "earlier by one", "later past a meeting"}
    assert {e.op.name for e in found} >= {
        "wait",
        "barrier",
        "barrier_of",
        "priority",
        "copy_async_part",
        "mfma",
        "store",
    }
    texts = {e.applied(subject.final).key() for e in found[::40]}
    assert len(texts) == len(found[::40]) and subject.final.key() not in texts
