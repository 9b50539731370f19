"""Fixtures that more than one folder uses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from program_runs import ForkServer


@pytest.fixture(scope="session")
def programs() -> Iterator[ForkServer]:
    """Runs programs in forked children of one process that has torch imported."""
    server = ForkServer()
    yield server
    server.close()
