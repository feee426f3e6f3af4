"""Faults put into the passes that order loops: every one is noticed, and the two judges of synchronisation agree: the verifier, which
reads the text, and the simulator's checks, which know nothing of it."""

from __future__ import annotations

import pytest

from tests.mutation.framework import SUBJECTS, Mutant, Subject, judge, right, waited_for_by_code
from tests.mutation.mutants import passes_of, texts_of

BY_NAME = {str(s): s for s in SUBJECTS}
SHORT = ("gfx950 interleave depth 3", "gfx950 ping_pong depth 2", "gfx942 interleave depth 2")
RUN = (
    ("gfx950 interleave depth 2", "a tile too far in the index"),
    ("gfx942 plain depth 2", "no barriers in the code"),
)
# What only machine code shows.
ONLY_CODE = ("in the code", "in the index", "another accumulator")


def _mutant(subject: Subject, name: str) -> Mutant:
    return next(m for m in passes_of(subject) if m.name == name)


@pytest.mark.parametrize("subject", SHORT)
def test_every_fault_of_a_pass_that_the_text_shows_is_noticed(subject: str) -> None:
    s = BY_NAME[subject]
    assert not judge(s, Mutant("none"), run=False).killers
    for mutant in passes_of(s):
        if not any(words in mutant.name for words in ONLY_CODE):
            assert judge(s, mutant, run=False).killers, mutant.name


@pytest.mark.parametrize(("subject", "name"), RUN)
def test_faults_that_machine_code_shows_are_noticed(subject: str, name: str) -> None:
    s = BY_NAME[subject]
    assert judge(s, _mutant(s, name)).killers.keys() & {"checks", "result", "contract"}


@pytest.mark.nightly
@pytest.mark.parametrize("subject", BY_NAME)
def test_every_fault_of_a_pass_is_noticed(subject: str) -> None:
    s = BY_NAME[subject]
    assert not judge(s, Mutant("none")).killers
    for mutant in passes_of(s):
        assert judge(s, mutant).killers, mutant.name


def test_every_priority_that_is_not_lowered_is_noticed() -> None:
    s = BY_NAME[SHORT[1]]
    raised = [m for m in texts_of(s) if m.name.startswith("priority")]
    assert len(raised) >= 4
    for mutant in raised:
        assert judge(s, mutant, run=False).killers.keys() == {"priority"}, mutant.name


@pytest.mark.parametrize("subject", [SHORT[1]])
def test_a_text_with_a_fault_is_judged_alike(subject: str) -> None:
    """One fault of each kind; the others come nightly."""
    s = BY_NAME[subject]
    kinds = {m.name.split()[0]: m for m in texts_of(s) if "dropped" in m.name or "stage" in m.name}
    assert len(kinds) >= 5
    for mutant in list(kinds.values())[:3]:
        _agree(s, mutant)


@pytest.mark.nightly
@pytest.mark.parametrize("subject", BY_NAME)
def test_every_text_with_a_fault_is_judged_alike(subject: str) -> None:
    s = BY_NAME[subject]
    right(s)
    for mutant in texts_of(s):
        _agree(s, mutant)


def _agree(subject: Subject, mutant: Mutant) -> None:
    """What the simulator finds out of order, the verifier rejects; what the verifier rejects, the simulator finds, but for what the
    code waits for on its own (`waited_for_by_code`)."""
    verdict = judge(subject, mutant)
    found = verdict.killers
    if "text" in found or not verdict.changed:
        return
    if mutant.name.startswith("priority"):
        assert found.keys() == {"priority"}, (mutant.name, found)  # right, but slow: no run shows it
        return
    if "checks" in found:
        assert "sync" in found, (mutant.name, found)
    if "sync" in found and not waited_for_by_code(found["sync"]):
        assert found.keys() & {"checks", "result"}, (mutant.name, found)
