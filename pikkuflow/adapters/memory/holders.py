"""What a process holds, in memory: renewing it, and expiring it once the process is known to be dead (design 3.9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from pikkuflow.adapters.memory.tables import RunRow, StepRow, Tables
from pikkuflow.domain.act import Expired, PassRef, Renewed
from pikkuflow.domain.ids import Holder
from pikkuflow.domain.status import StepStatus

__all__ = ["HolderActs"]


class HolderActs:
    """The acts of ``RunStore`` that go by holder. The contract of each is in ``pikkuflow.ports``."""

    _tables: Tables

    def expire_holder(self, holder: Holder) -> Expired:
        """Expire at once what a dead process held."""
        return self._expire(lambda other: other == holder)

    def expire_node(self, node: str) -> Expired:
        """As ``expire_holder`` for every process of a node."""
        return self._expire(lambda other: other.startswith(f"{node}:"))

    def renew_holders(self, holders: Sequence[Holder], run_lease_seconds: float) -> Renewed:
        """Extend what live processes hold, also what lapsed meanwhile but was not taken."""
        alive = frozenset(holders)
        with self._tables.lock:
            now = self._tables.clock.now()
            passes = self._passes_of(alive.__contains__)
            claims = self._claims_of(alive.__contains__)
            for run in passes:
                run.pass_until = now + timedelta(seconds=run_lease_seconds)
            for row in claims:
                row.lease_until = now + timedelta(seconds=row.lease_seconds)
            return Renewed(passes=_refs(passes), claims=tuple((row.run_id, row.name) for row in claims))

    def _expire(self, is_dead: Callable[[Holder], bool]) -> Expired:
        with self._tables.lock:
            now = self._tables.clock.now()
            passes = self._passes_of(is_dead)
            claims = self._claims_of(is_dead)
            for run in passes:
                run.pass_until = min(run.pass_until or now, now)
            for row in claims:
                row.lease_until = min(row.lease_until or now, now)
            return Expired(
                runs=tuple(run.ref for run in passes),
                steps=tuple(row.message() for row in claims),
                passes=_refs(passes),
            )

    def _passes_of(self, is_wanted: Callable[[Holder], bool]) -> list[RunRow]:
        found = [
            run for run in self._tables.runs.values() if run.pass_holder is not None and is_wanted(run.pass_holder)
        ]
        return sorted(found, key=lambda run: run.id)

    def _claims_of(self, is_wanted: Callable[[Holder], bool]) -> list[StepRow]:
        return [
            row
            for _, rows in sorted(self._tables.steps.items())
            for row in rows.values()
            if row.status is StepStatus.RUNNING and row.claim_holder is not None and is_wanted(row.claim_holder)
        ]


def _refs(passes: Sequence[RunRow]) -> tuple[PassRef, ...]:
    return tuple(PassRef(run_id=run.id, pass_id=run.pass_id) for run in passes if run.pass_id is not None)
