"""Makes the acts around a step known: clearing, clipping, scheduling, and who made what."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType, GeneratorType
from typing import Any

import torch
from torch.nn.modules import module as torch_module
from torch.nn.utils import clip_grad
from torch.optim import lr_scheduler

from whygrad.record import scalers, torch_api
from whygrad.record.frames import TORCH, hide_callers, plain_relay
from whygrad.record.ledger import Ledger, parameters_of
from whygrad.record.looks import is_all_zero
from whygrad.record.makers import Makers
from whygrad.record.patches import Patches, imitate, stand_in
from whygrad.record.recorder import Recorder

CLIPPING = ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_")


def install(patches: Patches, recorder: Recorder, ledger: Ledger, makers: Makers) -> None:
    """What is rare and costs nothing in a step."""
    _optimizers(patches, recorder, ledger, makers)
    _scalers(patches, recorder, ledger, makers)
    makers.install(patches)
    recorder.when_read = lambda tensor: ledger.read(tensor) if ledger.active else None
    recorder.when_set = lambda tensor, frame: (
        ledger.assigned(tensor, frame) if ledger.active else None
    )


def watch(patches: Patches, recorder: Recorder, ledger: Ledger) -> None:
    """What happens around every step, and is of interest only while the ledger is kept."""
    _clearing(patches, recorder, ledger)
    _schedulers(patches, recorder, ledger)
    for name in CLIPPING:
        _clipping(patches, recorder, ledger, name)


def hooks(recorder: Recorder, ledger: Ledger) -> list[Any]:
    """Torch's own hooks for what modules are given, as handles to take away."""

    def registered(owner: Any, name: str, value: Any) -> None:
        if value is not None and ledger.known:
            frame = sys._getframe(1)
            try:
                with torch_api.without_torch_function():
                    ledger.registered(name, value, frame)
            except Exception as fault:
                recorder.fault(fault)

    return [
        torch_module.register_module_parameter_registration_hook(registered),
        torch_module.register_module_module_registration_hook(registered),
    ]


def _optimizers(patches: Patches, recorder: Recorder, ledger: Ledger, makers: Makers) -> None:
    def made(args: tuple[Any, ...], kwargs: Any, result: Any, frame: FrameType) -> None:
        makers.note(args[0], frame)
        ledger.made(args[0], frame)

    owner = torch.optim.Optimizer
    patches.set(owner, "__init__", stand_in(recorder, owner.__init__, after=made))


def _clearing(patches: Patches, recorder: Recorder, ledger: Ledger) -> None:
    def by_optimizer(args: tuple[Any, ...], kwargs: Any, result: Any, frame: FrameType) -> None:
        if ledger.active:
            ledger.cleared(args[0], parameters_of(args[0]), "optimizer.zero_grad", frame)

    def by_module(args: tuple[Any, ...], kwargs: Any, result: Any, frame: FrameType) -> None:
        if ledger.active:
            # By its effect: which parameters belong to the module is known to its own code alone.
            tensors = [torch_api.alive(leaf.ref) for leaf in list(ledger.leaves.values())]
            gone = [t for t in tensors if t is not None and _is_cleared(t)]
            ledger.cleared(args[0], gone, "module.zero_grad", frame)

    for owner, after in ((torch.optim.Optimizer, by_optimizer), (torch.nn.Module, by_module)):
        patches.set(owner, "zero_grad", stand_in(recorder, owner.zero_grad, after=after))


def _is_cleared(tensor: Any) -> bool:
    return tensor.grad is None or is_all_zero(tensor.grad)


def _schedulers(patches: Patches, recorder: Recorder, ledger: Ledger) -> None:
    def stepped(args: tuple[Any, ...], kwargs: Any, result: Any, frame: FrameType) -> None:
        # Schedulers step once when they are made, and some call others.
        if ledger.active and recorder.frames.kind(frame) != TORCH:
            scheduler = args[0]
            ledger.scheduled(type(scheduler).__name__, scheduler.optimizer, frame)

    for kind in list(vars(lr_scheduler).values()):
        known = isinstance(kind, type) and kind.__module__ == lr_scheduler.__name__
        if known and "step" in vars(kind) and kind is not lr_scheduler.ReduceLROnPlateau:
            patches.set(kind, "step", stand_in(recorder, vars(kind)["step"], after=stepped))


def _scalers(patches: Patches, recorder: Recorder, ledger: Ledger, makers: Makers) -> None:
    kind = torch.amp.GradScaler

    def made(args: tuple[Any, ...], kwargs: Any, result: Any, frame: FrameType) -> None:
        makers.note(args[0], frame)
        ledger.scaled = ledger.scaled or bool(args[0].is_enabled())

    patches.set(kind, "__init__", stand_in(recorder, kind.__init__, after=made))
    scalers.install(patches, recorder, ledger)


def _clipping(patches: Patches, recorder: Recorder, ledger: Ledger, name: str) -> None:
    original: Callable[..., Any] | None = getattr(torch.nn.utils, name, None)
    if original is None:
        return

    def clip(*args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        met: list[Any] = []
        relay = plain_relay
        try:
            relay = recorder.frames.relay(frame)
            if ledger.active:
                args, kwargs = _listening(args, kwargs, met, lambda: look(met, frame))
        except Exception as fault:
            recorder.fault(fault)
        try:
            result = relay(original, args, kwargs)
        except BaseException as error:
            hide_callers(error, 2)
            raise
        if met:
            _carefully(recorder, lambda: ledger.clipped(met))
        return result

    def look(met: list[Any], frame: FrameType) -> None:
        _carefully(recorder, lambda: ledger.clipping(name, met, frame))

    replacement = imitate(clip, original)
    for owner in (clip_grad, torch.nn.utils):
        if vars(owner).get(name) is original:
            patches.set(owner, name, replacement)


def _listening(
    args: tuple[Any, ...], kwargs: dict[str, Any], met: list[Any], look: Callable[[], None]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Let us know which tensors are clipped; they may come out of a generator, once."""
    parameters = args[0] if args else kwargs.get("parameters")
    if isinstance(parameters, torch.Tensor):
        met.append(parameters)
    elif isinstance(parameters, (list, tuple)):
        met += parameters
    elif isinstance(parameters, GeneratorType):
        passed_on = _passed_on(parameters, met, look)
        if args:
            return (passed_on, *args[1:]), kwargs
        return args, {**kwargs, "parameters": passed_on}
    else:
        return args, kwargs
    look()
    return args, kwargs


def _passed_on(parameters: Any, met: list[Any], look: Callable[[], None]) -> Iterator[Any]:
    for parameter in parameters:
        met.append(parameter)
        yield parameter
    look()


def _carefully(recorder: Recorder, look: Callable[[], None]) -> None:
    try:
        with torch_api.without_torch_function(), torch.no_grad():
            look()
    except Exception as fault:
        recorder.fault(fault)
