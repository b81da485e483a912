"""Ports of the simulated processes: each call is a place where others may come first and where a fault may strike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pikkuflow.domain.act import DueRun, RunRef, StepMessage
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import StepStatus
from pikkuflow.errors import DispatchError, StoreUnavailable
from tests.simulation.plan import FaultKind
from tests.simulation.scheduler import NEVER
from tests.simulation.stage import Message, Stage

__all__ = ["ProcessClock", "SimDispatcher", "SimHints", "SimIds", "SimLeases", "SimLock", "SimStore", "StoreClock"]

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_ANSWER_SECONDS: Final = 0.7
"""How long it takes to find that an answer will not come."""


class StoreClock:
    """The database's clock, and the lease service's: the true time."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._at = 0.0
        self._time = _START

    def now(self) -> datetime:
        """The true time."""
        at = self._stage.scheduler.now
        if at != self._at:
            self._at, self._time = at, _START + timedelta(seconds=at)
        return self._time

    def monotonic(self) -> float:
        """The true time."""
        return self._stage.scheduler.now

    def sleep(self, seconds: float) -> None:  # noqa: ARG002 - the port's signature
        """No store sleeps."""
        raise AssertionError("a store does not sleep")


class ProcessClock:
    """The clock of the process at work, wrong by its node's skew."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def now(self) -> datetime:
        """What the process takes for the time."""
        stage = self._stage
        return _START + timedelta(seconds=stage.scheduler.now + stage.process.node.skew)

    def monotonic(self) -> float:
        """Seconds that only differ from the true ones by a constant."""
        stage = self._stage
        return stage.scheduler.now + stage.process.node.skew

    def sleep(self, seconds: float) -> None:
        """Let the others work meanwhile."""
        self._stage.scheduler.sleep(seconds)


class SimIds:
    """Ids that can be read, and jitter that repeats."""

    def __init__(self) -> None:
        self._count = 0

    def new_id(self) -> str:
        """The next number."""
        self._count += 1
        return f"i{self._count}"

    def jitter(self) -> float:
        """Something between 0 and 1."""
        self._count += 1
        return (self._count * 0.377) % 1.0


class SimStore:
    """The run store as processes see it: an act may wait, be repeated because its answer was lost, or be the last thing they do."""

    def __init__(self, stage: Stage, real: Any, after: Callable[[str, tuple[Any, ...], Any], None]) -> None:
        self._stage = stage
        self._real = real
        self._after = after

    def __getattr__(self, op: str) -> Callable[..., Any]:
        act = getattr(self._real, op)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(op, act, args, kwargs)

        setattr(self, op, call)
        return call

    def _call(self, op: str, act: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        stage = self._stage
        waited_until = None
        while True:
            fault = stage.point(op, "before", args)
            seconds = _ANSWER_SECONDS if fault is None else stage.fault_seconds
            if fault is FaultKind.LOST_ACT or stage.now < stage.store_down_until:
                waited_until = self._wait(op, waited_until, seconds)
                continue
            answer = act(*args, **kwargs)
            self._after(op, args, answer)
            if fault is FaultKind.LOST_ANSWER:
                stage.trace(op, "landed, answer lost", args, answer)
                stage.starts_in_doubt.update(_starts_of(op, args))
                waited_until = self._wait(op, waited_until, seconds)
                continue
            stage.point(op, "after", args, answer)
            return answer

    def _wait(self, op: str, waited_until: float | None, seconds: float) -> float:
        """Wait before the act is repeated. Raises ``StoreUnavailable`` when the process has no patience left."""
        stage = self._stage
        patience = stage.process.patience
        until = stage.now + patience if waited_until is None and patience is not None else waited_until or NEVER
        if stage.now + seconds > until:
            stage.scheduler.sleep(max(0.0, until - stage.now))
            stage.was_given_up = True
            raise StoreUnavailable(f"no answer to {op}")
        stage.scheduler.sleep(seconds)
        return until


def _starts_of(op: str, args: tuple[Any, ...]) -> set[tuple[str, str, int]]:
    """The attempts that an act begins."""
    if op == "claim_steps":
        return {(args[0].run_id, name, attempt) for name, attempt in args[0].steps}
    writes = {"record": [args], "record_all": args[0] if args else ()}.get(op, ())
    return {(ref.run_id, write.step.name, write.attempt) for ref, write in writes if write.status is StepStatus.RUNNING}


class SimLeases:
    """The lease service as processes see it."""

    def __init__(self, stage: Stage, real: Any) -> None:
        self._stage = stage
        self._real = real

    def __getattr__(self, op: str) -> Callable[..., Any]:
        act = getattr(self._real, op)

        def call(*args: Any) -> Any:
            stage = self._stage
            stage.point(op, "before", args)
            if stage.now < stage.leases_down_until:
                raise ConnectionError("the lease service does not answer")
            answer = act(*args)
            stage.point(op, "after", args, answer)
            return answer

        setattr(self, op, call)
        return call


class SimHints:
    """Due times and announcements; what is down answers as nothing."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._announced: dict[RunId, int] = {}

    def next_due(self) -> float:
        """When the earliest hint is due."""
        return min(self._stage.due.values(), default=NEVER)

    def leave(self, run_id: RunId, in_seconds: float) -> None:
        """Ask that the run be woken in that time."""
        stage = self._stage
        stage.point("leave", "before", (run_id, in_seconds))
        if not self._is_down():
            stage.leave_hint(run_id, stage.now + in_seconds)
        stage.point("leave", "after", (run_id,))

    def leave_again(self, due: Sequence[DueRun]) -> None:
        """Leave hints that may have been lost."""
        for one in due:
            self.leave(one.run_id, one.in_seconds)

    def pop_due(self, limit: int) -> tuple[RunId, ...]:
        """Take what is due."""
        stage = self._stage
        stage.point("pop_due", "before", ())
        if self._is_down():
            return ()
        found = tuple(sorted(run_id for run_id, at in self._stage.due.items() if at <= stage.now))[:limit]
        for run_id in found:
            del self._stage.due[run_id]
        stage.process.handles = found
        stage.point("pop_due", "after", (), found)
        return found

    def announce(self, run_id: RunId) -> None:
        """Tell waiters."""
        self._stage.point("announce", "before", (run_id,))
        if not self._is_down():
            self._announced[run_id] = self._announced.get(run_id, 0) + 1
            self._stage.news.give()

    @contextmanager
    def watching(self, run_id: RunId) -> Iterator[_Ear]:
        """Listen."""
        yield _Ear(self._stage, self._announced, run_id)

    def wait(self, run_id: RunId, seconds: float) -> bool:
        """One watch with one wait."""
        return _Ear(self._stage, self._announced, run_id).wait(seconds)

    def _is_down(self) -> bool:
        return self._stage.now < self._stage.hints_down_until


class _Ear:
    def __init__(self, stage: Stage, announced: dict[RunId, int], run_id: RunId) -> None:
        self._stage = stage
        self._announced = announced
        self._run_id = run_id
        self._heard = announced.get(run_id, 0)

    def wait(self, seconds: float) -> bool:
        until = self._stage.now + seconds
        self._stage.scheduler.wait_for(self._stage.news, lambda: 0.0 if self._is_new() else until)
        was_new = self._is_new()
        self._heard = self._announced.get(self._run_id, 0)
        return was_new

    def _is_new(self) -> bool:
        return self._announced.get(self._run_id, 0) > self._heard


class SimDispatcher:
    """Hands messages to the broker, which may refuse, lose, double or delay them."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def wake(self, runs: Sequence[RunRef], *, at_most: int | None = None) -> None:
        """Up to ten runs in a message."""
        ids, size = [run.id for run in runs], min(at_most or 10, 10)
        messages = [Message("orchestrate", tuple(ids[at : at + size]), None) for at in range(0, len(ids), size)]
        self._send("wake", messages, tuple(ids))

    def send_steps(self, messages: Sequence[StepMessage], *, chunk: int = 1) -> None:
        """Members of the same run and options travel together, up to ``chunk``."""
        groups: dict[tuple[str, str, str], list[StepMessage]] = {}
        for message in messages:
            groups.setdefault((message.run_id, message.task, message.options), []).append(message)
        out = [
            Message(
                "step", (RunId(run_id),), tuple((one.name, one.attempt) for one in group[at : at + chunk]), task=task
            )
            for (run_id, task, _), group in groups.items()
            for at in range(0, len(group), chunk)
        ]
        self._send("send_steps", out, tuple(f"{one.name}@{one.attempt}" for one in messages))

    def _send(self, op: str, messages: list[Message], shown: tuple[str, ...]) -> None:
        stage = self._stage
        fault = stage.point(op, "before", shown)
        if stage.now < stage.broker_down_until:
            raise DispatchError("the broker takes no messages")
        if fault is FaultKind.DOUBLE:
            messages = [copy for one in messages for copy in (one, one.again())]
        if fault is FaultKind.DELAY:
            for message in messages:
                message.at = stage.now + stage.fault_seconds
        if fault is not FaultKind.LOSE:
            stage.broker.put(*messages)
        if fault is FaultKind.UNSURE_SEND:
            raise DispatchError("the broker did not answer")
        stage.point(op, "after", shown)


class SimThread:
    """``threading.Thread`` as an actor of the process that starts it."""

    stage: Stage

    def __init__(
        self,
        *,
        target: Callable[..., None],
        args: tuple[Any, ...] = (),
        name: str = "",
        daemon: bool = True,
    ) -> None:
        assert daemon, "a thread of the engine must not keep its process alive"
        self._target = target
        self._args = args
        self._name = name
        self._is_over = False

    def start(self) -> None:
        """Begin."""
        stage = self.stage
        stage.scheduler.spawn(f"{stage.process.name} {self._name}", stage.process, self._run)

    def join(self) -> None:
        """Wait for its end."""
        if not self._is_over:
            self.stage.scheduler.wait_for(self.stage.thread, lambda: 0.0 if self._is_over else NEVER)

    def _run(self) -> None:
        try:
            self._target(*self._args)
        finally:
            self._is_over = True
            self.stage.thread.give()


class SimLock:
    """``threading.Lock`` between actors."""

    stage: Stage

    def __init__(self) -> None:
        self._is_held = False

    def __enter__(self) -> None:
        while self._is_held:
            self.stage.scheduler.wait_for(self.stage.thread, lambda: NEVER if self._is_held else 0.0)
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False
        self.stage.thread.give()


class SimEvent:
    """``threading.Event`` between actors."""

    stage: Stage

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Set it."""
        self._is_set = True
        self.stage.thread.give()

    def is_set(self) -> bool:
        """Whether it is."""
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Wait for it at most that long."""
        until = self.stage.now + seconds
        self.stage.scheduler.wait_for(self.stage.thread, lambda: 0.0 if self._is_set else until)
        return self._is_set
