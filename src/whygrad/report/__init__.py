"""Reports: a session drawn as text, as annotations or as JSON. Nothing here needs torch."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from whygrad.report.concise import render_concise
from whygrad.report.early import render_early, render_withdrawn
from whygrad.report.github import render_github
from whygrad.report.json_report import load_schema, render_json, schema_path, to_json
from whygrad.report.stream import StreamOptions, stream_options
from whygrad.report.terminal import render, render_finding, render_parameters
from whygrad.session import Session

__all__ = [
    "Format",
    "StreamOptions",
    "draw",
    "load_schema",
    "render",
    "render_early",
    "render_finding",
    "render_parameters",
    "render_withdrawn",
    "schema_path",
    "stream_options",
    "to_json",
    "write",
]

Format = Literal["full", "concise", "github", "json"]


def draw(
    session: Session,
    fmt: Format = "full",
    *,
    width: int | None = None,
    color: bool = False,
    unicode: bool = True,
    verbose: bool = False,
    report_link: str | None = None,
) -> str:
    """The session in one format; options that a format has no use for are ignored."""
    match fmt:
        case "full":
            return render(
                session,
                width=width,
                color=color,
                unicode=unicode,
                verbose=verbose,
                report_link=report_link,
            )
        case "concise":
            return render_concise(session, color=color, unicode=unicode)
        case "github":
            return render_github(session)
        case "json":
            return render_json(session)
    raise ValueError(f"unknown format {fmt!r}: use full, concise, github or json")


def write(session: Session, path: str | Path) -> None:
    """Write a report file in the format that its extension names."""
    path = Path(path)
    match path.suffix.lower():
        case ".json":
            text = render_json(session)
        case ".txt":
            # A file should say something even when the terminal stays silent.
            text = render(session, verbose=not session.findings)
        case suffix:
            raise ValueError(f"no report format for {suffix or path.name!r}: use .json or .txt")
    path.write_text(text, encoding="utf-8")
