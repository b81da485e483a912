"""Identities depend on the body alone: not on the prefix that was recorded, nor on which step ended first (spec 1.2, scenario 29)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pikkuflow.replay.context import Handle, Workflow
from pikkuflow.replay.outcome import Completed, ParkedOutcome
from tests.calls import python_calls
from tests.unit.replay.recording import Recording, job, task

NAMES = st.sampled_from(["a", "b", "c"])

OPERATIONS = st.recursive(
    st.one_of(
        st.tuples(st.just("do"), NAMES),
        st.tuples(st.just("submit"), NAMES),
        st.tuples(st.just("ask")),
        st.tuples(st.just("gather"), st.lists(NAMES, max_size=3)),
        st.tuples(st.just("map"), NAMES, st.integers(0, 4), st.one_of(st.none(), st.integers(1, 3))),
        st.tuples(st.just("sleep")),
        st.tuples(st.just("state"), NAMES),
    ),
    lambda inner: st.tuples(st.just("call"), st.lists(inner, max_size=4)),
    max_leaves=12,
)

BODIES = st.lists(OPERATIONS, max_size=8)


class Interpreter:
    """Makes the calls of generated operations and collects what they give."""

    def __init__(self, wf: Workflow) -> None:
        self.wf = wf
        self.seen: list[Any] = []
        self.handles: list[Handle[Any]] = []

    def run(self, operations: list[Any]) -> None:
        """Each operation by the method of its name."""
        for verb, *details in operations:
            getattr(self, verb)(*details)

    def do(self, name: str) -> None:
        """One step."""
        self.seen.append(self.wf.do(name, job("work", name)))

    def submit(self, name: str) -> None:
        """A step that may be asked for later."""
        self.handles.append(self.wf.submit(name, job("work", name)))

    def ask(self) -> None:
        """The result of the oldest handle."""
        if self.handles:
            self.seen.append(self.handles.pop(0).result())

    def gather(self, names: list[str]) -> None:
        """Several at once."""
        self.seen.append(list(self.wf.gather(*[self.wf.submit(name, job("work", name)) for name in names])))

    def map(self, name: str, count: int, window: int | None) -> None:
        """One task over several items."""
        self.seen.append(self.wf.map(task("work"), range(count), name=name, window=window))

    def sleep(self) -> None:
        """A timer."""
        self.wf.sleep(1)

    def state(self, name: str) -> None:
        """A value kept with the run."""
        self.wf.state.set(name, len(self.seen))
        self.seen.append(self.wf.state.get(name))

    def call(self, inner: list[Any]) -> None:
        """A function of the user's that makes calls."""
        self.run(inner)


def body_of(operations: list[Any]) -> Callable[[Workflow], Any]:
    """A workflow that makes these calls and returns what it has seen."""

    def body(wf: Workflow) -> Any:
        interpreter = Interpreter(wf)
        interpreter.run(operations)
        return interpreter.seen

    return body


@settings(deadline=None, max_examples=60)
@given(operations=BODIES)
def test_a_replay_of_the_whole_history_asks_for_nothing_and_ends_the_same(operations: list[Any]) -> None:
    """The value is the same as when the steps were worked."""
    recording = Recording(body_of(operations))
    value = recording.run_to_end()
    recording.reaches.clear()

    assert recording.pass_once() == Completed(value)
    assert recording.reaches == []


@settings(deadline=None, max_examples=60)
@given(operations=BODIES, data=st.data())
def test_any_prefix_of_a_history_leads_to_the_same_calls_names_and_places(operations: list[Any], data: Any) -> None:
    """A run that was lost after any outcome goes on as it would have gone on."""
    reference = Recording(body_of(operations))
    value = reference.run_to_end()
    length = data.draw(st.integers(0, len(reference.rows)))
    kept = sorted(reference.rows.values(), key=lambda row: row.seq)[:length]
    recording = Recording(body_of(operations), rows={row.name: row for row in kept})

    assert recording.run_to_end() == value
    assert recording.identities() == reference.identities()


@settings(deadline=None, max_examples=60)
@given(operations=BODIES, elsewhere=st.booleans(), data=st.data())
def test_the_order_in_which_steps_end_never_changes_an_identity(
    operations: list[Any], *, elsewhere: bool, data: Any
) -> None:
    """Parallel steps end in any order, passes come at any time, and nothing conflicts or is worked twice (scenario 29)."""
    reference = Recording(body_of(operations))
    value = reference.run_to_end()
    recording = Recording(body_of(operations), elsewhere=frozenset({"work"} if elsewhere else ()))
    worked: list[str] = []

    outcome = recording.pass_once()
    while isinstance(outcome, ParkedOutcome):
        assert outcome.parked.code is None
        in_flight = recording.in_flight()
        ended = data.draw(st.lists(st.sampled_from(in_flight), min_size=1, unique=True))
        for name in ended:
            recording.settle(name)
        worked.extend(ended)
        outcome = recording.pass_once()

    assert outcome == Completed(value)
    assert recording.identities() == reference.identities()
    assert len(worked) == len(set(worked))


def test_replaying_a_recorded_step_calls_few_functions() -> None:
    """Scenario 36: a long history costs little for each pass; five thousand steps take about a tenth of a second."""

    def body(wf: Workflow) -> int:
        return sum(wf.do("count", job("one", index))[0] for index in range(5_000))

    recording = Recording(body)
    recording.run_to_end()
    recording.reaches.clear()

    outcomes: list[object] = []
    calls = python_calls(lambda: outcomes.append(recording.pass_once()))

    assert outcomes == [Completed(sum(range(5_000)))]
    assert calls / 5_000 <= 35
    assert recording.reaches == []
