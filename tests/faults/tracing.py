"""What only tests switch on, by environment variables: wall clocks that are wrong, and a record of who held which run.

A worker's application calls ``install`` before anything else happens; without the variables it does nothing.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

from celery import Celery, signals

from pikkuflow.adapters.celery.workflow_task import WorkflowTask
from pikkuflow.adapters.redis.leases import RedisLeases
from pikkuflow.adapters.sql.run_store import SqlRunStore
from pikkuflow.adapters.system_clock import SystemClock
from pikkuflow.domain.history import History
from tests.acceptance.apps.journal import note

CLOCK_OFFSET = "FAULTS_CLOCK_OFFSET"
"""Seconds that the wall clock of a process is ahead."""
TRACE = "FAULTS_TRACE"
"""Set: every taken and refused run lease and every open pass is written to the journal."""

MESSAGES = "FAULTS_MESSAGES"
"""Set: every message of pikkuflow's own that was handled is written to the journal, with how it ended."""

CLOCK_STANDS = "FAULTS_CLOCK_STANDS"
"""``wall``: the wall clock of a process shows the moment of its start for ever. ``all``: what it measures durations by as well."""

HANG_SWEEP = "FAULTS_HANG_SWEEP"
"""A path. Once that file is there, the next sweep for sleeps removes it and hangs while it holds its lease."""


def install() -> None:
    """Do what the environment asks for, in this process and the children it forks."""
    if offset := os.environ.get(CLOCK_OFFSET):
        _shift_clocks(float(offset))
    if stands := os.environ.get(CLOCK_STANDS):
        _stop_clocks(durations=stands == "all")
    if path := os.environ.get(HANG_SWEEP):
        _hang_sweep(Path(path))
    if os.environ.get(TRACE):
        _trace_leases()
        _trace_passes()
    if os.environ.get(MESSAGES):
        signals.task_postrun.connect(_note_message, weak=False)


def _note_message(sender: Any = None, task_id: str = "", retval: Any = None, state: str = "", **_: Any) -> None:
    if sender.name.startswith("pikkuflow."):
        note("handled", message=task_id, state=state, said=repr(retval))
    elif isinstance(sender, WorkflowTask):
        note("started", message=task_id, state=state, said=repr(retval))


def _shift_clocks(seconds: float) -> None:
    true_time, ahead = time.time, timedelta(seconds=seconds)

    def shifted_now(_: SystemClock) -> datetime:
        return datetime.now(UTC) + ahead

    def shifted_celery_now(app: Celery) -> datetime:
        zone: tzinfo = app.timezone
        return datetime.now(zone) + ahead

    replaced: list[tuple[Any, str, Any]] = [
        (time, "time", lambda: true_time() + seconds),
        (SystemClock, "now", shifted_now),
        (Celery, "now", shifted_celery_now),
    ]
    for owner, name, shifted in replaced:
        setattr(owner, name, shifted)


def _stop_clocks(*, durations: bool) -> None:
    began, began_at, measured = time.time(), datetime.now(UTC), time.monotonic()

    def standing_celery_now(app: Celery) -> datetime:
        return began_at.astimezone(app.timezone)

    stopped: list[tuple[Any, str, Any]] = [
        (time, "time", lambda: began),
        (SystemClock, "now", lambda _: began_at),
        (Celery, "now", standing_celery_now),
    ]
    if durations:
        stopped.append((SystemClock, "monotonic", lambda _: measured))
    for owner, name, standing in stopped:
        setattr(owner, name, standing)


def _hang_sweep(path: Path) -> None:
    look = SqlRunStore.sweep_scheduled

    def hanging(self: Any, request: Any) -> Any:
        try:
            path.unlink()
        except FileNotFoundError:
            return look(self, request)
        note("sweeping")
        time.sleep(3600)
        raise AssertionError("nobody killed the sweep")

    SqlRunStore.sweep_scheduled = hanging  # type: ignore[method-assign]


def _trace_leases() -> None:
    acquire, release = RedisLeases.acquire, RedisLeases.release

    def traced_acquire(self: Any, key: str, holder: str, ttl_seconds: float) -> Any:
        lease = acquire(self, key, holder, ttl_seconds)
        note("refused" if lease is None else "taken", key=key, holder=holder, token=lease and lease.token)
        return lease

    def traced_release(self: Any, lease: Any) -> bool:
        note("releasing", key=lease.key, holder=lease.holder, token=lease.token)
        released = release(self, lease)
        if not released:
            note("lost", key=lease.key, holder=lease.holder, token=lease.token)
        return released

    for name, traced in (("acquire", traced_acquire), ("release", traced_release)):
        setattr(RedisLeases, name, traced)


def _trace_passes() -> None:
    open_pass, close_pass = SqlRunStore.open_pass, SqlRunStore.close_pass

    def traced_open(self: Any, opening: Any) -> Any:
        history = open_pass(self, opening)
        if isinstance(history, History):
            note("opened", run=opening.run_id, **{"pass": opening.pass_id})
        return history

    def traced_close(self: Any, ref: Any, closing: Any) -> Any:
        note("closing", run=ref.run_id, **{"pass": ref.pass_id})
        return close_pass(self, ref, closing)

    for name, traced in (("open_pass", traced_open), ("close_pass", traced_close)):
        setattr(SqlRunStore, name, traced)
