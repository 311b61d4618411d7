"""Raft groups. Start reading at `group.py`; `guards.py` and `progress.py` are the rules, `core.py` is pysyncobj."""

from flotilla_broker.raft.config import RaftConfig
from flotilla_broker.raft.core import Role
from flotilla_broker.raft.errors import EntryRefused, NotLeader, RaftError, UnsupportedCore
from flotilla_broker.raft.group import RaftGroup
from flotilla_broker.raft.grouplog import GroupLog
from flotilla_broker.raft.messages import Entry, Message, decode_message, encode_message
from flotilla_broker.raft.port import Machine, Port

__all__ = [
    "Entry",
    "EntryRefused",
    "GroupLog",
    "Machine",
    "Message",
    "NotLeader",
    "Port",
    "RaftConfig",
    "RaftError",
    "RaftGroup",
    "Role",
    "UnsupportedCore",
    "decode_message",
    "encode_message",
]
