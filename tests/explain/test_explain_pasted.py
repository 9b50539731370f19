"""A message of torch's that somebody pastes, whole, in part, or with everything around it."""

from __future__ import annotations

import io
import sys

import pytest

from whygrad import catalogue, explain
from whygrad.__main__ import main
from whygrad.explain import pasted

NO_GRAPH = "element 0 of tensors does not require grad and does not have a grad_fn"
TRACEBACK = f"""\
Traceback (most recent call last):
  File "/home/me/train.py", line 41, in <module>
    main()
  File "/home/me/train.py", line 30, in main
    loss.backward()
  File "/home/me/env/lib/python3.11/site-packages/torch/_tensor.py", line 623, in backward
    torch.autograd.backward(
  File "/home/me/env/lib/python3.11/site-packages/torch/autograd/__init__.py", line 395, in backward
    _engine_run_backward(
RuntimeError: {NO_GRAPH}
"""


@pytest.mark.parametrize(
    "text",
    [
        NO_GRAPH,
        f"RuntimeError: {NO_GRAPH}",
        TRACEBACK,
        TRACEBACK + "\nwandb: run finished\n",
        "[rank1]: RuntimeError: element 3 of tensors does not require grad and does not have a "
        "grad_fn",
        "RuntimeError: element 0 of tensors does not require\n   grad and does not have a grad_fn",
        "RuntimeError: element 0 of tensors ...",
        "element 0 of tensors does not require grad",
        "ValueError: config\nDuring handling of the above exception:\n" + TRACEBACK,
    ],
)
def test_it_is_known_however_it_is_pasted(text: str) -> None:
    found = pasted.read(text)
    assert found.message is not None
    assert found.message.id == "no-grad-path"


def test_the_line_of_the_users_own_is_taken_from_the_traceback() -> None:
    assert pasted.read(TRACEBACK).place == "/home/me/train.py:30"
    assert pasted.read(NO_GRAPH).place == ""


def test_a_warning_with_its_place_is_known() -> None:
    found = pasted.read(
        "train.py:12: UserWarning: The .grad attribute of a Tensor that is not a leaf Tensor is "
        "being accessed. Its .grad attribute won't be populated\n  print(w.grad)"
    )
    assert found.kind == "UserWarning"
    assert found.message is not None and found.message.id == "non-leaf-grad-access"


# One message is whatever the program has told torch to say.
OF_TORCH = [m for m in catalogue.messages() if m.id != "saved-hooks-disabled"]


@pytest.mark.parametrize("message", OF_TORCH, ids=lambda m: m.id)
def test_every_message_is_found_by_its_own_words(message: catalogue.Message) -> None:
    """With the variable parts filled in by something; messages that say the same may stand in."""
    found = pasted.read(f"{message.exception}: {message.template}")
    assert found.message is not None
    ids = [found.message.id, *(other.id for other in found.similar)]
    also = [other.id for other in catalogue.candidates(message.template)]
    assert message.id in ids or message.id in also


def test_causes_come_in_order_and_codes_lead_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"RuntimeError: {NO_GRAPH}"]) == 0
    out = capsys.readouterr().out
    message = catalogue.by_id("no-grad-path")
    assert message is not None
    places = [out.index(cause) for cause in message.causes]
    assert places == sorted(places)
    assert all(f"whygrad explain {code}" in out for code in message.codes)
    assert "whygrad run" in out


def test_words_without_quotes_are_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *NO_GRAPH.split()]) == 0
    assert NO_GRAPH in capsys.readouterr().out


def test_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(TRACEBACK))
    assert main(["explain", "-"]) == 0
    out = capsys.readouterr().out
    assert NO_GRAPH in out
    assert "/home/me/train.py:30" in out


def test_an_unknown_message_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", "ValueError: the cake is a lie"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ["whygrad: this message is not in the catalogue"]


def test_what_comes_close_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    text = "RuntimeError: gradient can be created implicitly only for outputs that are scalar"
    assert main(["explain", text]) == 2
    assert "did you mean" in capsys.readouterr().err


def test_a_message_is_known_by_its_id_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "backward-twice"]) == 0
    assert "a second time" in capsys.readouterr().out


def test_a_code_is_no_message() -> None:
    assert not any(pasted.is_message(code) for code in explain.codes())
