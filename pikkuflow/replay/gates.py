"""``wf.suspend``, ``wf.approval`` and ``wf.wait_for``: where a workflow waits for a person or for the world (spec 2.6, 2.7).

The pass ends at a gate that is closed, and no worker waits. Parallel work that was submitted before goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar, cast, overload

from pikkuflow.domain.command import StepCall
from pikkuflow.domain.duration import seconds_of
from pikkuflow.domain.gate import Decider, Policy, Terms, approvers_of, gate_name
from pikkuflow.domain.ids import StepName
from pikkuflow.domain.status import StepKind
from pikkuflow.errors import SignalTimeout, StepNameError, WorkflowDefinitionError
from pikkuflow.replay.recorder import Recorder
from pikkuflow.replay.settled import value_of
from pikkuflow.replay.submitted import Buffer
from pikkuflow.replay.translate import Translate

__all__ = ["Approval", "Gates"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _NoDefault:
    """Nothing was given."""


_NO_DEFAULT: Final = _NoDefault()


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval(Generic[T_co]):
    """How an approval ended (spec 2.7).

    ``status`` is ``"decided"`` or ``"expired"``. Decided, ``data`` is the validated value, ``decided_by`` and ``decided_at`` say who
    and when. An expired one has no data and names nobody.
    """

    status: str
    data: T_co
    decided_by: Decider | None = None
    decided_at: datetime | None = None

    @property
    def is_expired(self) -> bool:
        """Nobody decided in time."""
        return self.status == "expired"


class Gates:
    """The calls of ``Workflow`` that wait for the outside."""

    __slots__ = ()

    _recorder: Recorder
    _buffer: Buffer
    _translate: Translate

    def suspend(self, reason: str, /) -> None:
        """Wait until the run is resumed: ``run.resume(reason)``, or ``run.resume()`` for whatever it waits for.

        Nothing else passes it. ``reason`` is shown with the run; it is the gate's identity, so compute it only from what is recorded.

        Raises ``StepNameError`` for a reason that is no text, is empty, longer than 200 characters, or holds ``[`` or ``#``.
        """
        self._recorder.guard()
        name = gate_name(StepKind.SUSPEND, reason)
        self._reach(StepCall(name=name, kind=StepKind.SUSPEND, task=reason, retries=0))

    @overload
    def wait_for(self, name: str, /, *, timeout: float | timedelta | str | None = ...) -> Any: ...
    @overload
    def wait_for(self, name: str, /, *, timeout: float | timedelta | str | None = ..., default: Any) -> Any: ...
    def wait_for(
        self, name: str, /, *, timeout: float | timedelta | str | None = None, default: Any = _NO_DEFAULT
    ) -> Any:
        """The payload of the next signal of that name: ``run.signal(name, payload)``.

        Signals are kept from the first send, before anyone waits, and received in the order in which they came, each by one wait.

        Args:
            name: the signal's name.
            timeout: how long to wait at most; None waits for ever. It is recorded: a replay never waits again.
            default: what a wait that is over gives, instead of raising.

        Raises:
            SignalTimeout: no signal came in time, and there is no default.
            StepNameError: the name is no text, is empty, longer than 200 characters, or holds ``[`` or ``#``.
            DurationError: the timeout cannot be read.
        """
        self._recorder.guard()
        step = gate_name(StepKind.SIGNAL, name)
        seconds = None if timeout is None else seconds_of(timeout, what=f"timeout of the wait for {name!r}")
        outcome = self._outcome(StepCall(name=step, kind=StepKind.SIGNAL, task=name, seconds=seconds, retries=0))
        if outcome.failure is None or outcome.failure.code != SignalTimeout.code:
            return value_of(self._recorder.run.id, self._recorder.previous or StepName(step), outcome)
        if not isinstance(default, _NoDefault):
            return default
        raise SignalTimeout(
            f"No signal {name!r} came to run {self._recorder.run.id} in time.", self._recorder.run.id, name
        )

    @overload
    def approval(
        self,
        reason: str,
        /,
        *,
        schema: type[T] | Callable[[Any], T],
        expiry: float | timedelta | str | None = ...,
        approvers: str = ...,
        approver_scope: str | None = ...,
    ) -> Approval[T]: ...
    @overload
    def approval(
        self,
        reason: str,
        /,
        *,
        schema: Any = ...,
        expiry: float | timedelta | str | None = ...,
        approvers: str = ...,
        approver_scope: str | None = ...,
    ) -> Approval[Any]: ...
    def approval(
        self,
        reason: str,
        /,
        *,
        schema: Any = None,
        expiry: float | timedelta | str | None = None,
        approvers: str = "any",
        approver_scope: str | None = None,
    ) -> Approval[Any]:
        """Wait for a person's decision: ``run.approve(reason, data, by=Decider(user))`` (spec 2.7).

        Args:
            reason: what is to be decided; the gate's identity, so each approval of a run has its own.
            schema: a pydantic model, a dataclass, or a function that takes the data and returns what is valid, or raises. None takes any.
            expiry: how long it may take; then the outcome is ``expired``. None waits for ever.
            approvers: ``"any"``, ``"owner"`` (the run's owner) or ``"not-initiator"`` (a signed-in user other than the owner).
            approver_scope: a scope that the decider must have in addition.

        Raises:
            StepNameError: the reason is unusable (as for ``suspend``), or this run has asked for it before.
            WorkflowDefinitionError: ``approvers`` is no policy, ``approver_scope`` no text, or ``schema`` validates nothing.
            DurationError: the expiry cannot be read.
        """
        self._recorder.guard()
        name = self._fresh_approval(reason)
        if approver_scope is not None and not isinstance(approver_scope, str):
            raise WorkflowDefinitionError(f"approver_scope={approver_scope!r} is no text.")
        terms = Terms(
            policy=Policy(approvers=approvers_of(approvers), scope=approver_scope),
            schema=self._translate.schema(schema),
        )
        seconds = None if expiry is None else seconds_of(expiry, what=f"expiry of approval {reason!r}")
        call = StepCall(name=name, kind=StepKind.APPROVAL, task=reason, seconds=seconds, retries=0, terms=terms)
        return _approval_of(terms, self._reach(call))

    def _fresh_approval(self, reason: str) -> str:
        """A decision is addressed by its reason, so a second gate of that reason could never be opened."""
        name = gate_name(StepKind.APPROVAL, reason)
        if self._recorder.is_named(name):
            raise StepNameError(
                f"Approval {reason!r} was asked for before in this run.",
                hint='A reason is an identity: write what differs into it, such as "release 2".',
            )
        return name

    def _reach(self, call: StepCall) -> Any:
        outcome = self._outcome(call)
        return value_of(self._recorder.run.id, self._recorder.previous or StepName(call.name), outcome)

    def _outcome(self, call: StepCall) -> Any:
        self._buffer.flush()
        return self._recorder.settle(call)


def _approval_of(terms: Terms, recorded: Any) -> Approval[Any]:
    if recorded["status"] == "expired":
        return Approval(status="expired", data=None)
    by = recorded.get("decidedBy")
    return Approval(
        status="decided",
        data=terms.schema.read(recorded["data"]),
        decided_by=None if by is None else Decider(by.get("user"), tuple(by.get("scopes", ()))),
        decided_at=cast("datetime | None", recorded.get("decidedAt")),
    )
