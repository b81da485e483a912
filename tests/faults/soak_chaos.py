"""What goes wrong in a soak: one fault after the other, chosen at random, each with its way back."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil
from redis import Redis, RedisError

from tests.faults.site import Site, freeze, resume
from tests.servers.processes import Program

LOGGER = logging.getLogger("soak")


class Fault(StrEnum):
    """The kinds, with their share of the draw in ``WEIGHTS``."""

    CHILD = "child killed"
    NODE_RESTART = "node killed and restarted under its name"
    NODE_LOSS = "node killed and gone, another name comes"
    WARM = "warm restart"
    COLD = "cold restart"
    BEAT = "beat killed"
    FROZEN = "node frozen past its leases"
    FLUSH = "Valkey emptied"
    VALKEY = "Valkey killed, remembers"
    VALKEY_EMPTY = "Valkey killed, forgets"
    VALKEY_FROZEN = "Valkey frozen"
    POSTGRES = "PostgreSQL killed"


WEIGHTS = {
    Fault.CHILD: 9,
    Fault.NODE_RESTART: 4,
    Fault.NODE_LOSS: 3,
    Fault.WARM: 2,
    Fault.COLD: 1,
    Fault.BEAT: 1,
    Fault.FROZEN: 1,
    Fault.FLUSH: 2,
    Fault.VALKEY: 1,
    Fault.VALKEY_EMPTY: 1,
    Fault.VALKEY_FROZEN: 1,
    Fault.POSTGRES: 1,
}
KILLS = frozenset({
    Fault.CHILD, Fault.NODE_RESTART, Fault.NODE_LOSS, Fault.COLD, Fault.BEAT, Fault.VALKEY, Fault.VALKEY_EMPTY, Fault.POSTGRES,
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One fault that happened: when, to which processes, and when what it took was back."""

    fault: Fault
    at: float
    back_at: float
    pids: frozenset[int] = frozenset()


@dataclass(slots=True, kw_only=True)
class Chaos:
    """The processes of a soak, and one random fault at a time on them."""

    site: Site
    random: random.Random
    nodes: int = 2
    concurrency: int = 3
    done: list[Done] = field(default_factory=list)
    workers: list[Program] = field(default_factory=list)
    beat: Program | None = None
    _number: int = 0
    _struck_at: float = 0.0

    def start(self) -> None:
        """Start workers and beat."""
        for _ in range(self.nodes):
            self.workers.append(self._new_worker())
        self.beat = self.site.deployment.beat("faulty")

    def strike(self) -> Done:
        """Let one fault happen, and return once everything that it took is back."""
        fault = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        self._struck_at = time.time()
        pids = self._acts()[fault]()
        done = Done(fault=fault, at=self._struck_at, back_at=time.time(), pids=frozenset(pids))
        self.done.append(done)
        LOGGER.info("%s: %s", fault.value, sorted(pids) or "")
        self._supervise()
        return done

    def _acts(self) -> dict[Fault, Callable[[], list[int]]]:
        return {
            Fault.CHILD: self._kill_child,
            Fault.NODE_RESTART: self._restart_node,
            Fault.NODE_LOSS: self._lose_node,
            Fault.WARM: lambda: self._end_politely(signal.SIGTERM),
            Fault.COLD: lambda: self._end_politely(signal.SIGQUIT),
            Fault.BEAT: self._kill_beat,
            Fault.FROZEN: self._freeze_node,
            Fault.FLUSH: self._flush,
            Fault.VALKEY: lambda: self._restart_valkey(forget=False),
            Fault.VALKEY_EMPTY: lambda: self._restart_valkey(forget=True),
            Fault.VALKEY_FROZEN: self._freeze_valkey,
            Fault.POSTGRES: self._restart_postgres,
        }

    # --- what happens -----------------------------------------------------------------------------------------------
    def _kill_child(self) -> list[int]:
        children = [child for worker in self.workers for child in worker.children()]
        if not children:
            return []
        victim = self._busy_one(children)
        self._struck_at = time.time()
        os.kill(victim, signal.SIGKILL)
        return [victim]

    def _busy_one(self, children: list[psutil.Process]) -> int:
        """A child that works a step, if there is one; else any."""
        alive = {child.pid for child in children}
        ended: set[tuple[str, int, int]] = set()
        for line in reversed(_latest(self.site.deployment.journal_path)):
            what = (line["key"], line["attempt"], line["pid"])
            if line["event"] == "done":
                ended.add(what)
            elif what not in ended and line["pid"] in alive:
                return int(line["pid"])
        return int(self.random.choice(children).pid)

    def _restart_node(self) -> list[int]:
        worker = self.random.choice(self.workers)
        pids = _pids_of(worker)
        self._struck_at = time.time()
        worker.kill_all()
        _start_again(worker)
        return pids

    def _lose_node(self) -> list[int]:
        worker = self.random.choice(self.workers)
        pids = _pids_of(worker)
        self._struck_at = time.time()
        worker.kill_all()
        self.workers.remove(worker)
        self.workers.append(self._new_worker())
        return pids

    def _end_politely(self, number: signal.Signals) -> list[int]:
        worker = self.random.choice(self.workers)
        pids = _pids_of(worker) if number is signal.SIGQUIT else []
        worker.send(number)
        worker.wait(seconds=60)
        worker.stop()
        _start_again(worker)
        return pids

    def _kill_beat(self) -> list[int]:
        if self.beat is None:
            return []
        self.beat.kill_all()
        time.sleep(self.random.uniform(0, 5))
        self.beat.start()
        return []

    def _freeze_node(self) -> list[int]:
        worker = self.random.choice(self.workers)
        pids = freeze(worker)
        time.sleep(7)
        resume(worker)
        return pids

    def _flush(self) -> list[int]:
        try:
            with Redis.from_url(self.site.valkey.url(0)) as client:
                client.flushall()
        except RedisError as error:
            LOGGER.info("not emptied: %s", error)
        return []

    def _restart_valkey(self, *, forget: bool) -> list[int]:
        self.site.valkey.kill()
        time.sleep(self.random.uniform(0, 4))
        self.site.valkey.restart(forget=forget)
        return []

    def _freeze_valkey(self) -> list[int]:
        self.site.valkey.program.send(signal.SIGSTOP)
        time.sleep(self.random.uniform(2, 8))
        self.site.valkey.program.send(signal.SIGCONT)
        return []

    def _restart_postgres(self) -> list[int]:
        self.site.postgres.restart(crash=True)
        return []

    # --- the supervisor that each deployment has ----------------------------------------------------------------------
    def _supervise(self) -> None:
        for worker in self.workers:
            if not worker.is_running:
                LOGGER.info("%s ended by itself with %s", worker.name, worker.process.returncode)
                worker.stop()
                _start_again(worker)

    def _new_worker(self) -> Program:
        self._number += 1
        return self.site.deployment.worker("faulty", name=f"n{self._number}", concurrency=self.concurrency, seconds=90)


def _latest(journal: Path) -> list[dict[str, Any]]:
    """The journal's last lines, without reading all of it: what is in hand now is there."""
    if not journal.exists():
        return []
    with journal.open("rb") as file:
        file.seek(max(0, journal.stat().st_size - _TAIL_BYTES))
        lines = file.read().splitlines()
    return [json.loads(line) for line in lines[1:]]


_TAIL_BYTES = 32_000


def _pids_of(worker: Program) -> list[int]:
    return [worker.pid, *(child.pid for child in worker.children())]


def _start_again(worker: Program) -> None:
    seen = len(worker.log())
    worker.start()
    worker.wait_until(lambda: " ready." in worker.log()[seen:], seconds=90)
