"""The two lines with which a page lets its reader check by hand, put into the page's examples."""

import re

from whygrad import explain

CHECK = re.compile(r"^To check by hand, right before `([^`]+)`:\n\n((?: {4}.*\n)+)", re.M)
AROUND = re.compile(
    r"^To check by hand, one line before the loop and one after it:\n\n    (.*)\n    (.*)\n", re.M
)


def outcomes(code: str) -> list[str]:
    """What becomes of the failing and of the fixed example of `code`, each with the check in it."""
    page = explain.page(code)
    return [_outcome(_with_check(page, program)) for program in (page.failing, page.fixed)]


def _outcome(program: str) -> str:
    try:
        exec(program, {})
    except AssertionError:
        return "caught"
    return "passed"


def _with_check(page: explain.Page, program: str) -> str:
    around = AROUND.search(page.text)
    if around is not None:
        before, after = around.groups()
        return program.replace("for ", f"{before}\nfor ", 1) + after + "\n"
    statement, check = CHECK.search(page.text).groups()
    lines = [line.removeprefix("    ") for line in check.splitlines()]
    assert len(lines) == 2
    changed, count = re.subn(
        rf"^( +)(?={re.escape(statement)})",
        lambda indent: "".join(f"{indent[1]}{line}\n" for line in lines) + indent[1],
        program,
        flags=re.M,
    )
    assert count == 1
    return changed
