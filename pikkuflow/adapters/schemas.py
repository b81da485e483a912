"""What an approval's ``schema=`` stands for: a pydantic model, a dataclass, any type that pydantic knows, or a function that validates."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache, reduce
from importlib import import_module
from typing import Any

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from pikkuflow.domain.gate import Checked, Schema
from pikkuflow.errors import WorkflowDefinitionError

__all__ = ["schema_of"]


def schema_of(schema: Any) -> Schema:
    """Read ``schema=``; None takes any data, a text names it: ``module:name``.

    Raises ``WorkflowDefinitionError`` for what can validate nothing, or is not there.
    """
    if schema is None:
        return _Anything()
    if isinstance(schema, str):
        schema = _named(schema)
    if isinstance(schema, TypeAdapter):
        return _Typed(schema)
    if _is_type(schema):
        return _Typed(_adapter_of(schema))
    if callable(schema):
        return _Validator(schema)
    raise WorkflowDefinitionError(
        f"schema={schema!r} validates nothing.",
        hint="Give a pydantic model, a dataclass, or a function that takes the data and returns what is valid.",
    )


def _named(text: str) -> Any:
    module, _, name = text.partition(":")
    try:
        return reduce(getattr, name.split("."), import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise WorkflowDefinitionError(
            f"schema={text!r} is not there: {error}.", hint="Write module:name, as in shop.forms:Release."
        ) from error


def _is_type(schema: Any) -> bool:
    # Generic aliases (list[int]) are callable as well, and mean a type.
    return isinstance(schema, type) or hasattr(schema, "__origin__")


@lru_cache(maxsize=256)
def _adapter_of(schema: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(schema)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise WorkflowDefinitionError(
            f"schema={schema!r} is no type that pydantic can validate.",
            hint="Give a model, a dataclass or a function.",
        ) from error


class _Anything:
    """No schema."""

    def check(self, data: Any) -> Checked:
        """Whatever was decided."""
        return Checked(stored=data)

    def read(self, stored: Any) -> Any:
        """As it was given."""
        return stored


class _Typed:
    """A type that pydantic validates. What is stored is JSON, so the value is made again on every replay."""

    def __init__(self, adapter: TypeAdapter[Any]) -> None:
        self._adapter = adapter

    def check(self, data: Any) -> Checked:
        """Validate, and say where it does not fit."""
        try:
            value = self._adapter.validate_python(data)
            return Checked(stored=self._adapter.dump_python(value, mode="json", by_alias=True))
        except ValidationError as error:
            return Checked(issues=tuple(_issue(one["loc"], one["msg"]) for one in error.errors(include_url=False)))
        except Exception as error:  # noqa: BLE001 - a user's validator may raise anything, and the gate must stay closed
            return Checked(issues=(f"{type(error).__name__}: {error}",))

    def read(self, stored: Any) -> Any:
        """The value of the type. Raises pydantic's ``ValidationError`` when the type has changed and no longer takes it."""
        return self._adapter.validate_json(json.dumps(stored))


class _Validator:
    """A function: it returns what is valid, or raises."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def check(self, data: Any) -> Checked:
        """Call it; what it raises is the issue."""
        try:
            return Checked(stored=self._function(data))
        except Exception as error:  # noqa: BLE001 - as above
            return Checked(issues=(str(error) or type(error).__name__,))

    def read(self, stored: Any) -> Any:
        """As it was returned, once stored."""
        return stored


def _issue(place: tuple[int | str, ...], message: str) -> str:
    path = ".".join(str(part) for part in place)
    return f"{path}: {message}" if path else message
