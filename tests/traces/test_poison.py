"""Which operation made NaN or infinity of finite values, and with which of them."""

from __future__ import annotations

from math import inf, nan

import pytest
from trace_builders import followed, leaf, op, values

from whygrad.diagnose.singularities import forward_trouble, trouble
from whygrad.record.accounts import Range

NAN = values(nan, nan)
SOME = values(-1.0, 2.0)


def test_poisoned_is_what_gets_finite_gradients_and_sends_others() -> None:
    passed = followed(
        op("Mean", 1.0, 0.1, 1),
        op("Sqrt", 0.1, inf, 2, result=values(0, 3)),
        op("Pow", inf, nan, 3, self=SOME),
        leaf(-1),
    )
    assert passed.poisoned() == [1]


def test_what_was_not_measured_is_not_poisoned() -> None:
    assert followed(op("Mm", None, None, 1), leaf(-1)).poisoned() == []


def test_both_branches_can_be_poisoned() -> None:
    passed = followed(
        op("Where", 1.0, (1.0, 0.0), (1, 2)),
        op("Log", 1.0, inf, 3, self=values(0, 1)),
        op("Sqrt", 0.0, nan, 3, result=values(nan, nan)),
        leaf(-1),
    )
    assert passed.poisoned() == [1, 2]


@pytest.mark.parametrize(
    ("name", "saved", "phrase"),
    [
        ("Sqrt", {"result": values(0, 3)}, "of 0"),
        ("Sqrt", {"result": NAN}, "of a negative number"),
        ("Sqrt", {"result": values(0.1, 3)}, ""),
        ("Log", {"self": values(0, 1)}, "of 0"),
        ("Log", {"self": values(-2, 1)}, "of a negative number (-2)"),
        ("Log1P", {"self": values(-1, 1)}, "of -1 or less"),
        ("Pow", {"self": values(0, 4)}, "of 0"),
        ("Div", {"self": SOME, "other": values(0, 4)}, "by 0"),
        ("Div", {"self": SOME, "other": values(0.5, 4)}, ""),
        ("Reciprocal", {"result": values(1, inf)}, "of 0"),
        ("Acos", {"self": values(-0.2, 1)}, "at 1"),
        ("Asin", {"self": values(-1, 0.2)}, "at -1"),
        ("Acos", {"self": values(0, 1.5)}, "of a value beyond 1"),
        ("Acos", {"self": values(-0.5, 0.5)}, ""),
        ("Exp", {"result": values(1, inf)}, "overflows"),
        ("Std", {"self": SOME, "result": NAN}, "of a single value"),
        ("NllLoss", {"total_weight": values(0, 0, 1)}, "of labels that are all ignored"),
        ("Tanh", {"result": SOME}, ""),
    ],
)
def test_what_an_operation_fails_at(name: str, saved: dict[str, Range], phrase: str) -> None:
    assert trouble(followed(op(name, 0.5, inf, 1, **saved), leaf(-1)), 0) == phrase


def test_an_operation_with_nan_among_its_operands_is_not_to_blame() -> None:
    passed = followed(op("Div", 0.5, nan, 1, self=NAN, other=values(0, 1)), leaf(-1))
    assert trouble(passed, 0) == ""


def test_a_gradient_that_overflows_anywhere_is_not_the_operations_fault() -> None:
    passed = followed(op("Div", 1e35, inf, 1, self=SOME, other=values(0, 1)), leaf(-1))
    assert trouble(passed, 0) == ""


def test_softmax_of_a_masked_row() -> None:
    masked = followed(
        op("Softmax", 0.5, nan, 1, result=NAN), op("MaskedFill", nan, nan, 2), leaf(-1)
    )
    assert trouble(masked, 0) == "over a row of -inf"


def test_softmax_of_what_has_overflowed() -> None:
    overflown = followed(
        op("Softmax", 0.5, nan, 1, event=2, result=NAN),
        op("Mul", nan, nan, 2, event=1),
        leaf(-1),
        forward={1: values(-inf, inf)},
    )
    assert trouble(overflown, 0) == ""


@pytest.mark.parametrize(
    ("name", "saved", "phrase"),
    [
        ("Log", {"self": values(0, 1)}, "of 0"),
        ("Sqrt", {"result": values(0, 1)}, ""),
        ("Sqrt", {"result": NAN}, "of a negative number"),
        ("Acos", {"self": values(0, 1)}, ""),
        ("Acos", {"self": values(0, 2)}, "of a value beyond 1"),
        ("Div", {"self": SOME, "other": values(0, 1)}, "by 0"),
        ("Div", {"self": SOME, "other": values(-1, 1)}, ""),
        ("Pow", {"self": values(-1, 1)}, ""),
    ],
)
def test_whose_result_is_not_finite_for_certain(
    name: str, saved: dict[str, Range], phrase: str
) -> None:
    assert forward_trouble(followed(op(name, nan, nan, 1, **saved), leaf(-1)), 0) == phrase


def test_operands_that_came_spoilt() -> None:
    passed = followed(
        op("Mul", 0.5, (nan, 0.5), (1, 2), self=SOME, other=values(1, inf)),
        op("Neg", nan, nan, 3),
        op("Pow", 0.5, inf, 3, self=values(1, 1e20)),
        leaf(-1),
    )
    assert passed.spoilt_operands(0) == [2]


def test_operands_of_a_linear_layer() -> None:
    passed = followed(
        op("Addmm", 0.5, (0.5, nan, nan), (1, 2, 3), mat1=NAN, mat2=SOME),
        leaf(-1),
        op("Relu", nan, nan, 4),
        leaf(-2),
        leaf(-3),
    )
    assert passed.spoilt_operands(0) == [2]
