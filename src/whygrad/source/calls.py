"""Which arguments of a call become which parameters of the function it runs."""

from __future__ import annotations

import ast
import builtins

from whygrad.source.bindings import Names, dotted_name, first_part, is_static, parameter_names
from whygrad.source.files import FunctionNode, SourceFile, load


def bound_arguments(
    names: Names, call: ast.Call, wanted: frozenset[str], callee: tuple[str, int] | None
) -> list[ast.expr] | None:
    """The argument expressions that these parameters get, or None if that cannot be told."""
    if callee is None:
        return None
    source = load(callee[0])
    candidates = source.functions.get(callee[1], [])
    if len(candidates) != 1:
        return None
    function = candidates[0]
    class_name = _class_name(source, function)
    if not _runs(names, call, function, class_name):
        return None
    skipped = _given_by_python(call, function, class_name)
    found = _matching(call, function, skipped, wanted)
    if skipped and isinstance(call.func, ast.Attribute):
        found += [call.func.value] * (parameter_names(function.args)[0] in wanted)
    return found


def _matching(
    call: ast.Call, function: FunctionNode, skipped: int, wanted: frozenset[str]
) -> list[ast.expr]:
    arguments = function.args
    positional = [a.arg for a in [*arguments.posonlyargs, *arguments.args]][skipped:]
    rest = arguments.vararg.arg if arguments.vararg else None
    found: list[ast.expr] = []
    unpacked = False
    for index, argument in enumerate(call.args):
        if isinstance(argument, ast.Starred):
            unpacked = True
            found.append(argument.value)
        elif unpacked or (positional[index] if index < len(positional) else rest) in wanted:
            found.append(argument)
    known = parameter_names(arguments)
    others = arguments.kwarg.arg if arguments.kwarg else None
    for keyword in call.keywords:
        name = keyword.arg if keyword.arg in known else others
        if keyword.arg is None or name in wanted:
            found.append(keyword.value)
    return found


def _class_name(source: SourceFile, function: FunctionNode) -> str | None:
    parent = source.parents.get(function)
    return parent.name if isinstance(parent, ast.ClassDef) else None


def _runs(names: Names, call: ast.Call, function: FunctionNode, class_name: str | None) -> bool:
    """Whether the call names this function, so that nothing stands in between."""
    dotted = dotted_name(call.func)
    imported = names.imported(dotted, call) if dotted else None
    written = getattr(call.func, "attr", None) or getattr(call.func, "id", None)
    name = imported.rpartition(".")[2] if imported else written
    if name == getattr(function, "name", None):
        return True
    # An instance or a lambda can have any name but that of something else.
    is_other = imported is not None
    if isinstance(call.func, ast.Name):
        is_other |= hasattr(builtins, call.func.id) or bool(names.defined(call.func.id, call))
    match function:
        case ast.Lambda():
            return not is_other
        case _ if class_name is None:
            return False
        case ast.FunctionDef(name="__init__"):
            return name == class_name
        case ast.FunctionDef(name="forward") if is_static(function):
            return name == "apply"
        case ast.FunctionDef(name="forward" | "__call__"):
            return not is_other
    return False


def _given_by_python(call: ast.Call, function: FunctionNode, class_name: str | None) -> int:
    """How many leading parameters the call does not write down: `self`, `cls` or `ctx`."""
    first = next(iter([*function.args.posonlyargs, *function.args.args]), None)
    if class_name is None or isinstance(function, ast.Lambda) or first is None:
        return 0
    if is_static(function):
        through_apply = isinstance(call.func, ast.Attribute) and call.func.attr == "apply"
        return int(through_apply and first.arg == "ctx")
    on_class = first_part(dotted_name(call.func) or "") == class_name
    through_class = isinstance(call.func, ast.Attribute) and on_class
    is_class_method = any(dotted_name(d) == "classmethod" for d in function.decorator_list)
    return int(is_class_method or not through_class)
