"""The ratios that are promised: which figure of ours over which figure of whom, and what it must and should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Ours over theirs, within one round. ``must`` and ``aim`` are floors for speed and ceilings for time."""

    title: str
    ours: str
    theirs: str
    workload: str
    figure: str
    must: float | None = None
    aim: float | None = None
    is_time: bool = False
    their_figure: str | None = None

    def verdict(self, ratio: float) -> str:
        """``aim``, ``must`` or ``missed``; empty when nothing is promised."""
        if self.must is None:
            return ""
        reached = [
            name
            for name, limit in (("must", self.must), ("aim", self.aim))
            if limit is not None and (ratio <= limit if self.is_time else ratio >= limit)
        ]
        return reached[-1] if reached else "missed"


_W1: Final = {"workload": "chain", "figure": "runs_per_s"}
_W2: Final = {"workload": "latency", "figure": "run_ms", "is_time": True}
_W3: Final = {"workload": "fanout", "is_time": True}
_W4: Final = {"workload": "history", "figure": "seconds", "is_time": True}
_W5: Final = {"workload": "start", "figure": "starts_per_s"}
_PLACE, _QUEUE, _FAN, _MANY = "pikkuflow/place", "pikkuflow/queue", "pikkuflow/fan", "pikkuflow/many"
_DQ, _DI, _DC, _CELERY, _ABSURD = "dbos/queue", "dbos/inline", "dbos/child", "celery/prefork", "absurd/fast"


def _target(title: str, ours: str, theirs: str, basis: dict[str, object], **more: object) -> Target:
    return Target(title=title, ours=ours, theirs=theirs, **(basis | more))  # type: ignore[arg-type]


TARGETS: Final = (
    _target("W1 in place / DBOS queue", _PLACE, _DQ, _W1, must=2.5, aim=4),
    _target("W1 in place / DBOS inline", _PLACE, _DI, _W1, must=2, aim=3),
    _target("W1 in place / Celery chain", _PLACE, _CELERY, _W1, must=1.2, aim=2),
    _target("W1 in place / Absurd", _PLACE, _ABSURD, _W1, aim=1.25),
    _target("W1 start_many / DBOS queue", _MANY, _DQ, _W1),
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
    _target("W4b replay of 1,000 steps / DBOS inline", _PLACE, _DI, _W4, workload="replay", must=0.1, aim=0.03),
    _target("W5 start / DBOS", _PLACE, _DI, _W5, must=0.9, aim=2),
    _target("W5 start / bare Celery publish", _PLACE, _CELERY, _W5, must=0.4, aim=1),
    _target("W5 start_many of 50 / DBOS batch", _MANY, _DI, _W5, figure="batch_starts_per_s", must=3, aim=10),
    _target(
        "W6 kill -9, seconds / DBOS queue",
        _PLACE,
        _DQ,
        {"workload": "crash", "figure": "recover_s", "is_time": True},
        must=1.5,
        aim=1.0,
    ),
)
