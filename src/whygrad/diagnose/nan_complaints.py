"""Torch stumbles over NaN, or over values out of range: which operation made the first of them?"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

from whygrad.diagnose import complaints, lives, poisons, remedies, scaling, steps, values, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.diagnose.poisons import Poison
from whygrad.diagnose.suspects import Suspect, suspects
from whygrad.graph.tracing import is_finite
from whygrad.record.accounts import ClipUse, PassUse, Trace
from whygrad.record.events import History
from whygrad.session import Finding, Fix, Related
from whygrad.source.spans import Span, location

Wording = Callable[[Case, Poison, list[int]], Finding]

_SCALER = "scaler-misuse"
_BACKWARD = "anomaly-nan"
_CLIPPING = "clip-non-finite"


def tell(case: Case, said: Said, followed: Wording) -> Iterator[Finding]:
    """The finding for a message about values; `followed` words it where the pass was followed."""
    history = said.complaint.history
    if said.complaint.warning or history is None:
        return  # the exception that follows it is told
    inner = _with_history(case, history)
    if said.message.id == _CLIPPING and _is_scaled(inner, history):
        yield _before_unscaling(case, said)
        return
    if said.message.id not in (_BACKWARD, _CLIPPING) and not _is_spoilt(case, said, history):
        yield complaints.finding(case, said)
        return
    poison = poisons.find(inner)
    if poison is not None:
        yield _raised(case, said, followed(inner, poison, _reached(poison)))
        return
    yield _narrowed(inner, said, history)


def _with_history(case: Case, history: History) -> Case:
    """The case with what is known of the passes before, as in a question about health."""
    passes = [act for act in history.account.acts if isinstance(act, PassUse)]
    roots = case.question.roots or tuple(passes[-1].roots if passes else ())
    question = dataclasses.replace(
        case.question,
        roots=roots,
        root_stacks={root: act.stack for act in passes[-1:] for root in act.roots},
        account=history.account,
        traces=history.traces,
        sizes=history.sizes,
    )
    return dataclasses.replace(case, question=question)


def _is_scaled(case: Case, history: History) -> bool:
    """Whether the latest clipping was one of gradients that still carry the scale."""
    found = scaling.misuses(case.graph, history.account)
    clips = [act for act in history.account.acts if isinstance(act, ClipUse)]
    return bool(clips) and any(misuse.act is clips[-1] for misuse in found)


def _before_unscaling(case: Case, said: Said) -> Finding:
    return complaints.finding(
        case,
        said,
        code=_SCALER,
        title="gradients are clipped before they are unscaled, and some have overflowed",
        label="the gradients here are still multiplied by the scale",
        why="a scaled loss makes gradients overflow now and then; the scaler finds that and skips "
        "the step. Clipping comes before that, and is told to raise an error.",
        fix=Fix(
            title="call `scaler.unscale_(optimizer)` before clipping, and leave out "
            "`error_if_nonfinite=True`: the scaler skips such steps"
        ),
    )


# --- is there NaN at all? -----------------------------------------------------------------------


def _is_spoilt(case: Case, said: Said, history: History) -> bool:
    """Whether NaN or infinity is known to flow into the call that failed."""
    if "non-finite" in case.question.error_text:
        return True
    given = [g.node for g in said.complaint.given]
    behind = case.graph.ancestors(given) | set(given)
    return any(not is_finite(seen) for node, seen in history.values.items() if node in behind)


def _reached(poison: Poison) -> list[int]:
    """The parameters that get what the operation sends on."""
    if poison.passed is None:
        return []
    known = poison.trace.parameters
    below = poison.passed.leaves_below(poison.at) if poison.at >= 0 else set(known)
    return sorted(node for node in below if node in known)


def _raised(case: Case, said: Said, finding: Finding) -> Finding:
    """What is told of a silent NaN, for one that was noticed."""
    finding.severity, finding.symptom = "error", "raises"
    for related in finding.related:
        if (related.location.file, related.location.line) == (said.where.file, said.where.line):
            related.label = lives.error_label(case)
    shown = {(finding.location.file, finding.location.line)}
    shown |= {(r.location.file, r.location.line) for r in finding.related}
    if (said.where.file, said.where.line) not in shown:
        surfaced = Related("surfaced", location(said.where), lives.error_label(case))
        finding.related.insert(0, surfaced)
    finding.first_step = min(finding.first_step, case.question.step)
    return finding


# --- no pass was followed that shows it ---------------------------------------------------------


def _narrowed(case: Case, said: Said, history: History) -> Finding:
    """As much as is certain: the operation by its values, by autograd's name, or where it shows."""
    named = _named(case, said, history)
    loose = [t for t in history.traces if not t.nodes]
    seen = Trace([], (), -1, case.question.step, False, values=history.values)
    found = suspects(case, loose[-1] if loose else seen, None)
    suspect = found[0] if found and (len(found) == 1 or found[0].seen is not None) else None
    origin = _first_spoilt(case, said, history)
    if suspect is not None and not named:
        return _suspected(case, said, suspect)
    where = named or origin
    spoilt = _spoilt_parameters(case, history)
    title = ""
    if origin is not None and not named:
        title = f"NaN or infinity from {steps.written(origin, 'here')} comes to {_call(said)}"
    elif spoilt and not named:
        title = f"{words.listed(case.names(spoilt), 2)} {_is(spoilt)} NaN by now, and so is what "
        title += f"comes to {_call(said)}"
    return complaints.finding(
        case,
        said,
        where=where,
        title=title,
        label="the first value known to be NaN or infinite" if where is origin and where else "",
        parameters=case.names(spoilt),
        why=said.fill(said.message.meaning)
        if named
        else f"values that are NaN or infinite come to {_call(said)}. After one step with NaN "
        "in the gradient the parameters are NaN, and so is all that is computed from "
        "them. It has to be stopped where it begins.",
        fix=Fix(title=said.fill(said.message.fix))
        if named
        else Fix(title="keep NaN out of what is used: `torch.isnan(x).any()` shows where it is")
        if origin is not None
        else Fix(
            title="find the first step with NaN: `whygrad run --watch-step 1`, or clip gradients "
            "and lower the learning rate if they grow",
        ),
    )


def _call(said: Said) -> str:
    name = said.words["call"].removeprefix(".").rpartition(".")[2]
    return f"`{name}`" if name.isidentifier() else "the call that failed"


def _is(nodes: list[int]) -> str:
    return "is" if len(nodes) == 1 else "are"


def _named(case: Case, said: Said, history: History) -> Span | None:
    """The operation that anomaly detection names."""
    function = said.words.get("g1", "") if said.message.id == _BACKWARD else ""
    said.words["function"] = f"`{function}`" if function else "an operation"
    if not function or not history.traces:
        return None
    trace = history.traces[-1]
    sent = [
        node
        for node in trace.nodes
        if node.function == function
        and any(size is not None and math.isnan(size) for size in node.outgoing)
    ]
    for node in sent:
        where = values.place_of(case, node)
        if where is not None:
            said.words["function"] = values.spoken(case, node)
            return where
    return None


def _first_spoilt(case: Case, said: Said, history: History) -> Span | None:
    """The earliest value that is NaN or infinite although what it was computed from is not."""
    given = [g.node for g in said.complaint.given]
    behind = sorted(n for n in case.graph.ancestors(given) | set(given) if n >= 0)
    for node in behind:
        seen = history.values.get(node)
        if seen is None or is_finite(seen):
            continue
        fed = [history.values.get(n) for n in case.graph.inputs(node)]
        if all(value is None or is_finite(value) for value in fed):
            return case.places.node_span(node)
        return None
    return None


def _spoilt_parameters(case: Case, history: History) -> list[int]:
    known = [info.node for info in case.question.parameters]
    return [n for n in known if (seen := history.values.get(n)) is not None and not is_finite(seen)]


def _suspected(case: Case, said: Said, suspect: Suspect) -> Finding:
    seen = suspect.seen
    finding = complaints.finding(
        case,
        said,
        where=suspect.where,
        title=f"{suspect.doing} makes gradients NaN",
        label=f"its {seen.size} inputs are {values.between(seen)}"
        if seen is not None
        else f"the derivative of {suspect.op} can be infinite, and nothing here prevents it",
        why=f"{suspect.doing} has no finite derivative. In backward it is a factor of the "
        "gradient, and even zero times that is NaN. After one step with it the parameters are NaN "
        "as well.",
        fix=Fix(title=remedies.for_operation(suspect.op, suspect.before)),
    )
    if seen is None:
        finding.inferred = [
            f"that step was not followed. {suspect.op} is the only operation of the pass whose "
            "derivative can be infinite and whose input is not kept away from that."
        ]
    return finding
