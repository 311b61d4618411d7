"""Request bodies of FastAPI from the structs of `flotilla.protocol`, so that each body is defined once.

`Annotated[kind, Body(), AsStruct(kind)]` is a request body: AsStruct derives a pydantic model from the struct. FastAPI
validates a request with the model, describes it in OpenAPI, and passes the struct to the handler. A field that was not
sent keeps the default of the struct, which may be UNSET.
"""

from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, create_model
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

_LIMITS = ("gt", "ge", "lt", "le", "min_length", "max_length", "description", "examples")
_END = r"(?!\n)"  # Python's regular expressions need it after `$`; those of pydantic do not, and do not have it
_ANNOTATED: Any = Annotated
_UNION: Any = Union


class AsStruct:
    """Metadata of an annotation: validate a struct with a model that is derived from it."""

    def __init__(self, kind: type[msgspec.Struct], example: JsonDict | None = None) -> None:
        self._kind = kind
        self._model = _model_of(kind, example)

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> Any:  # noqa: ANN401
        return handler.generate_schema(_ANNOTATED[self._model, AfterValidator(self._to_struct)])

    def _to_struct(self, model: BaseModel) -> msgspec.Struct:
        return self._kind(**{name: getattr(model, name) for name in model.model_fields_set})


def _model_of(kind: type[msgspec.Struct], example: JsonDict | None) -> type[BaseModel]:
    hints = get_type_hints(kind, include_extras=True)
    extra: JsonDict | None = None if example is None else {"example": example}
    fields: dict[str, Any] = {
        field.name: (_convert(hints[field.name]), _default(field.default)) for field in msgspec.structs.fields(kind)
    }
    config = ConfigDict(extra="forbid", json_schema_extra=extra)
    return create_model(kind.__name__, __config__=config, __doc__=kind.__doc__, **fields)


def _default(value: object) -> object:
    if value is msgspec.NODEFAULT:
        return ...
    return None if value is UNSET else value


def _convert(annotation: Any) -> Any:  # noqa: ANN401 - any annotation
    """Translate an annotation of msgspec to one of pydantic."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _ANNOTATED[(_convert(args[0]), *(_field(one) for one in args[1:]))]
    if origin in {Union, UnionType}:
        kinds = [one for one in args if one is not UnsetType]
        return _UNION[tuple(NoneType if one is NoneType else _convert(one) for one in kinds)]
    if origin is list:
        return list[_convert(args[0])]  # type: ignore[misc]
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return _ANNOTATED[annotation, AsStruct(annotation)]
    return annotation


def _field(meta: Meta) -> FieldInfo:
    limits = {name: value for name in _LIMITS if (value := getattr(meta, name)) is not None}
    if meta.pattern is not None:
        limits["pattern"] = meta.pattern.removesuffix(_END)
    if meta.extra_json_schema is not None:
        limits["json_schema_extra"] = meta.extra_json_schema
    found: FieldInfo = Field(**limits, **(meta.extra or {}))
    return found
