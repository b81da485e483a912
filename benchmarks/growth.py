"""How pikkuflow grows: a long run, a wide map, many sleeping and many finished runs: ``python -m benchmarks.growth`` (``make growth``).

Each is measured at two sizes or more, on PostgreSQL and Valkey with a worker of two processes. Growth is the CPU (client, workers, servers)
that one unit takes at a size over what it takes at the smallest: 1 is linear. Sleeping and finished runs are worked once and then copied
by SQL.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.report import markdown, short
from benchmarks.run import RESULTS, machine
from benchmarks.servers import Servers, running_servers
from tests.integration.sql.plans import ACTS, HOT, hot_plan, indexes_of, plans_of

_PEERS: Final = Path(__file__).resolve().parent / "peers"
_CHUNK: Final = 10
_WOKEN: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of each, rising."""

    steps: Sequence[int] = (1_250, 5_000)
    members: Sequence[int] = (5_000, 20_000)
    naps: Sequence[int] = (1_000, 100_000)
    finished: Sequence[int] = (0, 100_000, 1_000_000)


@dataclass(slots=True, kw_only=True)
class Stage:
    """The servers, the worker, and what was measured."""

    peer: Any
    redis: Any
    cpu_seconds: Callable[[], float]
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def app(self) -> Any:
        """The measured application."""
        return self.peer.app

    @contextmanager
    def measured(self, what: str, size: int, units: int) -> Iterator[None]:
        """Note the seconds, the messages, and the largest process of the worker, while so many ``units`` of work are done."""
        pids = _descendants(self.peer.worker.pid)
        for pid in pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        messages, used, begun = self._messages(), self.cpu_seconds(), time.perf_counter()
        yield
        seconds, used = time.perf_counter() - begun, self.cpu_seconds() - used
        row = {
            "what": what,
            "size": size,
            "units": units,
            "seconds": seconds,
            "unit_ms": seconds / units * 1000,
            "unit_cpu_ms": used / units * 1000,
            "messages": self._messages() - messages,
            "worker_mb": max(_peak_mb(pid) for pid in pids),
            "valkey_mb": self.redis.info("memory")["used_memory"] / 1e6,
        }
        self.rows.append(row)
        print(f"    {what}, {size:,}: {seconds:.2f} s", flush=True)

    def _messages(self) -> int:
        return int(self.redis.info("commandstats").get("cmdstat_lpush", {"calls": 0})["calls"])


def _descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(deeper for child in children for deeper in _descendants(int(child)))]


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM"))


# --- one run -------------------------------------------------------------------------------------------------------------


def grow_steps(stage: Stage, sizes: Sequence[int]) -> None:
    """A long run: its steps one by one, and a pass that replays them all."""
    for steps in sizes:
        with stage.measured("a step of a long run", steps, steps):
            stage.app.history.start(steps).result(timeout=600)
        with stage.measured("a step of a long run, then replayed", steps, steps):
            stage.app.replayed.start(steps).result(timeout=600)


def grow_members(stage: Stage, sizes: Sequence[int]) -> None:
    """A wide map, a message a member, and ten members a message."""
    for chunk, what in ((1, "a member of a map"), (_CHUNK, f"a member of a map by {_CHUNK}")):
        for members in sizes:
            with stage.measured(what, members, members):
                found = stage.app.fan.start(members, chunk).result(timeout=900)
            if found != members * (members + 1) // 2:
                raise AssertionError(f"{found} is not the sum over {members} members")


# --- many runs -----------------------------------------------------------------------------------------------------------


def _copy(stage: Stage, run_id: str, first: int, last: int) -> None:
    """Copies of a run with its steps, created one after another."""
    for table, key in (("pikkuflow_run", "id"), ("pikkuflow_step", "run_id")):
        found = stage.peer.postgres.rows(
            f"SELECT quote_ident(column_name) FROM information_schema.columns WHERE table_name = '{table}'"
        )
        columns = [name for (name,) in found]
        values = [
            f"'{run_id[:20]}' || n" if name == key
            else "created_at - n * interval '1 ms'" if name == "created_at"
            else name
            for name in columns
        ]  # fmt: skip
        stage.peer.postgres.do(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} "
            f"FROM {table}, generate_series({first}, {last}) AS n WHERE {key} = '{run_id}'"
        )
    # Else the server's own vacuum would be measured with what comes next.
    stage.peer.postgres.do("VACUUM ANALYZE pikkuflow_run, pikkuflow_step")


def grow_naps(stage: Stage, sizes: Sequence[int]) -> None:
    """Sleeping runs: they begin to sleep, sweeps pass them by, and those that are due wake."""
    call = stage.peer.call
    for size in (sizes[0] // 4, sizes[0] - sizes[0] // 4):
        there = stage.peer.postgres.number(_ASLEEP)
        with stage.measured("a run that goes to sleep", there + size, size):
            runs = stage.app.nap.start_many([call((7200,)) for _ in range(size)])
            _until(lambda there=there, size=size: stage.peer.postgres.number(_ASLEEP) >= there + size)
    there = sizes[0]
    for size in sizes:
        if size > there:
            # The youngest still sleeps: the oldest are woken.
            _copy(stage, runs[-1].id, there + 1, size)
            there = size
        _sweeps(stage, "sweeps over sleeping runs", size)
        with stage.measured("sweeps at a worker's start over sleeping runs", size, 1):
            _recover(stage, startup=True)
        _wake(stage, size)


_ASLEEP: Final = (
    "SELECT count(*) FROM pikkuflow_run WHERE workflow = 'bench.nap' AND due_at IS NOT NULL AND pass_id IS NULL"
)


def _wake(stage: Stage, size: int) -> None:
    """The time of some of them comes."""
    postgres = stage.peer.postgres
    asleep = "workflow = 'bench.nap' AND status = 'running'"
    chosen = postgres.rows(f"SELECT id FROM pikkuflow_run WHERE {asleep} ORDER BY created_at LIMIT {_WOKEN}")
    ids = ", ".join(f"'{run_id}'" for (run_id,) in chosen)
    past = "due_at = now() - interval '1 s'"
    postgres.do(f"UPDATE pikkuflow_step SET {past} WHERE run_id IN ({ids}) AND due_at IS NOT NULL")
    postgres.do(f"UPDATE pikkuflow_run SET {past} WHERE id IN ({ids})")
    ended = f"SELECT count(*) FROM pikkuflow_run WHERE id IN ({ids}) AND status = 'completed'"
    with stage.measured("a run that is woken", size, _WOKEN):
        _recover(stage)
        _until(lambda: postgres.number(ended) == _WOKEN)


def grow_finished(stage: Stage, sizes: Sequence[int]) -> None:
    """Finished runs: whatever else is done costs the same beside them."""
    run = stage.peer.chain.start(1)
    run.result(timeout=30)
    there = 0
    for size in sizes:
        if size > there:
            begun = time.perf_counter()
            _copy(stage, run.id, there + 1, size)
            there = size
            print(f"    {size:,} finished runs are there after {time.perf_counter() - begun:.0f} s", flush=True)
        with stage.measured("a run of five steps beside finished runs", size, 100):
            for _ in range(100):
                stage.peer.chain.start(5).result(timeout=30)
        _sweeps(stage, "sweeps beside finished runs", size)
        for title, filters in (
            ("a page of all runs", {}),
            ("a page of a workflow", {"workflow": "bench.chain"}),
            ("a page of a status", {"status": "running"}),
        ):
            with stage.measured(f"{title} beside finished runs", size, 20):
                for _ in range(20):
                    list(stage.app.pikku.runs.list(limit=50, **filters))


def _recover(stage: Stage, *, startup: bool = False) -> None:
    from pikkuflow.engine.sweep import recover  # noqa: PLC0415 - after the environment is set

    recover(stage.app.pikku.runtime, startup=startup)


def _sweeps(stage: Stage, what: str, size: int) -> None:
    _recover(stage)
    with stage.measured(what, size, 10):
        for _ in range(10):
            _recover(stage)


def _until(ready: Any) -> None:
    from measure import await_all  # type: ignore[import-not-found]  # noqa: PLC0415 - of the peers' folder

    await_all(ready)


# --- plans ---------------------------------------------------------------------------------------------------------------


def plans(stage: Stage) -> list[dict[str, Any]]:
    """The indexes by which each act of the store goes now. AssertionError: it scans, or leaves out an index that is meant for it."""
    store = stage.app.pikku.runtime.store
    found = []
    for name, (act, wanted) in ACTS.items():
        used = indexes_of(plans_of(store, act))
        if not used >= wanted:
            raise AssertionError(f"{name} goes by {sorted(used)}, not by {sorted(wanted)}")
        found.append({"act": name, "indexes": sorted(used)})
    return found + [{"act": name, "indexes": sorted(indexes_of([hot_plan(store, name)]))} for name in HOT]


# --- all of it -----------------------------------------------------------------------------------------------------------


@contextmanager
def staged(servers: Servers) -> Iterator[Stage]:
    """A worker of two processes."""
    os.environ |= {
        "BENCH_DATABASE": servers.database,
        "BENCH_BROKER": servers.broker,
        "PYTHONPATH": str(_PEERS.parents[1]),
    }
    sys.path.insert(0, str(_PEERS))
    from measure import cpu_seconds, read_options  # noqa: PLC0415 - of the peers' folder
    from pikkuflow_peer import PikkuFlowPeer  # type: ignore[import-not-found]  # noqa: PLC0415 - with it
    from redis import Redis  # noqa: PLC0415 - with it

    peer = PikkuFlowPeer(read_options("", ["--mode", "growth"]))
    try:
        yield Stage(peer=peer, redis=Redis.from_url(servers.broker), cpu_seconds=cpu_seconds)
    finally:
        peer.close()


def growth_of(rows: Sequence[dict[str, Any]], row: dict[str, Any]) -> float | None:
    """The CPU of a unit over that at the smallest size; None for that size itself."""
    first = next(one for one in rows if one["what"] == row["what"])
    return None if first is row or not first["unit_cpu_ms"] else float(row["unit_cpu_ms"] / first["unit_cpu_ms"])


def table_of(rows: Sequence[dict[str, Any]]) -> str:
    """What was measured, sizes of one kind below each other."""
    ordered = sorted(rows, key=lambda row: [one["what"] for one in rows].index(row["what"]))
    cells = []
    for row in ordered:
        growth = growth_of(rows, row)
        figures = [short(row[name]) for name in ("seconds", "unit_ms", "unit_cpu_ms")]
        memory = [f"{row['messages']:,}", short(row["worker_mb"]), short(row["valkey_mb"])]
        cells.append([row["what"], f"{row['size']:,}", *figures, short(growth) if growth else "", *memory])
    head = ["what", "size", "s", "ms a unit", "CPU ms", "growth", "messages", "worker MB", "Valkey MB"]
    return markdown(head, cells)


def main() -> int:
    """Measure, write ``results/growth.json`` and print the table. 1 when a plan scans."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="steps,members,naps,finished", help="parts, comma-separated")
    parser.add_argument("--short", action="store_true", help="a tenth of everything, to see that it works")
    parser.add_argument("--out", type=Path, default=RESULTS / "growth.json")
    options = parser.parse_args()
    sizes = Sizes()
    if options.short:
        sizes = Sizes(steps=(125, 500), members=(500, 2_000), naps=(400, 10_000), finished=(0, 10_000, 100_000))
    parts = {
        "steps": lambda stage: grow_steps(stage, sizes.steps),
        "members": lambda stage: grow_members(stage, sizes.members),
        "naps": lambda stage: grow_naps(stage, sizes.naps),
        "finished": lambda stage: grow_finished(stage, sizes.finished),
    }
    begun, found, scan = time.perf_counter(), [], ""
    with running_servers() as servers, staged(servers) as stage:
        for name in options.only.split(","):
            parts[name](stage)
        try:
            found = plans(stage)
        except AssertionError as error:
            scan = str(error)
        rows = stage.rows
    result = {"machine": machine(), "took_s": round(time.perf_counter() - begun), "rows": rows, "plans": found}
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\n{table_of(rows)}\n")
    print(scan or "\n".join(f"{one['act']}: {', '.join(one['indexes'])}" for one in found))
    return 1 if scan else 0


if __name__ == "__main__":
    sys.exit(main())
