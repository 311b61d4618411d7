"""Requests to partition leaders: leader cache, retries, batching of messages."""
