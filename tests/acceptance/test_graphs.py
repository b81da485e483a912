"""Graph runs on real workers with PostgreSQL, their steps in place and dispatched."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.deployment import Deployment, attempts_of, step_of, steps_of, wait_for_status

pytestmark = pytest.mark.celery

LONG = 60.0
PLACES = {"": "pass", ".queue": "worker"}


@pytest.fixture(params=PLACES, ids=["in place", "dispatched"])
def ending(request: pytest.FixtureRequest) -> str:
    """What the names of the workflows end in whose steps are worked there."""
    return str(request.param)


def test_a_cycle_leaves_a_step_for_each_round(deployment: Deployment, ending: str) -> None:
    """V3, T13.6: three rounds, exact results and predecessors, one attempt each; the path back; the same rows inline."""
    deployment.worker("graphs_old")
    shop = deployment.load("graphs_old")
    rounds = shop.pikku.workflow_named(f"graphs.rounds{ending}")
    run = rounds.start()
    run.result(timeout=LONG)

    assert [(row.name, row.from_step) for row in steps_of(shop, run)] == [
        ("attempt", None),
        ("judge", "attempt"),
        ("attempt#1", "judge"),
        ("judge#1", "attempt#1"),
        ("attempt#2", "judge#1"),
        ("judge#2", "attempt#2"),
        ("done", "judge#2"),
    ]
    results = run.results()
    assert list(results.values()) == [1, "again", 2, "again", 3, "good", [3, "good"]]
    assert {row.attempt for row in steps_of(shop, run)} == {1}
    assert all(len(attempts_of(shop, run, name)) == 1 for name in results)
    assert {row.place.partition(":")[0] for row in steps_of(shop, run)} == {PLACES[ending]}
    assert _path_back(shop, run, "done") == list(reversed(results))
    assert _rows(shop, run) == _rows(shop, rounds.run_inline())
    assert _states(shop, run)[4] == {"attempt": 1, "judge": "again", "attempt#1": 2, "judge#1": "again"}


def _path_back(shop: Any, run: Any, last: str) -> list[str]:
    before: dict[str, str | None] = {row.name: row.from_step for row in steps_of(shop, run)}
    path = [last]
    while (step := before[path[-1]]) is not None:
        path.append(step)
    return path


def _states(shop: Any, run: Any) -> list[dict[str, Any]]:
    """What was settled at each moment of the run, from the numbers of its rows: the run as it was then (spec 10.2)."""
    settled = {str(row.name): row.settled_no or 0 for row in steps_of(shop, run)}
    results = run.results()
    return [
        {name: results[name] for name, when in settled.items() if when <= moment}
        for moment in [0, *sorted(settled.values())]
    ]


def _rows(shop: Any, run: Any) -> list[tuple[Any, ...]]:
    """What must be the same wherever a run is worked."""
    return [(row.name, row.status, row.attempt, row.args, row.result, row.from_step) for row in steps_of(shop, run)]


@pytest.mark.slow
def test_a_node_that_fails_is_tried_as_often_as_it_says(deployment: Deployment, ending: str) -> None:
    """V2a, V2b, V2c, V2d, T13.11: for a node as for a function's step; one key over all attempts, and the effect once."""
    deployment.worker("graphs_old")
    shop = deployment.load("graphs_old")
    runs = {
        (name, attempt): shop.pikku.workflow_named(f"graphs.{name}{ending}").start(attempt=attempt)
        for name, attempt in (("tried", 3), ("once", 2), ("defaults", 3), ("defaults", 99))
    }
    executions = {("tried", 3): 3, ("once", 2): 1, ("defaults", 3): 3, ("defaults", 99): 6}
    for case, run in runs.items():
        wait_for_status(run, "completed", "failed", seconds=90)
        tried = deployment.journal("tried", run=run)
        assert [line["attempt"] for line in tried] == list(range(1, executions[case] + 1))
        assert len({line["key"] for line in tried}) == 1
        ended_well = case in {("tried", 3), ("defaults", 3)}
        assert run.status().status == ("completed" if ended_well else "failed")
        assert len(deployment.journal("effect", run=run)) == ended_well
        assert [row.status for row in attempts_of(shop, run, "work")][:-1] == ["failed"] * (executions[case] - 1)
        assert step_of(shop, run, "work").place.startswith(PLACES[ending])
