"""Long sleeps and long steps hold nothing: no message, no connection of the engine's, no lease that lapses (scenarios 02 and 39)."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from pikkuflow.adapters.redis import redis_url_of
from tests.acceptance.deployment import Deployment
from tests.faults.site import LONG, attempts_begun, wait_for_steps
from tests.faults.tracing import TRACE
from tests.servers.processes import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


def _messages(deployment: Deployment) -> dict[str, int]:
    url = redis_url_of(deployment.broker_url)
    assert url is not None
    with Redis.from_url(url) as client:
        return {"queued": int(client.llen("celery")), "unacked": int(client.hlen("unacked"))}


def test_a_sleep_of_three_visibility_timeouts_is_woken_once(deployment: Deployment) -> None:
    """Scenario 02: three workers idle meanwhile; the broker holds no message for it; two passes in all, the first and one that wakes."""
    deployment.processes.env.update(FAULTS_VISIBILITY="5")
    for number in range(3):
        deployment.worker("faulty", name=f"idle{number}", concurrency=1, env={TRACE: "1"})
    run = deployment.load("faulty").sleeper.start(15.0)
    wait_for_steps(run, "before", "nap")
    wait_until(lambda: not any(_messages(deployment).values()), seconds=2, what=lambda: str(_messages(deployment)))
    seen: list[dict[str, int]] = []

    def is_over() -> bool:
        if not (ended := run.head().completed_at is not None) and len(deployment.journal("opened", run=run)) == 1:
            seen.append(_messages(deployment))
        return ended

    wait_until(is_over, seconds=LONG, every=0.2)
    # Of all that was seen in these fifteen seconds the last may be the wake-up itself.
    assert len(seen) > 10
    assert not any(any(counts.values()) for counts in seen[:-1]), seen
    assert len(deployment.journal("opened", run=run)) == 2
    assert [line["step"] for line in deployment.journal("begun", run=run)] == ["before", "after"]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
@pytest.mark.parametrize("options", [{"record_start": True}, {"dispatch": "queue"}], ids=["in-place", "dispatched"])
def test_a_step_in_a_transaction_of_its_own_keeps_its_lease(
    deployment: Deployment, options: dict[str, Any], pool: str
) -> None:
    """Scenario 39, first half: it blocks in the same database for five leases; renewal has a thread and a connection of its own."""
    deployment.processes.env.update(PIKKUFLOW_RUN_LEASE_SECONDS="2", PIKKUFLOW_STEP_LEASE_SECONDS="2")
    deployment.worker("faulty", name="holds", pool=pool)
    deployment.worker("faulty", name="looks")
    deployment.beat("faulty")
    run = deployment.load("faulty").one.start("faulty.hold_transaction", 10.0, **options)
    run.result(timeout=LONG)
    assert attempts_begun(deployment, run) == [1]
