"""``make soak MINUTES=30``: every fault at random under load without a pause, then a count of what was lost, doubled or stuck.

Exit code 1 when there was anything of it. ``SEED=…`` draws the same faults again (their moments are the machine's).
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.faults.judge import Verdict, judge
from tests.faults.site import own_site
from tests.faults.soak_chaos import KILLS, Chaos
from tests.faults.soak_load import Load
from tests.servers.processes import NotReadyError, wait_until

LOGGER = logging.getLogger("soak")
SETTINGS = {
    "PIKKUFLOW_RUN_LEASE_SECONDS": "5",
    "PIKKUFLOW_STEP_LEASE_SECONDS": "5",
    "PIKKUFLOW_SWEEP_INTERVAL": "1",
    "PIKKUFLOW_STALLED_SECONDS": "3",
    "PIKKUFLOW_UNDISPATCHED_SECONDS": "5",
}
QUIET_SECONDS = 180.0
"""How long runs that were open at the last fault have; a next-send time may have doubled a few times by then."""


def main() -> int:
    """Run a soak and print its report; the exit code."""
    options = _options()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger("pikkuflow").setLevel(logging.ERROR)
    folder = Path(tempfile.mkdtemp(prefix="pf-soak-"))
    LOGGER.info("seed %s, logs in %s", options.seed, folder)
    with own_site(folder, SETTINGS) as site:
        chaos = Chaos(site=site, random=random.Random(options.seed))
        load = Load(client=site.faulty, width=options.width, step_seconds=options.step_seconds)
        _soak(chaos, load, minutes=options.minutes, pause=options.pause)
        verdict = judge(site.faulty, sorted(load.asked), load.look(), site.deployment.journal(), chaos.done)
    head = f"seed {options.seed}, {options.minutes:g} minutes"
    sys.stdout.write("\n".join([head, *_counts(chaos, load, verdict), *verdict.lines(), ""]))
    if verdict.is_good:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if verdict.is_good else 1


def _soak(chaos: Chaos, load: Load, *, minutes: float, pause: float) -> None:
    chaos.start()
    load.start()
    began = time.monotonic()
    while time.monotonic() - began < minutes * 60:
        time.sleep(chaos.random.uniform(0, 2 * pause))
        chaos.strike()
    load.stop()
    try:
        wait_until(lambda: not load.look(), seconds=QUIET_SECONDS, every=0.5)
    except NotReadyError:
        LOGGER.info("some runs did not end")


def _counts(chaos: Chaos, load: Load, verdict: Verdict) -> Iterator[str]:
    faults = Counter(one.fault for one in chaos.done)
    yield from (f"  {times:4} {fault.value}" for fault, times in faults.most_common())
    kills = sum(times for fault, times in faults.items() if fault in KILLS)
    yield (
        f"kills {kills}, runs {len(load.asked)}, "
        f"lost {len(verdict.lost)}, doubled {len(verdict.doubled)}, stuck {len(verdict.stuck)}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--pause", type=float, default=2.4, help="mean seconds between two faults")
    parser.add_argument("--width", type=int, default=8, help="runs that are open at a time")
    parser.add_argument("--step-seconds", type=float, default=0.4)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
