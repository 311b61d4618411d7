"""Access rules of a manager's paths. A path without a rule is denied.

Where the topic is a parameter, the rule requires a valid token and the endpoint checks the scope (`ELSEWHERE`). Calls
that accept any token return only what the token's grants allow.
"""

from flotilla.access import Scope
from flotilla_server.authorization import OPEN_RULES, Need, OnTopic, Rule

_SIMPLE = (
    Rule(("GET",), "/", Need.TOKEN),
    Rule(("GET",), "/topics", Need.TOKEN),
    Rule(("POST",), "/topics", Need.BY_ENDPOINT),
    Rule(("DELETE",), "/topics/{name}", OnTopic(Scope.ADMIN)),
    Rule(("GET",), "/topics/{name}/partitions", OnTopic()),
    Rule(("POST",), "/producer/register", Need.BY_ENDPOINT),
    Rule(("POST",), "/producer/produce", Need.BY_ENDPOINT),
    Rule(("POST",), "/producer/heartbeat", Need.TOKEN),
    Rule(("POST",), "/consumer/register", Need.BY_ENDPOINT),
    Rule(("GET",), "/consumer/consume", Need.BY_ENDPOINT),
    Rule(("POST",), "/consumer/heartbeat", Need.TOKEN),
    Rule(("GET",), "/size", Need.BY_ENDPOINT),
    *(Rule(("GET",), path, Need.ADMIN) for path in ("/producers", "/consumers", "/brokers", "/managers")),
    *(Rule(("POST",), f"/admin/broker/{what}", Need.ADMIN) for what in ("add", "remove", "activate", "deactivate")),
)
_V1 = (
    Rule(("GET",), "/v1/metadata", Need.TOKEN),
    Rule(("GET",), "/v1/topics", Need.TOKEN),
    Rule(("POST",), "/v1/topics", Need.BY_ENDPOINT),
    Rule(("GET",), "/v1/topics/{name}", OnTopic()),
    Rule(("PATCH", "DELETE"), "/v1/topics/{name}", OnTopic(Scope.ADMIN)),
    Rule(("GET",), "/v1/topics/{name}/offsets", OnTopic(Scope.CONSUME)),
    Rule(("POST",), "/v1/topics/{name}/delete-records", OnTopic(Scope.ADMIN)),
    Rule(("POST",), "/v1/append", Need.BY_ENDPOINT),
    Rule(("GET",), "/v1/fetch", Need.BY_ENDPOINT),
    Rule(("GET",), "/v1/tail", Need.BY_ENDPOINT),
)
_GROUPS = (
    Rule(("GET",), "/v1/groups", Need.TOKEN),
    Rule(("GET", "DELETE"), "/v1/groups/{group}", Need.BY_ENDPOINT),
    Rule(("GET",), "/v1/groups/{group}/offsets", Need.BY_ENDPOINT),
    *(
        Rule(("POST",), f"/v1/groups/{{group}}/{what}", Need.BY_ENDPOINT)
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

RULES = (*OPEN_RULES, *_SIMPLE, *_V1, *_GROUPS, *_CONTROL)
