"""An exception as data: what is stored of it names servers and never passwords (spec 9.2, issue B 7)."""

from __future__ import annotations

import pytest

from pikkuflow.engine.describe_error import failure_of, without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql+psycopg://shop:hunter2@db/shop", "postgresql+psycopg://shop:***@db/shop"),
        ("redis://:hunter2@cache:6379/0 is away", "redis://:***@cache:6379/0 is away"),
        ("amqp://a:p@ss:w@rabbit//", "amqp://a:***@rabbit//"),
        ("host=db user=shop password=hunter2 dbname=shop", "host=db user=shop password=*** dbname=shop"),
        ("host=db password='hunter 2' dbname=shop", "host=db password=*** dbname=shop"),
        ("mysql://db/shop?user=a&password=hunter2&ssl=1", "mysql://db/shop?user=a&password=***&ssl=1"),
        ("https://example.org:8080/a@b stays", "https://example.org:8080/a@b stays"),
        ("mail someone@example.org: no secret", "mail someone@example.org: no secret"),
    ],
)
def test_passwords_are_hidden_and_nothing_else(text: str, shown: str) -> None:
    """What is no password stays readable."""
    assert without_secrets(text) == shown


def test_message_and_trace_of_a_failure_hide_passwords() -> None:
    """Both are stored, listed and shown."""

    def fail() -> None:
        raise ConnectionError("redis://:hunter2@cache:6379/0 is away")

    with pytest.raises(ConnectionError) as caught:
        fail()
    failure = failure_of(caught.value)
    assert "hunter2" not in failure.message
    assert failure.traceback is not None
    assert 'redis://:***@cache:6379/0 is away")' in failure.traceback
    assert "hunter2" not in failure.to_json()
