"""Detection of pauses of the process, such as a suspended machine, in which heartbeats may have been missed."""

PAUSED_S = 2.0  # a wait longer than planned by this much means that the process was paused
