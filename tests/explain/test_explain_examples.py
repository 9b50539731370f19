"""Every failing example fails as its page says, and every fixed one is healthy.

A page states the symptom of its example in "What happens", in one of these forms:
    The example below raises: `start of the error`
    The example below warns: `start of the warning`
    The example below is silent: `model.part.weight` and `...` get no gradient.
    The example below is silent: `model.part.weight` gets no gradient but zeros.
    The example below is silent: `model.part.weight` gets a gradient of NaN.
    The example below is silent: no gradient is missing, ...
    The example below is silent: it prints `a line` and `...`
"""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from whygrad import explain

PAGES = [explain.page(code) for code in explain.codes()]
RUNNER = Path(__file__).with_name("run_examples.py")


def symptom(page: explain.Page) -> tuple[str, list[str]]:
    """What happens and what is quoted: a message, printed lines, parameters without a gradient."""
    text = explain.section(page.text, "What happens")
    (statement,) = re.findall(
        r"^The example below (raises|warns|is silent: it prints|is silent)\b(.*?)(?:\n\n|\Z)",
        text,
        re.M | re.S,
    )
    return statement[0], re.findall(r"`([^`]+)`", statement[1])


def gradient_named(page: explain.Page) -> str:
    text = " ".join(explain.section(page.text, "What happens").split())
    endings = {"no gradient but zeros.": "zero", "a gradient of NaN.": "nan"}
    return next((state for ending, state in endings.items() if ending in text), "none")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What became of each example, by code and kind."""
    folder = tmp_path_factory.mktemp("examples")
    keys, requests = [], []
    for page in PAGES:
        kind, quoted = symptom(page)
        for name, program in (("failing", page.failing), ("fixed", page.fixed)):
            path = folder / f"{page.code}.{name}.py"
            path.write_text(program, encoding="utf-8")
            keys.append((page.code, name))
            requests.append(
                {
                    "path": str(path),
                    "parameters": quoted if kind == "is silent" else [],
                    "strict": name == "fixed",
                }
            )
    finished = subprocess.run(
        [sys.executable, str(RUNNER)],
        input=json.dumps(requests),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(zip(keys, json.loads(finished.stdout), strict=True))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.code)
def test_the_failing_example_fails_as_the_page_says(page, outcomes):
    outcome = outcomes[page.code, "failing"]
    kind, quoted = symptom(page)
    assert quoted or "is silent: no gradient is missing" in page.text
    if kind == "raises":
        (message,) = quoted
        assert outcome["raised"] is not None
        assert outcome["raised"].startswith(message)
        return
    assert outcome["raised"] is None
    if kind == "warns":
        (message,) = quoted
        assert [warning for warning in outcome["warned"] if warning.startswith(message)]
    elif kind == "is silent: it prints":
        assert [line for line in quoted if line not in outcome["printed"]] == []
        assert outcome["warned"] == []
    else:
        assert outcome["gradients"] == dict.fromkeys(quoted, gradient_named(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.code)
def test_the_fixed_example_trains_and_does_not_even_warn(page, outcomes):
    outcome = outcomes[page.code, "fixed"]
    assert outcome["raised"] is None
    assert set(outcome["gradients"].values()) <= {"nonzero"}
    assert not set(symptom(page)[1]) & set(outcome["printed"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.code)
def test_the_fixed_example_ends_with_an_assertion_on_gradients(page):
    assertions = [node for node in ast.parse(page.fixed).body if isinstance(node, ast.Assert)]
    assert isinstance(ast.parse(page.fixed).body[-1], ast.Assert)
    assert any(".grad" in ast.unparse(node) for node in assertions)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.code)
def test_examples_are_short_and_differ(page):
    for program in (page.failing, page.fixed):
        assert 10 <= len(program.splitlines()) <= 25
        assert max(map(len, program.splitlines())) <= 88
    assert page.failing != page.fixed
