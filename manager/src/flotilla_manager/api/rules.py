"""What each path of a manager needs. One that is not here is closed.

What a call is about is often a parameter: such paths need a valid token here, and the endpoint asks for the scope on
the topic (`ELSEWHERE`). Calls that any token may make show no more than the token's grants let one see.
"""

from flotilla.access import Scope
from flotilla.serving.gate import OPEN_RULES, Need, OnTopic, Rule

_PEOPLE = (
    Rule(("GET",), "/", Need.TOKEN),
    Rule(("GET",), "/topics", Need.TOKEN),
    Rule(("POST",), "/topics", Need.ELSEWHERE),
    Rule(("DELETE",), "/topics/{name}", OnTopic(Scope.ADMIN)),
    Rule(("GET",), "/topics/{name}/partitions", OnTopic()),
    Rule(("POST",), "/producer/register", Need.ELSEWHERE),
    Rule(("POST",), "/producer/produce", Need.ELSEWHERE),
    Rule(("POST",), "/producer/heartbeat", Need.TOKEN),
    Rule(("POST",), "/consumer/register", Need.ELSEWHERE),
    Rule(("GET",), "/consumer/consume", Need.ELSEWHERE),
    Rule(("POST",), "/consumer/heartbeat", Need.TOKEN),
    Rule(("GET",), "/size", Need.ELSEWHERE),
    *(Rule(("GET",), path, Need.ADMIN) for path in ("/producers", "/consumers", "/brokers", "/managers")),
    *(Rule(("POST",), f"/admin/broker/{what}", Need.ADMIN) for what in ("add", "remove", "activate", "deactivate")),
)
_PROGRAMS = (
    Rule(("GET",), "/v1/metadata", Need.TOKEN),
    Rule(("GET",), "/v1/topics", Need.TOKEN),
    Rule(("POST",), "/v1/topics", Need.ELSEWHERE),
    Rule(("GET",), "/v1/topics/{name}", OnTopic()),
    Rule(("PATCH", "DELETE"), "/v1/topics/{name}", OnTopic(Scope.ADMIN)),
    Rule(("GET",), "/v1/topics/{name}/offsets", OnTopic(Scope.CONSUME)),
    Rule(("POST",), "/v1/topics/{name}/delete-records", OnTopic(Scope.ADMIN)),
    Rule(("POST",), "/v1/append", Need.ELSEWHERE),
    Rule(("GET",), "/v1/fetch", Need.ELSEWHERE),
    Rule(("GET",), "/v1/tail", Need.ELSEWHERE),
)
_GROUPS = (
    Rule(("GET",), "/v1/groups", Need.TOKEN),
    Rule(("GET", "DELETE"), "/v1/groups/{group}", Need.ELSEWHERE),
    Rule(("GET",), "/v1/groups/{group}/offsets", Need.ELSEWHERE),
    *(
        Rule(("POST",), f"/v1/groups/{{group}}/{what}", Need.ELSEWHERE)
        for what in ("join", "sync", "heartbeat", "leave", "commit", "reset")
    ),
)
_CONTROL = (
    Rule(("GET",), "/v1/control/state", Need.ADMIN),
    Rule(("PUT", "DELETE"), "/v1/control/topics/{name}", Need.ADMIN),
    Rule(("DELETE",), "/v1/control/topics/{name}/owner", Need.ADMIN),
    Rule(("PUT", "DELETE"), "/v1/control/brokers/{broker_id}", Need.ADMIN),
    Rule(("POST",), "/v1/control/heartbeat", Need.SYSTEM),
    Rule(("GET", "POST"), "/v1/tokens", Need.ADMIN),
    Rule(("DELETE",), "/v1/tokens/{token_id}", Need.ADMIN),
)

RULES = (*OPEN_RULES, *_PEOPLE, *_PROGRAMS, *_GROUPS, *_CONTROL)
