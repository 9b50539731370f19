"""Several processes, or what wraps a model for them, set up in a way that torch refuses."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, replicas
from whygrad.diagnose.case import Case
from whygrad.session import Finding

CODE = "distributed-setup"


def diagnose(case: Case) -> Iterator[Finding]:
    found = complaints.said(case, CODE)
    if found is None:
        return
    info = None
    if found.message.id == "ddp-params-differ-shape":
        info = replicas.at(case, int(found.words["g1"]))
    yield complaints.finding(case, found, parameters=[info.name] if info is not None else [])
