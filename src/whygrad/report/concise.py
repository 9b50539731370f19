"""One line per finding, as compilers print them and editors parse them."""

from __future__ import annotations

from whygrad.report.pen import Pen
from whygrad.report.places import place
from whygrad.session import Session


def render_concise(session: Session, *, color: bool = False, unicode: bool = True) -> str:
    pen = Pen(color=color, unicode=unicode)
    lines: list[str] = []
    for finding in session.findings:
        label = pen.paint(finding.severity, pen.clean(f"{finding.severity}[{finding.code}]"))
        lines.append(f"{pen.clean(place(finding.location))}: {label} {pen.clean(finding.title)}\n")
    return "".join(lines)
