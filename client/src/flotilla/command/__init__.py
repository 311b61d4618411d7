"""The `flotilla` command.

The command does not import server packages. Commands that need them start them as separate modules, and report which
package to install if they are missing.
"""

from flotilla.command.main import main

__all__ = ["main"]
