"""Short lines: what is sure while the program still runs, and what turned out otherwise."""

from __future__ import annotations

from whygrad.report.pen import Pen
from whygrad.report.places import place
from whygrad.session import Finding

MOST_NAMES = 1
MOST_FINDINGS = 3


def render_early(
    findings: list[Finding], step: int, *, color: bool = False, unicode: bool = True
) -> str:
    """The line for findings that became sure in the same step."""
    pen = Pen(color=color, unicode=unicode)
    when = f"step {step}: " if step else ""
    said = _alone(findings[0], pen) if len(findings) == 1 else _together(findings)
    return _line(f"{when}{said}; full report at the end", pen)


def render_withdrawn(findings: list[Finding], *, color: bool = False, unicode: bool = True) -> str:
    """The line for findings that were said too early."""
    verb = "counts" if len(findings) == 1 else "count"
    listed = ", ".join(map(_brief, findings))
    text = f"said while the program ran, no longer {verb}: {listed}"
    return _line(text, Pen(color=color, unicode=unicode))


def _line(text: str, pen: Pen) -> str:
    return f"{pen.paint('strong', 'whygrad:')} {pen.clean(text)}\n"


def _brief(finding: Finding) -> str:
    if not finding.location.file:
        return finding.code
    return f"{finding.code} at {place(finding.location, column=False)}"


def _alone(finding: Finding, pen: Pen) -> str:
    names = finding.parameters
    if not names or any(f"`{name}`" in finding.title for name in names):
        return f"{finding.title}: {_brief(finding)}"
    shown = [*names[:MOST_NAMES], *([pen.ellipsis] if len(names) > MOST_NAMES else [])]
    return f"{finding.title} ({', '.join(shown)}): {_brief(finding)}"


def _together(findings: list[Finding]) -> str:
    shown = [_brief(finding) for finding in findings[:MOST_FINDINGS]]
    rest = len(findings) - len(shown)
    more = f" and {rest} more" if rest else ""
    return f"{len(findings)} findings: {', '.join(shown)}{more}"
