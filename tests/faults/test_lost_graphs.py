"""SIGKILL of the worker that works a node of a graph, in place and dispatched (spec 13.19 V6.3, 3.5)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.engine.sweep import SweepKind, sweep
from tests.acceptance.deployment import Deployment, attempts_of, step_of, steps_of
from tests.faults.site import LONG, keys_of
from tests.servers.processes import wait_until

pytestmark = pytest.mark.faults

ONLY_SWEEPS = {
    "PIKKUFLOW_STEP_LEASE_SECONDS": "3",
    "PIKKUFLOW_RUN_LEASE_SECONDS": "3",
    "PIKKUFLOW_STALLED_SECONDS": "0.01",
    "PIKKUFLOW_UNDISPATCHED_SECONDS": "0.01",
    "PIKKUFLOW_RECOVERY": "false",
}
"""Leases of 3 s, sweeps with threshold 0, and none but those that the test asks for."""


def _sweeps(shop: Any) -> bool:
    """The sweeps by hand; whether they drove anything."""
    kinds = (SweepKind.STALLED, SweepKind.UNDISPATCHED)
    return sum(bool(sweep(shop.pikku.runtime, kind)) for kind in kinds) > 0


@pytest.mark.parametrize("ending", ["", ".queue"], ids=["in place", "dispatched"])
def test_a_killed_machines_node_is_worked_by_another_after_its_lease(deployment: Deployment, ending: str) -> None:
    """V6 (V6.3): as V6.1 for a node: killed with its worker; only a sweep after the lapse brings it back; what was done stands."""
    deployment.processes.env.update(ONLY_SWEEPS)
    first = deployment.worker("graphs_old", name="first")
    shop = deployment.load("graphs_old")
    run = shop.pikku.workflow_named(f"graphs.hang{ending}").start(attempt=2)
    (begun,) = deployment.wait_for_journal("begun", run=run, seconds=LONG)
    first.kill_all()
    deployment.worker("graphs_old", name="second")
    assert len(deployment.journal("begun", run=run)) == 1
    wait_until(lambda: _sweeps(shop), what="the sweep after the lapse", seconds=LONG, every=0.2)
    run.result(timeout=LONG)

    results = run.results()
    (done,) = deployment.journal("done", run=run)
    assert results["work"] == {"attempt": 2, "pid": done["pid"]}
    assert done["pid"] != begun["pid"]
    assert results["after"] == [2]
    assert [(row.name, row.from_step, row.attempt) for row in steps_of(shop, run)] == [
        ("before", None, 1),
        ("work", "before", 2),
        ("after", "work", 1),
    ]
    assert [one.status for one in attempts_of(shop, run, "work")] == ["running", "succeeded"]
    assert step_of(shop, run, "work").place.startswith("worker:" if ending else "pass:")
    assert keys_of(deployment.journal("begun", run=run)) == {begun["key"]}
    assert [line["step"] for line in deployment.journal("worked", run=run)] == ["before", "after"]
