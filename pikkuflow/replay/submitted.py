"""Calls that were submitted and not asked for yet.

A submit gives a call its name and place, and nothing more: calls gather in a buffer until something has to be durable or known, and then
leave together, so that a fan-out costs one insert and one publish (design 2).
"""

from __future__ import annotations

from collections.abc import Sequence

from pikkuflow.domain.command import PlannedCall, Reach, Recorded, StepCall, Waiting
from pikkuflow.domain.ids import StepName
from pikkuflow.replay.recorder import Recorder
from pikkuflow.replay.settled import step_error

__all__ = ["Buffer", "Submitted"]


class Submitted:
    """One submitted call: not reached yet, in flight, or with its outcome."""

    __slots__ = ("answer", "is_asked", "planned", "refusal")

    def __init__(self, planned: PlannedCall) -> None:
        self.planned = planned
        self.answer: Recorded | Waiting | None = None
        self.refusal: Exception | None = None
        """What the engine raised instead of taking the call."""
        self.is_asked = False

    @property
    def is_settled_in_history(self) -> bool:
        """Its row had an outcome when the pass opened."""
        row = self.planned.row
        return row is not None and row.is_settled


class Buffer:
    """The submitted calls of a pass, in call order."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._fresh: list[Submitted] = []
        self._all: list[Submitted] = []
        self._fork: StepName | None = None
        self._is_open = False

    def submit(self, call: StepCall) -> Submitted:
        """Name and place a call. Its predecessor is what came before the first of those it is submitted together with."""
        recorder = self._recorder
        if not self._is_open:
            # Also when all of them have settled already: a predecessor never depends on what is recorded.
            self._is_open = True
            self._fork = recorder.previous
        name = StepName(recorder.name_of(call.name))
        submitted = Submitted(recorder.place(call, name, self._fork))
        recorder.previous = name
        self._all.append(submitted)
        if not submitted.is_settled_in_history:
            self._fresh.append(submitted)
        return submitted

    def flush(self) -> None:
        """Reach everything that was submitted, because the body goes on with another call."""
        self._is_open = False
        if self._fresh:
            self._reach(self._take(), together=True)

    def outcome(self, submitted: Submitted) -> Recorded:
        """The outcome of one submitted call. A lone one is reached like ``do`` and may be worked in place."""
        self._reach_all()
        return self._answered(submitted)

    def join(self, wanted: Sequence[Submitted]) -> tuple[Recorded, ...]:
        """The outcomes of several, once all have settled.

        When nothing else waits for them, their common end is all that matters, and the run is woken once.
        """
        self._is_open = False
        members = {id(submitted) for submitted in wanted}
        fresh = {id(submitted) for submitted in self._fresh}
        if len(members) > 1 and all(one.is_settled_in_history or id(one) in fresh for one in wanted):
            taken = self._take()
            others = [one for one in taken if id(one) not in members]
            joined = [one for one in taken if id(one) in members]
            if others:
                self._reach(others, together=True)
            if joined:
                self._reach(joined, together=True, joined=True)
        else:
            self._reach_all()
        return self._answers(wanted)

    def drain(self) -> list[str]:
        """At the end of the body: wait for everything that was submitted, asked for or not. Returns the failures nobody asked about."""
        self._reach_all()
        run_id = self._recorder.run.id
        unasked = [one for one in self._all if not one.is_asked and one.refusal is None]
        outcomes = self._answers(unasked)
        return [
            str(step_error(run_id, one.planned.name, outcome.failure, outcome.attempts))
            for one, outcome in zip(unasked, outcomes, strict=True)
            if outcome.failure is not None
        ]

    def _take(self) -> list[Submitted]:
        taken, self._fresh = self._fresh, []
        return taken

    def _reach_all(self) -> None:
        self._is_open = False
        if self._fresh:
            taken = self._take()
            self._reach(taken, together=len(taken) > 1)

    def _reach(self, taken: list[Submitted], *, together: bool, joined: bool = False) -> None:
        reach = Reach(calls=tuple(one.planned for one in taken), together=together, joined=joined)
        try:
            answers = self._recorder.ask(reach)
        except Exception as refusal:
            for one in taken:
                one.refusal = refusal
            raise
        for one, answer in zip(taken, answers, strict=True):
            one.answer = answer

    def _answers(self, wanted: Sequence[Submitted]) -> tuple[Recorded, ...]:
        if any(isinstance(one.answer, Waiting) for one in wanted):
            raise self._recorder.parked()
        return tuple(self._answered(one) for one in wanted)

    def _answered(self, submitted: Submitted) -> Recorded:
        if submitted.refusal is not None:
            raise submitted.refusal
        answer = submitted.answer
        row = submitted.planned.row
        if answer is None and row is not None:
            answer = submitted.answer = self._recorder.recorded(row)
        if not isinstance(answer, Recorded):
            raise self._recorder.parked()
        submitted.is_asked = True
        return answer
