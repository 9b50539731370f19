"""The words of a finding: headline, why, what was checked, and where to read more."""

from __future__ import annotations

import re

from whygrad.report.pen import Pen
from whygrad.report.places import is_library, place
from whygrad.session import Finding

INDENT = 5  # the width of "why: " and "fix: "
MOST_NAMES = 6

_PLAIN_WORD = re.compile(r"[a-z]{2,}[ ,]")


def headline(finding: Finding, pen: Pen) -> list[str]:
    label = pen.clean(f"{finding.severity}[{finding.code}]")
    width = pen.text_width
    lines = pen.wrap(f"{label}: {finding.title}", width - 4, first=width) or [label]
    head = pen.paint(finding.severity, label) + pen.paint("strong", lines[0][len(label) :])
    return [head, *("    " + pen.paint("strong", line) for line in lines[1:])]


def short_form(finding: Finding, pen: Pen) -> list[str]:
    """Headline and place in one line, for what a reader need not act on."""
    label = pen.clean(f"{finding.severity}[{finding.code}]")
    where = f" ({place(finding.location, column=False)})" if finding.location.file else ""
    width = pen.text_width
    lines = pen.wrap(f"{label}: {finding.title}{where}", width - 4, first=width) or [label]
    head = pen.paint(finding.severity, label) + lines[0][len(label) :]
    return [head, *("    " + line for line in lines[1:])]


def names(finding: Finding, pen: Pen) -> list[str]:
    """Who silently suffers, where neither the headline nor a path says it."""
    named = finding.parameters
    in_path = any(step.kind == "parameter" for step in finding.path)
    in_headline = all(f"`{name}`" in finding.title for name in named)
    if finding.symptom == "raises" or in_path or in_headline:
        return []
    # A count in place of a single name would save nothing.
    limit = len(named) if pen.verbose or len(named) == MOST_NAMES + 1 else MOST_NAMES
    listed = ", ".join(f"`{name}`" for name in named[:limit])
    if len(named) > limit:
        listed += f" and {len(named) - limit} more (-v)"
    return pen.paragraph("parameters:" if len(named) > 1 else "parameter:", listed, indent=INDENT)


def why(finding: Finding, pen: Pen) -> list[str]:
    entries = [("", part) for part in re.split(r"\n\s*\n", finding.why) if part.strip()]
    if entries:
        entries[0] = ("why:", entries[0][1])
    if finding.checked:
        entries.append(("checked:", _sentences(finding.checked)))
    if finding.inferred:
        entries.append(("inferred:", _sentences(finding.inferred)))
    if finding.count > 1:
        entries.append(("seen:", f"{finding.count} times, first in step {finding.first_step}."))
    elif finding.first_step > 1 and finding.symptom == "raises":
        # What is silent, or warned of once, may well be there in every step.
        entries.append(("seen:", f"once, in step {finding.first_step}."))
    rows: list[str] = []
    for index, (keyword, content) in enumerate(entries):
        rows += pen.paragraph(keyword, content, indent=INDENT, start=INDENT if index else 0)
    return rows


def _sentences(items: list[str]) -> str:
    """Items as running text: a full stop after each, a capital on plain words."""
    sentences: list[str] = []
    for item in filter(None, map(str.strip, items)):
        capital = sentences and _PLAIN_WORD.match(item)
        sentence = item[0].upper() + item[1:] if capital else item
        sentences.append(sentence if sentence.endswith((".", "!", "?")) else sentence + ".")
    return " ".join(sentences)


def more(finding: Finding, pen: Pen, link: str | None) -> list[str]:
    parts = [f"whygrad explain {finding.code}", *([link] if link else [])]
    separator = f" {pen.symbol('dot')} "
    head = pen.paint("strong", "more:")
    rows = [f"{head} {separator.join(map(pen.clean, parts))}"]
    at = finding.location
    if at.file and at.line > 0 and not is_library(at.file):
        silence = f"`# whygrad: ignore[{finding.code}]` on {place(at, column=False)}"
    else:  # there is no line to write a comment on, or it is in an installed package
        silence = f"`whygrad run --ignore {finding.code}`"
    return [*rows, "      " + pen.clean(f"silence: {silence}")]
