"""What leaves a process: the arguments with which Celery's publisher calls kombu, while nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from kombu import Producer


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One message: its address and what a broker or worker does with it."""

    task: str
    shadow: str | None
    args: tuple[Any, ...]
    exchange: str
    routing_key: str
    priority: int | None
    compression: str | None
    delivery_mode: Any
    timelimit: tuple[Any, Any]
    declared: tuple[tuple[str, str, str], ...]
    serializer: str
    headers: Mapping[str, Any]

    @property
    def address(self) -> tuple[Any, ...]:
        """All that must be equal for the same worker to take it in the same way."""
        return (
            *(self.exchange, self.routing_key, self.priority, self.compression, self.delivery_mode, self.timelimit),
            self.declared,
        )


@contextmanager
def caught() -> Iterator[list[Published]]:
    """Catch what would be published."""
    messages: list[Published] = []

    def catch(_producer: Producer, body: Any, **options: Any) -> None:
        headers = options["headers"]
        exchange = options["exchange"]
        messages.append(
            Published(
                task=headers["task"],
                shadow=headers["shadow"],
                args=tuple(body[0]),
                exchange=getattr(exchange, "name", exchange),
                routing_key=options["routing_key"],
                priority=options.get("priority"),
                compression=options.get("compression"),
                delivery_mode=options.get("delivery_mode"),
                timelimit=tuple(headers["timelimit"]),
                declared=tuple((q.name, q.exchange.name, q.routing_key) for q in options.get("declare") or ()),
                serializer=options["serializer"],
                headers=headers,
            )
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Producer, "publish", catch)
        yield messages
