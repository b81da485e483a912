"""A bench whose workflows are quick, and a store that remembers which acts a pass asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pikkuflow.domain.ids import RunId
from pikkuflow.engine.orchestrate import orchestrate
from tests.unit.engine.bench import Bench, Task

__all__ = ["Acts", "a_bench", "acts_of", "do"]


class Acts:
    """A store that remembers which acts a pass asked for: names, and the steps of what was recorded."""

    def __init__(self, store: Any) -> None:
        self.acts: list[str] = []
        self.raises: list[Exception] = []
        self._store = store

    def record(self, ref: Any, write: Any) -> Any:
        """One row."""
        self.acts.append(f"{write.step.name} {write.status}" if write.status != "succeeded" else write.step.name)
        return self._store.record(ref, write)

    def record_all(self, writes: Any) -> Any:
        """Several rows."""
        self.acts.append("+".join(write.step.name for _, write in writes))
        if self.raises:
            raise self.raises.pop()
        return self._store.record_all(writes)

    def insert_steps(self, *given: Any, **more: Any) -> Any:
        """Waiting rows."""
        self.acts.append("insert")
        return self._store.insert_steps(*given, **more)

    def start_child(self, *given: Any, **more: Any) -> Any:
        """A child."""
        self.acts.append("child")
        return self._store.start_child(*given, **more)

    def close_pass(self, ref: Any, closing: Any) -> Any:
        """The last write."""
        self.acts.append("+".join([*(write.step.name for write in closing.outcomes), "close"]))
        return self._store.close_pass(ref, closing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def a_bench(**settings: Any) -> Bench:
    """Tasks ``inc`` (quick to work), ``slow`` (works for a second), ``far`` (must leave) and ``bad`` (raises)."""
    bench = Bench(**settings)

    def slow() -> str:
        bench.clock.advance(1.0)
        return "slow"

    def bad() -> None:
        raise ValueError("bad")

    bench.task(lambda n=0: n + 1, name="inc")
    bench.task(slow)
    bench.task(lambda: "far", name="far", leaves="its queue")
    bench.task(bad)
    return bench


def acts_of(bench: Bench, body: Callable[[Any], Any], *, quick: bool = True, run_id: str = "r1") -> list[str]:
    """What one pass over the body asks of the store."""
    bench.workflow(body, name=f"flow {run_id}", quick=quick)
    bench.start(f"flow {run_id}", run_id=run_id)
    store = Acts(bench.store)
    orchestrate(bench.other(store=store), [RunId(run_id)])
    return store.acts


def do(wf: Any, *names: str, **options: Any) -> None:
    """Steps of these names, one after the other."""
    for name in names:
        wf.do(name, Task("inc"), **options)
