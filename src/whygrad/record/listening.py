"""Listens to torch: exceptions, warnings, and gradients that are read as None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whygrad import catalogue
from whygrad.record import autopsy, failures
from whygrad.record.absences import Absences
from whygrad.record.events import Autopsy, Change, Question, QuestionKind
from whygrad.record.frames import TORCH
from whygrad.record.ops import Role
from whygrad.record.questions import OF_VALUES, Questions, Words
from whygrad.record.recorder import Recorder

RECENT = 16  # backward passes that a question looks back on
_NOT_REDUCED = "ddp-unused-parameters"
# Said of any operation whose gradient comes out wrong, in whatever way that came to be.
_NO_CAUSE = ("invalid-gradient-shape", "invalid-gradient-device", "invalid-gradient-layout")
_MAX_FAILURES = 100  # different ones that are looked into
_MAX_CAUGHT = 32  # different ones that the program may have caught


class Listener(Questions):
    """Turns what torch says into questions and hands them on."""

    def __init__(
        self, recorder: Recorder, answer: Callable[[Question], None], watch_steps: frozenset[int]
    ) -> None:
        super().__init__(recorder, answer, watch_steps)
        self.backward_count = 0
        self.repeated: dict[tuple[str, int], int] = {}
        self.overwritten: Autopsy | None = None  # what the pass under way needs, behind its back
        self._asked_about: set[str] = set()  # error texts
        self._unexplained: tuple[str, Question] | None = None  # asked only if nobody catches it
        self._warned: set[str] = set()  # texts of warnings
        self._caught = 0  # questions about exceptions that the program may have caught
        self._passed_over: set[tuple[str, int]] = set()  # exceptions with nothing to ask about
        self.absences = Absences(recorder)
        recorder.when_absent, recorder.when_left_out = self._on_absent, self._on_left_out

    def on_failure(
        self, role: Role, op: str, args: Any, kwargs: Any, error: BaseException, frame: Any
    ) -> None:
        """A watched call raised."""
        self.complaints.noticed(op, args, kwargs, error)
        text = str(error)
        backward = role is Role.BACKWARD or role is Role.GRAD
        refused = failures.is_refused_write(text)
        if frame is None or not (backward or refused or failures.INFERENCE in text):
            # It may well be caught; if not, `on_uncaught` will tell.
            self._ask_if_swallowed(error, frame)
            return
        stack = self.recorder.frames.stack(frame)
        key = (f"{role.name}:{type(error).__name__}:{text[:60]}", stack)
        if key not in self.repeated and len(self.repeated) >= _MAX_FAILURES:
            return
        self.repeated[key] = self.repeated.get(key, 0) + 1
        if self.repeated[key] > 1:
            return
        kind: QuestionKind = "operation-raised"
        roots: list[Any] = []
        targets: list[Any] = []
        found: Autopsy | None = None
        changes: list[Change] = []
        raised_at = 0
        if backward:
            kind = "backward-raised" if role is Role.BACKWARD else "grad-raised"
            roots = failures.roots_of(role, args, kwargs)
            if role is Role.GRAD:
                targets = failures.tensors(args[1:2] or (kwargs or {}).get("inputs"))
            if autopsy.concerns_saved_values(text):
                # A checkpoint that computes again has a backward() of its own inside this one.
                inner = failures.inner_roots(error)
                found = autopsy.examine(self.recorder, self.timeline, [*roots, *inner], text)
            elif self.overwritten is not None and _may_follow(text, error):
                found = self.overwritten  # which explains whatever it stumbled over
            if refused:
                raised_at = self._raised_inside(error)
        elif refused:
            targets = failures.refused(text, args, kwargs)
            memory = autopsy.Memory(self.recorder, self.timeline)
            changes = [change for tensor in targets for change in memory.writes_to(tensor)]
        else:
            targets = failures.inference_tensors(args, kwargs)
        told = backward or refused
        complaint = self.complaints.of_error(error, roots, frame) if told else None
        question = self.make_question(
            kind,
            roots,
            targets,
            stack,
            error,
            autopsy=found,
            changes=changes,
            raised_at=raised_at,
            complaint=complaint,
            passes=list(self.timeline.passes)[-RECENT:] if backward else [],
        )
        if backward and found is None and complaint is not None and not complaint.message:
            self._unexplained = text, question  # programs that run out of memory may try again
            return
        self._asked_about.add(text)
        self.answer(question)

    def _ask_if_swallowed(self, error: BaseException, frame: Any) -> None:
        """Ask about what the program may catch: how it does that is for the diagnosis to see."""
        frames = self.recorder.frames
        # `hasattr` and the like look for attributes by trying.
        if frame is None or isinstance(error, AttributeError) or not frames.may_get_out(frame):
            return
        stack = frames.stack(frame)
        key = (f"caught:{type(error).__name__}:{str(error)[:60]}", stack)
        if key in self.repeated:
            self.repeated[key] += 1
            return
        full = self._caught >= _MAX_CAUGHT or len(self._passed_over) >= _MAX_FAILURES
        if full or key in self._passed_over:
            return
        message = catalogue.find(str(error), type(error).__name__)
        # Numbers that do not work out are no mistake of the program's if it looks out for them.
        known = message is not None and message.told_by != OF_VALUES
        complaint = self.complaints.of_error(error, (), frame) if known else None
        if complaint is None:
            self._passed_over.add(key)
            return
        self._caught += 1
        self.repeated[key] = 1
        self.ask("call-raised", [], [], complaint.stack, error, complaint=complaint)

    def _raised_inside(self, error: BaseException) -> int:
        """The stack of the program's own code, inside of torch's, that raised: a hook."""
        frames, trace = self.recorder.frames, error.__traceback__
        inside, found = False, None
        while trace is not None:
            kind = frames.kind(trace.tb_frame)
            inside = inside or kind == TORCH
            if inside and kind < TORCH:
                found = trace.tb_frame
            trace = trace.tb_next
        return frames.stack(found) if found is not None else 0

    def on_uncaught(self, error: BaseException) -> None:
        """The program ends with this error, which was raised out of sight.

        Custom Functions do that, calls from inside of an optimizer's step, and all of torch
        that is written in Python.
        """
        text = str(error)
        if text in self._asked_about:
            return
        unexplained, question = self._unexplained or ("", None)
        if question is not None and unexplained == text:
            self.answer(question)
            return
        trace, frames = error.__traceback__, []
        while trace is not None:
            frames.append(trace.tb_frame)
            trace = trace.tb_next
        if autopsy.concerns_saved_values(text):
            for frame in frames:
                role, roots = failures.backward_in(frame)
                if role is not None:
                    self.on_failure(role, "backward", (roots,), None, error, frame.f_back)
                    return
        for frame in reversed(frames if failures.INFERENCE in text else []):
            refused = failures.inference_tensors(tuple(frame.f_locals.values()), None)
            if refused:
                stack = self.recorder.frames.stack(frame)
                self.ask("operation-raised", [], refused, stack, error)
                return
        complaint = self.complaints.of_error(error)
        if complaint is not None and (complaint.message or complaint.failed is not None):
            complaint.uncaught = True
            details: dict[str, Any] = {"complaint": complaint}
            if catalogue.by_id(complaint.message) in catalogue.python_symptoms():
                complaint.absent = self.absences.latest()
                details["root_stacks"] = self.roots_since(0)
            elif complaint.message == _NOT_REDUCED:
                details["root_stacks"] = self.roots_since(self.backward_count - 1)
            self.ask("call-raised", [], [], complaint.stack, error, **details)

    def on_warning(self, warning: Any, frame: Any) -> None:
        """A warning is about to be shown."""
        text, category = str(warning.message), warning.category.__name__
        if len(self._warned) >= _MAX_FAILURES or text[:200] in self._warned:
            return
        self._warned.add(text[:200])
        complaint = self.complaints.of_warning(text, category, frame)
        if complaint is not None:
            error = Words(category, text)
            self.ask("warned", [], [], complaint.stack, error, complaint=complaint)

    def _on_absent(self, tensor: Any, frame: Any) -> None:
        """The program has read a gradient and found None.

        Torch warns of those that will never come, but not in every place, and a filter may keep
        the warning from being seen.
        """
        if self.absences.read(tensor, frame):
            complaint, text = self.complaints.of_missing_gradient(tensor, frame)
            error = Words("UserWarning", text)
            self.ask("warned", [], [], complaint.stack, error, complaint=complaint)

    def _on_left_out(self, args: Any, kwargs: Any, result: Any, frame: Any) -> None:
        """torch.autograd.grad() gave None for some inputs, as it was allowed to."""
        kwargs = kwargs or {}
        inputs = failures.tensors(args[1] if len(args) > 1 else kwargs.get("inputs"))
        roots = [self.node_number(root) for root in failures.roots_of(Role.GRAD, args, kwargs)]
        self.absences.left_out(inputs, result, roots, frame)


def _may_follow(text: str, error: BaseException) -> bool:
    """Whether a message says no more than that a derivative did not work out."""
    message = catalogue.find(text, type(error).__name__)
    return message is None or message.id in _NO_CAUSE
