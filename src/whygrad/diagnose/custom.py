"""What the rules on custom Functions share: which one it is, and the line of it to change."""

from __future__ import annotations

from whygrad.diagnose import complaints
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.record.events import Definition
from whygrad.session import Finding, Related
from whygrad.source import methods
from whygrad.source.methods import Place, Return
from whygrad.source.spans import Span, location
from whygrad.source.tree import decorator_span


def is_operator(definition: Definition) -> bool:
    """Whether it was made with torch.library, not as a class."""
    return "::" in definition.name


def definition(found: Said) -> Definition | None:
    """The custom Function that a message is about: the one it names, or the innermost one."""
    known = [d for d in found.complaint.functions if d.autograd_name]
    name = found.words.get("g1", "")
    named = [d for d in known if d.autograd_name == name]
    if name.endswith("Backward") and not named:
        return None
    return next(iter(named or known), None)


def derivative(owner: Definition, method: str = "backward") -> Place | None:
    """Where the method that computes gradients is; newer code calls it `vjp`."""
    other = owner.methods.get("vjp") if method == "backward" else None
    return owner.methods.get(method, other)


def returns(owner: Definition, method: str = "backward") -> list[Return]:
    place = derivative(owner, method)
    return methods.returns_of(place) if place is not None else []


def end(owner: Definition) -> list[Return]:
    """The end of its backward, if that can be reached without a `return`."""
    place = derivative(owner)
    found = methods.end_of(place) if place is not None else None
    return [found] if found is not None else []


def head(owner: Definition, method: str = "backward") -> Span | None:
    """The line with its `def`."""
    place = derivative(owner, method)
    return methods.head_span(place) if place is not None else None


def spoken(owner: Definition, method: str = "") -> str:
    """`Scale.backward()`; for an operator, "the backward of `shop::scale`"."""
    if is_operator(owner):
        return f"the {method} of `{owner.name}`" if method else f"`{owner.name}`"
    return f"`{owner.name}.{method}()`" if method else f"`{owner.name}`"


def arguments(owner: Definition) -> list[str]:
    """What its forward takes, without the context; empty where that cannot be told."""
    place = owner.methods.get("forward")
    without_context = is_operator(owner) or "setup_context" in owner.methods
    return methods.argument_names(place, 0 if without_context else 1)


def argument(owner: Definition, index: int) -> str:
    """One of them, quoted, or a number if it has no name."""
    names = arguments(owner)
    return f"`{names[index]}`" if 0 <= index < len(names) else f"argument {index + 1}"


def choose(given: list[Return], count: int | None, index: int | None = None) -> list[Return]:
    """The returns that may have given so many values (with something at an index), best first."""

    def fits(found: Return) -> bool:
        if found.values is None:
            return False
        if index is not None and (index >= len(found.values) or methods.is_none(found, index)):
            return False
        return count is None or len(found.values) == count

    sure = [found for found in given if fits(found)]
    return sure or [found for found in given if found.values is None] or given


def own_line(case: Case, found: Said, owner: Definition | None, span: Span | None) -> Span:
    """A line of a Function, or the program's own use of it if that is an installed library's."""
    if span is not None and not is_library(span.file):
        return span
    applied = applied_at(case, owner, owner.applied) if owner is not None else None
    if span is None:
        return found.where
    return applied or found.where


def calls(owner: Definition) -> list[tuple[int, tuple[bool, ...]]]:
    """Each call that is known: its stack, and which arguments wanted a gradient."""
    return [(owner.applied, owner.wanted), *owner.others]


def wants(wanted: tuple[bool, ...], index: int) -> bool:
    return index < len(wanted) and wanted[index]


def ever_wanted(owner: Definition, index: int) -> bool:
    """Whether some call had a tensor that requires grad for this argument."""
    return any(wants(wanted, index) for _, wanted in calls(owner))


def applied_at(case: Case, owner: Definition, stack: int) -> Span | None:
    """The line of a call, also where only what went on in its forward was seen."""
    recording, own = case.graph.recording, owner.methods.get("forward")
    sites = recording.stacks[stack] if stack else ()
    codes = [recording.sites[site].code for site in sites]
    inside = [n for n, code in enumerate(codes) if (code.co_filename, code.co_firstlineno) == own]
    outside = sites[inside[-1] + 1 :] if inside else sites
    spans = [span for site in outside if (span := case.places.span(site)) is not None]
    return next((s for s in spans if not is_library(s.file)), next(iter(spans), None))


def applied_here(
    case: Case, owner: Definition | None, where: Span, stack: int | None = None
) -> list[Related]:
    """The call of a Function, as a second place: that of a stack, or the first known."""
    if owner is None:
        return []
    span = applied_at(case, owner, owner.applied if stack is None else stack)
    if span is None or (span.file, span.line) == (where.file, where.line):
        return []
    return [Related("operation", location(span), f"{spoken(owner)} is applied here")]


def other_returns(chosen: list[Return], label: str) -> list[Related]:
    return [Related("return", location(found.span), label) for found in chosen[1:3]]


# --- two messages that other rules tell -------------------------------------------------------


def differentiable_once(case: Case, code: str) -> Finding | None:
    """A second derivative of a Function whose backward is not recorded: at its decorator."""
    found = complaints.said(case, code)
    if found is None or found.message.id != "custom-once-differentiable":
        return None
    applied = {event[0] for event in case.graph.recording.events}
    known = [d for d in found.complaint.functions if "backward" in d.methods]
    for owner in sorted(known, key=lambda d: d.name not in applied):
        span = decorator_span(*owner.methods["backward"], {"once_differentiable"})
        if span is not None:
            found.words["function"] = owner.name
            where = own_line(case, found, owner, span)
            return complaints.finding(case, found, where=where)
    return None


def returns_input(case: Case, code: str) -> Finding | None:
    """An operator whose output is, or looks into, its input: at the `return`."""
    found = complaints.said(case, code)
    if found is None or found.message.id != "library-output-aliases-input":
        return None
    owner = next((d for d in found.complaint.functions if "forward" in d.methods), None)
    given = returns(owner, "forward") if owner is not None else []
    names = set(arguments(owner)) if owner is not None else set()
    as_is = [r for r in given if names & {r.text(n) for n in range(len(r.values or ()))}]
    chosen = as_is or [r for r in given if r.values is None] or given
    if not chosen:
        return None
    return complaints.finding(case, found, where=own_line(case, found, owner, chosen[0].span))
