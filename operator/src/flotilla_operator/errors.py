"""What can go wrong for the operator.

OperatorError
├── Away        somebody does not answer now; it is tried again
└── Refused     somebody answers no; to say the same again will not help
"""


class OperatorError(Exception):
    """Whatever goes wrong. The text is for people."""


class Away(OperatorError):
    """Managers or Kubernetes do not answer, or not yet: it is tried again."""


class Refused(OperatorError):
    """Managers or Kubernetes do not do what they are asked: the answer is shown, and the same is not asked at once."""
