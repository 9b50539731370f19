from __future__ import annotations

from pathlib import Path

import pytest

from whygrad.settings import Settings, SettingsError, load_settings


def write(directory: Path, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "pyproject.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    write(tmp_path, "[project]\nname = 'x'\n[tool.other]\nx = 1")
    assert load_settings(tmp_path) == Settings()
    assert Settings().max_operations == 100_000


def test_every_key(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        [tool.whygrad]
        select = ["detach-call", "item-call"]
        ignore = ["frozen"]
        format = "concise"
        strict = true
        quiet = true
        verbose = true
        max-operations = 500
        """,
    )
    assert load_settings(tmp_path) == Settings(
        select=["detach-call", "item-call"],
        ignore=["frozen"],
        format="concise",
        strict=True,
        quiet=True,
        verbose=True,
        max_operations=500,
    )


def test_the_nearest_table_counts(tmp_path: Path) -> None:
    write(tmp_path, "[tool.whygrad]\nstrict = true\nverbose = true")
    write(tmp_path / "a", "[tool.whygrad]\nstrict = false")
    write(tmp_path / "a" / "b", "[project]\nname = 'no table for us'")
    (tmp_path / "a" / "b" / "c").mkdir()
    found = load_settings(tmp_path / "a" / "b" / "c")
    assert (found.strict, found.verbose) == (False, False)
    assert load_settings(tmp_path).strict is True


def test_a_relative_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "[tool.whygrad]\nstrict = true")
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    assert load_settings(Path(".")).strict is True


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("selects = []", "unknown key tool.whygrad.selects (known: select, ignore, "),
        ("max_operations = 5", "unknown key tool.whygrad.max_operations"),
        ("json = 'x'", "unknown key tool.whygrad.json"),
        ("select = 'detach-call'", "tool.whygrad.select must be a list of codes, not 'detach-"),
        ("ignore = [1]", "tool.whygrad.ignore must be a list of codes, not [1]"),
        ("format = 'html'", "tool.whygrad.format must be one of full, concise, github, not 'h"),
        ("strict = 1", "tool.whygrad.strict must be true or false, not 1"),
        ("max-operations = 0", "tool.whygrad.max-operations must be a positive whole number"),
        ("max-operations = true", "tool.whygrad.max-operations must be a positive whole number"),
        ("strict", "not valid TOML: "),
    ],
)
def test_a_mistake_is_named_with_its_file(line: str, complaint: str, tmp_path: Path) -> None:
    file = write(tmp_path, f"[tool.whygrad]\n{line}")
    with pytest.raises(SettingsError) as error:
        load_settings(tmp_path)
    assert str(error.value).startswith(f"{file}: {complaint}")
    assert "\n" not in str(error.value)


def test_a_table_that_is_none(tmp_path: Path) -> None:
    write(tmp_path, "[tool]\nwhygrad = 3")
    with pytest.raises(SettingsError, match=r"tool\.whygrad must be a table"):
        load_settings(tmp_path)
