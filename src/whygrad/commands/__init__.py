"""One file per subcommand: each parses, calls and returns an exit code."""

from __future__ import annotations


class UsageError(Exception):
    """The request cannot be carried out; the message is one line for the user."""
