"""Administration of topics, brokers, consumer groups and tokens: `client.topics` and so on.

Each call is a request to a manager, and returns frozen values. The asynchronous classes do the work; those in
`blocking` wrap them for blocking code.

Requests that are safe to repeat are retried until there is a response. Others (create a topic or a token, delete) are
sent once; if the response is lost, they raise OutcomeUnknown.
"""

from flotilla.client.admin.blocking import Brokers, Groups, Tokens, Topics
from flotilla.client.admin.brokers import AsyncBrokers, label_brokers
from flotilla.client.admin.groups import AsyncGroups
from flotilla.client.admin.results import (
    AssignedPartition,
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
    "AssignedPartition",
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
    "label_brokers",
]
