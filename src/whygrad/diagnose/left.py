"""What the rules on parameters left behind have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from whygrad.diagnose.case import Case, is_library
from whygrad.graph.consumers import Consumers
from whygrad.record.accounts import Account, OptimizerUse, PassUse, StepUse
from whygrad.record.events import ParameterInfo
from whygrad.source.attributes import hands_up, is_own_init
from whygrad.source.spans import Span

_GETS_GRADIENT = ("flows", "zero", "non-finite")


@dataclass(slots=True)
class Remade:
    """A place that makes new parameters in every pass."""

    where: tuple[Span, ...]  # innermost first
    nodes: list[int]
    passes: int
    read: bool  # the program looks at gradients itself


@dataclass(slots=True)
class Left:
    """The parameters that get a gradient and that no optimizer holds."""

    case: Case
    account: Account
    passes: list[PassUse]
    touched: Counter[int]  # node -> in how many passes its gradient grew
    held: set[int]
    infos: list[ParameterInfo] = field(default_factory=list)
    remade: list[Remade] = field(default_factory=list)
    loose: list[int] = field(default_factory=list)  # of no module, and the same in every pass
    consumers: Consumers | None = None  # where there is anything to look at

    @property
    def stepping(self) -> list[OptimizerUse]:
        return [optimizer for optimizer in self.account.optimizers if optimizer.steps]

    def optimizer_of(self, nodes: Iterable[int], missed: set[int]) -> OptimizerUse | None:
        """The optimizer that holds most of some parameters, of those that should hold others.

        That is those which step with the gradients of the passes that reached the others.
        """
        wanted = set(nodes)
        orders = {order for act in self.passes if act.touched & missed for order in act.used_by}
        steps = [act for act in self.account.acts if isinstance(act, StepUse)]
        numbers = {step.optimizer for step in steps if step.order in orders}
        chosen = [o for o in self.stepping if o.number in numbers] or self.stepping
        found = max(chosen, key=lambda o: (len(wanted & o.nodes), -o.number), default=None)
        # One that was given what another has already was meant for something else.
        if found is None:
            return None
        again = (o for o in self.stepping if o.number > found.number and o.nodes == found.nodes)
        return next(again, found)


def behind(case: Case) -> Left | None:
    """What optimizers leave out in a program that trains; None for questions about other things."""
    account = case.question.account
    if case.question.kind != "health" or account is None:
        return None
    if not any(optimizer.steps for optimizer in account.optimizers):
        return None
    passes = [act for act in account.acts if isinstance(act, PassUse)]
    touched = Counter(node for act in passes for node in act.touched)
    left = Left(case, account, passes, touched, _held(account, passes))
    known = {info.node: info for info in case.question.parameters}
    infos = [info for info in known.values() if _is_left(left, info)]
    unknown = [n for n in touched if n not in known and n not in left.held]
    unknown = [node for node in unknown if not _is_updated(left, node)]
    if not infos and not unknown:
        return left
    left.consumers = Consumers(case.graph.recording)
    left.remade = _remade(left)
    again = {node for remade in left.remade for node in remade.nodes}
    left.infos = [info for info in infos if info.node not in again]
    settled = again | left.consumers.differentiated
    left.loose = [
        n for n in unknown if touched[n] > 1 and n not in settled and not _is_read(left, n)
    ]
    return left


def _held(account: Account, passes: list[PassUse]) -> set[int]:
    """What the optimizers hold; of one that came and went unseen, all that it may have held."""
    seen = {optimizer.number for optimizer in account.optimizers if optimizer.nodes}
    steps = [act for act in account.acts if isinstance(act, StepUse)]
    unseen = {step.order for step in steps if step.optimizer not in seen}
    held = {node for optimizer in account.optimizers for node in optimizer.nodes}
    return held.union(*(act.touched for act in passes if unseen.intersection(act.used_by)))


def _is_left(left: Left, info: ParameterInfo) -> bool:
    return (
        info.requires_grad
        and (info.gradient in _GETS_GRADIENT or info.node in left.touched)
        and not info.in_optimizer
        and info.node not in left.held
        and not info.moved
        and not _is_updated(left, info.node)
    )


def _is_updated(left: Left, node: int) -> bool:
    """Whether the program itself changes a parameter, as in `w -= lr * w.grad`.

    One that was made in the midst of training is written to when it gets its first values:
    then it is a look at its gradient that tells.
    """
    if node not in left.account.written:
        return False
    late = any(node in entry.nodes for entry in left.account.registrations)
    return not late or _is_read(left, node)


def _is_read(left: Left, node: int) -> bool:
    return any(act.read for act in left.passes if node in act.touched)


def _remade(left: Left) -> list[Remade]:
    """Places whose parameters take part in one pass each, and were made after the pass before."""
    case, found = left.case, dict[Span, Remade]()
    seen: dict[Span, set[int]] = {}
    # What a line other than its own puts into a module takes the place of something there.
    put = {
        node: maker(user_spans(case, entry.stack))
        for entry in left.account.registrations
        for node in entry.nodes
    }
    last = -1
    for act in left.passes:
        for node in sorted(act.touched, reverse=True):
            source = case.graph.source(node)
            if source is None or not source.parameter or left.touched[node] > 1:
                continue
            if node in left.held:
                continue
            made_lately = source.origin is not None and source.origin > last
            spans = made_at(case, node)
            replacing = node in put and put[node] != maker(spans)
            if made_lately and spans and (not replacing or any(map(is_forward, spans))):
                remade = found.setdefault(spans[0], Remade(spans, [], 0, False))
                remade.nodes.append(node)
                remade.read = remade.read or act.read
                seen.setdefault(spans[0], set()).add(act.number)
        last = max(act.roots, default=last)
    for span, remade in found.items():
        remade.passes = len(seen[span])
    return [remade for remade in found.values() if remade.passes > 1]


# --- places -----------------------------------------------------------------------------------


def user_spans(case: Case, stack: int) -> tuple[Span, ...]:
    """The program's own lines of a stack, innermost first."""
    return tuple(span for span in case.places.spans(stack) if not is_library(span.file))


def made_at(case: Case, node: int) -> tuple[Span, ...]:
    """The program's own lines that led to the making of a leaf, innermost first."""
    return tuple(span for span in case.places.node_spans(node) if not is_library(span.file))


def is_forward(span: Span) -> bool:
    return span.function.rpartition(".")[2] in ("forward", "__call__")


def maker(spans: tuple[Span, ...], classes: Iterable[str] = ()) -> Span | None:
    """The line that a person would say makes a thing.

    Not one inside the making of a module (of one of these classes), nor one in a function that
    only hands back what it made.
    """
    for span, caller in zip(spans, (*spans[1:], None), strict=True):
        if caller is None or not (is_own_init(span, classes) or hands_up(span)):
            return span
    return None


def names_of(infos: Iterable[ParameterInfo]) -> list[str]:
    return list(dict.fromkeys(info.name for info in infos))


def part_of(owner: str, names: list[str]) -> str:
    """Which module they are of, said after names that do not begin with it already."""
    return "" if not owner or names[0].startswith(f"{owner}.") else f" of `{owner}`"
