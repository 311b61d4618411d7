"""Errors of experiments.

ExperimentError         the message gives the cause, the place and what to do
├── LogInvalid          a file is invalid; nothing of it was sent
├── FilesUnusable       files are missing, exist already, or cannot be read or written
├── TopicUnusable       an existing topic cannot be used
└── StepFailed          a producer or consumer failed
"""


class ExperimentError(Exception):
    """Base class of errors of experiments."""


class LogInvalid(ExperimentError):
    """A file is invalid."""

    def __init__(self, name: str, line: int, reason: str) -> None:
        super().__init__(f"{name} line {line}: {reason}")


class FilesUnusable(ExperimentError):
    """Files are missing, exist already, or cannot be read or written."""


class TopicUnusable(ExperimentError):
    """An existing topic cannot be used."""


class StepFailed(ExperimentError):
    """A producer or consumer failed."""
