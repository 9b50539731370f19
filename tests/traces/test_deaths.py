"""Where gradient ends on its way to a parameter, and which zeros are to blame."""

from __future__ import annotations

from math import nan

from trace_builders import followed, leaf, op, values

from whygrad.graph.tracing import Death, kind_of

ZERO = values(0, 0)
SOME = values(-1, 1)


def test_names_of_autograd_are_cut_down() -> None:
    assert kind_of(op("Tanh", 1, 1, 1)) == "Tanh"
    node = op("Copy", 1, 1, 1)
    node.function = "CopyBackwards"
    assert kind_of(node) == "Copy"


# --- deaths -------------------------------------------------------------------------------------


def test_gradient_ends_where_something_came_and_nothing_left() -> None:
    passed = followed(
        op("MseLoss", 1.0, 0.5, 1),
        op("Round", 0.5, 0.0, 2),
        op("Mul", 0.0, 0.0, 3),
        leaf(-1),
    )
    assert passed.deaths(-1) == {Death(1, 0)}


def test_gradient_that_arrives_has_no_death() -> None:
    passed = followed(op("MseLoss", 1.0, 0.5, 1), op("Mul", 0.5, 0.25, 2), leaf(-1))
    assert passed.deaths(-1) is None


def test_every_way_is_followed() -> None:
    passed = followed(
        op("Add", 1.0, (1.0, 1.0), (1, 2)),
        op("Round", 1.0, 0.0, 3),
        op("Tanh", 1.0, 0.0, 3),
        leaf(-1),
    )
    assert passed.deaths(-1) == {Death(1, 0), Death(2, 0)}


def test_what_cancels_is_no_death() -> None:
    """The last bias of a critic: mean(real) - mean(fake)."""
    passed = followed(
        op("Sub", 1.0, (1.0, 1.0), (1, 2)),
        op("Addmm", 1.0, (0.5, 0.3), (3, -1)),
        op("Addmm", 1.0, (0.5, 0.3), (3, -1)),
        leaf(-1),
    )
    assert passed.deaths(-1) is None


def test_what_cancels_around_a_flat_operation_dies_there() -> None:
    """`x + (x.round() - x)`: the straight-through estimator without its detach."""
    passed = followed(
        op("Add", 1.0, (1.0, 1.0), (3, 1)),
        op("Sub", 1.0, (1.0, 1.0), (2, 3)),
        op("Round", 1.0, 0.0, 3),
        op("Tanh", 0.0, 0.0, 4),
        leaf(-1),
    )
    assert passed.deaths(-1) == {Death(2, 0)}


def test_a_pass_that_starts_with_zeros_has_no_death() -> None:
    passed = followed(op("Sum", 0.0, 0.0, 1), op("Mul", 0.0, 0.0, 2), leaf(-1))
    assert passed.deaths(-1) is None


def test_an_operation_that_was_not_measured_leaves_it_open() -> None:
    passed = followed(op("Sum", None, 0.0, 1), leaf(-1))
    assert passed.deaths(-1) is None


def test_nan_that_ends_in_zeros_is_another_matter() -> None:
    passed = followed(op("Relu", nan, 0.0, 1), leaf(-1))
    assert passed.deaths(-1) is None


def test_undefined_gradients_are_no_way() -> None:
    passed = followed(
        op("Add", 1.0, (1.0, 1.0), (1, 2)),
        op("Round", 1.0, 0.0, 3),
        op("Custom", 1.0, None, 3),
        leaf(-1),
    )
    assert passed.deaths(-1) == {Death(1, 0)}


def test_a_deep_graph_is_no_trouble() -> None:
    chain = [op("Mul", 0.0, 0.0, at + 1) for at in range(1, 3000)]
    passed = followed(op("Sign", 1.0, 0.0, 1), *chain, leaf(-1))
    assert passed.deaths(-1) == {Death(0, 0)}


# --- zeros --------------------------------------------------------------------------------------


def test_the_factor_of_a_lost_gradient() -> None:
    passed = followed(op("Mm", 1.0, (0.0, 0.5), (1, 2)), leaf(-1), leaf(-2))
    assert passed.factor(Death(0, 0)) == 2
    assert passed.factor(Death(0, 1)) == 1


def test_a_factor_that_needs_no_gradient_is_not_known() -> None:
    passed = followed(op("Mul", 1.0, (0.0, None), (1, -1)), leaf(-1))
    assert passed.factor(Death(0, 0)) is None


def test_a_bias_has_no_factor() -> None:
    passed = followed(op("Addmm", 1.0, (0.0, 0.5, 0.5), (1, 2, 3)), leaf(-1), leaf(-2), leaf(-3))
    assert passed.factor(Death(0, 0)) is None
    assert passed.factor(Death(0, 1)) == 3


def test_zeros_are_traced_to_their_leaves() -> None:
    """A layer of zeros in front of tanh."""
    passed = followed(
        op("Tanh", 1.0, 1.0, 1),
        op("Addmm", 1.0, (1.0, None, 1.0), (2, -1, 3)),
        leaf(-1),
        op("T", 1.0, 1.0, 4),
        leaf(-2),
        parameters={-1: ZERO, -2: ZERO},
    )
    assert passed.zero_because(0) == {-1, -2}


def test_a_bias_that_is_not_zero_makes_the_result_so() -> None:
    passed = followed(
        op("Addmm", 1.0, (1.0, None, 1.0), (1, -1, 2)),
        leaf(-1),
        leaf(-2),
        parameters={-1: SOME, -2: ZERO},
    )
    assert passed.zero_because(0) is None


def test_a_convolution_may_have_no_bias() -> None:
    passed = followed(
        op("Convolution", 1.0, (None, 1.0, None), (-1, 1, -1)), leaf(-1), parameters={-1: ZERO}
    )
    assert passed.zero_because(0) == {-1}


def test_a_sum_with_a_constant_is_not_known_to_be_zero() -> None:
    passed = followed(op("Add", 1.0, (1.0, None), (1, -1)), leaf(-1), parameters={-1: ZERO})
    assert passed.zero_because(0) is None


def test_one_zero_is_enough_for_a_product() -> None:
    passed = followed(
        op("Mul", 1.0, (0.0, 1.0), (1, 2)), leaf(-1), leaf(-2), parameters={-1: SOME, -2: ZERO}
    )
    assert passed.zero_because(0) == {-2}


# --- values -------------------------------------------------------------------------------------


def test_values_of_a_call_belong_to_its_last_operation() -> None:
    """A linear layer is a transposition and a product; its result is that of the product."""
    passed = followed(
        op("Addmm", 1.0, (1.0, None, 1.0), (3, -1, 1), event=7),
        op("T", 1.0, 1.0, 2, event=7),
        leaf(-1),
        leaf(-2),
        forward={7: SOME},
    )
    assert passed.output(0) == SOME
    assert passed.output(1) is None


def test_what_was_kept_comes_before_what_is_alive() -> None:
    passed = followed(
        op("Relu", 1.0, 0.0, 1, event=3, result=ZERO),
        op("Neg", 0.0, 0.0, 2, event=2),
        leaf(-1),
        forward={2: values(-3, -1)},
    )
    assert passed.output(0) == ZERO
    assert passed.input(0) == values(-3, -1)
    assert passed.loss() == ZERO


def test_what_lies_below_and_above() -> None:
    passed = followed(
        op("Where", 1.0, (1.0, 0.0), (1, 2)),
        op("Log", 1.0, 1.0, 3),
        op("Sqrt", 0.0, 0.0, 3),
        leaf(-1),
    )
    assert passed.below(1) == {1, 3}
    assert passed.leaves_below(0) == {-1}
    assert passed.kinds_above(2) == {"Where", "Sqrt"}
