"""Partitions: the state machine that a Raft group replicates. Start at `partition.py`."""
