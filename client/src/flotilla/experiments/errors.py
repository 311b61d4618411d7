"""What keeps an experiment from its work.

ExperimentError         the text says what is wrong, where, and what to do
├── LogInvalid          a log file does not fit; nothing of it was sent
├── FilesUnusable       files are missing, are in the way, or cannot be read or written
├── TopicUnfit          a topic that is there already cannot be used
└── StepFailed          a producer or a consumer did not get to its end
"""


class ExperimentError(Exception):
    """What keeps an experiment from its work."""


class LogInvalid(ExperimentError):
    """A log file does not fit."""

    def __init__(self, name: str, line: int, reason: str) -> None:
        super().__init__(f"{name} line {line}: {reason}")


class FilesUnusable(ExperimentError):
    """Files are missing, are in the way, or cannot be read or written."""


class TopicUnfit(ExperimentError):
    """A topic that is there already cannot be used."""


class StepFailed(ExperimentError):
    """A producer or a consumer did not get to its end."""
