"""The shape of the package, as docs/design.md draws it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from whygrad import explain

PACKAGE = Path(__file__).parents[1] / "src" / "whygrad"
FILES = sorted(PACKAGE.rglob("*.py"))
RULES = [file for file in FILES if file.parent.name == "rules" and file.stem != "__init__"]

# What each part may import from: the arrows of the picture. A new part gets its place here.
MAY_IMPORT: dict[str, set[str]] = {
    "_version": set(),
    "session": set(),
    "settings": set(),
    "catalogue": set(),
    "explain": {"catalogue"},
    "source": {"session"},
    "record": {"catalogue"},
    "graph": {"record", "source"},
    "diagnose": {"catalogue", "graph", "record", "source", "session"},
    "report": {"session"},
    "watching": {
        "_version",
        "catalogue",
        "record",
        "graph",
        "diagnose",
        "source",
        "session",
        "settings",
    },
    "answer": {"report", "session"},
    "asking": {"answer", "watching", "diagnose", "record", "source"},
    "api": {"answer", "asking", "watching", "report", "session", "settings"},
    "commands": {
        "_version",
        "catalogue",
        "watching",
        "record",
        "explain",
        "report",
        "session",
        "settings",
    },
    "__main__": {"_version", "commands", "settings"},
    "__init__": {"_version", "api"},
}
WITHOUT_TORCH = set("session settings source graph diagnose report explain catalogue".split())
# The command line and `watch()` end where the reader is; no other part may talk.
MAY_PRINT = {"commands", "report", "__main__", "api"}
PRIVATE_API = PACKAGE / "record" / "torch_api.py"


def part_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name_of(file: Path) -> str:
    return str(file.relative_to(PACKAGE))


def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def module_of(file: Path) -> str:
    path = file.relative_to(PACKAGE.parent).with_suffix("")
    return ".".join(path.parts).removesuffix(".__init__")


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Dotted names of all imports, in functions too; `from a import b` gives `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_parts(tree: ast.AST) -> set[str]:
    """Which parts of whygrad a file imports; a name of the package itself counts as `__init__`."""
    parts = set()
    for module in imported_modules(tree):
        package, _, rest = module.partition(".")
        if package == "whygrad":
            part = rest.partition(".")[0]
            parts.add(part if part in MAY_IMPORT else "__init__")
    return parts


def each(files: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("file", files, ids=name_of)


@each(FILES)
def test_a_part_imports_only_what_comes_before_it(file: Path) -> None:
    part = part_of(file)
    assert part in MAY_IMPORT, f"{part} has no place in the picture yet"
    assert imported_parts(tree_of(file)) <= MAY_IMPORT[part] | {part}


@each([file for file in FILES if part_of(file) in WITHOUT_TORCH])
def test_the_plain_parts_do_not_mention_torch_in_an_import(file: Path) -> None:
    roots = {module.partition(".")[0] for module in imported_modules(tree_of(file))}
    assert "torch" not in roots


def test_the_plain_parts_can_be_used_without_torch() -> None:
    modules = [module_of(file) for file in FILES if part_of(file) in WITHOUT_TORCH]
    program = (
        "import importlib, sys\n"
        f"[importlib.import_module(name) for name in {modules!r}]\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# --- one rule, one file, one code, one page ---------------------------------------------------


def code_of(rule: Path) -> str:
    (code,) = (
        node.value.value
        for node in tree_of(rule).body
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "CODE"
        and isinstance(node.value, ast.Constant)
    )
    return str(code)


@each(RULES)
def test_a_rule_is_named_after_its_code(file: Path) -> None:
    code = code_of(file)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
    assert file.stem == code.replace("-", "_")
    assert [node.name for node in tree_of(file).body if getattr(node, "name", "") == "diagnose"]


def test_every_rule_has_one_page_and_every_page_one_rule() -> None:
    assert sorted(code_of(rule) for rule in RULES) == explain.codes()


# --- the one door to torch's private parts ----------------------------------------------------


def names_bound_to_torch(tree: ast.AST) -> set[str]:
    names = {"torch"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "torch":
                    names.add(alias.asname or "torch")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_uses(tree: ast.AST) -> list[str]:
    """Private names that are imported from torch or reached through one of its names."""
    found = [
        module
        for module in imported_modules(tree)
        if module.partition(".")[0] == "torch" and any(map(is_private, module.split(".")))
    ]
    torch_names = names_bound_to_torch(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            root: ast.expr = node
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in torch_names:
                found.append(ast.unparse(node))
    return found


@each([file for file in FILES if file != PRIVATE_API])
def test_private_names_of_torch_are_used_in_one_module_only(file: Path) -> None:
    assert private_uses(tree_of(file)) == []


def test_private_names_are_recognised() -> None:
    program = """
import torch.utils._contextlib as contexts
from torch.overrides import _push_mode
import torch.nn as nn
torch._C._get_tracing_state()
nn.modules.module._global_hooks
torch.overrides.TorchFunctionMode.__torch_function__
self._own
"""
    assert sorted(private_uses(ast.parse(program))) == [
        "nn.modules.module._global_hooks",
        "torch._C",
        "torch._C._get_tracing_state",
        "torch.overrides._push_mode",
        "torch.utils._contextlib",
    ]


# --- who talks --------------------------------------------------------------------------------


TALK = re.compile(r"print|sys\.std(out|err)\.write")


def talks(tree: ast.AST) -> list[str]:
    calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if TALK.fullmatch(call)]


@each([file for file in FILES if part_of(file) not in MAY_PRINT])
def test_only_commands_and_reports_talk(file: Path) -> None:
    assert talks(tree_of(file)) == []


def test_talking_is_recognised() -> None:
    assert talks(ast.parse("print(1); sys.stderr.write('x'); stream.write('y')")) == [
        "print",
        "sys.stderr.write",
    ]
