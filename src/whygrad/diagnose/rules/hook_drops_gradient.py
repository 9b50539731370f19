"""A hook on gradients returns what it must not, is never called, or was left behind."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, hooks, values, words, zeroing_hooks
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.diagnose.hooks import Culprit
from whygrad.diagnose.zeroing_hooks import Zeroed
from whygrad.record.events import HookUse
from whygrad.session import Finding, Fix, Related
from whygrad.source.hook_bodies import body_of, may_replace, to_blame
from whygrad.source.spans import Span, location

CODE = "hook-drops-gradient"

# What torch says about the way a hook is registered, not about what the hook does.
_AT_REGISTRATION = (
    "module-hook-non-full-nodes",
    "module-hook-non-full-io",
    "module-hook-output-type",
    "module-hook-no-input-grad",
)
_WHERE_IT_IS_SAID = ("hook-not-serialized",)


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is not None:
        yield _told(case, said)
    if case.question.kind == "health" and case.question.hooks:
        yield from _left_behind(case)
        for found in zeroing_hooks.zeroed(case):
            yield _zeroed(case, found)


def _told(case: Case, said: Said) -> Finding:
    found = hooks.culprit(case, said)
    said.words |= {"hook": _spoken(case, found), "module": _module(found)}
    if found is None or said.message.id in _WHERE_IT_IS_SAID:
        return complaints.finding(case, said)
    if said.message.id in _AT_REGISTRATION:
        return complaints.finding(case, said, where=found.registered)
    where = hooks.blamed(said, found)
    return complaints.finding(
        case,
        said,
        where=where,
        related=_registered(found.registered, where),
        inferred=[]
        if found.certain
        else ["which of the program's hooks it was is read off the source: others are there too."],
    )


def _spoken(case: Case, found: Culprit | None) -> str:
    """The hook with its name and its owner."""
    if found is None:
        return "a hook"
    what = f"the hook `{found.name}`" if found.name else "the lambda"
    use = found.use if found.alone else None
    if use is not None and use.owner:
        return f"{what} on {_module(found)}"
    if use is not None and use.node is not None:
        name = case.name(use.node)
        return what if name.startswith("tensor") else f"{what} on `{name}`"
    return what


def _module(found: Culprit | None) -> str:
    owner = found.use.owner if found is not None and found.use is not None else ""
    return f"`{owner}`" if owner not in ("", "self") else "the module"


def _registered(registered: Span | None, where: Span | None) -> list[Related]:
    if registered is None or where is None:
        return []
    if (registered.file, registered.line) == (where.file, where.line):
        return []
    return [Related("created", location(registered), "registered here")]


# --- hooks that outlive their purpose ----------------------------------------------------------


def _left_behind(case: Case) -> Iterator[Finding]:
    lines: dict[Span, list[HookUse]] = {}
    for hook in case.question.hooks:
        where = case.user_span(hook.stack) if hook.removed_at_times else None
        if where is not None and _changes_gradients(hook):
            lines.setdefault(where, []).append(hook)
    for where, left in lines.items():
        yield _survived(case, where, left)


def _changes_gradients(hook: HookUse) -> bool:
    """Hooks that only look may stay: they do no harm."""
    if not hook.file or is_library(hook.file):
        return False
    function = body_of(hook.file, hook.line, hook.name, hook.column)
    return function is not None and may_replace(function)


def _survived(case: Case, where: Span, left: list[HookUse]) -> Finding:
    name = left[0].name
    what = f"`{name}`" if name != "<lambda>" else "a hook"
    owners = list(dict.fromkeys(_owner(case, hook) for hook in left))
    steps = max(hook.steps for hook in left)
    title = f"{what} stays on {words.listed(owners)} and goes on changing the training gradients"
    function = body_of(left[0].file, left[0].line, name, left[0].column)
    body = to_blame(left[0].file, function) if function is not None else None
    related = []
    if body is not None and (body.file, body.line) != (where.file, where.line):
        related.append(Related("used", location(body), "replaces the gradient in every pass"))
    return Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} Its handle was not removed, as it is at other times.",
        location=location(where),
        label="registered here, and not removed this time",
        related=related,
        why="a hook that returns a gradient replaces the real one, in every backward pass until "
        "its handle is removed. Where an exception, or a return, comes before the removal, the "
        "hook stays.",
        checked=[
            f"the handles of this line were removed at once at other times; "
            f"{words.count(len(left), 'hook')} of it stayed through "
            f"{words.count(steps, 'optimizer step')}."
        ],
        fix=Fix(
            title="remove the handles in a `finally:` block, so that they also go when something "
            "raises",
            deliberate="if training should go through the hook, register it once, before the loop.",
        ),
        first_step=case.question.step,
        at_end=True,
    )


def _zeroed(case: Case, found: Zeroed) -> Finding:
    hook, names = found.hook, case.names(found.nodes)
    registered = case.user_span(hook.stack)
    function = body_of(hook.file, hook.line, hook.name, hook.column)
    where = to_blame(hook.file, function) if function is not None else registered
    assert where is not None
    what = f"the hook `{hook.name}`" if hook.name != "<lambda>" else "a hook"
    many = len(names) > 1
    title = (
        f"{what} turns the gradient into zeros: {words.listed(names, 2)} "
        f"{'get' if many else 'gets'} nothing else"
    )
    return Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} Affected: {words.listed(names, 8)}.",
        location=location(where),
        label=f"a gradient of up to {values.number(found.size)} arrives, and zeros go on",
        related=[
            *_registered(registered, where),
            *values.surfaced(
                case, found.number, where, f"runs, and gives {values.count(names)} only zeros"
            ),
        ],
        parameters=names,
        why="what a hook returns takes the gradient's place, for everything before it. This one "
        "returned zeros in every step looked at.",
        checked=[f"every way to {'them' if many else 'it'} leads through this hook."],
        fix=Fix(
            title="return the gradient, scaled or masked as meant, or None to leave it as it is",
            safety="changes gradients only; forward values stay equal",
            deliberate="if nothing before it should train, freeze it with `requires_grad_(False)` "
            "or `.detach()`, which say so.",
        ),
        first_step=case.question.step,
    )


def _owner(case: Case, hook: HookUse) -> str:
    if hook.owner:
        return hook.owner
    return case.name(hook.node) if hook.node is not None else "the model"
