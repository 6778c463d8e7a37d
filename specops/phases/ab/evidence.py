"""What a comparison has measured so far, and what it needs next."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from specops.load.arrivals import Level
from specops.load.settings import BaselineSettings
from specops.phases.ab import parity, verdict
from specops.phases.ab.mixed import longest
from specops.phases.ab.parity import GREEDY_PROMPTS, MOST_MIXED_ROUNDS, Place
from specops.phases.ab.records import Kept, Margin, VisitRecord
from specops.phases.ab.settings import AbSettings
from specops.phases.ab.visits import Visit, VisitKey


@dataclass
class Evidence:
    plan: Sequence[Visit]
    arms: Sequence[str]
    """The first is the standard."""

    asked: BaselineSettings
    settings: AbSettings
    sent_before: Sequence[str] = ()
    """Prompts that are sent before the first visit, to warm the arms up."""

    visits: dict[VisitKey, VisitRecord] = field(default_factory=dict)
    mixed: dict[tuple[str, int], VisitRecord] = field(default_factory=dict)
    """By arm and round: greedy requests among sampled ones."""

    greedy: dict[tuple[str, Level, int], VisitRecord] = field(default_factory=dict)
    """By arm, load and round: requests at temperature 0 beside a measurement at a higher one."""

    margins: dict[Place, Margin] = field(default_factory=dict)
    """How sure the standard was where another answer parts from its own."""

    failed: dict[str, str] = field(default_factory=dict)
    """Why, by arm."""

    decided: dict[int, bool] = field(default_factory=dict)
    """What the look after each stage found."""

    @property
    def standard(self) -> str:
        return self.arms[0]

    @property
    def working(self) -> list[str]:
        return [arm for arm in self.arms if arm not in self.failed]

    @property
    def looks(self) -> int:
        """As many as there are stages."""
        return 1 + self.plan[-1].stage

    def take_over(self, kept: Kept) -> None:
        """What an earlier run of the same plan measured whole.

        Failed requests stay: a comparison that is carried on must not ask again until they succeed. Only of
        an arm that was stopped, visits that failed are made again.
        """
        planned = {visit.key: set(visit.prompts) for visit in self.plan}
        stopped = {visit.arm for visit in kept.visits if visit.cell.aborted}
        bound = self.asked.max_error_share
        for visit in kept.visits:
            cell = visit.cell
            whole = cell.complete and {row.prompt for row in cell.rows} == planned.get(visit.key)
            if whole and not (visit.arm in stopped and cell.failed > bound * len(cell.rows)):
                self.visits[visit.key] = visit
        self.mixed = {(visit.arm, visit.round): visit for visit in kept.mixed if visit.cell.failed == 0}
        self.greedy = {(v.arm, v.cell.level, v.round): v for v in kept.greedy if v.cell.complete}
        self.margins = {margin.place: margin for margin in kept.margins}

    def answered(self, arm: str) -> bool:
        return any(visit.arm == arm for visit in self.visits.values())

    def next_visit(self) -> Visit | None:
        """The first that is still to be made; None when there is none, or the evidence decides."""
        for stage, visits in groupby(self.plan, key=lambda visit: visit.stage):
            if self.standard in self.failed or len(self.working) < 2:
                return None
            for visit in visits:
                if visit.key not in self.visits and visit.arm not in self.failed:
                    return visit
            if self._decides(stage):
                return None
        return None

    def _decides(self, stage: int) -> bool:
        if stage not in self.decided:
            so_far = [visit for visit in self.visits.values() if visit.stage <= stage]
            look = verdict.look(so_far, self.working, self.settings, stage + 1, self.looks, self.sent_before)
            self.decided[stage] = look.decided
        return self.decided[stage]

    def requests_left(self) -> int:
        return sum(len(visit.prompts) for visit in self.plan if visit.key not in self.visits)

    def next_mixed(self) -> tuple[int, list[str]] | None:
        """The next round of greedy requests among sampled ones, and the arms that lack it.

        The first round is for every arm. Another follows, with other prompts, as long as some answers differ
        and it is not decided what that means, at most `MOST_MIXED_ROUNDS` in all. None: no more are needed.
        """
        if not self.settings.mixed_prompts or self.asked.temperature != 0 or self.standard in self.failed:
            return None
        for round_ in range(MOST_MIXED_ROUNDS):
            arms = self.working if round_ == 0 else self._open_mixed()
            lacking = [arm for arm in arms if (arm, round_) not in self.mixed]
            if lacking and (round_ == 0 or self.mixed_prompts(round_)):
                return round_, lacking
        return None

    def _open_mixed(self) -> list[str]:
        """The standard and the challengers whose mixed batches are not decided; none before it is known how
        sure the standard was where their answers part."""
        if self.margins_wanted():
            return []
        margins = {place: margin.margin for place, margin in self.margins.items()}
        visits, mixed = list(self.visits.values()), list(self.mixed.values())
        found = []
        for challenger in self.working[1:]:
            among = parity.among_sampled(visits, mixed, self.standard, challenger)
            if among and parity.with_margins(among, margins).open(self.settings.confidence):
                found.append(challenger)
        return [self.standard, *found] if found else []

    def mixed_prompts(self, round_: int = 0) -> list[str]:
        """The same for every arm: the longest answers that the standard had given when the first arm was
        sent the round, without those of earlier rounds."""
        for visit in self.mixed.values():
            if visit.round == round_:
                return [row.prompt for row in visit.cell.rows]
        earlier = {row.prompt for visit in self.mixed.values() for row in visit.cell.rows}
        answers = (
            row
            for visit in self.visits.values()
            if visit.arm == self.standard and visit.round == 0
            for row in visit.cell.rows
            if row.prompt not in earlier
        )
        return longest(answers, self.settings.mixed_prompts)

    def next_greedy(self, up: Collection[str]) -> tuple[str, Level, int] | None:
        """The next arm, load and round of requests at temperature 0, of the arms that are `up`; None where no
        more are needed. The standard has two rounds, the second as control; challengers have one.

        At temperature 0 the measurement itself has these answers. Where the standard answers none of them,
        there is nothing to compare with.
        """
        if self.asked.temperature == 0 or self.standard in self.failed:
            return None
        others = [(name, 0) for name in self.working[1:]]
        for level in self.asked.levels():
            for name, round_ in [(self.standard, 0), *others, (self.standard, 1)]:
                first = self.greedy.get((self.standard, level, 0))
                useless = first is not None and first.cell.failed == len(first.cell.rows)
                if name in up and (name, level, round_) not in self.greedy and not useless:
                    return name, level, round_
        return None

    def greedy_prompts(self, level: Level) -> list[str]:
        """The first of the plan's order, in which every class has its share, so many that the load is
        reached."""
        planned = (p for visit in self.plan if visit.level == level for p in visit.prompts)
        return list(dict.fromkeys(planned))[: max(GREEDY_PROMPTS, level.concurrency or 0)]

    def margins_wanted(self) -> list[Place]:
        """Where answers part and the standard was not asked yet how sure it was; none before the end."""
        if self.standard in self.failed or self.next_visit():
            return []
        visits, mixed = list(self.visits.values()), list(self.mixed.values())
        parities = []
        for challenger in self.working[1:]:
            if self.asked.temperature > 0:
                parities += parity.greedy(list(self.greedy.values()), self.standard, challenger)
            else:
                parities += parity.compare(visits, mixed, self.standard, challenger)
        return [place for place in parity.margins_wanted(parities) if place not in self.margins]
