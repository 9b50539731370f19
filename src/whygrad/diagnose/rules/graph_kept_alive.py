"""Graphs of past steps stay in memory because results that carry them are stored."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, lives, words
from whygrad.diagnose.case import Case, is_library
from whygrad.record.events import Kept
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.inplace_edits import detach_name
from whygrad.source.spans import Span, location
from whygrad.source.stores import Store, best_store, only_store_into
from whygrad.source.tree import assigned_names

CODE = "graph-kept-alive"

_BYTES_PER_NODE = 600  # measured: a small operation's node with its Python side


def diagnose(case: Case) -> Iterator[Finding]:
    yield from complaints.plain(case, CODE)
    kept = case.question.kept
    if kept is None:
        return
    made = case.places.node_span(kept.node)
    spans = [s for s in case.places.spans(case.question.stack) if not is_library(s.file)]
    store = None if kept.chained else _stored(kept, made, spans)
    where = made if store is None else store.span
    if where is not None:
        yield _finding(case, kept, where, made, store)


def _stored(kept: Kept, made: Span | None, spans: list[Span]) -> Store | None:
    """The line that puts the results into the collection."""
    names = assigned_names(made) if made is not None else []
    value = names[0] if len(names) == 1 else None
    container = kept.container or None
    found = best_store(spans, container=container, value=value)
    if found is None and container is not None:
        files = dict.fromkeys(span.file for span in (*spans, made) if span is not None)
        found = only_store_into(files, container)
    return found or best_store(spans)


def _finding(
    case: Case, kept: Kept, where: Span, made: Span | None, store: Store | None
) -> Finding:
    held, what = _held(kept, where, store), _what(store, where)
    title = f"{held} keeps the graphs of past steps alive ({kept.steps} so far)"
    related = []
    if made is not None and not lives.same_place(made, where):
        related.append(Related("created", location(made), "what is stored carries its graph"))
    return Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} Memory grows with every step.",
        location=location(where),
        label=f"{what} is kept here, with the graph behind it",
        related=related,
        parameters=[],
        why=_why(kept),
        checked=[
            f"the graphs of {kept.steps} past steps are alive at step {case.question.step}, "
            f"{kept.nodes} operations in all, and their number grew with every step."
        ],
        fix=_fix(kept, store, where),
        first_step=case.question.step,
    )


def _held(kept: Kept, where: Span, store: Store | None) -> str:
    if store is not None:
        return f"`{store.container}`"
    names = assigned_names(where)
    return f"`{names[0]}`" if kept.chained and names else "something"


def _what(store: Store | None, where: Span) -> str:
    if store is not None and len(store.value) <= 40 and "\n" not in store.value:
        return f"`{store.value}`"
    names = assigned_names(where)
    return f"`{names[0]}`" if names else "a result"


def _why(kept: Kept) -> str:
    size = _size(kept.nodes * _BYTES_PER_NODE + kept.held_bytes)
    about = f"By now that is about {size}, and it grows until the results are let go."
    if kept.chained:
        return (
            "a sum of tensors with a history has the history of all of them, so it holds the "
            f"graph of every step that was added. {about}"
        )
    freed = (
        "backward() has freed what the operations had kept, but the graph itself stays"
        if kept.held_bytes < kept.nodes * _BYTES_PER_NODE
        else "with it stay all the values that the operations kept for backward"
    )
    return f"a tensor holds the graph it was computed with; {freed}. {about}"


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _fix(kept: Kept, store: Store | None, where: Span) -> Fix:
    name = store.value if store is not None else ""
    edits: list[Edit] = detach_name(where, name) if name else []
    target = "what is added" if kept.chained else f"`{name}`" if name else "the value"
    return Fix(
        title=f"store {target} without its graph: `.detach()` keeps a tensor, `.item()` a number",
        edits=edits,
        safety="changes neither values nor gradients; `.item()` waits for the GPU, `.detach()` "
        "does not",
        deliberate="if a later backward() should go through all of them, this is right: silence "
        "this line.",
    )
