"""What ``wf.now()``, ``wf.uuid()`` and ``wf.random()`` are answered with: values of the ports, read once and recorded (design 5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pikkuflow.domain.recorded_names import NOW_STEP, RANDOM_STEP, UUID_STEP
from pikkuflow.engine.runtime import Runtime

__all__ = ["own_value"]


def own_value(rt: Runtime, name: str) -> Callable[[], Any]:
    """The function of a step that is named by the engine itself and has none of its own: ``name`` is the call's name."""
    functions: dict[str, Callable[[], Any]] = {
        NOW_STEP: rt.clock.now,
        UUID_STEP: rt.ids.new_id,
        RANDOM_STEP: rt.ids.jitter,
    }
    return functions[name]
