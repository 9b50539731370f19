"""Corners of autograd itself."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import nn
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, power: int) -> Any:
        ctx.save_for_backward(x, weight)
        ctx.power = power
        ctx.name = "a name of the program's own"
        ctx.variable = "and a variable"
        return x * weight**power

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        for_weight = (gradient * x).sum() * ctx.power * weight ** (ctx.power - 1)
        return gradient * weight**ctx.power, for_weight, None


class _AddInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        ctx.mark_dirty(x)
        return x.add_(y)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, gradient


class _SortWithIndices(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        ordered, indices = x.sort()
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices)
        ctx.set_materialize_grads(False)
        return ordered, indices

    @staticmethod
    def backward(ctx: Any, gradient: Any, _: Any) -> Any:
        (indices,) = ctx.saved_tensors
        return torch.zeros_like(gradient).scatter(0, indices, gradient)


class _NewStyle(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> Any:
        return x.sin()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * ctx.saved_tensors[0].cos()

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor) -> Any:
        return tangent * ctx.saved_tensors[0].cos()


def custom_functions() -> Any:
    weight = torch.tensor(1.5, requires_grad=True)
    x = torch.randn(4, requires_grad=True)
    scaled = _Scale.apply(x, weight, 3)
    dirty = x * 2
    added = _AddInPlace.apply(dirty, scaled)
    ordered, indices = _SortWithIndices.apply(added)
    loss = (ordered * torch.arange(4.0)).sum() + _NewStyle.apply(ordered).sum()
    loss.backward()
    (again,) = torch.autograd.grad(_NewStyle.apply(x).sum(), x, create_graph=True)
    batched = vmap(_NewStyle.apply)(torch.ones(3, 2))
    forward = jvp(_NewStyle.apply, (torch.ones(2),), (torch.ones(2),))
    return [
        scaled,
        added is dirty,
        ordered,
        indices,
        loss,
        x.grad,
        weight.grad,
        again,
        batched,
        forward,
    ]


def hooks_of_every_kind() -> Any:
    log: list[Any] = []
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    model[0].register_forward_pre_hook(lambda module, args: log.append(("pre", args[0].clone())))
    model[1].register_forward_hook(lambda module, args, out: out * 1.5)
    model[2].register_full_backward_hook(lambda module, gin, gout: (gin[0] * 0.5,))
    model[0].register_full_backward_pre_hook(
        lambda module, gout: log.append(("gout", gout[0].clone()))
    )
    first = model[0].weight
    first.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
    first.register_post_accumulate_grad_hook(lambda p: log.append(("accumulated", p.grad.clone())))
    hidden = model[0](torch.ones(2, 3))
    hidden.retain_grad()
    hidden.register_hook(lambda gradient: log.append(("hidden", gradient.clone())))
    torch.autograd.graph.register_multi_grad_hook(
        (hidden, first),
        lambda gradients: log.append([g.clone() for g in gradients if g is not None]),
    )
    out = model[2](model[1](hidden)).sum()
    assert out.grad_fn is not None
    out.grad_fn.register_prehook(lambda gradients: log.append(("node", gradients[0].clone())))
    out.backward()
    model(torch.ones(1, 3)).sum().backward()
    return [log, hidden.grad, *[p.grad for p in model.parameters()]]


def hooks_on_saved_tensors() -> Any:
    packed: list[Any] = []
    x = torch.randn(3, requires_grad=True)

    def pack(tensor: torch.Tensor) -> Any:
        packed.append(tuple(tensor.shape))
        return tensor.to(torch.bfloat16), tensor.dtype

    def unpack(saved: Any) -> torch.Tensor:
        return saved[0].to(saved[1])

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = (x.exp() * x.sigmoid()).sum()
    with torch.autograd.graph.save_on_cpu():
        z = (x * x).sum()
    with torch.autograd.graph.disable_saved_tensors_hooks("not now"):
        try:
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                x.exp()
        except RuntimeError as error:
            packed.append(str(error))
    (y + z).backward()
    return [packed, x.grad]


def checkpoints() -> Any:
    block = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Dropout(0.5), nn.Linear(3, 3))
    x = torch.randn(4, 3, requires_grad=True)
    out = checkpoint(block, x, use_reentrant=False)
    out = out + checkpoint(block, out, use_reentrant=True)
    out = checkpoint_sequential(list(block), 2, out, use_reentrant=False)
    out.square().sum().backward()
    (through,) = torch.autograd.grad(checkpoint(block, x, use_reentrant=False).sum(), x)
    return [out, x.grad, through, *[p.grad for p in block.parameters()]]


def double_backward() -> Any:
    critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    real = torch.randn(4, 3, requires_grad=True)
    (slope,) = torch.autograd.grad(critic(real).sum(), real, create_graph=True)
    penalty = (slope.norm(dim=1) - 1).square().mean()
    penalty.backward()
    x = torch.tensor(2.0, requires_grad=True)
    derivatives = [x**4]
    for _ in range(3):
        derivatives += torch.autograd.grad(derivatives[-1], x, create_graph=True)
    jacobian = torch.autograd.functional.jacobian(lambda v: v**3, torch.ones(2))
    curvature = torch.autograd.functional.hvp(lambda v: (v**3).sum(), torch.ones(2), torch.ones(2))
    gradients = [p.grad for p in critic.parameters()]
    return [penalty, derivatives, jacobian, curvature, gradients]


def grad_arguments() -> Any:
    x = torch.randn(3, requires_grad=True)
    unused = torch.randn(2, requires_grad=True)
    y = x * 2
    seen = [
        torch.autograd.grad(y.sum(), [x, unused], allow_unused=True, retain_graph=True),
        torch.autograd.grad(y.sum(), [x, unused], materialize_grads=True, retain_graph=True),
        torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True, retain_graph=True),
        torch.autograd.grad([y, y.sum()], [x], [torch.ones(3), None], retain_graph=True),
    ]
    torch.autograd.backward([y, y], [torch.ones(3), torch.ones(3)], retain_graph=True)
    y.backward(torch.ones(3), inputs=[x])
    torch.autograd.backward(tensors=(x * 3).sum())
    return [seen, x.grad]


def functional_transforms() -> Any:
    model = nn.Linear(3, 2)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    inputs, targets = torch.randn(4, 3), torch.randn(4, 2)

    def loss(weights: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (functional_call(model, weights, (x,)) - y).square().mean()

    each = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, inputs, targets)
    value, tangent = jvp(torch.sin, (inputs,), (torch.ones_like(inputs),))
    out, pull = vjp(lambda v: v.exp().sum(0), inputs)
    noise = vmap(lambda v: v + torch.randn(2), randomness="different")(torch.zeros(3, 2))

    def in_place(v: torch.Tensor) -> torch.Tensor:
        copy = v.clone()
        copy[0].mul_(3)
        copy.add_(1)
        return copy.view(-1).prod()

    return [
        each,
        value,
        tangent,
        out,
        pull(torch.ones(3)),
        noise,
        hessian(lambda v: (v**3).sum())(torch.ones(2)),
        jacrev(in_place)(torch.full((2,), 0.5)),
        vmap(grad(in_place))(torch.randn(3, 2)),
    ]


def forward_mode() -> Any:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    x = torch.randn(2)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones(2))
        out = forward_ad.unpack_dual(model(dual).square())
        kept = out.primal, out.tangent.clone()
    return kept


def in_place_and_views() -> Any:
    base = torch.zeros(4, 4)
    x = torch.randn(4, requires_grad=True)
    base[0] = x
    base[:, 1] += x * 2
    base.diagonal().mul_(3)
    row = base[2]
    row.add_(1)
    view = base.view(2, 8)
    view[1].exp_()
    out = torch.empty(4)
    torch.mul(torch.ones(4), 2.0, out=out)
    y = x * 3
    y.add_(1).mul_(2)
    y[y > 0] = 0.5
    y.masked_fill_(y < -1, 0.0)
    z = x.clone()
    z.detach_()
    unbound = [piece * 2 for piece in x.clone().unbind()]
    (view.sum() + y.square().sum() + torch.stack(unbound).sum()).backward()
    with torch.no_grad():
        x.sub_(x.grad, alpha=0.1)
    x.data.mul_(0.5)
    return [base, view, out, y, z, x, x.grad, y._version, base._version, view._is_view()]


def gradient_modes() -> Any:
    x = torch.ones(2, requires_grad=True)
    seen: list[Any] = []

    @torch.no_grad()
    def off() -> Any:
        return x * 2

    @torch.inference_mode()
    def inference() -> Any:
        return x * 2

    with torch.inference_mode():
        inner = x * 2
        with torch.inference_mode(False):
            seen.append((x * 2).requires_grad)
        seen.append(inner.is_inference())
    with torch.set_grad_enabled(False), torch.enable_grad():
        seen.append((x * 2).requires_grad)
    torch.set_grad_enabled(False)
    seen.append((x * 2).requires_grad)
    torch.set_grad_enabled(True)
    for call in (lambda: inner * x, lambda: inner.add_(1), lambda: inner.requires_grad_()):
        try:
            call()
        except RuntimeError as error:
            seen.append(str(error))
    return [seen, off(), inference().is_inference(), inner.clone(), torch.is_grad_enabled()]


def anomaly_mode() -> Any:
    x = torch.zeros(2, requires_grad=True)
    model = nn.Sequential(nn.Linear(2, 2), nn.Softmax(dim=-1))
    seen: list[Any] = []
    with torch.autograd.detect_anomaly():
        model(x).sum().backward()
        seen += [p.grad for p in model.parameters()]
        try:
            (x.norm() / x.norm()).backward()
        except RuntimeError as error:
            seen.append(str(error))
        try:
            torch.nn.functional.cosine_similarity(x.sqrt() * 0, x, dim=0).backward()
        except RuntimeError as error:
            seen.append(str(error))
        try:
            saved = x.exp()
            saved.add_(1)
            saved.sum().backward()
        except RuntimeError as error:
            seen.append(str(error))
    return seen


def warnings_of_torch() -> Any:
    """Each of these warns, in C++ or in Python, at some distance from this line."""
    x = torch.ones(3, 1, requires_grad=True)
    seen = [
        float((x * 2).sum()),
        torch.tensor([x.sum()]),
        nn.functional.softmax(x),
        nn.Softmax()(x),
        nn.LogSoftmax()(x),
        nn.functional.mse_loss(x, torch.ones(3)),
        nn.MSELoss()(x, torch.ones(3)),
        (x * 2).grad,
        nn.utils.clip_grad_norm_([x * 2], 1.0),
        nn.utils.get_total_norm([x * 2]),
        x.volatile,
        torch.ones(2, 3, 4).T.shape,
        torch.nn.functional.dropout2d(torch.ones(2, 3)),
        torch.nn.functional.interpolate(
            torch.ones(1, 1, 4), scale_factor=0.5, recompute_scale_factor=True
        ),
        torch.ones(1).std(),
        torch.ones(3).storage().size(),
        torch.add(torch.empty(0), torch.ones(2, 1)[:0, 0], out=torch.empty(5)),
        torch.nn.functional.l1_loss(torch.ones(2), torch.ones(2), size_average=True),
        torch.meshgrid(torch.ones(2), torch.ones(2)),
        torch.nn.functional.upsample(torch.ones(1, 1, 2), scale_factor=2),
    ]
    try:
        warnings.warn("the program's own", stacklevel=1)
        x.sum().backward(create_graph=True)
    finally:
        gradient, x.grad = x.grad, None
    return [seen, gradient]
