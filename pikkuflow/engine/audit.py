"""Tell the application's audit hook; whatever it raises is a warning and costs no decision (spec 12.3, T15.9)."""

from __future__ import annotations

from collections.abc import Sequence

from pikkuflow.domain.gate_act import AuditEntry
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.tell import warn

__all__ = ["deny", "tell_audit"]


def tell_audit(rt: Runtime, entries: Sequence[AuditEntry]) -> None:
    """Hand entries that are stored to the hook, if the application has one."""
    hook = rt.audit
    if hook is None:
        return
    for entry in entries:
        try:
            hook(entry)
        except Exception as error:  # noqa: BLE001 - the application's hook may raise anything
            warn(rt, f"The audit hook failed: {error!r}", run_id=entry.run_id)


def deny(rt: Runtime, entry: AuditEntry) -> None:
    """Store and tell that somebody was refused. A store that is away costs the entry, not the refusal."""
    try:
        rt.store.add_audit(entry)
    except Exception as error:  # noqa: BLE001 - the caller is refused whatever becomes of the entry
        warn(rt, f"A refused decision could not be audited: {error!r}", run_id=entry.run_id)
    tell_audit(rt, [entry])
