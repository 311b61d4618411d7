"""What each path of a broker needs. One that is not here is closed.

Records need a scope on their topic, which is a parameter: the endpoints ask for it. Orders come from the writer, and
from nobody else, whatever their token says: brokers would follow whoever may give them.
"""

from flotilla.serving.gate import OPEN_RULES, Need, Rule

_REPLICA = "/v1/replicas/{topic_id}/{partition}/{epoch}"

RULES = (
    *OPEN_RULES,
    Rule(("POST",), "/v1/append", Need.ELSEWHERE),
    Rule(("GET",), "/v1/fetch", Need.ELSEWHERE),
    Rule(("POST",), "/v1/delete-records", Need.ELSEWHERE),
    Rule(("GET",), "/v1/broker", Need.ADMIN),
    Rule(("GET",), "/v1/replicas", Need.ADMIN),
    Rule(("GET",), _REPLICA, Need.ADMIN),
    Rule(("PUT",), "/v1/brokers", Need.SYSTEM),
    Rule(("PUT", "DELETE"), _REPLICA, Need.SYSTEM),
    *(Rule(("POST",), f"{_REPLICA}/{order}", Need.SYSTEM) for order in ("seal", "stand", "hand-over")),
)
