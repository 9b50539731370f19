"""The documentation is true: generated parts are fresh, links lead somewhere, settings exist."""

from __future__ import annotations

import importlib.util
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from whygrad import api, settings
from whygrad.settings import Settings, load_settings

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "tests" / "README.md"]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)


def test_generated_parts_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_generator_is_used_once(generate: ModuleType) -> None:
    texts = [file.read_text(encoding="utf-8") for file in generate.DOCUMENTS]
    used = [found["name"] for text in texts for found in generate.PART.finditer(text)]
    assert sorted(used) == sorted(generate.GENERATORS)


def test_a_stale_part_is_noticed(generate: ModuleType) -> None:
    text = "before\n<!-- generated: codes -->\nold\n<!-- end -->\nafter\n"
    fresh = generate.fill_in(text)
    assert generate.stale_parts(text) == ["codes"]
    assert generate.stale_parts(fresh) == []
    assert fresh.startswith("before\n<!-- generated: codes -->\n| code |")
    assert fresh.endswith("|\n<!-- end -->\nafter\n")


def test_help_texts_of_different_pythons_count_as_equal(generate: ModuleType) -> None:
    older = "  -o OUT, --output OUT  write to\n                        this file\n"
    newer = "  -o, --output OUT  write to this file\n"
    assert generate.same_words(older, newer)
    assert not generate.same_words(older, newer.replace("this", "that"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!http)([^)#\s]+)", prose(page))
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    """Names in backquotes that look like a file or folder of this repository."""
    named = re.findall(r"`((?:[\w-]+/)+(?:[\w.-]+\.\w+)?)`", prose(page))
    places = (page.parent, ROOT, ROOT / "src" / "whygrad")
    missing = [name for name in named if not any((place / name).exists() for place in places)]
    assert [name for name in missing if not re.search("CODE|FAMILY", name)] == []


def test_the_settings_in_the_readme_are_all_there_are(tmp_path: Path) -> None:
    (table,) = re.findall(r"```toml\n(\[tool\.whygrad\]\n.*?)```", readme(), re.S)
    (tmp_path / "pyproject.toml").write_text(table, encoding="utf-8")
    shown = tomllib.loads(table)["tool"]["whygrad"]
    assert set(shown) == set(settings._CHECKS)
    loaded = load_settings(tmp_path)
    assert loaded == Settings(ignore=["left-torch"])


def test_the_signature_of_watch_in_the_readme_is_the_real_one() -> None:
    parameters = list(inspect.signature(api.watch).parameters.values())
    written = ", ".join(f"{p.name}={p.default!r}" for p in parameters)
    assert f"`watch({written})`".replace("100000", "100_000") in readme()


def test_every_command_of_the_makefile_is_explained() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (targets,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.M)
    described = re.findall(r'@echo "make ([\w-]+) ', makefile)
    assert sorted(described) == sorted(set(targets.split()) - {"help"})


def test_the_whole_test_folder_is_described() -> None:
    text = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    files = {path.name for path in (ROOT / "tests").glob("test_*.py")}
    assert {f"`{name}/`" for name in folders} | {f"`{name}`" for name in files} <= set(
        re.findall(r"`[^`\n]+`", text)
    )
