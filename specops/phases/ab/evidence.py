"""What a comparison has found out so far, and what it is to find out next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from specops.load.settings import BaselineSettings
from specops.phases.ab import parity, verdict
from specops.phases.ab.mixed import longest
from specops.phases.ab.parity import Place
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
    visits: dict[VisitKey, VisitRecord] = field(default_factory=dict)
    mixed: dict[str, VisitRecord] = field(default_factory=dict)
    """By arm: greedy requests among sampled ones."""

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
        """What an earlier run of the same plan found out whole and well."""
        planned = {visit.key for visit in self.plan}
        bound = self.asked.max_error_share
        good = [v for v in kept.visits if v.cell.complete and v.cell.failed <= bound * len(v.cell.rows)]
        self.visits = {visit.key: visit for visit in good if visit.key in planned}
        self.mixed = {visit.arm: visit for visit in kept.mixed if visit.cell.failed == 0}
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
            look = verdict.look(so_far, self.working, self.settings, stage + 1, self.looks)
            self.decided[stage] = look.decided
        return self.decided[stage]

    def requests_left(self) -> int:
        return sum(len(visit.prompts) for visit in self.plan if visit.key not in self.visits)

    def not_asked_mixed(self) -> list[str]:
        """The arms that are still to be asked greedily among sampled requests."""
        if not self.settings.mixed_prompts or self.asked.temperature != 0 or self.standard in self.failed:
            return []
        return [arm for arm in self.working if arm not in self.mixed]

    def mixed_prompts(self) -> list[str]:
        """The same for every arm: of what the standard had answered when the first arm was asked."""
        for visit in self.mixed.values():
            return [row.prompt for row in visit.cell.rows]
        answers = (
            row
            for visit in self.visits.values()
            if visit.arm == self.standard and visit.round == 0
            for row in visit.cell.rows
        )
        return longest(answers, self.settings.mixed_prompts)

    def margins_wanted(self) -> list[Place]:
        """Where answers part and the standard was not asked yet how sure it was; none before the end."""
        if self.asked.temperature != 0 or self.standard in self.failed or self.next_visit():
            return []
        visits, mixed = list(self.visits.values()), list(self.mixed.values())
        parities = []
        for challenger in self.working[1:]:
            parities += parity.alone(visits, self.standard, challenger)
            among = parity.among_sampled(visits, mixed, self.standard, challenger)
            parities += [among] if among else []
        return [place for place in parity.margins_wanted(parities) if place not in self.margins]
