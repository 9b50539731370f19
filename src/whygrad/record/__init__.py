"""Stage 1: watch the program run and keep a thin record, without changing what it does."""
