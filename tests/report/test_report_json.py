"""The JSON report and the schema that describes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import report_sessions as sessions
from jsonschema import Draft202012Validator, ValidationError
from report_builders import Sources

from whygrad.report import draw, load_schema, schema_path, to_json
from whygrad.session import Edit, Session

VALIDATOR = Draft202012Validator(load_schema())


def test_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(load_schema())
    assert schema_path().name == "whygrad-report-1.schema.json"


def test_schema_describes_every_property() -> None:
    schema = load_schema()
    bare = [
        f"{owner}.{name}"
        for owner, kind in {"report": schema, **schema["$defs"]}.items()
        for name, value in kind["properties"].items()
        if "description" not in value and "$ref" not in value
    ]
    assert bare == []


@pytest.mark.parametrize("build", sessions.ALL, ids=lambda build: build.__name__)
def test_every_report_is_valid(build: Callable[[], Session]) -> None:
    text = draw(build(), "json")
    assert text.isascii()
    assert [error.message for error in VALIDATOR.iter_errors(json.loads(text))] == []
    assert json.loads(text) == to_json(build())


def test_keys_of_a_finding() -> None:
    report = to_json(sessions.detach_call())
    assert list(report) == [
        *("schema", "whygrad", "torch", "program", "findings", "parameters"),
        *("steps", "overhead", "notes"),
    ]
    finding = report["findings"][0]
    assert finding["related"][1] == {
        "role": "surfaced",
        "file": Sources.path("train"),
        "line": 27,
        "column": 5,
        "end_line": 27,
        "end_column": 20,
        "function": "",
        "label": "RuntimeError: element 0 of tensors does not require grad and does not have a"
        " grad_fn",
    }
    assert finding["fix"]["edits"] == [
        {
            "file": Sources.path("pooling"),
            "line": 19,
            "end_line": 19,
            "before": ["    x = x.detach()"],
            "after": [],
        }
    ]
    assert finding["location"]["text"] == "x = x.detach()"
    assert finding["hidden_operations"] == 4


def test_an_insertion_ends_before_it_begins() -> None:
    session = sessions.detach_call()
    fix = session.findings[0].fix
    assert fix is not None
    fix.edits = [Edit("a.py", 1, [], ["import torch"])]
    edit = to_json(session)["findings"][0]["fix"]["edits"][0]
    assert (edit["line"], edit["end_line"]) == (1, 0)
    VALIDATOR.validate(to_json(session))


def test_what_is_not_finite_is_left_out() -> None:
    session = sessions.healthy()
    session.overhead = {"ratio": float("nan"), "seconds": 0.5}
    assert to_json(session)["overhead"] == {"seconds": 0.5}
    assert "NaN" not in draw(session, "json")


def test_every_parameter_is_in_the_report() -> None:
    session = sessions.dead_unit_and_left_out_head()
    session.parameters[1].file, session.parameters[1].line = "/data/net.py", 7
    rows = to_json(session)["parameters"]
    assert [row["name"] for row in rows] == [state.name for state in session.parameters]
    assert rows[1] == {
        "name": "encoder.0.weight",
        "shape": [64, 64],
        "requires_grad": True,
        "gradient": "flows",
        "norm": 0.041267,
        "optimizer": "AdamW",
        "moved": True,
        "reason": "",
        "file": "/data/net.py",
        "line": 7,
    }
    assert rows[0]["moved"] is None
    assert [row["norm"] for row in rows if row["gradient"] == "non-finite"] == [None, None]


def test_parameters_survive_saving(tmp_path: Path) -> None:
    session = sessions.cleared_before_the_step()
    session.save(tmp_path / "saved")
    assert Session.load(tmp_path / "saved").parameters == session.parameters


def drop(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda report: report.pop(key)


def change(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda report: report["findings"][0].update(values)


@pytest.mark.parametrize(
    "spoil",
    [
        drop("findings"),
        drop("torch"),
        lambda report: report.update(schema=2),
        lambda report: report.update(graph=[]),
        lambda report: report["program"].update(exit_code="1"),
        lambda report: report["findings"][0].pop("fix"),
        change(severity="fatal"),
        change(symptom="loud"),
        change(code="Detach Call"),
        change(count=0),
        change(checked="it is the only cut"),
        change(surprise=True),
        lambda report: report["findings"][0]["location"].update(column=0),
        lambda report: report["findings"][0]["related"][0].update(location={}),
        lambda report: report["findings"][0]["path"][0].update(state="dead"),
        lambda report: report["findings"][0]["path"][0].update(shape="[32, 64]"),
        lambda report: report["findings"][0]["fix"]["edits"][0].update(line=0),
        drop("parameters"),
        lambda report: report["parameters"][0].pop("moved"),
        lambda report: report["parameters"][0].update(gradient="some"),
        lambda report: report["parameters"][0].update(norm=-1.0),
        lambda report: report["parameters"][0].update(moved="yes"),
        lambda report: report["parameters"][0].update(surprise=True),
    ],
)
def test_wrong_reports_are_refused(spoil: Callable[[dict[str, Any]], object]) -> None:
    session = sessions.detach_call()
    session.parameters = sessions.dead_unit_and_left_out_head().parameters
    report = to_json(session)
    VALIDATOR.validate(report)
    spoil(report)
    with pytest.raises(ValidationError):
        VALIDATOR.validate(report)
