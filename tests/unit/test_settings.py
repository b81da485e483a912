"""The settings of a deployment (design 7)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery

from pikkuflow.domain.status import Dispatch
from pikkuflow.errors import SettingError
from pikkuflow.settings import DEFAULTS, Settings
from tests.servers.processes import ROOT


def _settings(environ: dict[str, str] | None = None, **conf: Any) -> Settings:
    return Settings.from_mapping({f"pikkuflow_{name}": value for name, value in conf.items()}, environ or {})


def test_the_defaults_are_those_of_the_design() -> None:
    """Design 7: the whole list."""
    assert dict(DEFAULTS) == {
        "pikkuflow_database_url": "sqlite:///.pikkuflow/pikkuflow.db",
        "pikkuflow_lease_url": None,
        "pikkuflow_queue": None,
        "pikkuflow_dispatch": "auto",
        "pikkuflow_retries": 5,
        "pikkuflow_retry_delay": "exponential",
        "pikkuflow_step_lease_seconds": 60,
        "pikkuflow_step_lease_seconds_by_queue": {},
        "pikkuflow_run_lease_seconds": 30,
        "pikkuflow_node_lease_seconds": 3,
        "pikkuflow_pass_seconds": 30,
        "pikkuflow_record_start_seconds": 0.2,
        "pikkuflow_passes_lost": 10,
        "pikkuflow_sweep_interval": 10,
        "pikkuflow_stalled_seconds": 10,
        "pikkuflow_undispatched_seconds": 30,
        "pikkuflow_sweep_page": 100,
        "pikkuflow_max_payload_bytes": 8 * 1024 * 1024,
        "pikkuflow_history_warning_steps": 2000,
        "pikkuflow_version_policy": "check",
        "pikkuflow_beat": True,
        "pikkuflow_recovery": True,
        "pikkuflow_step_events": False,
        "pikkuflow_group_commit": False,
        "pikkuflow_allow_green_pools": False,
        "pikkuflow_codec": None,
    }


def test_the_defaults_read_back_as_themselves() -> None:
    """Design 7: they are written below the user's configuration and read from there."""
    assert Settings.from_mapping(DEFAULTS, {}) == Settings()


def test_the_configuration_is_read_and_other_keys_are_left_alone() -> None:
    """Design 7: only ``pikkuflow_*`` keys matter."""
    conf = {"task_default_queue": "q", "pikkuflow_queue": "flows", "pikkuflow_sweep_interval": "5s"}

    settings = Settings.from_mapping(conf, {"PATH": "/bin"})

    assert (settings.queue, settings.sweep_interval) == ("flows", 5.0)


def test_the_environment_wins_over_the_configuration() -> None:
    """Design 7: a deployment changes what the code says."""
    environ = {"PIKKUFLOW_RETRIES": "2", "PIKKUFLOW_DATABASE_URL": "postgresql+psycopg://db/flows"}

    settings = _settings(environ, retries=9, database_url="sqlite://")

    assert settings.retries == 2
    assert settings.database_url == "postgresql+psycopg://db/flows"


@pytest.mark.parametrize(
    ("name", "written", "read"),
    [
        ("retry_delay", "15s", "15"),
        ("retry_delay", "exponential", "exponential"),
        ("retry_delay", "2.5", "2.5"),
        ("dispatch", "queue", Dispatch.QUEUE),
        ("pass_seconds", "45", 45.0),
        ("pass_seconds", timedelta(minutes=1), 60.0),
        ("record_start_seconds", 0, 0.0),
        ("beat", "false", False),
        ("beat", "ON", True),
        ("recovery", "0", False),
        ("sweep_page", " 7 ", 7),
        ("lease_url", "", None),
        ("queue", None, None),
        ("step_lease_seconds_by_queue", {"slow": "10min"}, {"slow": 600.0}),
        ("step_lease_seconds_by_queue", '{"slow": 600}', {"slow": 600.0}),
        ("version_policy", "fail", "fail"),
        ("codec", "shop.codec:HOOK", "shop.codec:HOOK"),
    ],
)
def test_values_are_read_as_people_write_them(name: str, written: Any, read: Any) -> None:
    """Design 7: the same in the configuration and, as text, in the environment."""
    assert getattr(_settings(**{name: written}), name) == read
    if isinstance(written, str):
        assert getattr(_settings({f"PIKKUFLOW_{name.upper()}": written}), name) == read


_IMPOSSIBLE: dict[str, tuple[Any, ...]] = {
    "retries": (-1, 1.5, True, "five", None),
    "sweep_interval": (0, -1, True, "soon", float("nan"), None),
    "run_lease_seconds": (0, "0s", 0.01),
    "dispatch": ("anywhere", None, 1, []),
    "version_policy": ("ignore", None),
    "beat": ("maybe", 1, None),
    "queue": (7, " "),
    "sweep_page": (0, "0", 2.0),
    "max_payload_bytes": (0, "8 MiB"),
    "retry_delay": ("linear", True, None),
    "step_lease_seconds_by_queue": ("slow", [1], {"slow": 0}, {1: 5}, '["slow"]'),
}


@pytest.mark.parametrize(
    ("name", "written"), [(name, value) for name, values in _IMPOSSIBLE.items() for value in values]
)
def test_an_impossible_value_is_refused_with_key_value_and_what_is_allowed(name: str, written: Any) -> None:
    """Issue A, bad input: one clear error, typed, saying what to do."""
    with pytest.raises(SettingError) as refused:
        _settings(**{name: written})

    assert f"pikkuflow_{name}" in str(refused.value)
    assert "Allowed" in refused.value.hint


def test_the_error_names_the_variable_when_the_value_came_from_there() -> None:
    """A person looks where the value was written."""
    with pytest.raises(SettingError, match="PIKKUFLOW_RETRIES is 'many'"):
        _settings({"PIKKUFLOW_RETRIES": "many"})


@pytest.mark.parametrize("written", ["", "shop.db", "user:secret@db", 7, None])
def test_a_database_url_that_is_none_is_refused_without_showing_it(written: Any) -> None:
    """A URL holds a password, and errors end in logs."""
    with pytest.raises(SettingError, match="pikkuflow_database_url is no URL") as refused:
        _settings(database_url=written)

    assert "secret" not in str(refused.value)


def test_no_url_is_in_the_repr() -> None:
    """Settings get logged."""
    settings = _settings(database_url="postgresql://u:secret@db/x", lease_url="redis://:secret@r/1")

    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("conf", "environ", "nearest"),
    [
        ({"pikkuflow_sweep_intervall": 1}, {}, "pikkuflow_sweep_interval"),
        ({"CELERY_PIKKUFLOW_QUEU": "q"}, {}, "pikkuflow_queue"),
        ({"PIKKUFLOW_RETRYS": 1}, {}, "pikkuflow_retries"),
        ({}, {"PIKKUFLOW_DATABSE_URL": "x"}, "PIKKUFLOW_DATABASE_URL"),
    ],
)
def test_an_unknown_key_is_refused_and_the_nearest_named(
    conf: dict[str, Any], environ: dict[str, str], nearest: str
) -> None:
    """Design 7: a misspelt key that is ignored would show itself as a wrong figure in production."""
    with pytest.raises(SettingError) as refused:
        Settings.from_mapping(conf, environ)

    assert f"Did you mean {nearest}?" in str(refused.value)
    assert next(iter({**conf, **environ})) in str(refused.value)


def test_variables_that_are_no_settings_are_left_alone() -> None:
    """Kubernetes adds some for a service called pikkuflow; tools of ours read their own."""
    environ = {
        "PIKKUFLOW_SERVICE_HOST": "10.0.0.1",
        "PIKKUFLOW_SERVICE_PORT": "80",
        "PIKKUFLOW_PORT": "tcp://10.0.0.1:80",
        "PIKKUFLOW_DB_PORT_5432_TCP_ADDR": "10.0.0.1",
        "PIKKUFLOW_REDIS_SERVER": "/opt/valkey-server",
        "PIKKUFLOW_DEMO_LEDGER": "ledger.txt",
    }

    assert Settings.from_mapping({}, environ) == Settings()


def test_settings_of_a_celery_app_are_found() -> None:
    """Design 7: they are keys of the Celery configuration."""
    app = Celery("shop", set_as_current=False)
    app.conf.pikkuflow_pass_seconds = 12

    assert Settings.from_mapping(app.conf, {}).pass_seconds == 12


def test_settings_of_a_django_namespace_are_found_and_checked() -> None:
    """Design 7: ``CELERY_PIKKUFLOW_SWEEP_INTERVAL`` of Django's settings is ``pikkuflow_sweep_interval``."""
    app = Celery("shop", set_as_current=False)
    app.config_from_object({"CELERY_PIKKUFLOW_SWEEP_INTERVAL": 4}, namespace="CELERY")
    wrong = Celery("shop", set_as_current=False)
    wrong.config_from_object({"CELERY_PIKKUFLOW_SWEEP_INTERVALL": 4}, namespace="CELERY")

    assert Settings.from_mapping(app.conf, {}).sweep_interval == 4
    with pytest.raises(SettingError, match="SWEEP_INTERVALL"):
        Settings.from_mapping(wrong.conf, {})


def test_a_step_lease_can_differ_by_queue() -> None:
    """Design 7: step_lease_seconds_by_queue."""
    settings = _settings(step_lease_seconds=20, step_lease_seconds_by_queue={"slow": 600})

    assert settings.step_lease_seconds_of("slow") == 600
    assert settings.step_lease_seconds_of("quick") == 20
    assert settings.step_lease_seconds_of(None) == 20


def test_the_page_of_settings_has_each_with_its_default() -> None:
    """Design 7: docs/settings.md is what a deployment reads."""
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `(pikkuflow_\w+)` \| ([^|]+?) \|", page, re.MULTILINE))

    assert set(shown) == set(DEFAULTS)
    plain = {key: value for key, value in DEFAULTS.items() if isinstance(value, bool | float | int | str)}
    in_words = {"pikkuflow_max_payload_bytes": "8 MiB"}
    assert {key: shown[key].strip("`") for key in plain} == {
        key: in_words.get(key) or (str(value) if isinstance(value, bool | str) else f"{value:g}")
        for key, value in plain.items()
    }
