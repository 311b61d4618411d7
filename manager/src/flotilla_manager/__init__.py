"""The manager: the HTTP API for people and programs, metadata, placement, and the way to the brokers."""
