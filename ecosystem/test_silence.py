"""Healthy programs around other libraries: nothing is found, and they run as they do bare."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from runs import Run, run, run_as_typed
from tiny_models import MODELS

CHECKPOINTED = "bert deberta-v2 gpt2 llama mixtral opt t5 bart whisper wav2vec2 vit clip".split()
ADAPTED = "roberta distilbert llama mixtral qwen2 opt t5 bart whisper wav2vec2 vit".split()
WITH_OWN_HEAD = "bert roberta albert electra distilbert gpt2 qwen2 wav2vec2 vit vit-mae".split()

PROGRAMS = [
    *product(["loop.py"], MODELS),
    *product(["trainer.py"], MODELS, ["1"]),
    *product(["trainer.py"], CHECKPOINTED, ["2"]),
    *product(["checkpointed.py"], CHECKPOINTED, ["reentrant", "not-reentrant"]),
    *product(["micro_batches.py"], MODELS),
    *product(["adapters.py"], ADAPTED),
    *product(["own_head.py"], WITH_OWN_HEAD, ["trained", "frozen"]),
    *product(["teacher.py"], ["bert", "llama", "distilbert", "vit"]),
    *product(["soft_prompt.py"], ["gpt2", "llama", "mixtral"]),
    *product(["accelerated.py"], ["bert", "mixtral", "vit"]),
    ("lightning_automatic.py",),
    ("lightning_manual.py",),
]


# In these the libraries are imported under watch as well, as in real life.
TYPED = [("trainer.py", "bert", "1"), ("lightning_automatic.py",)]


@pytest.mark.parametrize("command", PROGRAMS, ids=" ".join)
def test_nothing_is_found(command: tuple[str, ...], tmp_path: Path) -> None:
    bare = run(command, tmp_path / "bare", watched=False)
    assert_silent(run(command, tmp_path / "watched", watched=True), bare)


@pytest.mark.parametrize("command", TYPED, ids=" ".join)
def test_nothing_is_found_as_typed(command: tuple[str, ...], tmp_path: Path) -> None:
    bare = run_as_typed(command, tmp_path / "bare", watched=False)
    assert_silent(run_as_typed(command, tmp_path / "watched", watched=True), bare)


def test_a_mistake_among_all_this_is_found(tmp_path: Path) -> None:
    watched = run(["stale_head.py", "vit"], tmp_path / "watched", watched=True)
    (finding,) = watched.judged
    assert finding.startswith("optimizer-holds-old-parameters in stale_head.py:14: ")
    assert "classifier" in finding


def assert_silent(watched: Run, bare: Run) -> None:
    assert bare.exit_code == 0, bare.stderr
    assert watched.exit_code == 0, watched.stderr
    assert watched.stdout == bare.stdout
    assert watched.report["notes"] == []
    assert watched.report["steps"] >= 5
    assert watched.judged == []
