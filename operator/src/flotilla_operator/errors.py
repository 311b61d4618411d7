"""Errors of the operator.

OperatorError
├── Unavailable             Kubernetes or the managers do not answer; the request is retried with backoff
│   └── TooManyRequests     a disruption budget or a rate limit forbids the request now
└── Rejected                Kubernetes or the managers reject a request; it is retried with backoff (for a Topic,
    │                       only after a change of the topology or a minute), except for:
    ├── NotFound            the object does not exist
    └── Conflict            the object exists already, or has changed since it was read

`NotFound` and `Conflict` mean that the cache is outdated. They are neither recorded nor shown in a condition: the next
reconcile plans from the current object.
"""


class OperatorError(Exception):
    """Base of all errors. The text is for users."""


class Unavailable(OperatorError):
    """Kubernetes or the managers do not answer."""


class TooManyRequests(Unavailable):
    """A disruption budget or a rate limit forbids the request now."""


class Rejected(OperatorError):
    """Kubernetes or the managers reject a request; the text is shown in a condition."""


class NotFound(Rejected):
    """The object does not exist."""


class Conflict(Rejected):
    """The object exists already, or has changed since it was read."""
