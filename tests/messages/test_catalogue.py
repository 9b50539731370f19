"""The catalogue itself: complete entries, and every wording of every version is recognised."""

from __future__ import annotations

import re

import pytest
from trigger_cases import simulated, triggers

from whygrad import catalogue, explain
from whygrad.catalogue import Message
from whygrad.diagnose.engine import all_rules

MESSAGES = catalogue.messages()
each = pytest.mark.parametrize("message", MESSAGES, ids=lambda m: m.id)
WORDINGS = [(m, torch, text) for m in MESSAGES for torch, text in m.wordings]


def test_ids_are_unique_and_nothing_got_lost() -> None:
    ids = [message.id for message in MESSAGES]
    assert len(ids) == len(set(ids))
    assert len(ids) >= 325


def test_every_message_is_tried() -> None:
    tried = {trigger.id for trigger in triggers()} | {entry.id for entry in simulated()}
    assert tried == {message.id for message in MESSAGES}


@each
def test_an_entry_says_what_it_must(message: Message) -> None:
    assert message.meaning and message.causes and message.codes
    assert set(message.codes) <= set(explain.codes()) | set(all_rules())
    if message.told_by:
        assert message.told_by in all_rules()
        assert message.told_by in message.codes
        assert message.title and message.fix
        assert not message.title.endswith(".") and not message.fix.endswith(".")
    if message.is_warning:
        assert message.severity in ("warning", "info", "")


@each
def test_placeholders_are_words_and_not_code(message: Message) -> None:
    for text in (message.title, message.label, message.fix):
        assert not re.search(r"\{(?!\w+\})", text)


@pytest.mark.parametrize(("message", "torch", "text"), WORDINGS)
def test_other_versions_of_torch_are_understood(message: Message, torch: str, text: str) -> None:
    assert re.fullmatch(r"2\.\d+( to 2\.\d+| and newer)?", torch)
    assert catalogue.find(text, message.exception) is message


def test_an_error_is_not_taken_for_a_warning() -> None:
    text = "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed."
    assert catalogue.find(text, "UserWarning") is not None
    assert catalogue.find(text, "RuntimeError") is None
