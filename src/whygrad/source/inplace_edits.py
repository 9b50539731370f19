"""Edits for values that are written in place, and for graphs that live too long.

As in `edits`, each change is checked against the syntax tree that was meant. None is offered
where it would change what the program computes elsewhere: where the written value is also known
by another name, say, and only writing in place reaches that one.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

from whygrad.session import Edit
from whygrad.source.bindings import Names, base_name, dotted_name, names_of
from whygrad.source.dataflow import slice_back
from whygrad.source.edits import add_keyword
from whygrad.source.files import SourceFile, load, parse
from whygrad.source.inplace_calls import layer_flag, twin_of
from whygrad.source.reuse import (
    can_be_rebound,
    is_loop_variable,
    is_parameter,
    is_shared,
    read_again,
    viewed,
)
from whygrad.source.rewriting import Change, Replaced, changed_lines, same_syntax, verified
from whygrad.source.spans import Span, line_span
from whygrad.source.tree import expression_at, node_span, statement_at
from whygrad.source.values import reads

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
# These compute nothing that could need a gradient, so that a loop over them can do without.
PLAIN_CALLS = {"parameters", "named_parameters", "buffers", "named_buffers", "modules", "len"}
PLAIN_CALLS |= {"values", "items", "zip", "enumerate", "range", "list", "reversed", "isinstance"}
NO_STATEMENT_AFTER = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def out_of_place(span: Span) -> list[Edit]:
    """`x += y` becomes `x = x + y`, `x.mul_(2)` becomes `x = x.mul(2)`."""
    source, node = load(span.file), expression_at(span)
    names, statement = names_of(source), statement_at(span)
    if names is None:
        return []
    if node is None and isinstance(statement, ast.AugAssign):
        return _operator_out_of_place(source, names, statement)
    if isinstance(node, ast.Call) and twin_of(source, node) is not None:
        return _call_out_of_place(source, names, node)
    return []


def _operator_out_of_place(
    source: SourceFile, names: Names, statement: ast.AugAssign
) -> list[Edit]:
    target, value, operator = statement.target, statement.value, OPERATORS[type(statement.op)]
    if not _may_be_rebound(names, target, statement):
        return []
    line, column = source.extent(target)[2:]
    place = source.line(line).find(f"{operator}=", column - 1) + 1
    new = f"= {dotted_name(target)} {operator}"
    written: Change = (line, place, line, place + len(operator) + 1), new
    start, end = source.extent(value)[:2], source.extent(value)[2:]
    parentheses: list[Change] = [((*start, *start), "("), ((*end, *end), ")")]
    replaced: Replaced = {statement: [ast.Assign([target], ast.BinOp(target, statement.op, value))]}
    bare = verified(source, [written], replaced)
    return bare or verified(source, [written, *parentheses], replaced)


def _call_out_of_place(source: SourceFile, names: Names, call: ast.Call) -> list[Edit]:
    top = call
    while (outer := _writing_on(source, top)) is not None:
        top = outer
    changes: list[Change] = []
    replaced: Replaced = {}
    subject: ast.expr = top
    while (twin := twin_of(source, subject)) is not None:
        changes.append(twin.change)
        replaced[twin.call] = [twin.new]
        subject = twin.subject
    parent = source.parents[top]
    if isinstance(parent, ast.Expr) or _matters_later(names, subject, top, parent):
        if not isinstance(parent, (ast.Expr, ast.Assign)):
            return []
        if not _may_be_rebound(names, subject, parent):
            return []
        place = source.extent(top)[:2]
        changes.append(((*place, *place), f"{dotted_name(subject)} = "))
        targets = parent.targets if isinstance(parent, ast.Assign) else []
        replaced[parent] = [ast.Assign([*targets, subject], top)]
    return verified(source, changes, replaced)


def _writing_on(source: SourceFile, call: ast.Call) -> ast.Call | None:
    """The next write in a chain: `x.mul_(2).add_(1)` for `x.mul_(2)`."""
    around = source.parents[call]
    if isinstance(around, (ast.Attribute, ast.keyword)):
        around = source.parents[around]
    twin = twin_of(source, around)
    return twin.call if twin is not None and twin.subject is call else None


def _matters_later(names: Names, subject: ast.expr, top: ast.expr, parent: ast.AST) -> bool:
    """Whether something but the expression's own value shows that its subject was written."""
    base = viewed(subject)
    if base is None:
        return False
    if is_parameter(names, base) or is_shared(names, base, top):
        return True
    if isinstance(parent, ast.Assign) and any(same_syntax(t, subject) for t in parent.targets):
        return False
    return read_again(names, base, top)


def _may_be_rebound(names: Names, target: ast.expr, statement: ast.stmt) -> bool:
    """Whether giving the name a new value does all that writing in place did."""
    return (
        can_be_rebound(names, dotted_name(target), target)
        and not is_loop_variable(names, target)
        and not is_parameter(names, target)
        and not is_shared(names, target, statement)
        and (isinstance(target, ast.Attribute) or read_again(names, target, statement))
    )


def set_inplace_false(span: Span) -> list[Edit]:
    """`nn.ReLU(inplace=True)` and `nn.ReLU(True)` become `nn.ReLU(inplace=False)`."""
    source, call = load(span.file), expression_at(span)
    flag = layer_flag(source, call)
    if not isinstance(call, ast.Call) or flag is None:
        return []
    if isinstance(flag, ast.keyword):
        return add_keyword(span, "inplace=False")
    named = ast.keyword("inplace", ast.Constant(False))
    arguments = [a for a in call.args if a is not flag]
    replaced: Replaced = {call: [ast.Call(call.func, arguments, [named, *call.keywords])]}
    return verified(source, [(source.extent(flag), "inplace=False")], replaced)


def find_inplace_constructors(file: str, line: int) -> list[Span]:
    """Where the layers are made that may write in place when a line runs.

    These are the ones in the class around the line; of them, those that the line calls, if that
    can be told. Outside of classes only the latter are meant.
    """
    source, here = load(file), line_span(file, line)
    names, statement = names_of(source), statement_at(here)
    if names is None or statement is None:
        return []
    chain = source.chain(here.extent)
    around = next((node for node in reversed(chain) if isinstance(node, ast.ClassDef)), None)
    made = [
        node_span(source, node)
        for node in _without_inner_classes(around or names.module.node)
        if layer_flag(source, node) is not None
    ]
    flows = [
        slice_back(node_span(source, call.func))
        for call in ast.walk(statement)
        if isinstance(call, ast.Call) and call.lineno <= line <= (call.end_lineno or 0)
        if _is_module_call(names, call)
    ]
    called = [
        span
        for span in made
        if any(region.contains(span) for flow in flows if flow for region in flow.regions)
    ]
    return sorted(called or (made if around else []), key=lambda span: span.extent)


def _is_module_call(names: Names, call: ast.Call) -> bool:
    """Whether what is called can be a layer: `self.act(x)`, `layer(x)`, but not `x.relu()`."""
    name = base_name(call.func) or ""
    owned = names.owner(name, names.scope_at(call))[1]
    return owned.startswith("self.") or bool(name and "." not in name)


def _without_inner_classes(node: ast.AST) -> Iterator[ast.AST]:
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting += [c for c in ast.iter_child_nodes(current) if not isinstance(c, ast.ClassDef)]


def detach_name(span: Span, name_hint: str | None = None) -> list[Edit]:
    """`self.netD(fake)` becomes `self.netD(fake.detach())`."""
    source, call = load(span.file), expression_at(span)
    if not isinstance(call, ast.Call):
        return []
    arguments = [*call.args, *(k.value for k in call.keywords)]
    if name_hint is None:
        found: list[ast.AST] = [a for a in arguments if dotted_name(a) is not None]
    else:
        found = [node for name, node in reads(*arguments) if name == name_hint]
    if len(found) != 1:
        return []
    new = f"{source.text(source.extent(found[0]))}.detach()"
    wanted = ast.parse(new, mode="eval").body
    return verified(source, [(source.extent(found[0]), new)], {found[0]: [wanted]})


def detach_after(span: Span, name: str) -> list[Edit]:
    """Put `name = name.detach()` behind the statement at a span."""
    source, statement = load(span.file), statement_at(span)
    names, new = names_of(source), f"{name} = {name}.detach()"
    added = parse(new, span.file)
    if names is None or statement is None or added is None:
        return []
    if not all(part.isidentifier() for part in name.split(".")):
        return []
    if _is_compound(statement) or isinstance(statement, NO_STATEMENT_AFTER):
        return []
    if not can_be_rebound(names, name, statement):
        return []
    replaced: Replaced = {statement: [copy.copy(statement), *added.body]}
    line, column = source.extent(statement)[2:]
    indentation = _indentation(source, statement)
    if indentation is None:
        return verified(source, [((line, column, line, column), f"; {new}")], replaced)
    lines = source.plain_lines
    lines.insert(line, indentation + new)
    return changed_lines(source, lines, replaced)


def under_no_grad(span: Span) -> list[Edit]:
    """Put the statement at a span, or the loop that does nothing else, under `torch.no_grad()`."""
    source, statement = load(span.file), statement_at(span)
    names = names_of(source)
    if names is None or statement is None or _is_compound(statement):
        return []
    statement = _loop_of(source, statement)
    indentation = _indentation(source, statement)
    if indentation is None or names.imported("torch", statement) != "torch":
        return []
    first, last = statement.lineno, statement.end_lineno or 0
    step = "\t" if indentation.endswith("\t") else "    "
    in_string = {
        number
        for part in ast.walk(statement)
        if isinstance(part, (ast.Constant, ast.JoinedStr))
        for number in range(part.lineno + 1, (part.end_lineno or 0) + 1)
    }
    moved = [
        text if number in in_string or not text.strip() else step + text
        for number, text in enumerate(source.plain_lines[first - 1 : last], first)
    ]
    lines = source.plain_lines
    lines[first - 1 : last] = [f"{indentation}with torch.no_grad():", *moved]
    context = ast.withitem(ast.parse("torch.no_grad()", mode="eval").body)
    wrapped = ast.With([context], [copy.copy(statement)])
    return changed_lines(source, lines, {statement: [wrapped]})


def _loop_of(source: SourceFile, statement: ast.stmt) -> ast.stmt:
    """The outermost loop that does nothing but this statement; itself if there is none."""
    found = current = statement
    while True:
        match source.parents[current]:
            case ast.For(body=[only], orelse=[], iter=head) as around if only is current:
                is_loop = True
            case ast.If(body=[only], orelse=[], test=head) as around if only is current:
                is_loop = False
            case _:
                return found
        calls = [node.func for node in ast.walk(head) if isinstance(node, ast.Call)]
        if any(_last_name(func) not in PLAIN_CALLS for func in calls):
            return found
        current = around
        found = around if is_loop else found


def _last_name(node: ast.expr) -> str:
    return str(getattr(node, "attr", None) or getattr(node, "id", ""))


def _is_compound(statement: ast.stmt) -> bool:
    return hasattr(statement, "body") or isinstance(statement, ast.Match)


def _indentation(source: SourceFile, statement: ast.stmt) -> str | None:
    """The indentation of a statement; None if it shares its lines with another one."""
    line, column, end_line, end_column = source.extent(statement)
    before, after = source.line(line)[: column - 1], source.line(end_line)[end_column - 1 :]
    alone = not before.strip() and (not after.strip() or after.lstrip().startswith("#"))
    return before if alone else None
