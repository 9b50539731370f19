"""What the pages about custom Functions and gradcheck() say about torch, checked against torch."""

import warnings

import pytest
import torch
from torch import nn


def function(forward, backward, **members):
    """A custom Function from two plain functions."""
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Made", (torch.autograd.Function,), methods | members)


def double(ctx, x, *rest):
    return x * 2


def leaf(*shape, **options):
    return torch.ones(*shape, requires_grad=True, **options)


# --- how many ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "returned", "message"),
    [
        ((1.0,), lambda g: g * 2, r"expected 2, got 1"),
        ((), lambda g: (g * 2, g), r"expected 1, got 2"),
        ((1.0,), lambda g: (g * 2, g), r"different than None at position 2"),
        ((1.0,), lambda g: (None, g), r"different than None at position 2"),
    ],
)
def test_a_value_belongs_to_each_argument(given, returned, message):
    made = function(double, lambda ctx, g: returned(g))
    with pytest.raises(RuntimeError, match=message):
        made.apply(leaf(3), *given).sum().backward()


def test_more_values_are_allowed_if_they_are_none():
    x = leaf(3)
    function(double, lambda ctx, g: (g * 2, None, None)).apply(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 3


def test_a_default_that_no_call_passes_does_not_count():
    def forward(ctx, x, scale=2.0):
        return x * scale

    made, x = function(forward, lambda ctx, g: g * 2), leaf(3)
    made.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 3
    with pytest.raises(RuntimeError, match="expected 2, got 1"):
        made.apply(x, 2.0).sum().backward()


def test_torch_counts_one_more_for_an_operator():
    @torch.library.custom_op("claims::scaled", mutates_args=())
    def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
        return x * by

    scaled.register_autograd(lambda ctx, grad: grad)
    with pytest.raises(RuntimeError, match="expected 3, got 2"):
        scaled(leaf(3), 2.0).sum().backward()


# --- of which shape ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 3), (12,), (3,)])
def test_a_gradient_is_not_reshaped(shape):
    made = function(double, lambda ctx, g: torch.ones(shape))
    with pytest.raises(RuntimeError, match="invalid gradient at index 0"):
        made.apply(leaf(3, 4)).sum().backward()


def test_a_gradient_is_summed_where_the_input_was_broadcast_and_converted():
    x = leaf(1, 4)
    function(double, lambda ctx, g: torch.ones(3, 4, dtype=torch.float64)).apply(x).sum().backward()
    assert x.grad.tolist() == [[3.0] * 4] and x.grad.dtype == torch.float32


def test_the_index_counts_the_tensors_among_the_arguments():
    made = function(lambda ctx, k, x, y: k * x + y, lambda ctx, g: (None, g, g[:1]))
    with pytest.raises(RuntimeError, match="invalid gradient at index 1"):
        made.apply(2.0, leaf(3), leaf(3) * 1).sum().backward()


def test_a_gradient_without_the_incoming_one_is_right_for_a_sum_only():
    made = function(double, lambda ctx, g: torch.full_like(g, 2.0))
    plain, scaled = leaf(3), leaf(3)
    made.apply(plain).sum().backward()
    (3 * made.apply(scaled)).sum().backward()
    assert plain.grad.tolist() == [2.0] * 3
    assert scaled.grad.tolist() == [2.0] * 3  # and should be 6


# --- none at all ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [2.0, [1.0], torch.ones(3).numpy()])
def test_a_gradient_is_a_tensor_or_none(value):
    with pytest.raises(RuntimeError, match="expected Variable or None"):
        function(double, lambda ctx, g: value).apply(leaf(3)).sum().backward()


def test_none_leaves_everything_behind_it_without_a_gradient():
    layer = nn.Linear(3, 3)
    function(double, lambda ctx, g: None).apply(layer(torch.ones(2, 3))).sum().backward()
    assert layer.weight.grad is None


def test_vjp_is_another_name_for_backward():
    members = {"forward": staticmethod(double), "vjp": staticmethod(lambda ctx, g: g * 2)}
    made, x = type("Made", (torch.autograd.Function,), members), leaf(3)
    made.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 3


def test_an_output_that_is_marked_carries_no_gradient():
    def forward(ctx, x):
        out = x * 2
        ctx.mark_non_differentiable(out)
        return out

    assert not function(forward, lambda ctx, g: g).apply(leaf(3)).requires_grad


# --- what is kept -----------------------------------------------------------------------------


@pytest.mark.parametrize(("saved", "outcome"), [(True, "modified by an inplace"), (False, "")])
def test_only_what_is_saved_is_checked_for_changes(saved, outcome):
    def forward(ctx, x, factor):
        if saved:
            ctx.save_for_backward(factor)
        else:
            ctx.factor = factor
        return x * factor

    def backward(ctx, g):
        return g * (ctx.saved_tensors[0] if saved else ctx.factor), None

    x, factor = leaf(3), torch.full((3,), 2.0)
    out = function(forward, backward).apply(x, factor).sum()
    factor.fill_(5.0)
    if outcome:
        with pytest.raises(RuntimeError, match=outcome):
            out.backward()
    else:
        out.backward()
        assert x.grad.tolist() == [5.0] * 3  # and should be 2


def test_none_can_be_saved():
    def forward(ctx, x):
        ctx.save_for_backward(None, x)
        return x * 2

    made = function(forward, lambda ctx, g: g * 2 if ctx.saved_tensors[0] is None else None)
    x = leaf(3)
    made.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 3


def test_an_input_that_comes_back_as_it_is_can_be_saved_as_a_view():
    def setup(ctx, inputs, output):
        ctx.save_for_backward(output)

    members = {"setup_context": staticmethod(setup)}
    with pytest.raises(RuntimeError, match="returned as-is as output"):
        function(lambda x: x, lambda ctx, g: g, **members).apply(leaf(3))
    made = function(lambda x: x.view_as(x), lambda ctx, g: g, **members)
    made.apply(leaf(3)).sum().backward()
    assert made.apply(leaf(3)).requires_grad


# --- forms ------------------------------------------------------------------------------------


def test_an_instance_warns_and_works():
    made, x = function(double, lambda ctx, g: g * 2), leaf(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made().apply(x).sum().backward()
    assert [warning.category for warning in caught] == [DeprecationWarning]
    assert x.grad.tolist() == [2.0] * 3


def test_methods_that_are_not_static_can_be_applied():
    members = {"forward": double, "backward": lambda self, g: g * 2}
    made, x = type("Made", (torch.autograd.Function,), members), leaf(3)
    made.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 3


# --- checks -----------------------------------------------------------------------------------


def test_float32_is_too_coarse_for_a_check():
    torch.manual_seed(0)
    x = torch.randn(20, requires_grad=True)
    with pytest.warns(UserWarning, match="not a double precision"):
        assert not torch.autograd.gradcheck(lambda t: t.pow(4).sum(), x, raise_exception=False)
    exact = x.detach().double().requires_grad_()
    assert torch.autograd.gradcheck(lambda t: t.pow(4).sum(), exact)


def test_an_expanded_input_can_be_checked_from_inside():
    x = leaf(1, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="stride 0"):
        torch.autograd.gradcheck(torch.sin, x.expand(3))
    assert torch.autograd.gradcheck(lambda t: torch.sin(t.expand(3)), x)


def test_small_random_differences_can_be_allowed():
    made = function(double, lambda ctx, g: g * 2 * (1 + 1e-7 * torch.rand(())))
    x = leaf(3, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="not reentrant"):
        torch.autograd.gradcheck(made.apply, x)
    assert torch.autograd.gradcheck(made.apply, x, nondet_tol=1e-5)


def test_numbers_of_an_operator_may_be_keyword_only():
    library = torch.library.Library("claims_keyword", "DEF")
    library.define("scale(Tensor x, *, float k) -> Tensor")
    library.define("mask(Tensor x, *, Tensor k) -> Tensor")
    torch.library.register_autograd("claims_keyword::scale", lambda ctx, g: g, lib=library)
    with pytest.raises(NotImplementedError, match="kwarg-only Tensor args"):
        torch.library.register_autograd("claims_keyword::mask", lambda ctx, g: g, lib=library)
