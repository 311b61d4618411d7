"""Internal: limits and defaults of the system, each defined once. Errors name the limit."""

from typing import Literal, get_args

INT64_MAX = (1 << 63) - 1  # offsets, epochs, timestamps, sizes
SEQUENCE_MAX = (1 << 31) - 1  # of a record in JSON and in the simple API
DAY_MS = 24 * 3600 * 1000

# Topics
TOPIC_NAME_LENGTH_MAX = 200  # of a group, too
TOPIC_NAME_RULE = f"[A-Za-z0-9][A-Za-z0-9._-]{{0,{TOPIC_NAME_LENGTH_MAX - 1}}}"
TOPIC_NAME_HELP = f"name must match {TOPIC_NAME_RULE}"
TOPIC_NAME = rf"^{TOPIC_NAME_RULE}$(?!\n)"  # Python's $ also matches before a last line break
GIVEN_NAME_LENGTH_MAX = 1000  # of a topic that is looked up; no topic has a name longer than TOPIC_NAME_LENGTH_MAX
PARTITIONS_DEFAULT = 2
PARTITIONS_MAX = 1000  # of one topic
PARTITION_EPOCH_FIRST = 1  # of every partition; brokers open no later one without its records
PARTITIONS_TOTAL_MAX = 5_000  # heartbeats of three brokers with all of them are a few megabytes
TOPICS_MAX = 5_000
REPLICATION_DEFAULT = 3
REPLICATION_MAX = 7  # members of a Raft group
RETENTION_MS_DEFAULT = 7 * DAY_MS  # unless the managers have another setting
TOPIC_BATCH_BYTES_MIN = 1024  # lowest batch_bytes_max of a topic
CompressionName = Literal["none", "zstd"]
COMPRESSIONS: tuple[CompressionName, ...] = get_args(CompressionName)
PRODUCER_COMPRESSIONS = (*COMPRESSIONS, "auto")  # auto: the topic's setting

# Managers, unless they have other settings
MESSAGE_BYTES_MAX_DEFAULT = 1 << 20  # of the simple API
BODY_BYTES_MAX_DEFAULT = 32 << 20  # of a request to /v1/append
CLIENT_SILENCE_S_DEFAULT = 30.0  # a registered client without requests for longer is inactive

# Consumer groups
GROUPS_MAX = 10_000
GROUP_MEMBERS_MAX = 1000  # of one group
GROUP_PARTITIONS_MAX = 20_000  # of all topics of one group
GROUP_TOPICS_MAX = 100  # in one request
COMMIT_OFFSETS_MAX = 10_000  # in one request
NOTE_LENGTH_MAX = 1000
GROUPS_PAGE_DEFAULT, GROUPS_PAGE_MAX = 100, 1000  # groups in one page of the list
SESSION_MS_MIN, SESSION_MS_DEFAULT, SESSION_MS_MAX = 1000, 10_000, 3_600_000

# Brokers, unless they have other settings
FETCH_BYTES_MAX_DEFAULT = 16 << 20  # of the response to a fetch
WAIT_MS_MAX_DEFAULT = 30_000  # of a fetch, for records; of managers, too
MANAGER_HEARTBEAT_S_MIN = 0.01  # interval of a broker's heartbeats to managers
MANAGER_HEARTBEAT_S_MAX = 10.0  # a broker is inactive after three missed heartbeats
