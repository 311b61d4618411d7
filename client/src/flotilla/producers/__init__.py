"""Internal: detect duplicate batches of idempotent producers. Pure.

Brokers and the fake of `flotilla.testing` use it.
"""
