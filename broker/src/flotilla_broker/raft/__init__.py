"""Raft groups. Start at `group.py`; `guards.py` and `progress.py` contain the rules, `core.py` wraps pysyncobj."""

from flotilla_broker.raft.config import RaftConfig
from flotilla_broker.raft.core import Role
from flotilla_broker.raft.errors import EntryInvalid, NotLeader, RaftError, UnsupportedCore
from flotilla_broker.raft.group import RaftGroup
from flotilla_broker.raft.grouplog import GroupLog
from flotilla_broker.raft.messages import Entry, Message, decode_message, encode_message
from flotilla_broker.raft.port import Port, StateMachine

__all__ = [
    "Entry",
    "EntryInvalid",
    "GroupLog",
    "Message",
    "NotLeader",
    "Port",
    "RaftConfig",
    "RaftError",
    "RaftGroup",
    "Role",
    "StateMachine",
    "UnsupportedCore",
    "decode_message",
    "encode_message",
]
