"""Hooks that pack and unpack saved tensors do what they must not, or are put in a wrong place."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whygrad.diagnose import complaints
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.session import Finding
from whygrad.source.hook_bodies import body_of, first_match, to_blame
from whygrad.source.spans import Span

CODE = "saved-hooks-misuse"

_IN_PLACE = re.compile(r"\w+(?<!_)_\(|[-+*/|&^]=|\]\s*=(?!=)|out=")
_AT_FAULT = {"pack-hook-inplace": "pack", "unpack-hook-non-tensor": "unpack"}


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is not None:
        yield complaints.finding(case, said, where=_hook(said))


def _hook(said: Said) -> Span | None:
    """The line of the hook that is at fault, where it is one."""
    kind = _AT_FAULT.get(said.message.id)
    for hook in said.complaint.hooks:
        if hook.kind != kind or not hook.file or is_library(hook.file):
            continue
        function = body_of(hook.file, hook.line, hook.name, hook.column)
        if function is None:
            continue
        if kind == "pack":
            return first_match(hook.file, function, _IN_PLACE) or to_blame(hook.file, function)
        return to_blame(hook.file, function)
    return None
