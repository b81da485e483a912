"""What a pass takes for seen, opened or only previewed: no outcome may be older than that and absent from what it read."""

from __future__ import annotations

from collections.abc import Callable

from pikkuflow.adapters.memory.tables import Tables
from pikkuflow.domain.act import Advance, PassRef
from pikkuflow.domain.history import History
from pikkuflow.domain.step import Place

__all__ = ["News"]


class News:
    """The judge of openings and previews. ``broken`` makes the violation."""

    def __init__(self, tables: Tables, broken: Callable[[str, str], Exception]) -> None:
        self._tables = tables
        self._broken = broken
        self._previews: dict[str, History] = {}

    def previewed(self, history: History) -> None:
        """Remember what a pass was shown that is not open."""
        self._previews[history.pass_id] = history

    def advanced(self, ref: PassRef, advance: Advance, *, before: tuple[str | None, int, int]) -> None:
        """All of a pass in one act: nobody may have had the run since its preview. ``before``: its pass, news, and what was seen."""
        holds, news, seen = before
        if holds is not None or news != advance.news or seen == news:
            raise self._broken("I5 no write by a superseded pass", f"{ref.pass_id} on {ref.run_id}: {before}")
        self.check(self._previews[ref.pass_id])

    def check(self, history: History) -> None:
        """What an opening gives as seen must be in what it gives: no outcome may be younger than the steps and older than the news."""
        rows = self._tables.steps.get(history.run.id, {})
        given = {step.name: step for step in history.steps}
        run = self._tables.runs[history.run.id]
        if run.news > run.seen:
            return
        for name, row in rows.items():
            told = given.get(name)
            if (
                row.is_settled
                and (told is None or not told.is_settled)
                and Place.is_queue(row.place)
                and row.fan_id is None
            ):
                raise self._broken("news that was seen is in the history", f"{history.run.id} {name}")
