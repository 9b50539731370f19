"""Tensors of other kinds, and programs that watch torch calls themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_map


def complex_numbers() -> Any:
    x = torch.randn(3, 3, dtype=torch.complex64, requires_grad=True)
    y = torch.linalg.inv(x + 2) @ x.mH
    spectrum = torch.fft.rfft(torch.view_as_real(y)[..., 0])
    loss = spectrum.abs().sum() + y.real.square().sum() + x.conj().imag.sum()
    loss.backward()
    return [
        y,
        spectrum,
        loss,
        x.grad,
        torch.view_as_complex(torch.ones(2, 2)),
        complex(y[0, 0].detach()),
    ]


def sparse_tensors() -> Any:
    dense = torch.eye(3) * 2
    values = torch.ones(2, requires_grad=True)
    sparse = torch.sparse_coo_tensor([[0, 1], [2, 0]], values * 2, (3, 3))
    product = torch.sparse.mm(sparse, dense)
    product.sum().backward()
    compressed = dense.to_sparse_csr()
    doubled = sparse.detach().coalesce() * 2
    return [
        product,
        values.grad,
        compressed @ torch.ones(3),
        doubled,
        doubled.to_dense(),
        compressed,
    ]


def nested_tensors() -> Any:
    model = nn.Linear(3, 2)
    strided = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    out = model(strided)
    padded = torch.nested.to_padded_tensor(out, 0.0)
    padded.sum().backward()
    jagged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    rows = (model(jagged).relu() * 2).unbind()
    torch.cat(rows).sum().backward()
    return [padded, rows, *[p.grad for p in model.parameters()]]


class _Counting(torch.Tensor):
    """Logs each call in which one of its kind takes part."""

    calls: list[str] = []  # noqa: RUF012 (shared by all of them, and emptied by each run)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


def subclass_that_counts_calls() -> Any:
    _Counting.calls.clear()
    x = torch.ones(3).as_subclass(_Counting)
    weight = nn.Parameter(torch.ones(3).as_subclass(_Counting))
    y = torch.stack([x, x * 2]).sum(0)
    y += 1
    y[0] = 5
    first, *rest = torch.split(y, 1)
    out = nn.functional.mse_loss(y * weight, torch.zeros(3))
    out.backward()
    first.view(1).add_(1)
    made = x.new_tensor([1.0]), torch.full_like(x, 2.0), x.tolist(), float(first), x.detach()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    optimizer.step()
    return [y, out, rest, weight, weight.grad, made, type(y).__name__, list(_Counting.calls)]


class _Mixin:
    def __init__(self, *args: Any) -> None:
        self.arguments = len(args)


class _Mixed(torch.Tensor, _Mixin):
    pass


class _WithInit(torch.Tensor):
    @staticmethod
    def __new__(cls, data: Any, label: str) -> Any:
        return torch.Tensor._make_subclass(cls, torch.as_tensor(data))

    def __init__(self, data: Any, label: str) -> None:
        super().__init__()
        self.label = label


class _Marked(nn.Parameter):
    def __new__(cls, data: Any, mark: str = "") -> Any:
        made = super().__new__(cls, data, requires_grad=True)
        made.mark = mark
        return made


def subclasses_with_constructors() -> Any:
    seen: list[Any] = [_Mixed([1.0, 2.0]).arguments, _WithInit([1.0], "it").label]
    marked = _Marked(torch.ones(2), "m")
    seen += [
        marked.mark,
        isinstance(marked, nn.Parameter),
        torch.Tensor([1, 2]),
        torch.Tensor(2, 0),
    ]
    for call in (
        lambda: super(_WithInit, _WithInit([1.0], "x")).__init__(5),
        lambda: _WithInit([1.0]),
        lambda: torch.Tensor("a"),
        lambda: nn.Parameter(torch.ones(2, dtype=torch.int64)),
        lambda: torch.from_numpy(3),
        lambda: torch.autograd.Variable(3),
    ):
        try:
            seen.append(call())
        except (TypeError, RuntimeError) as error:
            seen.append((type(error).__name__, str(error)))
    return seen


class _Wrapped(torch.Tensor):
    """A tensor around a tensor, at the level of operators."""

    log: list[str] = []  # noqa: RUF012 (shared by all of them, and emptied by each run)
    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            dtype=inner.dtype,
            requires_grad=inner.requires_grad,
            dispatch_sizes_strides_policy="sizes",
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.log.append(str(func))

        def unwrap(thing: Any) -> Any:
            return thing.inner if isinstance(thing, cls) else thing

        out = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))
        wrapped = tree_map(lambda t: cls(t) if isinstance(t, torch.Tensor) else t, out)
        return return_and_correct_aliasing(func, args, kwargs or {}, wrapped)


def subclass_that_dispatches() -> Any:
    _Wrapped.log.clear()
    x = _Wrapped(torch.ones(3)).requires_grad_()
    y = (x * 2).sin() + torch.ones(3)
    y.sum().backward()
    y.detach().add_(1)
    return [y.inner, x.grad.inner, list(_Wrapped.log)]


class _CallLog(TorchFunctionMode):
    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class _OperatorLog(TorchDispatchMode):
    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(str(func))
        return func(*args, **(kwargs or {}))


def modes_of_the_program() -> Any:
    functions: list[str] = []
    operators: list[str] = []
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    with _CallLog(functions), _OperatorLog(operators):
        for _ in range(2):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(torch.ones(2, 2)), torch.tensor([0, 1]))
            loss.backward()
            optimizer.step()
        loss.item()
        row = model.weight[0].detach().clone()
        row[1:].mul_(2)
    with torch.device("meta"):
        kind = torch.ones(2).device.type
    with torch._C.DisableTorchFunction():
        quiet = torch.ones(2) * 2
    return [functions, operators, loss, row, kind, quiet, *model.parameters()]


def default_device_and_dtype() -> Any:
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("cpu")
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(2)).sum().backward()
        optimizer.step()
        made = torch.tensor([1.0]), torch.get_default_device()
        torch.set_default_device("meta")
        meta = torch.ones(2).device.type
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(before)
    return [made, meta, *model.parameters(), torch.ones(1)]


def numpy_and_python() -> Any:
    array = np.arange(4, dtype=np.float32)
    shared = torch.from_numpy(array)
    shared.mul_(2)
    array[0] = 7
    read_only = np.ones(2)
    read_only.flags.writeable = False
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    seen = [
        array.copy(),
        shared,
        torch.from_numpy(read_only),
        np.asarray(shared) is not None,
        np.add(shared.numpy(), 1),
        np.mean(shared.numpy()),
        torch.as_tensor(array).data_ptr() == shared.data_ptr(),
        torch.tensor(array[1]),
        torch.tensor(np.random.rand(2)),
        y.detach().numpy(),
        y.tolist(),
        [float(v) for v in y],
        int(y[0]),
        bool(y.sum() > 1),
        list(range(int(shared[1]))),
        torch.from_dlpack(shared),
        np.from_dlpack(shared),
        torch.tensor([y[0].item(), 2.0]),
        f"{y.sum():.3f}",
        repr(y),
        np.sin(y.detach()),
        torch.frombuffer(bytearray(8), dtype=torch.float32),
        (array * shared.sum().item()).sum(),
    ]
    for call in (lambda: y.numpy(), lambda: np.asarray(y), lambda: torch.tensor([1, "a"])):
        try:
            call()
        except Exception as error:
            seen.append((type(error).__name__, str(error)))
    return seen
