from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whygrad.commands.tracebacks import clean_exception, clean_traceback

OWN = "/site/whygrad"

USER = "/home/me/train.py"
TENSOR = "/site/torch/_tensor.py"
OVERRIDES = "/site/torch/overrides.py"
AUTOGRAD = "/site/torch/autograd/__init__.py"
HANDLER = f"{OWN}/record/mode.py"


def function(file: str, name: str, body: str, **names: Any) -> Callable[..., Any]:
    """A function that seems to live in `file`."""
    exec(compile(f"def {name}(*args):\n    {body}", file, "exec"), names)
    made: Callable[..., Any] = names[name]
    return made


def caught(call: Callable[..., Any]) -> BaseException:
    try:
        call()
    except BaseException as error:
        # The frame of this test is no part of the story.
        assert error.__traceback__ is not None
        return error.with_traceback(error.__traceback__.tb_next)
    raise AssertionError("nothing was raised")


def story(error: BaseException) -> list[tuple[str, str]]:
    """(file, function) of what is left of the traceback."""
    frames = traceback.extract_tb(clean_traceback(error.__traceback__, OWN))
    return [(frame.filename, frame.name) for frame in frames]


def test_own_frames_go_wherever_they_are() -> None:
    fail = function(USER, "fail", "raise ValueError")
    wrap = function(f"{OWN}/a.py", "wrap", "inner()", inner=fail)
    twice = function(f"{OWN}/b.py", "twice", "inner()", inner=wrap)
    train = function(USER, "train", "inner()", inner=twice)
    runner = function(f"{OWN}/commands/runner.py", "runner", "inner()", inner=train)
    assert story(caught(runner)) == [(USER, "train"), (USER, "fail")]


def test_only_the_package_itself_counts_as_own() -> None:
    fail = function("/site/whygrad_plugin/x.py", "fail", "raise ValueError")
    error = caught(function("/home/whygrad/train.py", "train", "fail()", fail=fail))
    assert [name for _, name in story(error)] == ["train", "fail"]
    assert clean_traceback(error.__traceback__, OWN) is error.__traceback__


def test_the_first_appearance_of_a_reentered_function_goes() -> None:
    # What torch does for a function of its own while a mode is on: it hands itself over.
    raising = function(AUTOGRAD, "backward", "raise RuntimeError('no grad')")
    handler = function(HANDLER, "__torch_function__", "args[0](False)")
    reenter = function(OVERRIDES, "handle_torch_function", "handler(*args)", handler=handler)
    names: dict[str, Any] = {"reenter": reenter, "raising": raising}
    body = "raising() if args else reenter(names['backward'])"
    names["backward"] = backward = function(TENSOR, "backward", body, names=names, **names)
    error = caught(function(USER, "train", "backward()", backward=backward))
    assert len(traceback.extract_tb(error.__traceback__)) == 6
    assert story(error) == [(USER, "train"), (TENSOR, "backward"), (AUTOGRAD, "backward")]


def test_a_function_that_calls_itself_through_us_stays() -> None:
    names: dict[str, Any] = {}
    wrapper = function(HANDLER, "wrapper", "names['step'](1)", names=names)
    step = function(USER, "step", "1 / 0 if args else wrapper()", wrapper=wrapper)
    names["step"] = step
    assert story(caught(step)) == [(USER, "step"), (USER, "step")]


def test_overrides_without_us_stay() -> None:
    fail = function(USER, "their_torch_function", "raise ValueError")
    reenter = function(OVERRIDES, "handle_torch_function", "fail()", fail=fail)
    kept = [(OVERRIDES, "handle_torch_function"), (USER, "their_torch_function")]
    assert story(caught(reenter)) == kept


def test_an_error_in_the_call_itself() -> None:
    handler = function(HANDLER, "__torch_function__", "len()")
    reenter = function(OVERRIDES, "handle_torch_function", "handler()", handler=handler)
    error = caught(function(TENSOR, "norm", "reenter()", reenter=reenter))
    assert story(error) == [(TENSOR, "norm")]


def test_nothing_but_own_frames_leaves_nothing() -> None:
    error = caught(function(f"{OWN}/a.py", "compiles", "raise SyntaxError"))
    assert clean_traceback(error.__traceback__, OWN) is None
    assert clean_traceback(None, OWN) is None


def test_lines_and_columns_survive() -> None:
    fail = function(USER, "fail", "\n    value = 1 + (1 / 0)")
    error = caught(function(HANDLER, "wrap", "fail()", fail=fail))
    assert error.__traceback__ is not None
    whole = list(traceback.extract_tb(error.__traceback__))[-1]
    (kept,) = traceback.extract_tb(clean_traceback(error.__traceback__, OWN))
    assert (kept.lineno, kept.colno, kept.end_colno) == (whole.lineno, whole.colno, whole.end_colno)
    assert kept.lineno == 3


def test_chained_and_grouped_exceptions_are_cleaned_too() -> None:
    def wrapped(kind: type[BaseException]) -> BaseException:
        fail = function(USER, "fail", f"raise {kind.__name__}")
        return caught(function(HANDLER, "wrap", "fail()", fail=fail))

    cause, context, member = wrapped(ValueError), wrapped(KeyError), wrapped(TypeError)
    top = ExceptionGroup("several", [member])  # type: ignore[list-item]
    top.__cause__, cause.__context__ = cause, context
    context.__context__ = top  # a circle, as re-raising can make one
    clean_exception(top, OWN)
    for error in (cause, context, member):
        (frame,) = traceback.extract_tb(error.__traceback__)
        assert frame.name == "fail"


def test_the_default_is_our_own_package() -> None:
    import whygrad
    from whygrad.commands.tracebacks import PACKAGE

    assert Path(whygrad.__file__).parent == Path(PACKAGE)
