"""Programs that write down what is alive at each moment."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef


class Token:
    """Stands for whatever holds it: a graph, a closure, a frame."""


class Witness:
    """Writes down which of the things it was shown are alive, each time it is asked."""

    def __init__(self) -> None:
        self._known: dict[str, Callable[[], bool]] = {}
        self.book: list[tuple[str, list[str]]] = []

    def see(self, name: str, thing: Any) -> Any:
        ref = weakref.ref(thing)
        self._known[name] = lambda: ref() is not None
        if isinstance(thing, torch.Tensor) and thing.layout is torch.strided:
            storage = StorageWeakRef(thing.untyped_storage())
            self._known[f"storage of {name}"] = lambda: not storage.expired()
        return thing

    def write(self, moment: str) -> None:
        self.book.append((moment, [name for name, alive in self._known.items() if alive()]))


class Carrier(torch.autograd.Function):
    """Its node in the graph holds a token."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, token: Token) -> torch.Tensor:
        ctx.token = token
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * 2, None


def intermediates(witness: Witness) -> None:
    x = witness.see("x", torch.ones(3, requires_grad=True))
    y = witness.see("y", x * 2)
    z = witness.see("z", y.exp())
    witness.write("all named")
    y = witness.see("second y", z.sum())
    witness.write("the graph holds z, not y")
    del z
    y.backward()
    witness.write("after backward")
    del y
    witness.write("loss gone")
    del x
    witness.write("nothing left")


def temporaries_in_every_kind_of_argument(witness: Witness) -> None:
    see = witness.see
    out = torch.stack([see("in a list", torch.ones(2)), see("and another", torch.zeros(2))])
    out = torch.add(input=see("by name", torch.ones(2)), other=out[0])
    out = torch.where(see("mask", torch.ones(2) > 0), out, see("unused", torch.zeros(2)))
    out[0] = see("written", torch.ones(1))[0]
    out += see("added in place", torch.ones(2))
    first, _ = see("split", torch.ones(2)).split(1)
    witness.write("a view keeps its base's storage")
    del first, _
    nn.functional.linear(see("input", torch.ones(2)), see("weight", torch.ones(2, 2)))
    nn.Parameter(see("data", torch.ones(2)))
    float(see("number", torch.ones(1) * 0.3)), see("listed", torch.ones(2) * 0.7).tolist()
    torch.tensor([see("element", torch.ones(()))])
    witness.write("only the result")


def graphs(witness: Witness) -> None:
    x = torch.ones(3, requires_grad=True)
    y = Carrier.apply(x, witness.see("token", Token()))
    loss = (y * y).sum()
    loss.backward(retain_graph=True)
    witness.write("kept")
    token = witness.see("hook", Token())
    y.register_hook(lambda gradient, token=token: None)
    del token
    loss.backward()
    witness.write("freed, still held by the loss")
    del y
    witness.write("y gone")
    del loss
    witness.write("loss gone")


def a_training_loop(witness: Witness) -> None:
    model = witness.see("model", nn.Sequential(nn.Linear(2, 2), nn.Tanh()))
    witness.see("weight", model[0].weight)
    optimizer = witness.see("optimizer", torch.optim.Adam(model.parameters()))
    for step in range(3):
        batch = witness.see(f"batch {step}", torch.ones(4, 2))
        loss = witness.see(f"loss {step}", model(batch).square().mean())
        loss.backward()
        witness.see(f"gradient {step}", model[0].weight.grad)
        optimizer.step()
        optimizer.zero_grad()
        witness.write(f"step {step}")
    del batch, loss
    witness.write("before the end")
    del optimizer
    witness.write("optimizer gone")
    del model
    witness.write("model gone")


def modules_and_copies(witness: Witness) -> None:
    model = witness.see("model", nn.Linear(2, 2))
    twin = witness.see("twin", copy.deepcopy(model))
    state = model.state_dict()
    witness.see("weight", model.weight)
    del model
    witness.write("its state lives")
    twin.load_state_dict(state)
    del state
    witness.write("its state is gone")
    twin.weight = nn.Parameter(witness.see("new data", torch.ones(2, 2)))
    witness.write("a new weight")
    del twin
    witness.write("all gone")


def arrays(witness: Witness) -> None:
    array = witness.see("array", np.ones(3, dtype=np.float32))
    tensor = witness.see("tensor", torch.from_numpy(array))
    del array
    witness.write("the tensor holds the array")
    back = witness.see("back", tensor.numpy())
    del tensor
    witness.write("the array holds the memory")
    again = witness.see("again", torch.as_tensor(back))
    del back, again
    witness.write("nothing")


def a_failing_backward(witness: Witness) -> None:
    def loss_of(x: torch.Tensor) -> torch.Tensor:
        y = witness.see("y", x * 2)
        return witness.see("loss", y.detach().sum())

    x = torch.ones(2, requires_grad=True)
    try:
        loss_of(x).backward()
    except RuntimeError as error:
        witness.write("while handling")
        kept = error
    witness.write("the exception is kept")
    assert "does not require grad" in str(kept)
    del kept
    witness.write("and gone")
    loss = (x * witness.see("factor", torch.ones(2))).sum()
    loss.backward()
    for _ in range(2):
        try:
            loss.backward()
        except RuntimeError:
            witness.write("a second time")
    del loss
    witness.write("over")


def a_failing_operation(witness: Witness) -> None:
    see = witness.see
    calls: list[Callable[[], Any]] = [
        lambda: torch.mm(see("left", torch.ones(2, 3)), see("right", torch.ones(2, 3))),
        lambda: see("tensor", torch.ones(3)).view(see("size", torch.ones(7)).numel()),
        lambda: see("no matrix", torch.ones(3)).H,
        lambda: see("sized", torch.ones(3)).size(8),
        lambda: torch.equal(see("one", torch.ones(3)), 5),
        lambda: nn.Linear(2, 2)(see("input", torch.ones(3))),
        lambda: nn.functional.cross_entropy(see("logits", torch.ones(3)), see("y", torch.ones(7))),
        lambda: torch.from_numpy(see("words", np.array(["a"]))),
        lambda: torch.optim.SGD([see("no leaf", torch.ones(1, requires_grad=True) * 2)]),
        lambda: see("inference", inference[0]).requires_grad_() * 2,
    ]
    with torch.inference_mode():
        inference = [torch.ones(1)]
    for number, call in enumerate(calls):
        try:
            call()
        except Exception as error:
            kept: Any = error
            witness.write(f"{number} raised")
        inference.clear()
        witness.write(f"{number} kept")
        del kept
        witness.write(f"{number} forgotten")


def hooks_that_raise(witness: Witness) -> None:
    x = torch.ones(2, requires_grad=True)
    y = witness.see("y", x * 2)
    token = witness.see("token", Token())

    def hook(gradient: torch.Tensor, token: Token = token) -> None:
        witness.see("gradient", gradient)
        raise ValueError(token is not None)

    y.register_hook(hook)
    del hook, token
    try:
        y.sum().backward()
    except ValueError:
        witness.write("raised")
    witness.write("handled")
    del y
    witness.write("gone")


def a_step_that_raises(witness: Witness) -> None:
    class Failing(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            witness.see("inside", torch.ones(2) * 2)
            raise ValueError

    optimizer = witness.see("optimizer", Failing([witness.see("p", nn.Parameter(torch.ones(1)))]))
    try:
        optimizer.step()
    except ValueError:
        witness.write("raised")
    del optimizer
    witness.write("gone")


def threads(witness: Witness) -> None:
    def work() -> None:
        x = witness.see("x", torch.ones(2, requires_grad=True))
        loss = witness.see("loss", (x * 2).sum())
        loss.backward()
        witness.write("in the thread")

    thread = witness.see("thread", threading.Thread(target=work))
    thread.start()
    thread.join()
    witness.write("joined")
    del thread
    witness.write("gone")


def code_without_a_module(witness: Witness) -> None:
    namespace: dict[str, Any] = {"torch": torch, "see": witness.see}
    text = "x = see('x', torch.ones(2, requires_grad=True))\ny = see('y', (x * 2).exp())\n"
    exec(compile(text, "generated.py", "exec"), namespace)
    witness.write("made")
    del namespace
    witness.write("gone")


def switches_and_decorators(witness: Witness) -> None:
    @torch.no_grad()
    def quiet(x: torch.Tensor) -> torch.Tensor:
        return witness.see("inner", x * 2) * 2

    @torch.inference_mode()
    def inference(x: torch.Tensor) -> torch.Tensor:
        return witness.see("inference", x * 2) * 2

    out = witness.see("out", quiet(witness.see("argument", torch.ones(2))))
    other = witness.see("other out", inference(witness.see("other", torch.ones(2))))
    witness.write("returned")
    del out, other, quiet, inference
    witness.write("gone")


PROGRAMS = [
    intermediates,
    temporaries_in_every_kind_of_argument,
    graphs,
    a_training_loop,
    modules_and_copies,
    arrays,
    a_failing_backward,
    a_failing_operation,
    hooks_that_raise,
    a_step_that_raises,
    threads,
    code_without_a_module,
    switches_and_decorators,
]
