"""What OpenAPI says about append and fetch, which FastAPI does not see: the same on brokers and managers."""

from typing import Any

from fastapi import FastAPI

_NUMBER = {"type": "integer", "minimum": 0}
_ERROR = {
    "description": "Refused; `code` says why",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["code", "message", "details", "retryable"],
                "properties": {
                    "code": {"type": "string"},
                    "message": {"type": "string"},
                    "details": {"type": "object"},
                    "retryable": {"type": "boolean"},
                },
            }
        }
    },
}


def _parameter(name: str, schema: dict[str, Any], text: str, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "schema": schema, "description": text}


_APPEND = {
    "tags": ["records"],
    "summary": "Append a batch, or several",
    "description": "Answers when a majority of the replicas has it on disk. A 504 says that nobody knows; a retry with "
    "the same producer id, epoch and sequence finds out, and never appends twice.",
    "parameters": [
        _parameter("topic", {"type": "string"}, "The topic; not with several batches"),
        _parameter("partition", _NUMBER, "The partition; not with several batches"),
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/vnd.flotilla.batch": {"schema": {"type": "string", "format": "binary"}},
            "application/vnd.flotilla.appends": {
                "schema": {"type": "string", "format": "binary"},
                "example": "msgpack: [[topic, partition, batch], ...]",
            },
        },
    },
    "responses": {
        "200": {
            "description": "Appended; with several batches, each has its own result",
            "content": {
                "application/json": {"example": {"status": "ok", "base_offset": 42, "append_time_ms": 1700000000000}}
            },
        },
        **dict.fromkeys(("400", "404", "409", "413", "421", "429", "503", "504"), _ERROR),
    },
}
_FETCH = {
    "tags": ["records"],
    "summary": "Fetch whole batches",
    "description": "Only committed records. The first batch may begin before the offset.",
    "parameters": [
        _parameter("topic", {"type": "string"}, "The topic", required=True),
        _parameter("partition", _NUMBER, "The partition", required=True),
        _parameter("offset", {"type": "string"}, "A number, `earliest` or `latest`"),
        _parameter("timestamp_ms", _NUMBER, "Instead of an offset: what was appended then or later"),
        _parameter("max_bytes", _NUMBER, "At most so many bytes, but at least one batch"),
        _parameter("wait_ms", _NUMBER, "How long to wait if there is nothing yet"),
        _parameter("replica", {"enum": ["leader", "any"]}, "`any`: up to what this replica knows to be committed"),
    ],
    "responses": {
        "200": {
            "description": "Batches, one behind the other; perhaps none",
            "headers": {
                "flotilla-offset": {"schema": _NUMBER, "description": "What was asked for begins here"},
                "flotilla-first-offset": {"schema": _NUMBER, "description": "Records begin here"},
                "flotilla-next-offset": {"schema": _NUMBER, "description": "Committed records end here"},
            },
            "content": {"application/vnd.flotilla.batch": {"schema": {"type": "string", "format": "binary"}}},
        },
        **dict.fromkeys(("400", "404", "421", "429", "503"), _ERROR),
    },
}


def describe_records(app: FastAPI) -> None:
    """Add append and fetch to what `/docs` and `/openapi.json` show."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        schema = make()
        for operations in schema["paths"].values():
            for operation in operations.values():
                if operation["responses"].pop("422", None) is not None:  # FastAPI's own; ours have one shape
                    operation["responses"].update(
                        dict.fromkeys(("400", "404", "409", "413", "421", "429", "503"), _ERROR)
                    )
        schema["paths"].setdefault("/v1/append", {"post": _APPEND})
        schema["paths"].setdefault("/v1/fetch", {"get": _FETCH})
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
