"""What the kinds of worker pool have in common for us: who works in them, who died, and how a thread is started beside them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from pikkuflow.errors import SettingError

__all__ = [
    "busy_pids",
    "dead_children",
    "is_green",
    "live_children",
    "note_births",
    "refuse_green_pool",
    "start_thread",
]

_GREEN: Final = ("gevent", "eventlet")
_OURS: Final = "pikkuflow."
_TRIES: Final = 100


def is_green(pool_class: Any) -> bool:
    """Whether the pool runs on gevent or eventlet."""
    module = pool_class if isinstance(pool_class, str) else pool_class.__module__
    return module.rpartition(".")[2] in _GREEN


def refuse_green_pool(pool_class: Any, *, allowed: bool) -> None:
    """Raise ``SettingError`` for gevent and eventlet unless they are allowed."""
    if is_green(pool_class) and not allowed:
        raise SettingError(
            "pikkuflow does not run on the gevent and eventlet pools: a step that computes stops lease renewal, and limits do not act.",
            hint="Use --pool prefork, threads or solo, or set pikkuflow_allow_green_pools = True if every step only waits.",
        )


def live_children(worker: Any) -> dict[int, Any]:
    """The prefork pool's processes by pid; empty for pools without processes."""
    processes = getattr(getattr(worker.pool, "_pool", None), "_pool", None)
    if not isinstance(processes, list):
        return {}
    return {process.pid: process for process in list(processes) if getattr(process, "pid", None)}


def note_births(worker: Any, note: Callable[[int], object]) -> None:
    """Have every later process of a prefork pool noted by its pid, by the thread that forks it. Nothing for other pools.

    One that is born and ends between two looks at the pool would never be seen otherwise.
    """
    pool = getattr(worker.pool, "_pool", None)
    create = getattr(pool, "_create_worker_process", None)
    if create is None:
        return

    def create_and_note(index: int) -> Any:
        process = create(index)
        note(process.pid)
        return process

    pool._create_worker_process = create_and_note  # type: ignore[union-attr]  # noqa: SLF001 - billiard tells no one


def dead_children(known: set[int], now: set[int]) -> set[int]:
    """Pids that have ended: gone from the pool, or ended and not yet reaped, whatever Celery has noticed so far (design 3.9)."""
    return (known - now) | {pid for pid in now if _has_ended(pid)}


def _has_ended(pid: int) -> bool:
    try:
        # Looks without reaping: billiard needs the exit status.
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def busy_pids(active_requests: Any) -> set[int]:
    """Processes that work a message of ours now, as the main process knows."""
    for _ in range(_TRIES):
        try:
            requests = tuple(active_requests)
        except RuntimeError:  # the worker's own thread changes the set; it is small, so the next look succeeds
            continue
        # By its type: what a step's message is shown as is the user's task.
        return {request.worker_pid for request in requests if request.type.startswith(_OURS) and request.worker_pid}
    return set()


def start_thread(name: str, body: Callable[[], None], *, green: bool) -> None:
    """Start a daemon thread; under gevent and eventlet a native one, which goes on while a greenlet computes (celery-notes 2.7)."""
    if not green:
        threading.Thread(target=body, name=name, daemon=True).start()
        return
    _native_start()(body, ())


def _native_start() -> Callable[..., Any]:
    try:
        monkey = import_module("gevent.monkey")
    except ImportError:
        patcher = import_module("eventlet.patcher")
        found: Callable[..., Any] = patcher.original("_thread").start_new_thread
        return found
    original: Callable[..., Any] = monkey.get_original("_thread", "start_new_thread")
    return original
