"""Payloads as JSON text (design 6, celery-notes 2.9, scenario 48)."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu.utils import json as kombu_json

from pikkuflow.adapters.json_codec import JsonCodec
from pikkuflow.errors import PayloadError

_CODEC = JsonCodec(max_bytes=100_000)
_WHAT = "result of step 'charge'"


def _back(value: Any) -> Any:
    return _CODEC.decode(_CODEC.encode(value, what=_WHAT))


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, 0, -1, 2**70, 0.1, -0.0, 1e300, "", "text", [], {}),
        *("\u0000", "a\u0000b", "\ud7ff", "\ue000", "😀", "back\\ud800slash", "\\u0000"),
        [1, "2", None, {"a": [{"b": {}}]}],
        {"": 1, "1": 2, "true": 3, "null": 4, "1.5": 5},
        {"z": 1, "a": 2},
    ],
)
def test_plain_json_comes_back_as_it_was(value: Any) -> None:
    """Scenario 48: text with NUL among it."""
    back = _back(value)

    assert back == value
    assert repr(back) == repr(value)


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        datetime(2026, 1, 2, 3, 4, 5),  # noqa: DTZ001 - a user's naive time stays naive
        date(2026, 1, 2),
        time(3, 4, 5, 6),
        Decimal("1.10"),
        Decimal("NaN"),
        UUID("70696b6b-7500-5770-9f6c-6f77000a0001"),
        b"bytes",
        b"\x00\xff",
        b"",
    ],
)
def test_celerys_types_come_back_as_they_were(value: Any) -> None:
    """Design 6: the same encoder family as Celery's, at the top and inside."""
    assert repr(_back(value)) == repr(value)
    assert repr(_back({"deep": [value, {"er": value}]})) == repr({"deep": [value, {"er": value}]})


def test_the_text_of_celerys_types_is_what_celery_reads() -> None:
    """Design 6: the same text as Celery's serializer would put into a message."""
    value = {"at": datetime(2026, 1, 2, tzinfo=UTC), "id": UUID(int=7), "sum": Decimal("1.10"), "raw": b"\xff"}

    assert kombu_json.loads(_CODEC.encode(value, what=_WHAT)) == value


@pytest.mark.parametrize(
    "value",
    [
        {"__type__": "x", "__value__": 1},
        {"__type__": "uuid", "__value__": {"hex": "0" * 32}},
        {"__value__": None, "__type__": None},
        {"__type__": "pikkuflow.pairs", "__value__": [["a", 1]]},
        {"__type__": "x"},
        {"__type__": 1, "__value__": 2, "more": 3},
        [{"__type__": "x", "__value__": {"__type__": "y", "__value__": UUID(int=1)}}],
        "__type__",
        ["__type__", "__value__"],
    ],
)
def test_user_data_that_looks_like_an_envelope_comes_back_as_it_was(value: Any) -> None:
    """Scenario 48, celery-notes 2.9: Celery would drop the message, or change the type."""
    assert repr(_back(value)) == repr(value)


class _Colour(StrEnum):
    RED = "red"


class _Number(IntEnum):
    ONE = 1


class _Point(NamedTuple):
    x: int
    y: int


@pytest.mark.parametrize(
    ("value", "back"),
    [
        ((1, (2, 3)), [1, [2, 3]]),
        (_Point(1, 2), [1, 2]),
        (_Colour.RED, "red"),
        (_Number.ONE, 1),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        ({7: "one", 2.5: "x", True: "y", None: "z"}, {"7": "one", "2.5": "x", "true": "y", "null": "z"}),
        ({_Colour.RED: UUID(int=1)}, {"red": UUID(int=1)}),
    ],
)
def test_what_changes_changes_as_with_celery(value: Any, back: Any) -> None:
    """Celery-notes 2.9: tuples are lists, enums of text and number their value, keys of other types their JSON text."""
    assert repr(_back(value)) == repr(back)


@dataclass
class _Record:
    x: int = 1


class _Plain(Enum):
    A = 1


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _holds_itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        *(
            {1, 2},
            frozenset(),
            threading.Lock(),
            object(),
            _Record(),
            _Plain.A,
            timedelta(seconds=1),
            1j,
            bytearray(b"x"),
        ),
        *(float("nan"), float("inf"), -float("inf"), {"a": [float("nan")]}, {float("nan"): 1}),
        *("\ud800", "\ud83d\ude00", ["a", {"b": "\udfff"}], {"\ud800": 1}),
        *({1: "a", "1": "b"}, {"null": 1, None: 2}, {"true": 1, True: 2}, [{"1.5": 1, 1.5: 2}]),
        *({(1, 2): 3}, {b"x": 1}, {UUID(int=1): 1}),
        *(_nested(100_000), _holds_itself(), 10**5_000, lambda: 1, iter([]), Exception("x")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_stored_as_it_is_is_refused(value: Any) -> None:
    """Scenario 48: a readable refusal that names what it was; nothing is stored half."""
    with pytest.raises(PayloadError) as refused:
        _CODEC.encode(value, what=_WHAT)

    assert _WHAT in str(refused.value)
    str(refused.value).encode()


def test_the_refusal_names_the_place_and_the_type() -> None:
    """A person looks into the value where it says."""
    with pytest.raises(PayloadError, match=r"result of step 'charge'\['lines'\]\[1\]: a value of type set"):
        _CODEC.encode({"lines": [1, {2}]}, what=_WHAT)


def test_more_than_the_limit_is_refused_with_its_size() -> None:
    """Issue A, bad input: more than max_payload_bytes."""
    codec = JsonCodec(max_bytes=10)

    assert codec.decode(codec.encode("x" * 8, what=_WHAT)) == "x" * 8
    with pytest.raises(PayloadError, match="11 bytes are more than the 10 allowed"):
        codec.encode("x" * 9, what=_WHAT)


def test_the_text_is_ascii_without_nul() -> None:
    """PostgreSQL text columns take no NUL, and not every database is UTF-8."""
    text = _CODEC.encode({"nul": "\u0000", "word": "ärger 😀", "raw": b"\x00"}, what=_WHAT)

    assert text.isascii()
    assert text.isprintable()


class _Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __json__(self) -> Any:
        return {"cents": self.cents, "__type__": "money", "__value__": 1}


def test_a_type_with_a_json_method_is_stored_as_what_it_gives() -> None:
    """Celery's serializer asks ``__json__`` first."""
    assert _back([_Money(5)]) == [{"cents": 5, "__type__": "money", "__value__": 1}]


class _Sku:
    def __init__(self, text: str) -> None:
        self.text = text


def test_a_type_registered_with_kombu_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery-notes 2.9: ``register_type`` is how applications teach Celery their types."""
    monkeypatch.setattr(kombu_json, "_encoders", {**kombu_json._encoders})  # type: ignore[attr-defined]
    monkeypatch.setattr(kombu_json, "_decoders", {**kombu_json._decoders})  # type: ignore[attr-defined]
    kombu_json.register_type(
        _Sku, "sku", lambda sku: {"text": sku.text, "at": date(2026, 1, 1)}, lambda got: _Sku(got["text"])
    )

    assert _back({"sku": _Sku("a-1")})["sku"].text == "a-1"


def test_a_type_that_is_not_registered_here_is_a_clear_error() -> None:
    """A worker of another deployment may have stored it."""
    with pytest.raises(PayloadError, match="cannot be read"):
        _CODEC.decode('{"__type__":"sku","__value__":1}')


@pytest.mark.parametrize(
    "text", ["", "{", "nonsense", '{"__type__":"uuid","__value__":1}', '{"__type__":[],"__value__":1}']
)
def test_a_text_that_is_none_of_ours_is_a_clear_error(text: str) -> None:
    """A changed codec hook, a row that was edited by hand."""
    with pytest.raises(PayloadError):
        _CODEC.decode(text)


class _Shout:
    def encode(self, text: str) -> str:
        return f"<{text}>"

    def decode(self, text: str) -> str:
        return text[1:-1]


def test_a_hook_sees_every_text_on_its_way_in_and_out() -> None:
    """Design 6: encryption and offload."""
    codec = JsonCodec(max_bytes=1_000, hook=_Shout())

    assert codec.encode([1], what=_WHAT) == "<[1]>"
    assert codec.decode("<[1]>") == [1]


class _Offload:
    def __init__(self) -> None:
        self.kept: list[str] = []

    def encode(self, text: str) -> str:
        self.kept.append(text)
        return f"ref:{len(self.kept) - 1}"

    def decode(self, text: str) -> str:
        return self.kept[int(text.removeprefix("ref:"))]


def test_the_limit_is_on_what_is_stored_after_the_hook() -> None:
    """Design 6: offload is how large payloads get under it."""
    codec = JsonCodec(max_bytes=10, hook=_Offload())

    assert codec.decode(codec.encode("x" * 1_000, what=_WHAT)) == "x" * 1_000


class _Away:
    def encode(self, text: str) -> str:
        raise ConnectionError(f"the file store is away, {len(text)} characters are kept here")

    def decode(self, text: str) -> str:
        return text


def test_what_a_hook_raises_passes_through() -> None:
    """An outage of a file store is no refused payload: the engine must be able to tell them apart."""
    with pytest.raises(ConnectionError):
        JsonCodec(max_bytes=10, hook=_Away()).encode(1, what=_WHAT)


class _Odd:
    def __json__(self) -> str:
        raise KeyError("half made")


def test_a_value_whose_own_encoder_fails_is_refused() -> None:
    """It would fail again: only a hook's errors are over when something is back."""
    with pytest.raises(PayloadError, match="half made"):
        JsonCodec(max_bytes=10).encode([_Odd()], what=_WHAT)


_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(["__type__", "__value__"])
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.dates()
    | st.binary()
    | st.datetimes(timezones=st.just(UTC))
)
_KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3) | st.sampled_from(
    ["__type__", "__value__", "1", "null"]
)
_VALUES = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4))


@given(_VALUES)
def test_whatever_is_stored_comes_back(value: Any) -> None:
    """Design 6: over values of every supported kind, in any nesting."""
    assert _back(value) == value


@given(
    st.dictionaries(
        st.integers() | st.booleans() | st.none() | st.sampled_from(["1", "0", "true", "false", "null"]), st.none()
    )
)
def test_no_two_keys_become_one(value: Any) -> None:
    """A dict either keeps all of its keys or is refused."""
    try:
        text = _CODEC.encode(value, what=_WHAT)
    except PayloadError:
        return
    assert len(json.loads(text)) == len(value)
