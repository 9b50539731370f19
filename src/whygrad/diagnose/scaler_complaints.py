"""What a gradient scaler complains about: which of its calls is missing, or one too many."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from whygrad.diagnose import complaints, left, lives, steps, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.record.accounts import Act, ClearUse, PassUse, ScalerUse, StepUse
from whygrad.record.events import History
from whygrad.session import Finding, Fix, Related
from whygrad.source.spans import Span, location
from whygrad.source.step_calls import called_method, common_loop, method_uses, order_in_source

_HALF = "torch.float16"

Teller = Callable[[Case, Said, History], Iterator[Finding]]


def tell(case: Case, said: Said) -> Iterator[Finding]:
    """The finding for a message of a scaler's."""
    history = said.complaint.history
    said.words |= _names(case, said)
    teller = _TELLERS.get(said.message.id)
    if teller is None or history is None:
        yield complaints.finding(case, said)
        return
    question = dataclasses.replace(case.question, account=history.account)
    yield from teller(dataclasses.replace(case, question=question), said, history)


def _names(case: Case, said: Said) -> dict[str, str]:
    """Scaler and optimizer as the failing line calls them."""
    call = called_method(said.where)
    made = {entry.kind: entry for entry in said.complaint.made}
    names = {"scaler": "scaler", "optimizer": "the optimizer"}
    if "optimizer" in made:
        names["optimizer"] = f"`{made['optimizer'].type}`"
    if call is not None and call[1] in ("scale", "unscale_", "step", "update"):
        receiver, method, arguments = call
        names["scaler"] = receiver
        if arguments and method in ("unscale_", "step"):
            names["optimizer"] = f"`{arguments[0]}`"
    return names


# --- reading the history ------------------------------------------------------------------------


def _since_update(acts: list[Act]) -> list[Act]:
    """The acts of the iteration that the scaler is in."""
    last = max(
        (n for n, act in enumerate(acts) if isinstance(act, ScalerUse) and act.call == "update"),
        default=-1,
    )
    return acts[last + 1 :]


def _earlier(case: Case, history: History, call: str, said: Said) -> Span | None:
    """Where the scaler was last called like that, before the call that failed."""
    number = _optimizer(case, said)
    for use in reversed(history.scaling):
        if use.call == "update":
            return None
        if use.call == call and (number < 0 or use.optimizer in (-1, number)):
            return steps.line(case, use)
    return None


def _optimizer(case: Case, said: Said) -> int:
    """The number of the optimizer that the failing call was about; -1 if it is not known."""
    nodes = {holding.node for holding in said.complaint.held}
    account = case.question.account
    uses = account.optimizers if account is not None else []
    return next((use.number for use in uses if nodes and use.nodes == nodes), -1)


def _direct_step(case: Case, said: Said) -> Span | None:
    """A step past the scaler, since its last update."""
    account, number = case.question.account, _optimizer(case, said)
    acts = _since_update(account.acts) if account is not None else []
    for place, act in enumerate(acts):
        if not isinstance(act, StepUse) or (number >= 0 and act.optimizer != number):
            continue
        following = acts[place + 1 : place + 2]
        if not any(isinstance(f, ScalerUse) and f.stack == act.stack for f in following):
            return steps.line(case, act)
    return None


def _updates(said: Said) -> bool:
    """Whether an update() stands near the failing line, although it has not run."""
    return bool(method_uses([said.where], "update"))


def _never_updated(history: History) -> bool:
    return all(use.call != "update" for use in history.scaling)


# --- one function per message -------------------------------------------------------------------


def _scale_missing(case: Case, said: Said, history: History) -> Iterator[Finding]:
    nodes = {holding.node for holding in said.complaint.held}
    passes = [act for act in history.account.acts if isinstance(act, PassUse)]
    mine = [act for act in passes if not nodes or act.touched & nodes] or passes
    where = steps.line(case, mine[-1]) if mine else None
    if where is None:
        yield complaints.finding(
            case,
            said,
            label="no loss was scaled and gone back from before this",
            fix=Fix(title=f"call `{said.words['scaler']}.scale(loss).backward()` before it"),
        )
        return
    yield complaints.finding(case, said, where=where)


def _update_without_step(case: Case, said: Said, history: History) -> Iterator[Finding]:
    direct = _direct_step(case, said)
    if direct is None:
        yield complaints.finding(case, said)
        return
    scaler, call = said.words["scaler"], called_method(direct)
    optimizer = call[0] if call is not None else "optimizer"
    yield complaints.finding(
        case,
        said,
        where=direct,
        title=f"{steps.written(direct, 'optimizer.step()')} steps past the gradient scaler",
        label="uses gradients that still carry the loss scale",
        why=f"`{scaler}.scale()` multiplies every gradient by the scale, and only "
        f"`{scaler}.step({optimizer})` divides by it again and looks for overflows. It was never "
        f"called, so `{scaler}.update()` has nothing to go by.",
        fix=Fix(title=f"step through the scaler: `{scaler}.step({optimizer})`"),
    )


def _half(case: Case, said: Said, history: History) -> Iterator[Finding]:
    nodes = [h.node for h in said.complaint.held if h.dtype == "float16"]
    names = steps.parameter_names(case, nodes)
    said.words["parameters"] = words.listed(names, 2) if names else "the parameters"
    where = _cast(case, nodes)
    count = len(nodes)
    yield complaints.finding(
        case,
        said,
        where=where,
        label=f"makes {words.count(count, 'parameter')} of {said.words['optimizer']} float16",
        parameters=names,
        checked=[f"{count} of {len(said.complaint.held)} parameters of the optimizer are float16."],
    )


def _cast(case: Case, nodes: list[int]) -> Span | None:
    """Where parameters became half precision: cast as a whole, or made like that."""
    for node in nodes:
        source = case.graph.source(node)
        origin = source.origin if source is not None else None
        written = case.graph.event(origin) if origin is not None else None
        if written is not None and str(written.dtype) == _HALF:
            return case.user_span(written.stack) or case.places.node_span(origin or 0)
        if source is not None and str(source.dtype) == _HALF:
            return case.user_span(source.stack)
    return None


def _again(case: Case, said: Said, history: History) -> Iterator[Finding]:
    """unscale_() or step() a second time."""
    call = "unscale_" if said.message.id == "amp-unscale-twice" else "step"
    earlier, direct = _earlier(case, history, call, said), _direct_step(case, said)
    scaler, optimizer = said.words["scaler"], said.words["optimizer"].strip("`")
    looped = earlier is not None and lives.same_place(earlier, said.where)
    related = _also(earlier, said.where, f"the first `{call}` since the last update()")
    if call == "unscale_" and direct is not None and looped:
        yield complaints.finding(
            case,
            said,
            where=direct,
            title=f"{steps.written(direct, 'optimizer.step()')} steps past the gradient scaler, "
            f"which is never told that the iteration is over",
            label="the optimizer steps, and the scaler does not know",
            related=related,
            fix=Fix(title=f"`{scaler}.step({optimizer})` here, then `{scaler}.update()`"),
        )
        return
    label, fix = "", None
    if looped and _never_updated(history) and not _updates(said):
        label = f"the second time round; no `{scaler}.update()` has run in between"
        end = "after it" if call == "step" else f"after `{scaler}.step({optimizer})`"
        fix = Fix(title=f"call `{scaler}.update()` {end}, at the end of each iteration")
    elif looped:
        label = f"the second time since the last `{scaler}.update()`"
        fix = Fix(
            title=f"call it only in the iterations that end in `{scaler}.step({optimizer})` and "
            f"`{scaler}.update()`"
        )
    yield complaints.finding(case, said, label=label, fix=fix, related=related)


def _after_step(case: Case, said: Said, history: History) -> Iterator[Finding]:
    step = _earlier(case, history, "step", said)
    scaler, optimizer = said.words["scaler"], said.words["optimizer"].strip("`")
    order = order_in_source(said.where, step) if step is not None else None
    if step is None or order != "before" or common_loop(said.where, step) is None:
        label = "the step has been made"
        related = _also(step, said.where, "the step that used these gradients")
        yield complaints.finding(case, said, label=label, related=related)
        return
    yield complaints.finding(
        case,
        said,
        where=step,
        title=f"no `{scaler}.update()` follows {steps.written(step, f'{scaler}.step()')}",
        label="ends the iteration, but the scaler is not told",
        why=f"`{scaler}.update()` ends an iteration for the scaler. Without it, the next "
        f"`{scaler}.unscale_({optimizer})` seems to come after the step.",
        fix=Fix(title=f"call `{scaler}.update()` after it"),
    )


def _also(span: Span | None, where: Span, label: str) -> list[Related]:
    if span is None or lives.same_place(span, where):
        return []
    return [Related("operation", location(span), label)]


def _no_gradients(case: Case, said: Said, history: History) -> Iterator[Finding]:
    if case.separations:
        return  # the cut is told by the rule of its kind
    nodes = {holding.node for holding in said.complaint.held}
    acts = _since_update(history.account.acts)
    passes = [act for act in acts if isinstance(act, PassUse)]
    cleared = _clearing(acts, nodes)
    said.words["count"] = words.count(len(nodes), "parameter")
    names = steps.parameter_names(case, nodes)
    step = said.words["optimizer"]
    if cleared is not None:
        yield complaints.finding(
            case,
            said,
            where=steps.line(case, cleared),
            code="gradients-zeroed-before-step",
            title=f"the gradients of {step} are cleared between backward() and the scaler's step",
            label="sets the gradients to None",
            parameters=names,
            fix=Fix(title="clear before backward(), or after the step"),
        )
        return
    where, label, fix, deliberate = said.where, "", "", ""
    made = steps.line(case, passes[-1]) if passes else None
    touched = passes[-1].touched if passes else frozenset()
    others = [use for use in history.account.optimizers if use.nodes & touched]
    made_at = next((m.stack for m in said.complaint.made if m.kind == "optimizer" and m.stack), 0)
    maker = case.user_span(made_at) if made_at else None
    registered = [i for i in case.question.parameters if i.registered and i.node in touched]
    if made is None:
        label = "no backward() has run since the last update()"
        fix = f"call `{said.words['scaler']}.scale(loss).backward()` before it"
    elif registered and not others and maker is not None:
        where, label = maker, "holds parameters that took no part in the pass"
        fix = f"give it the parameters that are used: {words.listed(left.names_of(registered), 2)}"
    elif not others:
        where, label = made, f"reaches none of the parameters of {step}"
        fix = f"go back from a loss that depends on the parameters of {step}"
    else:
        label = "no backward() since the last update() reached its parameters: "
        label += f"{steps.written(made, 'backward()')} reaches others"
        fix = f"run backward() on the scaled loss that trains {step} before this line"
        earlier = (act for act in history.account.acts if isinstance(act, PassUse))
        if any(act.touched & nodes for act in earlier):
            deliberate = f"if it should step every time: {fix}."
            fix = f"step {step} only where its own loss has run backward() before: under the "
            fix += "same condition"
    yield complaints.finding(
        case,
        said,
        where=where,
        label=label,
        parameters=names,
        fix=Fix(title=fix, deliberate=deliberate),
        related=_also(made, where, "the pass before it"),
    )


def _clearing(acts: list[Act], nodes: set[int]) -> ClearUse | None:
    """What cleared gradients of some parameters after they had been computed."""
    lost = [a.cleared_by for a in acts if isinstance(a, PassUse) and a.lost and a.touched & nodes]
    return next((a for a in acts if isinstance(a, ClearUse) and a.order in lost[-1:]), None)


_TELLERS: dict[str, Teller] = {
    "amp-scale-missing": _scale_missing,
    "amp-no-inf-checks-update": _update_without_step,
    "amp-unscale-fp16": _half,
    "amp-unscale-twice": _again,
    "amp-step-twice": _again,
    "amp-unscale-after-step": _after_step,
    "amp-no-inf-checks": _no_gradients,
}
