"""What `whygrad.why` answers with: text for people, the finding for programs."""

from __future__ import annotations

from dataclasses import dataclass, field

from whygrad.session import Finding, ParameterState, Session


@dataclass
class Answer:
    """Prints well in a terminal; `finding` is None where there is nothing wrong to report."""

    text: str
    finding: Finding | None = None
    session: Session | None = None
    parameters: dict[str, ParameterState] = field(default_factory=dict)  # of a module, by name
    hint: str = ""  # how to learn more

    def draw(
        self,
        *,
        width: int | None = None,
        color: bool = False,
        unicode: bool = True,
        verbose: bool = False,
    ) -> str:
        """The answer as text; `verbose` keeps every row of a long table."""
        from whygrad import report

        states = list(self.parameters.values())
        parts = [self.text]
        if states:
            parts.append(
                report.render_parameters(
                    states, width=width, color=color, unicode=unicode, verbose=verbose
                )
            )
        if self.session is not None and self.finding is not None:
            parts += [
                report.render_finding(
                    self.session,
                    finding,
                    width=width,
                    color=color,
                    unicode=unicode,
                    verbose=verbose,
                )
                for finding in self._explaining()
            ]
        parts.append(self.hint)
        return "\n\n".join(part.rstrip("\n") for part in parts if part)

    def _explaining(self) -> list[Finding]:
        """The finding, and for a module also the others that its table refers to."""
        others = self.session.findings if self.session is not None and self.parameters else []
        first = [] if self.finding is None else [self.finding]
        return first + [finding for finding in others if finding is not self.finding]

    def __str__(self) -> str:
        return self.draw()

    def __repr__(self) -> str:
        return str(self)
