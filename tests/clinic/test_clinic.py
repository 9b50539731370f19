"""Real bugs, re-told as small programs: the right cause at the right line, and no false alarm."""

from __future__ import annotations

from pathlib import Path

import pytest
from clinic_cases import Case, load_cases, not_yet_covered

from program_runs import ForkServer, Run, run_as_typed

CASES = load_cases()
LATER = not_yet_covered()
COVERED = [case for case in CASES if case.name not in LATER]
UNCOVERED = [case for case in CASES if case.name in LATER]
# One or two of each family, not in a forked child but as a person runs them.
AS_TYPED = [
    case
    for case in CASES
    if case.name in ("cut/speaker_id", "cut/group_policy", "life/sine_rnn", "silent/lens_fit")
]


def bare_and_watched(programs: ForkServer, program: Path) -> tuple[Run, Run]:
    return _run(programs, program, watched=False), _run(programs, program, watched=True)


def _run(programs: ForkServer, program: Path, *, watched: bool) -> Run:
    # Now and then torch's gloo back end aborts while a child process shuts down, watched or not.
    # Such a run says nothing about either side, so it is made again.
    for _ in range(3):
        run = programs.run(program, watched=watched)
        if "terminated with signal SIGABRT" not in run.stderr:
            break
    return run


def each(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@each(COVERED)
def test_the_first_finding_has_the_right_cause_and_line(case: Case, programs: ForkServer) -> None:
    bare, watched = bare_and_watched(programs, case.program)
    assert case.shortcoming(watched) == ""
    assert (watched.exit_code, watched.stdout) == (bare.exit_code, bare.stdout)


@each(CASES)
def test_the_healthy_twin_runs_as_it_does_alone(case: Case, programs: ForkServer) -> None:
    bare, watched = bare_and_watched(programs, case.twin)
    assert watched.judged == []
    assert watched.report["notes"] == []
    assert (watched.exit_code, watched.stdout) == (bare.exit_code, bare.stdout)
    assert watched.stderr.startswith(bare.stderr)  # nothing but what is merely worth knowing
    assert bare.exit_code == 0


@each(UNCOVERED)
def test_a_case_that_is_solved_is_not_on_the_list(case: Case, programs: ForkServer) -> None:
    bare, watched = bare_and_watched(programs, case.program)
    assert case.shortcoming(watched) != "", "solved: take it off not_yet_covered.txt"
    assert (watched.exit_code, watched.stdout) == (bare.exit_code, bare.stdout)


@each(AS_TYPED)
def test_a_process_of_its_own_gives_the_same_answer(case: Case, programs: ForkServer) -> None:
    for program in (case.program, case.twin):
        typed, forked = run_as_typed(program, watched=True), programs.run(program, watched=True)
        assert (typed.exit_code, typed.stdout) == (forked.exit_code, forked.stdout)
        assert typed.judged == forked.judged


def test_the_list_has_no_unknown_case_and_does_not_grow() -> None:
    assert sorted(LATER) == sorted({case.name for case in CASES} & set(LATER))
    assert len(LATER) <= 2


def test_every_family_is_there() -> None:
    families = {case.name.partition("/")[0] for case in CASES}
    assert families == {"cut", "life", "silent", "calls"}
    assert all(case.program.exists() and case.twin.exists() for case in CASES)
    assert len(AS_TYPED) == 4
