"""A run in memory for tests of replay: rows, an engine that works or leaves calls as a test likes, and jobs in place of tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from pikkuflow.adapters.schemas import schema_of
from pikkuflow.domain.command import PlannedCall, Reach, Recorded, StepCall, Waiting
from pikkuflow.domain.definition import WorkflowDefinition
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.gate import Schema
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import PassId, RunId, StepName
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import Step
from pikkuflow.replay.options import StepOptions
from pikkuflow.replay.outcome import Completed, Outcome
from pikkuflow.replay.recorder import recorded_failure
from pikkuflow.replay.replay import replay

MOMENT: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Job:
    """What a test hands to ``wf`` in place of a task's signature."""

    task: str
    args: tuple[Any, ...] = ()
    kind: StepKind = StepKind.TASK

    def __call__(self) -> Any:
        """Only there so that a type checker takes it for something that can be worked."""
        raise AssertionError("jobs are worked by the recording")


def job(task: str, *args: Any) -> Job:
    """A call of a task."""
    return Job(task, args)


def task(name: str) -> Callable[[Any], Any]:
    """A task for ``wf.map``."""

    def member(item: Any) -> Any:
        raise AssertionError("jobs are worked by the recording")

    member.__name__ = name
    return member


class JobTranslator:
    """Reads jobs and functions."""

    def __call__(self, what: Any, name: str | None, options: StepOptions) -> StepCall:
        """The call of a job or a function."""
        if isinstance(what, Job):
            return StepCall(
                name=name or what.task, kind=what.kind, task=what.task, args=what.args, retries=options.retries
            )
        return StepCall(name=name or what.__name__, kind=StepKind.FUNCTION, function=what, retries=options.retries)

    def schema(self, schema: Any) -> Schema:
        """As the application has it."""
        return schema_of(schema)

    def member(self, task: Any, item: Any) -> Any:
        """A job of the task's name."""
        return Job(task.__name__, (item,))


@dataclass
class Recording:
    """A run's rows, and an engine over them.

    Lone calls are worked at once, unless their task is in ``elsewhere``; calls reached together are in flight until ``settle`` is called.
    ``works`` gives what a task returns, or the exception that it fails with; tasks that are not there return their arguments. ``natives``
    are the engine's own answers, by step.
    """

    body: Callable[..., Any]
    args: tuple[Any, ...] = ()
    works: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    elsewhere: frozenset[str] = frozenset()
    natives: Mapping[str, Any] = field(default_factory=dict)
    rows: dict[StepName, Step] = field(default_factory=dict)
    reaches: list[Reach] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    decoded: list[str] = field(default_factory=list)
    refuse: Callable[[Reach], None] = lambda _reach: None

    def pass_once(self, body: Callable[..., Any] | None = None) -> Outcome:
        """One pass over the rows that are there."""
        definition = WorkflowDefinition(name="shop.order", body=body or self.body, version="1")
        steps = tuple(sorted(self.rows.values(), key=lambda row: row.seq))
        history = History(pass_id=PassId("p"), run=self._run(), steps=steps)
        return replay(
            definition,
            history,
            perform=self._perform,
            translate=JobTranslator(),
            decode=self._decode,
            warn=self.warnings.append,
        )

    def run_to_end(self) -> Any:
        """Passes until the body has returned; after each, everything in flight settles in order."""
        for _ in range(1000):
            outcome = self.pass_once()
            if isinstance(outcome, Completed):
                return outcome.value
            open_names = self.in_flight()
            assert open_names, outcome
            for name in open_names:
                self.settle(name)
        raise AssertionError("the run does not end")

    def in_flight(self) -> list[StepName]:
        """The rows without an outcome, in order."""
        return [row.name for row in sorted(self.rows.values(), key=lambda row: row.seq) if not row.is_settled]

    def settle(self, name: str) -> None:
        """Work a row that is in flight."""
        row = self.rows[StepName(name)]
        args = json.loads(row.args or "[]")
        self.rows[row.name] = self._worked(row, lambda: self._result_of(row.task or "", args))

    def identities(self) -> list[tuple[int, str, str | None]]:
        """Place, name and predecessor of every row."""
        return sorted((row.seq, str(row.name), row.from_step) for row in self.rows.values())

    def names(self) -> list[str]:
        """The names of the rows, by place."""
        return [name for _, name, _ in self.identities()]

    def reached(self) -> list[list[str]]:
        """The names of the calls of each reach."""
        return [[str(call.name) for call in reach.calls] for reach in self.reaches]

    def _perform(self, reach: Reach) -> tuple[Recorded | Waiting, ...]:
        self.refuse(reach)
        self.reaches.append(reach)
        return tuple(self._reach(planned, together=reach.together) for planned in reach.calls)

    def _reach(self, planned: PlannedCall, *, together: bool) -> Recorded | Waiting:
        call = planned.call
        row = planned.row or _row(planned)
        # A row says where its step is worked; only a new one may be worked here.
        stays = planned.row is None and not together and call.task not in self.elsewhere
        if call.kind in {StepKind.TASK, StepKind.CHILD} and stays:
            row = self._worked(row, lambda: self._result_of(call.task or "", list(call.args)))
        elif call.kind in {StepKind.FUNCTION, StepKind.STATE}:
            row = self._worked(row, call.function or (lambda: self.natives[planned.name]))
        self.rows[row.name] = row
        return self._answer(row)

    def _answer(self, row: Step) -> Recorded | Waiting:
        if not row.is_settled:
            return Waiting()
        if row.status is StepStatus.SUCCEEDED:
            return Recorded(value=json.loads(row.result or "null"))
        return Recorded(failure=recorded_failure(row), attempts=row.attempt)

    def _result_of(self, name: str, args: list[Any]) -> Any:
        work = self.works.get(name)
        return args if work is None else work(*args)

    def _worked(self, row: Step, work: Callable[[], Any]) -> Step:
        try:
            value = work()
        except Exception as error:  # noqa: BLE001 - whatever a job raises is its failure
            failure = Failure(type=type(error).__name__, message=str(error), code=getattr(error, "code", None))
            return replace(row, status=StepStatus.FAILED, error=failure)
        return replace(row, status=StepStatus.SUCCEEDED, result=json.dumps(value))

    def _decode(self, text: str) -> Any:
        self.decoded.append(text)
        return json.loads(text)

    def _run(self) -> Run:
        return Run(
            id=RunId("order-42"),
            workflow="shop.order",
            version="1",
            status=RunStatus.RUNNING,
            inline=False,
            input=json.dumps({"args": list(self.args), "kwargs": {}}),
            output=None,
            error=None,
            code=None,
            owner="u1",
            wire="{}",
            planned_steps=None,
            deterministic=False,
            news=1,
            seen=1,
            pass_id=PassId("p"),
            pass_holder=None,
            pass_until=None,
            lost=False,
            passes_lost=0,
            due_at=None,
            timeout_seconds=None,
            deadline_at=None,
            parent=None,
            handover=None,
            delivered_at=None,
            created_at=MOMENT,
            updated_at=MOMENT,
            finished_at=None,
        )


def _row(planned: PlannedCall) -> Step:
    call = planned.call
    return Step(
        run_id=RunId("order-42"),
        name=planned.name,
        seq=planned.seq,
        kind=call.kind,
        task=call.task,
        args=json.dumps(list(call.args)),
        status=StepStatus.PENDING,
        result=None,
        error=None,
        attempt=1,
        retries=0,
        retry_delay="0",
        place="pass:p",
        queue=None,
        options="{}",
        claim_id=None,
        lease_seconds=60.0,
        lease_until=None,
        due_at=None,
        due_in_seconds=None,
        is_due=True,
        is_lapsed=False,
        is_expired=False,
        sent_at=None,
        override=None,
        child_run_id=None,
        fan_id=None,
        from_step=planned.from_step,
        group=call.group,
        author="p",
        created_at=MOMENT,
        running_at=None,
        scheduled_at=None,
        settled_at=None,
    )
