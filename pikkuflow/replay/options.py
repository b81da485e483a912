"""The options of a step, as a user gives them and as they are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Final, Literal, TypedDict

from pikkuflow.domain.duration import seconds_of
from pikkuflow.domain.retry import retries_of, retry_delay_text
from pikkuflow.domain.status import Dispatch
from pikkuflow.errors import WorkflowDefinitionError

__all__ = ["PLAIN", "StepChoices", "StepOptions", "step_options"]


class StepChoices(TypedDict, total=False):
    """Keywords of ``do``, ``submit`` and ``map`` (design 1).

    ``retries``: how many times more a failing step is tried (attempts are one more). ``retry_delay``: seconds, a ``timedelta``, text such
    as ``"10s"``, or ``"exponential"``. ``no_retry_on``: exception types that are final at once. ``dispatch``: where the step is worked.
    ``record_start``: its start is stored before it works. ``compensate``: False leaves it out when the run is undone.
    ``timeout``: how long one attempt may take, ``heartbeat_timeout``: how long it may go without ``current_step().heartbeat()``; such a
    step is dispatched, and a late outcome is refused. The ``timeout`` of a child run is the whole run's.
    ``quick``: its outcome may be kept for a moment and written with others, so that it may be worked again after a crash; default: as its
    workflow says.
    """

    retries: int
    retry_delay: float | timedelta | str
    no_retry_on: type[BaseException] | tuple[type[BaseException], ...]
    dispatch: Dispatch | Literal["auto", "queue", "inline"]
    record_start: bool
    compensate: bool
    timeout: float | timedelta | str
    heartbeat_timeout: float | timedelta | str
    quick: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """Checked options. None leaves the choice to the workflow or to the settings. ``retry_delay`` is text (spec 8.4).

    ``detached``: a child run that nobody waits for; of ``do`` only.
    """

    retries: int | None = None
    retry_delay: str | None = None
    no_retry_on: tuple[type[BaseException], ...] = ()
    dispatch: Dispatch | None = None
    record_start: bool = False
    compensate: bool = True
    detached: bool = False
    timeout_seconds: float | None = None
    heartbeat_seconds: float | None = None
    quick: bool | None = None


PLAIN: Final = StepOptions()
"""No option was given."""

_KNOWN: Final = StepChoices.__optional_keys__ | {"detached"}


def step_options(given: Mapping[str, Any]) -> StepOptions:
    """Check options.

    Raises ``WorkflowDefinitionError`` for an unknown option or an impossible value, and ``DurationError`` for a delay that cannot be read.
    """
    if not given:
        return PLAIN
    for key in given:
        if key not in _KNOWN:
            near = get_close_matches(key, _KNOWN, n=1)
            hint = f"Did you mean {near[0]}=?" if near else f"Options are {', '.join(sorted(_KNOWN))}."
            raise WorkflowDefinitionError(f"A step has no option {key!r}.", hint=hint)
    retries, delay = given.get("retries"), given.get("retry_delay")
    return StepOptions(
        retries=None if retries is None else retries_of(retries, what="retries"),
        retry_delay=None if delay is None else retry_delay_text(delay),
        no_retry_on=_exception_types(given.get("no_retry_on", ())),
        dispatch=_dispatch(given.get("dispatch")),
        record_start=_flag("record_start", given.get("record_start", False)),
        compensate=_flag("compensate", given.get("compensate", True)),
        detached=_flag("detached", given.get("detached", False)),
        timeout_seconds=_timeout("timeout", given.get("timeout")),
        heartbeat_seconds=_timeout("heartbeat_timeout", given.get("heartbeat_timeout")),
        quick=None if given.get("quick") is None else _flag("quick", given["quick"]),
    )


def _timeout(key: str, value: Any) -> float | None:
    if value is None:
        return None
    seconds = seconds_of(value, what=f"{key} of a step")
    if not seconds:
        raise WorkflowDefinitionError(f"A step with {key}=0 could never work.", hint="Leave it out for no limit.")
    return seconds


def _exception_types(value: object) -> tuple[type[BaseException], ...]:
    types = value if isinstance(value, tuple | list) else (value,)
    for kind in types:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise WorkflowDefinitionError(
                f"no_retry_on={value!r} is no exception type.", hint="Give classes: (ValueError,)."
            )
    return tuple(types)


def _dispatch(value: object) -> Dispatch | None:
    if value is None:
        return None
    try:
        return Dispatch(str(value))
    except ValueError:
        raise WorkflowDefinitionError(
            f"dispatch={value!r} is no place to work a step.", hint='Give "auto", "queue" or "inline".'
        ) from None


def _flag(key: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise WorkflowDefinitionError(f"{key}={value!r} is neither True nor False.")
