"""Turn hints whose time has come into wake-ups (design 4)."""

from __future__ import annotations

from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import wake_runs

__all__ = ["fire_due"]


def fire_due(rt: Runtime, limit: int = 100) -> int:
    """Wake the runs whose hints are due, ``limit`` at most; the number of runs woken.

    Due or not is judged again by the database when the pass opens. A broker that takes no message leaves the hints a second ahead.
    """
    popped = rt.hints.pop_due(limit)
    runs = rt.store.find_runs(popped) if popped else ()
    return len(runs) if wake_runs(rt, runs) else 0
