"""What the pages say about torch, checked against torch."""

import copy
import gc
import math
import re
import threading
import warnings
import weakref
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Categorical, Normal

from whygrad import explain

TO_SCALAR = "Converting a tensor with requires_grad=True to a scalar"
COPY_CONSTRUCT = "To copy construct from a tensor"
MODIFIED = "one of the variables needed for gradient computation has been modified by an inplace"
LEAF = "a leaf Variable that requires grad is being used in an in-place operation."
PART_OF_LEAF = "a view of a leaf Variable that requires grad is being used in an in-place"
SECOND_TIME = "Trying to backward through the graph a second time"


def evaluate(expression: str):
    """The value of `expression` over small tensors that require grad, and torch's warnings."""
    weight = nn.Parameter(torch.tensor([0.2, 0.5, 0.3]))
    names = {
        "math": math,
        "np": np,
        "torch": torch,
        "nn": nn,
        "Normal": Normal,
        "Categorical": Categorical,
        "t": weight * 2,  # a vector with a history
        "s": weight.sum(),  # a scalar with a history
        "weight": weight,
        "x": torch.ones(3),
    }
    with torch.inference_mode():
        names |= {"inference": torch.ones(3), "ids": torch.tensor([0, 2])}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.set_warn_always(True)
        try:
            value = eval(expression, names)
        finally:
            torch.set_warn_always(False)
    return value, [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    "expression",
    [
        "t.clone()",
        "t.to(torch.float64)",
        "torch.as_tensor(t)",
        "torch.Tensor(t)",
        "torch.stack([s, s])",
        "torch.cat([t, t])",
        "sum([s, s])",
        "t.max(0).values",
        "t.sort().values",
        "t.topk(2).values",
        "t * (t > 0)",
        "t[t.argmax()]",
        "(t.round() - t).detach() + t",
        "t.softmax(0) @ torch.ones(3)",
        "nn.functional.gumbel_softmax(t, hard=True)",
        "Normal(t, 1.0).rsample()",
        "s + (2 * s - s) * torch.linspace(0, 1, 4)",
        "Normal(t, 1.0).log_prob(Normal(t, 1.0).sample())",
        "Categorical(logits=t).log_prob(torch.tensor(1))",
        *(f"t.{op}()" for op in ("round", "floor", "sign", "unique")),
        "torch.bernoulli(t.sigmoid())",
        "t // 1",
        "nn.functional.linear(torch.ones(2, 3), t.view(1, 3))",
    ],
)
def test_these_keep_the_history_without_a_word(expression):
    value, messages = evaluate(expression)
    assert value.requires_grad and value.grad_fn is not None
    assert messages == []


def test_assigning_into_a_part_of_a_tensor_keeps_the_history():
    weight = nn.Parameter(torch.tensor(3.0))
    out = torch.zeros(2)
    out[0] = weight * 2
    out.sum().backward()
    assert weight.grad == 2


@pytest.mark.parametrize("operation", ["round", "floor", "sign", "bernoulli"])
def test_these_pass_on_a_gradient_of_zero(operation):
    weight = nn.Parameter(torch.tensor([0.2, 0.8]))
    getattr(torch, operation)(weight).sum().backward()
    assert weight.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "expression",
    [
        "t.detach()",
        "t.data",
        "t.detach_()",
        "t.detach().clone()",
        "torch.autograd.Variable(t)",
        "torch.autograd.Variable(t, requires_grad=True)",
        "nn.Parameter(t)",
        "torch.tensor(s.item(), requires_grad=True)",
        "torch.from_numpy(t.detach().numpy())",
        "x * s.item()",
        *(f"t.{op}()" for op in ("argmax", "argmin", "argsort", "nonzero", "isnan")),
        *(f"t.{op}()" for op in ("long", "int", "bool", "histc", "count_nonzero")),
        "torch.searchsorted(t, t)",
        "t.max(0).indices",
        "t.sort().indices",
        "t.topk(2).indices",
        "t > 1",
        "t == t",
        "t.logical_and(t)",
        "t.long().float()",
        "t.long().bincount()",
        "torch.multinomial(t, 1)",
        "torch.linspace(s, 2 * s, 3)",
        "torch.logspace(s, 2 * s, 3)",
        "Normal(t, 1.0).sample()",
        "Categorical(logits=t).sample()",
    ],
)
def test_these_cut_the_history_without_a_word(expression):
    value, messages = evaluate(expression)
    assert value.grad_fn is None
    assert messages == []


@pytest.mark.parametrize(
    ("expression", "warning"),
    [
        ("float(s)", TO_SCALAR),
        ("math.exp(s)", TO_SCALAR),
        ("torch.tensor([s])", TO_SCALAR),
        ("torch.Tensor([s])", TO_SCALAR),
        ("torch.FloatTensor([s])", TO_SCALAR),
        ("torch.as_tensor([s])", TO_SCALAR),
        ("t.new_tensor([s])", TO_SCALAR),
        ("torch.tensor(t)", COPY_CONSTRUCT),
        ("t.new_tensor(t)", COPY_CONSTRUCT),
    ],
)
def test_these_cut_the_history_with_a_warning(expression, warning):
    value, messages = evaluate(expression)
    assert getattr(value, "grad_fn", None) is None
    assert [message.startswith(warning) for message in messages] == [True]


@pytest.mark.parametrize("expression", ["s.item()", "t.tolist()", "int(s)", "bool(s)"])
def test_these_leave_torch_without_a_word(expression):
    value, messages = evaluate(expression)
    assert not isinstance(value, torch.Tensor)
    assert messages == []


NO_GRAD_FN = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"
ERRORS = {
    "t.detach().sum().backward()": NO_GRAD_FN,
    "torch.autograd.grad(x.sum(), x)": NO_GRAD_FN,
    "torch.autograd.grad(s, x)": "One of the differentiated Tensors does not require grad",
    "np.asarray(t)": "Can't call numpy() on Tensor that requires grad.",
    "weight * inference": "Inference tensors cannot be saved for backward.",
    "weight @ inference": "Inference tensors cannot be saved for backward.",
    "weight[ids]": "Inference tensors cannot be saved for backward.",
    "nn.Linear(3, 1)(inference)": "Inference tensors cannot be saved for backward.",
    "nn.Linear(3, 1)(inference.detach())": "Inference tensors cannot be saved for backward.",
    "nn.Linear(3, 1)(inference.view(1, 3))": "Inference tensors cannot be saved for backward.",
    "nn.Conv1d(1, 1, 1)(inference.view(1, 1, 3))": "Inference tensors cannot be saved",
    "nn.Embedding(3, 2)(ids)": "Inference tensors cannot be saved for backward.",
    "nn.functional.mse_loss(weight, inference)": "Inference tensors cannot be saved",
    "inference.requires_grad_()": "Setting requires_grad=True on inference tensor",
    "nn.Parameter(inference)": "Setting requires_grad=True on inference tensor",
    "inference.add_(1)": "Inplace update to inference tensor outside InferenceMode",
    "t.unique().sum().backward()": "the derivative for '_unique2' is not implemented",
    "(t // 1).sum().backward()": "derivative for aten::floor_divide is not implemented",
    "torch.ones(4, 6, requires_grad=True).softmax(1).mul_(2).sum().backward()": MODIFIED,
    "(net := nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1)),"
    " loss := net(torch.ones(2, 3)).sum(), nn.init.zeros_(net[2].weight), loss.backward())": (
        "[torch.FloatTensor [16, 1]], which is output 0 of AsStrided"
    ),
    "weight.sub_(1)": LEAF,
    "weight.copy_(x)": LEAF,
    "nn.functional.relu_(weight)": LEAF,
    "weight.__setitem__(0, 1.0)": PART_OF_LEAF,
    "weight.view(-1).mul_(2)": PART_OF_LEAF,
    "t.chunk(3)[0].mul_(2)": "Output 0 of Split is a view and is being modified inplace.",
    "t.split([1, 2])[1].mul_(2)": "Output 1 of SplitWithSizes is a view and is being modified",
    "t.unbind()[0].mul_(2)": "Output 0 of Unbind is a view and is being modified inplace.",
    "[row.mul_(2) for row in t]": "Output 0 of Unbind is a view and is being modified inplace.",
    "[row.add_(s) for row in torch.zeros(3)]": "A view was created in no_grad mode",
    "torch.no_grad()(lambda: t[:1])().mul_(2)": "A view was created in no_grad mode",
    "torch.inference_mode()(lambda: t[:1])().mul_(2)": "A view was created in inference mode",
    "(layer := nn.Linear(3, 3), layer.register_full_backward_hook(lambda *_: None),"
    " layer(x).relu_())": "This view was created inside a custom Function",
    "x.expand(2, 3).add_(1)": "more than one element of the written-to tensor",
    "x[1:].add_(x[:-1])": "some elements of the input tensor and the written-to tensor",
    "t[1:].add_(t[:-1])": "some elements of the input tensor and the written-to tensor",
    "t[:1].detach_()": "Can't detach views in-place. Use detach() instead.",
    "[loss.backward() for loss in [t.exp().sum()] * 2]": SECOND_TIME,
    "[loss.backward() for loss in [(weight * 2).sum()] * 2]": SECOND_TIME,
    "(loss := t.exp().sum(), torch.autograd.grad(loss, weight), loss.backward())": SECOND_TIME,
}


@pytest.mark.parametrize("expression", ERRORS)
def test_these_raise(expression):
    with pytest.raises(RuntimeError) as caught:
        evaluate(expression)
    assert ERRORS[expression] in f"RuntimeError: {caught.value}"


def test_every_message_that_a_page_quotes_is_torchs_own():
    actual = []
    for expression in ERRORS:
        with pytest.raises(RuntimeError) as caught:
            evaluate(expression)
        actual.append(f"RuntimeError: {caught.value}")
    for expression in ("float(s)", "torch.tensor(t)"):
        actual += [f"UserWarning: {message}" for message in evaluate(expression)[1]]
    quoted = [
        quote.strip()
        for code in explain.codes()
        for quote in re.findall(r"^```text\n(.*?)^```$", explain.page(code).text, re.M | re.S)
    ]
    assert quoted
    assert [q for q in quoted if not any(message.startswith(q) for message in actual)] == []


@pytest.mark.parametrize(
    "expression",
    [
        "weight + inference",
        "torch.cat([weight, inference])",
        "weight * inference.clone()",
        "weight * (inference * 2)",
    ],
)
def test_inference_tensors_pass_where_nothing_is_saved_or_a_copy_is_made(expression):
    value, _ = evaluate(expression)
    assert value.requires_grad


def test_a_model_built_in_inference_mode_cannot_be_stepped():
    with torch.inference_mode():
        model = nn.Linear(2, 1)
    model(torch.ones(3, 2)).sum().backward()
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        torch.optim.SGD(model.parameters(), lr=0.1).step()


def test_gradient_mode_is_set_per_thread_and_outlives_the_function_that_set_it():
    seen = []
    torch.set_grad_enabled(False)
    try:
        thread = threading.Thread(target=lambda: seen.append(torch.is_grad_enabled()))
        thread.start()
        thread.join()
        model = nn.Linear(2, 1).train()
        assert not model(torch.ones(1, 2)).requires_grad
    finally:
        torch.set_grad_enabled(True)
    assert seen == [True]
    assert model.eval()(torch.ones(1, 2)).requires_grad


def test_enable_grad_works_in_no_grad_but_not_in_inference_mode():
    weight = nn.Parameter(torch.ones(2))
    with torch.no_grad(), torch.enable_grad():
        assert (weight * 2).requires_grad
    with torch.inference_mode(), torch.enable_grad():
        assert not (weight * 2).requires_grad


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


def test_a_flag_set_after_the_forward_pass_comes_too_late():
    x = torch.ones(3)
    loss = (x * 2).sum()
    x.requires_grad_()
    with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad"):
        loss.backward()


def test_the_grad_of_data_is_none_without_a_word():
    x = torch.ones(1, 3)
    nn.Linear(3, 1)(x).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert x.grad is None


def test_what_a_frozen_layer_does_and_what_leaves_it_frozen():
    layer = nn.Linear(2, 2).requires_grad_(False)
    x = torch.ones(1, 2, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None and layer.weight.grad is None
    layer.train()
    layer.load_state_dict(nn.Linear(2, 2).state_dict())
    layer.requires_grad = True
    assert not layer.weight.requires_grad
    assert not copy.deepcopy(layer).weight.requires_grad
    norm = nn.BatchNorm1d(2).requires_grad_(False)
    norm(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert norm.running_mean.tolist() != [0.0, 0.0]


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


def step(kind, **options):
    return lambda net: kind(net.parameters(), lr=0.1, **options).step()


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


def layers(kind=nn.Linear):
    torch.manual_seed(0)
    size = {} if kind is nn.Linear else {"kernel_size": 1}
    return nn.Sequential(kind(3, 4, **size), nn.Tanh(), kind(4, 2, **size))


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


class Kept:
    """Stands for a saved tensor; it goes when autograd lets go of what it saved."""

    def __init__(self, tensor):
        self.tensor = tensor.detach()


def loss_and_saved(net=None):
    """A loss, and a function that counts how many of its saved tensors are still there."""
    references = []

    def pack(tensor):
        kept = Kept(tensor)
        references.append(weakref.ref(kept))
        return kept

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.tensor):
        loss = (net or layers())(torch.rand(2, 3)).square().sum()
    return loss, lambda: sum(reference() is not None for reference in references)


def operations(tensor) -> int:
    """The size of the graph behind `tensor`."""
    seen, ahead = set(), [tensor.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None and node not in seen:
            seen.add(node)
            ahead += [next_node for next_node, _ in node.next_functions]
    return len(seen)


def test_a_loss_outlives_backward_and_what_saves_nothing_can_go_twice():
    weight = nn.Parameter(torch.ones(2))
    loss = (weight + 1).sum()
    loss.backward()
    loss.backward()
    assert weight.grad.tolist() == [2.0, 2.0]
    assert loss.item() == 4 and loss.detach() == 4 and loss.grad_fn is not None


@pytest.mark.parametrize("options", [{"retain_graph": True}, {"create_graph": True}])
@pytest.mark.filterwarnings("ignore:Using backward")
def test_a_part_that_is_backpropagated_before_its_sum_counts_double(options):
    weight = nn.Parameter(torch.ones(2))
    part = weight.exp().sum()
    part.backward(**options)
    (part + weight.square().sum()).backward()
    assert torch.allclose(weight.grad, 2 * weight.exp() + 2 * weight)


def test_a_retained_graph_goes_with_its_loss_and_grad_leaves_the_gradients_alone():
    net = layers()
    loss, saved = loss_and_saved(net)
    torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
    assert net[0].weight.grad is None and saved() > 0
    loss.backward(retain_graph=True)
    assert net[0].weight.grad is not None and saved() > 0
    del loss
    assert saved() == 0


def test_a_retained_graph_does_not_survive_a_step():
    net = layers()
    loss = net(torch.rand(2, 3)).square().sum()
    loss.backward(retain_graph=True)
    step(torch.optim.SGD)(net)
    with pytest.raises(RuntimeError, match=MODIFIED):
        loss.backward()


@pytest.mark.parametrize("inside", [False, True])
def test_the_closure_of_lbfgs_needs_a_forward_pass_of_its_own(inside):
    weight = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.LBFGS([weight])
    before = (weight - 3).square().sum()

    def closure():
        loss = (weight - 3).square().sum() if inside else before
        optimizer.zero_grad()
        loss.backward()
        return loss

    with nullcontext() if inside else pytest.raises(RuntimeError, match=SECOND_TIME):
        optimizer.step(closure)
    assert torch.allclose(weight, torch.tensor(3.0)) == inside


def two_heads(train):
    """The gradients that `train(loss, other, network)` gives, and its passes of the encoder."""
    torch.manual_seed(0)
    network = nn.ModuleList([layers(), nn.Linear(2, 1), nn.Linear(2, 1)])
    features, passes = network[0](torch.ones(3, 3)), []
    features.grad_fn.register_hook(lambda *_: passes.append(1))
    train(network[1](features).square().sum(), network[2](features).square().sum(), network)
    return torch.cat([p.grad.flatten() for p in network.parameters()]), len(passes)


def test_the_sum_of_two_losses_saves_a_pass_over_two_with_a_retained_graph():
    summed = two_heads(lambda one, other, _: (one + other).backward())
    listed = two_heads(lambda one, other, _: torch.autograd.backward([one, other]))
    retained = two_heads(lambda one, other, _: (one.backward(retain_graph=True), other.backward()))
    for (gradients, passes), expected_passes in ((summed, 1), (listed, 1), (retained, 2)):
        assert torch.allclose(gradients, summed[0])
        assert passes == expected_passes
    with pytest.raises(RuntimeError, match=SECOND_TIME):
        two_heads(lambda one, other, _: (one.backward(), other.backward()))


def test_a_step_between_the_backward_passes_of_two_losses():
    def train(fused):
        def in_order(one, other, network):
            one.backward(retain_graph=True)
            before = [p.grad.clone() for p in network[0].parameters()]
            expected = torch.autograd.grad(other, list(network[0].parameters()), retain_graph=True)
            step(torch.optim.SGD, fused=fused)(network)
            other.backward()
            got = [p.grad - b for p, b in zip(network[0].parameters(), before, strict=True)]
            assert not all(map(torch.allclose, got, expected))

        return in_order

    with pytest.raises(RuntimeError, match=MODIFIED):
        two_heads(train(fused=False))
    assert two_heads(train(fused=True))[1] == 3


def test_a_common_part_that_saves_nothing_can_be_shared_and_a_detached_one_is_not_reached():
    weight = nn.Parameter(torch.ones(2))
    common = weight + 1
    (common * 2).sum().backward()
    (common * 3).sum().backward()
    assert weight.grad.tolist() == [5.0, 5.0]
    generator, discriminator = layers(), nn.Linear(2, 1)
    fake = generator(torch.rand(2, 3))
    discriminator(fake.detach()).sum().backward()
    assert generator[0].weight.grad is None
    discriminator(fake).sum().backward()
    assert generator[0].weight.grad is not None


def train_in_chunks(carry, optimizer=None, cell=nn.GRU, **options):
    """Train on three chunks; how often backward passed a carried state in each of them."""
    net, passes = cell(3, 4), []
    state = torch.zeros(1, 2, 4) if cell is nn.GRU else (torch.zeros(1, 2, 4),) * 2
    for chunk in range(3):
        output, state = net(torch.rand(5, 2, 3), state)
        passes.append(0)
        if cell is nn.GRU:
            state.register_hook(lambda _: passes.append(passes.pop() + 1))
        net.zero_grad()
        try:
            output.square().sum().backward(**options)
        except RuntimeError as error:
            raise RuntimeError(f"chunk {chunk}: {error}") from None
        if optimizer is not None:
            optimizer(net)
        state = carry(state)
    return passes


def test_what_becomes_of_a_state_that_is_carried_over():
    sgd, fused = step(torch.optim.SGD), step(torch.optim.SGD, fused=True)
    for carry in (lambda state: state, torch.clone):
        with pytest.raises(RuntimeError, match=f"chunk 1: {SECOND_TIME}"):
            train_in_chunks(carry, sgd)
        with pytest.raises(RuntimeError, match=f"chunk 1: {MODIFIED}"):
            train_in_chunks(carry, sgd, retain_graph=True)
        for optimizer in (None, fused):
            assert train_in_chunks(carry, optimizer, retain_graph=True) == [0, 1, 2]
    assert train_in_chunks(torch.detach, sgd) == [0, 0, 0]
    assert train_in_chunks(lambda pair: tuple(s.detach() for s in pair), sgd, nn.LSTM)
    with pytest.raises(RuntimeError, match=f"chunk 1: {SECOND_TIME}"):
        train_in_chunks(lambda pair: pair, sgd, nn.LSTM)


@pytest.mark.parametrize("kept", ["penalty", "scaled", "total"])
def test_other_things_that_outlive_an_iteration(kept):
    weight = nn.Parameter(torch.ones(2))
    penalty, scaled, total = weight.square().sum(), nn.Parameter(torch.ones(2)) * 0.1, 0.0

    def loss():
        nonlocal total
        total = total + weight.exp().sum()
        return {"penalty": penalty, "scaled": scaled.sum(), "total": total}[kept]

    loss().backward()
    with pytest.raises(RuntimeError, match=SECOND_TIME):
        loss().backward()


def test_losses_of_several_chunks_can_share_one_backward():
    net, state, total = nn.GRU(3, 4), torch.zeros(1, 2, 4), 0.0
    for _ in range(3):
        output, state = net(torch.rand(5, 2, 3), state)
        total = total + output.square().sum()
    total.backward()
    assert net.weight_hh_l0.grad.abs().sum() > 0


def test_a_loss_keeps_its_operations_and_backward_decides_about_what_they_saved():
    loss, saved = loss_and_saved()
    size = operations(loss)
    loss.backward()
    assert saved() == 0 and operations(loss) == size
    history, saved = loss_and_saved()
    gc.collect()
    assert saved() > 0
    history = history.detach()
    assert saved() == 0 and history.grad_fn is None


def test_a_total_keeps_the_operations_of_every_step_and_a_name_only_those_of_the_last():
    net, total, sizes, counters = layers(), 0.0, [], []
    for _ in range(3):
        loss, saved = loss_and_saved(net)
        counters.append(saved)
        total += loss
        sizes.append(operations(total))
    assert sizes[1] - sizes[0] == sizes[2] - sizes[1] > 0
    assert all(saved() > 0 for saved in counters)
    total = 0.0
    assert [saved() > 0 for saved in counters] == [False, False, True]


def test_what_a_custom_function_hangs_on_its_context_stays():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.kept = Kept(x)
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            return 2 * ctx.kept.tensor * gradient

    loss = Square.apply(nn.Parameter(torch.ones(2))).sum()
    loss.backward()
    node = loss.grad_fn.next_functions[0][0]
    assert node.kept.tensor.tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match=SECOND_TIME):
        _ = node.saved_tensors


def test_the_failing_example_about_kept_graphs_keeps_them_all():
    program = {}
    exec(explain.page("graph-kept-alive").failing, program)
    assert len({loss.grad_fn for loss in program["history"]}) == 40
    assert {operations(loss) for loss in program["history"]} == {operations(program["loss"])}
    assert all(p.grad.abs().sum() > 0 for p in program["model"].parameters())
