"""What the pages about in-place writes say about torch, checked against torch."""

import math
import warnings

import pytest
import torch
from claim_helpers import LEAF, MODIFIED, WRITE_ERRORS, evaluate, layers, step
from torch import nn


@pytest.mark.parametrize("expression", WRITE_ERRORS)
def test_these_raise(expression):
    with pytest.raises(RuntimeError) as caught:
        evaluate(expression)
    assert WRITE_ERRORS[expression] in f"RuntimeError: {caught.value}"


def test_a_write_through_detach_is_noticed_and_one_through_data_is_not():
    for attribute, noticed in (("detach", True), ("data", False)):
        weight = nn.Parameter(torch.ones(2))
        result = weight.exp()
        (result.detach() if attribute == "detach" else result.data).zero_()
        if noticed:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                result.sum().backward()
        else:
            result.sum().backward()
            assert weight.grad.tolist() == [0.0, 0.0]


def gradient_after_a_write(expression: str, to: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient of a weight through `expression`, with a write before backward and without."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.rand(2, 3) + 0.1)
    names = {"torch": torch, "nn": nn, "t": weight * 2, "other": nn.Parameter(torch.rand(3))}
    names["result"] = eval(expression, names)
    (expected,) = torch.autograd.grad(names["result"].sum(), weight, retain_graph=True)
    names[to].add_(1)
    names["result"].sum().backward()
    return weight.grad, expected


RESULT_SAVED = ["exp()", "sigmoid()", "tanh()", "relu()", "softmax(1)", "log_softmax(1)", "sqrt()"]
INPUT_SAVED = ["square()", "pow(3)", "log()", "sin()", "abs()", "clamp(0, 1)"]
BOTH_SAVED = ["logsumexp(1)", "norm(dim=1)", "std(1)"]
ACTIVATIONS = ["nn.LeakyReLU()", "nn.GELU()", "nn.SiLU()"]
LAYERS = ["nn.Linear(3, 3)", "nn.Conv1d(2, 2, 1)", "nn.BatchNorm1d(3)", "nn.LayerNorm(3)"]
NOTHING_SAVED = ["t + other", "t - other", "t.sum(1)", "t.mean(1)", "torch.cat([t, t])"]
NOTHING_SAVED += ["nn.Dropout()(t)"]


@pytest.mark.parametrize(
    ("expression", "to"),
    [
        *((f"t.{call}", "result") for call in RESULT_SAVED + BOTH_SAVED),
        *((f"t.{call}", "t") for call in INPUT_SAVED + BOTH_SAVED),
        *((f"{layer}(t)", "t") for layer in ACTIVATIONS + LAYERS),
        ("t * other", "t"),
        ("t @ other", "t"),
        ("nn.ReLU(inplace=True)(t.sigmoid())", "t"),
    ],
)
def test_writing_to_what_was_saved_raises(expression, to):
    with pytest.raises(RuntimeError, match=MODIFIED):
        gradient_after_a_write(expression, to)


@pytest.mark.parametrize(
    ("expression", "to"),
    [
        *((f"t.{call}", "t") for call in RESULT_SAVED),
        *((f"t.{call}", "result") for call in INPUT_SAVED),
        *((f"{layer}(t)", "result") for layer in ACTIVATIONS + LAYERS),
        *((call, to) for call in NOTHING_SAVED for to in ("result", "t")),
        *((f"nn.ReLU(inplace=True)({layer}(t)).mean()", "result") for layer in LAYERS),
        ("t * torch.ones(3)", "t"),
    ],
)
def test_writing_to_what_was_not_saved_is_fine(expression, to):
    actual, expected = gradient_after_a_write(expression, to)
    assert torch.equal(actual, expected)


def test_a_recorded_write_is_differentiated():
    weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
    scores = weight * 3
    scores.add_(1)
    scores *= 2
    scores[0] = -math.inf
    (scores.softmax(0) * torch.arange(3)).sum().backward()
    plain = weight.detach().requires_grad_()
    ((plain[1:] * 6 + 2).softmax(0) * torch.arange(1, 3)).sum().backward()
    assert torch.allclose(weight.grad, plain.grad)


@pytest.mark.parametrize("overwritten", ["batch", "target", "labels"])
def test_data_that_was_saved_counts_too_and_retaining_the_graph_does_not_help(overwritten):
    data = {"batch": torch.rand(4, 3), "target": torch.rand(4, 2), "labels": torch.tensor([0] * 4)}
    result = nn.Linear(3, 2)(data["batch"])
    loss = nn.functional.mse_loss(result, data["target"])
    loss = loss + nn.functional.cross_entropy(result, data["labels"])
    data[overwritten].fill_(1)
    with pytest.raises(RuntimeError, match=MODIFIED):
        loss.backward(retain_graph=True)


COUNTED_WRITES = {
    "x += y": lambda t: t.__iadd__(1),
    "x[i] = y": lambda t: t.__setitem__(0, 1),
    "masked_fill_": lambda t: t.masked_fill_(t > 0, 0),
    "out=": lambda t: torch.zeros(2, out=t),
    "under no_grad": torch.no_grad()(lambda t: t.mul_(2)),
    "through a view": lambda t: t.view(-1)[:1].mul_(2),
    "through detach": lambda t: t.detach().mul_(2),
}


@pytest.mark.parametrize("write", COUNTED_WRITES)
def test_these_writes_are_counted(write):
    factor = torch.ones(2)
    loss = (nn.Parameter(torch.ones(2)) * factor).sum()
    before = factor._version
    COUNTED_WRITES[write](factor)
    assert factor._version > before
    with pytest.raises(RuntimeError, match=MODIFIED):
        loss.backward()


def test_a_write_through_numpy_is_not_noticed_and_one_after_backward_is_fine():
    weight = nn.Parameter(torch.zeros(2))
    result = weight.exp()
    result.detach().numpy().fill(0)
    result.sum().backward()
    assert weight.grad.tolist() == [0.0, 0.0]
    result.add_(1)
    assert result.tolist() == [1.0, 1.0]


def test_mutation_of_saved_tensors_can_be_allowed_around_forward_and_backward():
    weight = nn.Parameter(torch.ones(2))
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        result = weight.exp()
        result.mul_(2)
        result.sum().backward()
        outlives = weight.exp()
    assert torch.allclose(weight.grad, 2 * weight.exp())
    with pytest.raises(AssertionError, match="Trying to backward outside of the"):
        outlives.sum().backward()


def test_anomaly_mode_shows_the_operation_that_saved_and_not_the_write():
    def saves():
        return nn.Parameter(torch.ones(2)).sigmoid()

    def writes(result):
        result.mul_(2)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.autograd.detect_anomaly():
            result = saves()
            writes(result)
            with pytest.raises(RuntimeError, match=MODIFIED):
                result.sum().backward()
    shown = "".join(str(warning.message) for warning in caught)
    assert "in saves" in shown and "in writes" not in shown


def each_parameter(change):
    return lambda net: [change(p) for p in net.parameters()]


OPTIMIZERS = [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad]
NOTICED = [
    *(step(kind, foreach=foreach) for kind in OPTIMIZERS for foreach in (None, True)),
    torch.no_grad()(each_parameter(lambda p: p.sub_(0.1))),
    torch.no_grad()(each_parameter(lambda p: p.clamp_(-0.1, 0.1))),
    each_parameter(lambda p: p.detach().sub_(0.1)),
    each_parameter(nn.init.zeros_),
    lambda net: net.load_state_dict(net.state_dict()),
]
NEW_DATA = [
    each_parameter(lambda p: setattr(p, "data", p.data - 0.1)),
    lambda net: nn.utils.vector_to_parameters(torch.zeros(26), net.parameters()),
]
UNNOTICED = [
    *(step(kind, fused=True) for kind in OPTIMIZERS),
    each_parameter(lambda p: p.data.sub_(0.1)),
    each_parameter(lambda p: p.detach().numpy().fill(0)),
]


def right_after(change, net) -> bool:
    """Whether backward gives the gradients of the forward pass if `change` comes in between."""
    x = torch.rand(3, 3) if isinstance(net[0], nn.Linear) else torch.rand(3, 3, 1)
    loss = net(x).square().sum()
    expected = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    change(net)
    net.zero_grad()
    loss.backward(retain_graph=True)
    return all(map(torch.equal, (p.grad for p in net.parameters()), expected))


@pytest.mark.parametrize("change", NOTICED)
def test_these_changes_between_forward_and_backward_are_noticed(change):
    with pytest.raises(RuntimeError, match=MODIFIED):
        right_after(change, layers())


@pytest.mark.parametrize("change", UNNOTICED)
def test_these_changes_make_the_gradients_wrong_without_a_word(change):
    assert not right_after(change, layers())


@pytest.mark.parametrize("change", NEW_DATA)
def test_new_data_for_a_parameter_may_or_may_not_make_the_gradients_wrong(change):
    assert right_after(change, layers(nn.Linear))
    assert not right_after(change, layers(nn.Conv1d))


def test_a_step_is_harmless_where_backward_does_not_need_the_weights():
    assert right_after(lambda net: step(torch.optim.SGD)(net[0]), layers())
    assert right_after(lambda net: [nn.init.zeros_(layer.bias) for layer in net[::2]], layers())
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        assert right_after(step(torch.optim.SGD), layers())


def test_backward_with_inputs_keeps_a_loss_out_of_the_gradients_of_a_network_on_its_way():
    actor, critic = nn.Linear(3, 3), layers()
    for inputs, reached in ((list(actor.parameters()), False), (None, True)):
        critic.zero_grad()
        critic(actor(torch.rand(2, 3))).sum().backward(inputs=inputs)
        assert actor.weight.grad is not None
        assert (critic[0].weight.grad is not None) == reached


def test_other_ways_around_the_error_about_a_leaf():
    w = torch.ones(2, requires_grad=True)
    w.sum().backward()
    replaced = w - 0.1 * w.grad
    replaced.square().sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not replaced.is_leaf and replaced.grad is None
    with torch.no_grad():
        assert not (w - 0.1 * w.grad).requires_grad
        w[0] = 5.0
    assert w.tolist() == [5.0, 1.0] and w.is_leaf
    w.grad.zero_()
    layer = nn.Linear(2, 2)
    with pytest.raises(TypeError, match="cannot assign"):
        layer.weight = layer.weight - 1
    with pytest.raises(RuntimeError, match=LEAF):
        torch.optim.SGD([w], lr=0.1, differentiable=True).step()


@pytest.mark.parametrize(
    "view", ["t[0]", "t[1:]", "t.view(-1)", "t.T", "t.narrow(0, 0, 1)", "t.select(0, 0)"]
)
def test_a_view_that_came_alone_can_be_written_to(view):
    weight = nn.Parameter(torch.ones(2, 3))
    t = weight * 1
    part = eval(view, {"t": t})
    part.mul_(2)
    t.sum().backward()
    assert weight.grad.sum() == 6 + part.numel()


def test_pieces_can_be_written_with_gradients_off_and_the_gradient_does_not_know():
    for row in torch.ones(2, 3):
        row.mul_(2)
    weight = nn.Parameter(torch.ones(2, 3))
    t = weight * 1
    with torch.no_grad():
        for row in t:
            row.mul_(2)
    t.sum().backward()
    assert t.sum() == 12 and weight.grad.sum() == 6
