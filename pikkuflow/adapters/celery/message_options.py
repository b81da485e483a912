"""Where a message goes, as JSON: what a router gave, in a form that a stored row can keep and a dispatcher can send.

A row outlives the process that routed it, so ``Queue`` and ``Exchange`` objects are written down: a declared queue by its name (its
declaration may be changed by a deploy), any other one by what declares it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from celery import Celery
from kombu import Exchange, Queue

from pikkuflow.errors import PayloadError

__all__ = [
    "DESTINATION",
    "LIMITS",
    "PUBLISHED",
    "REFUSED_OPTIONS",
    "Destination",
    "as_json",
    "destination_of",
    "from_json_options",
    "to_json_options",
]

DESTINATION: Final = ("queue", "exchange", "exchange_type", "routing_key")
REFUSED_OPTIONS: Final = {
    "link": "Write what comes next as another step.",
    "link_error": "Catch StepFailed in the workflow instead.",
    "task_id": "A step's id is its invocation id; a signature that was frozen or applied cannot be a step.",
}
"""What the signature of a step cannot carry, and what to do instead (design 1)."""

LIMITS: Final = ("time_limit", "soft_time_limit")
PUBLISHED: Final = (*DESTINATION, "priority", "compression", "delivery_mode")
"""Options that Celery's publisher takes as they are."""

Destination = tuple[str, str]
"""Exchange and routing key of a message, as Celery's publisher makes them out of a route."""


def destination_of(app: Celery, options: Mapping[str, Any]) -> Destination:
    """Exchange and routing key that a message with these routed options gets.

    As Celery's publisher does it (``celery.app.amqp``): a direct exchange without a full address becomes the anonymous one.
    """
    queue: Any = options.get("queue")
    exchange = options.get("exchange")
    routing_key = options.get("routing_key")
    if queue is None and exchange is None:
        queue = app.amqp.default_queue
    if isinstance(queue, str):
        queue = app.amqp.queues[queue]
    kind = options.get("exchange_type") or (queue.exchange.type if queue is not None and queue.exchange else "direct")
    if (not exchange or not routing_key) and kind == "direct":
        return "", str(queue.name if queue is not None else routing_key)
    if exchange is None:
        exchange = queue.exchange.name or app.amqp.default_exchange
        routing_key = routing_key or queue.routing_key or app.conf.task_default_routing_key
    return str(exchange.name if isinstance(exchange, Exchange) else exchange), str(routing_key)


def to_json_options(app: Celery, options: Mapping[str, Any]) -> dict[str, Any]:
    """Routed options with objects written down. Keys whose value is None are left out."""
    written = {key: value for key, value in options.items() if value is not None}
    queue, exchange = written.get("queue"), written.get("exchange")
    if isinstance(queue, Queue):
        written["queue"] = _queue_as_json(app, queue)
    if isinstance(exchange, Exchange):
        written["exchange"] = exchange.name
        written.setdefault("exchange_type", exchange.type)
    return written


def from_json_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options again as a publisher takes them."""
    read = {key: value for key, value in options.items() if value is not None}
    queue = read.get("queue")
    if isinstance(queue, Mapping):
        read["queue"] = Queue.from_dict(queue["name"], **{key: value for key, value in queue.items() if key != "name"})
    return read


def as_json(options: Mapping[str, Any], *, what: str) -> str:
    """The text for the row. Raises ``PayloadError`` when an option, such as a header, is no JSON."""
    try:
        return json.dumps(options, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise PayloadError(
            f"The message options of {what} cannot be stored: {error}.",
            hint="Headers and other options of a step's signature must be JSON.",
        ) from error


def _queue_as_json(app: Celery, queue: Queue) -> str | dict[str, Any]:
    declared = app.amqp.queues
    if queue.name in declared and declared[queue.name] == queue:
        return str(queue.name)
    exchange: Any = queue.exchange
    written = {
        "name": queue.name,
        "exchange": exchange.name if exchange else "",
        "exchange_type": exchange.type if exchange else "direct",
        "routing_key": queue.routing_key,
        "durable": queue.durable,
        "exclusive": queue.exclusive,
        "auto_delete": queue.auto_delete,
        "queue_arguments": queue.queue_arguments,
    }
    return {key: value for key, value in written.items() if value is not None}
