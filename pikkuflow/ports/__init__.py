"""The ports of the engine: Protocols whose docstrings are the contract. Adapters translate; they never decide.

Time: every ``*_seconds`` is a number of seconds. "Now" inside a store or lease service is that service's own clock, never the caller's
(spec 6.1). Idempotence: each act of the store may be sent twice when the answer of the first was lost; the second finds its own author id
and answers as the first did (design 3.4). Outages: a store waits for a database that is away, with jittered retries, for as long as its
process has patience, then raises ``StoreUnavailable``; an outage never turns into a failed step (design 3.4).
"""

from __future__ import annotations

from pikkuflow.ports.leases import Lease, Leases
from pikkuflow.ports.messages import Dispatcher, Hints, Watch
from pikkuflow.ports.observer import Observer, PassEnded, PassOutcome, StepLost
from pikkuflow.ports.run_store import RunStore
from pikkuflow.ports.step_runner import Attempted, AttemptEnd, Deliverer, Route, StepRunner, StepWork
from pikkuflow.ports.surroundings import Clock, Codec, Ids

__all__ = [
    "AttemptEnd",
    "Attempted",
    "Clock",
    "Codec",
    "Deliverer",
    "Dispatcher",
    "Hints",
    "Ids",
    "Lease",
    "Leases",
    "Observer",
    "PassEnded",
    "PassOutcome",
    "Route",
    "RunStore",
    "StepLost",
    "StepRunner",
    "StepWork",
    "Watch",
]
