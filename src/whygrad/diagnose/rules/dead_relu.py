"""A relu that gets no positive input at all, and so passes nothing back."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import values, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.dead_end_story import dead_end_finding, get
from whygrad.diagnose.dead_ends import DeadEnd, dead_ends
from whygrad.diagnose.late_deaths import late_death, late_finding
from whygrad.session import Edit, Finding, Fix
from whygrad.source.edits import rename_callee
from whygrad.source.spans import Span
from whygrad.source.tree import callee_name

CODE = "dead-relu"


def diagnose(case: Case) -> Iterator[Finding]:
    for end in dead_ends(case, CODE):
        yield _finding(case, end)
    late = late_death(case)
    if late is not None and late.code == CODE:
        yield late_finding(
            case,
            late,
            why=f"one step that was too large has moved the weights to where no input of {late.op} "
            "is positive. There its derivative is 0, so no gradient leads back.",
            fix=Fix(
                title="lower the learning rate (or warm it up, or clip gradients); an activation "
                "with a slope on both sides, such as softplus or leaky_relu, can recover",
                safety="changes how the parameters move",
                deliberate="if training should end like this, silence this line.",
            ),
        )


def _finding(case: Case, end: DeadEnd) -> Finding:
    op, names = values.spoken(case, end.node), case.names(end.nodes)
    size = next((seen.size for seen in end.node.saved.values()), 0)
    got = end.passed.input(end.death.at)
    how_many = (
        f"none of its {size} inputs is positive" if size else "none of its inputs is positive"
    )
    checked = [f"its inputs are {values.between(got)}."] if got is not None else []
    return dead_end_finding(
        case,
        end,
        title=f"no input of {op} is positive: {words.listed(names, 2)} {get(names)} only zeros",
        label=f"{how_many}, so its outputs and its derivative are 0",
        why=f"the derivative of {op} is 0 wherever its input is not positive, and here that is "
        "everywhere. The weights that could make an input positive are the ones that get no "
        "gradient, so it stays like this.",
        checked=checked,
        fix=Fix(
            title="use an activation with a slope on both sides, such as softplus (for outputs "
            "that must be positive), leaky_relu or gelu; or start with a positive bias",
            edits=_edits(end.where),
            safety="changes forward values",
            deliberate="if it should be shut from the start, silence this line.",
        ),
    )


def _edits(where: Span) -> list[Edit]:
    """`F.relu(x)` becomes `F.softplus(x)`; other spellings are left to the reader."""
    written = values.source_of(where).partition("(")[0]
    if callee_name(where) != "torch.nn.functional.relu" or not written.endswith(".relu"):
        return []
    return rename_callee(where, written.removesuffix("relu") + "softplus")
