"""Places in the program that a transform of torch.func has to do with."""

from __future__ import annotations

import ast
import re

from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.record.events import Complaint, Transform
from whygrad.session import Related
from whygrad.source.spans import Span, location
from whygrad.source.transform_calls import made_at, returned
from whygrad.source.tree import callee_name, expression_at, receiver_text

_TYPE = re.compile(r"<class '(?:\w+\.)*(\w+)'>")
_EXITS = {"item", "tolist", "numpy", "float", "int", "bool"}


def running(complaint: Complaint, *names: str) -> Transform | None:
    """The innermost transform with one of these names; any that runs own code if none is given."""
    for transform in reversed(complaint.transforms):
        if transform.name in names or (not names and transform.function is not None):
            return transform
    return complaint.transforms[-1] if complaint.transforms and not names else None


def called_at(case: Case, transform: Transform) -> Span | None:
    """The program's line that calls what the transform made."""
    return case.user_span(transform.stack)


def made(case: Case, transform: Transform) -> Span | None:
    """The line that makes the transform, where its options are; else where it is called."""
    spans = [span for span in case.places.spans(transform.stack) if not is_library(span.file)]
    found = made_at(spans, frozenset({transform.name}))
    return found or called_at(case, transform)


def function_word(transform: Transform | None) -> str:
    """The function as the program calls it."""
    if transform is None or not transform.function_name.isidentifier():
        return "the function"
    return f"`{transform.function_name}`"


def type_word(case: Case) -> str:
    """The class that torch's words name: `tuple`."""
    found = _TYPE.search(case.question.error_text)
    return found.group(1) if found is not None else ""


def mention(case: Case, found: Said, transform: Transform | None) -> dict[str, str]:
    """Words that the messages of transforms may use."""
    receiver = receiver_text(found.where) or ""
    short = receiver and len(receiver) <= 30 and "\n" not in receiver
    called = (callee_name(found.where) or "the call").lstrip(".")
    return {
        "receiver_word": f"`{receiver}`" if short else "the tensor",
        "call_word": f"`{called}()`",
        "function": function_word(transform),
        "transform": transform.name if transform is not None else "torch.func",
        "type": type_word(case) or "something else",
    }


def returned_at(case: Case, transform: Transform, *kinds: type[ast.expr]) -> Span | None:
    """Where the value is written that the function returned, one of these kinds if there is."""
    if transform.function is None:
        return None
    spans = returned(*transform.function)
    fitting = [span for span in spans if isinstance(expression_at(span), kinds)] if kinds else []
    chosen = fitting or spans
    return chosen[-1] if chosen else None


def number_at(case: Case, transform: Transform) -> Span | None:
    """Where the function turned what it returned into a plain number."""
    spans = returned(*transform.function) if transform.function is not None else []
    leaving = [span for span in spans if _leaves_torch(span)]
    if leaving:
        return leaving[-1]
    caller = next(iter(case.places.spans(transform.stack)), None)
    for node in reversed(case.graph.recording.exits):
        if caller in case.places.node_spans(node):
            return case.places.node_span(node)
    return spans[-1] if spans else None


def _leaves_torch(span: Span) -> bool:
    node = expression_at(span)
    called = node.func if isinstance(node, ast.Call) else None
    return (getattr(called, "attr", None) or getattr(called, "id", None)) in _EXITS


def result_at(case: Case, transform: Transform, non_floating: bool = False) -> Span | None:
    """The line that computed the tensor that the function returned."""
    for given in transform.results:
        event = case.graph.event(given.node)
        if event is not None and not (non_floating and given.dtype.startswith(_FLOATING)):
            return case.places.node_span(given.node)
    return None


_FLOATING = ("float", "bfloat", "complex")


def related(span: Span | None, place: Span, label: str) -> list[Related]:
    """A second place, unless it is the first one."""
    if span is None or (span.file, span.line) == (place.file, place.line):
        return []
    return [Related("used", location(span), label)]


def last_return(file: str, first_line: int) -> Span | None:
    """The last `return` of a function."""
    spans = returned(file, first_line, follow=False)
    return spans[-1] if spans else None
