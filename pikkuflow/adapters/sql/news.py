"""News: what a run has not seen yet (design 3.5), and the counters that hold it back until the last member of a fan is in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, update

from pikkuflow.adapters.sql.database import Transaction
from pikkuflow.adapters.sql.rows import is_held
from pikkuflow.adapters.sql.tables import fan, run
from pikkuflow.domain.status import SETTLED_RUN
from pikkuflow.domain.step import first_no

__all__ = ["count_down", "more_news", "outside_no", "raise_news", "wants_wake"]


def outside_no(row: Mapping[str, Any]) -> int:
    """The number of what comes from outside a pass now, to a run whose row is locked and given (``first_no``)."""
    return first_no(row["news"] + 1)


def more_news(now: datetime) -> dict[str, Any]:
    """The assignments that raise a run's news; ``news_at`` stays at the first piece that is unseen."""
    return {"news": run.c.news + 1, "news_at": func.coalesce(run.c.news_at, now), "updated_at": now}


def wants_wake(row: Mapping[str, Any], now: datetime) -> bool:
    """There is news that no live pass will see and that is no one's to announce."""
    return row["news"] > row["seen"] and row["status"] not in SETTLED_RUN and not is_held(row, now)


def raise_news(tx: Transaction, row: Mapping[str, Any]) -> bool:
    """Raise the news of a run whose row is locked and given: a step has settled elsewhere, so its row of lost passes ends.

    True: it had none unseen and no live pass, so the caller wakes it.
    """
    if row["status"] in SETTLED_RUN:
        return False
    now = tx.now()
    tx.do(update(run).where(run.c.id == row["id"]).values(more_news(now) | {"passes_lost": 0}))
    return row["news"] == row["seen"] and not is_held(row, now)


def count_down(tx: Transaction, run_id: str, fan_id: str | None) -> bool:
    """A member of a fan is settled. True: its run is to be told now: it has no fan, or it was the fan's last open member."""
    if fan_id is None:
        return True
    mine = (fan.c.run_id == run_id) & (fan.c.fan_id == fan_id)
    row = next(iter(tx.locked(select(fan).where(mine))), None)
    if row is None:
        return True
    tx.do(update(fan).where(mine).values(open=fan.c.open - 1))
    return bool(row["open"] <= 1)
