"""Close a pass that ended by something that is not the run's, and say when another one is worth it (docs/decisions/broken-passes.md).

An outage is nobody's fault and over when it is over: the next pass may come at once. Anything else would most likely happen again, so the
wait doubles with each pass that broke off or was lost since the last outcome; a body that leaves its process by ``SystemExit`` and the like
is suspended like one that kills it.
"""

from __future__ import annotations

from typing import Final

from pikkuflow.domain import loss
from pikkuflow.domain.act import Closing
from pikkuflow.domain.ids import StepName
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import OPEN_RUN, SuspendCode
from pikkuflow.domain.transitions import RunEvent, next_run_status
from pikkuflow.errors import StoreUnavailable

__all__ = ["broken_closing", "is_outage", "unread_closing"]

_FIRST_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 600.0
_UNREAD_SECONDS: Final = 60.0


def is_outage(error: BaseException) -> bool:
    """The store or a service did not answer: nothing is wrong with the run or the code."""
    return isinstance(error, StoreUnavailable | ConnectionError)


def broken_closing(
    run: Run, error: BaseException, *, worked: bool, sent: tuple[StepName, ...], passes_lost_limit: int
) -> Closing:
    """The last write of a pass over ``run`` that broke off by ``error``.

    ``worked`` says that the pass recorded an outcome, which forgives the ones before it. Another pass is due in 1 s, doubling up to 10 min.
    """
    count = 1 if worked else run.passes_lost + 1
    if not isinstance(error, Exception) and count >= passes_lost_limit and run.status in OPEN_RUN:
        return Closing(
            status=next_run_status(run.status, RunEvent.SUSPEND),
            code=SuspendCode.PASS_LOST,
            error=loss.passes_lost(count),
            sent=sent,
            broke_off=True,
        )
    return Closing(due_seconds=_wait(count), sent=sent, broke_off=True)


def unread_closing(error: BaseException) -> Closing:
    """For a pass that may be open though its history could not be read: nobody knows how often that happened before."""
    return Closing(raise_news=True) if is_outage(error) else Closing(due_seconds=_UNREAD_SECONDS, broke_off=True)


def _wait(count: int) -> float:
    return min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** min(count - 1, 10))
