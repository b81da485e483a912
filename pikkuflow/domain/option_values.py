"""What the message options of a signature may be, as far as anybody can tell before there is a message (issue E, bad input)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from pikkuflow.domain.duration import LONGEST_SECONDS
from pikkuflow.errors import WorkflowDefinitionError

__all__ = ["refuse_options"]


def refuse_options(options: Mapping[str, Any], *, what: str) -> None:
    """Refuse what no message can carry; options that are not known are left alone, as Celery leaves them.

    Celery looks at them when a worker has the message, and then it is late: a ``time_limit`` that is no number takes the whole worker down.

    Args:
        options: of a signature; those whose value is None are not set.
        what: names the step in the error, such as ``step 'charge'``.

    Raises:
        WorkflowDefinitionError: an option is not what it has to be; the message names it.
    """
    for key, value in options.items():
        if value is None or key not in _CHECKS:
            continue
        is_right, has_to_be = _CHECKS[key]
        if not is_right(value):
            raise WorkflowDefinitionError(
                f"{key}={value!r} of {what} is not {has_to_be}.", hint="Correct the signature."
            )


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LONGEST_SECONDS


def _is_limit(value: Any) -> bool:
    return _is_seconds(value) and value >= 0


def _is_time(value: Any) -> bool:
    if isinstance(value, str):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            return False
        return True
    return _is_seconds(value) or isinstance(value, datetime | timedelta)


def _is_delay(value: Any) -> bool:
    return _is_seconds(value) or isinstance(value, timedelta)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_name(value: Any) -> bool:
    """A name, or an object that has one."""
    return bool(value) if isinstance(value, str) else not isinstance(value, int | float | bytes | list | tuple | set)


_CHECKS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "countdown": (_is_delay, "a number of seconds"),
    "eta": (_is_time, "a time"),
    "expires": (_is_time, "a time or a number of seconds"),
    "time_limit": (_is_limit, "a number of seconds from 0"),
    "soft_time_limit": (_is_limit, "a number of seconds from 0"),
    "priority": (_is_whole, "a whole number"),
    "headers": (_is_mapping, "a mapping"),
    "queue": (_is_name, "the name of a queue"),
    "exchange": (_is_name, "the name of an exchange"),
    "routing_key": (_is_name, "a routing key"),
}
