"""A custom Function keeps or marks tensors in a way that autograd cannot follow."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whygrad.diagnose import complaints, custom, lives, words
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.record.events import Altered, Definition
from whygrad.session import Finding, Fix, Related
from whygrad.source import contexts, methods
from whygrad.source.methods import Place
from whygrad.source.spans import Span, location
from whygrad.source.tree import text_of

CODE = "custom-saved-misuse"


def diagnose(case: Case) -> Iterator[Finding]:
    for altered in case.question.altered:
        yield from _unwatched(case, altered)
    found = complaints.said(case, CODE)
    if found is None:
        return
    owner = custom.definition(found)
    if owner is None:
        yield complaints.finding(case, found)
        return
    found.words["function"] = owner.name
    match found.message.id:
        case "custom-save-non-tensor":
            yield _no_tensor(case, found, owner, "save_for_backward")
        case "custom-save-for-forward-non-tensor":
            yield _no_tensor(case, found, owner, "save_for_forward")
        case "custom-as-is-output-saved":
            yield _returned_as_is(case, found, owner)
        case "custom-mark-dirty-not-returned":
            yield _not_returned(case, found, owner)
        case _:
            yield _read_twice(case, found, owner)


def _told(
    case: Case, found: Said, owner: Definition, span: Span | None, related: list[Related]
) -> Finding:
    where = custom.own_line(case, found, owner, span)
    return complaints.finding(case, found, where=where, related=related)


def _no_tensor(case: Case, found: Said, owner: Definition, method: str) -> Finding:
    """What is saved is a number, a shape, a list."""
    index = int(found.words.get("g1", -1))
    call = _call(owner, method, index)
    value = call[1].args[index] if call and 0 <= index < len(call[1].args) else None
    if call is not None and value is None and method == "save_for_forward":
        constants = [arg for arg in call[1].args if isinstance(arg, ast.Constant)]
        value = next(iter(constants), None)
    text = text_of(value, call[0].file) if call is not None and value is not None else ""
    starred = isinstance(value, ast.Starred)
    where = custom.own_line(case, found, owner, call[0] if call else None)
    named = f"`{text}`" if text and not starred and len(text) <= 30 else "what"
    kind = found.words.get("g2", "")
    attribute = text if text.isidentifier() else "value"
    return complaints.finding(
        case,
        found,
        where=where,
        related=custom.applied_here(case, owner, where),
        title=f"`{method}()` is given {named}, which is no tensor"
        if text
        else f"`{owner.name}` saves something that is no tensor",
        label=f"{named} is a `{kind}`" if kind and text else "not a tensor",
        fix=Fix(
            title=f"keep it as an attribute, `ctx.{attribute} = {text or 'value'}`, and read it "
            "there in backward"
        ),
    )


def _call(owner: Definition, method: str, index: int = -1) -> tuple[Span, ast.Call] | None:
    """The call of a method of the context; one with enough arguments, if there are several."""
    found = [call for place in _bodies(owner) for call in contexts.calls_of(place, method)]
    enough = [
        call
        for call in found
        if index < len(call[1].args) or any(isinstance(a, ast.Starred) for a in call[1].args)
    ]
    return next(reversed(enough or found), None)


def _bodies(owner: Definition) -> list[Place]:
    """Its own methods: those that torch calls in the forward pass first."""
    first = [owner.methods[name] for name in ("forward", "setup_context") if name in owner.methods]
    return first + [place for place in owner.methods.values() if place not in first]


def _returned_as_is(case: Case, found: Said, owner: Definition) -> Finding:
    names = custom.arguments(owner)
    place = owner.methods.get("forward")
    returns = methods.returns_of(place) if place is not None else []
    as_is = [r for r in returns if any(r.text(n) in names for n in range(len(r.values or ())))]
    saved = _call(owner, "save_for_backward")
    related = [] if saved is None else [Related("saved", location(saved[0]), "saved here")]
    if as_is:
        texts = [as_is[0].text(n) for n in range(len(as_is[0].values or ()))]
        found.words["input"] = next(text for text in texts if text in names)
    span = as_is[0].span if as_is else saved[0] if saved else None
    return _told(case, found, owner, span, related if as_is else [])


def _not_returned(case: Case, found: Said, owner: Definition) -> Finding:
    """A changed input must come back; one that is not changed must not be marked."""
    marked = _call(owner, "mark_dirty")
    place = owner.methods.get("forward")
    names = [text_of(arg, marked[0].file) for arg in marked[1].args] if marked else []
    returns = methods.returns_of(place) if place is not None else []
    written = [n for n in names if place is not None and contexts.writes_to(place, n)]
    without = [r for r in returns if not _gives_back(r, written)]
    if marked is None:
        return _told(case, found, owner, None, [])
    found.words["input"] = (written or names or ["the input"])[0]
    if not written or not without:
        where = custom.own_line(case, found, owner, marked[0])
        return complaints.finding(
            case,
            found,
            where=where,
            title=f"`{owner.name}` marks `{found.words['input']}` as changed in place, and does "
            "not return it",
            label="marked as dirty here",
            fix=Fix(title="do not mark what is not changed in place"),
        )
    related = [Related("written", location(marked[0]), "marked as changed in place")]
    return _told(case, found, owner, without[0].span, related)


def _gives_back(found: methods.Return, names: list[str]) -> bool:
    texts = [found.text(index) for index in range(len(found.values or ()))]
    return all(any(t == n or t.startswith(f"{n}.") for t in texts) for n in names)


def _read_twice(case: Case, found: Said, owner: Definition) -> Finding:
    place = custom.derivative(owner)
    reads = contexts.reads_attribute(place, "saved_tensors") if place is not None else []
    first = [span for span in reads if span.line < found.where.line]
    related = [Related("used", location(first[0]), "read here already")] if first else []
    return complaints.finding(case, found, related=related)


def _unwatched(case: Case, altered: Altered) -> Iterator[Finding]:
    """A tensor kept as an attribute of the context was written to before backward reads it."""
    owner, attribute = altered.function, altered.attribute
    backward, forward = custom.derivative(owner), owner.methods.get("forward")
    kept = [k for place in _bodies(owner) for k in contexts.kept_on_context(place)]
    lines = [(text, span) for name, text, span in kept if name == attribute]
    written, _ = lives.change_span(case, altered.changes[0])
    if backward is None or forward is None or len(lines) != 1 or written is None:
        return
    text, where = lines[0]
    used = contexts.reads_attribute(backward, attribute)
    if not used or is_library(where.file) or not contexts.computes_with(forward, [text]):
        return  # a workspace, or no more than a shape
    write = lives.spoken_write(altered.changes[0].op, written)
    title = f"`{owner.name}` keeps `{text}` unwatched, and {write} changes it before backward"
    surface = case.surface
    related = [Related("written", location(written), "changed here, after forward")]
    related += [Related("used", location(used[0]), "backward reads the new values")]
    if surface is not None:
        label = "runs, and computes wrong gradients"
        related.append(Related("surfaced", location(surface), label))
    yield Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} Save it with ctx.save_for_backward().",
        location=location(where),
        label="a plain attribute: autograd does not look after it",
        related=related,
        why="autograd checks at backward that what was given to `save_for_backward()` is still "
        "what it was. A tensor kept as an attribute of `ctx` is just a reference: backward "
        "computes with whatever it holds by then.",
        checked=[f"{words.count(len(altered.changes), 'write')} to its memory came in between."],
        fix=Fix(
            title=f"save it with `ctx.save_for_backward({text})`, and write to a copy",
            deliberate="if backward is meant to see the new values, nothing is wrong.",
        ),
        first_step=case.question.step,
    )
