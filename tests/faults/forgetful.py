"""A PostgreSQL server that forgets, when it is killed, whatever did not wait for the disk."""

from __future__ import annotations

from contextlib import suppress

import psutil

from tests.servers.postgres import PostgresServer

__all__ = ["die_and_forget", "freeze_log_writers"]


def freeze_log_writers(server: PostgresServer) -> None:
    """Stop the processes that bring the log to the disk unasked: what no commit waited for stays in memory until one waits."""
    server.stop_log_writers("walwriter", "background writer", "checkpointer")


def die_and_forget(server: PostgresServer) -> None:
    """``kill -9`` for the server and its processes, the stopped ones too; then it is started again, and forgetful again."""
    children = server.program.children()
    server.program.kill_all()
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, timeout=30)
    server.restart(crash=True)
    freeze_log_writers(server)
