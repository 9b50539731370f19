"""Answers to `whygrad.why(x)`: from the record while watching, else from autograd's graph alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from types import FrameType
from typing import Any

import torch
from torch.nn import Module

from whygrad.answer import Answer
from whygrad.diagnose.engine import diagnose
from whygrad.diagnose.truth import parameter_states, settled
from whygrad.record import census, looks, torch_api
from whygrad.record.events import UNRECORDED, ParameterInfo, Question
from whygrad.source.spans import span_of
from whygrad.source.tree import expression_at, text_of
from whygrad.watching import Watch

_HINT = (
    "For the line that did it, run the code under `with whygrad.watch():` "
    "(or the program with `whygrad run`) and ask again."
)
_MAX_NODES = 100_000


def ask(thing: Any, watch: Watch | None, frame: FrameType) -> Answer:
    """Why `thing` (tensor, parameter, module) has or lacks gradients, as far as is known."""
    with torch_api.without_torch_function():
        name = _spoken(frame)
        if isinstance(thing, Module):
            return _ask_module(thing, name, watch, frame)
        if not isinstance(thing, torch.Tensor):
            raise TypeError(f"why() takes a tensor, a parameter or a module, not {type(thing)!r}")
        if thing.is_leaf and thing.requires_grad:
            return _ask_leaf(thing, name, watch, frame)
        return _ask_tensor(thing, name, watch, frame)


def _spoken(frame: FrameType) -> str:
    """The argument as the caller wrote it: `loss` in `why(loss)`."""
    span = span_of(frame.f_code, frame.f_lasti)
    call = expression_at(span) if span is not None else None
    arguments = getattr(call, "args", None)
    if span is None or not arguments:
        return "it"
    return text_of(arguments[0], span.file) or "it"


# --- one tensor -------------------------------------------------------------------------------


def _ask_tensor(tensor: Any, name: str, watch: Watch | None, frame: FrameType) -> Answer:
    if tensor.requires_grad:
        leaves = _leaves_behind(tensor)
        return Answer(
            f"`{name}` carries gradient: backward() from it reaches "
            f"{len(leaves)} leaf tensor{'s' if len(leaves) != 1 else ''}"
            f"{_some_names(leaves, watch)}."
        )
    if watch is not None:
        found = _diagnose(watch, "asked", [tensor], [], frame)
        if found is not None:
            return found
        return Answer(f"`{name}` has no history, and the record shows no cut behind it.")
    made = "a leaf" if tensor.is_leaf else "a result"
    return Answer(
        f"`{name}` does not require grad and has no grad_fn: {made} without history. It was "
        "made from data, detached, computed under no_grad, or rebuilt from numbers; autograd's "
        f"graph does not say which. {_HINT}"
    )


def _ask_leaf(tensor: Any, name: str, watch: Watch | None, frame: FrameType) -> Answer:
    if tensor.grad is not None:
        norm = float(tensor.grad.detach().norm()) if tensor.grad.is_floating_point() else 0.0
        return Answer(f"`{name}` has a gradient (norm {norm:.3g}).")
    if watch is None:
        return Answer(
            f"`{name}` is a leaf that asks for gradients and has none: no backward() has reached "
            f"it, or its gradient was cleared. {_HINT}"
        )
    roots = watch.watcher.asker.roots_since(0)
    if not roots:
        return Answer(f"`{name}` has no gradient yet: no backward() has been watched.")
    found = _diagnose(watch, "no-gradient", roots, [tensor], frame)
    if found is not None:
        return found
    used = watch.watcher.recorder.node_of(tensor) is not None
    reason = "no cut lies between it and the last loss" if used else "no watched operation used it"
    return Answer(f"`{name}` has no gradient: {reason}.")


def _diagnose(
    watch: Watch, kind: Any, roots: Iterable[Any], targets: list[Any], frame: FrameType
) -> Answer | None:
    """Put the question to the record, like a failure would."""
    recorder = watch.watcher.recorder

    def node(value: Any) -> int:
        if isinstance(value, int):
            return value
        known = recorder.node_of(value)
        return recorder.source(value, None) if known is None else known

    question = Question(
        kind=kind,
        roots=tuple(dict.fromkeys(node(root) for root in roots)),
        root_stacks=watch.watcher.asker.roots_since(0),
        targets=tuple(node(target) for target in targets),
        stack=recorder.frames.stack(frame),
        step=recorder.step,
        parameters=census.take(recorder),
    )
    findings, _ = diagnose(recorder.recording(), question)
    if not findings:
        return None
    session = dataclasses.replace(watch.session(), findings=findings, sources={})
    return Answer("", findings[0], session)


def _leaves_behind(tensor: Any) -> list[Any]:
    """The leaf tensors that autograd's graph reaches from a tensor."""
    leaves: list[Any] = []
    waiting, seen = [tensor.grad_fn], {tensor.grad_fn}
    while waiting and len(seen) < _MAX_NODES:
        for function, _ in getattr(waiting.pop(), "next_functions", ()):
            if function is None or function in seen:
                continue
            seen.add(function)
            variable = getattr(function, "variable", None)
            if variable is not None:
                leaves.append(variable)
            else:
                waiting.append(function)
    return leaves


def _some_names(leaves: list[Any], watch: Watch | None) -> str:
    if watch is None or not leaves:
        return ""
    recorder = watch.watcher.recorder
    names = {info.node: info.name for info in census.take(recorder)}
    known = [names.get(recorder.node_of(leaf) or 0, "") for leaf in leaves]
    shown = [f"`{name}`" for name in known if name][:4]
    rest = len(leaves) - len(shown)
    if not shown:
        return ""
    return f" ({', '.join(shown)}{f' and {rest} more' if rest else ''})"


# --- a module ---------------------------------------------------------------------------------


def _ask_module(module: Any, name: str, watch: Watch | None, frame: FrameType) -> Answer:
    """A row per parameter, and the findings that explain what is wrong with some."""
    parameters = dict(module.named_parameters())
    if not parameters:
        return Answer(f"`{name}` has no parameters.")
    if watch is not None:
        answer = _ask_the_record(parameters, watch, frame)
    else:
        answer = Answer("")
        infos = [_seen(*item) for item in parameters.items()]
        for state in parameter_states(infos, [], {}, limit=len(infos)):
            answer.parameters[state.name] = state
            if state.gradient == "none":
                answer.hint = _HINT
    having = sum(state.gradient == "flows" for state in answer.parameters.values())
    answer.text = f"{having} of {len(parameters)} parameters of `{name}` have a gradient"
    return answer


def _seen(path: str, parameter: Any) -> ParameterInfo:
    """What a parameter shows by itself."""
    now = looks.Truth()
    gradient = parameter.grad if parameter.is_leaf else None
    size = looks.size_of(gradient)
    if size is not None:
        now.saw(size)
    unreadable = gradient is not None and size is None
    return ParameterInfo(
        node=UNRECORDED,
        name=path,
        root=0,
        owner="",
        module=path.rpartition(".")[0],
        module_types=(),
        requires_grad=parameter.requires_grad,
        has_grad=gradient is not None,
        in_optimizer=False,
        shape=() if torch.nn.parameter.is_lazy(parameter) else tuple(parameter.shape),
        gradient="flows" if unreadable else now.state,
        norm=now.norm,
    )


def _ask_the_record(parameters: dict[str, Any], watch: Watch, frame: FrameType) -> Answer:
    """The rows as all looks so far have it, and the findings that name some of them."""
    recorder, asker = watch.watcher.recorder, watch.watcher.asker
    truths = watch.parameter_truths()
    places = settled(truths, recorder.recording())
    by_node = {info.node: info for info in truths}
    infos = []
    for path, parameter in parameters.items():
        node = recorder.node_of(parameter)
        known = None if node is None else by_node.get(node)
        infos.append(_with_latest(known, _seen(path, parameter)))
    missing = [i.node for i in infos if i.gradient == "none" and i.requires_grad]
    missing = [node for node in missing if node != UNRECORDED]
    roots = asker.roots_since(0)
    found = _diagnose(watch, "no-gradient", roots, missing, frame) if missing and roots else None
    findings = [finding for finding in watch.findings if not finding.at_end]
    if found is not None and found.session is not None:
        findings = [*found.session.findings, *findings]
    optimizers = {held.number: held.name for held in asker.health.ledger.known}
    states = parameter_states(infos, findings, optimizers, places, limit=len(infos))
    names = {state.name for state in states}
    naming: dict[tuple[str, str, int], Any] = {}
    for finding in findings:
        if finding.severity != "info" and names.intersection(finding.parameters):
            at = finding.location
            naming.setdefault((finding.code, at.file, at.line), finding)
    answer = Answer("", parameters=dict(zip(parameters, states, strict=True)))
    if naming:
        frozen = {state.name for state in states if state.gradient == "frozen"}
        explaining = sorted(naming.values(), key=lambda f: frozen.issuperset(f.parameters))
        answer.session = dataclasses.replace(watch.session(), findings=explaining, sources={})
        answer.finding = explaining[0]
    for path, state in answer.parameters.items():
        state.name = path  # findings use its full name, who asks the one in this module
    return answer


def _with_latest(known: ParameterInfo | None, now: ParameterInfo) -> ParameterInfo:
    """What earlier looks have shown, and this one."""
    if known is None:
        return now
    if not now.has_grad:
        return known
    flowed = known.gradient == "flows" and now.gradient == "zero"
    return dataclasses.replace(known, gradient="flows" if flowed else now.gradient, norm=now.norm)
