"""What the extension object does to an app, and what it leaves alone (design 7)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, Task

from pikkuflow import NoBroker, PikkuFlow, SettingError, Workflow, WorkflowDefinitionError, WorkflowNotFound
from pikkuflow.adapters.celery.names import ORCHESTRATE_TASK, STEP_TASK, SWEEP_TASK
from pikkuflow.adapters.celery.tasks import widen_limits
from pikkuflow.adapters.sql import migrations
from pikkuflow.settings import DEFAULTS
from pikkuflow.testing import in_memory

ENGINE_TASKS = (ORCHESTRATE_TASK, STEP_TASK, SWEEP_TASK)
SWEEPS = {"pikkuflow-stalled", "pikkuflow-undispatched", "pikkuflow-scheduled"}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broker and settings come from each test's own app."""
    for variable in ("CELERY_BROKER_URL", "PIKKUFLOW_DATABASE_URL"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def app() -> Iterator[Celery]:
    """An app of its own, current for nobody."""
    made = make_app("shop")
    yield made
    made.close()


def make_app(name: str, **conf: Any) -> Celery:
    """An app that no other test sees."""
    made = Celery(name, set_as_current=False)
    made.conf.update(conf)
    return made


class TestConfiguration:
    """Whoever says something about a setting wins over the extension."""

    def test_making_the_extension_and_defining_workflows_reads_no_configuration(self) -> None:
        """``config_from_object`` may come after both (recipes 10)."""
        app: Any = Celery("early", set_as_current=False)
        pikku = PikkuFlow(app)

        @pikku.workflow(name="early.order")
        def order(wf: Workflow) -> None: ...

        assert not app.configured
        app.config_from_object({"pikkuflow_sweep_interval": 3})
        assert pikku.settings.sweep_interval == 3

    def test_defaults_lie_below_what_the_user_says(self, app: Celery) -> None:
        """Design 7: ``conf.pikkuflow_*`` can be read, and every layer of the user's wins."""
        app.conf.update(pikkuflow_retries=2)
        pikku = PikkuFlow(app)
        assert app.conf.pikkuflow_retries == 2
        assert app.conf.pikkuflow_retry_delay == DEFAULTS["pikkuflow_retry_delay"]
        assert pikku.settings.retries == 2

    def test_an_app_that_is_configured_already_gets_everything_too(self) -> None:
        """Late initialisation: routes after the user's, sweeps beside the user's entries."""
        mine = {"mine": {"task": "shop.mine", "schedule": 1.0}}
        app = make_app("late", beat_schedule=mine, task_routes={"a": {"queue": "q"}}, pikkuflow_queue="pf")
        assert app.conf.task_routes
        PikkuFlow(app)
        assert set(app.conf.beat_schedule) == {"mine", *SWEEPS}
        assert app.conf.task_routes == [{"a": {"queue": "q"}}, {"pikkuflow.*": {"queue": "pf"}}]
        assert set(mine) == {"mine"}

    def test_a_django_namespace_is_understood(self) -> None:
        """``CELERY_PIKKUFLOW_SWEEP_INTERVAL`` in Django's settings."""
        app = Celery("site", set_as_current=False)
        pikku = PikkuFlow(app)
        app.config_from_object({"CELERY_PIKKUFLOW_SWEEP_INTERVAL": "4s"}, namespace="CELERY")
        assert pikku.settings.sweep_interval == 4

    def test_an_unknown_key_is_an_error_that_names_the_nearest(self, app: Celery) -> None:
        """At first use; Celery would swallow it while it configures."""
        app.conf.update(pikkuflow_reties=3)
        pikku = PikkuFlow(app)
        with pytest.raises(SettingError, match="pikkuflow_retries"):
            _ = pikku.settings
        with pytest.raises(SettingError, match="pikkuflow_retries"):
            _ = pikku.runtime

    def test_an_entry_of_the_users_with_our_name_stays(self, app: Celery) -> None:
        """Beat entries are added by ``setdefault``."""
        entry = {"task": SWEEP_TASK, "schedule": 99.0, "args": ("stalled",)}
        app.conf.update(beat_schedule={"pikkuflow-stalled": entry})
        PikkuFlow(app)
        assert app.conf.beat_schedule["pikkuflow-stalled"] == entry
        assert set(app.conf.beat_schedule) == SWEEPS

    def test_sweeps_expire_with_the_next_one(self, app: Celery) -> None:
        """A backlog must not replay old sweeps (celery-notes 1)."""
        app.conf.update(pikkuflow_sweep_interval=7)
        PikkuFlow(app)
        options = app.conf.beat_schedule["pikkuflow-stalled"]["options"]
        assert (options["expires"], options["queue"]) == (7, "celery")

    @pytest.mark.parametrize("key", ["pikkuflow_beat", "pikkuflow_recovery"])
    def test_beat_is_left_alone_when_asked(self, app: Celery, key: str) -> None:
        """Design 3.8 and 7."""
        app.conf.update({key: False})
        PikkuFlow(app)
        assert not app.conf.beat_schedule

    def test_two_apps_of_one_process_keep_apart(self) -> None:
        """Each has its own tasks, workflows and settings."""
        first, second = make_app("first", pikkuflow_retries=1), make_app("second", pikkuflow_retries=2)
        one, two = PikkuFlow(first), PikkuFlow(second)

        @one.workflow(name="only.first")
        def order(wf: Workflow) -> None: ...

        assert (one.settings.retries, two.settings.retries) == (1, 2)
        assert "only.first" in first.tasks
        assert "only.first" not in second.tasks
        with pytest.raises(WorkflowNotFound):
            two.workflow_named("only.first")

    def test_an_app_has_one_extension(self, app: Celery) -> None:
        """A second one would register the same tasks."""
        pikku = PikkuFlow(app)
        with pytest.raises(SettingError, match="already"):
            PikkuFlow(app)
        with pytest.raises(SettingError, match="already"):
            pikku.init_app(make_app("other"))

    def test_workflows_may_be_defined_before_the_app_is_there(self, app: Celery) -> None:
        """``PikkuFlow()`` and ``init_app`` later, as Flask's extensions do; used too early it says what is missing."""
        pikku = PikkuFlow()

        @pikku.workflow(name="late.order")
        def order(wf: Workflow, number: int) -> int:
            return number

        with pytest.raises(SettingError, match="init_app"):
            order.start(1)
        pikku.init_app(app)
        with in_memory(pikku):
            assert order.start(7).result() == 7

    def test_an_app_without_a_broker_says_so_at_a_start(self, app: Celery, tmp_path: Any) -> None:
        """D26, T1.3 as decided: Celery would look for RabbitMQ on this host."""
        app.conf.update(pikkuflow_database_url=f"sqlite:///{tmp_path / 'x.db'}")
        pikku = PikkuFlow(app)

        @pikku.workflow(name="lonely.order")
        def order(wf: Workflow) -> None: ...

        with pytest.raises(NoBroker, match="run_inline"):
            order.start()

    def test_a_lease_url_must_name_a_server_of_leases(self, app: Celery) -> None:
        """One clear error at first use."""
        app.conf.update(pikkuflow_lease_url="amqp://localhost")
        with pytest.raises(SettingError, match="pikkuflow_lease_url"):
            _ = PikkuFlow(app).runtime

    def test_a_codec_that_cannot_be_imported_is_named(self, app: Celery) -> None:
        """One clear error at first use."""
        app.conf.update(pikkuflow_codec="nowhere.to.be:found")
        with pytest.raises(SettingError, match="pikkuflow_codec"):
            _ = PikkuFlow(app).runtime

    def test_an_impossible_dispatch_is_refused_where_it_is_written(self, app: Celery) -> None:
        """A definition error names what is allowed."""
        with pytest.raises(WorkflowDefinitionError, match="auto, queue, inline"):
            PikkuFlow(app).workflow(name="x", dispatch="everywhere")(lambda _wf: None)


class Loud(Task[Any, Any]):
    """The app's own task class."""

    before = "loud"


class TestEngineTasks:
    """Nothing that an app says about its tasks reaches the engine's."""

    def test_an_apps_habits_do_not_reach_the_engine(self) -> None:
        """Global limits, late acks, rate limits, an own ``task_cls`` and annotations change nothing (issue A)."""
        app = Celery("habits", set_as_current=False, task_cls=Loud)
        app.conf.update(
            task_time_limit=9,
            task_soft_time_limit=8,
            task_acks_late=True,
            task_reject_on_worker_lost=True,
            task_default_rate_limit="1/m",
            task_annotations={"*": {"rate_limit": "2/h", "acks_late": True, "ignore_result": False}},
            task_track_started=True,
            task_store_errors_even_if_ignored=True,
            task_serializer="pickle",
        )
        PikkuFlow(app)
        for name in ENGINE_TASKS:
            task: Any = app.tasks[name]
            assert not isinstance(task, Loud)
            assert (task.acks_late, task.reject_on_worker_lost, task.rate_limit) == (False, False, 0)
            assert (task.ignore_result, task.track_started, task.serializer) == (True, False, "json")
            assert task.store_errors_even_if_ignored is False

    def test_engine_tasks_are_not_shared_with_other_apps(self, app: Celery) -> None:
        """An app without the extension must not take them."""
        PikkuFlow(app)
        assert set(ENGINE_TASKS) <= set(app.tasks)
        assert not set(ENGINE_TASKS) & set(make_app("other").tasks)

    @pytest.mark.parametrize(
        ("hard", "soft", "limits"),
        [
            (None, None, (None, None)),
            (10.0, None, (40.0, None)),
            (10.0, 5.0, (40.0, 40.0)),
        ],
    )
    def test_a_pass_has_the_workers_limit_and_a_pass_more(
        self, app: Celery, hard: float | None, soft: float | None, limits: tuple[float | None, float | None]
    ) -> None:
        """Design 2: without a soft one before the hard one."""
        PikkuFlow(app)
        widen_limits(app, hard, soft)
        task: Any = app.tasks[ORCHESTRATE_TASK]
        assert (task.time_limit, task.soft_time_limit) == limits

    def test_a_soft_limit_alone_is_moved_out_of_reach(self, app: Celery) -> None:
        """A pool's own soft limit cannot be taken away, only outdone."""
        PikkuFlow(app)
        widen_limits(app, None, 5.0)
        task: Any = app.tasks[ORCHESTRATE_TASK]
        assert task.time_limit is None
        assert task.soft_time_limit > 86_400


class TestSurroundings:
    """What the engine is given in each process."""

    def test_without_redis_leases_share_the_stores_connections(self, tmp_path: Path) -> None:
        """An SQLite file must not be open when a worker forks: closing the store closes what the leases opened, too."""
        url = f"sqlite:///{tmp_path}/pikkuflow.db"
        migrations.upgrade(url)
        pikku = PikkuFlow(make_app("plain", pikkuflow_database_url=url, broker_url="memory://"))
        rt = pikku.compose(connections=1, patience_seconds=1.0)
        assert rt.leases is not None
        assert rt.leases.acquire("node:a", "me", 30.0)
        assert open_files(tmp_path)

        rt.store.close()

        assert not open_files(tmp_path)


def open_files(folder: Path) -> list[str]:
    """This process's open files in the folder."""
    found = [str(descriptor.readlink()) for descriptor in Path("/proc/self/fd").iterdir() if descriptor.is_symlink()]
    return [name for name in found if name.startswith(str(folder))]


class TestCompensates:
    """Declaring how a task is undone (unwinding comes with its own issue)."""

    def test_a_compensated_task_is_known_by_task_and_by_name(self, app: Celery) -> None:
        """Its steps record their start before they work (design 2)."""
        pikku = PikkuFlow(app)

        @app.task(name="shop.charge", shared=False)
        def charge() -> None: ...

        @pikku.compensates(charge)
        def refund(undo: Any) -> None: ...

        @pikku.compensates("shop.reserve")
        def release(undo: Any) -> None: ...

        undone_by = pikku._compensations.undo_task_of
        assert undone_by("shop.charge") == "shop.charge:compensate"
        assert undone_by("shop.reserve") == "shop.reserve:compensate"
        assert undone_by("shop.pack") is None
        assert app.tasks["shop.charge:compensate"].run is not None
