"""Waiting for a run's end and watching it (spec 10.3, 10.4, 13.16)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pikkuflow.adapters.memory.hints import MemoryHints
from pikkuflow.domain.act import Closing, PassOpening, PassRef
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import PassId, RunId
from pikkuflow.domain.status import SETTLED_RUN, RunStatus, SuspendCode
from pikkuflow.engine.run_handle import Run
from pikkuflow.errors import ResultTimeout, RunCancelled, RunFailed, RunNotFound
from tests.unit.engine.bench import Bench

_WAITED_SECONDS = 60.0


class Quiet(MemoryHints):
    """Hints that announce nothing: waits last as long as they may. ``meanwhile`` is called once after a while, ``story`` step by step."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.clock)
        self.pauses: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.after_seconds = float("inf")
        self.story: list[Callable[[], object]] = []
        self._bench = bench
        self._began = bench.clock.monotonic()

    def wait(self, run_id: RunId, seconds: float) -> bool:  # noqa: ARG002 - the port's signature
        """Let the time pass."""
        self.pauses.append(seconds)
        self._bench.clock.advance(seconds)
        if self._bench.clock.monotonic() - self._began >= self.after_seconds:
            self.after_seconds = float("inf")
            self.meanwhile()
        if self.story:
            self.story.pop(0)()
        return False

    @contextmanager
    def watching(self, run_id: RunId) -> Iterator[Any]:
        """An ear that hears nothing."""

        class Deaf:
            @staticmethod
            def wait(seconds: float) -> bool:
                return self.wait(run_id, seconds)

        yield Deaf()


class Read:
    """A store that counts the reads of runs."""

    def __init__(self, bench: Bench) -> None:
        self.count = 0
        self._store = bench.store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get_run(self, run_id: RunId) -> Any:
        """Count it."""
        self.count += 1
        return self._store.get_run(run_id)


class Scene:
    """One run that nobody works unless told to, and a handle on it."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.bench.workflow(_quick, name="quick")
        self.run_id = self.bench.start("quick")
        self.bench.broker.lose_all()
        self.hints = Quiet(self.bench)
        self.store: Any = Read(self.bench)
        runtime = self.bench.other(hints=self.hints, store=self.store)
        self.handle: Run[Any] = Run(self.run_id, lambda: runtime)

    def close(self, status: RunStatus, **closing: Any) -> None:
        """Another process opens a pass and closes it like that."""
        ref = PassRef(run_id=self.run_id, pass_id=PassId(self.bench.rt.ids.new_id()))
        self.bench.store.open_pass(
            PassOpening(
                run_id=self.run_id,
                pass_id=ref.pass_id,
                holder=self.bench.rt.holder(),
                lease_seconds=30.0,
                passes_lost_limit=10,
            )
        )
        self.bench.store.close_pass(ref, Closing(status=status, **closing))

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        """Do that in a while."""
        self.hints.meanwhile, self.hints.after_seconds = act, seconds


def _quick(wf: Any) -> int:
    return 1


@pytest.fixture
def scene() -> Scene:
    """A run that has not begun."""
    return Scene()


class TestResult:
    """``run.result()``."""

    def test_a_run_that_has_ended_is_read_once_and_not_waited_for(self, scene: Scene) -> None:
        """T16.17: a finished run without a wait, and without a subscription."""
        scene.close(RunStatus.COMPLETED, output="7")
        assert scene.handle.result() == 7
        assert scene.store.count == 1
        assert scene.hints.pauses == []

    def test_a_fast_run_is_not_held_for_a_whole_interval(self, scene: Scene) -> None:
        """T16.17: without a word of its end it is found within a few hundredths of a second."""
        scene.after(0.04, lambda: scene.close(RunStatus.COMPLETED, output="7"))
        assert scene.handle.result() == 7
        assert sum(scene.hints.pauses) < 0.1

    def test_reads_of_a_slow_run_spread_out(self, scene: Scene) -> None:
        """T16.17: each wait is longer than the one before it, up to a ceiling; a minute costs some twenty reads."""
        with pytest.raises(ResultTimeout):
            scene.handle.result(timeout=_WAITED_SECONDS)
        pauses = scene.hints.pauses[:-1]
        assert pauses == sorted(pauses)
        assert max(pauses) == 5.0
        assert scene.store.count <= 25

    @pytest.mark.parametrize("timeout", [0.01, 0.3, 7.0, _WAITED_SECONDS])
    def test_a_wait_ends_at_its_limit(self, scene: Scene, timeout: float) -> None:
        """T16.17: never past the ceiling, though the next look would come later."""
        with pytest.raises(ResultTimeout):
            scene.handle.result(timeout=timeout)
        assert sum(scene.hints.pauses) == pytest.approx(timeout)

    def test_a_run_that_ends_in_the_last_moment_is_told(self, scene: Scene) -> None:
        """T16.17: what is there when the time is over counts."""
        scene.after(7.0, lambda: scene.close(RunStatus.COMPLETED, output="7"))
        assert scene.handle.result(timeout=7.0) == 7

    def test_a_run_that_vanishes_ends_the_wait(self, scene: Scene) -> None:
        """T16.17: not found, with its id."""

        def vanish() -> None:
            scene.close(RunStatus.COMPLETED, output="7")
            scene.bench.store.delete_run(scene.run_id)

        scene.after(1.0, vanish)
        with pytest.raises(RunNotFound, match="r1"):
            scene.handle.result(timeout=60)

    @pytest.mark.parametrize("status", sorted(SETTLED_RUN - {RunStatus.COMPLETED, RunStatus.CANCELLED}))
    def test_a_run_that_did_not_complete_raises_its_own_error(self, scene: Scene, status: RunStatus) -> None:
        """T16.16, T16.17: failed, compensated, stuck: the run's message; a default text without one."""
        scene.after(1.0, lambda: scene.close(status, error=Failure(type="X", message="out of tea")))
        with pytest.raises(RunFailed, match=r"^out of tea") as told:
            scene.handle.result(timeout=60)
        assert (told.value.status, told.value.run_id) == (422, scene.run_id)

    def test_a_run_that_failed_without_a_message_says_so(self, scene: Scene) -> None:
        """T16.16."""
        scene.close(RunStatus.FAILED)
        with pytest.raises(RunFailed, match="Unknown error"):
            scene.handle.result()

    def test_a_cancelled_run_is_no_failed_one(self, scene: Scene) -> None:
        """T16.16, T16.17: an error of its own, with what was said of it."""
        scene.after(1.0, lambda: scene.close(RunStatus.CANCELLED, error=Failure(type="X", message="changed mind")))
        with pytest.raises(RunCancelled, match="changed mind"):
            scene.handle.result(timeout=60)


class TestWatch:
    """``run.watch()``."""

    def test_a_run_that_has_ended_is_told_at_once(self, scene: Scene) -> None:
        """T16.1: an update, done, and no wait."""
        scene.close(RunStatus.COMPLETED, output="7")
        assert [frame["type"] for frame in scene.handle.watch()] == ["update", "done"]
        assert scene.hints.pauses == []

    @pytest.mark.parametrize("status", sorted(SETTLED_RUN))
    def test_every_end_ends_it(self, scene: Scene, status: RunStatus) -> None:
        """T16.7: the compensated ones too."""
        scene.after(2.0, lambda: scene.close(status))
        frames = list(scene.handle.watch())
        assert [frame["type"] for frame in frames] == ["update", "update", "done"]
        assert frames[1]["status"] == status.value

    def test_nothing_is_told_where_nothing_changed(self, scene: Scene) -> None:
        """T16.6, T16.13: a look each half second, one after the other, and a frame for each change only."""
        scene.after(30.0, lambda: scene.close(RunStatus.COMPLETED, output="7"))
        assert len(list(scene.handle.watch())) == 3
        assert scene.hints.pauses == [0.5] * 60

    def test_a_suspension_is_told_once_and_again_when_it_comes_again(self, scene: Scene) -> None:
        """T16.14: once for each reason, again after it was left; the stream stays open meanwhile."""
        no_stock, no_courier = _reason("no stock"), _reason("no courier")
        scene.hints.story = [
            lambda: scene.close(RunStatus.SUSPENDED, **no_stock),
            lambda: scene.close(RunStatus.SUSPENDED, **no_stock),
            lambda: scene.close(RunStatus.SUSPENDED, **no_courier),
            lambda: scene.close(RunStatus.RUNNING),
            lambda: scene.close(RunStatus.SUSPENDED, **no_courier),
            lambda: scene.close(RunStatus.COMPLETED, output="7"),
        ]
        frames = list(scene.handle.watch())
        said = [frame["reason"] for frame in frames if frame["type"] == "suspended"]
        assert said == ["no stock", "no courier", "no courier"]
        assert [frame["type"] for frame in frames].count("done") == 1


def _reason(reason: str) -> dict[str, Any]:
    return {"code": SuspendCode.WORKFLOW_SUSPENDED, "error": Failure(type="X", message=reason)}
