"""What `whygrad.why` answers with: text for people, the finding for programs."""

from __future__ import annotations

from dataclasses import dataclass, field

from whygrad.session import Finding, Session


@dataclass
class Answer:
    """Prints well in a terminal; `finding` is None where there is nothing wrong to report."""

    text: str
    finding: Finding | None = None
    session: Session | None = None
    parameters: dict[str, str] = field(default_factory=dict)  # name -> state, for a module

    def __str__(self) -> str:
        if self.finding is None or self.session is None:
            return self.text
        from whygrad.report.terminal import render_finding

        drawn = render_finding(self.session, self.finding)
        return f"{self.text}\n\n{drawn}" if self.text else drawn

    def __repr__(self) -> str:
        return str(self)
