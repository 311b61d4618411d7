"""OpenAPI documentation of the simple API, generated from its table of calls: FastAPI does not route it."""

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import FastAPI

from flotilla.protocol.simple_params import SAMPLES
from flotilla_manager.api.calls import Call

_REF = "#/components/schemas/{name}"
_FAILURE = {
    "type": "object",
    "required": ["status", "message"],
    "properties": {"status": {"enum": ["failure", "unknown"]}, "message": {"type": "string"}},
}
_OTHERS = {
    "413": "The request is too large",
    "429": "Too many bytes in flight, or a quota is used up; retry after Retry-After seconds",
    "503": "A broker, the writer or the database is unavailable; retry after Retry-After seconds",
    "504": "Timeout; the request may have taken effect",
}


def describe_calls(app: FastAPI, calls: Sequence[Call]) -> None:
    """Add the calls to `/docs` and `/openapi.json`."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        schema = make()
        for operations in schema["paths"].values():
            for operation in operations.values():
                if "operationId" in operation:  # FastAPI's own summary is the name of the function
                    operation["summary"] = _summary(operation["description"])
        schemas, components = msgspec.json.schema_components([call.params for call in calls], ref_template=_REF)
        schema.setdefault("components", {}).setdefault("schemas", {}).update(components)
        for call, reference in zip(calls, schemas, strict=True):
            name = reference["$ref"].rsplit("/", 1)[-1]
            paths = schema["paths"].setdefault(call.path, {})
            paths[call.method.lower()] = _operation(call, components[name], reference)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


def _operation(call: Call, shape: dict[str, Any], reference: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": [call.tag],
        "summary": _summary(call.text),
        "description": call.text,
        "operationId": f"{call.method.lower()}{call.path.replace('/', '_').replace('{', '').replace('}', '')}",
        "parameters": [],
        "responses": _responses(call),
    }
    sample = SAMPLES.get(call.params, {})
    required = shape.get("required", [])
    in_query = call.method in {"GET", "DELETE"}
    for name, schema in shape.get("properties", {}).items():
        in_path = f"{{{name}}}" in call.path
        if in_path or in_query:
            location = {"in": "path" if in_path else "query", "required": in_path or name in required}
            example = {"example": sample[name]} if name in sample else {}
            operation["parameters"].append({"name": name, **location, "schema": schema, **example})
    if not in_query and shape.get("properties"):
        content = {"application/json": {"schema": reference, "example": sample}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _summary(text: str) -> str:
    """Return the first sentence of a description, without its period."""
    return " ".join(text.split()).partition(". ")[0].removesuffix(".")


def _responses(call: Call) -> dict[str, Any]:
    refused = "; ".join(f'"{text}"' for text in call.refusals) or "A parameter is missing or invalid"
    return {
        "200": {
            "description": "Success",
            "content": {"application/json": {"example": {"status": "success", **call.example}}},
        },
        "400": {"description": f"Error: {refused}", "content": {"application/json": {"schema": _FAILURE}}},
        **{
            status: {"description": text, "content": {"application/json": {"schema": _FAILURE}}}
            for status, text in _OTHERS.items()
        },
    }
