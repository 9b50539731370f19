"""Every failing example fails as its page says, and every fixed one is healthy.

A page states the symptom of its example in "What happens", in one of three forms:
    The example below raises: `start of the error`
    The example below is silent: `model.part.weight` and `...` get no gradient.
    The example below is silent: no gradient is missing, ...
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
    """("raises", [the error]) or ("is silent", [the parameters without a gradient])."""
    text = explain.section(page.text, "What happens")
    (statement,) = re.findall(
        r"^The example below (raises|is silent):(.*?)(?:\n\n|\Z)", text, re.M | re.S
    )
    return statement[0], re.findall(r"`([^`]+)`", statement[1])


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
    else:
        assert outcome["raised"] is None
        assert outcome["gradients"] == dict.fromkeys(quoted, "none")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.code)
def test_the_fixed_example_trains_and_does_not_even_warn(page, outcomes):
    outcome = outcomes[page.code, "fixed"]
    assert outcome["raised"] is None
    assert set(outcome["gradients"].values()) <= {"nonzero"}


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
