"""The codes of refusals: what servers say no with, and what clients go by.

The table holds the codes of all servers, so that a code means the same wherever it comes from. `docs/errors.md` is made
from it (`tools/error_docs.py`).
"""

from typing import NamedTuple


class Code(NamedTuple):
    """What a code stands for: its HTTP status, and what it means and what to do, for the table in the docs."""

    status: int
    meaning: str


CODES = {
    "bad_request": Code(400, "The request breaks a rule, which the message names. Change the request."),
    "bad_batch": Code(400, "The batch is damaged or malformed; the message says where. Make it anew from its records."),
    "offset_out_of_range": Code(
        400,
        "The partition has no such offset: records below `first_offset` were removed, `next_offset` is the end. "
        "Go on from one of the two.",
    ),
    "unauthorized": Code(401, "A token is missing, or it is not valid. Send `Authorization: Bearer …`."),
    "forbidden": Code(403, "The token is valid, and lacks the scope that `details` name. Use one that has it."),
    "not_found": Code(404, "There is nothing of that name or at that path. Look at the name; `/docs` lists the paths."),
    "unknown_partition": Code(
        404, "There is no such partition, or this broker has no replica of it. Ask for the metadata again."
    ),
    "method_not_allowed": Code(405, "The path takes other methods; the message names them."),
    "stale_writer": Code(
        409, "The order comes from a writer that was replaced since. It must not give orders any more."
    ),
    "sealed": Code(409, "This epoch of the partition has ended. Ask for the metadata again and use the new one."),
    "sequence_reused": Code(
        409, "This sequence was used for another batch. Raise the producer's epoch and start its sequences at 0."
    ),
    "sequence_gap": Code(
        409, "A batch before this one is missing. Send that one first, or raise the producer's epoch and start at 0."
    ),
    "sequence_overlap": Code(
        409, "The batch covers some sequences that are known and some that are not. Raise the producer's epoch."
    ),
    "epoch_stale": Code(409, "Another life of this producer goes on with a higher epoch. This one has to stop."),
    "unknown_producer": Code(
        409, "The partition does not remember this producer. Raise its epoch and start its sequences at 0."
    ),
    "conflict": Code(409, "It contradicts what is there; the message says how. Look at what is there and decide anew."),
    "exists": Code(409, "There is one of that name already. Use it, or take another name."),
    "unknown_member": Code(409, "The group has no such member: it left, fell silent, or was removed. Join again."),
    "stale_generation": Code(
        409, "The generation is not one of this member's life: another life replaced it. Join again."
    ),
    "not_owner": Code(
        409, "The member does not own the partitions that `details` name. Stop work on them, and sync with the group."
    ),
    "group_not_empty": Code(409, "The group has members. Stop them, or say `force`, which removes them."),
    "too_large": Code(413, "The message, the batch or the request is larger than a limit, which the message names."),
    "not_leader": Code(421, "Another broker leads the partition; `details` give its address. Ask that one."),
    "busy": Code(429, "Too much is under way here. Try again later, and send less at once."),
    "quota_exceeded": Code(
        429, "The token's quota, named in `details`, is used up. Wait as long as `Retry-After` says."
    ),
    "internal": Code(
        500, "A mistake of ours. What was asked for may have been done; the server's log tells more, by the request id."
    ),
    "closed": Code(503, "The server or the replica stops. Ask another one."),
    "disk_full": Code(503, "The broker's disk is full. Nothing was stored; make room, or try again later."),
    "no_leader": Code(503, "The partition elects a leader, or has lost its majority. Try again."),
    "too_many_connections": Code(503, "The server has as many connections as it takes. Try again, or ask another one."),
    "not_settled": Code(503, "The leader was elected just now, and finds out what is committed. Try again."),
    "broken": Code(503, "This replica's data is damaged, and out of service. The others go on: ask again."),
    "unavailable": Code(503, "Something that is needed does not answer; the message says what. Try again."),
    "unknown_outcome": Code(
        504, "Nobody knows whether it was done. With a producer's sequence, send the same batch again; else look first."
    ),
}
