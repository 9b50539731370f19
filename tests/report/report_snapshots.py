"""Compare a text with its stored copy; WHYGRAD_UPDATE_SNAPSHOTS=1 stores it anew."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "snapshots"


def assert_matches_snapshot(name: str, text: str) -> None:
    stored = FOLDER / f"{name}.txt"
    if os.environ.get("WHYGRAD_UPDATE_SNAPSHOTS") == "1":
        stored.write_text(text, encoding="utf-8")
    assert stored.exists(), f"no snapshot {stored.name}: run with WHYGRAD_UPDATE_SNAPSHOTS=1"
    assert text == stored.read_text(encoding="utf-8")
