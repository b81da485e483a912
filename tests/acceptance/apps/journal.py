"""What tasks did, as lines of a file that outlives every crash: who did it, for which attempt, under which idempotency key."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from pikkuflow import current_step

JOURNAL = "ACCEPTANCE_JOURNAL"


def note(event: str, **more: Any) -> None:
    """Append one line, whole or not at all; nothing when no journal is kept."""
    path = os.environ.get(JOURNAL)
    if path is None:
        return
    line = json.dumps({"event": event, "pid": os.getpid(), "at": time.time(), **more}) + "\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def note_step(event: str, **more: Any) -> None:
    """Append one line about the step that is worked here."""
    step = current_step()
    note(event, run=step.run_id, step=step.step, attempt=step.attempt, key=step.invocation_id, **more)


def read(path: Path) -> list[dict[str, Any]]:
    """Every line of a journal, the oldest first."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
