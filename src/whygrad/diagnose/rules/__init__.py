"""One rule per file. A rule module has a `CODE` and `diagnose(case) -> Iterator[Finding]`."""
