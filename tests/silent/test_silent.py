"""Programs that run through and do not learn: is it said which line is to blame?"""

from __future__ import annotations

from pathlib import Path

import pytest

from program_pages import Program, check, programs_in
from program_runs import ForkServer


@pytest.mark.parametrize("program", programs_in(Path(__file__).parent), ids=lambda p: p.name)
def test_what_goes_wrong_in_silence_is_named(
    program: Program, programs: ForkServer, tmp_path: Path
) -> None:
    check(program, programs, tmp_path)
