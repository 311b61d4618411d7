"""Request bodies about consumer groups, as FastAPI takes them. `flotilla.protocol.groups` defines them."""

from typing import Annotated

from fastapi import Body, Path
from pydantic.config import JsonDict

from flotilla.limits import TOPIC_NAME_RULE
from flotilla.protocol import groups
from flotilla_manager.api.bodies import AsStruct

_PARTITION: JsonDict = {"topic": "orders", "partition": 0}
_MEMBER: JsonDict = {"member_id": "worker-1", "generation": 3}
_JOIN: JsonDict = {"topics": ["orders"], "member_id": "worker-1"}
_RESET: JsonDict = {"topics": ["orders"], "to": {"earliest": True}}

GroupName = Annotated[str, Path(pattern=f"^{TOPIC_NAME_RULE}$")]
JoinBody = Annotated[groups.JoinBody, Body(), AsStruct(groups.JoinBody, _JOIN)]
MemberBody = Annotated[groups.MemberBody, Body(), AsStruct(groups.MemberBody, _MEMBER)]
HeartbeatBody = Annotated[groups.HeartbeatBody, Body(), AsStruct(groups.HeartbeatBody, _MEMBER)]
SyncBody = Annotated[groups.SyncBody, Body(), AsStruct(groups.SyncBody, {**_MEMBER, "owned": [_PARTITION]})]
CommitBody = Annotated[
    groups.CommitBody, Body(), AsStruct(groups.CommitBody, {**_MEMBER, "offsets": [{**_PARTITION, "offset": 42}]})
]
ResetBody = Annotated[groups.ResetBody, Body(), AsStruct(groups.ResetBody, _RESET)]
