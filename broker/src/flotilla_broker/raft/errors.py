"""Errors of Raft groups.

RaftError
├── NotLeader         this replica accepts no entries now
├── EntryInvalid      an entry from another broker violates a rule of the partition
└── UnsupportedCore   the installed pysyncobj is not the supported version
"""


class RaftError(Exception):
    """Base class of errors of Raft groups."""


class NotLeader(RaftError):
    """This replica accepts no entries now: it does not lead, or it transfers leadership."""


class EntryInvalid(RaftError):
    """An entry from another broker violates a rule of the partition. It was not stored."""


class UnsupportedCore(RaftError):
    """The installed pysyncobj is not the supported version."""
