"""Which function of the same file a call runs, as far as names tell."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whygrad.source.bindings import Names, dotted_name
from whygrad.source.files import FUNCTIONS
from whygrad.source.reaching import origins
from whygrad.source.storing import holder

Function = ast.FunctionDef | ast.AsyncFunctionDef


def callee(names: Names, call: ast.Call) -> Function | None:
    """None where there is none, or more than one that it might be."""
    match call.func:
        case ast.Name(id=name):
            defined = names.defined(name, call)
            return defined if isinstance(defined, FUNCTIONS) else None
        case ast.Attribute(value=value, attr=attr):
            receiver = holder(value)
            if receiver is None or names.imported(dotted_name(receiver) or "", call):
                return None
            classes = _classes_of(names, receiver)
            found = {method for owner in classes for method in _methods(owner, attr)}
            return found.pop() if len(found) == 1 else None
    return None


def given_back(names: Names, function: Function) -> list[ast.expr]:
    """What a function returns or yields."""
    own = [node for node in ast.walk(function) if names.scope_at(node) is names.scopes[function]]
    return [n.value for n in own if isinstance(n, (ast.Return, ast.Yield)) and n.value is not None]


def _classes_of(names: Names, receiver: ast.expr) -> list[ast.ClassDef]:
    """The classes of this file of which a name may hold an instance, or several."""
    name = dotted_name(receiver) or ""
    owner, normal = names.owner(name, names.scope_at(receiver))
    if normal == "self" and isinstance(owner.node, ast.ClassDef):
        return [owner.node]
    values = [v for d in origins(names, name, receiver).definitions if d.replaces for v in d.values]
    made = [
        names.defined(part.func.id, part)
        for value in values
        for part in ast.walk(value)
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)
    ]
    found = [node for node in made if isinstance(node, ast.ClassDef)]
    is_unknown = all(dotted_name(value) is not None for value in values)
    return found or (_all_classes(names) if is_unknown else [])


def _all_classes(names: Names) -> list[ast.ClassDef]:
    return [node for node in names.scopes if isinstance(node, ast.ClassDef)]


def _methods(owner: ast.ClassDef, name: str) -> Iterator[Function]:
    return (s for s in owner.body if isinstance(s, FUNCTIONS) and s.name == name)
