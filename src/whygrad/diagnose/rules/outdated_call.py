"""Calls and arguments from early versions of torch that are gone, or that do nothing any more."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints
from whygrad.diagnose.case import Case
from whygrad.session import Finding

CODE = "outdated-call"


def diagnose(case: Case) -> Iterator[Finding]:
    yield from complaints.plain(case, CODE)
