"""The fix: its title, its safety, and the edits as a diff with line numbers."""

from __future__ import annotations

from difflib import SequenceMatcher

from whygrad.report.pen import Pen
from whygrad.report.places import SourceBook, display_name
from whygrad.report.prose import INDENT
from whygrad.report.text import pieces
from whygrad.session import Edit, Finding, Fix, Location


def draw_fix(finding: Finding, book: SourceBook, pen: Pen, digits: int) -> list[str]:
    fix = finding.fix
    if fix is None:
        return []
    title = f"{fix.title} ({fix.safety})" if fix.safety else fix.title
    rows = pen.paragraph("fix:", title, indent=INDENT)
    bar = " " * digits + " " + pen.paint("dim", "|")
    file = finding.location.file
    for index, edit in enumerate(fix.edits):
        if edit.file != file:
            name = pen.clean(f"{display_name(edit.file)}:{edit.line}")
            rows += [bar] if index else []
            rows += [" " * digits + pen.paint("dim", "-->") + f" {name}", bar]
            file = edit.file
        else:
            rows.append(pen.paint("dim", "...") if index else bar)
        rows += _diff(edit, book, pen, digits)
    if fix.deliberate:
        rows += [bar] if fix.edits else []
        rows += _deliberate(fix, pen)
    return rows


def _deliberate(fix: Fix, pen: Pen) -> list[str]:
    text = fix.deliberate
    if not text.lower().startswith("if "):
        text = f"if it is deliberate: {text}"
    return [" " * INDENT + line for line in pen.wrap(text, pen.text_width - INDENT)]


def _diff(edit: Edit, book: SourceBook, pen: Pen, digits: int) -> list[str]:
    """Removed and added lines; what an edit leaves as it is appears as context."""

    def row(number: int, sign: str, style: str, line: str) -> str:
        # Not cropped: people copy these lines.
        text = "".join(pieces(line.rstrip(), unicode=pen.unicode))
        gutter = f"{number:>{digits}} {sign}"
        if sign == "|":
            return f"{pen.paint('dim', gutter)} {text}".rstrip()
        return pen.paint(style, f"{gutter} {text}".rstrip())

    rows: list[str] = []
    if not edit.before and edit.line > 1:
        anchor = book.line(Location(edit.file, edit.line - 1), edit.line - 1)
        if anchor is not None:
            rows.append(row(edit.line - 1, "|", "dim", anchor))
    matcher = SequenceMatcher(None, edit.before, edit.after, autojunk=False)
    for kind, old, old_end, new, new_end in matcher.get_opcodes():
        if kind == "equal":
            rows += [row(edit.line + i, "|", "dim", edit.before[i]) for i in range(old, old_end)]
            continue
        rows += [row(edit.line + i, "-", "removed", edit.before[i]) for i in range(old, old_end)]
        rows += [row(edit.line + i, "+", "added", edit.after[i]) for i in range(new, new_end)]
    return rows
