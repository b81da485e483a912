"""A rolling deploy in simulated schedules: nodes change their code one after another, whatever else goes wrong (D17)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.replay.park import Parked
from pikkuflow.replay.recorder import Recorder
from tests.simulation import expect, flow, judge
from tests.simulation.generate import plan_of
from tests.simulation.ledger import Violation
from tests.simulation.plan import Do
from tests.simulation.world import World

_SCHEDULES = 80
_FIRST_SECONDS = 2.0
_APART_SECONDS = 15.0


class Deploy:
    """Who has the new code: nodes by their names, one after another; every other process from the first on."""

    def __init__(self) -> None:
        self.conflicts = 0
        self.world = World(plan_of(0))

    def run(self, seed: int) -> World:
        """One schedule."""
        world = self.world = World(plan_of(seed))
        world.run()
        return world

    def is_new(self) -> bool:
        """Whether the process at work has the new code by now; when nobody is at work the schedule is judged, by the new one."""
        try:
            name = self.world.stage.process.node.name
        except Exception:  # noqa: BLE001 - whatever the stage says of nobody
            return True
        turn = int(name[1:]) if name[1:].isdigit() else 0
        return self.world.scheduler.now >= _FIRST_SECONDS + turn * _APART_SECONDS


def walk_of(deploy: Deploy) -> type[flow.Walk]:
    """The parts as old and new code have them: new code works each step of the body itself under another name, behind a patch."""

    class Walk(flow.Walk):
        def __init__(self, wf: Any, workflow: str, does: flow.Does) -> None:
            super().__init__(wf, workflow, does)
            # A pass has one code from its beginning to its end.
            self._is_new = deploy.is_new()

        def _work(self, part: Any) -> Any:
            if isinstance(part, Do) and self._is_new and self._wf.patched(part.name):
                return self._wf.do(f"{part.name}n", self._call(part), **flow._options(part))
            return super()._work(part)

    return Walk


def known_patched(known: Any, patch_id: str) -> bool:
    """The answer that the run has recorded."""
    try:
        known._outcome(f"__patch:{patch_id}")
    except (Violation, expect.Unreached):
        return False
    known.steps.append(f"__patch:{patch_id}")
    return True


@pytest.fixture
def deploy(monkeypatch: pytest.MonkeyPatch) -> Deploy:
    """Generated workflows change their code; a conflict of new code ends the test."""
    made = Deploy()
    judged, conflicts = judge._judge_step, Recorder._conflict

    def judge_step(run: Any, row: Any, *more: Any) -> None:
        if not row.name.startswith("__patch:"):
            judged(run, row, *more)

    def conflict(recorder: Recorder, *more: Any) -> Parked:
        assert not made.is_new()
        made.conflicts += 1
        return conflicts(recorder, *more)

    monkeypatch.setattr(judge, "_judge_step", judge_step)
    monkeypatch.setattr(Recorder, "_conflict", conflict)
    walk = walk_of(made)
    monkeypatch.setattr(flow, "Walk", walk)
    monkeypatch.setattr(expect, "Walk", walk)
    monkeypatch.setattr(expect._Known, "patched", known_patched, raising=False)
    return made


def test_no_schedule_of_a_rolling_deploy_mixes_a_run_or_loses_one(deploy: Deploy) -> None:
    """D17, scenarios 32 and 33: every invariant of spec 16.6 holds over the change; new code is never stopped."""
    marks = 0
    for seed in range(_SCHEDULES):
        world = deploy.run(seed)
        marks += sum(name.startswith("__patch:") for rows in world.store._tables.steps.values() for name in rows)
    assert marks > 0
    assert deploy.conflicts > 0
