"""The watch begins with the program's own `import torch`; a stand-in for torch is enough."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_helpers import FakeWatch, run_python

from whygrad.__main__ import main

Write = Callable[..., str]


@pytest.fixture
def later(
    program: Write, watch: type[FakeWatch], monkeypatch: pytest.MonkeyPatch
) -> type[FakeWatch]:
    """The watch, and a `torch.py` beside the program that has not been imported yet."""
    program("value = 1\n", "torch.py")
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    return watch


def run(script: str) -> dict[str, Any]:
    """Run the script to a good end; its report."""
    assert main(["run", "--json", "out.json", script]) == 0
    report: dict[str, Any] = json.loads(Path("out.json").read_text())
    return report


def test_the_watch_starts_between_the_import_and_the_next_line(
    later: type[FakeWatch], program: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    script = program("""
        import sys
        calls = sys.modules["whygrad.watching"].Watch.calls
        print("torch" in sys.modules, calls)
        import torch
        print(torch.value, calls)
    """)
    assert run(script)["notes"] == []
    assert capsys.readouterr().out == "False []\n1 ['start']\n"
    assert later.calls == ["start", "stop", "session"]


def test_names_taken_from_torch_are_the_watched_ones(
    later: type[FakeWatch],
    program: Write,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(later, "start", lambda self: setattr(sys.modules["torch"], "value", 2))
    run(program("from torch import value; print(value)"))
    assert capsys.readouterr().out == "2\n"


def test_no_trace_is_left_on_the_import_system(
    later: type[FakeWatch], program: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    run(
        program("""
        import sys, torch
        print([finder for finder in sys.meta_path if "whygrad" in type(finder).__module__])
        print(torch.__loader__ is torch.__spec__.loader, sorted(vars(torch.__loader__)))
        """)
    )
    assert capsys.readouterr().out == "[]\nTrue ['name', 'path']\n"


def test_a_program_without_torch(later: type[FakeWatch], program: Write) -> None:
    before = list(sys.meta_path)
    assert run(program())["notes"] == ["the program never imported torch"]
    assert later.calls == []
    assert sys.meta_path == before


def test_torch_found_at_the_second_attempt(later: type[FakeWatch], program: Write) -> None:
    Path("torch.py").unlink()
    program("value = 1", "elsewhere/torch.py")
    run(
        program("""
        import importlib, sys
        kept, sys.path = sys.path, []
        try:
            import torch
        except ModuleNotFoundError as error:
            assert error.name == "torch"
        else:
            raise AssertionError
        sys.path = ["elsewhere", *kept]
        importlib.invalidate_caches()
        import torch
        """)
    )
    assert later.calls == ["start", "stop", "session"]


def test_torch_that_can_be_imported_at_the_second_attempt(
    later: type[FakeWatch], program: Write
) -> None:
    program("import sys\nif not hasattr(sys, 'ready'):\n    raise ImportError", "torch.py")
    try:
        run(
            program("""
            import sys
            try:
                import torch
            except ImportError:
                sys.ready = True
            import torch
            """)
        )
    finally:
        del sys.ready  # type: ignore[attr-defined]
    assert later.calls == ["start", "stop", "session"]


@pytest.mark.parametrize("kind", ["ImportError", "ValueError"])
def test_a_failing_import_looks_as_it_always_does(kind: str, program: Write) -> None:
    program(f"def load():\n    raise {kind}('libtorch is broken')\nload()", "torch.py")
    script = program("""
        import traceback
        try:
            import torch
        except Exception:
            traceback.print_exc()
        import torch
    """)
    expected = run_python(script)
    assert expected[2].count("libtorch is broken") == 4
    assert run_python("-m", "whygrad", "run", "-q", script) == expected


def test_an_import_in_another_thread_is_owned_up_to(
    later: type[FakeWatch], program: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run(
        program("""
        import threading
        thread = threading.Thread(target=lambda: __import__("torch"))
        thread.start()
        thread.join()
        """)
    )
    assert later.calls == []
    assert report["notes"] == ["torch was imported outside the main thread: nothing was watched"]
    assert report["notes"][0] in capsys.readouterr().err


def test_an_import_in_a_forked_child_is_not_watched(later: type[FakeWatch], program: Write) -> None:
    run(
        program("""
        import os, sys
        child = os.fork()
        if child == 0:
            import torch
            os._exit(len(sys.modules["whygrad.watching"].Watch.calls))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """)
    )
    assert later.calls == []


def test_a_watch_that_does_not_start(
    later: type[FakeWatch], program: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    later.broken = "start"
    report = run(program("import torch; print(torch.value)"))
    out, err = capsys.readouterr()
    assert out == "1\n"
    assert (
        err == "whygrad: internal error, nothing was watched: RuntimeError: the watch is broken\n"
    )
    assert later.calls == ["start", "stop"]
    assert len(report["notes"]) == 1


def test_a_watch_that_cannot_be_imported(
    later: type[FakeWatch],
    program: Write,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "whygrad.watching", None)
    run(program("import torch; print(torch.value)"))
    out, err = capsys.readouterr()
    assert out == "1\n"
    assert err.startswith("whygrad: internal error, nothing was watched: ModuleNotFoundError")
