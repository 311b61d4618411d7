"""The broker: keeps partitions on disk. Today that is `flotilla_broker.log`, the log on disk."""
