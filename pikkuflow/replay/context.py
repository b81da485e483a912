"""``Workflow``: the ``wf`` that a workflow function gets. Everything durable goes through it (design 1).

A workflow is replayed from its start on every pass: steps that have settled give what was recorded. So the code between two calls must be
deterministic. Calls are refused from other threads, from inside a step, and after the pass is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Literal, NoReturn, TypeVar, Unpack, cast, overload
from uuid import UUID

from pikkuflow.domain.command import Recorded, StepCall
from pikkuflow.domain.duration import seconds_of
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.recorded_names import (
    MILESTONE_PREFIX,
    NOW_STEP,
    PATCH_PREFIX,
    RANDOM_STEP,
    STATE_PREFIX,
    UUID_STEP,
    check_derived_name,
    check_step_name,
)
from pikkuflow.domain.status import StepKind
from pikkuflow.domain.stop import NO_REASON
from pikkuflow.errors import RunCancelled, StepFailed, StepNameError, WorkflowDefinitionError
from pikkuflow.replay.detached import DetachedRun
from pikkuflow.replay.fan import Fan, MapRequest, items_of
from pikkuflow.replay.gates import Gates
from pikkuflow.replay.options import StepChoices, step_options
from pikkuflow.replay.recorder import Recorder
from pikkuflow.replay.settled import step_error, value_of
from pikkuflow.replay.submitted import Buffer, Submitted
from pikkuflow.replay.translate import Translate

__all__ = ["Handle", "Workflow", "WorkflowState"]

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
Item = TypeVar("Item")
T_co = TypeVar("T_co", covariant=True)

_LONGEST_PATCH_ID: Final = 200
"""Characters: with its prefix it is a key in every database."""

_NOW_CALL: Final = StepCall(name=NOW_STEP, kind=StepKind.FUNCTION)
_UUID_CALL: Final = StepCall(name=UUID_STEP, kind=StepKind.FUNCTION)
_RANDOM_CALL: Final = StepCall(name=RANDOM_STEP, kind=StepKind.FUNCTION)


class Handle(Generic[T_co]):
    """A submitted step."""

    __slots__ = ("_submitted", "_workflow")

    def __init__(self, workflow: Workflow, submitted: Submitted) -> None:
        self._workflow = workflow
        self._submitted = submitted

    @property
    def name(self) -> str:
        """The step's name in its run, with its number when the name is used again."""
        return self._submitted.planned.name

    def result(self) -> T_co:
        """What the step returned; the workflow waits until it has settled. Raises ``StepFailed`` when it failed for good."""
        return cast("T_co", self._workflow._result(self._submitted))  # noqa: SLF001 - a handle is half of its workflow

    def __repr__(self) -> str:
        return f"<Handle of step {self.name!r}>"


class WorkflowState:
    """A small key/value map kept with the run. A set is a recorded step, so a replay sees the map as it was at that point."""

    __slots__ = ("_recorder", "_settle", "_values")

    def __init__(self, recorder: Recorder, settle: Callable[[StepCall], Any]) -> None:
        self._recorder = recorder
        self._settle = settle
        self._values: dict[str, Any] = {}

    def set(self, key: str, value: Any) -> None:
        """Keep a JSON value under a key.

        Raises ``StepNameError`` for a key that is no text, is empty, or holds ``[`` or ``#``; ``StepFailed`` for a value that cannot be
        stored.
        """
        call = StepCall(
            name=_own_name(STATE_PREFIX, "state key", key), kind=StepKind.STATE, state_key=key, function=lambda: value
        )
        self._values[key] = self._settle(call)

    def get(self, key: str, default: Any = None) -> Any:
        """The value kept under a key at this point of the workflow, or ``default``."""
        self._recorder.guard()
        return self._values.get(key, default)


class Workflow(Gates):
    """What a workflow function works with. Made by the engine, one for each pass."""

    __slots__ = ("_buffer", "_patches", "_recorder", "_translate", "state")

    def __init__(self, recorder: Recorder, translate: Translate) -> None:
        self._recorder = recorder
        self._translate = translate
        self._buffer = Buffer(recorder)
        self._patches: dict[str, bool] = {}
        self.state: Final = WorkflowState(recorder, self._settle)

    @property
    def run_id(self) -> RunId:
        """The id of this run."""
        return self._recorder.run.id

    @property
    def owner(self) -> str | None:
        """Who started this run, when that was said."""
        return self._recorder.run.owner

    @overload
    def do(self, what: Callable[..., T], /, **options: Unpack[StepChoices]) -> T: ...
    @overload
    def do(self, name: str, what: Callable[..., T], /, **options: Unpack[StepChoices]) -> T: ...
    @overload
    def do(
        self, what: Callable[..., Any], /, *, detached: Literal[True], **options: Unpack[StepChoices]
    ) -> DetachedRun: ...
    @overload
    def do(
        self, name: str, what: Callable[..., Any], /, *, detached: Literal[True], **options: Unpack[StepChoices]
    ) -> DetachedRun: ...
    def do(self, *call: Any, **options: Any) -> Any:
        """Work one step and give its result.

        ``what`` is a task's signature (``charge.s(42)``), a workflow's signature (a child run), or a callable without arguments whose
        result is remembered. The step is named after its task unless ``name`` is given. Options are those of ``StepChoices``.
        ``detached=True`` starts a workflow without waiting for it: the child outlives this run, and a ``DetachedRun`` names it.

        Raises ``StepFailed`` when the step failed for good, ``StepNameError`` for an unusable name, ``WorkflowDefinitionError`` for an
        unknown option or something that can be no step, and whatever the task's own argument check raises; then nothing was stored.
        """
        read = self._read("do", call, options)
        value = self._settle(read)
        return DetachedRun(RunId(value)) if read.detached else value

    @overload
    def submit(self, what: Callable[..., T], /, **options: Unpack[StepChoices]) -> Handle[T]: ...
    @overload
    def submit(self, name: str, what: Callable[..., T], /, **options: Unpack[StepChoices]) -> Handle[T]: ...
    def submit(self, *call: Any, **options: Any) -> Handle[Any]:
        """Begin a step without waiting for it; takes what ``do`` takes.

        Steps submitted one after another begin together. A run ends only when all have settled, asked for or not.
        """
        _refuse_detached("submit", options)
        return Handle(self, self._buffer.submit(self._read("submit", call, options)))

    @overload
    def gather(self, h1: Handle[T1], h2: Handle[T2], /) -> tuple[T1, T2]: ...
    @overload
    def gather(self, h1: Handle[T1], h2: Handle[T2], h3: Handle[T3], /) -> tuple[T1, T2, T3]: ...
    @overload
    def gather(self, h1: Handle[T1], h2: Handle[T2], h3: Handle[T3], h4: Handle[T4], /) -> tuple[T1, T2, T3, T4]: ...
    @overload
    def gather(self, *handles: Handle[T], return_exceptions: Literal[False] = ...) -> list[T]: ...
    @overload
    def gather(self, *handles: Handle[T], return_exceptions: bool) -> list[T | StepFailed]: ...
    def gather(self, *handles: Handle[Any], return_exceptions: bool = False) -> Any:
        """The results of several submitted steps, as a list in the order given, once all have settled.

        Raises the first failure in that order; with ``return_exceptions`` failures stand in their places instead.
        """
        recorder = self._recorder
        recorder.guard()
        for handle in handles:
            if not isinstance(handle, Handle):
                raise WorkflowDefinitionError(
                    f"wf.gather got {type(handle).__name__} instead of a handle.",
                    hint="Write wf.gather(wf.submit(...), ...).",
                )
        wanted = [handle._submitted for handle in handles]  # noqa: SLF001 - a handle is half of its workflow
        outcomes = self._buffer.join(wanted)
        if return_exceptions:
            return [
                _value_or_error(recorder.run.id, one.planned.name, o) for one, o in zip(wanted, outcomes, strict=True)
            ]
        return [value_of(recorder.run.id, one.planned.name, o) for one, o in zip(wanted, outcomes, strict=True)]

    def map(
        self,
        task: Callable[[Item], T],
        items: Iterable[Item],
        /,
        *,
        name: str | None = None,
        chunk: int = 1,
        window: int | None = None,
        **options: Unpack[StepChoices],
    ) -> list[T]:
        """Call ``task(item)`` for every item as parallel steps, and give the results in the order of the items.

        Members are named ``name[0]``, ``name[1]`` … (``name`` is the task's unless given). ``chunk`` quick members travel in one message.
        With ``window`` at most that many members are unsettled at a time. No items give ``[]`` and store nothing.

        Raises the first failure in the order of the items, once all have settled; otherwise as ``do``. ``WorkflowDefinitionError`` for a
        set, which has no order.
        """
        recorder = self._recorder
        recorder.guard()
        _refuse_detached("map", options)
        request = MapRequest(
            task=task,
            items=items_of(items),
            name=None if name is None else check_step_name(name),
            options=step_options(options),
            chunk=chunk,
            window=window,
        )
        if not request.items:
            return []
        self._buffer.flush()
        outcomes = Fan(recorder, self._translate, request).outcomes()
        return [value_of(recorder.run.id, member, outcome) for member, outcome in outcomes]

    @overload
    def sleep(self, duration: float | timedelta | str, /) -> None: ...
    @overload
    def sleep(self, name: str, duration: float | timedelta | str, /) -> None: ...
    def sleep(self, *call: Any) -> None:
        """Sleep durably: ``wf.sleep("2h")`` or ``wf.sleep("cool off", "2h")``. No worker waits meanwhile.

        Numbers are seconds. Raises ``DurationError`` for a duration that cannot be read, ``StepNameError`` for an unusable name.
        """
        self._recorder.guard()
        *names, duration = _one_or_two("sleep", call)
        name = check_step_name(names[0]) if names else "sleep"
        seconds = seconds_of(duration, what=f"duration of sleep {name!r}")
        self._settle(StepCall(name=name, kind=StepKind.SLEEP, seconds=seconds))

    def milestone(self, name: str, /) -> None:
        """A point of no return: when the run is undone, nothing that had settled before the latest milestone is touched (spec 2.12).

        Raises ``StepNameError`` for an unusable name.
        """
        self._recorder.guard()
        self._settle(
            StepCall(name=f"{MILESTONE_PREFIX}{check_step_name(name)}", kind=StepKind.MILESTONE, function=_nothing)
        )

    def patched(self, patch_id: str, /) -> bool:
        """Branch old and new runs: True where a run takes the changed code, False where it goes on as it began (D17).

        A run that was past this place before the change gets False; any other gets True, and the mark ``__patch:<id>`` in its history,
        before a step of the changed code begins. The first answer in a run holds for every later call with the same id, and in every pass.
        Code that does not know the mark is stopped by it with VERSION_CONFLICT, and nothing of it is worked.

        Raises ``StepNameError`` for an id that is no text, is empty, longer than 200 characters, or holds ``[`` or ``#``.
        """
        self._recorder.guard()
        name = _patch_name(patch_id)
        known = self._patches.get(name)
        if known is None:
            known = self._patches[name] = self._recorder.takes_patch(StepName(name))
            if known:
                self._settle(StepCall(name=name, kind=StepKind.FUNCTION, function=_nothing))
        return known

    def cancel(self, reason: str | None = None, /) -> NoReturn:
        """Call this run off from inside: what it did is undone, and it ends cancelled, or compensated, with the reason as its error.

        Raises ``RunCancelled``, which has to leave the workflow: a body that catches it goes on.
        """
        self._recorder.guard()
        raise RunCancelled(reason or NO_REASON, self.run_id)

    def now(self) -> datetime:
        """The time, read once and remembered."""
        return cast("datetime", self._settle(_NOW_CALL))

    def uuid(self) -> UUID:
        """A fresh UUID, made once and remembered."""
        return UUID(str(self._settle(_UUID_CALL)))

    def random(self) -> float:
        """A number from 0 to 1, drawn once and remembered. It is not for secrets."""
        return float(self._settle(_RANDOM_CALL))

    def __repr__(self) -> str:
        return f"<Workflow of run {self._recorder.run.id!r}>"

    def _settle(self, call: StepCall) -> Any:
        recorder = self._recorder
        recorder.guard()
        self._buffer.flush()
        outcome = recorder.settle(call)
        if outcome.failure is None:
            return outcome.value
        return value_of(recorder.run.id, recorder.previous or StepName(call.name), outcome)

    def _read(self, verb: str, call: tuple[Any, ...], options: dict[str, Any]) -> StepCall:
        self._recorder.guard()
        *names, what = _one_or_two(verb, call)
        name = check_step_name(names[0]) if names else None
        if name is None and isinstance(what, str):
            raise WorkflowDefinitionError(
                f"wf.{verb}({what!r}) names a step and gives nothing to do.",
                hint=f"Write wf.{verb}({what!r}, task.s(...)).",
            )
        read = self._translate(what, name, step_options(options))
        if read.heartbeat_seconds is not None and read.kind is StepKind.CHILD:
            raise WorkflowDefinitionError(
                f"Step {read.name!r} is a run of its own and has no heartbeat.",
                hint="Give its steps a heartbeat_timeout.",
            )
        if read.detached and read.kind is not StepKind.CHILD:
            raise WorkflowDefinitionError(
                f"Step {read.name!r} is no workflow and cannot be detached.",
                hint="detached=True starts a child run that outlives this one.",
            )
        return read

    def _result(self, submitted: Submitted) -> Any:
        recorder = self._recorder
        recorder.guard()
        return value_of(recorder.run.id, submitted.planned.name, self._buffer.outcome(submitted))

    def _end(self) -> list[str]:
        self._recorder.check_all_met()
        return self._buffer.drain()


def _nothing() -> None:
    """What a milestone does, and the mark of a patch."""


def _refuse_detached(verb: str, options: Mapping[str, Any]) -> None:
    if options.get("detached"):
        raise WorkflowDefinitionError(
            f"wf.{verb} cannot detach a run.", hint="Write wf.do(child.s(...), detached=True): it waits for nothing."
        )


def _one_or_two(verb: str, call: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(call) in {1, 2}:
        return call
    raise WorkflowDefinitionError(
        f"wf.{verb} got {len(call)} positional arguments.",
        hint=f"Write wf.{verb}([name], what), and options by keyword.",
    )


def _patch_name(patch_id: object) -> str:
    name = _own_name(PATCH_PREFIX, "patch id", patch_id)
    if len(name) > len(PATCH_PREFIX) + _LONGEST_PATCH_ID:
        raise StepNameError(f"A patch id has at most {_LONGEST_PATCH_ID} characters.")
    return name


def _own_name(prefix: str, what: str, text: object) -> str:
    if not isinstance(text, str) or not text:
        raise StepNameError(f"A {what} is text that is not empty, not {text!r}.")
    return check_derived_name(f"{prefix}{text}")


def _value_or_error(run_id: RunId, name: StepName, outcome: Recorded) -> Any:
    return outcome.value if outcome.failure is None else step_error(run_id, name, outcome.failure, outcome.attempts)
