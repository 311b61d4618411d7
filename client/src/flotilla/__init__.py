"""Flotilla: a partitioned, replicated log queue.

This package holds what every part of the system shares: `flotilla.records`, the one binary shape that messages travel
in; `flotilla.net`, a small HTTP client; `flotilla.serving`, what all servers have in common.
"""

__version__ = "0.1.0"
