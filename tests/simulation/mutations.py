"""Ten deliberate faults of the engine and the store. The simulation must find each (issue B).

Each is applied to the code as it is, for the length of a block. What others do between two statements is modelled by a pause there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final
from unittest.mock import patch

from pikkuflow.adapters.celery import node_lease
from pikkuflow.adapters.memory import passes
from pikkuflow.adapters.memory.run_store import MemoryRunStore
from pikkuflow.domain.act import (
    Closed,
    Closing,
    PassOpening,
    PassRef,
    PassRefusal,
    Renewed,
    Settlement,
    StepOutcome,
    StepWrite,
)
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import Holder, RunId
from pikkuflow.domain.status import StepStatus
from pikkuflow.engine.perform import Performer
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.take_over import take_over_node
from pikkuflow.ports import Leases
from tests.simulation.stage import ACTOR_PAUSE

__all__ = ["MUTATIONS", "Mutation", "patched"]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One deliberate fault."""

    name: str
    apply: Callable[[], Any]


def patched(*changes: tuple[Any, str, Any]) -> Callable[[], Any]:
    """Replace attributes, each of an owner by its name, for the length of a block."""

    @contextmanager
    def applied() -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, value in changes:
                stack.enter_context(patch.object(owner, name, value))
            yield

    return applied


# --- 1: the steps are read before the run is locked -------------------------------------------------------------------------
_open_pass = MemoryRunStore.open_pass


def _open_with_old_steps(self: MemoryRunStore, opening: PassOpening) -> History | PassRefusal:
    old = self.list_steps(opening.run_id)
    ACTOR_PAUSE()
    opened = _open_pass(self, opening)
    return replace(opened, steps=old) if isinstance(opened, History) else opened


# --- 2: the guard only reads ---------------------------------------------------------------------------------------------
def _guard_then_write(real: Callable[..., Any]) -> Callable[..., Any]:
    def act(self: MemoryRunStore, ref: PassRef, *rest: Any, **more: Any) -> Any:
        run = self._tables.runs.get(ref.run_id)
        if run is None or run.pass_id != ref.pass_id:
            return real(self, ref, *rest, **more)
        ACTOR_PAUSE()
        holds = run.pass_id
        run.pass_id = ref.pass_id
        try:
            return real(self, ref, *rest, **more)
        finally:
            if run.pass_id == ref.pass_id:
                run.pass_id = holds

    return act


# --- 3: news counts as seen when the pass closes -----------------------------------------------------------------------------
_close_pass = MemoryRunStore.close_pass


def _close_as_seen(self: MemoryRunStore, ref: PassRef, end: Closing) -> Closed | None:
    run = self._tables.runs.get(ref.run_id)
    if run is not None and run.pass_id == ref.pass_id and not end.raise_news:
        run.seen = run.news
    return _close_pass(self, ref, end)


# --- 4: members are counted in a statement of its own ----------------------------------------------------------------------------
_settle_steps = MemoryRunStore.settle_steps


def _settle_then_count(self: MemoryRunStore, run_id: RunId, outcomes: Sequence[StepOutcome]) -> Settlement:
    tables = self._tables
    fans = tables.fans.get(run_id, {})
    names = {outcome.name for outcome in outcomes}
    rows = tables.steps_of(run_id)
    # The snapshot of the counting statement: it does not see what others settle and have not committed.
    others = {
        fan: sum(row.fan_id == fan and not row.is_settled and row.name not in names for row in rows.values())
        for fan in fans
    }
    ACTOR_PAUSE()
    for fan, count in others.items():
        fans[fan] = count + sum(rows[name].fan_id == fan and not rows[name].is_settled for name in names)
    return _settle_steps(self, run_id, outcomes)


# --- 5: renewal does not ask whose it is ------------------------------------------------------------------------------------
def _renew_anything(self: MemoryRunStore, holders: Sequence[Holder], run_lease_seconds: float) -> Renewed:
    now = self._tables.clock.now()
    for run in self._tables.runs.values():
        if run.pass_until is not None:
            run.pass_until = now + timedelta(seconds=run_lease_seconds)
    for rows in self._tables.steps.values():
        for row in rows.values():
            if row.lease_until is not None:
                row.lease_until = now + timedelta(seconds=row.lease_seconds)
    return Renewed()


# --- 6: a node is taken over by its name --------------------------------------------------------------------------------------
def _keep_by_name(self: Any, rt: Runtime) -> None:
    leases: Leases | None = rt.leases
    assert leases is not None
    last = leases.get(f"node-last:{self._name}")
    if last is not None and last.holder != self._node.uuid:
        take_over_node(rt, last.holder)
        leases.expire(f"node-last:{self._name}", last.holder)
    leases.acquire(f"node-last:{self._name}", self._node.uuid, 1e6)


# --- 7: a commit whose answer was lost counts as refused --------------------------------------------------------------------------
def _close_once(self: MemoryRunStore, ref: PassRef, end: Closing) -> Closed | None:
    run = self._tables.runs.get(ref.run_id)
    if run is not None and run.pass_id is None and run.author == ref.pass_id:
        return None
    return _close_pass(self, ref, end)


def _open_once(self: MemoryRunStore, opening: PassOpening) -> History | PassRefusal:
    run = self._tables.runs.get(opening.run_id)
    if run is not None and run.pass_id == opening.pass_id and run.is_held(self._tables.clock.now()):
        return PassRefusal.HELD
    return _open_pass(self, opening)


def _write_once(self: MemoryRunStore, ref: PassRef, write: StepWrite, now: Any) -> bool:
    row = self._tables.steps_of(ref.run_id).get(write.step.name)
    if row is not None and (row.attempt, row.status, row.author) == (write.attempt, write.status, ref.pass_id):
        return False
    return _write(self, ref, write, now)


# --- 8: the lost mark is forgotten --------------------------------------------------------------------------------------------
def _open_without_mark(self: MemoryRunStore, opening: PassOpening) -> History | PassRefusal:
    opened = _open_pass(self, opening)
    if not isinstance(opened, History):
        return opened
    self._tables.runs[opening.run_id].lost = False
    return replace(opened, run=replace(opened.run, lost=False))


# --- 9: a status write does not name what it leaves ---------------------------------------------------------------------------------
def _write_any(self: MemoryRunStore, ref: PassRef, write: StepWrite, now: Any) -> bool:
    row = self._tables.steps_of(ref.run_id).get(write.step.name)
    if row is not None and write.status is StepStatus.RUNNING and row.attempt == write.attempt:
        row.status = StepStatus.RUNNING
        return True
    return _write(self, ref, write, now)


_write = passes.PassActs._write


# --- 10: messages leave before the commit -----------------------------------------------------------------------------------
def _insert_after_sending(self: Performer, planned: Sequence[Any], *, joined: bool) -> None:
    vars(self)["was_sent"] = _send(self, planned, chunk=1)
    _insert(self, planned, joined=joined)


def _send_no_more(self: Performer, _planned: Sequence[Any], *, chunk: int) -> bool:
    return bool(vars(self)["was_sent"])


_send = Performer._send
_insert = Performer._insert

MUTATIONS: Final = (
    Mutation("read the steps before locking the run", patched((MemoryRunStore, "open_pass", _open_with_old_steps))),
    Mutation(
        "guard without locking",
        patched(
            (MemoryRunStore, "record", _guard_then_write(MemoryRunStore.record)),
            (MemoryRunStore, "insert_steps", _guard_then_write(MemoryRunStore.insert_steps)),
            (MemoryRunStore, "close_pass", _guard_then_write(MemoryRunStore.close_pass)),
        ),
    ),
    Mutation("take news as seen at the close", patched((MemoryRunStore, "close_pass", _close_as_seen))),
    Mutation(
        "count fan-out members in separate statements", patched((MemoryRunStore, "settle_steps", _settle_then_count))
    ),
    Mutation("renew without ownership", patched((MemoryRunStore, "renew_holders", _renew_anything))),
    Mutation("take over by node name alone", patched((node_lease.NodeLease, "keep", _keep_by_name))),
    Mutation(
        "treat an unknown commit as refused",
        patched(
            (MemoryRunStore, "close_pass", _close_once),
            (MemoryRunStore, "open_pass", _open_once),
            (passes.PassActs, "_write", _write_once),
        ),
    ),
    Mutation("forget the lost mark", patched((MemoryRunStore, "open_pass", _open_without_mark))),
    Mutation("let a status write not name what it leaves", patched((passes.PassActs, "_write", _write_any))),
    Mutation(
        "send before the commit",
        patched((Performer, "_insert", _insert_after_sending), (Performer, "_send", _send_no_more)),
    ),
)
