"""The user's handle on a run: ask for its status, wait for its result, watch it, resume it (spec 10).

A handle holds an id and the way to a runtime, nothing else: it can be made for any run, in any process that has the same database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, TypeVar, overload

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import Run as StoredRun
from pikkuflow.domain.run import RunFilter, RunKey
from pikkuflow.domain.status import SETTLED_RUN, RunStatus, SuspendCode
from pikkuflow.domain.summary import RunHead, RunSummary, head_of, summary_of
from pikkuflow.engine.resume import resume_run
from pikkuflow.engine.run_inline import run_inline
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import ResultTimeout, RunCancelled, RunFailed, RunNotFound

__all__ = ["Frame", "Run", "RunPage", "Runs"]

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
    """One run. ``run.run_id`` names it; two handles of the same id are equal."""

    __slots__ = ("_runtime", "run_id")

    def __init__(self, run_id: str, runtime: Callable[[], Runtime]) -> None:
        self.run_id = RunId(run_id)
        self._runtime = runtime

    @property
    def id(self) -> str:
        """The run's id as plain text."""
        return str(self.run_id)

    def head(self) -> RunHead:
        """The run without its steps: one read. Raises ``RunNotFound``."""
        return head_of(_load(self._runtime(), self.run_id))

    def status(self) -> RunSummary:
        """The run with its steps, each by its latest attempt (spec 10.1). Raises ``RunNotFound``."""
        rt = self._runtime()
        run = _load(rt, self.run_id)
        return summary_of(run, rt.store.list_steps(self.run_id), rt.codec.decode)

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
        run = _load(rt, self.run_id)
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
                run = _load(rt, self.run_id)
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

    def resume(self) -> bool:
        """Let a suspended run go on at once (D4). In an app without a broker the run goes on here, in place.

        Returns:
            True when it was suspended (or, without a broker, had not ended); False when there was nothing to resume.

        Raises:
            RunNotFound: there is no such run.
        """
        rt = self._runtime()
        run = _load(rt, self.run_id)
        if rt.has_broker:
            return resume_run(rt, self.run_id)
        if run.is_settled:
            return False
        rt.store.resume_run(self.run_id)
        run_inline(rt, self.run_id)
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other.run_id == self.run_id

    def __hash__(self) -> int:
        return hash(self.run_id)

    def __repr__(self) -> str:
        return f"<Run {self.run_id}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage(Sequence[RunHead]):
    """A page of a listing, newest first. ``next_page`` is what ``list(after=…)`` takes to go on; None at the end."""

    heads: tuple[RunHead, ...]
    next_page: str | None

    @overload
    def __getitem__(self, index: int) -> RunHead: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RunHead]: ...
    def __getitem__(self, index: int | slice) -> RunHead | Sequence[RunHead]:
        """One run, or some."""
        return self.heads[index]

    def __len__(self) -> int:
        return len(self.heads)


class Runs:
    """Every run of this database: ``pikku.runs``."""

    __slots__ = ("_runtime",)

    def __init__(self, runtime: Callable[[], Runtime]) -> None:
        self._runtime = runtime

    def get(self, run_id: str) -> Run[Any]:
        """The run of that id. Raises ``RunNotFound``."""
        _load(self._runtime(), RunId(run_id))
        return Run(run_id, self._runtime)

    def list(  # noqa: PLR0913 - each is one column that a listing may ask for
        self,
        *,
        workflow: str | None = None,
        status: str | None = None,
        owner: str | None = None,
        code: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> RunPage:
        """Runs, newest first, by keyset paging: a page costs the same however many came before it.

        Args:
            workflow: only runs of this workflow.
            status: only runs of this status, such as ``"failed"``.
            owner: only runs of this owner.
            code: only runs suspended or failed with this code.
            since: only runs created at or after this aware time.
            until: only runs created before this aware time.
            limit: how many runs a page holds at most.
            after: ``next_page`` of the page before.

        Raises:
            ValueError: there is no such status, or ``after`` is no ``next_page``.
        """
        where = RunFilter(
            workflow=workflow,
            status=None if status is None else RunStatus(status),
            owner=owner,
            code=code,
            since=since,
            until=until,
        )
        found = self._runtime().store.list_runs(where, limit=limit + 1, after=None if after is None else _key_of(after))
        more = len(found) > limit
        shown = found[:limit]
        return RunPage(
            heads=tuple(head_of(run) for run in shown), next_page=_text_of(shown[-1]) if more and shown else None
        )


def _load(rt: Runtime, run_id: RunId) -> StoredRun:
    run = rt.store.get_run(run_id)
    if run is None:
        raise RunNotFound(f"There is no run {run_id!r}.", run_id, hint="`flow list` shows the runs of this database.")
    return run


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
        "steps": [{"stepName": name, "status": now.get(name, "pending")} for name in planned],  # type: ignore[call-overload]
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
    if summary.head.code == SuspendCode.WORKFLOW_SUSPENDED and summary.error:
        return summary.error
    return _SUSPENDED_TEXT


def _text_of(run: StoredRun) -> str:
    return f"{run.created_at.isoformat()}|{run.id}"


def _key_of(text: str) -> RunKey:
    stamp, mark, run_id = text.partition("|")
    if not mark:
        raise ValueError(f"{text!r} is no next_page of a listing")
    return RunKey(created_at=datetime.fromisoformat(stamp), id=RunId(run_id))
