"""Notices what went wrong and turns it into questions: plain data, taken while it is all alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from whygrad.record import autopsy, census, failures
from whygrad.record.complaints import Complaints
from whygrad.record.events import Autopsy, Change, ParameterInfo, Question, QuestionKind
from whygrad.record.frames import TORCH
from whygrad.record.health import CLOSE_STEPS, Health
from whygrad.record.keepers import Keepers
from whygrad.record.ops import Role
from whygrad.record.recorder import Recorder
from whygrad.record.timeline import OptimizerState, Timeline, is_silent

CLOSE_CHECKS = 32  # backward calls looked at closely while something writes behind their back
_MAX_ASKED = 64  # questions about missing gradients; each of them takes a while to answer
_MAX_FAILURES = 100  # different ones that are looked into
_RECENT = 16  # backward passes that a question about health looks back on
_MAX_PARAMETERS = 100_000  # a program may make models and optimizers without end


class Words(NamedTuple):
    """A warning: its class and its text."""

    category: str
    text: str

    def __str__(self) -> str:
        return self.text


def _class_name(error: BaseException | Words) -> str:
    return error.category if isinstance(error, Words) else type(error).__name__


class Asker:
    """Turns failures and missing gradients into questions and hands them on."""

    def __init__(
        self,
        recorder: Recorder,
        answer: Callable[[Question], None],
        watch_steps: frozenset[int] = frozenset(),
    ) -> None:
        self.recorder = recorder
        self.answer = answer
        self.backward_count = 0
        self.optimizers: weakref.WeakKeyDictionary[Any, OptimizerState] = (
            weakref.WeakKeyDictionary()
        )
        self.timeline = Timeline(recorder)
        self.keepers = Keepers(recorder, self.timeline)
        self.health = Health(recorder, watch_steps)
        self.health.ask = self._ask_about_health
        self.had_gradient = self.timeline.trained  # parameters that an optimizer could move
        self.still_without: set[int] = set()  # nodes of parameters that never got a gradient
        self._loose: dict[int, Any] = {}  # without: node -> weak reference of what lacks one
        self._asked = 0
        self._asked_about: set[str] = set()  # error texts
        self._warned: set[str] = set()  # texts of warnings
        self.complaints = Complaints(recorder)
        self._silent_checks = 0
        self.repeated: dict[tuple[str, int], int] = {}
        self.early_report: Callable[[], None] = lambda: None

    @property
    def has_optimizer(self) -> bool:
        """With one, its steps are the time to look for missing gradients, and only then."""
        return bool(self.health.ledger.known)

    # --- failures -----------------------------------------------------------------------------

    def on_failure(
        self, role: Role, op: str, args: Any, kwargs: Any, error: BaseException, frame: Any
    ) -> None:
        """A watched call raised."""
        self.complaints.noticed(op, args, kwargs, error)
        text = str(error)
        backward = role is Role.BACKWARD or role is Role.GRAD
        refused = failures.is_refused_write(text)
        if frame is None or not (backward or refused or failures.INFERENCE in text):
            return  # it may well be caught; if not, `on_uncaught` will tell
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
            if refused:
                raised_at = self._raised_inside(error)
        elif refused:
            targets = failures.refused(text, args, kwargs)
            memory = autopsy.Memory(self.recorder, self.timeline)
            changes = [change for tensor in targets for change in memory.writes_to(tensor)]
        else:
            targets = failures.inference_tensors(args, kwargs)
        self._asked_about.add(text)
        self.ask(
            kind,
            roots,
            targets,
            stack,
            error,
            autopsy=found,
            changes=changes,
            raised_at=raised_at,
            complaint=self.complaints.of_error(error, roots, frame) if backward else None,
        )

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
            self.ask("call-raised", [], [], complaint.stack, error, complaint=complaint)

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

    def ask(
        self,
        kind: QuestionKind,
        roots: list[Any],
        targets: list[Any],
        stack: int,
        error: BaseException | Words | None = None,
        **details: Any,
    ) -> None:
        recorder = self.recorder
        self.answer(
            Question(
                kind=kind,
                roots=tuple(self._node(tensor) for tensor in roots),
                targets=tuple(self._node(tensor) for tensor in targets),
                stack=stack,
                step=recorder.step,
                error_type=_class_name(error) if error else "",
                error_text=str(error) if error else "",
                parameters=census.take(recorder),
                **details,
            )
        )

    def _node(self, tensor: Any) -> int:
        node = self.recorder.node_of(tensor)
        return self.recorder.source(tensor, None) if node is None else node

    # --- silence ------------------------------------------------------------------------------

    def on_backward(self, role: Role, args: Any, kwargs: Any, frame: Any) -> None:
        """backward() or grad() went through: remember where it started from."""
        roots = tuple([self._node(t) for t in failures.roots_of(role, args, kwargs)])
        stack = self.recorder.frames.stack(frame)
        if role is Role.BACKWARD:
            self.backward_count += 1
        self.timeline.went_back(role, roots, stack, args, kwargs, self.backward_count)
        if role is Role.BACKWARD:
            self.health.went_back(self.backward_count, roots, stack)
        if role is Role.BACKWARD and not self.has_optimizer:
            self._check_without_optimizer(roots, stack)

    def before_backward(self, role: Role, args: Any, kwargs: Any, frame: Any) -> None:
        """backward() or grad() is about to run."""
        roots = failures.roots_of(role, args, kwargs)
        if self.recorder.last_silent >= 0:
            self._look_for_silent_writes(roots, frame)
        if role is Role.BACKWARD:
            self.health.before_backward(roots)

    def after_backward(self, went_through: bool) -> None:
        """backward() or grad() has ended."""
        self.health.after_backward(went_through)

    def _look_for_silent_writes(self, roots: list[Any], frame: Any) -> None:
        """Is what a backward() needs still what it was?

        Autograd checks that itself, except for writes that leave its counters alone.
        """
        self._silent_checks += 1
        checks = self._silent_checks
        if checks > CLOSE_CHECKS and checks & (checks - 1):
            return
        found = autopsy.examine_silently_written(self.recorder, self.timeline, roots)
        if found is not None and self._asked < _MAX_ASKED:
            self._asked += 1
            stack = self.recorder.frames.stack(frame)
            self.ask("overwritten", roots, [], stack, autopsy=found)

    def _check_without_optimizer(self, roots: tuple[int, ...], stack: int) -> None:
        """No optimizer says what should train: then it is what trains beside it that does."""
        for node, ref in list(self._loose.items()):
            parameter = ref()
            if parameter is not None and parameter.grad is not None:
                self.still_without.discard(node)
                del self._loose[node]
        if self.backward_count > CLOSE_STEPS:
            return
        parameters = census.take(self.recorder)
        if any(info.in_optimizer for info in parameters):
            return  # made before the watch began
        trained = {info.root for info in parameters if info.has_grad}
        missing = [
            info.node
            for info in parameters
            if info.requires_grad and not info.has_grad and info.root in trained
        ]
        refs = {node: self.recorder.source_refs.get(node) for node in missing}
        self._loose = {node: ref for node, ref in refs.items() if ref is not None}
        self.still_without.update(missing)
        frozen = any(not info.requires_grad for info in parameters)
        if missing or (frozen and self.backward_count == 1):
            self._ask_about_missing(roots, dict.fromkeys(roots, stack), missing, stack, parameters)

    def _ask_about_missing(
        self,
        roots: tuple[int, ...],
        root_stacks: dict[int, int],
        missing: list[int],
        stack: int,
        parameters: list[ParameterInfo],
    ) -> None:
        self.answer(
            Question(
                kind="no-gradient",
                roots=roots,
                root_stacks=root_stacks,
                targets=tuple(missing),
                stack=stack,
                step=self.recorder.step,
                parameters=parameters,
                had_gradient=frozenset(self.had_gradient),
            )
        )

    def roots_since(self, number: int) -> dict[int, int]:
        """Root -> stack of the backward calls after the given one, the latest first."""
        return {
            node: passed.stack
            for passed in reversed(self.timeline.passes)
            if passed.number > number and passed.call == "backward"
            for node in passed.roots
        }

    def before_step(self, optimizer: Any, frame: Any, closure: bool = False) -> None:
        """An optimizer is about to step: has each of its parameters ever had a gradient?"""
        state = self.optimizers.get(optimizer)
        if self._loose:
            self.still_without.difference_update(self._loose)
            self._loose.clear()
        if state is None:
            state = OptimizerState(weakref.ref(optimizer), type(optimizer).__name__)
            state.last_backward = self._passes_before(optimizer)
            self.optimizers[optimizer] = state
        groups = optimizer.param_groups
        size = sum(len(group["params"]) for group in groups)
        if size != state.size:
            known = {id(ref()) for ref in state.pending} if state.size >= 0 else set()
            state.pending += [
                weakref.ref(parameter)
                for group in groups
                for parameter in group["params"][max(state.size, 0) if len(groups) == 1 else 0 :]
                if id(parameter) not in known
            ]
            state.size = size
            state.silent = is_silent(optimizer)
        state.steps += 1
        self.timeline.stepped(state, frame)
        self.health.before_step(optimizer, self.timeline.steps[-1].stack, frame, closure)
        keepers = self.keepers
        keepers.steps += 1
        if keepers.steps >= keepers.next_look:
            self._look_for_kept_graphs(frame)
        if closure:
            return  # its gradients are yet to come
        if state.pending:
            self._check(state, self.recorder.frames.stack(frame))
        state.last_backward = self.backward_count

    def _passes_before(self, optimizer: Any) -> int:
        """How many backward() calls there had been when an optimizer was made."""
        held = self.health.ledger.optimizers.get(optimizer)
        born = held.born if held is not None else 0
        earlier = [passed.number for passed in self.timeline.passes if passed.time < born]
        return max(earlier, default=0)

    def after_step(self, optimizer: Any) -> None:
        """An optimizer has stepped."""
        closure = self.health.ledger.in_closure
        self.health.after_step(optimizer)
        state = self.optimizers.get(optimizer) if closure else None
        if state is not None:
            if state.pending:
                self._check(state, self.timeline.steps[-1].stack)
            state.last_backward = self.backward_count

    def _ask_about_health(self, final: bool) -> None:
        """How do the parameters fare? Asked after the first steps, and when something is off."""
        health, passes = self.health, self.timeline.passes
        roots = self.roots_since(max(self.backward_count - _RECENT, 0))
        parameters = health.census if final else health.take_census()
        self.answer(
            Question(
                kind="health",
                roots=tuple(roots),
                root_stacks=roots,
                targets=(),
                stack=passes[-1].stack if passes else 0,
                step=self.recorder.step,
                parameters=parameters,
                had_gradient=frozenset(self.had_gradient),
                account=health.ledger.account(final),
                traces=list(health.traces),
                sizes=list(health.sizes),
                changes=self._writes_into(i.node for i in parameters if i.gradient == "zero"),
            )
        )
        if not final:
            self.early_report()

    def _writes_into(self, nodes: Iterable[int]) -> list[Change]:
        """Where these parameters were last written to."""
        into = self.recorder.writes.into
        return [
            Change("call", into[node].op, into[node].time, into[node].stack, node)
            for node in nodes
            if node in into
        ]

    def at_end(self) -> None:
        """The program has ended: what was not certain before is now."""
        if self.health.ledger.acts:
            self._ask_about_health(final=True)

    def _look_for_kept_graphs(self, frame: Any) -> None:
        known = self.keepers.confirmed
        kept = self.keepers.look()
        if kept is not None:
            self.ask("kept-alive", [], [], self.recorder.frames.stack(frame), kept=kept)
        elif self.keepers.confirmed and not known:
            self.early_report()  # memory runs out before the program ends

    def forget(self, tensor: Any) -> None:
        """Let go of a tensor altogether: torch refuses to swap tensors with weak references."""
        self.recorder.forget(tensor)
        self.health.ledger.forget(tensor)
        self._loose = {node: ref for node, ref in self._loose.items() if ref() is not tensor}
        for state in list(self.optimizers.values()):
            if any(ref() is tensor for ref in state.pending):
                state.pending, state.size = [], -1  # all are looked at again in the next step

    def _check(self, state: OptimizerState, stack: int) -> None:
        recorder = self.recorder
        waiting, missing = [], []
        for ref in state.pending:
            parameter = ref()
            if parameter is None:
                continue
            if parameter.grad is None:
                waiting.append(ref)
                if parameter.requires_grad:
                    missing.append(parameter)
            else:
                node = recorder.node_of(parameter)
                if node is not None:
                    self.still_without.discard(node)
                    if len(self.had_gradient) < _MAX_PARAMETERS:
                        self.had_gradient.add(node)
        state.pending = waiting
        if state.steps > CLOSE_STEPS or self._asked >= _MAX_ASKED:
            return
        ledger = self.health.ledger
        # Averages and target networks are written by hand; what a pass has come to was cleared.
        fine = ledger.written | ledger.touched if missing else set()
        known = [recorder.node_of(parameter) for parameter in missing]
        nodes = [node for node in known if node is not None and node not in fine]
        roots = self.roots_since(state.last_backward)
        frozen = any(
            source.parameter and not source.requires_grad
            for source in list(recorder.sources.values())
        )
        if roots and (nodes or (frozen and state.steps == 1)):
            self._asked += 1
            self.still_without.update(nodes)
            self._ask_about_missing(
                tuple(roots),
                roots,
                nodes,
                stack,
                self.health.take_census(),
            )
