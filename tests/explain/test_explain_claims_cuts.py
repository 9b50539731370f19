"""What the pages about cut graphs say about torch, checked against torch."""

import copy
import re
import threading
import warnings

import pytest
import torch
from claim_helpers import (
    COPY_CONSTRUCT,
    CUT_ERRORS,
    LEFT_BEHIND_ERRORS,
    LIFETIME_ERRORS,
    ORDER_ERRORS,
    SCHEDULER_FIRST,
    TO_SCALAR,
    WRITE_ERRORS,
    error_of,
    evaluate,
)
from torch import nn

from whygrad import explain
from whygrad.explain import pasted


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


@pytest.mark.parametrize("expression", CUT_ERRORS)
def test_these_raise(expression):
    with pytest.raises(RuntimeError) as caught:
        evaluate(expression)
    assert CUT_ERRORS[expression] in f"RuntimeError: {caught.value}"


def test_every_message_that_a_page_quotes_is_torchs_own():
    errors = CUT_ERRORS | WRITE_ERRORS | LIFETIME_ERRORS | LEFT_BEHIND_ERRORS | ORDER_ERRORS
    actual = [error_of(expression) for expression in errors]
    for expression in ("float(s)", "torch.tensor(t)", SCHEDULER_FIRST):
        actual += [f"UserWarning: {message}" for message in evaluate(expression)[1]]
    quoted = [
        quote.strip()
        for code in explain.codes()
        for quote in re.findall(r"^```text\n(.*?)^```$", explain.page(code).text, re.M | re.S)
    ]
    assert quoted
    unknown = [q for q in quoted if not any(message.startswith(q) for message in actual)]
    # The catalogue's own words are checked against torch with a program for each of them.
    assert [q for q in unknown if pasted.read(q).message is None] == []


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
