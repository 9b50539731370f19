"""Notices what goes wrong, what torch says and what it does not, and turns it into questions."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from whygrad.record import autopsy, census, failures, functions, torch_api
from whygrad.record.events import HookUse, ParameterInfo, Question
from whygrad.record.health import CLOSE_STEPS
from whygrad.record.keepers import Keepers
from whygrad.record.listening import RECENT, Listener
from whygrad.record.ops import Role
from whygrad.record.questions import Words
from whygrad.record.recorder import Recorder
from whygrad.record.timeline import OptimizerState, is_silent

CLOSE_CHECKS = 32  # backward calls looked at closely while something writes behind their back
_MAX_ASKED = 64  # questions about missing gradients; each of them takes a while to answer
_MAX_PARAMETERS = 100_000  # a program may make models and optimizers without end


class Asker(Listener):
    """Adds what torch does not say: missing gradients, steps, and how the parameters fare."""

    def __init__(
        self,
        recorder: Recorder,
        answer: Callable[[Question], None],
        watch_steps: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(recorder, answer, watch_steps)
        self.optimizers: weakref.WeakKeyDictionary[Any, OptimizerState] = (
            weakref.WeakKeyDictionary()
        )
        self.keepers = Keepers(recorder, self.timeline)
        self.health.ask = self._ask_about_health
        self.had_gradient = self.timeline.trained  # parameters that an optimizer could move
        self.still_without: set[int] = set()  # nodes of parameters that never got a gradient
        self._loose: dict[int, Any] = {}  # without: node -> weak reference of what lacks one
        self._asked = self._silent_checks = self._context_checks = 0
        self.blind = False  # training went on out of sight: silence means nothing
        self.early_report: Callable[[], None] = lambda: None

    @property
    def has_optimizer(self) -> bool:
        """With one, its steps are the time to look for missing gradients, and only then."""
        return bool(self.health.ledger.known)

    def training_state(self) -> list[Any]:
        """Something by which to tell whether backward() or a step ran out of sight."""
        state: list[Any] = []
        for optimizer in list(self.health.ledger.optimizers):
            for group in optimizer.param_groups:
                for parameter in group["params"][:1]:
                    gradient = parameter.grad
                    version = None if gradient is None else gradient._version
                    state.append((parameter._version, id(gradient), version))
        return state

    def trained_out_of_sight(self) -> None:
        """A compiled region ran backward() or an optimizer's step."""
        self.blind = True

    def on_backward(self, role: Role, args: Any, kwargs: Any, frame: Any) -> None:
        """backward() or grad() went through: remember where it started from."""
        roots = tuple([self.node_number(t) for t in failures.roots_of(role, args, kwargs)])
        stack = self.recorder.frames.stack(frame)
        if role is Role.BACKWARD:
            self.backward_count += 1
        self.timeline.went_back(role, roots, stack, args, kwargs, self.backward_count)
        with self.recorder.gate.look() as clear:
            if role is Role.BACKWARD and clear:
                self.health.went_back(self.backward_count, roots, stack)
                if not self.has_optimizer:
                    self._check_without_optimizer(roots, stack)
                if self.backward_count <= CLOSE_STEPS:
                    self._look_at_replicas()

    def _look_at_replicas(self) -> None:
        told = self.complaints.of_needless_search()
        if told is not None:
            complaint, error = told[0], Words("UserWarning", told[1])
            self.ask("warned", [], [], complaint.stack, error, complaint=complaint)

    def before_backward(self, role: Role, args: Any, kwargs: Any, frame: Any) -> None:
        """backward() or grad() is about to run."""
        self.recorder.gate.enter()
        with self.recorder.gate.look() as clear:
            if not clear:
                return
            roots = failures.roots_of(role, args, kwargs)
            self.overwritten = None
            if self.recorder.last_silent >= 0:
                self._look_for_silent_writes(roots, frame)
            if self.recorder.code_in_backward and self.recorder.writes.log:
                self._look_at_contexts(roots, frame)
            if role is Role.BACKWARD:
                self.health.before_backward(roots)

    def after_backward(self, went_through: bool) -> None:
        """backward() or grad() has ended."""
        try:
            self.health.after_backward(went_through)
        finally:
            self.recorder.gate.leave()

    def _look_for_silent_writes(self, roots: list[Any], frame: Any) -> None:
        """Is what a backward() needs still what it was?

        Autograd checks that itself, except for writes that leave its counters alone.
        """
        self._silent_checks += 1
        checks = self._silent_checks
        if checks > CLOSE_CHECKS and checks & (checks - 1):
            return
        found = autopsy.examine_silently_written(self.recorder, self.timeline, roots)
        self.overwritten = found
        if found is not None and self._asked < _MAX_ASKED:
            self._asked += 1
            stack = self.recorder.frames.stack(frame)
            self.ask("overwritten", roots, [], stack, autopsy=found)

    def _look_at_contexts(self, roots: list[Any], frame: Any) -> None:
        """Is what custom Functions keep by themselves still what it was?"""
        self._context_checks += 1
        if self._context_checks > CLOSE_CHECKS or self._asked >= _MAX_ASKED:
            return
        memory = autopsy.Memory(self.recorder, self.timeline)
        found = functions.altered(self.recorder, memory, roots)
        if found:
            self._asked += 1
            stack = self.recorder.frames.stack(frame)
            self.ask("context-changed", roots, [], stack, altered=found)

    def _check_without_optimizer(self, roots: tuple[int, ...], stack: int) -> None:
        """No optimizer says what should train: then it is what trains beside it that does."""
        for node, ref in list(self._loose.items()):
            parameter = torch_api.alive(ref)
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
        if self.blind:
            return
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
                traces=list(self.health.traces),
            )
        )

    def before_step(self, optimizer: Any, frame: Any, closure: bool = False) -> None:
        """An optimizer is about to step."""
        with self.recorder.gate.look() as clear:
            if clear:
                self._before_step(optimizer, frame, closure)

    def _before_step(self, optimizer: Any, frame: Any, closure: bool) -> None:
        """Has each of its parameters ever had a gradient?"""
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
            known = (
                {id(torch_api.alive(ref)) for ref in state.pending} if state.size >= 0 else set()
            )
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
        with self.recorder.gate.look() as clear:
            if clear:
                self._after_step(optimizer)

    def _after_step(self, optimizer: Any) -> None:
        closure = self.health.ledger.in_closure
        self.health.after_step(optimizer)
        state = self.optimizers.get(optimizer) if closure else None
        if state is not None:
            if state.pending:
                self._check(state, self.timeline.steps[-1].stack)
            state.last_backward = self.backward_count

    def _ask_about_health(self, final: bool) -> None:
        """How do the parameters fare? Asked after the first steps, and when something is off."""
        if self.blind:
            return
        health, passes = self.health, self.timeline.passes
        roots = self.roots_since(max(self.backward_count - RECENT, 0))
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
                changes=self.writes_into(i.node for i in parameters if i.gradient == "zero"),
                hooks=self._hooks(parameters, final),
            )
        )
        if not final:
            self.early_report()

    def _hooks(self, parameters: list[ParameterInfo], final: bool) -> list[HookUse]:
        """Hooks that may have to do with gradients of zero, and those that were left behind."""
        known = self.complaints.hooks
        found = known.left_behind() if final else []
        if any(info.gradient == "zero" for info in parameters):
            found += known.met_by(self.health.traces)
        return found

    def at_end(self) -> None:
        """The program has ended: what was not certain before is now."""
        if self.health.ledger.acts and not self.recorder.gate.crowded:
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
        self._loose = {node: ref for node, ref in self._loose.items() if not _is(ref, tensor)}
        for state in list(self.optimizers.values()):
            if any(_is(ref, tensor) for ref in state.pending):
                state.pending, state.size = [], -1  # all are looked at again in the next step

    def _check(self, state: OptimizerState, stack: int) -> None:
        recorder = self.recorder
        waiting, missing = [], []
        for ref in state.pending:
            parameter = torch_api.alive(ref)
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


def _is(ref: Any, tensor: Any) -> bool:
    return torch_api.alive(ref) is tensor
