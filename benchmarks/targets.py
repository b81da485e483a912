"""What is promised: which figure of ours over which figure of whom, or a figure of ours alone, and what it must and should be.

What a step and an idle worker cost in statements, commits, fsyncs, messages and Redis commands is counted, not timed: by
``tests/integration/counts``.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Ours over theirs within one round, or ours alone. ``must`` and ``aim`` are floors, or with ``is_ceiling`` ceilings."""

    title: str
    ours: str
    theirs: str | None
    workload: str
    figure: str
    must: float | None = None
    aim: float | None = None
    is_ceiling: bool = False
    their_figure: str | None = None
    over_rounds: Callable[[Sequence[float]], float] = statistics.median
    """What of the rounds is judged: what may never happen is judged by its worst."""

    def verdict(self, values: Sequence[float]) -> str:
        """``aim``, ``must`` or ``missed`` (``aim missed`` without a ``must``), by all rounds; empty when nothing is promised."""
        value = self.over_rounds(values)
        limits = [(name, limit) for name, limit in (("must", self.must), ("aim", self.aim)) if limit is not None]
        reached = [name for name, limit in limits if (value <= limit if self.is_ceiling else value >= limit)]
        if reached or not limits:
            return reached[-1] if reached else ""
        return "aim missed" if self.must is None else "missed"


_W1: Final = {"workload": "chain", "figure": "runs_per_s"}
_W2: Final = {"workload": "latency", "figure": "run_ms", "is_ceiling": True}
_W3: Final = {"workload": "fanout", "is_ceiling": True}
_W4: Final = {"workload": "history", "figure": "seconds", "is_ceiling": True}
_W5: Final = {"workload": "start", "figure": "starts_per_s"}
_W6: Final = {"workload": "crash", "is_ceiling": True}
_PLACE, _QUEUE, _FAN = "pikkuflow/place", "pikkuflow/queue", "pikkuflow/fan"
_QUICK, _MANY = "pikkuflow/quick", "pikkuflow/many"
_DQ, _DI, _DC, _CELERY, _ABSURD = "dbos/queue", "dbos/inline", "dbos/child", "celery/prefork", "absurd/fast"
_IN_FLIGHT: Final = 8
"""Steps that the worker of W6 works at once."""


def _target(title: str, ours: str, theirs: str | None, basis: dict[str, object], **more: object) -> Target:
    return Target(title=title, ours=ours, theirs=theirs, **(basis | more))  # type: ignore[arg-type]


TARGETS: Final = (
    _target("W1 in place / DBOS queue", _PLACE, _DQ, _W1, must=2.5, aim=4),
    _target("W1 in place / DBOS inline", _PLACE, _DI, _W1, must=2, aim=3),
    _target("W1 in place / Celery chain", _PLACE, _CELERY, _W1, must=1.2, aim=2),
    _target("W1 in place / Absurd", _PLACE, _ABSURD, _W1, aim=1.25),
    _target("W1 quick steps / DBOS queue", _QUICK, _DQ, _W1, must=4, aim=6),
    _target("W1 quick steps / Celery chain", _QUICK, _CELERY, _W1, aim=3),
    _target("W1 start_many, group commit / DBOS queue", _MANY, _DQ, _W1, must=6, aim=12),
    _target("W1 start_many, group commit / Celery chain", _MANY, _CELERY, _W1, aim=6),
    _target("W1 on step workers / DBOS child", _QUEUE, _DC, _W1, must=3, aim=5),
    _target("W1 on step workers / Celery chain", _QUEUE, _CELERY, _W1, must=0.5, aim=0.8),
    _target("W2 in place / DBOS queue", _PLACE, _DQ, _W2, must=0.25, aim=0.15),
    _target("W2 in place / DBOS inline", _PLACE, _DI, _W2, must=0.6, aim=0.4),
    _target("W2 in place / Celery chain", _PLACE, _CELERY, _W2, must=0.8, aim=0.5),
    _target("W2 in place / Absurd", _PLACE, _ABSURD, _W2),
    _target("W2 on step workers / DBOS child", _QUEUE, _DC, _W2, must=0.1, aim=0.06),
    _target("W2 on step workers / Celery chain", _QUEUE, _CELERY, _W2, must=2, aim=1.2),
    _target("W2 with a far database / DBOS inline", f"{_PLACE}/far", f"{_DI}/far", _W2, must=0.3, aim=0.2),
    _target("W3 500 parallel / DBOS inline", _FAN, _DI, _W3, figure="seconds", must=1.0, aim=0.6),
    _target("W3 500 parallel / Celery chord", _FAN, _CELERY, _W3, figure="seconds", must=1.2, aim=0.85),
    _target("W3 500 parallel / DBOS child", _FAN, _DC, _W3, figure="seconds", must=0.25, aim=0.17),
    _target(
        "W3 chunked by 10 / DBOS inline",
        _FAN,
        _DI,
        _W3,
        figure="chunked_seconds",
        their_figure="seconds",
        must=0.2,
        aim=0.1,
    ),
    _target("W4 1,000 steps / DBOS inline", _PLACE, _DI, _W4, must=0.4, aim=0.2),
    _target("W4 1,000 steps / Absurd", _PLACE, _ABSURD, _W4),
    _target("W4 growth, last 100 steps / first 100", _PLACE, None, _W4, figure="growth", must=1.3, aim=1.1),
    _target("W4b replay of 1,000 steps / DBOS inline", _PLACE, _DI, _W4, workload="replay", must=0.1, aim=0.03),
    _target("W5 start / DBOS", _PLACE, _DI, _W5, must=0.9, aim=2),
    _target("W5 start / bare Celery publish", _PLACE, _CELERY, _W5, must=0.4, aim=1),
    _target("W5 start_many of 50 / DBOS batch", _MANY, _DI, _W5, figure="batch_starts_per_s", must=3, aim=10),
    _target("W6 kill -9, seconds / DBOS queue", _PLACE, _DQ, _W6, figure="recover_s", must=1.5, aim=1.0),
    _target("W6 kills in all", _PLACE, None, _W6, figure="kills", is_ceiling=False, must=20, over_rounds=sum),
    _target("W6 lost steps in all", _PLACE, None, _W6, figure="lost", must=0, over_rounds=sum),
    _target("W6 unfinished runs in all", _PLACE, None, _W6, figure="unfinished", must=0, over_rounds=sum),
    _target(
        "W6 steps worked twice, worst kill", _PLACE, None, _W6, figure="duplicates", must=_IN_FLIGHT, over_rounds=max
    ),
)
