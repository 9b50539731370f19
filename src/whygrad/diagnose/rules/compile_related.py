"""What torch.compile cannot do with gradients, and cuts inside of compiled functions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whygrad import catalogue
from whygrad.diagnose import compiled, complaints, missing, story, words
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.record.ops import COMPILED
from whygrad.session import Finding, Fix
from whygrad.source.spans import Span, line_span, location

CODE = "compile-related"

_USER_CODE = "from user code:"
_FRAME = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in ', re.M)
_WRAPPED = "compile-inplace-leaf"
_SECOND_DERIVATIVE = "compile-double-backward"
_MODULE_HOOK = "compile-module-backward-hook"


def diagnose(case: Case) -> Iterator[Finding]:
    yield from _cuts(case)
    yield from _unseen(case)
    found = complaints.said(case, CODE)
    if found is None:
        return
    where = _traced_line(case.question.error_text)
    if found.message.id == _MODULE_HOOK:
        where = _hooked(case, found) or where
    elif found.message.id == _SECOND_DERIVATIVE:
        where = _differentiated(case) or where
    if found.message.id == _WRAPPED:
        yield complaints.finding(case, found, where=where, fix=_fix_of_wrapped(found))
    else:
        yield complaints.finding(case, found, where=where)


def _traced_line(text: str) -> Span | None:
    """The innermost own line among those that torch quotes: it was traced, and never ran."""
    _, mark, quoted = text.partition(_USER_CODE)
    frames = [(match["file"], int(match["line"])) for match in _FRAME.finditer(quoted)]
    own = [frame for frame in frames if not is_library(frame[0])]
    return line_span(*own[-1]) if mark and own else None


def _fix_of_wrapped(found: Said) -> Fix | None:
    """What to do about the error that torch.compile has met and quotes."""
    inner = catalogue.find(found.words.get("g1", ""), "RuntimeError")
    if inner is None or not inner.fix or "{" in inner.fix:
        return None
    return Fix(title=inner.fix, deliberate=found.message.deliberate)


def _hooked(case: Case, found: Said) -> Span | None:
    """Where the hook was registered that cannot be compiled."""
    hooks = [hook for hook in found.complaint.hooks if "backward" in hook.kind]
    spans = [case.user_span(hook.stack) for hook in hooks if hook.stack and not hook.removed]
    return next((span for span in spans if span is not None), None)


def _differentiated(case: Case) -> Span | None:
    """The call that asked for a gradient with a history."""
    behind = sorted(case.graph.ancestors(case.question.roots), reverse=True)
    for node in behind:
        event = case.graph.event(node)
        if event is not None and event.op == "grad":
            return case.places.node_span(node)
    return None


def _unseen(case: Case) -> Iterator[Finding]:
    """Parameters without a gradient that went into compiled code, or may have."""
    if case.question.kind != "no-gradient" or not case.roots:
        return
    cut = {target for separation in case.separations for target in separation.targets}
    targets = [target for target in case.question.targets if target not in cut]
    behind = case.graph.ancestors(case.roots) if targets else set()
    entered: dict[Span, list[int]] = {}
    for node in sorted(behind, reverse=True):
        event = case.graph.event(node)
        where = case.places.node_span(node) if event is not None else None
        if event is not None and event.op == COMPILED and where is not None:
            taken = [t for t in targets if t in event.inputs]
            targets = [t for t in targets if t not in taken]
            entered.setdefault(where, []).extend(taken)
    for where, nodes in entered.items():
        if nodes:
            yield _lost(case, where, nodes)
    found = missing.unconnected(case)
    calls = compiled.calls(case.graph.recording) if found is not None and found.hidden else []
    if found is not None and calls and found.unused:
        yield _perhaps_lost(case, calls[-1], found.unused)


def _lost(case: Case, where: Span, nodes: list[int]) -> Finding:
    """These went in by autograd's own word, and the compiled backward gave nothing for them."""
    names = case.names(nodes)
    finding = _without_gradient(case, where, names, "their way to the loss is cut in compiled code")
    finding.why = (
        "these parameters go into the compiled function, and its backward returns no gradient "
        "for them: a line inside of it cuts them off. Compiled code runs out of sight, so that "
        "line was not seen."
    )
    finding.severity = "warning"
    return finding


def _perhaps_lost(case: Case, where: Span, nodes: list[int]) -> Finding:
    names = case.names(nodes)
    finding = _without_gradient(case, where, names, "compiled code may be why")
    finding.why = (
        "no operation that was seen uses these parameters. What torch.compile has compiled runs "
        "out of sight: it may not use them, or cut them off from the loss."
    )
    return finding


def _without_gradient(case: Case, where: Span, names: list[str], reason: str) -> Finding:
    title = f"{words.listed(names)} got no gradient, and {reason}"
    return Finding(
        code=CODE,
        severity="info",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} Its lines were not seen.",
        location=location(where),
        label="runs compiled code",
        parameters=names,
        fix=Fix(
            title="look inside with `whygrad run --eager`, which runs compiled functions eagerly",
            deliberate="if they are not meant to train now, this is fine: silence this line.",
        ),
        first_step=case.question.step,
        at_end=True,
    )


def _cuts(case: Case) -> Iterator[Finding]:
    """Gradient went in and none came out: at which line inside cannot be seen."""
    for separation in case.separations:
        node = separation.first.node
        where = case.places.node_span(node) if separation.first.kind == "compiled" else None
        if where is None:
            continue
        yield story.cut_finding(
            case,
            separation,
            code=CODE,
            where=where,
            subject="something in the compiled function",
            label="gradient goes in, and what comes out has no history",
            why="this call runs code that torch.compile has compiled. What happens in it was not "
            "seen, only that its result does not require grad although what went in does.",
            fix=Fix(
                title="find the line with `whygrad run --eager`, which runs compiled functions "
                "eagerly and sees inside",
                deliberate="if the function is meant to give values without gradients, this is "
                "fine: nothing that trains may depend on them.",
            ),
        )
