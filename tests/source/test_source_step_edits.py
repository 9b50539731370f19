from __future__ import annotations

from pathlib import Path

import pytest
from source_helpers import find, write

from whygrad.session import Edit
from whygrad.source import step_edits


def applied(file: str, found: list[Edit]) -> str | None:
    """The whole text after an edit; None if there is none."""
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    for edit in found:
        start = edit.line - 1
        assert lines[start : start + len(edit.before)] == edit.before
        lines[start : start + len(edit.before)] = edit.after
    return "\n".join(lines) if found else None


LOOP = """\
for x in y:
    if x:
        loss.backward()  # now
    opt.step()
"""


def test_a_line_before_a_statement(tmp_path: Path) -> None:
    file = write(tmp_path, LOOP)
    edits = step_edits.insert_before(find(file, "loss.backward()"), "opt.zero_grad()")
    expected = LOOP.replace("        loss", "        opt.zero_grad()\n        loss")
    assert applied(file, edits) == expected.rstrip("\n")


def test_a_line_behind_a_statement(tmp_path: Path) -> None:
    file = write(tmp_path, LOOP)
    edits = step_edits.insert_after(find(file, "loss.backward()"), "opt.zero_grad()")
    expected = LOOP.replace("# now\n", "# now\n        opt.zero_grad()\n")
    assert applied(file, edits) == expected.rstrip("\n")


def test_a_line_behind_a_statement_over_several_lines(tmp_path: Path) -> None:
    file = write(tmp_path, "for x in y:\n    opt.step(\n        x,\n    )\n")
    edits = step_edits.insert_after(find(file, "opt.step(\n        x,\n    )"), "f()")
    assert applied(file, edits) == "for x in y:\n    opt.step(\n        x,\n    )\n    f()"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("if x: loss.backward()\n", "loss.backward()"),
        ("a = 1; loss.backward()\n", "loss.backward()"),
        ("for x in f(y):\n    pass\n", "f(y)"),
    ],
)
def test_no_line_where_it_would_need_more_than_that(tmp_path: Path, text: str, at: str) -> None:
    file = write(tmp_path, text)
    assert step_edits.insert_before(find(file, at), "opt.zero_grad()") == []
    assert step_edits.insert_after(find(file, at), "opt.zero_grad()") == []


def test_no_line_behind_the_end_of_a_function(tmp_path: Path) -> None:
    file = write(tmp_path, "def f():\n    return opt.step()\n")
    assert step_edits.insert_after(find(file, "opt.step()"), "opt.zero_grad()") == []
    assert step_edits.insert_before(find(file, "opt.step()"), "opt.zero_grad()") != []


def test_no_line_that_is_not_python(tmp_path: Path) -> None:
    file = write(tmp_path, LOOP)
    assert step_edits.insert_after(find(file, "opt.step()"), "the optimizer.zero_grad()") == []


STEP = """\
def step(loss):
    loss.backward()
    opt.zero_grad()  # fresh
    if ready:
        clip(model)
        opt.step()
    return loss
"""


def test_a_line_moves_up(tmp_path: Path) -> None:
    file = write(tmp_path, STEP)
    edits = step_edits.move_before(find(file, "opt.zero_grad()"), find(file, "loss.backward()"))
    lines = STEP.splitlines()
    assert applied(file, edits) == "\n".join([lines[0], lines[2], lines[1], *lines[3:]])


def test_a_line_moves_down_into_a_block(tmp_path: Path) -> None:
    file = write(tmp_path, STEP)
    edits = step_edits.move_after(find(file, "opt.zero_grad()"), find(file, "opt.step()"))
    lines = STEP.splitlines()
    moved = "        opt.zero_grad()  # fresh"
    assert applied(file, edits) == "\n".join([*lines[:2], *lines[3:6], moved, lines[6]])


def test_a_line_moves_up_out_of_a_block(tmp_path: Path) -> None:
    file = write(tmp_path, STEP)
    edits = step_edits.move_before(find(file, "clip(model)"), find(file, "loss.backward()"))
    lines = STEP.splitlines()
    assert applied(file, edits) == "\n".join([lines[0], "    clip(model)", *lines[1:4], *lines[5:]])


def test_no_move_that_leaves_a_block_empty(tmp_path: Path) -> None:
    file = write(tmp_path, "for x in y:\n    if x:\n        f()\n    g()\n")
    assert step_edits.move_after(find(file, "f()"), find(file, "g()")) == []


def test_no_move_behind_a_return(tmp_path: Path) -> None:
    file = write(tmp_path, "def f():\n    g()\n    return h()\n")
    assert step_edits.move_after(find(file, "g()"), find(file, "h()")) == []
    assert step_edits.move_before(find(file, "g()"), find(file, "h()")) == []  # it is there


def test_no_move_over_pages(tmp_path: Path) -> None:
    text = "def f():\n    g()\n" + "    x = 1\n" * 40 + "    h()\n    return x\n"
    file = write(tmp_path, text)
    assert step_edits.move_after(find(file, "g()"), find(file, "h()")) == []


def test_no_move_of_several_lines(tmp_path: Path) -> None:
    file = write(tmp_path, "for x in y:\n    clip(\n        x,\n    )\n    g()\n    h()\n")
    assert step_edits.move_after(find(file, "clip(\n        x,\n    )"), find(file, "h()")) == []


def test_a_call_gets_its_parentheses(tmp_path: Path) -> None:
    file = write(tmp_path, "for x in y:\n    self.opt.step  # move\n    f = opt.step\n")
    edits = step_edits.add_parentheses(find(file, "self.opt.step"))
    assert applied(file, edits) == "for x in y:\n    self.opt.step()  # move\n    f = opt.step"
    assert step_edits.add_parentheses(find(file, "opt.step", 1)) == []


def test_a_call_on_something_else(tmp_path: Path) -> None:
    file = write(tmp_path, "for x in y:\n    opt_d.zero_grad(True)\n    zero_grad(x)\n")
    edits = step_edits.replace_receiver(find(file, "opt_d.zero_grad(True)"), "self.opt_g")
    assert applied(file, edits) == "for x in y:\n    self.opt_g.zero_grad(True)\n    zero_grad(x)"
    assert step_edits.replace_receiver(find(file, "zero_grad(x)"), "opt_g") == []
