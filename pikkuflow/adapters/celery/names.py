"""Names that travel: in messages that are under way, and in the options of stored rows. They never change (design 7)."""

from __future__ import annotations

from typing import Final

__all__ = ["ORCHESTRATE_TASK", "STEP_TASK", "SWEEP_TASK", "qualified_name"]

ORCHESTRATE_TASK: Final = "pikkuflow.orchestrate"
"""``([run_id, …])``: a pass over each run."""

STEP_TASK: Final = "pikkuflow.step"
"""``(run_id, [[step_name, attempt], …], task_name)``: work these steps."""

SWEEP_TASK: Final = "pikkuflow.sweep"
"""``(kind)``: one sweep."""


def qualified_name(kind: type) -> str:
    """Module and qualified name of a class, as options store it."""
    return f"{kind.__module__}.{kind.__qualname__}"
