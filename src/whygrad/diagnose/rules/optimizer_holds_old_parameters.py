"""The model got new parameters after the optimizer was made, which still holds the old ones."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import left as leaving
from whygrad.diagnose import words
from whygrad.diagnose.case import Case
from whygrad.diagnose.left import Left
from whygrad.diagnose.replaced import Replacement, replacements
from whygrad.session import Finding, Fix, Related
from whygrad.source.spans import location
from whygrad.source.tree import assigned_names

CODE = "optimizer-holds-old-parameters"


def diagnose(case: Case) -> Iterator[Finding]:
    left = leaving.behind(case)
    if left is not None:
        for replacement in replacements(left):
            yield _finding(left, replacement)


def _finding(left: Left, replacement: Replacement) -> Finding:
    case, optimizer = left.case, replacement.optimizer
    names = leaving.names_of(replacement.new)
    where, *others = replacement.places
    made = case.user_span(optimizer.stack) if optimizer.stack else None
    spoken = next(iter(assigned_names(made)), "") if made is not None else ""
    holder = f"`{spoken}`" if spoken else "the optimizer"
    old, new = len(replacement.old), len(replacement.new)
    title = f"{words.listed(names)} {_were(new)} replaced, and {holder} still holds the old one"
    title += "" if new == 1 else "s"
    related = [Related("written", location(span), "and here") for span in others]
    if made is not None:
        label = (
            f"made with {words.count(len(optimizer.nodes), 'parameter')}, the old ones among them"
        )
        related.append(Related("optimizer", location(made), label))
    passes = max((left.touched[info.node] for info in replacement.new), default=0)
    return Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} No optimizer moves what took their place.",
        location=location(where),
        label=f"{words.listed(names, 2)} {'is' if new == 1 else 'are'} new from here on",
        related=related,
        parameters=names,
        why="an optimizer holds tensors, not names: what takes the place of one in the model is "
        "none of its business. The old ones get no gradient any more, and it passes over them "
        "without a word.",
        checked=[
            f"{words.count(new, 'new parameter')} got a gradient in {passes} backward "
            f"{'pass' if passes == 1 else 'passes'}, and no optimizer holds "
            f"{'it' if new == 1 else 'them'}; {old} of {len(optimizer.nodes)} that {holder} "
            f"holds took no part in these."
        ],
        fix=Fix(
            title=f"make {holder} after this line, or make it anew here",
            safety="a new optimizer starts without the old one's momentum, and a scheduler has "
            "to be made for it again",
            deliberate="if the new parameters should stay as they are, freeze them with "
            "`requires_grad_(False)`.",
        ),
        first_step=case.question.step,
    )


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
