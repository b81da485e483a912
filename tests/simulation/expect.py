"""What generated workflows must come to, given what their steps came to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pikkuflow.domain.gate import gate_name
from pikkuflow.domain.recorded_names import MILESTONE_PREFIX
from pikkuflow.domain.status import StepKind
from pikkuflow.errors import RunCancelled, StepFailed
from pikkuflow.replay.detached import DetachedRun
from pikkuflow.replay.gates import Approval
from tests.simulation.flow import Walk
from tests.simulation.plan import Part

__all__ = ["Expected", "Unreached", "expect"]


class Unreached(Exception):
    """A step has no outcome that the body could have seen."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a run must have come to: its output, or the step whose failure failed it, or its calling itself off.

    ``steps`` are those it must have reached. ``cut``: it needed an outcome that it could not see. ``recovered`` are steps of a graph whose
    failures others took over.
    """

    steps: tuple[str, ...]
    state: Mapping[str, Any]
    output: Any = None
    failed_step: str | None = None
    called_off: str | None = None
    cut: bool = False
    recovered: frozenset[str] = frozenset()


class _Known:
    """A ``wf`` that only knows what became of each step."""

    def __init__(self, run_id: str, outcome: Callable[[str], Any]) -> None:
        self.run_id = run_id
        self.steps: list[str] = []
        self._outcome = outcome
        self.state = self
        self.values: dict[str, Any] = {}
        self._sets: dict[str, int] = {}

    def do(self, name: str, _what: Any, **options: Any) -> Any:
        found = self._settled(name)
        return DetachedRun(found) if options.get("detached") else found

    def submit(self, name: str, _what: Any, **_options: Any) -> Any:
        self.steps.append(name)
        return _KnownHandle(lambda: self._outcome(name))

    def gather(self, *handles: Any, return_exceptions: bool) -> list[Any]:
        found = [_tried(handle.result) for handle in handles]
        return found if return_exceptions else _all(found)

    def map(self, _what: Any, items: Sequence[int], *, name: str, **_options: Any) -> list[Any]:
        names = [f"{name}[{index}]" for index in items]
        self.steps.extend(names)
        return _all([_tried(lambda member=member: self._outcome(member)) for member in names])  # type: ignore[misc]

    def sleep(self, name: str, _seconds: float) -> None:
        self._settled(name)

    def milestone(self, name: str) -> None:
        self._settled(f"{MILESTONE_PREFIX}{name}")

    def cancel(self, reason: str) -> None:
        raise RunCancelled(reason, self.run_id)

    def suspend(self, reason: str) -> None:
        self._settled(gate_name(StepKind.SUSPEND, reason))

    def wait_for(self, name: str, *, default: Any, **_options: Any) -> Any:
        try:
            return self._settled(gate_name(StepKind.SIGNAL, name))
        except StepFailed:
            return default

    def approval(self, reason: str, **_options: Any) -> Approval[Any]:
        outcome = self._settled(gate_name(StepKind.APPROVAL, reason))
        return Approval(status=outcome["status"], data=outcome.get("data"))

    def set(self, key: str, value: Any) -> None:
        count = self._sets[key] = self._sets.get(key, 0) + 1
        self._settled(f"__state:{key}" + ("" if count == 1 else f"#{count - 1}"))
        self.values[key] = value

    def get(self, key: str) -> Any:
        return self.values.get(key)

    def _settled(self, name: str) -> Any:
        self.steps.append(name)
        return self._outcome(name)


@dataclass(frozen=True, slots=True)
class _KnownHandle:
    result: Callable[[], Any]


def _tried(outcome: Callable[[], Any]) -> Any:
    try:
        return outcome()
    except StepFailed as error:
        return error


def _all(found: list[Any]) -> list[Any]:
    for one in found:
        if isinstance(one, StepFailed):
            raise one
    return found


def expect(run_id: str, workflow: str, parts: Sequence[Part], outcome: Callable[[str], Any]) -> Expected:
    """What the run must come to when its steps came to what ``outcome`` gives or raises (``StepFailed``, ``Unreached``)."""
    known = _Known(run_id, outcome)
    try:
        output = Walk(cast("Any", known), workflow, lambda _key: None).walk(parts)
    except StepFailed as error:
        return Expected(tuple(known.steps), known.values, failed_step=error.step)
    except RunCancelled as error:
        return Expected(tuple(known.steps), known.values, called_off=error.message)
    except Unreached:
        return Expected(tuple(known.steps), known.values, cut=True)
    return Expected(tuple(known.steps), known.values, output=output)
