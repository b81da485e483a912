"""What hints are made of and lead to, for every database: times that are coming, and runs by their ids (design 4)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Column, select, tuple_

from pikkuflow.adapters.sql.columns import text_of_time, time_of_text
from pikkuflow.adapters.sql.database import Transaction
from pikkuflow.adapters.sql.rows import ref_of
from pikkuflow.adapters.sql.tables import run, step
from pikkuflow.domain.act import DueRun, FoundRun, Upcoming
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import SETTLED_RUN

__all__ = ["find_runs", "upcoming"]

_OPEN_RUN: Final = run.c.status.not_in(sorted(SETTLED_RUN))
_KEYS: Final[tuple[tuple[Column[Any], ...], ...]] = (
    (run.c.due_at, run.c.id),
    (step.c.due_at, step.c.run_id, step.c.name),
)
"""What the index of each source is sorted by; ``due_at`` is NULL once a row is claimed or settled."""


def find_runs(tx: Transaction, run_ids: Sequence[RunId]) -> tuple[FoundRun, ...]:
    """Those of the runs that are there and not settled, and whether a live pass holds them."""
    columns = (run.c.id, run.c.workflow, run.c.opened_at, run.c.pass_until, tx.clock.label("now"))
    rows = tx.all(select(*columns).where(run.c.id.in_(sorted(set(run_ids))), _OPEN_RUN))
    return tuple(_found(row) for row in rows)


def _found(row: Mapping[str, Any]) -> FoundRun:
    if row["pass_until"] is None or row["pass_until"] <= row["now"]:
        return FoundRun(ref=ref_of(row))
    held, left = row["now"] - row["opened_at"], row["pass_until"] - row["now"]
    return FoundRun(ref=ref_of(row), held_seconds=held.total_seconds(), left_seconds=left.total_seconds())


def upcoming(tx: Transaction, within_seconds: float, limit: int, after: str | None) -> Upcoming:
    """One page of the times that are coming: first the runs', then their rows', each soonest first."""
    first, last = (0, None) if after is None else _read_key(after)
    found: list[tuple[int, Mapping[str, Any]]] = []
    for number in range(first, len(_KEYS)):
        rows = _coming(tx, number, within_seconds, limit - len(found), last if number == first else None)
        found += [(number, row) for row in rows]
        if len(found) >= limit:
            break
    now = tx.now()
    due = tuple(DueRun(run_id=row["run_id"], in_seconds=(row["due_at"] - now).total_seconds()) for _, row in found)
    return Upcoming(due=due, last=_key_of(*found[-1]) if found and len(found) >= limit else None)


def _coming(
    tx: Transaction, number: int, within_seconds: float, limit: int, after: Sequence[Any] | None
) -> Sequence[Mapping[str, Any]]:
    key, now = _KEYS[number], tx.now()
    due_at, run_id, *name = key
    wanted = select(due_at, run_id.label("run_id"), *name).where(
        due_at > now, due_at <= now + timedelta(seconds=within_seconds), _OPEN_RUN
    )
    if name:
        # One hint a run is kept, the earlier one.
        is_earlier = run.c.due_at.is_(None) | (run.c.due_at > due_at)
        wanted = wanted.join_from(step, run, run.c.id == step.c.run_id).where(is_earlier)
    if after is not None:
        wanted = wanted.where(tuple_(*key) > tuple(after))
    return tx.all(wanted.order_by(*key).limit(limit))


def _key_of(number: int, row: Mapping[str, Any]) -> str:
    names = [row["run_id"], *([row["name"]] if "name" in row else [])]
    return json.dumps([number, text_of_time(row["due_at"]), *names])


def _read_key(text: str) -> tuple[int, Sequence[Any]]:
    number, moment, *names = json.loads(text)
    return number, (time_of_text(moment), *names)
