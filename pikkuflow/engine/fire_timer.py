"""Turn hints whose time has come into wake-ups (design 4)."""

from __future__ import annotations

from pikkuflow.domain.act import FoundRun
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import SOON_SECONDS, wake_runs

__all__ = ["fire_due"]


def fire_due(rt: Runtime, limit: int = 100) -> int:
    """Wake the runs whose hints are due, ``limit`` at most; the number of runs woken.

    Due or not is judged again by the database when the pass opens. A broker that takes no message leaves the hints a second ahead.

    A run that is held gets no message, which could only be turned away: its hint is left again, as far ahead as its pass has been open
    (1 s, 2 s, 4 s …), and no further than the pass would last if it was not renewed any more. Nothing is lost by that: the pass sees the
    news in its closing write (design 3.5), and says itself when another one is worth it.
    """
    popped = rt.hints.pop_due(limit)
    found = rt.store.find_runs(popped) if popped else ()
    for one in found:
        if one.held_seconds is not None:
            rt.hints.leave(one.ref.id, _patience(one, one.held_seconds))
    free = [one.ref for one in found if one.held_seconds is None]
    return len(free) if wake_runs(rt, free) else 0


def _patience(found: FoundRun, held_seconds: float) -> float:
    return max(SOON_SECONDS, min(held_seconds, found.left_seconds))
