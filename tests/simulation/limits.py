"""What the ledger knows of times that are over: of attempts (``timeout=``, ``heartbeat_timeout=``) and of whole runs (issue D, Build 7).

Only the database's clock says when one is over, here as there; an attempt that its pass works in place is measured by its process alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from pikkuflow.adapters.memory.tables import RunRow, Tables
from pikkuflow.domain import loss
from pikkuflow.domain.act import Claims, PassNews, PassRef, StepWrite, Swept
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import OPEN_RUN, RunStatus
from pikkuflow.domain.stop import Beat, StepStanding
from pikkuflow.engine.sweep import SweepKind
from tests.simulation.scheduler import Actor
from tests.simulation.stage import Stage

__all__ = ["RUN_TIMEOUT", "Limits"]

RUN_TIMEOUT: Final = "RUN_TIMEOUT"
_STEP_TIMEOUT: Final = "STEP_TIMEOUT"
_HEARTBEAT_TIMEOUT: Final = "HEARTBEAT_TIMEOUT"
_ROUNDED: Final = timedelta(milliseconds=1)

_Key = tuple[str, str, int]
"""Run, step and attempt."""


class Limits:
    """Those of one schedule. ``broken`` makes a violation out of an invariant and what breaks it."""

    def __init__(self, stage: Stage, tables: Tables, broken: Callable[[str, str], Exception]) -> None:
        self._stage = stage
        self._tables = tables
        self._broken = broken
        self.ended: dict[_Key, str] = {}
        """What was said of attempts that were ended because their time was over."""
        self.timed_out: set[RunId] = set()
        """Runs that were stopped because their time was over."""
        self._signs: dict[_Key, list[datetime]] = {}
        """When an attempt was claimed, and when it gave a heartbeat."""
        self._looked: dict[Actor, datetime] = {}
        """When a sweeper began to look for what is due."""
        self._checks: dict[str, Callable[[Any, Any], None]] = {
            "claim_steps": self._claimed,
            "beat": self._beaten,
            "record": lambda args, answer: self._written([args], [answer]),
            "record_all": lambda args, answers: self._written(args[0], answers),
            "sweep_scheduled": self._looks,
            "note_sweep": self._swept,
        }

    def after(self, op: str, args: tuple[Any, ...], answer: Any) -> None:
        """An act has happened."""
        check = self._checks.get(op)
        if check is not None:
            check(args, answer)

    def moved(self, run: RunRow, was: RunStatus) -> None:
        """A run has another status: no time-out before its deadline, no success after it (where nothing keeps its last write back)."""
        now, deadline = self._tables.clock.now(), run.deadline_at
        is_stopped = was in OPEN_RUN and run.status not in OPEN_RUN
        if is_stopped and run.error is not None and run.error == loss.run_timed_out(run.timeout_seconds):
            if deadline is None or now + _ROUNDED < deadline:
                raise self._broken("a run is ended by its time when that is over", f"{run.id}: {deadline}")
            self.timed_out.add(run.id)
        is_late = deadline is not None and deadline + _ROUNDED < now
        if is_stopped and run.status is RunStatus.COMPLETED and is_late and not self._stage.is_disturbed:
            raise self._broken("a run that took too long has failed", f"{run.id}: it completed after {deadline}")

    # --- attempts ---------------------------------------------------------------------------------------------------
    def _claimed(self, args: tuple[Any, ...], answer: Claims) -> None:
        for step in answer.claimed:
            key = (args[0].run_id, step.name, step.attempt)
            # One that was given back is claimed anew.
            if step.running_at is not None and self._signs.get(key, [None])[0] != step.running_at:
                self._signs[key] = [step.running_at]

    def _beaten(self, args: tuple[Any, ...], answer: StepStanding) -> None:
        beat: Beat = args[0]
        signs = self._signs.get((beat.run_id, beat.step, beat.attempt))
        if signs is not None and beat.lives and answer is not StepStanding.OUTDATED:
            signs.append(self._tables.clock.now())

    def _written(self, writes: Sequence[tuple[PassRef, StepWrite]], answers: Sequence[PassNews | None]) -> None:
        for (ref, write), answer in zip(writes, answers, strict=True):
            if answer is None or not answer.written:
                continue
            if write.ended is not None:
                self._ends((ref.run_id, write.step.name, write.ended.attempt), write.ended.error)
            self._ends((ref.run_id, write.step.name, write.attempt), write.error)

    def _ends(self, key: _Key, error: Failure | None) -> None:
        """A pass ends an attempt of somebody else: it must have taken, or been silent for, as long as is said."""
        if error is None or error.code not in {_STEP_TIMEOUT, _HEARTBEAT_TIMEOUT}:
            return
        row = self._tables.steps_of(RunId(key[0]))[key[1]]  # type: ignore[index]
        signs, now = self._signs.get(key, []), self._tables.clock.now()
        is_stopped = self._tables.runs[RunId(key[0])].status not in OPEN_RUN
        if is_stopped and not signs and self.ended.get((*key[:2], key[2] - 1)) == error.message:
            # A retry that its run's end came before has the failure of the attempt that was the last to begin.
            return
        is_silence = error.code == _HEARTBEAT_TIMEOUT
        limit = row.heartbeat_seconds if is_silence else row.timeout_seconds
        # It may have given a sign since the pass looked: then it was silent before that.
        spans = pairwise([*signs, now]) if is_silence else [(sign, now) for sign in signs[:1]]
        longest = max((after - before for before, after in spans), default=timedelta())
        if limit is None or longest + _ROUNDED < timedelta(seconds=limit):
            raise self._broken("an attempt is ended by its time when that is over", f"{key}: {longest}, {error}")
        self.ended[key] = error.message

    # --- sweeps -----------------------------------------------------------------------------------------------------
    def _looks(self, _args: tuple[Any, ...], _answer: Swept) -> None:
        self._looked.setdefault(self._stage.scheduler.current, self._tables.clock.now())

    def _swept(self, args: tuple[Any, ...], _answer: None) -> None:
        if args[0] != SweepKind.SCHEDULED:
            return
        looked = self._looked.pop(self._stage.scheduler.current, None)
        if looked is None:
            return
        for run in self._tables.runs.values():
            if run.status in OPEN_RUN and run.deadline_at is not None and run.deadline_at <= looked:
                raise self._broken("a sweep ends what took too long", f"{run.id} goes on after {run.deadline_at}")
