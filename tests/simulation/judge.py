"""What must hold once everything is quiet; and which function checks which invariant of spec 16.6.

=== ======================================================== ====================================================================
I1  one pass per run at any time                             ``Ledger._remember``
I2  one live attempt owner per step by the store's clock     ``Ledger._check_execution``, ``Ledger._claimed``
I3  attempts never exceed retries + 1, and a loss is counted ``Ledger._remember_step``, ``Ledger._check_execution``,
                                                             ``Ledger._given_back``, ``_judge_executions``
I4  a succeeded step is never executed again                 ``Ledger._check_execution``, ``Ledger._remember_step``
I5  no write by a superseded attempt                         ``Ledger._written``, ``Ledger._settled``, ``Ledger._renewed``
I6  a terminal run never changes                             ``Ledger._remember``
I7  nothing stays open for ever, and for no lack of messages ``World._advance``, ``Ledger._swept``, ``Clients._read``
I8  same inputs and rows, same plan                          ``Ledger._plans``, ``replays.check_replays``
I9  every executed attempt has a history row                 ``ledger.unknown_attempts``, called by ``judge``
I10 a compensation succeeds at most once                     there are no compensations yet
I11 lease and dispatch errors never become a run failure     ``_judge_failure``, ``_compare``
I12 a failing mirror, logger or sink never changes an outcome ``_compare`` and ``_judge_delivery``, in schedules whose observers and
                                                             loggers fail at every word (``Plan.deaf``), whose result backend is away
                                                             or refuses, and whose hints are lost
=== ======================================================== ====================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pikkuflow.adapters.memory.tables import RunRow, StepRow, Tables
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.errors import SignalTimeout, StepFailed
from tests.simulation.flow import Expected, expect, value_of
from tests.simulation.ledger import Execution, Ledger, Violation, unknown_attempts
from tests.simulation.plan import Part

__all__ = ["judge"]


def judge(
    workflows: Mapping[str, tuple[Part, ...]],
    tables: Tables,
    ledger: Ledger,
    decode: Callable[[str], Any],
) -> None:
    """Check the runs against what their workflows must come to, and the executions against what was recorded. Raises ``Violation``."""
    for run in tables.runs.values():
        _judge_run(run, workflows[run.workflow], tables, ledger, decode)
        _judge_delivery(run, ledger)
    missing = unknown_attempts(tables, list(ledger.starts))
    if missing:
        raise Violation("I9 every attempt that began is in the history", str(missing))
    _judge_executions(tables, ledger)


def _judge_run(
    run: RunRow, parts: tuple[Part, ...], tables: Tables, ledger: Ledger, decode: Callable[[str], Any]
) -> None:
    rows = tables.steps.get(run.id, {})
    for row in rows.values():
        _judge_step(run, row, tables, ledger, decode)

    if run.status is RunStatus.CANCELLED and run.parent is not None:
        above = tables.runs[run.parent.run_id]
        if above.status not in {RunStatus.FAILED, RunStatus.CANCELLED}:
            raise Violation("a child is called off with its parent", f"{run.id}: the parent is {above.status}")
        return

    def outcome(name: str) -> Any:
        row = rows.get(name)  # type: ignore[call-overload]
        if row is None or not row.is_settled:
            raise Violation("a run ends when its steps have", f"{run.id} is {run.status}, {name} is not settled")
        if row.status is StepStatus.SUCCEEDED:
            return decode(row.result or "null")
        raise StepFailed(f"{name} failed", run.id, name)

    expected = expect(run.id, run.workflow, parts, outcome)
    _compare(run, expected, list(rows), decode)
    state = {key: decode(text) for key, text in tables.states.get(run.id, {}).items()}
    if state != expected.state:
        raise Violation("a run's state is what it set", f"{run.id}: {state}, not {expected.state}")


def _judge_delivery(run: RunRow, ledger: Ledger) -> None:
    if (run.handover is not None) is not (ledger.deliveries.get(run.id, 0) > 0):
        raise Violation("an outcome is handed on", f"{run.id}, {ledger.deliveries.get(run.id, 0)} times")


def _compare(run: RunRow, expected: Expected, names: list[Any], decode: Callable[[str], Any]) -> None:
    if expected.failed_step is None:
        output = decode(run.output or "null")
        if run.status is not RunStatus.COMPLETED or output != expected.output:
            raise Violation(
                "results are as if run alone",
                f"{run.id} is {run.status} with {output} and {run.error}, not {expected.output}",
            )
        if sorted(names) != sorted(expected.steps):
            raise Violation("steps are as if run alone", f"{run.id} has {sorted(names)}, not {sorted(expected.steps)}")
    elif run.status is not RunStatus.FAILED or run.error is None or repr(expected.failed_step) not in run.error.message:
        raise Violation(
            "a run fails by its step", f"{run.id} is {run.status} by {run.error}, not by {expected.failed_step}"
        )


def _judge_step(run: RunRow, row: StepRow, tables: Tables, ledger: Ledger, decode: Callable[[str], Any]) -> None:
    where = f"{run.id} {row.name} attempt {row.attempt}"
    if row.status is StepStatus.SUCCEEDED and row.kind in {StepKind.TASK, StepKind.FUNCTION}:
        if decode(row.result or "null") != value_of(run.id, row.name):
            raise Violation("a result is the task's", f"{where}: {row.result}")
        if not any(done.ended and _is_of(done, row) for done in ledger.executions):
            raise Violation("a success was executed", where)
    if row.status is StepStatus.FAILED:
        _judge_failure(run, row, where, tables, ledger)


_STOPPED: Final = frozenset(
    {RunStatus.CANCELLED, RunStatus.COMPENSATING, RunStatus.COMPENSATED, RunStatus.COMPENSATION_FAILED}
)


def _judge_failure(run: RunRow, row: StepRow, where: str, tables: Tables, ledger: Ledger) -> None:
    error = row.error
    if error is None:
        raise Violation("a failure says why", where)
    if row.kind is StepKind.CHILD:
        child = tables.runs[row.child_run_id or RunId("")]
        # A run that fails calls off the children that are still at work.
        is_called_off = child.status is RunStatus.CANCELLED and run.status in {RunStatus.FAILED, RunStatus.CANCELLED}
        if child.status is not RunStatus.FAILED and not is_called_off:
            raise Violation("a child's failure is its run's", f"{where}: the child is {child.status}")
    elif row.kind is StepKind.SIGNAL:
        _judge_wait(error, where)
    elif error.code == "STEP_LEASE_EXPIRED":
        # An unwind pass takes what an earlier pass had in hand for failed, whatever attempts are left (design 3.7).
        is_spent = row.attempt > row.retries or run.status in _STOPPED
        if not is_spent or not ledger.is_loss_possible:
            raise Violation("a step is lost only with its process", f"{where} of {row.retries + 1}: {error.message}")
    elif error.message not in _reasons(row, run):
        raise Violation("I11 only a task's own failure fails it", f"{where}: {error.type}: {error.message}")


def _judge_wait(error: Failure, where: str) -> None:
    if error.code != SignalTimeout.code:
        raise Violation("a wait fails only by its time", f"{where}: {error.message}")


def _reasons(row: StepRow, run: RunRow) -> set[str]:
    """What a task says that fails; a retry that never began ends with its run, by what the attempt before it said (design 3.7)."""
    is_over = run.status is RunStatus.FAILED or run.status in _STOPPED
    return {f"attempt {row.attempt}", *([f"attempt {row.attempt - 1}"] if is_over else [])}


def _judge_executions(tables: Tables, ledger: Ledger) -> None:
    counts: dict[tuple[str, str], int] = {}
    for done in ledger.executions:
        key = (done.run_id, done.step)
        counts[key] = counts.get(key, 0) + 1
        row = tables.steps.get(done.run_id, {}).get(done.step)  # type: ignore[call-overload]
        if row is not None and row.retries == 0 and counts[key] > 1:
            raise Violation("retries=0 is executed once", f"{done.run_id} {done.step}")


def _is_of(done: Execution, row: StepRow) -> bool:
    return (done.run_id, done.step, done.attempt) == (row.run_id, row.name, row.attempt)
