"""OpenAPI descriptions of append and fetch, which are not FastAPI routes; the same for brokers and managers."""

from typing import Any

from fastapi import FastAPI

_NUMBER = {"type": "integer", "minimum": 0}
_ERROR = {
    "description": "Error; see `code`",
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
    "summary": "Append batches",
    "description": "Returns when a majority of the replicas has the batch on disk. After 504 the outcome is unknown: "
    "retry with the same producer id, epoch and sequence; the batch is stored once.",
    "parameters": [
        _parameter("topic", {"type": "string"}, "Topic; leave it out for several batches"),
        _parameter("partition", _NUMBER, "Partition; leave it out for several batches"),
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
            "description": "Appended; for several batches, `results` has the outcome of each",
            "content": {
                "application/json": {"example": {"status": "ok", "base_offset": 42, "append_time_ms": 1700000000000}}
            },
        },
        **dict.fromkeys(("400", "404", "409", "413", "421", "429", "503", "504"), _ERROR),
    },
}
_FETCH = {
    "tags": ["records"],
    "summary": "Fetch batches",
    "description": "Returns committed records, as whole batches. The first batch may begin before the offset.",
    "parameters": [
        _parameter("topic", {"type": "string"}, "Topic", required=True),
        _parameter("partition", _NUMBER, "Partition", required=True),
        _parameter("offset", {"type": "string"}, "Offset to start at: a number, `earliest` or `latest`"),
        _parameter(
            "timestamp_ms", _NUMBER, "Instead of `offset`: start at the first record appended at this time or later"
        ),
        _parameter("max_bytes", _NUMBER, "Maximum size of the response; at least one batch is returned"),
        _parameter("wait_ms", _NUMBER, "Time to wait for the first record"),
        _parameter(
            "replica",
            {"enum": ["leader", "any"]},
            "`any`: read from a follower, up to the offset that it knows to be committed",
        ),
    ],
    "responses": {
        "200": {
            "description": "A sequence of batches, possibly empty",
            "headers": {
                "flotilla-offset": {"schema": _NUMBER, "description": "Offset at which the fetch started"},
                "flotilla-first-offset": {"schema": _NUMBER, "description": "First offset of the partition"},
                "flotilla-next-offset": {"schema": _NUMBER, "description": "Next offset of the partition"},
            },
            "content": {"application/vnd.flotilla.batch": {"schema": {"type": "string", "format": "binary"}}},
        },
        **dict.fromkeys(("400", "404", "421", "429", "503"), _ERROR),
    },
}


def describe_records(app: FastAPI) -> None:
    """Add append and fetch to the OpenAPI schema."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        schema = make()
        for operations in schema["paths"].values():
            for operation in operations.values():
                if (
                    operation["responses"].pop("422", None) is not None
                ):  # FastAPI's default; errors of Flotilla have one format
                    operation["responses"].update(
                        dict.fromkeys(("400", "404", "409", "413", "421", "429", "503"), _ERROR)
                    )
        schema["paths"].setdefault("/v1/append", {"post": _APPEND})
        schema["paths"].setdefault("/v1/fetch", {"get": _FETCH})
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
