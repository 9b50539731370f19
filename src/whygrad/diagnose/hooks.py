"""Which of the program's hooks a message is about, and where its result comes from."""

from __future__ import annotations

import re
from dataclasses import dataclass

from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.record.events import HookUse
from whygrad.source.files import FunctionNode
from whygrad.source.hook_bodies import body_of, fits, node_hooks, to_blame
from whygrad.source.spans import Span

# How a result looks that has another shape, another type, or is no tensor at all.
_LIKELY = {
    "hook-changed-size": re.compile(
        r"sum\(|mean\(|norm\(|reshape|view\(|flatten|squeeze|max\(|min\(|amax|amin|\.T\b|expand|"
        r"stack|cat\(|diag|transpose|permute|select|\["
    ),
    "hook-changed-type": re.compile(
        r"half|double|float|bfloat16|\bto\(|cpu|cuda|\btype|int\(|long|bool"
    ),
    "hook-returned-non-tensor": re.compile(
        r"float\(|item|tolist|numpy|len\(|str\(|\(.*,.*\)|^\[|dict|\{|int\(|bool\(|True|False"
    ),
}
_OF_TENSORS = ("hook-changed-size", "hook-changed-type", "hook-returned-non-tensor")
_TENSOR_HOOKS = ("register_hook", "register_post_accumulate_grad_hook")
_OWN_NAME = "hook"  # torch's name for the function that runs a module's hooks


@dataclass(slots=True)
class Culprit:
    """A hook, as far as it could be found."""

    use: HookUse | None = None
    function: FunctionNode | None = None
    file: str = ""
    registered: Span | None = None
    certain: bool = True  # no other hook of the program could have been meant
    alone: bool = True  # its function is registered once

    @property
    def name(self) -> str:
        name = self.use.name if self.use is not None else getattr(self.function, "name", "")
        return "" if name in ("<lambda>", "") else str(name)


def culprit(case: Case, said: Said) -> Culprit | None:
    """The hook that a message is about."""
    hooks = said.complaint.hooks
    running = [hook for hook in hooks if hook.at_work]
    if running:
        return _known(case, running[0], certain=True)
    if said.message.id == "post-accumulate-hook-returns":
        hooks = [hook for hook in hooks if hook.kind == "register_post_accumulate_grad_hook"]
        return _choose(case, said, hooks)
    name = said.words.get("g1", "") if "has " in case.question.error_text else ""
    if said.message.id in _OF_TENSORS:
        on_tensors = [hook for hook in hooks if hook.kind in _TENSOR_HOOKS]
        found = _choose(case, said, [h for h in on_tensors if not name or h.name == name])
        if found is not None:
            return found
    found = _on_a_node(case, name)
    if found is not None:
        return found
    of_modules = [hook for hook in hooks if "backward" in hook.kind]
    named = [hook for hook in of_modules if hook.name == name]
    return _choose(case, said, named or (of_modules if name in ("", _OWN_NAME) else []))


def _choose(case: Case, said: Said, hooks: list[HookUse]) -> Culprit | None:
    failed = said.complaint.failed
    here = [hook for hook in hooks if failed is not None and hook.node == failed]
    hooks = here or hooks
    likely = _LIKELY.get(said.message.id)
    different = {(hook.file, hook.line, hook.name): hook for hook in reversed(hooks)}
    found = [_known(case, hook, certain=len(different) == 1) for hook in different.values()]
    for guess in found:
        same = [hook for hook in hooks if guess.use and _same_function(hook, guess.use)]
        guess.alone = len(same) == 1
    if likely is not None and len(found) > 1:
        fitting = [c for c in found if c.function and fits(c.file, c.function, likely)]
        found = fitting or found
    return found[-1] if found else None


def _same_function(one: HookUse, other: HookUse) -> bool:
    return (one.file, one.line, one.name) == (other.file, other.line, other.name)


def _known(case: Case, hook: HookUse, certain: bool) -> Culprit:
    registered = case.user_span(hook.stack) if hook.stack else None
    own = bool(hook.file) and not is_library(hook.file)
    function = body_of(hook.file, hook.line, hook.name, hook.column) if own else None
    return Culprit(hook, function, hook.file if own else "", registered, certain)


def _on_a_node(case: Case, name: str) -> Culprit | None:
    """A hook on a node of autograd's graph, which only the source shows."""
    files = {site.code.co_filename for site in case.places.recording.sites}
    found = [
        (span, function)
        for file in sorted(files)
        if not is_library(file)
        for span, function in node_hooks(file)
    ]
    if name:
        named = [row for row in found if row[1] and getattr(row[1], "name", "<lambda>") == name]
        found = named or [row for row in found if row[1] is None]
    if not found:
        return None
    span, function = found[-1]
    certain = len({id(f) for _, f in found}) == 1
    return Culprit(None, function, span.file, span, certain)


def blamed(said: Said, found: Culprit) -> Span | None:
    """The line to change: what the hook returns, or else where it is registered."""
    if found.function is not None:
        return to_blame(found.file, found.function, _LIKELY.get(said.message.id))
    return found.registered
