"""Work one claimed step and store its outcome, fenced by attempt and claim (spec 5.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pikkuflow.domain.act import RunRef, StepOutcome
from pikkuflow.domain.ids import ClaimId
from pikkuflow.domain.run import Run
from pikkuflow.domain.step import Step
from pikkuflow.engine.beat import beat_of, details_of
from pikkuflow.engine.break_off import is_outage
from pikkuflow.engine.end_attempt import Ending, Tried, ending_of
from pikkuflow.engine.graph_steps import node_step
from pikkuflow.engine.outlast import outlast
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import SOON_SECONDS, message_of, send_steps, wake_runs
from pikkuflow.engine.step_rows import given_to, options_of
from pikkuflow.engine.tell import warn
from pikkuflow.engine.unstarted import Unstarted, give_back
from pikkuflow.errors import PayloadError, StepSuperseded, StoreUnavailable
from pikkuflow.ports import Attempted, AttemptEnd, StepWork

__all__ = ["settle", "work_claim"]

_HEAD_START_SECONDS: Final = 1.0
"""A limit counts from the message's arrival in the child, a little before its claim."""


def work_claim(rt: Runtime, run: Run, step: Step, unstarted: Unstarted) -> bool:
    """Work a claimed step. True: the run wants a wake-up.

    ``unstarted`` is what its message claimed besides. When the process is told to end, that is given back first: there may be time for no
    more, and a row that is still running then is the one that was at work (``fail_claim``).

    An outcome that another attempt outdated is dropped with a warning (T7.8 to T7.10). An outage of the store or of a codec hook is not a
    failure of the work: the outcome is tried until it is stored. A worker that has been stopping for 10 s raises it, and nothing is
    recorded in its place (spec 5.6).
    """
    return _Claimed(rt, run, step, unstarted).work()


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
    def __init__(self, rt: Runtime, run: Run, step: Step, unstarted: Unstarted) -> None:
        self._rt = rt
        self._unstarted = unstarted
        self._run = run
        self._step = step
        self._is_told = False
        self._ending: Ending | None = None
        self._wakes = False
        self._began_at = rt.clock.monotonic()
        self._node = node_step(rt, run, step.name, options_of(step))

    def work(self) -> bool:
        try:
            self._rt.runner.run(self._read(), self._commit)
        except StepSuperseded as error:
            warn(self._rt, str(error), run_id=self._run.id)
        except BaseException as error:
            if not isinstance(error, Exception):
                self._unstarted.give_back()
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
        ending = outlast(
            self._rt,
            lambda: self._store(attempted),
            what=f"Storing the outcome of step {self._step.name!r}",
            run_id=self._run.id,
            is_outage=lambda error: self._ending is None or is_outage(error),
        )
        return ending.answer_to(attempted)

    def _store(self, attempted: Attempted) -> Ending:
        """Encode the outcome, then write it. Until it is encoded, what is raised is a codec hook's: what cannot be stored is an ending."""
        step = self._step
        tried = Tried(
            run_id=step.run_id,
            step=step.name,
            attempt=step.attempt,
            retries=step.retries,
            retry_delay=step.retry_delay,
        )
        if self._ending is None:
            if self._node is not None and (said := self._node.said):
                attempted = replace(attempted, said=said)
            self._ending = ending_of(self._rt, tried, attempted)
        self._wakes = settle(self._rt, step, self._ending)
        return self._ending

    def _read(self) -> StepWork:
        """The work with its arguments. A worker that stops before they can be read gives the step back: it was never begun."""
        try:
            return outlast(
                self._rt,
                self._step_work,
                what=f"Reading the arguments of step {self._step.name!r}",
                run_id=self._run.id,
                is_outage=lambda _error: True,
            )
        except PayloadError:
            raise
        except Exception as error:
            give_back(self._rt, [self._step])
            raise StoreUnavailable(
                f"The arguments of step {self._step.name!r} cannot be read now: {error!r}"
            ) from error

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
            details=details_of(self._rt, step.details),
            beat=beat_of(self._rt, run.id, step, step.attempt),
            node=self._node,
        )

    def _options(self) -> Mapping[str, object]:
        options = options_of(self._step)
        if self._step.override is None:
            return options
        return {**options, **(self._rt.codec.decode(self._step.override).get("options") or {})}
