"""The writer: the one manager that changes topology, fenced by an epoch."""
