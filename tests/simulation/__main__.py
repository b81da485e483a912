"""``python -m tests.simulation``: work schedules, show one, shrink a failing one, or prove that deliberate faults are found."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice

from tests.simulation.gate_mutations import GATE_MUTATIONS
from tests.simulation.generate import plan_of
from tests.simulation.graph_mutations import GRAPH_MUTATIONS
from tests.simulation.ledger import Violation
from tests.simulation.limit_mutations import LIMIT_MUTATIONS
from tests.simulation.mutations import MUTATIONS, Mutation
from tests.simulation.shrink import Failing, find, shrink
from tests.simulation.stop_mutations import STOP_MUTATIONS
from tests.simulation.world import World

_BATCH = 50
_ALL = (*MUTATIONS, *GATE_MUTATIONS, *STOP_MUTATIONS, *LIMIT_MUTATIONS, *GRAPH_MUTATIONS)


def _say(line: str = "") -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Do what the arguments ask. 1 when an invariant was broken, or a deliberate fault was not found."""
    options = _options()
    if options.mutations:
        return _prove_mutations(options.within, options.only)
    if options.seed is not None:
        return _show(options.seed, shrinks=options.shrink)
    return _work(options.seeds, options.jobs)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=_range, default=range(2000), help="a number, or from:to (default 0:2000)")
    parser.add_argument("--jobs", type=int, default=1, help="processes to use; 0 is one for each core")
    parser.add_argument("--seed", type=int, help="work one schedule and print its trace")
    parser.add_argument("--shrink", action="store_true", help="with --seed: make a failing schedule small first")
    parser.add_argument("--mutations", action="store_true", help="prove that each deliberate fault is found")
    parser.add_argument("--only", type=int, nargs="*", help="with --mutations: their numbers, from 1")
    parser.add_argument("--within", type=int, default=5000, help="with --mutations: how many seeds may be needed")
    return parser.parse_args()


def _range(text: str) -> range:
    first, colon, last = text.partition(":")
    return range(int(first), int(last)) if colon else range(int(first))


# --- many -------------------------------------------------------------------------------------------------------------
def _work(seeds: range, jobs: int) -> int:
    began, worked, broken, cpu_seconds = time.monotonic(), 0, 0, 0.0
    for batch in _worked(seeds, jobs):
        worked += batch.worked
        cpu_seconds += batch.cpu_seconds
        for seed, text in batch.broken:
            broken += 1
            _say(f"seed {seed}: {text}")
    seconds = max(time.monotonic() - began, 0.001)
    _say(
        f"{worked} schedules in {seconds:.0f} s ({worked / seconds:.0f} a second), {cpu_seconds:.0f} s of CPU "
        f"({1000 * cpu_seconds / max(worked, 1):.1f} ms each); {broken} broke an invariant."
    )
    if broken:
        _say("python -m tests.simulation --seed N --shrink shows one.")
    return 1 if broken else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    worked: int
    cpu_seconds: float
    broken: tuple[tuple[int, str], ...]


def _worked(seeds: range, jobs: int) -> Iterator[_Batch]:
    batches = [seeds[at : at + _BATCH] for at in range(0, len(seeds), _BATCH)]
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1:
        yield from map(_work_batch, batches)
        return
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        yield from pool.map(_work_batch, batches)


def _work_batch(seeds: range) -> _Batch:
    began = time.process_time()
    found = [(seed, find(plan_of(seed))) for seed in seeds]
    return _Batch(
        worked=len(seeds),
        cpu_seconds=time.process_time() - began,
        broken=tuple((seed, str(failing.violation)) for seed, failing in found if failing is not None),
    )


# --- one --------------------------------------------------------------------------------------------------------------
def _show(seed: int, *, shrinks: bool) -> int:
    failing = find(plan_of(seed))
    if failing is not None and shrinks:
        failing = shrink(failing)
    plan = plan_of(seed) if failing is None else failing.plan
    _print_plan(asdict(plan))
    try:
        World(plan, script=None if failing is None else failing.script, tells=_say).run()
    except Violation as violation:
        _say(f"\n{violation}")
        return 1
    _say("\nNo invariant was broken.")
    return 0


def _print_plan(plan: dict[str, object]) -> None:
    for key, value in plan.items():
        lines: Iterable[object] = value if isinstance(value, list | tuple) and value else [value]
        for line in lines:
            _say(f"{key:>14}  {json.dumps(line)}")
    _say()


# --- deliberate faults --------------------------------------------------------------------------------------------------
def _prove_mutations(within: int, only: list[int] | None) -> int:
    missed = 0
    for number, mutation in enumerate(_ALL, start=1):
        if only and number not in only:
            continue
        found = first_found(mutation, within)
        missed += found is None
        how = "NOT FOUND" if found is None else f"found by seed {found.plan.seed}: {found.violation}"
        _say(f"{number:>2}  {mutation.name}: {how[:160]}")
    return 1 if missed else 0


def first_found(mutation: Mutation, within: int) -> Failing | None:
    """The first schedule of so many that finds a deliberate fault."""
    with mutation.apply():
        found = (find(plan_of(seed)) for seed in range(within))
        return next(islice((one for one in found if one is not None), 1), None)


if __name__ == "__main__":
    sys.exit(main())
