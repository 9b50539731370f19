"""The parameters that DistributedDataParallel exchanges, as its messages count them."""

from __future__ import annotations

import re

from whygrad.diagnose.case import Case
from whygrad.record.events import Made, ParameterInfo
from whygrad.source.spans import Span

WRAPPER = "DistributedDataParallel"
_INDICES = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")


def exchanged(case: Case) -> list[list[ParameterInfo]]:
    """For each wrapped model the parameters that take gradients, in torch's order."""
    by_root: dict[int, list[ParameterInfo]] = {}
    for info in case.question.parameters:
        if info.requires_grad and info.module_types[:1] == (WRAPPER,):
            by_root.setdefault(info.root, []).append(info)
    return list(by_root.values())


def without_gradient(case: Case) -> list[ParameterInfo]:
    """Those that torch's message counts; what it counts is their place among all."""
    match = _INDICES.search(case.question.error_text)
    places = [int(place) for place in match.group(1).split()] if match is not None else []
    fitting = [held for held in exchanged(case) if places and max(places) < len(held)]
    found = [[held[place] for place in places] for held in fitting]
    # With several wrapped models: the one in which just these have none.
    found.sort(key=lambda infos: any(info.has_grad for info in infos))
    return found[0] if found else []


def at(case: Case, place: int) -> ParameterInfo | None:
    """The parameter at a place in the order of the only wrapped model."""
    held = exchanged(case)
    return held[0][place] if len(held) == 1 and place < len(held[0]) else None


def own_name(name: str) -> str:
    """A parameter's name in the model itself, without the wrapper's part."""
    return name.removeprefix("module.")


def made_at(case: Case, made: list[Made]) -> Span | None:
    """The line that wrapped the model, if only one did."""
    stacks = {each.stack for each in made if each.type == WRAPPER and each.stack}
    return case.user_span(stacks.pop()) if len(stacks) == 1 else None
