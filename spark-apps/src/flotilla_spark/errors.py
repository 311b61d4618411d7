"""Errors of applications.

ApplicationError      the message has the cause and what to do; the exit code is 1
├── PreflightFailed   no manager is reachable, the token lacks a grant, or a topic does not exist
├── SparkMissing      Spark or Java is not installed
├── FolderInUse       a folder or checkpoint belongs to another query
├── RuleInvalid       a rule of `route` is not a deterministic condition
├── ColumnInvalid     the files lack a column
├── PatternInvalid    a regular expression is invalid, or has no known group
└── JobFailed         the Spark job failed
"""


class ApplicationError(Exception):
    """Base class of errors that end an application."""


class PreflightFailed(ApplicationError):
    """No manager is reachable, the token lacks a grant, or a topic does not exist."""


class SparkMissing(ApplicationError):
    """Spark or Java is not installed."""


class FolderInUse(ApplicationError):
    """A folder or checkpoint belongs to another query."""


class RuleInvalid(ApplicationError):
    """A rule is not a deterministic condition."""


class ColumnInvalid(ApplicationError):
    """The files lack a column."""


class PatternInvalid(ApplicationError):
    """A regular expression is invalid, or has no known group."""


class JobFailed(ApplicationError):
    """The Spark job failed; the message is its reason in one line."""
