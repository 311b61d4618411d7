"""Internal: consumer groups: membership, assignment of partitions, session timeouts and committed offsets. Pure.

Managers store groups and decide with these functions; so does the fake of `flotilla.testing`.
"""
