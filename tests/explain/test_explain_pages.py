"""The shape of the pages, and looking them up."""

import re
import subprocess
import sys

import pytest

from whygrad import explain

CODES = explain.codes()


def test_the_cut_graph_causes_have_pages():
    assert set(CODES) >= {
        "detach-call",
        "no-grad-block",
        "left-torch",
        "rebuilt-tensor",
        "non-differentiable-op",
        "requires-grad-off",
        "frozen-parameters",
        "inference-tensor",
    }


def test_codes_are_sorted_unique_and_kebab_case():
    assert sorted(set(CODES)) == CODES
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in CODES)


@pytest.mark.parametrize("code", CODES)
def test_a_page_has_its_title_and_all_sections_in_order(code):
    page = explain.page(code)
    assert page.text.startswith(f"# {code}: {page.summary}\n")
    assert page.code == code
    assert re.findall(r"^## (.*)$", page.text, re.M) == list(explain.SECTIONS)
    assert all(explain.section(page.text, heading) for heading in explain.SECTIONS)


@pytest.mark.parametrize("code", CODES)
def test_a_summary_reads_as_a_headline(code):
    summary = explain.page(code).summary
    assert summary[0].islower()
    assert not summary.endswith(".")
    assert len(summary) <= 72


def test_summaries_are_distinct():
    assert len({explain.page(code).summary for code in CODES}) == len(CODES)


@pytest.mark.parametrize("code", CODES)
def test_a_page_is_ascii_so_that_every_terminal_can_print_it(code):
    assert explain.page(code).text.isascii()


@pytest.mark.parametrize("code", CODES)
def test_there_is_one_program_per_example_and_none_elsewhere(code):
    page = explain.page(code)
    programs = re.findall(r"^```python\n(.*?)^```$", page.text, re.M | re.S)
    assert programs == [page.failing, page.fixed]


@pytest.mark.parametrize("code", CODES)
def test_a_page_tells_how_to_silence_its_code(code):
    deliberate = explain.section(explain.page(code).text, "When it is deliberate")
    assert f"`# whygrad: ignore[{code}]`" in deliberate


@pytest.mark.parametrize("code", CODES)
def test_a_page_refers_to_other_pages_that_exist(code):
    related = explain.section(explain.page(code).text, "See also")
    mentioned = re.findall(r"`whygrad explain ([a-z-]+)`", related)
    assert mentioned
    assert code not in mentioned
    assert set(mentioned) <= set(CODES)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("detach", ["detach-call", "numpy-needs-detach"]),
        ("detach_call", ["detach-call"]),
        ("Frozen", ["frozen-parameters"]),
        ("inference-tensors", ["inference-tensor", "integer-tensor"]),
        ("qqqqqq", []),
        ("", []),
        ("../pages/detach-call", ["detach-call"]),
    ],
)
def test_an_unknown_code_carries_the_close_ones(asked, expected):
    with pytest.raises(explain.UnknownCode) as caught:
        explain.page(asked)
    assert caught.value.code == asked
    assert caught.value.matches == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("What is this?", "starts with"),
        ("# some-code: summary\n\n## Failing example\n\nnone yet\n", "'## Failing example'"),
    ],
)
def test_a_malformed_page_is_refused_with_a_reason(text, reason):
    with pytest.raises(ValueError, match=reason):
        explain.parse(text)


def test_explain_does_not_import_torch():
    program = (
        "import sys, whygrad.commands.explain as command, whygrad.explain as explain;"
        "[explain.page(code) for code in explain.codes()];"
        "sys.exit('torch' in sys.modules or 'rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
