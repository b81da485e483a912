r"""Payloads as JSON text, with Celery's own encoder (design 6, celery-notes 2.9).

Two paths. Plain JSON values take one ``json.dumps``. Anything else (a datetime, a Decimal, a user's type registered with kombu, a dict that
looks like one of kombu's envelopes) is first made plain by a walk over the value, which also finds the place of what cannot be stored.

The text is ASCII: it fits every database whatever its encoding, and NUL stays the six characters ``\u0000``, which text columns hold.
Differences that come back: tuples as lists, keys that are numbers, bools or None as their JSON text (as with Celery), a ZoneInfo as a fixed
offset. Two keys of a dict that would become the same text are refused, and so is a lone surrogate: it would come back as something else.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from kombu.utils.json import JSONEncoder, object_hook

from pikkuflow.errors import PayloadError

__all__ = ["CodecHook", "JsonCodec"]

_TYPE: Final = "__type__"
_VALUE: Final = "__value__"
_ENVELOPE: Final = frozenset({_TYPE, _VALUE})
_PAIRS: Final = "pikkuflow.pairs"
"""The envelope of a user's own dict that has exactly an envelope's keys."""

_NUMBER_LIKE_KEY: Final = re.compile(r'"(?:-?[0-9][0-9.e+-]*|true|false|null)":')
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_TO_JSON: Final = JSONEncoder()

_BROKEN: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a type's own encoder or decoder raises for a value that it would refuse again. Not ``Exception``: a time limit may strike there."""


class CodecHook(Protocol):
    """Encryption or offload: what is stored instead of the JSON text.

    ``PayloadError`` says that a text can never be stored, or read; anything else that is raised passes through and means that something the
    hook needs is away: it is asked again, and no work is repeated for it.
    """

    def encode(self, text: str) -> str:
        """The text to store."""
        ...

    def decode(self, text: str) -> str:
        """The JSON text of a stored text."""
        ...


class _NotPlainError(Exception):
    """The value needs the walk."""


def _refuse_default(value: Any) -> Any:
    raise _NotPlainError(type(value).__name__)


_PLAIN: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_refuse_default)


class JsonCodec:
    """The codec of stored payloads (``Codec`` port).

    Args:
        max_bytes: the largest stored text, in bytes (``pikkuflow_max_payload_bytes``), measured after the hook: that is what is stored.
        hook: encryption or offload, or None.
    """

    __slots__ = ("_hook", "_max_bytes")

    def __init__(self, max_bytes: int, hook: CodecHook | None = None) -> None:
        self._max_bytes = max_bytes
        self._hook = hook

    def encode(self, value: Any, *, what: str) -> str:
        """The text to store.

        Args:
            value: anything that Celery's JSON serializer takes.
            what: names the value in errors, such as ``result of step 'charge'``.

        Raises:
            PayloadError: it cannot be stored as it is (the message names the place in it), or its text is larger than ``max_bytes``.
        """
        text = _plain_text(value)
        if text is None:
            text = _walked_text(value, what)
        if self._hook is not None:
            text = self._hook.encode(text)
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if size > self._max_bytes:
            raise PayloadError(
                f"{what}: {size:,} bytes are more than the {self._max_bytes:,} allowed.",
                hint="Store it elsewhere and pass a reference, or raise pikkuflow_max_payload_bytes.",
            )
        return text

    def decode(self, text: str) -> Any:
        """The value of a text that ``encode`` made.

        Raises:
            PayloadError: the text is none of those, or holds a type that is not registered in this process.
        """
        if self._hook is not None:
            text = self._hook.decode(text)
        try:
            return json.loads(text, object_hook=_opened) if f'"{_TYPE}"' in text else json.loads(text)
        except _BROKEN as error:
            raise PayloadError(
                f"A stored payload cannot be read: {error}",
                hint="Is a type registered with kombu missing in this process, or the codec hook another one?",
            ) from error


def _plain_text(value: Any) -> str | None:
    """The text of a value that is plain JSON through and through; None when that is not certain."""
    try:
        text = _PLAIN.encode(value)
    except (_NotPlainError, TypeError, ValueError, RecursionError):
        return None
    doubtful = f'"{_TYPE}"' in text or "\\ud" in text or ('{"' in text and _NUMBER_LIKE_KEY.search(text))
    return None if doubtful else text


def _walked_text(value: Any, what: str) -> str:
    try:
        return _PLAIN.encode(_plain(value, what))
    except RecursionError:
        raise PayloadError(f"{what}: it is nested too deeply, or holds itself.", hint=_HINT) from None
    except _BROKEN as error:
        raise PayloadError(f"{what}: {error}.", hint=_HINT) from None


_HINT: Final = (
    "Stored are JSON's own values, bytes, datetime, date, time, Decimal, UUID and types registered with kombu."
)


def _refusal(what: str, why: str) -> PayloadError:
    return PayloadError(f"{what}: {why}.", hint=_HINT)


def _plain(value: Any, at: str) -> Any:
    """The value as plain JSON values; ``at`` is the place, for errors."""
    if isinstance(value, str):
        if _SURROGATE.search(value):
            raise _refusal(at, "text with a lone surrogate is no Unicode text")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _refusal(at, f"{float(value)!r} is no JSON number")
        return value
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, f"{at}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return _plain_dict(value, at)
    return _reduced(value, at)


def _plain_dict(value: Mapping[Any, Any], at: str) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in value.items():
        text = _key_text(key, at)
        if text in plain:
            raise _refusal(at, f"two keys become the same text {text!r}")
        plain[text] = _plain(item, f"{at}[{key!r}]")
    if plain.keys() == _ENVELOPE:
        return {_TYPE: _PAIRS, _VALUE: [[key, item] for key, item in plain.items()]}
    return plain


def _key_text(key: Any, at: str) -> str:
    if isinstance(key, str):
        return str.__str__(_plain(key, f"key {key!r} of {at}"))
    if key is None or isinstance(key, int | float):
        return _PLAIN.encode(_plain(key, f"key {key!r} of {at}"))
    raise _refusal(at, f"a key of type {type(key).__name__} is no key of a JSON object")


def _reduced(value: Any, at: str) -> Any:
    """A value that is not JSON's, as Celery's encoder makes it, its parts made plain as well."""
    try:
        reduced = _TO_JSON.default(value)
    except TypeError:
        raise _refusal(at, f"a value of type {type(value).__name__} cannot be stored") from None
    is_envelope = isinstance(reduced, dict) and reduced.keys() == _ENVELOPE and not hasattr(value, "__json__")
    if is_envelope:
        return {_TYPE: reduced[_TYPE], _VALUE: _plain(reduced[_VALUE], at)}
    return _plain(reduced, at)


def _opened(found: dict[str, Any]) -> Any:
    if found.keys() == _ENVELOPE and found[_TYPE] == _PAIRS:
        return dict(found[_VALUE])
    return object_hook(found)
