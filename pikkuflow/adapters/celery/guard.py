"""An opt-in consumer for users' own late-acknowledged tasks on Celery 5.7.0 and Redis: it survives a restart of the server.

    worker_consumer = "pikkuflow.adapters.celery.guard:Consumer"

There, a worker that holds an unacknowledged message when Redis goes away ends with an "Unrecoverable error" (celery-notes 2.1): closing the
dead connection tries to give the message back through it, and a task that ends meanwhile acknowledges on a channel without a client. Both
are ``AttributeError``. pikkuflow's own messages are acknowledged early and never come there. The price: an unrelated ``AttributeError`` of
the consumer counts as a lost connection. On any other version of Celery this is Celery's consumer unchanged.
"""

from __future__ import annotations

from typing import Any, Final

import celery
from celery.worker.consumer import Consumer as CeleryConsumer

__all__ = ["Consumer"]

_TRIED: Final = "5.7.0"


class Consumer(CeleryConsumer):
    """The worker's consumer, which takes a dead Redis channel for what it is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if celery.__version__ == _TRIED:
            self.connection_errors: Any = (*self.connection_errors, AttributeError)

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Leave unacknowledged messages where they are: the visibility timeout brings them back."""
        channel: Any = getattr(self.connection, "_default_channel", None)
        if celery.__version__ == _TRIED and hasattr(channel, "do_restore"):
            channel.do_restore = False
        super().on_connection_error_after_connected(exc)
