from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from whygrad.commands import UsageError
from whygrad.commands.outputs import check_writable, write_file


def text_writer(text: str):  # type: ignore[no-untyped-def]
    return lambda path: path.write_text(text)


def test_a_new_file(tmp_path: Path) -> None:
    check_writable(tmp_path / "new.json")
    assert not (tmp_path / "new.json").exists()
    write_file(tmp_path / "new.json", text_writer("new"))
    assert (tmp_path / "new.json").read_text() == "new"
    assert os.listdir(tmp_path) == ["new.json"]


def test_checking_leaves_an_existing_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    file.write_text("old")
    check_writable(file)
    assert file.read_text() == "old"


def test_a_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    file.write_text("old")
    file.chmod(0o640)
    write_file(file, text_writer("new"))
    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    file.write_text("old")

    def half(path: Path) -> None:
        path.write_text("ha")
        raise OSError(28, "No space left on device")

    with pytest.raises(UsageError, match=r"cannot write .*old\.json: No space left on device"):
        write_file(file, half)
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["old.json"]


def test_the_suffix_is_kept_for_the_writer(tmp_path: Path) -> None:
    seen: list[str] = []
    write_file(tmp_path / "a.txt", lambda path: seen.append(path.suffix) or path.touch())
    assert seen == [".txt"]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    write_file(tmp_path / "link.json", text_writer("new"))
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == "new"


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_writable(pipe)
        write_file(pipe, text_writer("through"))
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
