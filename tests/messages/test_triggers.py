"""Every message that torch can say: is the line to change found, with a cause and a way out?"""

from __future__ import annotations

from pathlib import Path

import pytest
from trigger_cases import Trigger, triggers

from program_runs import ForkServer


@pytest.mark.parametrize("trigger", triggers(), ids=lambda t: t.id)
def test_a_message_is_told_at_its_line(
    trigger: Trigger, programs: ForkServer, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(trigger.program, encoding="utf-8")
    run = programs.run(program, watched=True)
    findings = run.report["findings"]
    assert findings, run.stderr
    first = findings[0]
    assert first["code"] in trigger.codes
    assert Path(first["location"]["file"]) == program
    assert first["location"]["line"] in trigger.lines
    assert first["why"] and first["title"]
    assert first["fix"] and first["fix"]["title"]
    assert not run.report["notes"]
    for name in trigger.named:
        assert name in str(first)
