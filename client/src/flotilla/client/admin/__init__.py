"""Look after a system: topics, brokers, consumer groups, tokens. Part of a client, as `client.topics` and so on.

Everything is a question to a manager, and an answer that is a frozen value. The asynchronous classes do the work; those
in `blocking` are the same for code without a loop.

What is asked twice by mistake must not do harm. Whatever may be said again is said again until there is an answer; what
may not (to make a topic or a token, to delete) is said once, and if its answer is lost, OutcomeUnknown says so.
"""

from flotilla.client.admin.blocking import Brokers, Groups, Tokens, Topics
from flotilla.client.admin.brokers import AsyncBrokers
from flotilla.client.admin.groups import AsyncGroups
from flotilla.client.admin.results import (
    BrokerDescription,
    BrokerPartition,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupOffset,
    GroupPartition,
    GroupReset,
    NewToken,
    PartitionDescription,
    PartitionOffsets,
    TokenInfo,
)
from flotilla.client.admin.tokens import AsyncTokens
from flotilla.client.admin.topics import AsyncTopics

__all__ = [
    "AsyncBrokers",
    "AsyncGroups",
    "AsyncTokens",
    "AsyncTopics",
    "BrokerDescription",
    "BrokerPartition",
    "Brokers",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupOffset",
    "GroupPartition",
    "GroupReset",
    "Groups",
    "NewToken",
    "PartitionDescription",
    "PartitionOffsets",
    "TokenInfo",
    "Tokens",
    "Topics",
]
