"""Who is told about a step, and when: hooks, signals, log lines and events, in Celery's order (design 1, recipes.md 1)."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from celery import Celery, Task
from celery.exceptions import Ignore, Reject

from pikkuflow.errors import PayloadError, StepSuperseded
from pikkuflow.settings import Settings
from tests.integration.celery.published import caught
from tests.integration.celery.step_ledger import Ledger, heard


class Declined(Exception):
    """A card was declined."""


class Hooked(Task):  # type: ignore[type-arg]
    """A base class that hears everything. ``breaks`` names the hook that fails."""

    abstract = True
    events: list[str]
    arguments: dict[str, tuple[Any, ...]]
    breaks: str | None = None

    def _hear(self, hook: str, *arguments: Any) -> None:
        self.events.append(hook)
        self.arguments[hook] = arguments
        if hook == self.breaks:
            raise RuntimeError(hook)

    def before_start(self, *args: Any) -> None:
        """Before the body."""
        self._hear("before_start", *args)

    def on_success(self, *args: Any) -> None:
        """After the commit."""
        self._hear("on_success", *args)

    def on_retry(self, *args: Any) -> None:
        """Another attempt follows."""
        self._hear("on_retry", *args)

    def on_failure(self, *args: Any) -> None:
        """None follows."""
        self._hear("on_failure", *args)

    def after_return(self, *args: Any) -> None:
        """At the end."""
        self._hear("after_return", *args)


@pytest.fixture
def ledger() -> Ledger:
    """A runner on an app whose task hears all hooks into the ledger's events."""
    app = Celery("shop", broker="memory://", set_as_current=False)
    ledger = Ledger(app)

    def act(self: Any, how: str = "return") -> str:
        ledger.events.append("body")
        if how == "retry":
            raise self.retry(exc=Declined("no"), countdown=3)
        outcomes: dict[str, BaseException] = {
            "raise": Declined("no"),
            "ignore": Ignore("enough"),
            "reject": Reject("bad"),
            "exit": SystemExit(1),
        }
        if how in outcomes:
            raise outcomes[how]
        return "done"

    app.task(
        name="shop.act", bind=True, base=Hooked, shared=False, events=ledger.events, arguments={}, throws=(KeyError,)
    )(act)
    return ledger


def act(ledger: Ledger, how: str = "return") -> Any:
    """The signature of the task."""
    return ledger.app.tasks["shop.act"].s(how)


BEFORE = ["task_prerun", "before_start", "body", "commit"]


@pytest.mark.parametrize(
    ("how", "is_last", "after"),
    [
        ("return", True, ["on_success", "task_success", "after_return", "task_postrun"]),
        ("raise", False, ["on_retry", "task_retry", "task_postrun"]),
        ("raise", True, ["on_failure", "task_failure", "after_return", "task_postrun"]),
        ("retry", False, ["on_retry", "task_retry", "task_postrun"]),
        ("retry", True, ["on_failure", "task_failure", "after_return", "task_postrun"]),
        ("ignore", True, ["task_postrun"]),
        ("reject", True, ["task_postrun"]),
    ],
)
def test_hooks_and_signals_come_in_celerys_order(ledger: Ledger, how: str, is_last: bool, after: list[str]) -> None:  # noqa: FBT001
    """The outcome is stored where Celery stores it: on_retry for every attempt that is tried again, on_failure once at the end."""
    ledger.last = is_last
    with heard(ledger.events):
        ledger.run(act(ledger, how))
    assert ledger.events == [*BEFORE, *after]


def test_hooks_and_signals_carry_what_they_carry_in_celery(ledger: Ledger) -> None:
    """Error, id, arguments and a picture of the traceback; the postrun's state is Celery's word for it."""
    # given
    ledger.last = True
    # when
    with heard(ledger.events) as signals:
        ledger.run(act(ledger, "retry"))
    # then
    error, step_id, args, kwargs, einfo = ledger.app.tasks["shop.act"].arguments["on_failure"]  # type: ignore[attr-defined]
    carried = dict(signals)
    assert isinstance(error, Declined)
    assert (args, kwargs) == (["retry"], {})
    assert "Declined" in einfo.traceback
    assert carried["task_failure"]["exception"] is error
    assert carried["task_failure"]["traceback"] is not None
    assert carried["task_failure"]["task_id"] == carried["task_prerun"]["task_id"] == step_id
    assert carried["task_postrun"]["state"] == "FAILURE"
    assert carried["task_prerun"]["sender"] is ledger.app.tasks["shop.act"]


def test_a_retry_signal_has_request_and_reason(ledger: Ledger) -> None:
    """As ``celery.signals.task_retry`` documents it."""
    with heard(ledger.events) as signals:
        ledger.run(act(ledger, "retry"), attempt=2)
    carried = dict(signals)["task_retry"]
    assert (carried["request"].retries, str(carried["reason"])) == (1, "Retry in 3s: Declined('no')")


@pytest.mark.parametrize("hook", ["on_success", "after_return"])
def test_a_hook_after_the_commit_cannot_change_a_success(
    ledger: Ledger, caplog: pytest.LogCaptureFixture, hook: str
) -> None:
    """It is logged; what comes after it is told all the same."""
    ledger.app.tasks["shop.act"].breaks = hook  # type: ignore[attr-defined]
    with heard(ledger.events):
        assert ledger.run(act(ledger)).value == "done"
    assert ledger.events[len(BEFORE) :] == ["on_success", "task_success", "after_return", "task_postrun"]
    assert any(record.exc_info and f"{hook} raised" in record.message for record in caplog.records)


@pytest.mark.parametrize(("hook", "is_last"), [("on_retry", False), ("on_failure", True), ("after_return", True)])
def test_a_hook_after_the_commit_cannot_change_a_failure(
    ledger: Ledger,
    hook: str,
    is_last: bool,  # noqa: FBT001
) -> None:
    """The same for the others."""
    ledger.last = is_last
    ledger.app.tasks["shop.act"].breaks = hook  # type: ignore[attr-defined]
    with heard(ledger.events):
        assert isinstance(ledger.run(act(ledger, "raise")).error, Declined)
    assert ledger.events[-1] == "task_postrun"


def test_before_start_is_part_of_the_attempt(ledger: Ledger) -> None:
    """As in Celery: what it raises fails the attempt, and the body does not run."""
    ledger.app.tasks["shop.act"].breaks = "before_start"  # type: ignore[attr-defined]
    assert str(ledger.run(act(ledger)).error) == "before_start"
    assert "body" not in ledger.events


@pytest.mark.parametrize("error", [StepSuperseded("late"), SystemExit(2)], ids=["superseded", "exit"])
def test_nothing_is_told_of_an_outcome_that_was_not_stored(ledger: Ledger, error: BaseException) -> None:
    """What commit raises passes through; only postrun is sent, and frames are put back."""
    ledger.fails_with = error
    with heard(ledger.events), pytest.raises(type(error)):
        ledger.run(act(ledger))
    assert ledger.events == [*BEFORE, "task_postrun"]
    assert ledger.app.current_task is None


def test_a_result_that_cannot_be_stored_is_told_as_a_failure(ledger: Ledger) -> None:
    """Design 6: the work is done, the step failed for good: ``on_failure``, not ``on_success``."""
    ledger.stores = False
    with heard(ledger.events) as signals:
        ledger.run(act(ledger))
    assert ledger.events[len(BEFORE) :] == ["on_failure", "task_failure", "after_return", "task_postrun"]
    assert isinstance(dict(signals)["task_failure"]["exception"], PayloadError)


@pytest.mark.parametrize(
    ("how", "is_last", "level", "text"),
    [
        ("return", True, logging.INFO, "succeeded in"),
        ("raise", False, logging.INFO, "retry: Declined('no')"),
        ("raise", True, logging.ERROR, "raised unexpected: Declined('no')"),
        ("retry", False, logging.INFO, "retry: Retry in 3s: Declined('no')"),
        ("ignore", True, logging.INFO, "ignored"),
        ("reject", True, logging.WARNING, "reject requeue=False: bad"),
    ],
)
def test_log_lines_are_celerys_own(
    ledger: Ledger,
    caplog: pytest.LogCaptureFixture,
    how: str,
    is_last: bool,  # noqa: FBT001
    level: int,
    text: str,
) -> None:
    """Logger, level, wording, the task's name and the step's id; ``extra["data"]`` for handlers that read it."""
    ledger.last = is_last
    with caplog.at_level(logging.INFO, "celery.app.trace"):
        ledger.run(act(ledger, how))
    record = caplog.records[-1]
    assert (record.name, record.levelno) == ("celery.app.trace", level)
    assert record.message.startswith("Task shop.act[")
    assert text in record.message
    assert record.data["name"] == "shop.act"  # type: ignore[attr-defined]


def test_an_expected_error_is_no_alarm(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    """``throws``: logged as information, without a traceback."""
    ledger.last = True
    ledger.app.tasks["shop.act"].throws = (Declined,)
    with caplog.at_level(logging.INFO, "celery.app.trace"):
        ledger.run(act(ledger, "raise"))
    assert (caplog.records[-1].levelno, caplog.records[-1].exc_info) == (logging.INFO, None)


@pytest.mark.parametrize(
    ("how", "is_last", "kinds"),
    [
        ("return", True, ["task-received", "task-started", "task-succeeded"]),
        ("raise", False, ["task-received", "task-started", "task-retried"]),
        ("raise", True, ["task-received", "task-started", "task-failed"]),
        ("reject", True, ["task-received", "task-started", "task-rejected"]),
    ],
)
def test_task_events_are_sent_when_asked_for(
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    is_last: bool,  # noqa: FBT001
    kinds: list[str],
) -> None:
    """``pikkuflow_step_events``: what Flower shows; not a publish without it."""
    sent: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(
        "celery.events.dispatcher.EventDispatcher.publish",
        lambda _self, kind, fields, _producer: sent.append((kind, fields)),
    )
    ledger.last = is_last
    ledger.run(act(ledger, how))
    assert sent == []
    ledger.settings = Settings(step_events=True)
    ledger.run(act(ledger, how))
    assert [kind for kind, _ in sent] == kinds
    assert len({fields["uuid"] for _, fields in sent}) == 1
    assert sent[0][1]["name"] == "shop.act"


def test_a_broker_that_is_away_does_not_disturb_a_step_with_events(ledger: Ledger) -> None:
    """They are told, not needed."""
    ledger.app.conf.update(broker_url="redis://127.0.0.1:1/0")
    ledger.settings = Settings(step_events=True)
    begun = time.monotonic()
    assert ledger.run(act(ledger)).value == "done"
    assert time.monotonic() - begun < 2


def test_receivers_that_fail_change_nothing(ledger: Ledger) -> None:
    """Celery's signals log what a receiver raises."""
    from celery.signals import task_success  # noqa: PLC0415 - connected for this test only

    def broken(**_: Any) -> None:
        raise RuntimeError("receiver")

    task_success.connect(broken, weak=False)
    try:
        assert ledger.run(act(ledger)).value == "done"
    finally:
        task_success.disconnect(broken)


def test_an_unpatched_step_publishes_nothing(ledger: Ledger) -> None:
    """Neither message nor event nor result."""
    with caught() as messages:
        for how in ("return", "raise", "retry", "ignore", "reject"):
            ledger.run(act(ledger, how))
    assert messages == []
