"""How much there may be. Every limit has a name, and every refusal names it."""

TOPIC_NAME_RULE = "[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
TOPIC_NAME_SAID = "a name has letters, digits, '.', '_' and '-', begins with a letter or digit, and has at most 200"
TOPIC_NAME = rf"^{TOPIC_NAME_RULE}$(?!\n)"  # Python's $ also matches before a last line break
PARTITIONS_MAX = 1000  # of one topic
PARTITIONS_TOTAL_MAX = 5_000  # three brokers with all of them fill a heartbeat of a few megabytes
TOPICS_MAX = 5_000
REPLICATION_MAX = 7
TOPIC_BATCH_BYTES_MIN = 1024  # what a topic may set its own limit for batches to, at least
WEEK_MS = 7 * 24 * 3600 * 1000  # how long a topic keeps records, unless somebody says otherwise
GROUPS_MAX = 10_000
GROUP_MEMBERS_MAX = 1000  # of one group
GROUP_PARTITIONS_MAX = 20_000  # of all topics of one group
