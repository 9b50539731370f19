"""From frames to spans, from spans to syntax and data flow. Never imports torch."""
