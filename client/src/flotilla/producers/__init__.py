"""Producers: how a partition tells a retry from a new batch. Pure; brokers ask, and so does `flotilla.testing`."""
