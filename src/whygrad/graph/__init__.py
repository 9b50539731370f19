"""Stage 2: the flow graph, a superset of autograd's in which an edge can also be cut."""
