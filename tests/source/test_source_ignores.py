from __future__ import annotations

from pathlib import Path

import pytest
from source_helpers import write

from whygrad.source.ignores import ignored_codes

SOURCE = '''
x = 1  # whygrad: ignore[detach-call]
x = f(  # whygrad: ignore[one, two]
    1,
    2)  # whygrad: ignore
text = "# whygrad: ignore"
y = """
# whygrad: ignore[three]
"""
def f():  # whygrad: ignore[four]
    é = 1  # noqa  # WHY  # whygrad:ignore[ five ]
    return 1
@g  # whygrad: ignore[six]
def h(
    a  # whygrad: ignored, but not by this
): return [
    1  # whygrad: ignore[seven
]
with a:  # whygrad: ignore[]

    b = 1
if a: b = 2  # whygrad: ignore[eight]
'''


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        (1, {"detach-call"}),
        (2, {"one", "two"}),
        (3, {"one", "two"}),
        (4, {"one", "two", "*"}),
        (5, set()),
        (7, set()),
        (9, {"four"}),
        (10, {"five"}),
        (11, set()),
        (12, {"six"}),
        (14, set()),
        (16, set()),
        (18, set()),
        (20, set()),
        (21, {"eight"}),
        (99, set()),
    ],
)
def test_ignored_codes(tmp_path: Path, line: int, codes: set[str]) -> None:
    assert ignored_codes(write(tmp_path, SOURCE), line) == codes


def test_comments_before_a_syntax_error_still_count(tmp_path: Path) -> None:
    file = write(tmp_path, "x = 1  # whygrad: ignore[a]\ny = ((\n")
    assert ignored_codes(file, 1) == {"a"}
    assert ignored_codes(file, 2) == frozenset()


def test_missing_file() -> None:
    assert ignored_codes("no such file.py", 1) == frozenset()
