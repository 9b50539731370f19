"""The full report: every finding with its source, path, reason and fix."""

from __future__ import annotations

from collections import Counter

from whygrad.report.excerpt import draw_excerpts
from whygrad.report.fix import draw_fix
from whygrad.report.marks import Excerpt, excerpts
from whygrad.report.parameters import counts, draw_parameters, something_is_wrong
from whygrad.report.path import draw_path
from whygrad.report.pen import DEFAULT_WIDTH, NARROWEST, Pen
from whygrad.report.places import SourceBook
from whygrad.report.prose import INDENT, headline, more, names, short_form, why
from whygrad.session import Finding, ParameterState, Session


def render(
    session: Session,
    *,
    width: int | None = None,
    color: bool = False,
    unicode: bool = True,
    verbose: bool = False,
    report_link: str | None = None,
) -> str:
    """The whole report; nothing at all for a healthy program, unless verbose."""
    pen = _pen(width, color, unicode, verbose)
    if not verbose and all(finding.severity == "info" for finding in session.findings):
        return ""  # nothing that anybody must act on
    book = SourceBook(session)
    blocks: list[str] = []
    notes: list[str] = []
    for number, finding in enumerate(session.findings, start=1):
        if _is_short(finding, pen):
            notes += short_form(finding, pen)
        else:
            blocks.append(_draw(finding, book, pen, _link(report_link, number)))
    if notes:
        blocks.append("\n".join(notes))
    blocks += _parameters(session, pen)
    if len(session.findings) > 1:
        blocks.append(_summary(session, pen))
    if verbose:
        blocks += _footer(session, pen)
    return "\n\n".join(blocks) + "\n" if blocks else ""


def render_finding(
    session: Session,
    finding: Finding,
    *,
    width: int | None = None,
    color: bool = False,
    unicode: bool = True,
    verbose: bool = False,
    report_link: str | None = None,
) -> str:
    """One finding of the session, in full."""
    pen = _pen(width, color, unicode, verbose)
    number = next((n for n, f in enumerate(session.findings, start=1) if f is finding), 0)
    return _draw(finding, SourceBook(session), pen, _link(report_link, number)) + "\n"


def render_parameters(
    states: list[ParameterState],
    *,
    width: int | None = None,
    color: bool = False,
    unicode: bool = True,
    verbose: bool = False,
) -> str:
    """The table of parameters alone."""
    pen = _pen(width, color, unicode, verbose)
    return "".join(f"{line}\n" for line in draw_parameters(states, pen))


def _pen(width: int | None, color: bool, unicode: bool, verbose: bool) -> Pen:
    return Pen(max(width or DEFAULT_WIDTH, NARROWEST), color, unicode, verbose)


def _is_short(finding: Finding, pen: Pen) -> bool:
    return finding.severity == "info" and not pen.verbose


def _link(report_link: str | None, number: int) -> str | None:
    """The report's address, at the anchor of this finding."""
    if not report_link or "#" in report_link or not number:
        return report_link
    return f"{report_link}#{number}"


def _draw(finding: Finding, book: SourceBook, pen: Pen, link: str | None) -> str:
    found = excerpts(finding, book)
    digits = _digits(finding, found)
    places = headline(finding, pen) + draw_excerpts(found, pen, digits, finding.severity)
    sections = [
        places,
        draw_path(finding, pen),
        names(finding, pen),
        why(finding, pen),
        draw_fix(finding, book, pen, digits),
        more(finding, pen, link),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section)


def _digits(finding: Finding, found: list[Excerpt]) -> int:
    """The width of the largest line number, so that all gutters of a finding line up."""
    numbers = [1, *(number for excerpt in found for number in excerpt.lines)]
    for edit in finding.fix.edits if finding.fix else []:
        numbers.append(edit.line + max(len(edit.before), len(edit.after), 1) - 1)
    return len(str(max(numbers)))


def _parameters(session: Session, pen: Pen) -> list[str]:
    """All of them if verbose; a line that counts them where something is wrong with some."""
    states = session.parameters
    if not states or not (pen.verbose or something_is_wrong(states, session.findings)):
        return []
    counted = counts(states)
    if not pen.verbose:
        counted += " (see -v, or `whygrad.why(model)`)"
    rows = pen.paragraph("all parameters:", counted, indent=INDENT)
    if pen.verbose:
        rows += ["", *draw_parameters(states, pen)]
    return ["\n".join(rows)]


def _summary(session: Session, pen: Pen) -> str:
    counts = Counter[str](finding.severity for finding in session.findings)
    parts: list[str] = []
    for severity, word in (("error", "error"), ("warning", "warning"), ("info", "note")):
        if count := counts[severity]:
            parts.append(f"{count} {word}{'s' if count > 1 else ''}")
    return f"{pen.paint('strong', 'whygrad:')} {', '.join(parts)}"


def _footer(session: Session, pen: Pen) -> list[str]:
    blocks: list[str] = []
    if not session.findings:
        steps = f"{session.steps} step{'' if session.steps == 1 else 's'} watched"
        blocks.append(f"whygrad: no finding ({steps})")
    notes = [
        pen.paint("dim", line)
        for note in session.notes
        for line in pen.paragraph("note:", note, indent=6)
    ]
    return [*blocks, "\n".join(notes)] if notes else blocks
