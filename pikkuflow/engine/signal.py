"""Send a signal: stored before anything is sent, whether or not anyone waits for it yet (D4)."""

from __future__ import annotations

from typing import Any

from pikkuflow.domain.gate import gate_name
from pikkuflow.domain.gate_act import NewSignal, SignalEnd
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import StepKind
from pikkuflow.engine.drive import drive
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import RunNotFound, RunSettled

__all__ = ["send_signal"]


def send_signal(
    rt: Runtime, run_id: RunId, name: str, payload: Any, *, key: str | None = None, sender: str | None = None
) -> bool:
    """Store the signal and wake the run if it waits for it. False: its key was used before, and the first one counts.

    Raises:
        StepNameError: the name is no text, or unusable.
        TypeError: the key is no text.
        PayloadError: the payload cannot be stored.
        RunNotFound: there is no such run.
        RunSettled: the run has ended. In each case nothing was stored.
    """
    gate_name(StepKind.SIGNAL, name)
    given: object = key
    if given is not None and not isinstance(given, str):
        raise TypeError(f"an idempotency key is text, not {type(given).__name__}")
    signal = NewSignal(
        id=rt.ids.new_id(),
        name=name,
        payload=rt.codec.encode(payload, what=f"the payload of signal {name!r}"),
        key=key,
        sender=sender,
    )
    sent = rt.store.send_signal(run_id, signal)
    if sent.end is SignalEnd.MISSING:
        raise RunNotFound(f"There is no run {run_id!r}.", run_id)
    if sent.end is SignalEnd.SETTLED:
        raise RunSettled(f"Run {run_id!r} has ended: signal {name!r} was not stored.", run_id)
    drive(rt, sent.wake)
    return sent.end is SignalEnd.STORED
