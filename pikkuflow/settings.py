"""The settings of pikkuflow: one frozen record, read once from the Celery configuration and the environment (design 7).

Each setting is a ``pikkuflow_<name>`` key of the Celery configuration or a ``PIKKUFLOW_<NAME>`` environment variable; the environment wins,
so that a deployment can change what the code says. Text is read the same way in both places. An unknown key is an error that names the
nearest one, because a misspelt key that is ignored shows itself as a wrong figure in production.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, Literal, Self, cast

from pikkuflow.domain.duration import seconds_of
from pikkuflow.domain.retry import EXPONENTIAL, retry_delay_text
from pikkuflow.domain.status import Dispatch
from pikkuflow.errors import DurationError, SettingError

__all__ = ["DEFAULTS", "PREFIX", "Settings"]

PREFIX: Final = "pikkuflow_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a deployment can choose. Every ``*_seconds`` accepts a number of seconds, a ``timedelta`` or text such as ``"10s"``."""

    database_url: str = field(default="sqlite:///.pikkuflow/pikkuflow.db", repr=False)
    """SQLAlchemy URL of the database that holds the truth (not in the repr: it may hold a password). The default is one file."""

    lease_url: str | None = field(default=None, repr=False)
    """Redis or Valkey URL for leases and hints. None: the broker if that is Redis, else leases are rows of the database."""

    queue: str | None = None
    """Queue of passes. None: where the app routes each workflow's own task name, in the end its default queue, which someone consumes."""

    dispatch: Dispatch = Dispatch.AUTO
    """Where steps are worked unless a workflow or a step says otherwise: ``auto``, ``queue`` or ``inline`` (design 2)."""

    retries: int = 5
    """Attempts after the first, for steps that name none (D10). 0 means that a step never starts twice."""

    retry_delay: str = EXPONENTIAL
    """Delay between attempts: ``exponential`` (1 s, doubling, at most 10 min) or a duration, kept as a number of seconds in text (D29)."""

    step_lease_seconds: float = 60.0
    """How long a claimed step is safe without a renewal. Renewed every third of it; a shorter one finds a dead machine sooner."""

    step_lease_seconds_by_queue: Mapping[str, float] = field(default_factory=dict)
    """Step leases for queues that differ: long for tasks that freeze their process, say. In the environment: a JSON object."""

    run_lease_seconds: float = 30.0
    """How long a pass holds its run without a renewal."""

    node_lease_seconds: float = 3.0
    """How long a worker counts as alive without a renewal, for the take-over by a worker of the same name (design 3.9)."""

    pass_seconds: float = 30.0
    """How long a pass works steps in place before it yields to other runs (design 2)."""

    record_start_seconds: float = 0.2
    """After how long the start of a step worked in place is recorded, so that long steps are visible; 0 records every start at once."""

    passes_lost: int = 10
    """Passes that end without closing, in a row and without a new outcome, before the run is suspended with PASS_LOST."""

    sweep_interval: float = 10.0
    """Seconds between two sweeps of a kind by beat; the safety net for everything that a lost message would leave behind."""

    stalled_seconds: float = 10.0
    """Age of unseen news from which the stalled-run sweep wakes a run."""

    undispatched_seconds: float = 30.0
    """Age of a step message that nobody picked up from which it is sent again."""

    sweep_page: int = 100
    """Rows that a sweep drives with one statement."""

    max_payload_bytes: int = 8 * 1024 * 1024
    """Largest stored text of an input, argument list, result or state value, in bytes. Larger things belong in a file store."""

    history_warning_steps: int = 2000
    """Steps of a run from which on a warning says that each pass reads them all."""

    version_policy: Literal["check", "fail"] = "check"
    """A body that changed under its runs: ``check`` lets each go on whose recorded calls still match, ``fail`` suspends them (D17)."""

    beat: bool = True
    """Add the sweeps to the beat schedule. False leaves beat alone; then ``flow sweep`` has to be run by something else."""

    recovery: bool = True
    """Sweep at all: beat entries, the pass at worker start and the workers' fallback. ``flow sweep`` works either way (design 3.8)."""

    step_events: bool = False
    """Send Celery's task events for steps worked in place: a publish a step."""

    group_commit: bool = False
    """Write outcomes of several runs together: those that wait at once in the threads pool, and in every pool the runs of one message,
    which are then worked in threads of the process."""

    allow_green_pools: bool = False
    """Let workers start on gevent or eventlet, where limits and lease renewal are weaker."""

    codec: Any = None
    """Encryption or offload of stored payloads: an object with ``encode(text)`` and ``decode(text)``, or its dotted name."""

    @classmethod
    def from_mapping(cls, conf: Mapping[str, Any], environ: Mapping[str, str]) -> Self:
        """Read and check all settings.

        Args:
            conf: the Celery configuration (only its ``pikkuflow_*`` keys matter; Celery resolves a namespace such as Django's).
            environ: the process's environment; its ``PIKKUFLOW_*`` variables win.

        Raises:
            SettingError: a key is unknown (the nearest one is named), or a value is impossible (key, value and what is allowed are named).
        """
        _refuse_unknown_keys(conf)
        _refuse_unknown_variables(environ)
        chosen: dict[str, Any] = {}
        for name, read in _READERS.items():
            variable = (PREFIX + name).upper()
            if variable in environ:
                chosen[name] = read(variable, environ[variable])
            elif (value := conf.get(PREFIX + name, MISSING)) is not MISSING:
                chosen[name] = read(PREFIX + name, value)
        return cls(**chosen)

    def step_lease_seconds_of(self, queue: str | None) -> float:
        """Seconds that a step claimed from that queue is safe without a renewal."""
        if queue is None:
            return self.step_lease_seconds
        return self.step_lease_seconds_by_queue.get(queue, self.step_lease_seconds)


# --- reading values -----------------------------------------------------------------------------------------------------

_Reader = Callable[[str, Any], Any]


def _refusal(key: str, value: object, allowed: str) -> SettingError:
    return SettingError(f"{key} is {value!r}, which is impossible.", hint=f"Allowed: {allowed}.")


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _refusal(key, value, "a text that is not empty")
    return value.strip()


def _url(key: str, value: Any) -> str:
    # The value is not repeated: URLs hold passwords, and errors end in logs.
    if not isinstance(value, str) or not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", value.strip()):
        raise SettingError(
            f"{key} is no URL.",
            hint="Allowed: a text such as postgresql+psycopg://user@host/name or redis://host:6379/0.",
        )
    return value.strip()


def _or_none(read: _Reader) -> _Reader:
    def optional(key: str, value: Any) -> Any:
        return None if value is None or value == "" else read(key, value)

    return optional


def _seconds(lowest: float) -> _Reader:
    allowed = f'at least {lowest:g} seconds, as a number, a timedelta or text such as "10s"'

    def seconds(key: str, value: Any) -> float:
        try:
            read = seconds_of(_number_in(value), what=key)
        except DurationError:
            raise _refusal(key, value, allowed) from None
        if read < lowest:
            raise _refusal(key, value, allowed)
        return read

    return seconds


def _number_in(value: Any) -> Any:
    """A number that came as text, as the environment has it; anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value.strip()


def _whole(lowest: int) -> _Reader:
    def whole(key: str, value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"\s*\d{1,18}\s*", value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
            raise _refusal(key, value, f"a whole number from {lowest}")
        return value

    return whole


_WORDS: Final = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _flag(key: str, value: Any) -> bool:
    if isinstance(value, str):
        # A text is read, never taken for its truth: "False" in a configuration would be true.
        value = _WORDS.get(value.strip().lower(), value)
    if not isinstance(value, bool):
        raise _refusal(key, value, "True or False; in the environment 1, 0, true, false, yes, no, on or off")
    return value


def _one_of(*allowed: str) -> _Reader:
    def choice(key: str, value: Any) -> str:
        if value not in allowed:
            raise _refusal(key, value, ", ".join(allowed))
        return str(value)

    return choice


def _dispatch(key: str, value: Any) -> Dispatch:
    return Dispatch(_one_of(*Dispatch)(key, value))


def _retry_delay(key: str, value: Any) -> str:
    try:
        return retry_delay_text(_number_in(value), what=key)
    except DurationError:
        raise _refusal(key, value, 'exponential, a number of seconds, a timedelta or text such as "10s"') from None


def _seconds_by_queue(key: str, value: Any) -> Mapping[str, float]:
    allowed = 'queue names with seconds, such as {"slow": 600}'
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise _refusal(key, value, f"{allowed}, as a JSON object") from None
    if not isinstance(value, Mapping):
        raise _refusal(key, value, allowed)
    read = _seconds(_SHORTEST_LEASE_SECONDS)
    return {_text(f"a queue of {key}", queue): read(f"{key}[{queue!r}]", seconds) for queue, seconds in value.items()}


def _anything(key: str, value: Any) -> Any:  # noqa: ARG001 - a reader; what a codec is, is checked where it is built
    return value


_SHORTEST_LEASE_SECONDS: Final = 0.1
"""A lease is renewed every third of it; below this the renewals themselves are the load."""

_READERS: Final[Mapping[str, _Reader]] = {
    "database_url": _url,
    "lease_url": _or_none(_url),
    "queue": _or_none(_text),
    "dispatch": _dispatch,
    "retries": _whole(0),
    "retry_delay": _retry_delay,
    "step_lease_seconds": _seconds(_SHORTEST_LEASE_SECONDS),
    "step_lease_seconds_by_queue": _seconds_by_queue,
    "run_lease_seconds": _seconds(_SHORTEST_LEASE_SECONDS),
    "node_lease_seconds": _seconds(_SHORTEST_LEASE_SECONDS),
    "pass_seconds": _seconds(0.0),
    "record_start_seconds": _seconds(0.0),
    "passes_lost": _whole(1),
    "sweep_interval": _seconds(0.1),
    "stalled_seconds": _seconds(0.0),
    "undispatched_seconds": _seconds(0.0),
    "sweep_page": _whole(1),
    "max_payload_bytes": _whole(1),
    "history_warning_steps": _whole(1),
    "version_policy": _one_of("check", "fail"),
    "beat": _flag,
    "recovery": _flag,
    "step_events": _flag,
    "group_commit": _flag,
    "allow_green_pools": _flag,
    "codec": _or_none(_anything),
}


def _defaults() -> Mapping[str, Any]:
    settings = Settings()
    return {PREFIX + each.name: getattr(settings, each.name) for each in fields(Settings)}


DEFAULTS: Final[Mapping[str, Any]] = _defaults()
"""Every ``pikkuflow_*`` key with its default, for the bottom of the Celery configuration."""


# --- unknown keys -------------------------------------------------------------------------------------------------------

_NOT_SETTINGS: Final = frozenset({"PIKKUFLOW_REDIS_SERVER", "PIKKUFLOW_DEMO_LEDGER"})
"""Variables of tools: the program that ``dev``, ``demo`` and the tests start as a server; where the demo's tasks write what they did."""

_SERVICE_LINK: Final = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT$|_PORT_\d+_(TCP|UDP|SCTP)(_\w+)?$")
"""What Kubernetes puts into every container for a service that happens to be called ``pikkuflow`` or ``pikkuflow-db``."""


def _refuse_unknown_keys(conf: Mapping[str, Any]) -> None:
    for key in cast("Iterable[object]", conf):
        # A namespace comes in front and in capitals, as in Django's CELERY_PIKKUFLOW_QUEUE.
        matched = re.fullmatch(r"(?:[a-z0-9]+_)?(pikkuflow_\w*)", key.lower()) if isinstance(key, str) else None
        if matched and matched[1] not in DEFAULTS:
            raise _unknown(str(key), matched[1], str.lower)


def _refuse_unknown_variables(environ: Mapping[str, str]) -> None:
    for variable in environ:
        if not variable.startswith(PREFIX.upper()) or variable in _NOT_SETTINGS or _SERVICE_LINK.search(variable):
            continue
        if variable.lower() not in DEFAULTS:
            raise _unknown(variable, variable.lower(), str.upper)


def _unknown(shown: str, key: str, written: Callable[[str], str]) -> SettingError:
    nearest = difflib.get_close_matches(key, DEFAULTS, n=1, cutoff=0.0)[0]
    return SettingError(f"{shown} is no setting of pikkuflow.", hint=f"Did you mean {written(nearest)}?")
