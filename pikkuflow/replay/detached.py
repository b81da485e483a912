"""A child run that nobody waits for."""

from __future__ import annotations

from dataclasses import dataclass

from pikkuflow.domain.ids import RunId

__all__ = ["DetachedRun"]


@dataclass(frozen=True, slots=True)
class DetachedRun:
    """What ``wf.do(child.s(...), detached=True)`` gives: the child outlives its parent, and ``pikku.runs.get(run_id)`` follows it."""

    run_id: RunId
