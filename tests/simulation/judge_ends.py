"""How each run must have ended: as its steps say, as whoever called it off wants, and undone as far as it can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pikkuflow.adapters.memory.tables import RunRow, Tables
from pikkuflow.domain import loss
from pikkuflow.domain.status import OPEN_RUN, RunStatus
from pikkuflow.domain.stop import CANCEL_CODE
from tests.simulation.expect import Expected
from tests.simulation.ledger import Ledger, Violation
from tests.simulation.limits import RUN_TIMEOUT
from tests.simulation.stops import Stops
from tests.simulation.undone import undone

__all__ = ["judge_end"]


def judge_end(run: RunRow, expected: Expected, tables: Tables, ledger: Ledger, decode: Callable[[str], Any]) -> None:
    """Check status, error and output of a run. Raises ``Violation``."""
    stops = ledger.stops
    if run.id in stops.called_off:
        _judge_called_off(run, tables, stops)
        status = RunStatus.CANCELLED
    elif run.id in ledger.limits.timed_out:
        _judge_timed_out(run)
        status = RunStatus.FAILED
    elif expected.called_off is not None:
        _judge_code(run, expected.called_off)
        status = RunStatus.CANCELLED
    elif expected.failed_step is not None:
        _judge_failed(run, expected.failed_step)
        status = RunStatus.FAILED
    else:
        _judge_completed(run, expected, tables, stops, decode)
        if run.id not in stops.undone:
            return
        # Its unwind went by what the parent's went by.
        status = RunStatus.CANCELLED if run.code == CANCEL_CODE else RunStatus.FAILED
    _judge_undone(run, status, expected, tables, decode)


def _judge_called_off(run: RunRow, tables: Tables, stops: Stops) -> None:
    """It was wanted, or it is called off with its parent."""
    above = None if run.parent is None else tables.runs[run.parent.run_id]
    if run.id not in stops.asked and (above is None or above.status in OPEN_RUN or above.status is RunStatus.COMPLETED):
        raise Violation("a child is called off with its parent", f"{run.id}: {above and above.status}")
    _judge_code(run, None)


def _judge_timed_out(run: RunRow) -> None:
    if run.code != RUN_TIMEOUT or run.error != loss.run_timed_out(run.timeout_seconds):
        raise Violation("a run whose time was over says so", f"{run.id} is {run.status} by {run.code}: {run.error}")


def _judge_code(run: RunRow, reason: str | None) -> None:
    is_said = run.error is not None and run.error.code == CANCEL_CODE and reason in {None, run.error.message}
    if run.code != CANCEL_CODE or not is_said:
        raise Violation("a run that was called off says so", f"{run.id} is {run.status} by {run.code}: {run.error}")


def _judge_failed(run: RunRow, step: str) -> None:
    if run.error is None or repr(step) not in run.error.message:
        raise Violation("a run fails by its step", f"{run.id} is {run.status} by {run.error}, not by {step}")


def _judge_completed(
    run: RunRow, expected: Expected, tables: Tables, stops: Stops, decode: Callable[[str], Any]
) -> None:
    output = decode(stops.outputs.get(run.id) or "null")
    is_right = run.status is RunStatus.COMPLETED or run.id in stops.undone
    if not is_right or output != expected.output:
        raise Violation(
            "results are as if run alone",
            f"{run.id} is {run.status} with {output} and {run.error}, not {expected.output}",
        )
    above = None if run.parent is None else tables.runs[run.parent.run_id]
    if run.id in stops.undone and (above is None or run.error != above.error):
        raise Violation("a child is undone by what its parent is undone by", f"{run.id}: {run.error}")


def _judge_undone(
    run: RunRow, status: RunStatus, expected: Expected, tables: Tables, decode: Callable[[str], Any]
) -> None:
    must = undone(run, tables, decode, expected.recovered)
    if must is None:
        if run.status is not status:
            raise Violation("a run ends as it was stopped", f"{run.id} is {run.status}, not {status}")
        return
    said = decode(run.output or "null") or {}
    stuck = frozenset(one["stepName"] for one in said.get("stuckSteps", ()))
    if (run.status, said.get("restedAt"), stuck) != (must.status, must.rested_at, must.stuck):
        raise Violation("a run is undone as far as it can be", f"{run.id} is {run.status} with {said}, not {must}")
