"""What is measured: which peer, in which mode, with which workloads, at which size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PEERS: Final = Path(__file__).resolve().parent / "peers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One process that measures one peer in one mode."""

    peer: str
    mode: str
    workloads: str
    sizes: tuple[str, ...] = ()
    is_far: bool = False
    """Through the proxy that adds a round trip to the database."""
    is_quick: bool = False
    """Part of ``make bench-quick``."""
    is_once: bool = False
    """Measured in the first round only: counts, which do not move."""

    @property
    def name(self) -> str:
        """How tables call it."""
        return f"{self.peer}/{self.mode}" + ("/far" if self.is_far else "")

    @property
    def script(self) -> Path:
        """The program that measures it."""
        return _PEERS / f"{self.peer}_peer.py"


_FAR_SIZE: Final = ("--latency-runs", "20")
_SLOW_SIZE: Final = ("--runs", "60", "--latency-runs", "10")
_KILLS: Final = ("--kills", "4")

JOBS: Final = (
    Job(peer="dbos", mode="inline", workloads="chain,latency,fanout,history,replay,start"),
    Job(peer="pikkuflow", mode="place", workloads="chain,latency,history,replay,start", is_quick=True),
    Job(peer="celery", mode="prefork", workloads="chain,latency,fanout,history,start", is_quick=True),
    Job(peer="pikkuflow", mode="queue", workloads="chain,latency", is_quick=True),
    Job(peer="dbos", mode="child", workloads="chain,latency,fanout", sizes=_SLOW_SIZE),
    Job(peer="pikkuflow", mode="many", workloads="chain,start"),
    Job(peer="dbos", mode="queue", workloads="chain,latency"),
    Job(peer="pikkuflow", mode="quick", workloads="chain,latency"),
    Job(peer="pikkuflow", mode="fan", workloads="fanout", is_quick=True),
    Job(peer="absurd", mode="fast", workloads="chain,latency,history,start"),
    Job(peer="dbos", mode="inline", workloads="latency", sizes=_FAR_SIZE, is_far=True),
    Job(peer="pikkuflow", mode="place", workloads="latency", sizes=_FAR_SIZE, is_far=True),
    Job(peer="dbos", mode="queue", workloads="crash", sizes=_KILLS),
    Job(peer="pikkuflow", mode="place", workloads="crash", sizes=_KILLS),
    Job(peer="pikkuflow", mode="place", workloads="cost", is_once=True),
    Job(peer="pikkuflow", mode="queue", workloads="cost", is_once=True),
    Job(peer="dbos", mode="inline", workloads="cost", is_once=True),
    Job(peer="absurd", mode="fast", workloads="cost", is_once=True),
)
"""In an order in which whoever is compared stands side by side; every second round runs it backwards."""
