"""A pass that waits is left, and stays left (design 1, recipes 6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

import pytest

from pikkuflow.errors import PikkuFlowError, StoreUnavailable
from pikkuflow.replay.context import Workflow
from pikkuflow.replay.outcome import Completed, Failed, ParkedOutcome
from pikkuflow.replay.park import Parked, ParkReason
from tests.unit.replay.recording import Recording, job


def test_except_exception_does_not_swallow_a_wait() -> None:
    """A park is a BaseException (design 1)."""

    def body(wf: Workflow) -> str:
        try:
            wf.sleep("1h")
        except Exception:  # noqa: BLE001 - that is what the test is about
            return "swallowed"
        return "slept"

    recording = Recording(body)

    outcome = recording.pass_once()

    assert isinstance(outcome, ParkedOutcome)
    assert outcome.parked.reason is ParkReason.WAITING
    assert recording.warnings == []
    recording.settle("sleep")
    assert recording.pass_once() == Completed("slept")


def bare_except(wf: Workflow) -> None:
    """Everything is caught, and the body goes on."""
    try:
        wf.sleep("1h")
    except:  # noqa: E722 - that is what the test is about
        wf.do("too early", job("x"))


def suppressed(wf: Workflow) -> None:
    """A with block swallows the park."""
    with suppress(BaseException):
        wf.sleep("1h")
    with suppress(BaseException):
        wf.do("too early", job("x"))


def returned_from_finally(wf: Workflow) -> str:
    """A return in finally drops whatever was on its way."""
    try:
        wf.sleep("1h")
    finally:
        return "gone"  # noqa: B012 - that is what the test is about


def turned_into_another(wf: Workflow) -> None:
    """The park becomes an error of the body's own."""
    try:
        wf.sleep("1h")
    except BaseException as error:
        raise ValueError("no") from error


def wrapped(wf: Workflow) -> None:
    """As TaskGroup does it."""
    try:
        wf.sleep("1h")
    except BaseException as error:  # noqa: BLE001 - that is what the test is about
        raise BaseExceptionGroup("all", [error]) from None


def swallowed_by_exit(wf: Workflow) -> None:
    """A context manager that swallows."""

    @contextmanager
    def careless() -> Iterator[None]:
        with suppress(BaseException):
            yield

    with careless():
        wf.sleep("1h")


@pytest.mark.parametrize(
    "body", [bare_except, suppressed, returned_from_finally, turned_into_another, wrapped, swallowed_by_exit]
)
@pytest.mark.filterwarnings("ignore:'return' in a 'finally' block:SyntaxWarning")
def test_a_swallowed_park_parks_again_and_is_reported_once(body: Any) -> None:
    """Later calls park again; what the body returns or raises is dropped with one warning naming file and line (recipes 6)."""
    recording = Recording(body)

    outcome = recording.pass_once()

    assert isinstance(outcome, ParkedOutcome)
    assert recording.names() == ["sleep"]
    if body is not bare_except:
        (warning,) = recording.warnings
        assert f"{__file__}, line " in warning


def test_the_same_park_is_raised_by_every_later_call() -> None:
    """A pass parks for one reason."""
    seen: list[BaseException] = []

    def body(wf: Workflow) -> None:
        for attempt in (lambda: wf.sleep(1), lambda: wf.do("x", job("x")), lambda: wf.submit("x", job("x"))):
            try:
                attempt()
            except BaseException as error:  # noqa: BLE001 - that is what the test is about
                seen.append(error)

    outcome = Recording(body).pass_once()

    assert isinstance(outcome, ParkedOutcome)
    assert seen == [outcome.parked] * 3


def test_finally_runs_at_every_park() -> None:
    """The docs say so, since a lock in a with block is let go while the run waits."""
    left: list[str] = []

    def body(wf: Workflow) -> None:
        try:
            wf.sleep(1)
        finally:
            left.append("left")

    recording = Recording(body)
    recording.pass_once()
    recording.pass_once()

    assert left == ["left", "left"]


def test_the_engine_may_park_the_pass() -> None:
    """A pass that yields or is stopped ends where the engine says."""
    park = Parked(ParkReason.YIELDED)

    def refuse(_reach: Any) -> None:
        raise park

    outcome = Recording(lambda wf: wf.do("x", job("x")), refuse=refuse).pass_once()

    assert isinstance(outcome, ParkedOutcome)
    assert outcome.parked is park


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("away"),
        ConnectionError("the codec hook's service is away"),
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
    ],
)
def test_what_ends_the_process_or_the_store_is_never_an_error_of_the_body(error: BaseException) -> None:
    """An outage is never turned into a failed step or run, whatever the body catches (design 3.4)."""

    def refuse(_reach: Any) -> None:
        raise error

    def body(wf: Workflow) -> str:
        for name in ("a", "b"):
            with suppress(BaseException):
                wf.do(name, job("x"))
        return "went on"

    recording = Recording(body, refuse=refuse)

    with pytest.raises(type(error)):
        recording.pass_once()
    assert recording.rows == {}


def test_an_error_of_the_body_is_its_outcome() -> None:
    """With its traceback, which is stored with the run."""

    def body(_wf: Workflow) -> None:
        raise ValueError("no stock")

    outcome = Recording(body).pass_once()

    assert isinstance(outcome, Failed)
    assert str(outcome.error) == "no stock"
    assert outcome.error.__traceback__ is not None


def test_input_that_does_not_fit_the_workflow_fails_the_run() -> None:
    """As a call of the function would."""

    def body(_wf: Workflow, _order: int) -> None:
        """Takes one argument."""

    outcome = Recording(body, args=(1, 2)).pass_once()

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, TypeError)


def test_wf_is_refused_in_another_thread() -> None:
    """Calls of other threads come in no order that could be replayed (design 1)."""
    errors: list[PikkuFlowError] = []

    def body(wf: Workflow) -> str:
        def call() -> None:
            try:
                wf.do("x", job("x"))
            except PikkuFlowError as error:
                errors.append(error)

        thread = Thread(target=call)
        thread.start()
        thread.join()
        return "done"

    recording = Recording(body)

    assert recording.pass_once() == Completed("done")
    assert "another thread" in str(errors[0])
    assert recording.rows == {}


def test_wf_is_refused_after_its_pass() -> None:
    """A workflow that keeps its wf somewhere cannot use it later."""
    kept: list[Workflow] = []
    Recording(kept.append).pass_once()

    with pytest.raises(PikkuFlowError, match="after its pass"):
        kept[0].do("x", job("x"))


def test_wf_is_refused_inside_a_step() -> None:
    """A step is worked once and then remembered: calls from inside would be gone on replay."""

    def body(wf: Workflow) -> None:
        wf.do("outer", lambda: wf.do("inner", job("x")))

    recording = Recording(body)

    outcome = recording.pass_once()

    assert isinstance(outcome, Failed)
    assert "inside a step" in str(outcome.error)
    assert recording.names() == ["outer"]
