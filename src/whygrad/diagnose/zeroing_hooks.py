"""Parameters that get only zeros because a hook of the program's makes them so."""

from __future__ import annotations

from dataclasses import dataclass, field

from whygrad.diagnose.case import Case, is_library
from whygrad.record.accounts import Trace
from whygrad.record.events import HookUse
from whygrad.source.hook_bodies import body_of, is_plain_zero, may_replace

_LOOKS = 3
_MODULE_HOOK = "BackwardHookFunctionBackward"


@dataclass(slots=True)
class Zeroed:
    """A hook, and the parameters that get no other gradient than zeros because of it."""

    hook: HookUse
    nodes: list[int] = field(default_factory=list)
    size: float = 0.0  # of the gradient that arrives at it
    number: int = 0  # of the pass in which that was seen


def zeroed(case: Case) -> list[Zeroed]:
    """Where the latest pass was followed, and every way to a parameter ends at one hook."""
    question = case.question
    stuck = {
        info.node
        for info in question.parameters
        if info.gradient == "zero" and info.requires_grad and info.in_optimizer
        if info.looks >= _LOOKS
    }
    hooks = [hook for hook in question.hooks if not hook.removed_at_times and _replaces(hook)]
    found: dict[tuple[str, int, int], Zeroed] = {}
    for trace in [t for t in question.traces if t.whole][-1:] if stuck and hooks else []:
        search = _Search(trace, hooks)
        for index, node in enumerate(trace.nodes):
            if node.leaf not in stuck:
                continue
            ends = search.ends(index)
            if len({_definition(hook) for hook, _ in ends}) != 1:
                continue
            hook, size = ends[0]
            if hook.node == node.leaf and _is_meant(hook):
                continue  # freezes this very parameter, and says so
            known = found.setdefault(_definition(hook), Zeroed(hook, number=trace.number))
            known.nodes.append(node.leaf)
            known.size = max(known.size, size)
    return list(found.values())


def _definition(hook: HookUse) -> tuple[str, int, int]:
    return hook.file, hook.line, hook.column


def _replaces(hook: HookUse) -> bool:
    if not hook.file or is_library(hook.file):
        return False
    function = body_of(hook.file, hook.line, hook.name, hook.column)
    return function is not None and may_replace(function)


def _is_meant(hook: HookUse) -> bool:
    function = body_of(hook.file, hook.line, hook.name, hook.column)
    return function is not None and is_plain_zero(function)


class _Search:
    """Follows zeros back to where they come from, in one pass."""

    def __init__(self, trace: Trace, hooks: list[HookUse]) -> None:
        self.trace = trace
        self.on_values = {hook.node: hook for hook in hooks if hook.node is not None}
        modules = [hook for hook in hooks if hook.owner]
        # Which module an entry of the pass belongs to is not known: one function must fit all.
        same = len({_definition(hook) for hook in modules}) == 1
        self.on_module = modules[0] if same else None
        self.feeders: dict[int, list[tuple[int, float | None]]] = {}
        for index, node in enumerate(trace.nodes):
            for fed, size in zip(node.feeds, node.outgoing, strict=True):
                if fed >= 0:
                    self.feeders.setdefault(fed, []).append((index, size))

    def ends(self, start: int) -> list[tuple[HookUse, float]]:
        """The hooks that turn a gradient into zeros on the ways to a node; empty if one way ends
        otherwise."""
        found: list[tuple[HookUse, float]] = []
        waiting, seen = [start], {start}
        while waiting:
            index = waiting.pop()
            for feeder, size in self.feeders.get(index, ()):
                if size:
                    hook = self._at(index)
                    if hook is None:
                        return []
                    found.append((hook, size))
                elif size == 0:
                    node = self.trace.nodes[feeder]
                    if node.incoming:
                        if node.function != _MODULE_HOOK or self.on_module is None:
                            return []
                        found.append((self.on_module, node.incoming))
                    elif feeder not in seen:
                        seen.add(feeder)
                        waiting.append(feeder)
        return found

    def _at(self, index: int) -> HookUse | None:
        """The hook on the value whose gradient arrives at an operation."""
        node = self.trace.nodes[index]
        value = node.leaf if node.leaf is not None else node.event
        return self.on_values.get(value) if value is not None else None
