"""The graph was cut: at which line?"""

from __future__ import annotations

from pathlib import Path

import pytest

from program_pages import Program, check, programs_in
from program_runs import ForkServer


@pytest.mark.parametrize("program", programs_in(Path(__file__).parent), ids=lambda p: p.name)
def test_the_cut_is_found_where_it_is(
    program: Program, programs: ForkServer, tmp_path: Path
) -> None:
    check(program, programs, tmp_path)
