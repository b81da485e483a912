"""Whether a failed attempt is followed by another, and when (D10, D29)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pikkuflow.domain.duration import seconds_of
from pikkuflow.errors import WorkflowDefinitionError

__all__ = [
    "EXPONENTIAL",
    "EXPONENTIAL_CAP_SECONDS",
    "EXPONENTIAL_FIRST_SECONDS",
    "JITTER",
    "RetryPolicy",
    "retries_of",
    "retry_delay_text",
]

EXPONENTIAL: Final = "exponential"
EXPONENTIAL_FIRST_SECONDS: Final = 1.0
EXPONENTIAL_CAP_SECONDS: Final = 600.0
JITTER: Final = 0.2
"""An exponential delay is spread by this share either way; also one at the cap, so that a crowd does not return together."""

_DOUBLINGS_TO_CAP: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a step is tried again, and after how long.

    ``retries`` is how many attempts may follow the first: attempts = retries + 1 everywhere (D10). ``delay`` is the row's text:
    ``"exponential"`` or a number of seconds, as ``retry_delay_text`` makes it.
    """

    retries: int
    delay: str = EXPONENTIAL

    def decide(self, attempt: int, jitter: float, asked_seconds: float | None = None) -> float | None:
        """Seconds from the end of a failed attempt to the next one, or None to give up.

        Args:
            attempt: the number of the attempt that failed, from 1.
            jitter: from 0 to 1, drawn from the ``Ids`` port; 0.5 is no deviation. Only the exponential delay uses it.
            asked_seconds: what the task itself asked for (``retry(countdown=…)``, ``retry_backoff``); it wins over the policy (D29).

        Returns:
            0 means again in the same pass; anything above is a due time; None means that the attempts are spent.
        """
        if attempt > self.retries:
            return None
        if asked_seconds is not None:
            return max(0.0, asked_seconds)
        if self.delay != EXPONENTIAL:
            return float(self.delay)
        doublings = min(max(attempt - 1, 0), _DOUBLINGS_TO_CAP)
        delay = min(EXPONENTIAL_CAP_SECONDS, EXPONENTIAL_FIRST_SECONDS * 2.0**doublings)
        return delay * (1.0 + JITTER * (2.0 * jitter - 1.0))


def retry_delay_text(value: float | timedelta | str, *, what: str = "retry_delay") -> str:
    """The text that a step's row keeps of its delay: ``"exponential"`` or a number of seconds (T4.4).

    Args:
        value: ``"exponential"`` or any duration that ``seconds_of`` reads.
        what: names the delay in the error.

    Raises:
        DurationError: it is neither.
    """
    if value == EXPONENTIAL:
        return EXPONENTIAL
    seconds = seconds_of(value, what=what)
    return str(int(seconds)) if seconds.is_integer() else repr(seconds)


def retries_of(value: Any, *, what: str) -> int:
    """Check a number of retries (spec 2.11).

    Args:
        value: a whole number from 0.
        what: names it in the error, such as ``retries of step 'charge'``.

    Raises:
        WorkflowDefinitionError: it is anything else; a bool is no number here.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise WorkflowDefinitionError(
            f"{what}: {value!r} is no number of retries.",
            hint="Give a whole number from 0; attempts are one more than retries.",
        )
    return value
