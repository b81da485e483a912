"""The user's handle on a run: ask for its status, wait for its result, watch it, resume it, answer what it waits for (spec 10).

A handle holds an id, the way to a runtime and whom it speaks for, nothing else: it can be made for any run, in any process that has the
same database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

from pikkuflow.domain.gate import Decider
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import Run as StoredRun
from pikkuflow.domain.status import GATE_CODES, SETTLED_RUN, RunStatus, StepStatus
from pikkuflow.domain.summary import RunHead, RunSummary, head_of, planned_step, summary_of
from pikkuflow.engine.approve import approve
from pikkuflow.engine.call_off import call_off
from pikkuflow.engine.find_run import check_owner, load_run
from pikkuflow.engine.pictures import drawn, picture_of_stored_run
from pikkuflow.engine.resume import resume
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.signal import send_signal
from pikkuflow.errors import ResultTimeout, RunCancelled, RunFailed

__all__ = ["Frame", "Run"]

R = TypeVar("R")
Frame = dict[str, Any]
"""One frame of ``watch`` (spec 10.4): ``{"type": "init" | "update" | "suspended" | "done", …}``."""

_FIRST_LOOK_SECONDS: Final = 0.05
_WIDENING: Final = 1.6
_LAST_LOOK_SECONDS: Final = 5.0
"""The slow poll behind the hints; a service without announcements cuts its waits to 0.5 s by itself (design 2)."""
_WATCH_SECONDS: Final = 0.5
_SUSPENDED_TEXT: Final = "The run is suspended."


class Run(Generic[R]):
    """One run. ``run.run_id`` names it; two handles of the same id are equal.

    A handle that speaks for a user (``as_user``, ``pikku.runs.get(…, as_user=…)``) raises ``RunForbidden`` from every call on a run that
    belongs to someone else (spec 12.1); a run without an owner is open to all.
    """

    __slots__ = ("_runtime", "_user", "run_id")

    def __init__(self, run_id: str, runtime: Callable[[], Runtime], *, user: str | None = None) -> None:
        self.run_id = RunId(run_id)
        self._runtime = runtime
        self._user = user

    @property
    def id(self) -> str:
        """The run's id as plain text."""
        return str(self.run_id)

    def as_user(self, user: str) -> Run[R]:
        """The same run, spoken to for a user: an application's front end hands on who is signed in."""
        return Run(self.run_id, self._runtime, user=user)

    def _load(self, rt: Runtime) -> StoredRun:
        return load_run(rt, self.run_id, user=self._user)

    def head(self) -> RunHead:
        """The run without its steps: one read. Raises ``RunNotFound``."""
        return head_of(self._load(self._runtime()))

    def status(self) -> RunSummary:
        """The run with its steps, each by its latest attempt (spec 10.1). Raises ``RunNotFound``."""
        rt = self._runtime()
        run = self._load(rt)
        return summary_of(run, rt.store.list_steps(self.run_id), rt.codec.decode)

    def results(self) -> dict[str, Any]:
        """What each step that has succeeded gave, by its name, in the order of the steps: the nodes of a graph, which has no output.

        Raises ``RunNotFound``.
        """
        rt = self._runtime()
        self._load(rt)
        done = [step for step in rt.store.list_steps(self.run_id) if step.status is StepStatus.SUCCEEDED]
        return {step.name: None if step.result is None else rt.codec.decode(step.result) for step in done}

    def picture(self, form: str = "mermaid") -> str:
        """The run as a picture, with the status of each step: a graph's nodes, or what a function recorded in its order.

        Args:
            form: ``"mermaid"``, ``"dot"`` or ``"text"``.

        Raises:
            SettingError: there is no such form.
            RunNotFound: there is no such run.
        """
        rt = self._runtime()
        return drawn(picture_of_stored_run(rt, self._load(rt)), form)

    def result(self, timeout: float | None = None) -> R:
        """Wait for the run's end and return what its workflow returned (spec 10.3).

        Waits on a hint with a slow poll behind it. A run that has ended is read once.

        Args:
            timeout: seconds to wait at most; None waits for ever, 0 only looks.

        Raises:
            RunFailed: it failed, was compensated, or its compensation is stuck; the message is the run's own error.
            RunCancelled: it was cancelled.
            ResultTimeout: it has not ended in time; it goes on.
            RunNotFound: there is no such run (any more).
        """
        rt = self._runtime()
        run = self._load(rt)
        if not run.is_settled and (timeout is None or timeout > 0):
            run = self._wait_for_end(rt, timeout)
        if not run.is_settled:
            raise ResultTimeout(
                f"Run {self.run_id} has not ended within {timeout} s.", self.run_id, hint="It goes on; ask again later."
            )
        return _output(rt, run)  # type: ignore[no-any-return]

    def _wait_for_end(self, rt: Runtime, timeout: float | None) -> StoredRun:
        deadline = None if timeout is None else rt.clock.monotonic() + timeout
        with rt.hints.watching(self.run_id) as ear:
            for pause in _widening():
                run = self._load(rt)
                left = pause if deadline is None else min(pause, deadline - rt.clock.monotonic())
                if run.is_settled or left <= 0:
                    break
                ear.wait(left)
        return run

    def watch(self, *, details: bool = True) -> Iterator[Frame]:
        """Frames of the run until it ends (spec 10.4), at most half a second late; polls never overlap. An unknown run gives none.

        Args:
            details: also output, errors and child runs; without them it is what an end user may see.
        """
        rt = self._runtime()
        seen: Frame | None = None
        announced: str | None = None
        first = True
        while (run := rt.store.get_run(self.run_id)) is not None:
            check_owner(run, self._user)
            summary = summary_of(run, rt.store.list_steps(self.run_id), rt.codec.decode)
            if first and summary.deterministic:
                yield _init_frame(summary)
            first = False
            frame = _update_frame(summary, details=details)
            if frame != seen:
                yield frame
            seen = frame
            reason = _suspended_for(summary) if summary.status is RunStatus.SUSPENDED else None
            if reason is not None and reason != announced:
                yield {"type": "suspended", "reason": reason}
            announced = reason
            if run.is_settled:
                yield {"type": "done"}
                return
            rt.hints.wait(self.run_id, _WATCH_SECONDS)

    def resume(self, reason: str | None = None) -> bool:
        """Let a suspended run go on at once (D3, D4). In an app without a broker the run goes on here, in place.

        Args:
            reason: open only ``wf.suspend(reason)``. Without one, whatever suspends the run is over; no approval or signal is passed.

        Returns:
            True when it goes on; False when the gate of that reason was open already.

        Raises:
            RunNotSuspended: it is not suspended; nothing was changed.
            GateNotFound: it does not wait for that reason; nothing was changed.
            RunSettled: it has ended.
            RunNotFound: there is no such run.
        """
        rt = self._runtime()
        return resume(rt, self._load(rt), reason)

    def signal(self, name: str, payload: Any = None, *, idempotency_key: str | None = None) -> bool:
        """Send a signal, durably: ``wf.wait_for(name)`` receives it now or whenever it is reached.

        Args:
            name: the signal's name.
            payload: a JSON value, None included.
            idempotency_key: two sends of this name with one key are one signal.

        Returns:
            False when the key was used before: the first one counts.

        Raises:
            StepNameError: the name is no text, or unusable.
            PayloadError: the payload cannot be stored.
            RunSettled: the run has ended. In each case nothing was stored.
            RunNotFound: there is no such run.
        """
        rt = self._runtime()
        run = self._load(rt)
        return send_signal(rt, run.id, name, payload, key=idempotency_key, sender=self._user)

    def approve(self, reason: str, data: Any = None, *, by: Decider | None = None) -> None:
        """Decide ``wf.approval(reason)``, durably (spec 2.7). One that comes before the approval is asked for is kept, and judged then.

        The data is validated by the workflow: what does not fit its schema leaves the approval waiting, and the reasons are shown with it.

        Args:
            reason: what the approval was asked for with.
            data: the decision, a JSON value.
            by: who decides; the approval's policy judges it.

        Raises:
            ApprovalForbidden: the policy does not admit this decider.
            ApprovalResolved: it was decided before, is over, or an earlier decision is being judged.
            StepNameError: the reason is no text, or unusable.
            PayloadError: the data cannot be stored.
            RunSettled: the run has ended without asking. In each case nothing was decided.
            RunNotFound: there is no such run.
        """
        rt = self._runtime()
        approve(rt, self._load(rt), reason, data, by=by)

    def cancel(self, reason: str | None = None) -> RunStatus:
        """Call the run off, durably, and with it the child runs below it (spec 2.12).

        What it did is undone: the status is then ``compensating`` until that is over. A step that is at work is told
        (``current_step().is_cancelled()``) and its outcome still counts. In an app without a broker the run is undone here, in place.

        Args:
            reason: the run's error from now on; ``run.status().error`` shows it.

        Returns:
            The status that the run has then. One that is being undone already, or was called off before, is left as it is.

        Raises:
            PayloadError: the reason is no text; nothing was changed.
            RunSettled: it has ended otherwise than by a cancel; nothing was changed.
            RunNotFound: there is no such run.
        """
        rt = self._runtime()
        return call_off(rt, self._load(rt), reason)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other.run_id == self.run_id

    def __hash__(self) -> int:
        return hash(self.run_id)

    def __repr__(self) -> str:
        return f"<Run {self.run_id}>"


def _output(rt: Runtime, run: StoredRun) -> Any:
    if run.status is RunStatus.COMPLETED:
        return None if run.output is None else rt.codec.decode(run.output)
    message = (run.error.message if run.error else "") or "Unknown error"
    if run.status is RunStatus.CANCELLED:
        raise RunCancelled(
            f"Run {run.id} was cancelled: {message}" if run.error else f"Run {run.id} was cancelled.", run.id
        )
    raise RunFailed(message, run.id)


def _widening() -> Iterator[float]:
    """A run that ends at once is not waited for long; a long one is looked at seldom (T16.17)."""
    pause = _FIRST_LOOK_SECONDS
    while True:
        yield pause
        pause = min(pause * _WIDENING, _LAST_LOOK_SECONDS)


def _init_frame(summary: RunSummary) -> Frame:
    now = {step.name: step.status.value for step in summary.steps}
    planned = summary.planned_steps or ()
    return {
        "type": "init",
        "deterministic": True,
        "steps": [{**planned_step(name), "status": now.get(name, "pending")} for name in planned],  # type: ignore[call-overload]
    }


def _update_frame(summary: RunSummary, *, details: bool) -> Frame:
    steps = [{"stepName": step.name, "status": step.status.value} for step in summary.steps]
    frame: dict[str, Any] = {"type": "update", "status": summary.status.value, "steps": steps}
    if details and summary.status in SETTLED_RUN:
        frame["output"] = summary.output
    if details and summary.error is not None:
        frame["error"] = {"message": summary.error}
    return frame


def _suspended_for(summary: RunSummary) -> str:
    if summary.head.code in GATE_CODES and summary.error:
        return summary.error
    return _SUSPENDED_TEXT
