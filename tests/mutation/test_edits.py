"""Single edits of final texts: what the simulator finds wrong, the verifier rejects, and what it rejects is wrong, or explained."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.mutation.edits import ACCESSES, Edit, Verdict, buffers_of, edits, judge, reason
from tests.mutation.subjects import SUBJECTS, Subject

BY_NAME = {str(s): s for s in SUBJECTS}
SLICE = {"gfx950 gemm interleave depth 2": 9, "gfx942 gemm interleave": 20, "gfx950 two loops": 24}
"""Subjects of the gate, and one of how many of their edits is judged."""
UNEXPLAINED = {"gfx942 gemm ping_pong": 4}
"""Edits that are rejected, run right, and have no reason that a run has shown (docs/known-gaps.md), by subject."""


def unexplained(verdicts: Iterable[Verdict]) -> int:
    """How many of the texts are rejected for nothing that is known. None is accepted whose code is wrong, but for another program."""
    found = [v for v in verdicts if bool(v.rejected) != bool(v.wrong) and not v.reason]
    assert all(v.rejected for v in found), found
    return len(found)


@pytest.mark.parametrize("subject", SLICE)
def test_some_edits_are_judged_alike(subject: str) -> None:
    step = SLICE[subject]
    verdicts = list(judge(BY_NAME[subject], lambda i, edit: i % step == step // 2))
    assert len(verdicts) >= 8
    assert unexplained(verdicts) == 0
    assert any(v.rejected and v.wrong for v in verdicts) and any(not v.rejected and not v.wrong for v in verdicts)


@pytest.mark.nightly
@pytest.mark.parametrize("subject", BY_NAME)
def test_every_edit_is_judged_alike(subject: str) -> None:
    assert unexplained(judge(BY_NAME[subject])) == UNEXPLAINED.get(subject, 0)


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


def test_reasons_are_shown_by_another_run() -> None:
    """The waves of A meet in halves alone, so that a barrier that one half counts is enough between them; what a deleted store leaves is what
    the interpreter makes of the text; and a deleted wait that the code needs has no reason, whoever asks for one."""
    subject = BY_NAME["gfx950 gemm ping_pong"]
    final = subject.final
    assert (
        not buffers_of(final, 1) and buffers_of(final, 4) >= {"sa"} and not any("sb" in n for n in buffers_of(final, 4))
    )
    found = list(edits(final))
    store = next(e for e in found if e.kind == "deleted" and e.op.name == "store")
    assert subject.says_so(store.applied(final)) and subject.says_so(final)
    wait = next(e for e in found if e.kind == "without vm")
    kernel = wait.applied(final)
    assert subject.rejected(kernel) and not reason(subject, wait, kernel, True, "")


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
