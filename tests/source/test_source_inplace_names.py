"""The tables of what writes in place, compared with torch itself."""

from __future__ import annotations

import inspect

import pytest
import torch

from whygrad.source.inplace_names import (
    FUNCTIONAL_POSITION,
    INPLACE_FUNCTIONS,
    INPLACE_METHODS,
    LAYER_POSITION,
    VIEW_METHODS,
)


def test_every_method_has_its_twin() -> None:
    names = [*INPLACE_METHODS, *(name.removesuffix("_") for name in INPLACE_METHODS)]
    assert [name for name in names if not hasattr(torch.Tensor, name)] == []


def test_every_function_has_its_twin() -> None:
    for name in INPLACE_FUNCTIONS:
        modules = [m for m in (torch, torch.nn.functional) if hasattr(m, name)]
        assert modules, name
        assert all(hasattr(module, name.removesuffix("_")) for module in modules), name


def test_views_are_methods() -> None:
    assert [name for name in VIEW_METHODS if not hasattr(torch.Tensor, name)] == []


@pytest.mark.parametrize(
    ("module", "table"),
    [(torch.nn, LAYER_POSITION), (torch.nn.functional, FUNCTIONAL_POSITION)],
)
def test_the_place_of_the_flag(module: object, table: dict[str, int]) -> None:
    for name, position in table.items():
        parameters = list(inspect.signature(getattr(module, name)).parameters)
        assert parameters.index("inplace") == position, name


VALUE = torch.linspace(0.1, 0.9, 9).reshape(3, 3)
BATCH = VALUE.expand(2, 3, 3)
MASK, INDEX = VALUE > 0.5, torch.tensor([0, 2, 1])
TWO_VALUES = """
    add atan2 clamp_max clamp_min div divide floor_divide fmod hypot mul multiply pow remainder sub
    subtract true_divide xlogy
"""
# What a method needs that a matrix alone does not give it.
ARGUMENTS: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(TWO_VALUES.split(), (VALUE + 1,)),
    **dict.fromkeys(("addcdiv", "addcmul", "addmm"), (VALUE, VALUE)),
    **dict.fromkeys(("cumprod", "cumsum", "squeeze", "unsqueeze"), (0,)),
    **dict.fromkeys(("clamp", "clip"), (0.2, 0.4)),
    **dict.fromkeys(("index_add", "index_copy"), (0, INDEX, VALUE)),
    **dict.fromkeys(("scatter", "scatter_add"), (0, INDEX.expand(3, 3), VALUE)),
    "addbmm": (BATCH, BATCH),
    "addmv": (VALUE, VALUE[0]),
    "addr": (VALUE[0], VALUE[1]),
    "baddbmm": (BATCH, BATCH),
    "index_fill": (0, INDEX[:1], 2.0),
    "index_put": ((INDEX,), VALUE),
    "lerp": (VALUE + 1, 0.3),
    "masked_fill": (MASK, 0.0),
    "masked_scatter": (MASK, VALUE + 1),
    "put": (INDEX, VALUE[0]),
    "renorm": (2, 0, 0.5),
    "scatter_reduce": (0, INDEX.expand(3, 3), VALUE, "sum"),
    "transpose": (0, 1),
}
SUBJECTS = {"acosh": VALUE + 1, "addmv": VALUE[0], "baddbmm": BATCH}


@pytest.mark.parametrize("name", sorted(name.removesuffix("_") for name in INPLACE_METHODS))
def test_twins_do_the_same(name: str) -> None:
    subject, arguments = SUBJECTS.get(name, VALUE), ARGUMENTS.get(name, ())
    written = subject.clone().requires_grad_().clone()
    result = getattr(written, f"{name}_")(*arguments)
    twin = getattr(subject.clone().requires_grad_(), name)(*arguments)
    assert result is written
    assert torch.equal(result, twin)
    assert result.requires_grad == twin.requires_grad
