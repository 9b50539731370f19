"""A fault of whygrad's own is noted; the program does what it does without it."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from invisible_helpers import faults, observe, run_process
from torch import nn
from workloads import graphs, kinds, optimizing, running

import whygrad
from whygrad.session import Session

FAULTS = [
    "whygrad.record.recorder.Recorder.flow",
    "whygrad.record.recorder.Recorder.exit",
    "whygrad.record.recorder.Recorder.flag",
    "whygrad.record.recorder.Recorder.source",
    "whygrad.record.recorder.Recorder.rebuilt",
    "whygrad.record.recorder.Recorder.returned",
    "whygrad.record.recorder.Recorder.node_of",
    "whygrad.record.recorder.Recorder.append",
    "whygrad.record.recorder.Recorder.shape_of",
    "whygrad.record.tensors.Tensors.put",
    "whygrad.record.adoption.adopt",
    "whygrad.record.frames.Frames.stack",
    "whygrad.record.frames.Frames.site",
    "whygrad.record.frames.Frames.relay",
    "whygrad.record.mode.role_of",
    "whygrad.record.census.take",
    "whygrad.record.asker.Asker.on_failure",
    "whygrad.record.asker.Asker.on_backward",
    "whygrad.record.asker.Asker.before_step",
    "whygrad.record.switches.ThreadSwitches.grad_switch",
    "whygrad.record.switches.SwitchTable.intern",
    "whygrad.record.watcher.Watcher._enter",
    "whygrad.watching.diagnose",
]


# Without these, warnings cannot be made to come from the program's own lines.
WITHOUT_PLACES = ("whygrad.record.frames.Frames.relay", "whygrad.record.mode.role_of")


def a_failing_backward() -> Any:
    model = nn.Linear(2, 2)
    model.requires_grad_(False).requires_grad_(True)
    try:
        model(torch.ones(2)).detach().sum().backward()
    except RuntimeError as error:
        return str(error)


def a_bit_of_everything() -> Any:
    return [
        a_failing_backward(),
        graphs.custom_functions(),
        graphs.gradient_modes(),
        graphs.warnings_of_torch(),
        kinds.numpy_and_python(),
        optimizing.conversions_that_swap_tensors(),
        running.threads_side_by_side(),
    ]


class Broken(Exception):
    """Even saying what went wrong goes wrong."""

    def __str__(self) -> str:
        raise ValueError("no words")


def _raising(kind: type[BaseException]) -> Any:
    def fault(*args: Any, **kwargs: Any) -> Any:
        raise kind("injected")

    return fault


@pytest.fixture(scope="module")
def bare() -> Any:
    observe(a_bit_of_everything, watched=False)
    return observe(a_bit_of_everything, watched=False)


@pytest.mark.parametrize("place", FAULTS)
def test_a_fault_does_no_harm(place: str, bare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        if not place.endswith("_enter"):
            patch.setattr(place, _raising(RuntimeError))
            watched = observe(a_bit_of_everything, watched=True)
        else:
            watched = _observe_with_broken_threads(patch, place)
    assert bare.exception == ""
    assert watched.exception == ""
    if place in WITHOUT_PLACES:
        assert [w[:2] for w in watched.warnings] == [w[:2] for w in bare.warnings]
        watched.warnings = bare.warnings
    assert watched == bare
    assert any("injected" in note for note in faults(watched))


def _observe_with_broken_threads(patch: pytest.MonkeyPatch, place: str) -> Any:
    def begin() -> Any:
        patch.setattr(place, _raising(RuntimeError))
        return a_bit_of_everything()

    return observe(begin, watched=True)


def test_a_fault_without_words_does_no_harm(bare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FAULTS[0], _raising(Broken))
    watched = observe(a_bit_of_everything, watched=True)
    assert watched == bare
    assert any("Broken" in note for note in faults(watched))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", [place for place in FAULTS if not place.endswith("_enter")])
def test_an_interrupt_is_never_swallowed(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, _raising(KeyboardInterrupt))
    depth = torch._C._len_torch_function_stack()
    with pytest.raises(KeyboardInterrupt), whygrad.watch(quiet=True):
        a_bit_of_everything()
    torch.set_grad_enabled(True)  # an interrupt may come before a block is entered for good
    assert torch._C._len_torch_function_stack() == depth


def test_an_interrupt_inside_torch_reaches_the_program() -> None:
    def hook(gradient: torch.Tensor) -> None:
        raise KeyboardInterrupt

    x = torch.ones(1, requires_grad=True)
    x.register_hook(hook)
    with whygrad.watch(quiet=True), pytest.raises(KeyboardInterrupt):
        (x * 2).backward()


def test_a_signal_handler_may_use_torch_in_the_middle_of_an_append() -> None:
    done = threading.Event()

    def interrupted() -> None:
        with whygrad.watch(quiet=True) as watch:
            other = threading.Thread(target=lambda: torch.ones(1).add(1))
            other.start()
            other.join()
            with watch._watch.watcher.recorder.lock:  # as if a signal came while it is held
                torch.ones(1).add(1)
        done.set()

    threading.Thread(target=interrupted, daemon=True).start()
    assert done.wait(20)


PROGRAM = """
import pkgutil
import sys
import torch

def fault(*args, **kwargs):
    raise RuntimeError("injected")

if "whygrad" in sys.modules:
    owner, _, name = sys.argv[1].rpartition(".")
    setattr(pkgutil.resolve_name(owner), name, fault)

weight = torch.nn.Parameter(torch.ones(2))
for step in range(2):
    loss = (weight * 2).sum()
    loss.backward()
    print(loss.item(), weight.grad.tolist())
(weight * 2).detach().sum().backward()
"""


@pytest.fixture(scope="module")
def bare_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[int, str, str]]:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "prog.py").write_text(PROGRAM)
    return folder, run_process(sys.executable, "prog.py", "nothing", cwd=folder)


@pytest.mark.parametrize(
    "place",
    [
        "whygrad.record.recorder.Recorder.flow",
        "whygrad.watching.diagnose",
        "whygrad.watching.Watch.session",
    ],
)
def test_a_fault_in_a_run_does_no_harm(
    place: str, bare_run: tuple[Path, tuple[int, str, str]]
) -> None:
    folder, (code, out, err) = bare_run
    command = [sys.executable, "-m", "whygrad", "run", "--save", "session.json", "prog.py", place]
    watched_code, watched_out, watched_err = run_process(*command, cwd=folder)
    assert code == 1
    assert "does not require grad" in err
    assert (watched_code, watched_out) == (code, out)
    assert watched_err.startswith(err)
    session = json.loads((folder / "session.json").read_text())
    assert any("injected" in note for note in session["notes"])


def test_the_session_of_a_faulty_watch_can_still_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FAULTS[0], _raising(RuntimeError))
    with whygrad.watch(quiet=True) as watch:
        torch.ones(1) * 2
    assert isinstance(watch.session, Session)
    assert watch.findings == []
