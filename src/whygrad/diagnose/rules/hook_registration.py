"""Hooks are registered in a way that torch does not accept."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints
from whygrad.diagnose.case import Case
from whygrad.session import Finding, Related
from whygrad.source.spans import location

CODE = "hook-registration"


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None:
        return
    related = []
    if said.message.id == "module-hook-both-kinds":
        for hook in said.complaint.hooks:
            earlier = case.user_span(hook.stack)
            if hook.at_work and earlier is not None and earlier != said.where:
                related.append(Related("created", location(earlier), "the other kind"))
                break
    yield complaints.finding(case, said, related=related)
