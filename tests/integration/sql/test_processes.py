"""Several processes on one database: forks, and SQLite's one writer at a time."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from pikkuflow.adapters.sql import SqlRunStore, migrations

_FORK = """
import os, sys
from pikkuflow.adapters.sql import SqlRunStore
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import NewRun

store = SqlRunStore(sys.argv[1], patience_seconds=30.0)
ids = [RunId(f"r{number}") for number in range(20)]
store.insert_runs([NewRun(id=run_id, workflow="w", version="v", input=f'"{run_id}"') for run_id in ids])

def reads_right():
    return all(store.get_run(run_id).input == f'"{run_id}"' for _ in range(10) for run_id in ids)

children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        right = False
        try:
            right = reads_right()
        finally:
            os._exit(0 if right else 1)
    children.append(pid)
right = [reads_right()] + [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 for pid in children]
print(all(right), reads_right())
store.close()
"""

_WORK = """
import sys
from pikkuflow.adapters.sql import SqlRunStore
from pikkuflow.domain.act import Closing, PassOpening, PassRef, StepWrite
from pikkuflow.domain.ids import Holder, PassId, RunId, StepName
from pikkuflow.domain.run import NewRun
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import NewStep

url, me = sys.argv[1:]
store = SqlRunStore(url, patience_seconds=60.0)
for number in range(15):
    run_id, pass_id = RunId(f"{me}-{number}"), PassId(f"p-{me}-{number}")
    store.insert_runs([NewRun(id=run_id, workflow="w", version="v", input="1")])
    store.open_pass(PassOpening(run_id=run_id, pass_id=pass_id, holder=Holder(me), lease_seconds=60.0, passes_lost_limit=10))
    ref = PassRef(run_id=run_id, pass_id=pass_id)
    step = NewStep(name=StepName("a"), seq=0, kind=StepKind.TASK, task="t", args="1", place=f"pass:{pass_id}")
    store.record(ref, StepWrite(step=step, attempt=1, status=StepStatus.SUCCEEDED, result="1"))
    store.close_pass(ref, Closing(status=RunStatus.COMPLETED, output="1"))
print(sum(store.get_run(RunId(f"{me}-{number}")).is_settled for number in range(15)))
store.close()
"""


def _python(program: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _answer(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert err == ""
    return out.strip()


def test_a_store_used_before_a_fork_answers_right_after_it(sql_url: str) -> None:
    """Celery-notes 2.8: a connection shared over a fork mixes two processes' answers; each process makes its own."""
    migrations.upgrade(sql_url)
    assert _answer(_python(_FORK, sql_url)) == "True True"


def test_four_processes_work_at_once(sql_url: str) -> None:
    """Design 2: on SQLite a writer waits for the other one; nobody meets "database is locked"."""
    migrations.upgrade(sql_url)
    processes = [_python(_WORK, sql_url, f"w{number}") for number in range(4)]
    assert [_answer(process) for process in processes] == ["15"] * 4


def test_a_missing_folder_of_a_sqlite_file_is_made(tmp_path: Path) -> None:
    """Design 7: the default is a file in a folder of its own, and nobody makes that by hand."""
    url = f"sqlite:///{tmp_path / 'deep' / 'er' / 'pikkuflow.db'}"
    migrations.upgrade(url)
    store = SqlRunStore(url)
    store.check_schema()
    store.close()


def test_sqlite_commits_reach_the_disk(sqlite_url: str) -> None:
    """Design 2: WAL, and synchronous=FULL, so that a power cut loses no commit."""
    migrations.upgrade(sqlite_url)
    store = SqlRunStore(sqlite_url)
    with store.database.engine.connect() as connection:
        asked = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")]
    assert asked == ["wal", 2]
    store.close()


def test_a_sqlite_file_that_is_none_is_an_error_and_no_outage(tmp_path: Path) -> None:
    """Design 3.4: only an outage is waited for; this one would never end."""
    path = tmp_path / "pikkuflow.db"
    path.write_text("this is a letter and no database" * 100)
    store = SqlRunStore(f"sqlite:///{path}", patience_seconds=None)
    with pytest.raises(Exception, match="not a database") as caught:
        store.check_schema()
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    store.close()
