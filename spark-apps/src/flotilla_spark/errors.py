"""What keeps an application from its work.

ApplicationError      the text says what is wrong, and what to do; the exit code is 1
├── SystemUnfit       nobody answers, a token lacks something, or a topic is not there
├── SparkMissing      Spark is not installed, or its Java is not
├── FolderTaken       a folder or a checkpoint belongs to something else
├── RuleInvalid       a rule of `route` is no condition
├── ColumnInvalid     files do not have what is asked for
├── PatternInvalid    a regular expression does not serve to find parts of a line
└── JobFailed         Spark has given up
"""


class ApplicationError(Exception):
    """What keeps an application from its work."""


class SystemUnfit(ApplicationError):
    """Nobody answers, a token lacks something, or a topic is not there."""


class SparkMissing(ApplicationError):
    """Spark is not installed, or its Java is not."""


class FolderTaken(ApplicationError):
    """A folder or a checkpoint belongs to something else."""


class RuleInvalid(ApplicationError):
    """A rule is no condition."""


class ColumnInvalid(ApplicationError):
    """Files do not have what is asked for."""


class PatternInvalid(ApplicationError):
    """A regular expression does not serve to find parts of a line."""


class JobFailed(ApplicationError):
    """Spark has given up; the text is its reason in one line."""
