"""Gates: where a run waits for a person or for the world (spec 2.6, 2.7), and who may open an approval.

A gate is a step whose row is ``suspended`` while it waits; ``due_at`` is its time-out or expiry. A suspension is opened by a resume, a
signal gate by a signal of its name, an approval by a decision that its policy admits and its schema accepts. All of them are recorded under
the lock of the run's row before anything is sent (D3, D4).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from pikkuflow.domain.failure import Failure
from pikkuflow.domain.recorded_names import check_derived_name
from pikkuflow.domain.status import StepKind, gate_code
from pikkuflow.domain.step import Step
from pikkuflow.errors import SignalTimeout, StepNameError, WorkflowDefinitionError

__all__ = [
    "NOBODY",
    "Approvers",
    "Checked",
    "Decider",
    "Policy",
    "Schema",
    "Terms",
    "approvers_of",
    "gate_name",
    "is_gate_of",
    "refusal_of",
    "shown_name",
    "signal_timed_out",
    "waiting_failure",
]

_PREFIXES: Final = {
    StepKind.SUSPEND: "__workflow_suspend:",
    StepKind.APPROVAL: "__workflow_approval:",
    StepKind.SIGNAL: "__workflow_signal:",
}
"""Reserved shapes (spec 1.2): a reason is a gate's identity."""

_WORDS: Final = {
    StepKind.SUSPEND: "A suspension's reason",
    StepKind.APPROVAL: "An approval's reason",
    StepKind.SIGNAL: "A signal's name",
}
_LONGEST_TEXT: Final = 200
"""Characters: with its prefix and a number it is a key in every database."""


class Approvers(StrEnum):
    """Who may decide an approval (spec 2.7)."""

    ANY = "any"
    """Whoever the application lets call ``approve``."""
    OWNER = "owner"
    """The run's owner only; a run without an owner admits all."""
    NOT_INITIATOR = "not-initiator"
    """A signed-in user other than the run's owner (four eyes)."""


@dataclass(frozen=True, slots=True)
class Decider:
    """Who decides: ``Decider("u2")``. ``user`` None is nobody in particular; ``scopes`` are what the user may do."""

    user: str | None = None
    scopes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Take any collection of scopes. Raises ``TypeError`` when the user is no text, or a scope is none."""
        given: Any = self.scopes
        scopes = tuple(sorted(given)) if isinstance(given, set | frozenset) else tuple(given)
        user: object = self.user
        if isinstance(given, str) or not all(isinstance(scope, str) for scope in scopes):
            raise TypeError(f"scopes of a decider are texts in a collection, not {given!r}")
        if user is not None and not isinstance(user, str):
            raise TypeError(f"the user of a decider is text, not {type(user).__name__}")
        object.__setattr__(self, "scopes", scopes)


NOBODY: Final = Decider()
"""The caller did not say who decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Who may decide, as it was when the gate was reached. ``scope`` is required in addition, and checked first."""

    approvers: Approvers = Approvers.ANY
    scope: str | None = None

    def to_json(self) -> str:
        """What the gate's row holds in ``options``."""
        return json.dumps({"approvers": self.approvers.value, "scope": self.scope})

    @classmethod
    def from_json(cls, text: str) -> Policy:
        """Read a row's ``options``."""
        fields = json.loads(text)
        return cls(approvers=Approvers(fields.get("approvers", Approvers.ANY)), scope=fields.get("scope"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a schema says of a decision: ``stored`` is the validated value as JSON has it, or ``issues`` say what is wrong and where."""

    stored: Any = None
    issues: tuple[str, ...] = ()


class Schema(Protocol):
    """What an approval's ``schema=`` stands for."""

    def check(self, data: Any) -> Checked:
        """Validate a decision's data; never raises."""
        ...

    def read(self, stored: Any) -> Any:
        """The value of what ``check`` made, as the body gets it. Raises what the schema raises, if it has changed since."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the body says about an approval."""

    policy: Policy
    schema: Schema


def gate_name(kind: StepKind, text: object) -> str:
    """The name of the step that waits for this reason or signal.

    Raises ``StepNameError`` when the text is none (naming its type), empty, longer than 200 characters, or holds ``[`` or ``#``.
    """
    what = _WORDS[kind]
    if not isinstance(text, str):
        raise StepNameError(f"{what} is text, not {type(text).__name__}.")
    if not text:
        raise StepNameError(f"{what} is empty.")
    if len(text) > _LONGEST_TEXT:
        raise StepNameError(f"{what} has {len(text)} characters; {_LONGEST_TEXT} are the most.")
    return check_derived_name(f"{_PREFIXES[kind]}{text}")


def approvers_of(value: object) -> Approvers:
    """Read ``approvers=``. Raises ``WorkflowDefinitionError``."""
    try:
        return Approvers(str(value))
    except ValueError:
        raise WorkflowDefinitionError(
            f"approvers={value!r} is no policy.", hint='Give "any", "owner" or "not-initiator".'
        ) from None


def refusal_of(policy: Policy, by: Decider, owner: str | None) -> str | None:
    """Why the policy does not admit this decider; None: it does (spec 2.7, T15.7)."""
    if policy.scope is not None and policy.scope not in by.scopes:
        return f"it needs the scope {policy.scope!r}"
    if policy.approvers is Approvers.OWNER and owner is not None and by.user != owner:
        return "only the run's owner may decide it"
    if policy.approvers is Approvers.NOT_INITIATOR:
        if by.user is None:
            return "it needs a signed-in user"
        if by.user == owner:
            return "whoever started the run may not decide it"
    return None


def is_gate_of(step: Step, kind: StepKind, text: str) -> bool:
    """The step is a gate of that kind, for that reason or signal."""
    return step.kind is kind and step.task == text


def shown_name(step: str) -> str | None:
    """The reason of a gate's step, for people (spec 1.3 ``displayName``); None for any other step."""
    return next((step.removeprefix(prefix) for prefix in _PREFIXES.values() if step.startswith(prefix)), None)


def waiting_failure(kind: StepKind, text: str) -> Failure:
    """What a run shows while it waits at a gate: the author's own text, and the code of its kind."""
    return Failure(type=str(kind), message=text, code=gate_code(kind))


def signal_timed_out(name: str) -> Failure:
    """A wait for a signal that did not come in time; recorded, so that a replay never waits again (scenario 28)."""
    return Failure(type=SignalTimeout.__name__, message=f"no signal {name!r} came in time", code=SignalTimeout.code)
