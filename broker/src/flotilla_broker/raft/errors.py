"""What can go wrong in a Raft group.

RaftError
├── NotLeader         this replica does not take entries now; another one may
├── EntryRefused      an entry from another broker breaks a rule of the partition
└── UnsupportedCore   another version of pysyncobj than the one that the guards are made for
"""


class RaftError(Exception):
    """The root of everything that a Raft group raises."""


class NotLeader(RaftError):
    """This replica does not take entries now."""


class EntryRefused(RaftError):
    """An entry from another broker breaks a rule of the partition. It was not stored."""


class UnsupportedCore(RaftError):
    """Another version of pysyncobj than the one that the guards are made for."""
