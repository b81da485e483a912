"""Keep what this process holds while it works a run inline: there is no worker around it that would renew (design 7)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from pikkuflow.engine.pace import paced
from pikkuflow.engine.renew import RENEWALS_A_LEASE, renew
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.tell import warn

__all__ = ["kept"]


@contextmanager
def kept(rt: Runtime) -> Iterator[None]:
    """Renew this process' passes every third of their lease while the block runs, from a thread of its own."""
    done = Event()
    thread = Thread(target=_renew_until, args=(rt, done), name="pikkuflow-keep", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _renew_until(rt: Runtime, done: Event) -> None:
    for _ in paced(rt.clock, rt.settings.run_lease_seconds / RENEWALS_A_LEASE, done):
        try:
            renew(rt, [rt.holder()])
        except Exception as error:  # noqa: BLE001 - the next renewal may succeed, and the row decides whatever happens
            warn(rt, f"Renewing failed: {error!r}")
