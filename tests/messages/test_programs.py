"""More programs to which torch says something, and healthy ones in which nothing is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from program_pages import Program, check, programs_in
from program_runs import ForkServer


@pytest.mark.parametrize(
    "program", programs_in(Path(__file__).parent / "programs"), ids=lambda p: p.name
)
def test_what_torch_says_is_told_at_its_cause(
    program: Program, programs: ForkServer, tmp_path: Path
) -> None:
    check(program, programs, tmp_path)
