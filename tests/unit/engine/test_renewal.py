"""Renewal: by holder, guarded by what is still held, never beside itself (spec 13.6, D32)."""

from __future__ import annotations

import threading
import time
from typing import Any

from pikkuflow.domain.ids import Holder, RunId, StepName
from pikkuflow.engine.execute_step import execute_step
from pikkuflow.engine.keep import kept
from pikkuflow.engine.renew import renew
from tests.unit.engine.bench import Bench, Task


def test_a_renewal_after_the_outcome_touches_no_row() -> None:
    """T6.9, D32: the stop barrier across processes: whoever renews late finds a row that is no longer claimed."""
    bench = Bench()
    bench.task(lambda: "done", name="work", leaves="queue")
    bench.workflow(lambda wf: wf.do(Task("work")), name="flow")
    bench.start("flow")
    bench.orchestrate()
    (message,) = bench.broker.messages.pop()
    execute_step(bench.rt, RunId("r1"), [(StepName(message.name), 1)], message.task, may_continue=False)
    settled = bench.step("work")
    bench.clock.advance(5)
    renew(bench.rt, [Holder("node:1")])
    assert bench.step("work") == settled
    assert settled.lease_until is None


class _Slow:
    """A store whose renewals take longer than their interval; it notes how many are under way at once."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._inside = 0
        self._lock = threading.Lock()
        self.most = 0
        self.ended = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def renew_holders(self, *args: Any) -> Any:
        """One renewal."""
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
        time.sleep(0.05)
        with self._lock:
            self._inside -= 1
            self.ended += 1
        return self._store.renew_holders(*args)


def test_no_renewal_begins_while_another_is_under_way() -> None:
    """T6.10, and T6.9 within a process: leaving the block waits for the renewal in flight."""
    bench = Bench(run_lease_seconds=0.1)
    slow: Any = _Slow(bench.store)
    rt = bench.other(store=slow)
    deadline = time.monotonic() + 10
    with kept(rt):
        while slow.ended < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    begun_and_ended = slow.ended
    assert begun_and_ended >= 3
    assert slow.most == 1
    assert slow._inside == 0
