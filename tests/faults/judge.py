"""What a soak's journal and database say: lost, doubled and stuck runs, and how long recovery took."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

from pikkuflow.domain.status import RunStatus
from pikkuflow.domain.step import Place, Step
from tests.faults.soak_chaos import Done, Fault

Line = dict[str, Any]
_RECOVERY = (
    ("child kill", Fault.CHILD, False),
    ("node restart, from its kill", Fault.NODE_RESTART, False),
    ("node restart, from the moment it was up", Fault.NODE_RESTART, True),
    ("node loss", Fault.NODE_LOSS, False),
)


@dataclass(slots=True, kw_only=True)
class Verdict:
    """Sentences about what is wrong, by kind, and seconds to recover by fault."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    recovery: dict[str, list[float]] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Nothing lost, doubled or stuck."""
        return not (self.lost or self.doubled or self.stuck)

    def lines(self) -> Iterable[str]:
        """The report: one line for each wrong and each kind of recovery."""
        yield from (f"LOST    {text}" for text in self.lost)
        yield from (f"DOUBLED {text}" for text in self.doubled)
        yield from (f"STUCK   {text}" for text in self.stuck)
        for title, seconds in self.recovery.items():
            yield f"time to recover, {title}: {_spread(seconds)}"


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "nothing was in hand"
    late = quantiles(seconds, n=20)[-1] if len(seconds) > 1 else seconds[0]
    return f"median {median(seconds):.2f} s, p95 {late:.2f} s, of {len(seconds)} attempts in hand"


def judge(client: Any, asked: Iterable[str], open_runs: set[str], journal: list[Line], done: list[Done]) -> Verdict:
    """Compare what was asked, what the database has and what the journal saw."""
    verdict = Verdict(stuck=[_story(client, run_id) for run_id in sorted(open_runs)])
    lines: dict[str, list[Line]] = defaultdict(list)
    for line in journal:
        lines[line["run"]].append(line)
    frozen = {(pid, one.at) for one in done if one.fault is Fault.FROZEN for pid in one.pids}
    for run_id in asked:
        if run_id not in open_runs:
            _judge_run(verdict, client, run_id, lines, frozen)
    verdict.recovery = _recoveries(journal, done)
    return verdict


def _story(client: Any, run_id: str) -> str:
    return f"{run_id}: {client.pikku.runs.get(run_id).status().to_dict()}"


def _judge_run(
    verdict: Verdict, client: Any, run_id: str, lines: Mapping[str, list[Line]], frozen: set[tuple[int, float]]
) -> None:
    handle = client.pikku.runs.get(run_id)
    head = handle.head()
    if head.status is not RunStatus.COMPLETED:
        verdict.lost.append(_story(client, run_id))
        return
    store, decode = client.pikku.runtime.store, client.pikku.runtime.codec.decode
    steps: list[Step] = store.list_steps(run_id)
    results: dict[str, Any] = {step.name: decode(step.result) for step in steps if step.result is not None}
    output = handle.result(timeout=0)
    seen = {"first": output["first"], "far": output["far"], "child": output["child"], "last": output["last"]["last"]}
    verdict.lost.extend(
        f"{run_id}: {name} gave {value}, recorded is {results.get(name)}"
        for name, value in seen.items()
        if results.get(name) != value
    )
    for step in steps:
        own = [line for line in lines[run_id] if line["step"] == step.name]
        verdict.doubled.extend(f"{run_id} {step.name}: {text}" for text in _doubles(step, own, frozen))


def _doubles(step: Step, own: list[Line], frozen: set[tuple[int, float]]) -> Iterable[str]:
    begun = [line for line in own if line["event"] == "begun"]
    if len({repr(line["seen"]) for line in begun}) > 1:
        yield f"its attempts saw different outcomes of earlier steps: {begun}"
    if step.retries == 0 and len(begun) > 1:
        yield f"retries=0 began {len(begun)} times"
    if Place.is_queue(step.place) and len({line["attempt"] for line in begun}) != len(begun):
        yield f"one attempt began twice: {begun}"
    if step.settled_at is None:
        return
    late = [line for line in begun if line["at"] > step.settled_at.timestamp() + 0.05 and not _was_frozen(line, frozen)]
    if late:
        yield f"began after its outcome was recorded at {step.settled_at.timestamp()}: {late}"


def _was_frozen(line: Line, frozen: set[tuple[int, float]]) -> bool:
    return any(pid == line["pid"] and line["at"] > at for pid, at in frozen)


def _recoveries(journal: list[Line], done: list[Done]) -> dict[str, list[float]]:
    """From each kill to the next begin of every step that it interrupted, where no other fault came between."""
    by_key: dict[str, list[Line]] = defaultdict(list)
    for line in journal:
        by_key[line["key"]].append(line)
    found: dict[str, list[float]] = {title: [] for title, *_ in _RECOVERY}
    for title, fault, is_from_back in _RECOVERY:
        for one in (one for one in done if one.fault is fault):
            for again in _begun_again(by_key, one):
                if not any(one.at < other.at < again for other in done):
                    found[title].append(max(0.0, again - (one.back_at if is_from_back else one.at)))
    return found


def _begun_again(by_key: Mapping[str, list[Line]], one: Done) -> Iterable[float]:
    for lines in by_key.values():
        for line in lines:
            if line["event"] == "begun" and line["pid"] in one.pids and line["at"] <= one.at:
                own = [other for other in lines if other["pid"] == line["pid"] and other["at"] >= line["at"]]
                after = [other["at"] for other in lines if other["event"] == "begun" and other["at"] > one.at]
                if after and not any(other["event"] == "done" for other in own):
                    yield min(after)
