"""Error codes of all servers, with HTTP status and documentation.

A code has the same meaning on every server, and clients decide by it. `tools/error_docs.py` generates `docs/errors.md`
from this table.
"""

from typing import Literal, NamedTuple, get_args

Resource = Literal["broker", "group", "path", "replica", "token", "topic"]
RESOURCES: tuple[str, ...] = get_args(Resource)  # values of `resource` in the details of `not_found`
# Headers of error responses of the simple API, whose bodies have no code.
ERROR_CODE = "flotilla-error-code"
ERROR_RESOURCE = "flotilla-error-resource"


class Code(NamedTuple):
    """HTTP status of a code, its meaning and what to do."""

    status: int
    meaning: str


CODES = {
    "bad_request": Code(400, "The request is invalid; the message explains it. Change the request."),
    "bad_batch": Code(400, "The batch is malformed or fails its checksum; the message explains it. Encode it again."),
    "no_records": Code(400, "The consumer has read all messages (simple API only). Not a failure: poll again."),
    "offset_out_of_range": Code(
        400,
        "The offset is below `first_offset` (the record was deleted) or above `next_offset` (the end of the partition)"
        ". Continue at one of these offsets.",
    ),
    "unauthorized": Code(401, "The token is missing or invalid. Send a valid one: `Authorization: Bearer …`."),
    "forbidden": Code(403, "The token lacks the scope in `details`. Use a token with this scope."),
    "not_found": Code(
        404,
        "The resource or path does not exist. `details` has the missing `resource`: `broker`, `group`, `path`, "
        "`replica`, `token` or `topic`. Check the name; `/docs` lists the paths.",
    ),
    "unknown_partition": Code(
        404, "The topic or partition does not exist, or this broker has no replica of it. Refresh the metadata."
    ),
    "method_not_allowed": Code(405, "The path does not support this method. The message lists the supported ones."),
    "stale_writer": Code(409, "The command is from a writer that was replaced by a later one. That writer must stop."),
    "sealed": Code(409, "The partition epoch has ended. Refresh the metadata and use the current epoch."),
    "sequence_reused": Code(
        409, "Another batch was stored with this sequence. Raise the producer epoch and start at sequence 0."
    ),
    "sequence_gap": Code(
        409, "Batches before this sequence are missing. Send them first, or raise the producer epoch and start at 0."
    ),
    "sequence_overlap": Code(
        409, "The batch overlaps a stored batch. Raise the producer epoch and start at sequence 0."
    ),
    "epoch_stale": Code(409, "Another instance of this producer has a higher epoch. Stop this instance."),
    "unknown_producer": Code(
        409, "The partition has no state of this producer. Raise the producer epoch and start at sequence 0."
    ),
    "conflict": Code(409, "The request conflicts with the current state; the message explains it. Check the state."),
    "exists": Code(409, "The name is in use. Use the existing resource, or choose another name."),
    "unknown_member": Code(
        409, "The consumer group has no such member: it left, timed out, or was removed. Join again."
    ),
    "stale_generation": Code(
        409, "The generation is outdated: another instance of the member has joined. Join again, or stop."
    ),
    "not_owner": Code(409, "The member does not own the partitions in `details`. Stop processing them, and sync."),
    "group_not_empty": Code(409, "The consumer group has members. Stop them, or use `force` to remove them."),
    "too_large": Code(413, "The message, batch or request exceeds a limit; the message names it. Send less at once."),
    "not_leader": Code(421, "Another broker leads the partition. Send the request to the address in `details`."),
    "busy": Code(
        429, "A limit of concurrent work is reached. Retry after `Retry-After` seconds, and send less at once."
    ),
    "quota_exceeded": Code(429, "The token's quota in `details` is used up. Retry after `Retry-After` seconds."),
    "internal": Code(
        500,
        "Internal error; the request may have taken effect. The server log has the cause, under the id in the header "
        "`x-request-id`.",
    ),
    "closed": Code(503, "The server or the replica is shutting down. Use another one."),
    "disk_full": Code(503, "The broker's disk is full; nothing was stored. Free disk space, or retry later."),
    "no_leader": Code(503, "The partition has no leader: an election is running, or a quorum is unavailable. Retry."),
    "too_many_connections": Code(503, "The server has reached its connection limit. Retry, or use another server."),
    "not_settled": Code(503, "The new leader has not committed an entry of its term yet. Retry."),
    "broken": Code(
        503,
        "The replica is out of service: its data is damaged, or an unexpected error stopped it. Retry: another replica "
        "takes over.",
    ),
    "unavailable": Code(503, "A broker, the writer or the database is unavailable; the message names it. Retry."),
    "unknown_outcome": Code(
        504,
        "Timeout; the request may have taken effect. Retry a batch with the same producer id and sequence; otherwise "
        "check the state first.",
    ),
}
