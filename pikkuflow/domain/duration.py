"""Durations as people write them, read into seconds (spec 2.5, D28)."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Final

from pikkuflow.errors import DurationError

__all__ = ["LONGEST_SECONDS", "run_timeout_of", "seconds_of"]

_UNIT_SECONDS: Final = {
    "ms": 0.001,
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3_600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
    # A year is 365.25 days (spec 2.5).
    **dict.fromkeys(("y", "year", "years"), 31_557_600.0),
}

_TEXT: Final = re.compile(r"([0-9]{1,15}) ?([a-z]+)")

LONGEST_SECONDS: Final = 1_000 * _UNIT_SECONDS["year"]
"""A thousand years: past that a due time no longer fits the calendars of databases and of Python."""

_HINT: Final = (
    'Give seconds as a number, a timedelta, or text such as "500ms", "10s", "15min", "2h", "3d", "1w" or "1y".'
)


def seconds_of(value: float | timedelta | str, *, what: str) -> float:
    """Seconds of a duration (D28).

    Args:
        value: a number of seconds, a ``timedelta``, or a whole number and a unit as text: ``ms``, ``s``, ``sec``, ``m``, ``min``, ``h``,
            ``d``, ``w``, ``y`` or the words in full.
        what: names the duration in the error, such as ``retry_delay of step 'charge'``.

    Returns:
        Seconds, from 0 to a thousand years.

    Raises:
        DurationError: the value is something else, a bool, negative, not a number, or longer than a thousand years.
    """
    if isinstance(value, bool):
        raise _refusal(value, what, "it is a bool")
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float):
        seconds = _as_float(value, what)
    elif isinstance(value, str):
        seconds = _read(value, what)
    else:
        raise _refusal(value, what, f"it is a {type(value).__name__}")
    return _checked(seconds, value, what)


def run_timeout_of(value: float | timedelta | str | None, *, workflow: str) -> float | None:
    """Seconds that a whole run may take (issue D, Build 7); None is no limit.

    Raises:
        DurationError: the value is no duration (``seconds_of``), or 0: such a run could never end in time.
    """
    if value is None:
        return None
    what = f"timeout of a run of {workflow!r}"
    seconds = seconds_of(value, what=what)
    if not seconds:
        raise DurationError(
            f"{what}: a run with timeout={value!r} could never complete.", hint="Leave it out for no limit."
        )
    return seconds


def _as_float(value: float, what: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise _refusal("a number beyond any calendar", what, "it is longer than a thousand years") from None


def _read(text: str, what: str) -> float:
    matched = _TEXT.fullmatch(text)
    unit = _UNIT_SECONDS.get(matched[2]) if matched else None
    if matched is None or unit is None:
        raise _refusal(text, what, "it is no whole number with a unit")
    return int(matched[1]) / 1_000 if matched[2] == "ms" else int(matched[1]) * unit


def _checked(seconds: float, value: object, what: str) -> float:
    if math.isnan(seconds):
        raise _refusal(value, what, "it is not a number")
    if seconds < 0:
        raise _refusal(value, what, "it is negative")
    if seconds > LONGEST_SECONDS:
        raise _refusal(value, what, "it is longer than a thousand years")
    return seconds + 0.0


def _refusal(value: object, what: str, why: str) -> DurationError:
    return DurationError(f"{what}: {value!r} is no duration: {why}.", hint=_HINT)
