"""Names of other brokers in log lines.

Code below the server knows brokers by id, in arguments of log lines and inside error texts. This filter replaces both.
"""

import logging
import re

from flotilla_broker.identity import Identity

_ID = re.compile(r"\b[0-9a-f]{32}\b")


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
        if not isinstance(argument, str | Exception):
            return argument
        text = str(argument)
        labelled = _ID.sub(lambda found: self._label_id(found[0]), text)
        return argument if labelled == text else labelled

    def _label_id(self, broker_id: str) -> str:
        return broker_id if broker_id == self._identity.id else self._identity.label(broker_id)


def show_names(identity: Identity) -> None:
    """Add the filter to all handlers."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(PeerNames(identity))
