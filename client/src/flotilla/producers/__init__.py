"""Idempotent producers: detect duplicate batches. Pure; brokers and the fake of `flotilla.testing` use it."""
