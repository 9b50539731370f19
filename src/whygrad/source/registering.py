"""Edits that make modules and optimizers know what they did not: each checked like all edits."""

from __future__ import annotations

import ast
import copy

from whygrad.session import Edit
from whygrad.source.bindings import dotted_name, names_of
from whygrad.source.files import SourceFile, load
from whygrad.source.rewriting import verified
from whygrad.source.spans import Span
from whygrad.source.tree import expression_at, full_name

_CONTAINERS = (ast.List, ast.ListComp, ast.Tuple, ast.Dict, ast.DictComp)


def nn_in(file: str) -> str:
    """What the file calls `torch.nn`; empty if it imports neither that nor torch."""
    names = names_of(load(file))
    imports = names.module.imports if names is not None else {}
    aliases = {full: alias for alias, full in imports.items()}
    if "torch.nn" in aliases:
        return aliases["torch.nn"]
    return f"{aliases['torch']}.nn" if "torch" in aliases else ""


def in_container(file: str, statement: ast.stmt | None, container: str) -> list[Edit]:
    """`self.layers = [nn.Linear(2, 2)]` becomes `self.layers = nn.ModuleList([...])`.

    Only if all that is written down there is objects being made: such a container takes
    nothing but modules (or parameters).
    """
    value, nn = _assigned(statement), nn_in(file)
    if not nn or not isinstance(value, _CONTAINERS):
        return []
    if not all(_is_made(element) for element in _elements(value)):
        return []
    if isinstance(value, ast.Dict) and not all(_is_text(key) for key in value.keys):
        return []
    empty = isinstance(value, (ast.List, ast.Dict)) and not list(_elements(value))
    return _wrapped(load(file), value, f"{nn}.{container}", keep=not empty)


def as_parameter(file: str, statement: ast.stmt | None) -> list[Edit]:
    """`self.scale = torch.ones(3, requires_grad=True)` becomes `self.scale = nn.Parameter(...)`."""
    value, nn = _assigned(statement), nn_in(file)
    if not nn or not isinstance(value, ast.Call):
        return []
    return _wrapped(load(file), value, f"{nn}.Parameter", keep=True)


def converted_first(file: str, statement: ast.stmt | None) -> list[Edit]:
    """`nn.Parameter(x).to(dtype)` becomes `nn.Parameter(x.to(dtype))`."""
    source, value = load(file), _assigned(statement)
    if value is None:
        return []
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    inner = [call for call in calls if _is_parameter(source, call)]
    if len(inner) != 1 or value is inner[0]:
        return []
    call = inner[0]
    argument = call.args[0]
    text, given = source.text(source.extent(value)), source.text(source.extent(argument))
    start, end = _within(source, value, call)
    atom = isinstance(argument, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    plain = f"{text[:start]}{given if atom else f'({given})'}{text[end:]}"
    wanted = ast.Call(call.func, [_replaced(value, call, argument)], [])
    new = f"{source.text(source.extent(call.func))}({plain})"
    return verified(source, [(source.extent(value), new)], {value: [wanted]})


def in_optimizer(span: Span, module: str) -> list[Edit]:
    """`Adam(net.parameters())` becomes `Adam([*net.parameters(), *module.parameters()])`."""
    source, call = load(span.file), expression_at(span)
    if not isinstance(call, ast.Call) or not call.args or not _is_known(source, call, module):
        return []
    given, added = call.args[0], f"*{module}.parameters()"
    extra = ast.parse(f"[{added}]", mode="eval").body
    assert isinstance(extra, ast.List)
    text = source.text(source.extent(given))
    match given:
        case ast.List(elts=[_, *_] as elements) if not any(
            isinstance(e, ast.Dict) for e in elements
        ):
            last = source.extent(elements[-1])[2:]
            wanted = ast.List([*elements, *extra.elts], ast.Load())
            return verified(source, [((*last, *last), f", {added}")], {given: [wanted]})
        case ast.Call(func=ast.Attribute(attr="parameters"), args=[], keywords=[]):
            same = copy.copy(given)  # what is replaced must not occur in its own replacement
            wanted = ast.List([ast.Starred(same, ast.Load()), *extra.elts], ast.Load())
            change = (source.extent(given), f"[*{text}, {added}]")
            return verified(source, [change], {given: [wanted]})
    return []


def _assigned(statement: ast.stmt | None) -> ast.expr | None:
    """What a statement assigns, if it assigns one thing."""
    match statement:
        case (
            ast.Assign(targets=[ast.Attribute() | ast.Name()], value=value)
            | ast.AnnAssign(value=ast.expr() as value)
        ):
            return value
    return None


def _is_known(source: SourceFile, place: ast.AST, name: str) -> bool:
    """Whether a name is one that the code at a place may use."""
    names = names_of(source)
    if names is None or not name.replace(".", "").isidentifier():
        return False
    root = name.partition(".")[0]
    owner, _ = names.owner(root, names.scope_at(place))
    return root in owner.bound or root in owner.parameters


def _elements(value: ast.expr) -> list[ast.expr]:
    match value:
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Dict(values=elements):
            return elements
        case ast.ListComp(elt=element) | ast.DictComp(value=element):
            return [element]
    return []


def _is_made(node: ast.expr) -> bool:
    """Whether an expression makes an object of a class, as far as names tell."""
    name = dotted_name(node.func) if isinstance(node, ast.Call) else None
    return name is not None and name.rpartition(".")[2][:1].isupper()


def _is_text(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_parameter(source: SourceFile, call: ast.Call) -> bool:
    simple = len(call.args) == 1 and not call.keywords
    return simple and (full_name(source, call.func) or "").endswith("nn.Parameter")


def _wrapped(source: SourceFile, value: ast.expr, callee: str, keep: bool) -> list[Edit]:
    function = ast.parse(callee, mode="eval").body
    inside = copy.copy(value)  # what is replaced must not occur in its own replacement
    wanted = ast.Call(function, [inside] if keep else [], [])
    text = source.text(source.extent(value)) if keep else ""
    return verified(source, [(source.extent(value), f"{callee}({text})")], {value: [wanted]})


def _within(source: SourceFile, outer: ast.expr, inner: ast.expr) -> tuple[int, int]:
    """Where the text of a part begins and ends in the text of the whole."""
    whole, part = source.extent(outer), source.extent(inner)
    before = source.text((*whole[:2], *part[:2]))
    return len(before), len(before) + len(source.text(part))


def _replaced(tree: ast.expr, old: ast.expr, new: ast.expr) -> ast.expr:
    """A copy of a tree with one of its nodes replaced."""
    memo = {id(old): copy.deepcopy(new)}
    return copy.deepcopy(tree, memo)
