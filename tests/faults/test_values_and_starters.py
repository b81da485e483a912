"""Many who start one run, and values that cannot be stored (scenarios 06 and 48)."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from pikkuflow import RunFailed
from tests.acceptance.deployment import Deployment, step_of
from tests.faults.site import LONG, attempts_begun
from tests.servers.processes import wait_until

STARTER = """
import json, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tests.acceptance.apps.faulty import pikku, row
from pikkuflow import RunExists

gate, number = Path(sys.argv[1]), int(sys.argv[2])
pikku.runs.list(limit=1)
Path(f"{gate}.{number}").touch()
while not gate.exists():
    time.sleep(0.001)

def start(at):
    try:
        return ["started", row.start(number * 5 + at + 1, run_id="the-one").id]
    except RunExists as error:
        return ["exists", str(error)]

with ThreadPoolExecutor(5) as pool:
    print("ANSWER " + json.dumps(list(pool.map(start, range(5)))))
"""


@pytest.mark.faults
def test_fifty_starters_of_one_id_make_one_run(deployment: Deployment) -> None:
    """Scenario 06: fifty calls at once from ten processes, each with another input: one run with the winner's; the rest are told."""
    gate = deployment.folder / "gate"
    starters = [
        deployment.processes.program([sys.executable, "-c", STARTER, gate, str(number)], name=f"starter{number}")
        for number in range(10)
    ]
    for starter in starters:
        starter.start()
    wait_until(lambda: len(list(deployment.folder.glob("gate.*"))) == 10, seconds=120, what="ten starters")
    gate.touch()
    answers: list[tuple[int, str, str]] = []
    for number, starter in enumerate(starters):
        assert starter.wait(seconds=LONG) == 0, starter.log_tail()
        line = next(line for line in starter.log().splitlines() if line.startswith("ANSWER "))
        answers += [
            (number * 5 + at + 1, *answer) for at, answer in enumerate(json.loads(line.removeprefix("ANSWER ")))
        ]
    (winner,) = [count for count, said, _ in answers if said == "started"]
    assert all("the-one" in text for _, _, text in answers)
    deployment.worker("faulty")
    faulty = deployment.load("faulty")
    run = faulty.pikku.runs.get("the-one")
    assert len(run.result(timeout=LONG)) == winner
    assert faulty.row.start(winner, run_id="the-one").id == "the-one"
    assert len(deployment.journal("begun")) == winner


@pytest.fixture(scope="module")
def faulty(shared_deployment: Deployment) -> Any:
    """A worker, and its client."""
    shared_deployment.worker("faulty", name="values")
    return shared_deployment.load("faulty")


@pytest.mark.parametrize("options", [{}, {"dispatch": "queue"}], ids=["in-place", "dispatched"])
@pytest.mark.parametrize(
    ("what", "reason"), [("lock", "lock"), ("set", "set"), ("nan", "NaN|nan"), ("huge", "bytes|large|MiB")]
)
def test_a_result_that_cannot_be_stored_fails_its_step_and_says_why(
    shared_deployment: Deployment, faulty: Any, what: str, reason: str, options: dict[str, Any]
) -> None:
    """Scenario 48: a recorded, readable failure that names the step and the reason; the work is not done again."""
    run = faulty.one.start("faulty.give", what, retries=3, retry_delay=0, **options)
    with pytest.raises(RunFailed, match="work"):
        run.result(timeout=LONG)
    row = step_of(faulty, run, "work")
    assert row.error is not None
    assert "PayloadError" in row.error.type
    assert any(word in row.error.message for word in reason.split("|")), row.error.message
    assert attempts_begun(shared_deployment, run) == [1]


@pytest.mark.parametrize("options", [{}, {"dispatch": "queue"}], ids=["in-place", "dispatched"])
@pytest.mark.parametrize(("what", "value"), [("nul", "a\u0000b"), ("tagged", {"__type__": "x", "__value__": 1})])
def test_a_strange_result_comes_back_as_it_was(faulty: Any, what: str, value: Any, options: dict[str, Any]) -> None:
    """Scenario 48: text with NUL, and a dictionary that looks like the encoder's own."""
    assert faulty.one.start("faulty.give", what, **options).result(timeout=LONG) == value


@pytest.mark.parametrize("options", [{}, {"dispatch": "queue"}], ids=["in-place", "dispatched"])
def test_an_error_with_a_constructor_of_its_own_keeps_its_type_by_name(faulty: Any, options: dict[str, Any]) -> None:
    """Scenario 48: nothing has to build the exception again to show it."""
    run = faulty.one.start("faulty.give", "custom", retries=0, **options)
    with pytest.raises(RunFailed, match="code 7 at the mill"):
        run.result(timeout=LONG)
    error = step_of(faulty, run, "work").error
    assert error is not None
    assert error.type.endswith("faulty.CustomError")
