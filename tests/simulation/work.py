"""Running the steps of generated workflows: the ``StepRunner`` of the simulation, and its effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pikkuflow.domain.command import StepCall
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.recorded_names import UNDO_SUFFIX
from pikkuflow.domain.undo import Undo
from pikkuflow.engine.current_step import CurrentStep, current_step, step_context
from pikkuflow.errors import RunCancelled, StepSuperseded, StoreUnavailable
from pikkuflow.ports import Attempted, AttemptEnd, Route, StepWork
from tests.simulation.flow import UNDO_TASK, Boom, value_of
from tests.simulation.graphs import ANY
from tests.simulation.ledger import Ledger
from tests.simulation.plan import Act
from tests.simulation.scheduler import Killed
from tests.simulation.stage import Stage

__all__ = ["SimRunner"]

STEP_LEASE_SECONDS = 30.0


class SimRunner:
    """Works steps as their acts say, and tells the ledger."""

    def __init__(
        self,
        stage: Stage,
        ledger: Ledger,
        acts: Mapping[str, Act],
        choices: Mapping[str, tuple[str | None, ...]] | None = None,
    ) -> None:
        self._stage = stage
        self._ledger = ledger
        self._acts = acts
        self._choices = choices or {}
        """The branches that nodes of graphs choose, one for each time that they are begun."""

    def route(self, call: StepCall, workflow: str) -> Route:  # noqa: ARG002 - the port's signature
        """Some calls are routed to another queue, which the same workers consume."""
        leaves = "queue" if call.options.get("leaves") else None
        return Route(
            leaves=leaves,
            queue=leaves,
            options="{}",
            lease_seconds=STEP_LEASE_SECONDS,
            args=call.args,
            kwargs=call.kwargs,
        )

    def is_known(self, task: str) -> bool:
        """There is one task, and what undoes it."""
        return task in {"t", UNDO_TASK}

    def run(self, work: StepWork, commit: Callable[[Attempted], bool]) -> None:
        """Work the step and commit once."""
        with step_context(work):
            attempted = self._attempt(work)
        commit(attempted)

    def _attempt(self, work: StepWork) -> Attempted:
        key = work.args[0]
        if isinstance(key, Undo):
            self._ledger.stops.told(work.run_id, work.step, key)
            key = f"{work.args[1]}{UNDO_SUFFIX}"
        if ANY in key:
            key = self._of_item(key, work.step)
        act = self._acts[key]
        try:
            return Attempted(end=AttemptEnd.SUCCEEDED, value=self.work(key))
        except (Boom, RunCancelled, StepSuperseded) as error:
            end = AttemptEnd.GAVE_UP if act.gives_up and isinstance(error, Boom) else AttemptEnd.RAISED
            # Its trace would say nothing of the schedule, and costs more than the rest of the attempt.
            return Attempted(end=end, error=error.with_traceback(None), delay_seconds=act.asks)

    def _of_item(self, key: str, step: str) -> str:
        """The key of one item. Those of a list that is longer than the acts behave as the first."""
        index = step.partition("[")[2].partition("]")[0]
        found = key.replace(ANY, f"[{index}]")
        return found if found in self._acts else key.replace(ANY, "[0]")

    def work(self, key: str) -> Any:
        """The work of the step at hand. Raises ``Boom``, or takes the process down, as its act says."""
        step, act, stage = current_step(), self._acts[key], self._stage
        done = self._ledger.begins(RunId(step.run_id), step.step, step.attempt)
        stage.point("work", "before", (step.run_id, step.step, step.attempt))
        if self._ledger.count(step.run_id, step.step) <= act.dies:
            stage.trace("*** the task takes its process down", "")
            stage.kill(stage.process)
            raise Killed
        try:
            self._spend(step, act)
            stage.point("work", "after", (step.run_id, step.step, step.attempt))
            if act.minds and self._is_in_vain(step):
                raise Boom(f"attempt {step.attempt}")
        finally:
            done.until = stage.now
        done.ended = True
        if step.attempt <= act.fails:
            raise Boom(f"attempt {step.attempt}")
        self._choose(step, self._choices.get(key, ()))
        return value_of(step.run_id, step.step)

    @staticmethod
    def _choose(step: CurrentStep, choices: Sequence[str | None]) -> None:
        if not choices:
            return
        visit = int(step.step.partition("#")[2] or 0)
        chosen = choices[visit] if visit < len(choices) else None
        if chosen is not None:
            step.branch(chosen)

    def _spend(self, step: CurrentStep, act: Act) -> None:
        """Take as long as it takes. Raises what a heartbeat raises that is told that the work is in vain."""
        left = act.seconds + (act.hangs if step.attempt == 1 else 0.0)
        while left > 0:
            slept = min(left, act.beats or left)
            self._stage.scheduler.sleep(slept)
            left -= slept
            if act.beats is not None:
                self._beat(step, act)

    def _beat(self, step: CurrentStep, act: Act) -> None:
        try:
            step.heartbeat(step.attempt if act.says else None)
        except StoreUnavailable:
            return
        except (RunCancelled, StepSuperseded):
            self._ledger.stops.unwanted(step.run_id, step.step, step.attempt)
            raise

    def _is_in_vain(self, step: CurrentStep) -> bool:
        try:
            is_told = step.is_cancelled()
        except StoreUnavailable:
            return False
        if is_told:
            self._ledger.stops.unwanted(step.run_id, step.step, step.attempt)
        return is_told
