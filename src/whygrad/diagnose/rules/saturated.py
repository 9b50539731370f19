"""Operations that are flat where they are used: tanh far out, clamp beyond its limits."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import values, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.dead_end_story import dead_end_finding, get
from whygrad.diagnose.dead_ends import DeadEnd, dead_ends
from whygrad.diagnose.flat_operations import SHARES, shares_alone
from whygrad.diagnose.late_deaths import late_death, late_finding
from whygrad.record.accounts import Range
from whygrad.session import Finding, Fix, Related
from whygrad.source.spans import location

CODE = "saturated"

_LARGE = 20.0  # numbers from which on an input is worth a remark
_SMOOTH = frozenset("Tanh Sigmoid Erf Softplus Gelu Silu Mish Elu Celu".split())


def diagnose(case: Case) -> Iterator[Finding]:
    for end in dead_ends(case, CODE):
        yield _finding(case, end)
    late = late_death(case)
    if late is not None and late.code == CODE:
        yield late_finding(
            case,
            late,
            why=f"after a step that was too large {late.op} gets values so far out that its "
            "derivative is 0 for all of them. From there no gradient leads back.",
            fix=Fix(
                title="lower the learning rate, or clip gradients, so that no step leads so far "
                "out; and normalise the inputs",
                safety="changes how the parameters move",
                deliberate="if training should end like this, silence this line.",
            ),
        )


def _finding(case: Case, end: DeadEnd) -> Finding:
    op, names = values.spoken(case, end.node), case.names(end.nodes)
    what = _what(end, op)
    checked, related = _inputs(case, end)
    return dead_end_finding(
        case,
        end,
        title=f"{what}: {words.listed(names, 2)} {get(names)} only zeros",
        label=_label(end),
        why=_why(end, op),
        checked=checked,
        related=related,
        fix=_fix(end, op),
    )


def _what(end: DeadEnd, op: str) -> str:
    if shares_alone(end.passed, end.death.at):
        return f"{op} runs over a dimension with a single entry"
    if end.kind == "Exp":
        return f"{op} underflows to zero"
    if end.kind in _SMOOTH or end.kind in SHARES:
        return f"{op} is saturated"
    return f"{op} gets only values beyond its limits"


def _label(end: DeadEnd) -> str:
    gave, got = end.passed.output(end.death.at), end.passed.input(end.death.at)
    if end.kind in ("Minimum", "Maximum"):
        return "the other operand wins everywhere, and its side alone gets gradient"
    if end.kind in (*SHARES, "Tanh", "Sigmoid", "Exp") and gave is not None:
        return f"all {gave.size} outputs are {_ends(gave)}, and the derivative there is 0"
    if got is not None:
        return f"its {got.size} inputs are {values.between(got)}, where its derivative is 0"
    return "its derivative is 0 for every value that comes here"


def _ends(gave: Range) -> str:
    low, high = values.number(round(gave.low)), values.number(round(gave.high))
    return low if low == high else f"{low} or {high}"


def _why(end: DeadEnd, op: str) -> str:
    if shares_alone(end.passed, end.death.at):
        return (
            f"{op} makes its entries sum to one. With one entry along its dimension the result is "
            "the same whatever comes in, so its derivative is zero."
        )
    if end.kind in _SMOOTH or end.kind in SHARES or end.kind == "Exp":
        return (
            f"so far out {op} is flat: in floating point its derivative is not small but exactly "
            "0. No gradient comes back through it, so no step can lead back to where it has a "
            "slope."
        )
    return (
        f"beyond its limits {op} gives the limit itself, whatever the value, so its derivative "
        "is 0. No gradient comes back through it, so no step can lead back within the limits."
    )


def _inputs(case: Case, end: DeadEnd) -> tuple[list[str], list[Related]]:
    """Numbers that are large before the first layer are the usual reason."""
    got = end.passed.input(end.death.at)
    checked = []
    if got is not None and "self" not in end.node.saved:
        checked.append(f"the values that come in are {values.between(got)}.")
    data = values.largest_data(case, end.passed, end.death.at)
    if data is None or max(abs(data[0].low), abs(data[0].high)) < _LARGE:
        return checked, []
    seen, span = data
    label = f"the data that comes in here is {values.between(seen)}"
    return checked, [Related("used", location(span), label)]


def _fix(end: DeadEnd, op: str) -> Fix:
    if shares_alone(end.passed, end.death.at):
        title = f"let {op} run over the dimension of the classes (or use sigmoid for one output)"
    elif end.kind in SHARES or end.kind == "Exp":
        title = f"make what goes into {op} smaller: scale the scores, or raise the temperature"
    elif end.kind in _SMOOTH:
        title = (
            f"bring what goes into {op} close to zero: normalise the inputs (subtract their mean, "
            "divide by their spread), or start with smaller weights"
        )
    else:
        title = (
            f"use a smooth bound in place of {op}, such as `low + (high - low) * torch.sigmoid(x)`,"
            " or limits that fit the values"
        )
    return Fix(
        title=title,
        safety="changes forward values",
        deliberate="if these parameters should stay as they are, take them out of the optimizer.",
    )
