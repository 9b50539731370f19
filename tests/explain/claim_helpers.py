"""Expressions over small tensors, what torch says about them, and networks to train."""

import math
import warnings

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical, Normal

TO_SCALAR = "Converting a tensor with requires_grad=True to a scalar"
COPY_CONSTRUCT = "To copy construct from a tensor"
MODIFIED = "one of the variables needed for gradient computation has been modified by an inplace"
LEAF = "a leaf Variable that requires grad is being used in an in-place operation."
PART_OF_LEAF = "a view of a leaf Variable that requires grad is being used in an in-place"
SECOND_TIME = "Trying to backward through the graph a second time"
NO_GRAD_FN = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"


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


# What raises, and how torch's words for it begin or what is in them.
CUT_ERRORS = {
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
}
WRITE_ERRORS = {
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
}
LIFETIME_ERRORS = {
    "[loss.backward() for loss in [t.exp().sum()] * 2]": SECOND_TIME,
    "[loss.backward() for loss in [(weight * 2).sum()] * 2]": SECOND_TIME,
    "(loss := t.exp().sum(), torch.autograd.grad(loss, weight), loss.backward())": SECOND_TIME,
}
LEFT_BEHIND_ERRORS = {
    "torch.autograd.grad(s, [weight, nn.Parameter(x)])": (
        "RuntimeError: The differentiated Tensor at index 1 appears to not have been used"
    ),
    "torch.optim.SGD([], lr=0.1)": "ValueError: optimizer got an empty parameter list",
}
ORDER_ERRORS = {
    "nn.utils.clip_grad_value_([weight], 1.0)": "RuntimeError: Expected !nested_tensorlist[0]",
    "(scaler := torch.amp.GradScaler('cpu'), scaler.scale(s),"
    " scaler.step(torch.optim.SGD([weight], lr=0.1)))": (
        "AssertionError: No inf checks were recorded for this optimizer."
    ),
    "(scaler := torch.amp.GradScaler('cpu'), scaler.scale(s), scaler.update())": (
        "AssertionError: No inf checks were recorded prior to update."
    ),
}
SCHEDULER_FIRST = "torch.optim.lr_scheduler.StepLR(torch.optim.SGD([weight], lr=1.0), 1).step()"


def error_of(expression: str) -> str:
    """The type and the text of what `expression` raises; empty if it raises nothing."""
    try:
        evaluate(expression)
    except (RuntimeError, ValueError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def step(kind, **options):
    return lambda net: kind(net.parameters(), lr=0.1, **options).step()


def layers(kind=nn.Linear):
    torch.manual_seed(0)
    size = {} if kind is nn.Linear else {"kernel_size": 1}
    return nn.Sequential(kind(3, 4, **size), nn.Tanh(), kind(4, 2, **size))
