"""What the pages about compiled functions and several processes say about torch, checked."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


@pytest.fixture
def one_process():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def go_back(x):
    loss = x.sum()
    loss.backward()
    return loss


def test_without_fullgraph_the_compiler_leaves_the_graph_and_goes_on():
    x = torch.ones(2, requires_grad=True)
    torch.compile(go_back, backend="eager")(x)
    assert x.grad.tolist() == [1, 1]
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"Tensor\.backward"):
        torch.compile(go_back, backend="eager", fullgraph=True)(x)


def test_hooks_on_tensors_and_no_grad_inside_are_fine():
    seen = []
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda gradient: seen.append(gradient))

    @torch.compile(backend="aot_eager", fullgraph=True)
    def scaled(x):
        with torch.no_grad():
            size = x.norm()
        return (x / size).sum()

    scaled(x).backward()
    assert len(seen) == 1


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.other = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.used(x)


def two_steps(model):
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()


@pytest.mark.usefixtures("one_process")
def test_freezing_before_wrapping_is_fine_and_after_is_not():
    before = Two()
    before.other.requires_grad_(False)
    two_steps(DistributedDataParallel(before))
    assert before.used.weight.grad is not None
    after = DistributedDataParallel(Two())
    after.module.other.requires_grad_(False)
    with pytest.raises(RuntimeError, match="Expected to have finished reduction"):
        two_steps(after)


@pytest.mark.usefixtures("one_process")
def test_a_search_for_unused_parameters_makes_it_work():
    model = Two()
    two_steps(DistributedDataParallel(model, find_unused_parameters=True))
    assert model.used.weight.grad is not None


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.block = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        x = self.enter(x)
        for _ in range(2):
            x = checkpoint(self.block, x, use_reentrant=True)
        return x


@pytest.mark.usefixtures("one_process")
def test_a_static_graph_counts_how_often_a_gradient_comes():
    model = DistributedDataParallel(Shared(), static_graph=True)
    two_steps(model)
    assert model.module.block.weight.grad is not None


class Box:
    def __init__(self, value):
        self.value = value


class Boxed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return Box(self.layer(x))


@pytest.mark.usefixtures("one_process")
def test_an_output_that_cannot_be_looked_into():
    model = DistributedDataParallel(Boxed(), find_unused_parameters=True)
    with pytest.raises(RuntimeError, match="mark a variable ready only once"):
        model(torch.ones(1, 2)).value.sum().backward()
