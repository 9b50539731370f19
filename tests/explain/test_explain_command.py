"""`whygrad explain`, as a user calls it."""

import argparse
import io
import os
import subprocess
import sys

import pytest

from whygrad import explain
from whygrad.commands import explain as command


def run(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(argv))


class Terminal(io.TextIOWrapper):
    """A terminal of the given encoding that keeps what is written to it."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)

    def isatty(self) -> bool:
        return True

    def written(self) -> str:
        return self.buffer.getvalue().decode(self.encoding)


def test_a_code_prints_its_page_as_it_is(capsys):
    assert run("left-torch") == 0
    output = capsys.readouterr()
    assert output.out == explain.page("left-torch").text
    assert output.err == ""


def test_without_a_code_all_are_listed_in_two_columns(capsys):
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == explain.codes()
    summaries = [explain.page(code).summary for code in explain.codes()]
    assert [line[-len(s) :] for line, s in zip(lines, summaries, strict=True)] == summaries
    assert len({len(line) - len(s) for line, s in zip(lines, summaries, strict=True)}) == 1


def test_an_unknown_code_is_answered_in_one_line_with_the_close_ones(capsys):
    assert run("frozen") == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "whygrad: no page for 'frozen'; did you mean frozen-parameters?\n"


def test_without_close_codes_the_answer_tells_where_to_look(capsys):
    assert run("qqqqqq") == 2
    expected = "whygrad: no page for 'qqqqqq'; `whygrad explain` lists all codes\n"
    assert capsys.readouterr().err == expected


def test_a_terminal_gets_the_page_drawn(monkeypatch):
    terminal = Terminal("utf-8")
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert run("no-grad-block") == 0
    assert "What happens" in terminal.written()
    assert "## What happens" not in terminal.written()


def test_a_terminal_without_unicode_gets_plain_text(monkeypatch):
    terminal = Terminal("ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert run("no-grad-block") == 0
    assert terminal.written() == explain.page("no-grad-block").text


@pytest.mark.parametrize("code", ["", "detach-call"])
def test_a_reader_that_has_left_is_no_error(code):
    program = (
        "import argparse, sys\n"
        "from whygrad.commands import explain\n"
        f"sys.exit(explain.run(argparse.Namespace(code={[code] if code else []!r})))\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        finished = subprocess.run(
            [sys.executable, "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert finished.stderr == ""
    assert finished.returncode == 0
