"""Work one claimed step and store its outcome, fenced by attempt and claim (spec 5.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pikkuflow.domain.act import RunRef, StepOutcome
from pikkuflow.domain.ids import ClaimId
from pikkuflow.domain.run import Run
from pikkuflow.domain.step import Step
from pikkuflow.engine.break_off import is_outage
from pikkuflow.engine.end_attempt import Ending, Tried, ending_of
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import SOON_SECONDS, message_of, send_steps, wake_runs
from pikkuflow.engine.step_rows import given_to, options_of
from pikkuflow.engine.tell import warn
from pikkuflow.errors import StepSuperseded
from pikkuflow.ports import Attempted, AttemptEnd, StepWork

__all__ = ["settle", "work_claim"]

_HEAD_START_SECONDS: Final = 1.0
"""A limit counts from the message's arrival in the child, a little before its claim."""


def work_claim(rt: Runtime, run: Run, step: Step) -> bool:
    """Work a claimed step. True: the run wants a wake-up.

    An outcome that another attempt outdated is dropped with a warning (T7.8 to T7.10). A store outage is not a failure of the work: it is
    raised, and nothing is recorded in its place (spec 5.6).
    """
    return _Claimed(rt, run, step).work()


def settle(rt: Runtime, step: Step, ending: Ending) -> bool:
    """Store the end of a claimed attempt and send the next one. True: the run wants a wake-up.

    Raises ``StepSuperseded`` when another attempt owns the step; nothing was stored then.
    """
    outcome = StepOutcome(
        name=step.name,
        attempt=step.attempt,
        claim_id=step.claim_id or ClaimId(""),
        status=ending.status,
        result=ending.result,
        error=ending.error,
        delay_seconds=ending.delay_seconds,
        override=ending.override,
    )
    settlement = rt.store.settle_steps(step.run_id, [outcome])
    if not all(settlement.accepted):
        raise StepSuperseded(
            f"Attempt {step.attempt} of step {step.name!r} was outdated by another: its outcome was dropped.",
            step.name,
            step.attempt,
        )
    if not ending.is_last:
        _try_again(rt, step, ending)
    return settlement.wake


def _try_again(rt: Runtime, step: Step, ending: Ending) -> None:
    if ending.delay_seconds:
        rt.hints.leave(step.run_id, ending.delay_seconds)
        return
    message = message_of(rt, step, attempt=step.attempt + 1, override=ending.override)
    if not send_steps(rt, [message]):
        rt.hints.leave(step.run_id, SOON_SECONDS)


class _Claimed:
    def __init__(self, rt: Runtime, run: Run, step: Step) -> None:
        self._rt = rt
        self._run = run
        self._step = step
        self._is_told = False
        self._wakes = False
        self._began_at = rt.clock.monotonic()

    def work(self) -> bool:
        try:
            self._rt.runner.run(self._step_work(), self._commit)
        except StepSuperseded as error:
            warn(self._rt, str(error), run_id=self._run.id)
        except BaseException as error:
            if not (self._is_told or is_outage(error)):
                self._end_by(error)
                if isinstance(error, Exception):
                    return self._wakes
            # Its outcome is stored, or a service is away: either way it is not the work that failed.
            self._wake()
            raise
        return self._wakes

    def _end_by(self, error: BaseException) -> None:
        try:
            self._commit(Attempted(end=AttemptEnd.RAISED, error=self._limit_reached(error) or error))
        except StepSuperseded as late:
            warn(self._rt, str(late), run_id=self._run.id)

    def _limit_reached(self, error: BaseException) -> TimeoutError | None:
        """At its hard limit a child is told to end by ``SystemExit``, and may be quicker to write that than its parent is to say why."""
        limit = options_of(self._step).get("time_limit")
        worked_seconds = self._rt.clock.monotonic() - self._began_at
        if not isinstance(error, SystemExit) or not limit or worked_seconds < float(limit) - _HEAD_START_SECONDS:
            return None
        return TimeoutError(f"the hard time limit of {float(limit):g} s was reached")

    def _wake(self) -> None:
        if self._wakes:
            wake_runs(self._rt, [RunRef(id=self._run.id, workflow=self._run.workflow)])

    def _commit(self, attempted: Attempted) -> bool:
        self._is_told = True
        step = self._step
        tried = Tried(
            step=step.name,
            attempt=step.attempt,
            retries=step.retries,
            retry_delay=step.retry_delay,
        )
        ending = ending_of(self._rt, tried, attempted)
        self._wakes = settle(self._rt, step, ending)
        return ending.answer_to(attempted)

    def _step_work(self) -> StepWork:
        step, run = self._step, self._run
        given = given_to(self._rt, run.id, step, step.override)
        return StepWork(
            run_id=run.id,
            step=step.name,
            workflow=run.workflow,
            owner=run.owner,
            task=step.task or "",
            args=given.args,
            kwargs=given.kwargs,
            attempt=step.attempt,
            attempts_allowed=step.attempts_allowed,
            options=self._options(),
            wire=run.wire,
            from_step=step.from_step,
        )

    def _options(self) -> Mapping[str, object]:
        options = options_of(self._step)
        if self._step.override is None:
            return options
        return {**options, **(self._rt.codec.decode(self._step.override).get("options") or {})}
