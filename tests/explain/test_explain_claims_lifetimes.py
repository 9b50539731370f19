"""What the pages about the lifetime of graphs say about torch, checked against torch."""

import gc
import weakref
from contextlib import nullcontext

import pytest
import torch
from claim_helpers import LIFETIME_ERRORS, MODIFIED, SECOND_TIME, evaluate, layers, step
from torch import nn

from whygrad import explain


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


@pytest.mark.parametrize("expression", LIFETIME_ERRORS)
def test_these_raise(expression):
    with pytest.raises(RuntimeError) as caught:
        evaluate(expression)
    assert LIFETIME_ERRORS[expression] in f"RuntimeError: {caught.value}"


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
