"""Anomaly detection is on: nothing is wrong, but training is slow."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints
from whygrad.diagnose.case import Case
from whygrad.session import Finding

CODE = "anomaly-mode-on"


def diagnose(case: Case) -> Iterator[Finding]:
    yield from complaints.plain(case, CODE)
