"""Start runs: durable once this returns (design 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pikkuflow.domain.act import RunRef
from pikkuflow.domain.run import InsertedRun, NewRun, check_who
from pikkuflow.engine.own_version import store_graphs
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import wake_runs
from pikkuflow.errors import NoBroker, RunExists

__all__ = ["start_runs"]

_STORED: Final = "It is stored, and begins by itself once the broker runs, with a worker of this application."


def start_runs(rt: Runtime, runs: Sequence[NewRun]) -> tuple[InsertedRun, ...]:
    """Insert each run unless its id is there, then wake what was created, with few messages.

    A delayed run leaves a hint instead. A broker that takes no message is a warning: the rows are there, a sweep sends (D21).

    Raises:
        PayloadError: an id or owner is none that can be stored; nothing was written.
        NoBroker: a run is not inline and the app has no broker; nothing was written (D26).
        RunExists: an id is taken by another workflow or with another input; the others were inserted and woken.
    """
    for run in runs:
        check_who(run)
    if not rt.has_broker and any(not run.inline for run in runs):
        raise NoBroker(
            "A run that is not inline needs a broker, and neither the configuration nor the environment names one.",
            hint="Set broker_url, or use run_inline().",
        )
    store_graphs(rt, runs)
    inserted = rt.store.insert_runs(runs)
    pairs = list(zip(runs, inserted, strict=True))
    woken = [RunRef(id=new.id, workflow=new.workflow) for new, found in pairs if _wants_waking(new, found)]
    wake_runs(rt, woken, advice=_STORED)
    for new, found in pairs:
        if found.created and not new.inline and new.delay_seconds:
            rt.hints.leave(new.id, new.delay_seconds)
    for new, found in pairs:
        _refuse_other(new, found)
    return inserted


def _wants_waking(new: NewRun, found: InsertedRun) -> bool:
    return found.created and not new.inline and not new.delay_seconds


def _refuse_other(new: NewRun, found: InsertedRun) -> None:
    if found.created or (found.workflow == new.workflow and found.input == new.input):
        return
    what = "another input" if found.workflow == new.workflow else f"workflow {found.workflow!r}"
    raise RunExists(f"Run {new.id!r} exists with {what}.", new.id, hint="Choose another run_id.")
