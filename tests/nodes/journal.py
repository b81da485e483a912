"""What tasks and beat's messages did, as lines of a file that outlives every crash."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.processes import wait_until

JOURNAL = "NODES_JOURNAL"
"""The environment variable that names the file."""
ORDER_GATE = "NODES_ORDER_GATE"
"""Names another file. Until it is there, a worker that has started an order by message stays between the run's commit and the
acknowledgement of the message."""


def note(event: str, **more: Any) -> None:
    """Append one line, whole or not at all."""
    line = json.dumps({"event": event, "pid": os.getpid(), **more}) + "\n"
    file = os.open(os.environ[JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


@dataclass(frozen=True, slots=True)
class Journal:
    """The file, for the test that reads it."""

    path: Path

    def of(self, event: str, **equal: Any) -> list[dict[str, Any]]:
        """The lines of an event that have these values, the oldest first."""
        lines = map(json.loads, self.path.read_text().splitlines() if self.path.exists() else ())
        wanted = {"event": event, **equal}.items()
        return [line for line in lines if all(line.get(key) == value for key, value in wanted)]

    def wait_for(self, event: str, *, count: int = 1, seconds: float = 30.0, **equal: Any) -> list[dict[str, Any]]:
        """Wait until there are that many such lines."""
        wait_until(
            lambda: len(self.of(event, **equal)) >= count, seconds=seconds, what=f"{count} lines {event!r}, {equal}"
        )
        return self.of(event, **equal)
