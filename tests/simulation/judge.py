"""What must hold once everything is quiet; and which function checks which invariant of spec 16.6.

=== ======================================================== ====================================================================
I1  one pass per run at any time                             ``Ledger._remember``
I2  one live attempt owner per step by the store's clock     ``Ledger._check_execution``, ``Ledger._claimed``
I3  attempts never exceed retries + 1, and a loss is counted ``Ledger._remember_step``, ``Ledger._check_execution``,
                                                             ``Ledger._given_back``, ``_judge_executions``
I4  a succeeded step is never executed again                 ``Ledger._check_execution``, ``Ledger._remember_step``
I5  no write by a superseded attempt                         ``Ledger._written``, ``Ledger._settled``, ``Ledger._renewed``
I6  a terminal run never changes                             ``Stops.look`` (only a parent undoes a child that completed)
I7  nothing stays open for ever, and for no lack of messages ``World._advance``, ``Ledger._swept``, ``Clients._read``
I8  same inputs and rows, same plan                          ``Ledger._plans``, ``replays.check_replays``
I9  every executed attempt has a history row                 ``_unknown_attempts``
I10 a compensation succeeds at most once                     as any step (I4); what may be undone, and when: ``Stops._check_undo``; what
                                                             must have been in the end: ``undone``
I11 lease and dispatch errors never become a run failure     ``_judge_failure``, ``judge_end``
I12 a failing mirror, logger or sink never changes an outcome ``judge_end`` and ``_judge_delivery``, in schedules whose observers and
                                                             loggers fail at every word (``Plan.deaf``), whose result backend is away
                                                             or refuses, and whose hints are lost
--  times that are over, of attempts and of whole runs       ``Limits``, ``judge_in_time``, ``said_of_time``
=== ======================================================== ====================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pikkuflow.adapters.memory.tables import RunRow, StepRow, Tables
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.graph import Graph
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.errors import SignalTimeout, StepFailed
from tests.simulation.expect import Expected, Unreached, expect
from tests.simulation.flow import value_of
from tests.simulation.graphs import expect_graph, is_list
from tests.simulation.judge_ends import judge_end
from tests.simulation.judge_limits import judge_in_time, said_of_time
from tests.simulation.ledger import Execution, Ledger, Violation
from tests.simulation.plan import Part

__all__ = ["judge"]


def judge(
    workflows: Mapping[str, tuple[Part, ...]],
    tables: Tables,
    ledger: Ledger,
    decode: Callable[[str], Any],
    graphs: Mapping[str, Graph] | None = None,
) -> None:
    """Check the runs against what their workflows must come to, and the executions against what was recorded. Raises ``Violation``."""
    for run in tables.runs.values():
        graph = (graphs or {}).get(run.workflow)
        if graph is None:
            _judge_run(run, workflows[run.workflow], tables, ledger, decode)
        else:
            _judge_graph_run(run, graph, tables, ledger, decode)
        _judge_delivery(run, ledger)
    missing = _unknown_attempts(tables, list(ledger.starts))
    if missing:
        raise Violation("I9 every attempt that began is in the history", str(missing))
    _judge_executions(tables, ledger)


def _judge_run(
    run: RunRow, parts: tuple[Part, ...], tables: Tables, ledger: Ledger, decode: Callable[[str], Any]
) -> None:
    rows = tables.steps.get(run.id, {})
    for row in rows.values():
        _judge_step(run, row, tables, ledger, decode)

    is_stopped = ledger.stops.is_cut(run.id)

    def outcome(name: str) -> Any:
        row = rows.get(name)  # type: ignore[call-overload]
        if row is not None and row.status is StepStatus.SUCCEEDED:
            return decode(row.result or "null")
        if row is not None and row.status is StepStatus.FAILED:
            raise StepFailed(f"{name} failed", run.id, name)
        if is_stopped:
            raise Unreached(name)
        raise Violation("a run ends when its steps have", f"{run.id} is {run.status}, {name} has no outcome")

    expected = expect(run.id, run.workflow, parts, outcome)
    forward = [row.name for row in rows.values() if row.kind is not StepKind.COMPENSATION]
    _compare_steps(run, expected, forward, is_stopped=is_stopped)
    judge_end(run, expected, tables, ledger, decode)
    state = {key: decode(text) for key, text in tables.states.get(run.id, {}).items()}
    if state != expected.state:
        raise Violation("a run's state is what it set", f"{run.id}: {state}, not {expected.state}")


def _judge_graph_run(run: RunRow, graph: Graph, tables: Tables, ledger: Ledger, decode: Callable[[str], Any]) -> None:
    """As any run; what its steps lead to is said by a naive interpreter, and the lists of its nodes are those of their items."""
    rows = tables.steps.get(run.id, {})
    for row in rows.values():
        if not is_list(row):
            _judge_step(run, row, tables, ledger, decode)
        elif row.status is StepStatus.SUCCEEDED:
            items = [one for one in rows.values() if one.name.startswith(f"{row.name}[") and one.kind is StepKind.TASK]
            given = [decode(one.result or "null") for one in sorted(items, key=_index)]
            if decode(row.result or "null") != given:
                raise Violation("a list is what its items gave", f"{run.id} {row.name}: {row.result}, not {given}")
    expected = expect_graph(
        run, graph, rows, decode, is_cut=ledger.stops.is_cut(run.id), is_quick=ledger.stops.is_quick
    )
    judge_end(run, expected, tables, ledger, decode)


def _index(row: StepRow) -> int:
    return int(row.name.rpartition("[")[2].rstrip("]"))


def _compare_steps(run: RunRow, expected: Expected, names: list[Any], *, is_stopped: bool) -> None:
    """A run that failed may have left steps behind; one that was stopped has seen less than it could."""
    is_whole = not is_stopped and expected.failed_step is None and expected.called_off is None
    surplus = set(names) - set(expected.steps)
    if (is_whole and sorted(names) != sorted(expected.steps)) or (is_stopped and surplus):
        raise Violation("steps are as if run alone", f"{run.id} has {sorted(names)}, not {sorted(expected.steps)}")


def _judge_delivery(run: RunRow, ledger: Ledger) -> None:
    if (run.handover is not None) is not (ledger.deliveries.get(run.id, 0) > 0):
        raise Violation("an outcome is handed on", f"{run.id}, {ledger.deliveries.get(run.id, 0)} times")


def _judge_step(run: RunRow, row: StepRow, tables: Tables, ledger: Ledger, decode: Callable[[str], Any]) -> None:
    where = f"{run.id} {row.name} attempt {row.attempt}"
    is_work = row.kind in {StepKind.TASK, StepKind.FUNCTION, StepKind.COMPENSATION} and row.child_run_id is None
    if row.status is StepStatus.SUCCEEDED and is_work:
        if decode(row.result or "null") != value_of(run.id, row.name):
            raise Violation("a result is the task's", f"{where}: {row.result}")
        if not any(done.ended and _is_of(done, row) for done in ledger.executions):
            raise Violation("a success was executed", where)
    judge_in_time(row, ledger)
    if row.status is StepStatus.FAILED:
        _judge_failure(run, row, where, tables, ledger)


def _judge_failure(run: RunRow, row: StepRow, where: str, tables: Tables, ledger: Ledger) -> None:
    error = row.error
    if error is None:
        raise Violation("a failure says why", where)
    is_ended = run.id in ledger.stops.unwound or run.status in {RunStatus.FAILED, RunStatus.CANCELLED}
    is_over = is_ended and row.kind is not StepKind.COMPENSATION
    if row.child_run_id is not None:
        _judge_child(row, error, tables.runs[row.child_run_id], where)
    elif row.kind is StepKind.SIGNAL:
        _judge_wait(error, where)
    elif error.code == "STEP_LEASE_EXPIRED":
        # An unwind pass takes what an earlier pass had in hand for failed, whatever attempts are left (design 3.7).
        is_spent = row.attempt > row.retries or is_over
        is_unworked = is_over and not any(_is_of(done, row) for done in ledger.executions)
        if not is_spent or not ledger.is_loss_possible((run.id, row.name, row.attempt) if is_unworked else None):
            raise Violation("a step is lost only with its process", f"{where} of {row.retries + 1}: {error.message}")
    elif error.message not in _reasons(row, is_over=is_over) | said_of_time(row, ledger, is_over=is_over):
        raise Violation("I11 only a task's own failure fails it", f"{where}: {error.type}: {error.message}")


def _judge_wait(error: Failure, where: str) -> None:
    if error.code != SignalTimeout.code:
        raise Violation("a wait fails only by its time", f"{where}: {error.message}")


def _judge_child(row: StepRow, error: Failure, child: RunRow, where: str) -> None:
    """A child run that did not complete fails its step, by its own error; one that cannot be undone fails the step that undoes it."""
    if row.kind is StepKind.COMPENSATION:
        is_right = child.status is RunStatus.COMPENSATION_FAILED
    else:
        is_right = child.status is not RunStatus.COMPLETED and (child.error is None or child.error == error)
    if not is_right:
        raise Violation("a child's failure is its run's", f"{where}: {error.message}; the child is {child.status}")


def _reasons(row: StepRow, *, is_over: bool) -> set[str]:
    """What a task says that fails; a retry that never began ends with its run, by what the attempt before it said (design 3.7)."""
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


def _unknown_attempts(tables: Tables, starts: Sequence[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """Attempts that began and are in no history (I9)."""
    missing = []
    for run_id, step, attempt in starts:
        row = tables.steps.get(run_id, {}).get(step)  # type: ignore[call-overload]
        kept = (step, attempt) in tables.attempts.get(run_id, {})  # type: ignore[call-overload]
        if not kept and (row is None or row.attempt != attempt):
            missing.append((run_id, step, attempt))
    return missing
