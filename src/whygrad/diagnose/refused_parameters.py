"""A module refuses what it is given: a plain tensor for a parameter, or anything at all."""

from __future__ import annotations

import ast
import copy

from whygrad.diagnose import complaints, empty_optimizers, results, traced
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.files import load
from whygrad.source.rewriting import changed_lines
from whygrad.source.spans import Span, location
from whygrad.source.tree import function_at, node_span, statement_at, text_of

TENSOR = "assign-tensor-as-parameter"
TOO_EARLY = "assign-before-init"
_LONG = 40


def tell(case: Case, said: Said) -> Finding:
    if said.message.id == TENSOR:
        return _plain_tensor(case, said)
    if said.message.id == TOO_EARLY:
        return _too_early(case, said)
    if said.message.id == traced.MESSAGE:
        return traced.tell(case, said)
    if said.message.id == empty_optimizers.MESSAGE:
        return empty_optimizers.tell(case, said)
    return complaints.finding(case, said)


# --- a plain tensor ---------------------------------------------------------------------------


def _plain_tensor(case: Case, said: Said) -> Finding:
    given = next((g for g in said.complaint.given if g.name == "value"), None)
    name = said.words.get("g2", "weight")
    target = _target(said.where) or name
    computed = given is not None and given.requires_grad and not given.leaf
    made = results.result(case, given.node) if computed and given is not None else None
    own = made is not None and made.leaf is not None
    what = f"the result of `{made.operation}`" if made is not None else "a plain tensor"
    related = []
    if made is not None and made.where.line != said.where.line:
        related.append(Related("created", location(made.where), "computed here"))
    return complaints.finding(
        case,
        said,
        title=f"{what} is assigned to `{target}`, which is a parameter",
        fix=_fix(target, computed, own),
        related=related,
        parameters=[target],
    )


def _fix(target: str, computed: bool, own: bool) -> Fix:
    into = f"write into the parameter: `with torch.no_grad(): {target}.copy_(...)`"
    if computed and not own:
        return Fix(
            title="use the computed tensor itself in the forward pass: the `torch.nn.functional` "
            "form of the layer, or `torch.func.functional_call`",
            safety="forward values stay equal; gradient reaches what computed it",
            deliberate=f"if only its numbers are wanted, {into}.",
        )
    wrapped = "`nn.Parameter(...)` around it makes a new one, which an optimizer made before does"
    return Fix(
        title=into,
        safety="an optimizer that holds the parameter goes on with it",
        deliberate=f"if it should be another parameter: {wrapped} not know.",
    )


def _target(where: Span) -> str:
    statement = statement_at(where)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    text = text_of(targets[0], where.file) if targets else ""
    return text if len(text) <= _LONG and "\n" not in text else ""


# --- before super().__init__() ----------------------------------------------------------------


def _too_early(case: Case, said: Said) -> Finding:
    function = function_at(said.where)
    later = _set_up(function) if isinstance(function, ast.FunctionDef) else None
    class_name = said.where.function.rpartition(".")[0].rpartition(".")[2]
    said.words["owner"] = class_name or "the module"
    if later is None:
        edits = _call_first(said.where, function) if class_name else []
        return complaints.finding(
            case,
            said,
            title=f"`{class_name}` never calls `super().__init__()`" if class_name else "",
            fix=Fix(title="call `super().__init__()` first in `__init__`", edits=edits),
        )
    span = node_span(load(said.where.file), later)
    return complaints.finding(
        case,
        said,
        fix=Fix(title="move `super().__init__()` to the start of `__init__`"),
        related=[Related("operation", location(span), "comes too late")],
    )


def _set_up(function: ast.FunctionDef) -> ast.Call | None:
    """The call of the base class's __init__, wherever in a function it is."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    return next((c for c in calls if getattr(c.func, "attr", "") == "__init__"), None)


def _call_first(where: Span, function: ast.AST | None) -> list[Edit]:
    if not isinstance(function, ast.FunctionDef) or function.name != "__init__":
        return []
    source = load(where.file)
    body = function.body
    documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    first = body[1] if documented and len(body) > 1 else body[0]
    indentation = source.line(first.lineno)[: source.extent(first)[1] - 1]
    if indentation.strip():
        return []
    lines = source.plain_lines
    lines.insert(first.lineno - 1, f"{indentation}super().__init__()")
    call = ast.parse("super().__init__()").body[0]
    return changed_lines(source, lines, {first: [call, copy.deepcopy(first)]})
