"""After a while most steps are not recorded; what is off brings the recording back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from whygrad.record import tempo
from whygrad.settings import Settings
from whygrad.watching import Watch


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    monkeypatch.setattr(tempo, "FULL_STEPS", 8)
    monkeypatch.setattr("whygrad.record.watcher.FULL_STEPS", 8)
    watch = started()
    yield watch
    watch.stop()


def started(*watch_steps: int) -> Watch:
    watch = Watch(Settings(watch_step=list(watch_steps)))
    watch.watcher.tempo.full_until = 0.0
    watch.start()
    return watch


class Training:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, factor: float = 1.0) -> None:
        loss = (self.model(torch.randn(8, 4)) * factor).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()


def test_recording_stops_and_samples_are_taken(watch: Watch) -> None:
    training, recorder = Training(), watch.watcher.recorder
    recorded = []
    for _ in range(40):
        before = recorder.now
        training.step()
        recorded.append(recorder.now > before)
    assert [n for n, full in enumerate(recorded, 1) if full] == [1, 2, 3, 4, 5, 6, 7, 8, 16, 32]
    assert recorder.faults == []
    assert watch.findings == []


def test_nothing_of_ours_is_in_the_way_while_resting(watch: Watch) -> None:
    before = len(torch.overrides._get_current_function_mode_stack())
    Training().steps(9)
    assert watch.watcher.resting
    assert len(torch.overrides._get_current_function_mode_stack()) == before - 1
    functions = [
        nn.Module.zero_grad,
        torch.optim.Optimizer.zero_grad,
        torch.nn.utils.clip_grad_norm_,
        torch.optim.lr_scheduler.LRScheduler.step,
        torch.autograd.profiler.record_function.__enter__,
    ]
    assert not [f for f in functions if "whygrad" in f.__code__.co_filename]


def test_a_gradient_that_is_not_finite_is_noticed_in_its_step(watch: Watch) -> None:
    training = Training()
    training.steps(20)
    training.step(factor=float("nan"))
    training.steps(3)
    (finding,) = watch.findings
    assert finding.code == "nan-gradient"
    assert "between step 21 and step 24" in finding.title
    assert "--watch-step 21" in str(finding.fix)


def test_new_parameters_are_looked_for(watch: Watch) -> None:
    training = Training()
    training.steps(20)
    assert watch.watcher.resting
    training.model[2] = nn.Linear(4, 1)
    training.steps(6)
    assert [finding.code for finding in watch.findings] == ["optimizer-holds-old-parameters"]


def test_a_step_that_was_asked_for_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempo, "FULL_STEPS", 8)
    monkeypatch.setattr("whygrad.record.watcher.FULL_STEPS", 8)
    watch, training = started(13), Training()
    training.steps(12)
    assert not watch.watcher.resting
    training.step()
    assert watch.watcher.resting
    assert watch.watcher.asker.health.traces[-1].step == 13
    watch.stop()


def test_gradients_that_are_off_do_not_wake_it(watch: Watch) -> None:
    training = Training()
    training.steps(14)
    with torch.no_grad():
        for parameter in training.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        training.optimizer.step()  # step 15, after which 16 would be recorded
    assert watch.watcher.resting


def test_an_error_in_a_step_that_was_not_recorded_names_the_way_to_see_it(watch: Watch) -> None:
    training = Training()
    training.steps(20)
    with pytest.raises(RuntimeError) as caught:
        training.model(torch.randn(8, 4)).mean().detach().backward()
    watch.saw_uncaught(caught.value)
    assert any("--watch-step 21" in note for note in watch.session().notes)


def test_a_minute_is_recorded_however_many_steps_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whygrad.record.watcher.FULL_STEPS", 8)
    monkeypatch.setattr(tempo, "FULL_STEPS", 8)
    watch = Watch()
    watch.start()
    Training().steps(20)
    assert not watch.watcher.resting
    watch.stop()
