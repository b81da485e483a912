"""What a step, a start, a member and a sleep cost, counted by the servers: a change that raises one of these fails (issue C, Build 5).

Costs of one step or member are the slope between a short and a long run; what is left is the run's own. Everything that users get by
default is on: retries, leases, fences, history.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from pikkuflow import Call
from pikkuflow.engine.fire_timer import fire_due
from tests.integration.counts.conftest import Counted
from tests.integration.counts.meter import Cost, Meter
from tests.servers.processes import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.redis]


def warm(meter: Meter, *acts: Callable[[], Any]) -> None:
    """Open connections, let Redis know the scripts and PostgreSQL the statements."""
    for act in acts * 2:
        act()
        meter.work()


def slope(meter: Meter, start: Callable[[int], Any], few: int, many: int) -> tuple[Cost, Cost]:
    """The cost of one more step, and of a run beside its steps."""
    warm(meter, lambda: start(few))
    short, long = (meter.cost(lambda count=count: start(count)) for count in (few, many))  # type: ignore[misc]
    one = (long - short) / (many - few)
    rest = short - Cost(**{name: getattr(one, name) * few for name in Cost.__dataclass_fields__})
    return one, rest


def test_a_step_in_place_is_one_statement_and_one_commit(counted: Counted) -> None:
    """Design 2: no message, no lease, no read; a run adds its start, opening and end, whose pairs are one commit each."""
    step, run = slope(counted.meter, counted.here.start, 5, 25)
    assert step.is_within(Cost(statements=1, commits=1, wal_syncs=1))
    assert run.is_within(Cost(statements=5, commits=3, wal_syncs=3, messages=1, redis=3))


def test_a_step_on_a_worker_is_one_message_and_five_commits(counted: Counted) -> None:
    """Design 2: one hop: claim and outcome, then the opening of a pass, the row of the next step, the closing; three wait for the disk."""
    step, _ = slope(counted.meter, counted.there.start, 5, 25)
    assert step.is_within(Cost(statements=6, commits=5, wal_syncs=3, messages=1, redis=2))


def test_a_member_is_a_claim_and_an_outcome(counted: Counted) -> None:
    """Design 2: one multi-row insert for all, one wake-up at the end."""
    member, run = slope(counted.meter, lambda count: counted.fan.start(count, 1), 10, 60)
    assert member.is_within(Cost(statements=2, commits=2, wal_syncs=2, messages=1))
    assert run.is_within(Cost(statements=9, commits=6, wal_syncs=5, messages=1, redis=5))


def test_members_of_a_chunk_share_message_and_claim(counted: Counted) -> None:
    """Design 2: ten members to a message are one claim and ten outcomes."""
    member, _ = slope(counted.meter, lambda count: counted.fan.start(count, 10), 20, 120)
    assert member.is_within(Cost(statements=1.1, commits=1.1, wal_syncs=1.1, messages=0.1))


def test_a_start_is_one_statement_and_one_message(counted: Counted) -> None:
    """Design 2: fifty together are still one statement, one commit and one message."""
    meter = counted.meter
    calls = [Call((1,)) for _ in range(50)]
    acts = (lambda: counted.here.start(1), lambda: counted.here.start_many(calls))
    warm(meter, *acts)
    one, fifty = (meter.started(act) for act in acts)
    assert one.is_within(Cost(statements=1, commits=1, wal_syncs=1, messages=1))
    assert fifty.is_within(Cost(statements=1, commits=1, wal_syncs=1, messages=1))


def test_a_sleep_costs_a_pass_and_no_message_of_its_own(counted: Counted) -> None:
    """Design 4: a row and its end, the closing and the opening of a pass; a hint, and the wake-up that the hint becomes."""
    meter = counted.meter

    def nap(times: int) -> None:
        run = counted.nap.start(times)

        def is_over() -> bool:
            meter.work()
            if run.status().status == "completed":
                return True
            time.sleep(0.01)
            fire_due(meter.runtime)
            return False

        wait_until(is_over, every=0)

    warm(meter, lambda: nap(1))
    asked = meter.cost(lambda: nap(6)) - meter.cost(lambda: nap(1))
    assert asked.messages == 5
    assert asked.wal_syncs <= 5 * 4
