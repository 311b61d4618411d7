"""The writer: the one manager that decides about topology, fenced by an epoch."""
