"""The `flotilla` command.

Servers are not imported here: what needs them is started as a module of its own, and without them says what to install.
"""

from flotilla.command.main import main

__all__ = ["main"]
