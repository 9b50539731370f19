"""A saved session tells the same as the run itself did, without torch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from whygrad import explain

WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from whygrad.__main__ import main; "


def test_report_draws_a_saved_session_again(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(explain.page("left-torch").failing)
    run = [sys.executable, "-m", "whygrad", "run", "--save", "run.session", "--json", "run.json"]
    first = subprocess.run(
        [*run, program.name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    report = re.search(r"^error\[.*", first.stderr, re.S | re.M)
    assert report is not None, first.stderr
    program.rename(tmp_path / "moved_away.py")

    again = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + "sys.exit(main(['report', 'run.session']))"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stdout.strip() == report.group().strip()

    subprocess.run(
        [sys.executable, "-m", "whygrad", "report", "run.session", "-o", "again.json"],
        cwd=tmp_path,
        check=True,
    )
    one, other = (json.loads((tmp_path / n).read_text()) for n in ("run.json", "again.json"))
    assert one == other
