"""Group commit: outcomes that wait at the same time are written together, and each thread hears of its own (issue C, Build 4)."""

from __future__ import annotations

import linecache
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from pikkuflow.domain.act import PassRef, StepWrite
from pikkuflow.domain.ids import PassId, RunId
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.domain.step import Place
from pikkuflow.engine.group_commit import GroupWriter
from pikkuflow.engine.orchestrate import orchestrate
from pikkuflow.errors import StoreUnavailable
from tests.contract.scene import Scene, new_step
from tests.contract.stores import MemoryBench
from tests.servers.processes import wait_until
from tests.unit.engine.bench import Bench, Task


class Gate:
    """A store whose writes of rows wait until they are let through; ``acts`` are the names of the rows of each."""

    def __init__(self, store: Any) -> None:
        self.acts: list[list[str]] = []
        self.opened = threading.Event()
        self.raises: Callable[[Sequence[tuple[PassRef, StepWrite]]], BaseException | None] = lambda _: None
        self._store = store

    def record(self, ref: Any, write: Any) -> Any:
        """One row."""
        self._pass([(ref, write)])
        return self._store.record(ref, write)

    def record_all(self, writes: Any) -> Any:
        """Several rows."""
        self._pass(writes)
        return self._store.record_all(writes)

    def _pass(self, writes: Sequence[tuple[PassRef, StepWrite]]) -> None:
        self.acts.append([write.step.name for _, write in writes])
        assert self.opened.wait(20)
        error = self.raises(writes)
        if error is not None:
            raise error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Bank:
    """Runs that are open, a writer over a gate, and threads that write."""

    def __init__(self) -> None:
        self.scene = Scene(MemoryBench())
        self.gate = Gate(self.scene.store)
        self.writer = GroupWriter(self.gate)
        self.refs = [self.scene.begin(f"r{number}", f"p{number}") for number in range(8)]
        self.answers: dict[str, Any] = {}
        self.threads: list[threading.Thread] = []

    def outcome(self, run: int, name: str, **more: Any) -> tuple[PassRef, StepWrite]:
        """A success of a step of that run."""
        ref = self.refs[run]
        fields = {"status": StepStatus.SUCCEEDED, "result": f'"{name}"', **more}
        return ref, StepWrite(step=new_step(name, place=Place.in_pass(ref.pass_id)), attempt=1, **fields)

    def write(self, name: str, *writes: tuple[PassRef, StepWrite]) -> None:
        """Write from a thread of its own; what it was answered, or what was raised, is under ``name``."""

        def work() -> None:
            try:
                self.answers[name] = self.writer.write(writes)
            except BaseException as error:  # noqa: BLE001 - for the test to look at
                self.answers[name] = error

        self.threads.append(threading.Thread(target=work))
        self.threads[-1].start()

    def hold_up(self) -> None:
        """A first write that is in the middle of it: whoever comes now has to wait."""
        self.write("first", self.outcome(0, "first"))
        wait_until(lambda: self.gate.acts, what="a write")

    def wait_for(self, waiting: int) -> None:
        """Until so many wait."""
        wait_until(lambda: len(self.writer._waiting) == waiting, what="threads that wait")

    def let_through(self) -> None:
        """Open the gate; every thread has its answer then."""
        self.gate.opened.set()
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive()

    def written(self, name: str) -> list[bool | None]:
        """What the thread was answered."""
        return [None if answer is None else answer.written for answer in self.answers[name]]


@pytest.fixture
def bank() -> Iterator[Bank]:
    """A bank whose threads are through at the end."""
    made = Bank()
    yield made
    made.let_through()


def test_who_comes_alone_writes_at_once(bank: Bank) -> None:
    """Issue C, Build 4: one thread pays nothing for the others that could be there."""
    bank.gate.opened.set()
    (news,) = bank.writer.write([bank.outcome(0, "a")])
    assert news is not None
    assert news.written
    assert bank.gate.acts == [["a"]]


def test_those_who_wait_are_written_together(bank: Bank) -> None:
    """Issue C, Build 4: one act for all that came while another was under way, each answered by its own rows."""
    bank.hold_up()
    for number in range(1, 5):
        bank.write(f"t{number}", bank.outcome(number, f"a{number}"), bank.outcome(number, f"b{number}"))
    bank.wait_for(4)
    bank.let_through()
    assert len(bank.gate.acts) == 2
    assert sorted(bank.gate.acts[1]) == sorted(f"{letter}{number}" for letter in "ab" for number in range(1, 5))
    assert all(bank.written(f"t{number}") == [True, True] for number in range(1, 5))
    assert [step.name for step in bank.scene.store.list_steps(RunId("r3"))] == ["a3", "b3"]


def test_each_hears_of_its_own_rows(bank: Bank) -> None:
    """Issue C, Build 4: a pass that is fenced hears so, the others go on."""
    bank.hold_up()
    bank.refs[2] = PassRef(run_id=RunId("r2"), pass_id=PassId("another"))
    for number in (1, 2, 3):
        bank.write(f"t{number}", bank.outcome(number, "a"))
    bank.wait_for(3)
    bank.let_through()
    assert [bank.written(f"t{number}") for number in (1, 2, 3)] == [[True], [None], [True]]


def test_a_row_that_the_store_cannot_take_fails_its_own_thread(bank: Bank) -> None:
    """Issue C, Build 4: one bad payload fails only its own step; what stood beside it is written."""
    bank.gate.raises = lambda writes: ValueError("NUL") if any(w.result == "bad" for _, w in writes) else None
    bank.hold_up()
    bank.write("t1", bank.outcome(1, "a"))
    bank.write("t2", bank.outcome(2, "a", result="bad"))
    bank.write("t3", bank.outcome(3, "a"))
    bank.wait_for(3)
    bank.let_through()
    assert (bank.written("t1"), bank.written("t3")) == ([True], [True])
    assert isinstance(bank.answers["t2"], ValueError)
    assert bank.scene.store.list_steps(RunId("r2")) == ()


def test_an_outage_is_told_to_everyone_who_waited(bank: Bank) -> None:
    """Issue C, Build 4, design 3.4: as it would be told to each alone; nothing is believed written, and the next write goes through."""
    bank.gate.raises = lambda _: StoreUnavailable("away")
    bank.hold_up()
    for number in (1, 2, 3):
        bank.write(f"t{number}", bank.outcome(number, "a"))
    bank.wait_for(3)
    bank.let_through()
    assert all(isinstance(bank.answers[name], StoreUnavailable) for name in ("first", "t1", "t2", "t3"))
    bank.gate.raises = lambda _: None
    (news,) = bank.writer.write([bank.outcome(1, "a")])
    assert news is not None


def test_who_leaves_in_the_middle_keeps_nobody_waiting(bank: Bank) -> None:
    """Issue C, Build 4: an exception that strikes the one who writes for all (SystemExit) ends it alone; the others are written."""
    struck: list[int] = []

    def strike(writes: Sequence[Any]) -> BaseException | None:
        if len(writes) > 1 and not struck:
            struck.append(1)
            return SystemExit(1)
        return None

    bank.gate.raises = strike
    bank.hold_up()
    for number in (1, 2, 3):
        bank.write(f"t{number}", bank.outcome(number, "a"))
    bank.wait_for(3)
    bank.let_through()
    ended = [name for name in ("t1", "t2", "t3") if isinstance(bank.answers[name], SystemExit)]
    assert len(ended) == 1
    assert all(bank.written(name) == [True] for name in ("t1", "t2", "t3") if name not in ended)
    bank.writer.write([bank.outcome(4, "a")])


def test_who_is_interrupted_while_waiting_keeps_nobody_waiting(bank: Bank) -> None:
    """Issue C, Build 4: a signal in the waiting main thread; whoever comes afterwards is written."""

    class Interrupted(BaseException):
        pass

    def interrupt(*_: Any) -> None:
        raise Interrupted

    def later() -> None:
        bank.wait_for(1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    bank.hold_up()
    before = signal.signal(signal.SIGUSR1, interrupt)
    helper = threading.Thread(target=later)
    helper.start()
    try:
        with pytest.raises(Interrupted):
            bank.writer.write([bank.outcome(1, "a")])
    finally:
        helper.join()
        signal.signal(signal.SIGUSR1, before)
    bank.write("t2", bank.outcome(2, "a"))
    bank.wait_for(1)
    bank.let_through()
    assert bank.written("t2") == [True]


class _Strike:
    """Raises in this thread, at the so many-th line that it executes of the writer, as a signal's handler may."""

    def __init__(self, at: int) -> None:
        self._left = at
        self.has_struck = False

    def trace(self, frame: Any, event: str, _: Any) -> Any:
        """For ``sys.settrace``."""
        if not frame.f_code.co_filename.endswith("/group_commit.py"):
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        # A signal is handled where something is called: never between one block and the next.
        if event == "line" and not line.startswith(("with ", "try:")):
            self._left -= 1
            if not self._left:
                self.has_struck = True
                raise KeyboardInterrupt
        return self.trace


def _struck(at: int) -> bool:
    """A thread waits, is handed the writing, writes for another too and is struck on its way; whether it came that far."""
    bank, strike, before = Bank(), _Strike(at), sys.gettrace()

    def company() -> None:
        wait_until(lambda: bank.writer._waiting or strike.has_struck, what="the one that is struck")
        waiting = len(bank.writer._waiting)
        bank.write("t2", bank.outcome(2, "a"))
        bank.wait_for(waiting + 1)
        bank.gate.opened.set()

    bank.hold_up()
    helper = threading.Thread(target=company)
    helper.start()
    sys.settrace(strike.trace)
    try:
        with suppress(KeyboardInterrupt):
            bank.writer.write([bank.outcome(1, "a")])
    finally:
        sys.settrace(before)
    helper.join()
    bank.write("t3", bank.outcome(3, "a"))
    bank.let_through()
    assert (bank.written("t2"), bank.written("t3")) == ([True], [True])
    return strike.has_struck


def test_an_interruption_at_any_moment_of_a_write_keeps_nobody_waiting() -> None:
    """Issue C, Build 4: a signal (Ctrl+C) strikes wherever the main thread is; the other threads write all the same."""
    at = 1
    while _struck(at):
        at += 1
    assert at > 20


def test_two_writes_of_one_run_are_not_put_together(bank: Bank) -> None:
    """Issue C, Build 4: one statement cannot write one row twice."""
    bank.hold_up()
    bank.write("t1", bank.outcome(1, "a", status=StepStatus.RUNNING, result=None))
    bank.wait_for(1)
    bank.write("t2", bank.outcome(1, "a"))
    bank.wait_for(2)
    bank.let_through()
    assert bank.gate.acts == [["first"], ["a"], ["a"]]
    assert bank.scene.step("a", "r1").status is StepStatus.SUCCEEDED


def test_large_outcomes_are_not_put_together(bank: Bank) -> None:
    """Issue C, Build 4: nobody waits for another's megabytes."""
    bank.hold_up()
    for number in (1, 2):
        bank.write(f"t{number}", bank.outcome(number, f"a{number}", result="x" * 600_000))
        bank.wait_for(number)
    bank.let_through()
    assert bank.gate.acts == [["first"], ["a1"], ["a2"]]


def test_a_forked_child_writes_though_another_was_writing(bank: Bank) -> None:
    """Issue C, Build 4: the thread that wrote and those that waited stayed behind; the child begins anew."""
    bank.hold_up()
    bank.write("t1", bank.outcome(1, "a"))
    bank.wait_for(1)
    pid = os.fork()
    if not pid:
        bank.gate.opened = threading.Event()
        bank.gate.opened.set()
        written = bank.writer.write([bank.outcome(2, "a")])
        os._exit(0 if written[0] is not None and written[0].written else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    bank.let_through()
    assert bank.written("t1") == [True]


# --- through the engine -------------------------------------------------------------------------------------------------


def _bench_of_runs(count: int, steps: int = 5) -> tuple[Bench, Gate, list[RunId]]:
    bench = Bench()
    gate = Gate(bench.store)
    gate.opened.set()
    bench.task(lambda: "x", name="work")

    def flow(wf: Any) -> str:
        for number in range(steps):
            wf.do(f"s{number}", Task("work"))
        return "done"

    bench.workflow(flow)
    runs = [bench.start("flow", run_id=f"r{number}") for number in range(count)]
    return bench, gate, runs


def test_runs_of_one_message_are_worked_at_once_and_written_together() -> None:
    """Issue C, Build 4: a message for several runs, whatever the pool; every run comes to its end by its own steps."""
    bench, gate, runs = _bench_of_runs(8)
    together = threading.Barrier(8)
    bench.task(lambda: together.wait(20) and None, name="work")
    writer = GroupWriter(gate)
    gate.opened.clear()

    def open_gate() -> None:
        wait_until(lambda: len(writer._waiting) == 7, what="the other runs")
        gate.opened.set()

    opener = threading.Thread(target=open_gate)
    opener.start()
    orchestrate(bench.other(store=gate, writer=writer), runs)
    opener.join()
    assert [bench.run(run_id).status for run_id in runs] == [RunStatus.COMPLETED] * 8
    assert all(len(bench.steps(run_id)) == 5 for run_id in runs)
    assert sum(map(len, gate.acts)) == 40
    assert [len(act) for act in gate.acts[:2]] == [1, 7]


def test_without_the_setting_runs_of_a_message_are_worked_one_after_the_other() -> None:
    """Issue C, Build 4: opt-in; nobody's tasks meet threads that they did not ask for."""
    bench, gate, runs = _bench_of_runs(3)
    threads: set[int] = set()
    bench.task(lambda: threads.add(threading.get_ident()), name="work")
    orchestrate(bench.other(store=gate), runs)
    assert threads == {threading.get_ident()}


def test_a_run_that_breaks_off_keeps_no_other_back() -> None:
    """Issue C, Build 4: what one pass raises is raised at the end, as without threads."""
    bench, gate, runs = _bench_of_runs(4)
    gate.raises = lambda writes: ZeroDivisionError("ours") if any(ref.run_id == "r2" for ref, _ in writes) else None
    with pytest.raises(ZeroDivisionError):
        orchestrate(bench.other(store=gate, writer=GroupWriter(gate)), runs)
    statuses = [bench.run(run_id).status for run_id in runs]
    assert statuses == [RunStatus.COMPLETED, RunStatus.COMPLETED, RunStatus.RUNNING, RunStatus.COMPLETED]


def test_a_worker_that_stops_leaves_the_runs_that_were_not_begun() -> None:
    """Design 2: passes in hand yield and close; the rest gets hints for now."""
    bench, gate, runs = _bench_of_runs(30)

    def stop() -> None:
        bench.stopping = True

    bench.task(stop, name="work")
    orchestrate(bench.other(store=gate, writer=GroupWriter(gate)), runs)
    begun = [run_id for run_id in runs if bench.steps(run_id)]
    assert 1 <= len(begun) <= 8
    assert all(bench.run(run_id).pass_id is None for run_id in runs)
    bench.stopping = False
    bench.task(lambda: "x", name="work")
    bench.pass_time(1)
    assert [bench.run(run_id).status for run_id in runs] == [RunStatus.COMPLETED] * 30
