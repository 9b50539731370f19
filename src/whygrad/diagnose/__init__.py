"""Stage 3: questions put to the flow graph, answered by rules that return findings."""
