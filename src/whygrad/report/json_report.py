"""The JSON report, described by the schema that ships beside this file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from whygrad.report.places import span_end
from whygrad.session import (
    Edit,
    Finding,
    Fix,
    Location,
    ParameterState,
    Related,
    Session,
    to_plain,
)


def schema_path() -> Path:
    return Path(__file__).parent / "schema" / "whygrad-report-1.schema.json"


def load_schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(schema_path().read_text(encoding="utf-8"))
    return schema


def render_json(session: Session) -> str:
    return json.dumps(to_json(session), indent=2, allow_nan=False) + "\n"


def to_json(session: Session) -> dict[str, Any]:
    """The report as plain data. The graph and the quoted sources stay in the session file."""
    return {
        "schema": session.schema,
        "whygrad": session.whygrad,
        "torch": session.torch,
        "program": to_plain(session.program),
        "findings": [_finding(finding) for finding in session.findings],
        "parameters": [_parameter(state) for state in session.parameters],
        "steps": session.steps,
        # JSON has no way to write what is not finite.
        "overhead": {k: v for k, v in session.overhead.items() if math.isfinite(v)},
        "notes": list(session.notes),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "symptom": finding.symptom,
        "title": finding.title,
        "message": finding.message,
        "location": {**_span(finding.location), "text": finding.location.text},
        "label": finding.label,
        "related": [_related(related) for related in finding.related],
        "parameters": list(finding.parameters),
        "path": [to_plain(step) for step in finding.path],
        "hidden_operations": finding.hidden_operations,
        "why": finding.why,
        "checked": list(finding.checked),
        "inferred": list(finding.inferred),
        "fix": None if finding.fix is None else _fix(finding.fix),
        "count": finding.count,
        "first_step": finding.first_step,
    }


def _parameter(state: ParameterState) -> dict[str, Any]:
    finite = state.norm is not None and math.isfinite(state.norm)
    return {**to_plain(state), "norm": state.norm if finite else None}


def _span(at: Location) -> dict[str, Any]:
    end_line, end_column = span_end(at)
    return {
        "file": at.file,
        "line": at.line,
        "column": at.column,
        "end_line": end_line,
        "end_column": end_column,
        "function": at.function,
    }


def _related(related: Related) -> dict[str, Any]:
    return {"role": related.role, **_span(related.location), "label": related.label}


def _fix(fix: Fix) -> dict[str, Any]:
    return {
        "title": fix.title,
        "edits": [_edit(edit) for edit in fix.edits],
        "safety": fix.safety,
        "deliberate": fix.deliberate,
    }


def _edit(edit: Edit) -> dict[str, Any]:
    return {
        "file": edit.file,
        "line": edit.line,
        "end_line": edit.line + len(edit.before) - 1,
        "before": list(edit.before),
        "after": list(edit.after),
    }
