"""Compare a text with its stored copy; WHYGRAD_UPDATE_SNAPSHOTS=1 stores it anew."""

from __future__ import annotations

import os
from pathlib import Path


def assert_matches_snapshot(stored: Path, text: str) -> None:
    if os.environ.get("WHYGRAD_UPDATE_SNAPSHOTS") == "1":
        stored.parent.mkdir(exist_ok=True)
        stored.write_text(text, encoding="utf-8")
    assert stored.exists(), f"no snapshot {stored.name}: run with WHYGRAD_UPDATE_SNAPSHOTS=1"
    assert text == stored.read_text(encoding="utf-8")
