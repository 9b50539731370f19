"""What the pages about parameters left behind say about torch, checked against torch."""

import copy
import io
import warnings
from types import SimpleNamespace

import hand_checks
import pytest
import torch
import torch.distributed
from claim_helpers import LEFT_BEHIND_ERRORS, SECOND_TIME, error_of, layers
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_, parametrizations, prune

from whygrad import explain


@pytest.mark.parametrize("expression", LEFT_BEHIND_ERRORS)
def test_these_raise(expression):
    assert error_of(expression).startswith(LEFT_BEHIND_ERRORS[expression])


@pytest.mark.parametrize(
    "code",
    [
        "parameter-unused",
        "parameter-unregistered",
        "parameter-not-in-optimizer",
        "optimizer-holds-old-parameters",
        "output-not-in-loss",
    ],
)
def test_the_check_by_hand_catches_the_failing_example_alone(code):
    assert hand_checks.outcomes(code) == ["caught", "passed"]


# --- parameter-unused, output-not-in-loss -----------------------------------------------------


class TwoHeads(nn.Module):
    def __init__(self, calls_both):
        super().__init__()
        self.one, self.other, self.calls_both = nn.Linear(2, 1), nn.Linear(2, 1), calls_both

    def forward(self, x):
        return self.one(x), self.other(x) if self.calls_both else None


@pytest.fixture
def one_process():
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("calls_both", [False, True])
def test_distributed_training_notices_in_the_second_step(calls_both, one_process):
    model = DistributedDataParallel(TwoHeads(calls_both))
    model(torch.ones(3, 2))[0].sum().backward()
    with pytest.raises(RuntimeError) as caught:
        model(torch.ones(3, 2))
    words = "Expected to have finished reduction in the prior iteration before starting a new one"
    assert str(caught.value).startswith(words)
    page = explain.page("output-not-in-loss" if calls_both else "parameter-unused")
    assert words in " ".join(page.text.split())


def test_distributed_training_does_not_wait_for_what_is_frozen(one_process):
    module = TwoHeads(calls_both=False)
    module.other.requires_grad_(False)
    model = DistributedDataParallel(module)
    for _ in range(3):
        module.zero_grad()
        model(torch.ones(3, 2))[0].sum().backward()
    assert module.one.weight.grad.tolist() == [[3.0, 3.0]]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_none_is_passed_over_and_zeros_decay(kind):
    unused, multiplied = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    (0 * multiplied.sum()).backward()
    assert unused.grad is None and multiplied.grad.tolist() == [0.0, 0.0]
    kind([unused, multiplied], lr=0.1, weight_decay=0.5).step()
    assert unused.tolist() == [1.0, 1.0]
    assert multiplied.max() < 1


def test_what_only_looks_unused():
    embedding, output = nn.Embedding(4, 2), nn.Linear(2, 4, bias=False)
    output.weight = embedding.weight
    tied = nn.ModuleDict({"embedding": embedding, "output": output})
    assert [name for name, _ in tied.named_parameters()] == ["embedding.weight"]
    embedding(torch.tensor([1])).sum().backward()
    assert embedding.weight.grad.tolist() == [[0, 0], [1, 1], [0, 0], [0, 0]]


def test_the_first_factor_of_a_low_rank_adapter_gets_zeros_in_the_first_step_only():
    down, up = nn.Linear(3, 2, bias=False), nn.Linear(2, 3, bias=False)
    nn.init.zeros_(up.weight)
    optimizer = torch.optim.SGD([down.weight, up.weight], lr=0.1)
    flows = []
    for _ in range(3):
        optimizer.zero_grad()
        (1 + up(down(torch.ones(1, 3)))).square().sum().backward()
        flows.append(bool(down.weight.grad.any()))
        optimizer.step()
    assert flows == [False, True, True]


def test_outputs_that_can_be_dropped_without_harm():
    recurrent, attention = nn.LSTM(2, 3), nn.MultiheadAttention(4, 2)
    recurrent(torch.rand(5, 1, 2))[0].square().sum().backward()
    x = torch.rand(5, 1, 4)
    attention(x, x, x)[0].square().sum().backward()
    for module in (recurrent, attention):
        assert all(p.grad is not None for p in module.parameters())


# --- parameter-unregistered -------------------------------------------------------------------


class Holder(nn.Module):
    def __init__(self, kept):
        super().__init__()
        self.kept = kept
        self.head = nn.Linear(2, 1)


REGISTERED = {
    "module list": lambda: nn.ModuleList([nn.Linear(2, 2)]),
    "module dict": lambda: nn.ModuleDict({"a": nn.Linear(2, 2)}),
    "sequential": lambda: nn.Sequential(*[nn.Linear(2, 2)]),
    "parameter list": lambda: nn.ParameterList([torch.ones(2)]),
    "parameter dict": lambda: nn.ParameterDict({"a": torch.ones(2)}),
    "nothing to convert": lambda: nn.Parameter(torch.ones(2)).to(torch.float32).to("cpu"),
    "converted before": lambda: nn.Parameter(torch.ones(2).to(torch.float64)),
    "scaled before": lambda: nn.Parameter(torch.ones(2) * 0.1),
}
UNREGISTERED = {
    "list": lambda: [nn.Linear(2, 2)],
    "dict": lambda: {"a": nn.Linear(2, 2)},
    "tuple": lambda: (nn.Linear(2, 2),),
    "list of parameters": lambda: [nn.Parameter(torch.ones(2))],
    "module list in a list": lambda: [nn.ModuleList([nn.Linear(2, 2)])],
    "object": lambda: SimpleNamespace(layer=nn.Linear(2, 2)),
    "function": lambda: nn.Linear(2, 2).forward,
    "tensor": lambda: torch.ones(2, requires_grad=True),
    "converted": lambda: nn.Parameter(torch.ones(2)).to(torch.float64),
    "other device": lambda: nn.Parameter(torch.ones(2)).to("meta"),
    "scaled": lambda: nn.Parameter(torch.ones(2)) * 0.1,
}


@pytest.mark.parametrize("kept", REGISTERED)
def test_a_module_registers_these(kept):
    names = [name for name, _ in Holder(REGISTERED[kept]()).named_parameters()]
    assert len(names) > 2 and all(name.startswith(("kept", "head.")) for name in names)


@pytest.mark.parametrize("kept", UNREGISTERED)
def test_a_module_does_not_register_these(kept):
    model = Holder(UNREGISTERED[kept]())
    assert [name for name, _ in model.named_parameters()] == ["head.weight", "head.bias"]
    assert list(model.state_dict()) == ["head.weight", "head.bias"]
    assert "kept" not in str(model)


def test_what_else_an_unregistered_layer_misses():
    model, other = Holder([nn.Linear(2, 2)]), Holder([nn.Linear(2, 2)])
    (layer,) = model.kept
    other.load_state_dict(model.state_dict())
    assert not torch.equal(other.kept[0].weight, layer.weight)
    model.double().eval()
    assert layer.weight.dtype == torch.float32 and layer.training
    assert model.head.weight.dtype == torch.float64 and not model.head.training


def test_an_unregistered_layer_gets_gradients_that_add_up():
    model = Holder([nn.Linear(2, 2)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    sizes = []
    for _ in range(3):
        optimizer.zero_grad()
        model.head(model.kept[0](torch.ones(1, 2))).sum().backward()
        sizes.append(model.kept[0].bias.grad.abs().sum().item())
    assert sizes == pytest.approx([sizes[0], 2 * sizes[0], 3 * sizes[0]])


def test_a_converted_parameter_stays_silent_and_a_scaled_one_raises_in_the_second_iteration():
    converted, scaled = (Holder(UNREGISTERED[kept]()) for kept in ("converted", "scaled"))
    for _ in range(3):
        converted.head(converted.kept.square().float()).sum().backward()
    assert not converted.kept.is_leaf and converted.head.bias.grad.tolist() == [3.0]
    scaled.head(scaled.kept.square()).sum().backward()
    with pytest.raises(RuntimeError, match=SECOND_TIME):
        scaled.head(scaled.kept.square()).sum().backward()


def test_a_layer_made_in_forward_is_a_new_one_each_time():
    class Forgetful(nn.Module):
        def forward(self, x):
            return nn.Linear(2, 2)(x)

    model = Forgetful()
    assert not torch.equal(model(torch.ones(2)), model(torch.ones(2)))
    assert list(model.parameters()) == []


def test_lists_and_buffers_that_are_right():
    model = Holder([])
    model.kept = [model.head]
    model.teacher = [nn.Linear(2, 1)]
    model.register_buffer("scale", torch.ones(2, requires_grad=True))
    assert len(list(model.parameters())) == 2
    assert sorted(model.state_dict()) == ["head.bias", "head.weight", "scale"]
    assert model.double().scale.dtype == torch.float64
    assert model.kept[0].weight.dtype == torch.float64


# --- parameter-not-in-optimizer ---------------------------------------------------------------


def test_gradients_outside_the_optimizer_add_up_and_take_part_in_clipping():
    inside, outside = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([inside], lr=0.0)
    kept = []
    for _ in range(3):
        optimizer.zero_grad()
        (3 * inside + 3 * outside).sum().backward()
        clip_grad_norm_([inside, outside], 1.0)
        kept.append(inside.grad.norm().item())
    assert kept[0] > kept[1] > kept[2]


def test_what_an_optimizer_takes_later():
    weight, added = nn.Parameter(torch.ones(2), requires_grad=False), nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    chosen = torch.optim.SGD(filter(lambda p: p.requires_grad, [weight, added]), lr=0.1)
    optimizer.add_param_group({"params": [added]})
    weight.requires_grad_()
    (weight + added).sum().backward()
    optimizer.step()
    assert weight.max() < 1 and added.max() < 1
    assert [len(group["params"]) for group in chosen.param_groups] == [1]


def test_a_generator_that_was_looped_over_is_empty():
    model, head = nn.Linear(2, 2), nn.Linear(2, 1)
    parameters = model.parameters()
    assert len(list(parameters)) == 2
    with pytest.raises(ValueError, match="optimizer got an empty parameter list"):
        torch.optim.SGD(parameters, lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = torch.optim.SGD([*parameters, *head.parameters()], lr=0.1)
    assert len(optimizer.param_groups[0]["params"]) == 2


# --- optimizer-holds-old-parameters -----------------------------------------------------------


def load_whole(net):
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def prepared_for_quantisation(net):
    net.qconfig = torch.ao.quantization.get_default_qat_qconfig()
    return torch.ao.quantization.prepare_qat(net.train())


def pruned(net):
    prune.l1_unstructured(net[0], "weight", 1)
    assert "0.weight_orig" in dict(net.named_parameters())


REPLACED = {
    "layer": lambda net: net.__setitem__(0, nn.Linear(3, 4)),
    "parameter": lambda net: setattr(net[0], "weight", nn.Parameter(torch.ones(4, 3))),
    "assign": lambda net: net.load_state_dict(layers().state_dict(), assign=True),
    "deepcopy": copy.deepcopy,
    "load": load_whole,
    "prepare_qat": prepared_for_quantisation,
    "weight_norm": lambda net: parametrizations.weight_norm(net[0]),
    "old weight_norm": lambda net: nn.utils.weight_norm(net[0]),
}
KEPT = {
    "load_state_dict": lambda net: net.load_state_dict(layers().state_dict()),
    "reset_parameters": lambda net: net[0].reset_parameters(),
    "init": lambda net: nn.init.ones_(net[0].weight),
    "data": lambda net: setattr(net[0].weight, "data", torch.ones(4, 3)),
    "double": lambda net: net.double(),
    "half": lambda net: net.half(),
    "to": lambda net: net.to(torch.bfloat16),
    "prune": pruned,
    "spectral_norm": lambda net: parametrizations.spectral_norm(net[0]),
    "compile": lambda net: torch.compile(net, backend="eager"),
    "DataParallel": nn.DataParallel,
}


def holds_all_after(change) -> bool:
    net = layers()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    changed = change(net)
    whole = isinstance(changed, nn.Module) and changed is not net[0]
    model = changed if whole else net
    return set(model.parameters()) == set(optimizer.param_groups[0]["params"])


@pytest.mark.parametrize("change", REPLACED)
@pytest.mark.filterwarnings("ignore")
def test_these_replace_parameters(change):
    assert not holds_all_after(REPLACED[change])


@pytest.mark.parametrize("change", KEPT)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_these_keep_the_parameters(change):
    assert holds_all_after(KEPT[change])


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_conversion_keeps_the_parameters_unless_told_otherwise(overwrite):
    torch.__future__.set_overwrite_module_params_on_conversion(overwrite)
    try:
        assert holds_all_after(nn.Module.double) == (not overwrite)
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)


@pytest.mark.parametrize("whole", [False, True])
def test_what_training_does_after_a_replacement(whole):
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    old = list(model.parameters())
    if whole:
        model = copy.deepcopy(model)
    else:
        model[2] = nn.Linear(4, 2)
    x, losses = torch.rand(8, 3), []
    for _ in range(10):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    assert (losses[-1] < losses[0], losses[-1] == losses[0]) == (not whole, whole)
    assert old[2].grad is None and model[2].weight.grad.any()
    optimizer.add_param_group({"params": model[2].parameters()})
    before = model[2].weight.detach().clone()
    optimizer.step()
    assert not torch.equal(model[2].weight, before)
