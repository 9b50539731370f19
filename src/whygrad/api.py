"""The library's front door: `watch` around a piece of code, `why` for one tensor or module."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from whygrad.answer import Answer
from whygrad.report import draw, stream_options
from whygrad.session import Finding, Session
from whygrad.settings import Settings
from whygrad.watching import Watch, active

F = TypeVar("F", bound=Callable[..., Any])


class watch:
    """Watch the code in a `with` block, or each call of a decorated function.

    Findings are in `findings`, and are shown on stderr when the block ends or raises unless
    `quiet` is set. What the code computes does not change, unless `eager` is set: then functions
    under `torch.compile` run eagerly, so that the calls in them are seen.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        select: list[str] | None = None,
        ignore: list[str] | None = None,
        max_operations: int = 100_000,
        eager: bool = False,
    ) -> None:
        self.quiet = quiet
        self._settings = Settings(
            select=list(select or []),
            ignore=list(ignore or []),
            max_operations=max_operations,
            eager=eager,
        )
        self._watch: Watch | None = None
        self._nested = False
        self.session: Session | None = None

    def __enter__(self) -> watch:
        self._nested = bool(active)
        # One program, one record: a watch inside another one reads the outer one's.
        self._watch = active[-1] if self._nested else Watch(self._settings)
        self._before = [id(finding) for finding in self._watch.findings]
        if not self._nested:
            self._watch.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        current = self._watch
        if current is None:
            return
        if error is not None:
            current.saw_uncaught(error)
        if not self._nested:
            current.stop()
        try:
            self.session = current.session()
            mine = [f for f in self.session.findings if id(f) not in self._before]
            self.session.findings = mine
            if not self.quiet and not self._nested:
                _show(self.session)
        except Exception as fault:  # ours: the watched code goes on as if nothing had been
            current.watcher.recorder.fault(fault)

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return watched  # type: ignore[return-value]

    @property
    def findings(self) -> list[Finding]:
        """What was found, most important first; also while the block still runs."""
        if self.session is not None:
            return self.session.findings
        return self._watch.findings if self._watch is not None else []

    def save(self, path: str) -> None:
        """Write the session, to be drawn again with `whygrad report`."""
        if self.session is None:
            raise RuntimeError("nothing was watched yet: use `with whygrad.watch() as w:` first")
        self.session.save(path)


def _show(session: Session) -> None:
    text = draw(session, "full", **stream_options(sys.stderr))
    if text:
        sys.stderr.write(text if text.endswith("\n") else text + "\n")
        sys.stderr.flush()


def why(thing: Any) -> Answer:
    """Why does this tensor, parameter or module get no gradient? Prints well; holds the finding."""
    from whygrad.asking import ask

    return ask(thing, active[-1] if active else None, sys._getframe(1))
