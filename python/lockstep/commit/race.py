"""The race of one transaction against those that committed since its snapshot: judged one after the other.

How often a lost race is tried again, and with which pauses, is decided in `lockstep.retry`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lockstep.commit.row_merge import RowMerge
from lockstep.conflict.serializable import Antidependency, judge
from lockstep.conflict.writes import Changes, Conflict, first_conflict
from lockstep.delta.footprint import Footprint


@dataclass
class Race:
    """What the winners since a transaction's snapshot mean for it, up to database version `judged_version`.

    Attributes:
        merge: judges the rows of files whose deletion vectors both wrote, and merges them.
        winners: by table id, what they did to the tables that it writes, in order.
    """

    mine: Changes
    judged_version: int
    merge: RowMerge
    winners: dict[str, list[Footprint]] = field(default_factory=dict)
    _first: Antidependency | None = None

    def fork(self) -> Race:
        """Return a race that goes on from here by itself."""
        return replace(self, winners={id_: [*winners] for id_, winners in self.winners.items()})

    def lose_to(self, winner: Changes) -> Conflict | None:
        """Take the next winner into account, and tell whether ours cannot land behind it."""
        if (conflict := first_conflict(self.mine, winner, same_rows=self.merge.find)) is not None:
            return conflict
        if self.mine.isolation == "SERIALIZABLE":
            verdict = judge(self.mine, [winner], self._first)
            if isinstance(verdict, Conflict):
                return verdict
            self._first = verdict
        for id_ in self.mine.writes.keys() & winner.writes.keys():
            self.winners.setdefault(id_, []).append(winner.writes[id_])
        return None

    @property
    def changed_metadata(self) -> bool:
        """Whether a winner changed, or may have, what a table says of itself that ours writes."""
        return any(winner.metadata for winners in self.winners.values() for winner in winners)

    @property
    def precedes(self) -> int | None:
        """The first winner that it comes before in every serial order, as its entry says it."""
        return None if self._first is None else self._first.winner.database_version
