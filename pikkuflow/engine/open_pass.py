"""One pass over a run while it is open: what it read, what it wrote, and the way to write.

Every write of a pass goes through here, so that four things hold everywhere: a fenced pass stops writing, a stopped run ends the pass
before the body sees more, a store that fails never looks like a failing step to the body (design 3.4), and outcomes that are kept are
written before anything else is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

from pikkuflow.domain.act import PassNews, PassRef, StepMessage, StepWrite
from pikkuflow.domain.command import StepCall
from pikkuflow.domain.definition import WorkflowDefinition
from pikkuflow.domain.gate_act import GateReached, GateVerdict
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.run import NewRun
from pikkuflow.domain.status import MISSING_CODE, SETTLED_RUN, Dispatch, RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import NewStep, Step, first_no
from pikkuflow.engine.kept_outcomes import KeptOutcomes
from pikkuflow.engine.runtime import Runtime
from pikkuflow.replay.park import Parked, ParkReason

__all__ = ["OpenPass", "WorkChild"]

WorkChild = Callable[[RunId], None]
"""Works a child run here and now, as far as it goes: how an inline run works its children."""

_OUTCOMES: Final = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.PENDING})


class OpenPass:
    """A pass that holds its run. ``works_child`` is given when the caller waits for the whole run (``run_inline``)."""

    is_light = False
    """Its opening may be forgotten by a server that dies: nothing may be worked in it yet."""
    expected: tuple[StepName, ...] = ()
    """Rows that it inserted lightly."""
    is_behind = False
    """The body may now rest on what has a later number than this pass gives (``first_no``): what begins from here on is the next pass's."""

    def __init__(
        self, rt: Runtime, history: History, definition: WorkflowDefinition | None, works_child: WorkChild | None = None
    ) -> None:
        self.rt = rt
        self.history = history
        self.run = history.run
        self.works_child = works_child
        self.ref = PassRef(run_id=history.run.id, pass_id=history.pass_id)
        self._is_quick = definition is not None and definition.quick
        self.wish = (definition and definition.dispatch) or Dispatch(rt.settings.dispatch)
        self.unwinds = history.run.status is RunStatus.COMPENSATING
        """It undoes its run; otherwise it works the body."""
        self.leaves_a_mark = False
        """It reached a call that an unwind has to know of."""
        self.is_lost = history.run.lost
        """A pass before this one ended unclosed and no in-place outcome followed (design 2)."""
        # Messages, and how many of them travel together, that leave once the closing write has ended the suspension.
        self.late: list[tuple[Sequence[StepMessage], int]] = []
        self.worked = 0
        self.has_in_flight = False
        """A call that the body has reached in this pass has no outcome yet."""
        self.sent: list[StepName] = []
        self.due_seconds: float | None = None
        """The earliest time at which another pass is worth it."""
        self.broken: BaseException | None = None
        """What ended the pass from below; the body must not see it."""
        self._kept = KeptOutcomes(self._store, rt.clock)
        self._opened_at = rt.clock.monotonic()
        self._no: int | None = None

    @property
    def resends(self) -> bool:
        """The run is suspended for code that was not there, until this pass is closed: what it had in flight may have been refused."""
        return self.run.code in MISSING_CODE

    # --- writing ----------------------------------------------------------------------------------------------------
    def record(self, write: StepWrite) -> PassNews:
        """Write one in-place row. Parks when the pass is fenced, or when a start met a stopped run."""
        news = self._seen(self._asked(lambda: self._kept.write(write)))
        if news is None:
            raise AssertionError("a write was not answered")
        return news

    def keep(self, write: StepWrite, *, began_at: float) -> PassNews | None:
        """Keep the outcome of a quick step that began at that ``monotonic``, and write what is kept when there is enough of it.

        None: nothing was written. Parks when the pass is fenced.
        """
        if not self._kept.add(write, began_at=began_at):
            return None
        return self._seen(self._asked(self._kept.write))

    def flush(self) -> None:
        """Write what is kept. Parks when the pass is fenced or the run was stopped."""
        news = self._seen(self._asked(self._kept.write))
        if news is not None:
            self.stop_if_told(news)

    def flush_aside(self) -> bool:
        """Write what is kept from another thread than the pass's, which hears of it later. False: it could not be written now."""
        return self._kept.write_aside()

    def flush_at_last(self) -> None:
        """Write what is kept if the store takes it, because the pass is broken off; else its steps are worked again."""
        try:
            self._kept.write_aside()
        finally:
            self._kept.drop()

    def take_kept(self) -> tuple[StepWrite, ...]:
        """What is kept, for the write that closes the pass."""
        kept = self._kept.take()
        self.worked += len(kept)
        return kept

    def keeps(self, call: StepCall) -> bool:
        """The author of the step, else of the workflow, has its outcomes kept."""
        if self.unwinds:
            return False
        return self._is_quick if call.quick is None else call.quick

    def insert(self, steps: Sequence[NewStep], *, joined: bool = False, lightly: bool = False) -> None:
        """Insert rows, all or none. Parks when the pass is fenced or the run stopped."""
        self.flush()
        store = self.rt.store
        self._seen([self._asked(lambda: store.insert_steps(self.ref, steps, joined=joined, lightly=lightly))])
        if lightly:
            self.expected += tuple([step.name for step in steps])

    def start_child(self, step: NewStep, child: NewRun, *, result: str | None = None) -> None:
        """Insert a child run and the row that it works. Parks when the pass is fenced or the run stopped."""
        self.flush()
        self._seen([self._asked(lambda: self.rt.store.start_child(self.ref, step, child, result=result))])

    def unwind_child(self, step: NewStep, child: RunId) -> None:
        """Have a completed child undo itself. Parks when the pass is fenced."""
        self._seen([self._asked(lambda: self.rt.store.unwind_child(self.ref, step, child))])

    def next_no(self) -> int:
        """The next number in the order of the run (``first_no``)."""
        if self._no is None:
            self._no = max(first_no(self.run.seen), *_known_nos(self.history.steps), 0)
            # What came as the pass opened, or was no news because a pass that died made its fan whole.
            self.is_behind = self.is_behind or self._no >= first_no(self.run.seen + 1)
        self._no += 1
        return self._no

    def begin_no(self) -> int:
        """``next_no`` for a row that begins. Parks when that is for the next pass to give."""
        no = self.next_no()
        if self.is_behind:
            raise Parked(ParkReason.YIELDED)
        return no

    def goes_on_after(self, row: Step) -> None:
        """The body is told of a row that settled elsewhere while this pass was open: what begins from here on may rest on it."""
        self._no = max(self.next_no(), row.settled_no or 0)

    def reach_gate(self, step: NewStep) -> GateReached:
        """Reach a gate. Parks when the pass is fenced or the run stopped."""
        self.flush()
        reached: GateReached | None = self._asked(lambda: self.rt.store.reach_gate(self.ref, step))
        self._seen([None if reached is None else reached.news])
        if reached is None:
            raise Parked(ParkReason.SUPERSEDED)
        return reached

    def settle_gate(self, verdict: GateVerdict) -> None:
        """Store what became of an approval's decisions. Parks when the pass is fenced or the run stopped."""
        news = self._seen([self._asked(lambda: self.rt.store.settle_gate(self.ref, verdict))])
        if news is not None:
            self.stop_if_told(news)

    def ask(self, question: Callable[[], Any]) -> Any:
        """Ask the store or the codec something whose failure is not the body's."""
        return self._asked(question)

    # --- ends -------------------------------------------------------------------------------------------------------
    def stop_if_told(self, news: PassNews) -> None:
        """Park when the run was stopped meanwhile: the outcome is recorded, the body sees no more (design 2)."""
        if self.unwinds != (news.status is RunStatus.COMPENSATING) or news.status in SETTLED_RUN:
            raise Parked(ParkReason.STOPPED)

    def yield_if_due(self) -> None:
        """Park between two steps when the pass has had its time, or the worker stops (design 2). An inline run goes on.

        So does it when the run's own time is over, inline or not: the end of the pass is the run's.
        """
        if self.is_overdue:
            raise Parked(ParkReason.YIELDED)
        if self.works_child is not None:
            return
        spent = self.rt.clock.monotonic() - self._opened_at
        if self.rt.is_stopping() or (self.worked and spent >= self.rt.settings.pass_seconds):
            raise Parked(ParkReason.YIELDED)

    def break_off(self, error: BaseException) -> NoReturn:
        """Leave the body for a reason that is not its own; the pass raises the error once the body is left."""
        self.broken = error
        raise Parked(ParkReason.WAITING)

    @property
    def may_undo(self) -> bool:
        """Whether a failing run goes through an unwind: something it began, here or before, can be undone."""
        return self.leaves_a_mark or any(map(_leaves_a_mark, self.history.steps))

    # --- remembering ------------------------------------------------------------------------------------------------
    def note_due(self, seconds: float | None) -> None:
        """Another pass is worth it in that time; the earliest counts."""
        if seconds is not None:
            self.due_seconds = seconds if self.due_seconds is None else min(seconds, self.due_seconds)

    @property
    def seconds_left(self) -> float | None:
        """Until the run's deadline. None: it has none, or is being undone, which takes the time that it takes."""
        run = self.run
        if self.unwinds or run.deadline_at is None:
            return None
        # By the database's clock alone: an opening's run was updated at the very moment of it.
        return (run.deadline_at - run.updated_at).total_seconds() - self.seconds_open()

    @property
    def is_overdue(self) -> bool:
        """The run's own time is over."""
        left = self.seconds_left
        return left is not None and left <= 0

    def seconds_open(self) -> float:
        """Since the pass opened."""
        return self.rt.clock.monotonic() - self._opened_at

    def _asked(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except Parked:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever the store raises, the body must not catch it
            self.break_off(error)

    def _store(self, writes: Sequence[StepWrite]) -> Sequence[PassNews | None]:
        """May be called by the watching thread, while it has what is kept to itself."""
        answers: Sequence[PassNews | None]
        if self.rt.writer is not None:
            answers = self.rt.writer.write([(self.ref, write) for write in writes])
        elif len(writes) == 1:
            answers = (self.rt.store.record(self.ref, writes[0]),)
        else:
            answers = self.rt.store.record_all([(self.ref, write) for write in writes])
        outcomes = sum(
            answer is not None and answer.written and write.status in _OUTCOMES
            for write, answer in zip(writes, answers, strict=True)
        )
        if any(answer is not None and answer.written for answer in answers):
            # It waited for the disk, and so for what was written before it.
            self.is_light = False
        if outcomes:
            self.is_lost = False
            self.worked += outcomes
        return answers

    @staticmethod
    def _seen(answers: Sequence[PassNews | None]) -> PassNews | None:
        """The last of the answers to what was written."""
        last = None
        for last in answers:
            if last is None:
                raise Parked(ParkReason.SUPERSEDED)
            if not last.written:
                raise Parked(ParkReason.STOPPED)
        return last


def _leaves_a_mark(row: Step) -> bool:
    """Also a row that waited when the pass opened: a worker may have taken it since."""
    if row.kind is StepKind.CHILD and not row.is_settled:
        return True
    return row.kind is StepKind.MILESTONE or (row.undo_task is not None and row.status is not StepStatus.CANCELLED)


def _known_nos(steps: Sequence[Step]) -> Iterator[int]:
    """The numbers of all that the body may rest on.

    The rows are read after the run is taken, so an outcome that came between is known, though it is news. A member's is not before its fan
    is whole: it raises no news, and the next outcome from elsewhere has the same number.
    """
    unfinished = {row.fan_id for row in steps if row.fan_id is not None and not row.is_settled}
    for row in steps:
        yield row.begun_no
        if row.settled_no is not None and row.fan_id not in unfinished:
            yield row.settled_no
