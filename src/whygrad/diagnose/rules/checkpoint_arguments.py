"""checkpoint() is given arguments that do not go together."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import checkpoints, complaints
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.session import Finding, Fix
from whygrad.source.arguments import argument_text
from whygrad.source.hook_bodies import argument_function, to_blame
from whygrad.source.spans import Span

CODE = "checkpoint-arguments"

_CURED_BY_THE_OTHER_KIND = (
    "checkpoint-use-reentrant-missing",
    "checkpoint-unexpected-kwargs",
    "checkpoint-context-fn-reentrant",
)


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None or not _is_about_checkpoints(said):
        return
    yield complaints.finding(case, said, where=_where(said), fix=_fix(said))


def _is_about_checkpoints(said: Said) -> bool:
    """Other functions also speak of unexpected keyword arguments."""
    return any(call.startswith("torch.utils.checkpoint.") for call in said.complaint.calls)


def _where(said: Said) -> Span | None:
    if said.message.id != "checkpoint-context-suppressed":
        return None
    function = argument_function(said.where, "context_fn")
    return to_blame(said.where.file, function) if function is not None else None


def _fix(said: Said) -> Fix | None:
    if said.message.id in _CURED_BY_THE_OTHER_KIND and said.library is None:
        return checkpoints.not_reentrant(said.where, said.fill(said.message.fix))
    if said.message.id == "checkpoint-input-type":
        given = argument_text(said.where, 0, "inputs")
        return Fix(title=f"pass a tuple: `tuple({given})`") if given and len(given) < 30 else None
    return None
