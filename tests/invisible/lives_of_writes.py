"""Programs that write in place and go back through graphs, and write down what is alive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from lives import Carrier, Token, Witness
from torch import nn


def in_place_writes(witness: Witness) -> None:
    see = witness.see
    weight = see("weight", torch.ones(4, requires_grad=True))
    x = see("x", weight * 2)
    x += see("added", torch.ones(4))
    x[0] = see("written", torch.ones(()))
    x.masked_fill_(see("mask", torch.ones(4) > 2), 0.5)
    see("view", x.view(2, 2)).mul_(see("factor", torch.ones(2, 2)))
    nn.functional.relu(x, inplace=True)
    out = see("out", torch.zeros(4))
    torch.add(see("left", torch.ones(4)), see("right", torch.ones(4)), out=out)
    torch._foreach_add_([out, see("other", torch.zeros(4))], 1)
    out.copy_(see("copied", torch.ones(4)))
    witness.write("written")
    (x * out).sum().backward()
    witness.write("went back")
    del x, out
    witness.write("only the weight")
    del weight
    witness.write("nothing")


def writes_behind_autograds_back(witness: Witness) -> None:
    see = witness.see
    layer = see("layer", nn.Linear(2, 2))
    see("weight", layer.weight)
    for step in range(3):
        hidden = see(f"hidden {step}", layer(torch.ones(2)).exp())
        hidden.data.mul_(see(f"factor {step}", torch.ones(2)))
        layer.weight.data.sub_(see(f"delta {step}", torch.ones(2, 2)))
        layer.bias.data = see(f"bias {step}", torch.zeros(2))
        hidden.detach().numpy().fill(1)
        hidden.sum().backward()
        witness.write(f"step {step}")
    del hidden
    witness.write("no graph")
    del layer
    witness.write("nothing")


def many_passes_with_hooks(witness: Witness) -> None:
    see = witness.see
    model = see("model", nn.Sequential(nn.Linear(2, 2), nn.Tanh()))
    optimizer = see("optimizer", torch.optim.SGD(model.parameters(), lr=0.1))
    seen = see("seen", Token())

    def halve(parameter: torch.Tensor) -> None:
        parameter.grad.mul_(0.5)

    handles = [
        model[1].register_full_backward_hook(lambda *_, token=seen: None),
        model[0].weight.register_post_accumulate_grad_hook(halve),
        model[0].bias.register_hook(lambda gradient: gradient.clone().clamp_(-1, 1)),
    ]
    del seen
    for step in range(12):
        batch = see(f"batch {step}", torch.ones(3, 2))
        loss = see(f"loss {step}", model(batch).square().mean())
        token = see(f"token {step}", Token())
        loss.register_hook(lambda gradient, token=token: gradient.mul_(1))
        loss.grad_fn.register_prehook(lambda gradients, token=token: None)
        del token
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        witness.write(f"step {step}")
    del batch, loss
    witness.write("between")
    for handle in handles:
        handle.remove()
    del handles, handle
    witness.write("hooks gone")
    del model, optimizer
    witness.write("nothing")


def _train(witness: Witness, keep: Callable[[torch.Tensor], None], steps: int = 45) -> None:
    model = witness.see("model", nn.Linear(2, 2))
    optimizer = witness.see("optimizer", torch.optim.SGD(model.parameters(), lr=0.01))
    for step in range(steps):
        token = witness.see(f"token {step}", Token())
        loss = Carrier.apply(model(torch.ones(2)), token).square().sum()
        loss = witness.see(f"loss {step}", loss)
        del token
        loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()
        keep(loss)
    witness.write("trained")


def losses_in_a_list(witness: Witness) -> None:
    history: list[torch.Tensor] = []
    _train(witness, history.append)
    witness.write("model gone")
    del history[10:]
    witness.write("ten left")
    history.clear()
    witness.write("nothing")


def losses_in_an_object(witness: Witness) -> None:
    log = witness.see("log", Log())
    _train(witness, lambda loss: log.results.setdefault("train", []).append(loss))
    witness.write("model gone")
    log.results.clear()
    witness.write("nothing but the log")


class Log:
    def __init__(self) -> None:
        self.results: dict[str, list[torch.Tensor]] = {}


def a_running_total(witness: Witness) -> None:
    totals = [torch.zeros(())]

    def add(loss: torch.Tensor) -> None:
        totals[0] = totals[0] + loss

    _train(witness, add)
    witness.see("total", totals[0])
    witness.write("model gone")
    totals.clear()
    witness.write("nothing")


def _caught(witness: Witness, fails: Callable[[], Any], match: str) -> None:
    try:
        fails()
    except RuntimeError as error:
        assert match in str(error)
        kept: Any = error
        witness.write("while handling")
    witness.write("the exception is kept")
    del kept
    witness.write("and gone")


def a_write_to_what_was_saved(witness: Witness) -> None:
    weight = witness.see("weight", nn.Parameter(torch.ones(2)))

    def fails() -> None:
        inner = witness.see("a local of the frame", Token())
        result = witness.see("result", Carrier.apply(weight, witness.see("token", Token())).exp())
        result.add_(witness.see("added", torch.ones(2)))
        witness.see("loss", result.sum()).backward()
        assert inner is None

    for _ in range(3):
        _caught(witness, fails, "modified by an inplace operation")


def a_step_before_backward(witness: Witness) -> None:
    def fails() -> None:
        model = witness.see("model", nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)))
        optimizer = witness.see("optimizer", torch.optim.Adam(model.parameters()))
        loss = witness.see("loss", model(torch.ones(2)).square().sum())
        for parameter in model.parameters():
            parameter.grad = witness.see("gradient", torch.ones_like(parameter))
        optimizer.step()
        loss.backward()

    _caught(witness, fails, "modified by an inplace operation")


def a_second_time(witness: Witness) -> None:
    weight = witness.see("weight", nn.Parameter(torch.ones(2)))
    loss = witness.see("loss", Carrier.apply(weight, witness.see("token", Token())).exp().sum())
    loss.backward()
    for _ in range(2):
        _caught(witness, loss.backward, "backward through the graph a second time")
        _caught(witness, partial(torch.autograd.grad, loss, weight), "a second time")
    del loss
    witness.write("loss gone")
    del weight
    witness.write("nothing")


def a_state_carried_over(witness: Witness) -> None:
    cell = witness.see("cell", nn.GRUCell(2, 2))
    optimizer = witness.see("optimizer", torch.optim.SGD(cell.parameters(), lr=0.1))
    states = [witness.see("first state", torch.zeros(1, 2))]

    def step() -> None:
        states[0] = cell(torch.ones(1, 2), states[0])
        states[0].square().sum().backward()
        optimizer.step()

    step()
    witness.see("state", states[0])
    _caught(witness, step, "backward through the graph a second time")
    states.clear()
    witness.write("state gone")


def refused_writes(witness: Witness) -> None:
    see = witness.see
    x = see("x", torch.ones(3, requires_grad=True))
    y = see("y", x * 2)
    calls: dict[str, list[Callable[[], Any]]] = {
        "a leaf Variable that requires grad": [
            lambda: x.add_(see("to a leaf", torch.ones(3))),
            lambda: torch.relu_(x),
        ],
        "a view of a leaf Variable": [lambda: see("part of a leaf", x[:2]).mul_(2)],
        "is a view and is being modified": [
            lambda: see("piece", y.unbind()[0]).mul_(see("number", torch.ones(())))
        ],
        "more than one element": [lambda: see("expanded", torch.ones(1).expand(3)).add_(1)],
    }
    for match, fails in calls.items():
        for call in fails:
            _caught(witness, call, match)


def a_write_in_a_hook_that_spoils_the_pass(witness: Witness) -> None:
    weight = witness.see("weight", nn.Parameter(torch.ones(2)))

    def fails() -> None:
        hidden = witness.see("hidden", weight.exp())
        loss = witness.see("loss", (hidden * 2).sum())
        loss.register_hook(lambda gradient: gradient * hidden.add_(1).sum())
        loss.backward()

    _caught(witness, fails, "modified by an inplace operation")


def backward_inside_of_backward(witness: Witness) -> None:
    x = witness.see("x", torch.ones(2, requires_grad=True))
    other = witness.see("other", torch.ones(2, requires_grad=True))

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            inner = witness.see("inner", (other * witness.see("handed", gradient)).exp().sum())
        (found,) = torch.autograd.grad(inner, other)
        return witness.see("found", found)

    y = witness.see("y", x * 2)
    y.register_hook(hook)
    y.sum().backward()
    witness.write("went back")
    del y
    witness.write("graph gone")


def optimizers_one_after_the_other(witness: Witness) -> None:
    weight = witness.see("weight", nn.Parameter(torch.ones(2)))
    for number in range(6):
        kind = torch.optim.SGD if number % 2 else torch.optim.Adam
        optimizer = witness.see(f"optimizer {number}", kind([weight], lr=0.1))
        weight.square().sum().backward()
        optimizer.step()
        del optimizer
        witness.write(f"optimizer {number} gone")
    weight.grad = None
    del weight
    witness.write("nothing")


# What whygrad finds in each of them: proof that it looked.
PROGRAMS: dict[Callable[[Witness], None], set[str]] = {
    in_place_writes: set(),
    writes_behind_autograds_back: {"inplace-on-saved"},
    many_passes_with_hooks: set(),
    losses_in_a_list: {"graph-kept-alive"},
    losses_in_an_object: {"graph-kept-alive"},
    a_running_total: {"graph-kept-alive"},
    a_write_to_what_was_saved: {"inplace-on-saved"},
    a_step_before_backward: {"step-before-backward"},
    a_second_time: {"second-backward"},
    a_state_carried_over: {"state-carried-over"},
    refused_writes: {"inplace-on-leaf", "inplace-on-view"},
    a_write_in_a_hook_that_spoils_the_pass: {"inplace-on-saved"},
    backward_inside_of_backward: set(),
    optimizers_one_after_the_other: set(),
}
