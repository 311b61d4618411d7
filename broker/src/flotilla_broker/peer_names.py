"""Names of other brokers in log lines.

Code below the server knows brokers by id. This filter replaces the ids among the arguments of a log line.
"""

import logging

from flotilla_broker.identity import Identity


class PeerNames(logging.Filter):
    """Replace ids of other brokers by their names. Lines about this broker keep its id."""

    def __init__(self, identity: Identity) -> None:
        super().__init__()
        self._identity = identity

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the arguments of a line; every line passes."""
        if isinstance(record.args, tuple):
            record.args = tuple(self._label(one) for one in record.args)
        return True

    def _label(self, argument: object) -> object:
        if not isinstance(argument, str) or argument == self._identity.id:
            return argument
        return self._identity.label(argument)


def show_names(identity: Identity) -> None:
    """Add the filter to all handlers."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(PeerNames(identity))
